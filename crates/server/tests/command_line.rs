//! The binary itself: what it prints and how it ends.

use std::process::{Command, Output};

fn tashika(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tashika"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

#[test]
fn config_shows_what_is_in_force_and_hides_secrets() {
    let environment = [("OUTBOX_BATCH", "7"), ("TASHIKA_API_TOKENS", "s3cret-s3cret-s3cret")];
    let output = tashika(&["config"], &environment);
    let shown = text(&output.stdout);
    assert!(output.status.success());
    assert!(shown.contains("OUTBOX_BATCH = 7  # environment"), "{shown}");
    assert!(shown.contains("TASHIKA_API_TOKENS = (hidden)"), "{shown}");
    assert!(!shown.contains("s3cret"));
    let json = tashika(&["config", "--json"], &environment);
    let document: serde_json::Value =
        serde_json::from_slice(&json.stdout).expect("the output is JSON");
    assert!(document["settings"].as_array().is_some_and(|settings| settings.len() > 30));
}

#[test]
fn the_printed_defaults_are_a_file_that_loads() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().join("tashika.toml");
    let defaults = tashika(&["config", "--defaults"], &[]);
    std::fs::write(&path, defaults.stdout).expect("the file is written");
    let path = path.to_str().expect("the path is UTF-8");
    for (arguments, environment) in [
        (vec!["config", "--config", path], vec![]),
        (vec!["config"], vec![("TASHIKA_CONFIG", path)]),
    ] {
        let output = tashika(&arguments, &environment);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(&format!("OUTBOX_BATCH = 32  # {path}")));
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_with_every_reason() {
    let environment = [("OUTBOX_BATCH", "none"), ("BROKER_ADAPTER", "telex")];
    let output = tashika(&["config"], &environment);
    assert!(!output.status.success());
    let message = text(&output.stderr);
    assert!(message.contains("OUTBOX_BATCH") && message.contains("BROKER_ADAPTER"), "{message}");
    let missing = tashika(&["config", "--config", "does-not-exist.toml"], &[]);
    assert!(!missing.status.success());
    assert!(text(&missing.stderr).contains("does-not-exist.toml"));
}

#[test]
fn help_and_version_are_there() {
    let help = text(&tashika(&["--help"], &[]).stdout);
    assert!(help.contains("Usage: tashika") && help.contains("config"), "{help}");
    let version = text(&tashika(&["--version"], &[]).stdout);
    assert!(version.contains(env!("CARGO_PKG_VERSION")));
}
