//! Figures to a file and to a person.

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::machine;

/// Writes `figures` to `target/bench/<name>.json`.
pub(crate) fn write(name: &str, figures: &impl Serialize) -> anyhow::Result<()> {
    let dir = machine::figures_dir();
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_vec_pretty(figures)?)?;
    eprintln!("figures: {}", path.display());
    Ok(())
}

/// A table with this head.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(head);
    table
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
