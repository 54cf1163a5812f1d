//! Layers override each other in order, and a broken configuration shows all of its problems.

use super::*;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    chassis: ChassisConfig,
    shard_count: u16,
    name: String,
    #[serde(with = "humantime_serde")]
    search_timeout: Duration,
    bus: Bus,
    #[serde(default)]
    extra: Option<u32>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bus {
    url: String,
}

impl Validate for Config {
    fn problems(&self) -> Vec<String> {
        if self.shard_count == 0 {
            vec!["shard-count: must be at least 1".into()]
        } else {
            Vec::new()
        }
    }
}

const DEFAULTS: &str = r#"
shard-count = 64
name = "a"
search-timeout = "1s"
[bus]
url = "nats://127.0.0.1:4222"
[chassis]
health-listen = "127.0.0.1:9101"
"#;

fn load_with(file: Option<PathBuf>, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment = environment
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    load(&Sources {
        service: "node-agent",
        defaults: DEFAULTS,
        file,
        environment,
    })
}

fn file(text: &str) -> (PathBuf, impl Drop) {
    struct Remove(PathBuf);
    impl Drop for Remove {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).ok();
        }
    }
    let name = format!("dray-config-{}-{:?}.toml", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    (path.clone(), Remove(path))
}

#[test]
fn defaults_are_a_configuration() {
    let config = load_with(None, &[]).unwrap();
    assert_eq!(config.shard_count, 64);
    assert_eq!(config.chassis.health_listen.port(), 9101);
    assert_eq!(config.chassis.drain_timeout, Duration::from_secs(20));
    assert_eq!(ChassisConfig::default().worker_threads, 0);
}

#[test]
fn environment_overrides_file_overrides_defaults() {
    let (path, _remove) = file("name = \"b\"\nshard-count = 8\n[bus]\nurl = \"nats://b\"\n");
    let environment = [
        ("DRAY_NODE_AGENT__SHARD_COUNT", "4"),
        ("DRAY_NODE_AGENT__SEARCH_TIMEOUT", "250ms"),
        ("DRAY_NODE_AGENT__EXTRA", "7"),
        ("DRAY_NODE_AGENT__BUS__URL", "nats://c"),
        ("DRAY_LOG", "warn"),
        ("DRAY_INGEST__NAME", "another service's"),
    ];
    let config = load_with(Some(path), &environment).unwrap();
    assert_eq!((config.name.as_str(), config.shard_count), ("b", 4));
    assert_eq!(config.search_timeout, Duration::from_millis(250));
    assert_eq!(config.extra, Some(7));
    assert_eq!(config.bus.url, "nats://c");
    assert_eq!(config.chassis.telemetry.log, "warn");
}

#[test]
fn a_string_that_looks_like_a_number_stays_a_string() {
    assert_eq!(load_with(None, &[("DRAY_NODE_AGENT__NAME", "123")]).unwrap().name, "123");
}

#[test]
fn the_service_s_own_name_beats_the_short_one() {
    let environment = [("DRAY_NODE_AGENT__CHASSIS__TELEMETRY__LOG", "debug"), ("DRAY_LOG", "warn")];
    assert_eq!(load_with(None, &environment).unwrap().chassis.telemetry.log, "debug");
}

#[test]
fn all_problems_are_reported_with_their_origin() {
    let (path, _remove) = file("shard-count = \"many\"\nshard-cuont = 3\n");
    let shown = path.display().to_string();
    let error = load_with(Some(path), &[("DRAY_NODE_AGENT__BUS__PORT", "1")]).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.problems.len(), 3, "{text}");
    assert!(text.contains(&format!("{shown}: shard-count: invalid type")), "{text}");
    assert!(text.contains(&format!("{shown}: shard-cuont: unknown field")), "{text}");
    assert!(text.contains("DRAY_NODE_AGENT__BUS__PORT: bus.port: unknown field"), "{text}");
}

#[test]
fn a_missing_file_and_an_invalid_value_are_both_reported() {
    let error = load_with(
        Some("/nonexistent/dray.toml".into()),
        &[("DRAY_NODE_AGENT__SHARD_COUNT", "0")],
    )
    .unwrap_err();
    assert_eq!(error.problems.len(), 2, "{error}");
}
