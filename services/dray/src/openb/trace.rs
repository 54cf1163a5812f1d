//! The openb trace: nodes with GPUs, and pods that asked for GPUs.
//!
//! Two CSV files with a header line; columns that Dray does not look at (CPU, memory, times) are skipped. Source:
//! `cluster-trace-gpu-v2023` of alibaba/clusterdata.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// A machine: `gpu` devices, all of one `model`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Node {
    #[serde(rename = "sn")]
    pub(crate) name: String,
    pub(crate) gpu: u32,
    pub(crate) model: String,
}

/// A pod that asked for GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// GPUs, at least 1.
    pub(crate) gpus: u32,
    /// Thousandths of each of them.
    pub(crate) milli: u32,
    /// Models that will do, in the order of the trace and without repeats; empty: any.
    pub(crate) models: Vec<String>,
}

/// The pods of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pods {
    pub(crate) asking: Vec<Pod>,
    /// Pods that asked for no GPU: they are left out.
    pub(crate) without: usize,
}

#[derive(Deserialize)]
struct PodRow {
    name: String,
    num_gpu: u32,
    /// Thousandths of each GPU.
    gpu_milli: u32,
    /// Models joined with `|`; some rows name one twice.
    gpu_spec: String,
}

/// `gpu_milli` of a whole GPU.
pub(crate) const WHOLE: u32 = 1_000;

/// Reads the first `max` nodes, in file order.
pub(crate) fn nodes(file: &Path, max: usize) -> anyhow::Result<Vec<Node>> {
    rows(file, max)
}

/// Reads the first `max` pods, in file order, which is the order in which they were created.
pub(crate) fn pods(file: &Path, max: usize) -> anyhow::Result<Pods> {
    let mut pods = Pods::default();
    for row in rows::<PodRow>(file, max)? {
        if row.num_gpu > 0 {
            pods.asking.push(Pod {
                name: row.name,
                gpus: row.num_gpu,
                milli: row.gpu_milli,
                models: models(&row.gpu_spec),
            });
        } else {
            pods.without += 1;
        }
    }
    Ok(pods)
}

fn models(spec: &str) -> Vec<String> {
    let mut models: Vec<String> = Vec::new();
    for model in spec.split('|').filter(|model| !model.is_empty()) {
        if !models.iter().any(|known| known == model) {
            models.push(model.to_owned());
        }
    }
    models
}

fn rows<R: for<'de> Deserialize<'de>>(file: &Path, max: usize) -> anyhow::Result<Vec<R>> {
    let mut reader = csv::Reader::from_path(file).with_context(|| format!("cannot read {}", file.display()))?;
    let rows: Result<Vec<R>, csv::Error> = reader.deserialize().take(max).collect();
    let rows = rows.with_context(|| format!("{} is not a file of the trace", file.display()))?;
    ensure!(!rows.is_empty(), "{} has no rows", file.display());
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_gpus_are_counted_and_repeated_models_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pods.csv");
        let text = "name,num_gpu,gpu_milli,gpu_spec,cpu_milli\np-0,1,1000,,1\np-1,1,460,,1\np-2,8,1000,V100M16|V100M32|V100M32,1\np-3,0,0,,1\n";
        std::fs::write(&file, text).unwrap();
        let pod = |name: &str, gpus, milli, models: &[&str]| Pod {
            name: name.to_owned(),
            gpus,
            milli,
            models: models.iter().map(|model| (*model).to_owned()).collect(),
        };
        let asking = vec![
            pod("p-0", 1, 1_000, &[]),
            pod("p-1", 1, 460, &[]),
            pod("p-2", 8, 1_000, &["V100M16", "V100M32"]),
        ];
        assert_eq!(pods(&file, usize::MAX).unwrap(), Pods { asking, without: 1 });
        assert_eq!(pods(&file, 1).unwrap().asking.len(), 1);
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes.csv");
        std::fs::write(&file, "a,b\n1,2\n").unwrap();
        assert!(nodes(&file, 10).unwrap_err().to_string().contains("not a file of the trace"));
    }
}
