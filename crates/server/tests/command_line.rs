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

#[test]
fn mails_can_be_read_before_any_is_sent() {
    let name = "reservation-expired-refunded";
    let shown = |arguments: &[&str]| {
        let output = tashika(&[&["mail", "preview", name], arguments].concat(), &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let sample = shown(&[]);
    assert!(sample.starts_with("Subject: 【返金のお知らせ】"), "{sample}");
    assert!(sample.contains("返金額: 3,000円"), "{sample}");
    assert!(
        shown(&["--locale", "en", "--html"]).starts_with("<!doctype html>\n<html lang=\"en\">")
    );
    assert!(
        shown(&["--locale", "en", "--text"]).starts_with("Your reservation was no longer held")
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data.json");
    std::fs::write(&data, r#"{"reservationId": "r7", "refundAmount": 5, "currency": "USD"}"#)
        .expect("the file is written");
    let data = data.to_str().expect("the path is UTF-8");
    assert!(shown(&["--data", data, "--text"]).contains("返金額: $0.05"));

    let refused = tashika(&["mail", "preview", "deadline-alert", "--data", data], &[]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("needs the variable `staffName`"));
    let unknown = tashika(&["mail", "preview", "no-such"], &[]);
    assert!(text(&unknown.stderr).contains(name), "{}", text(&unknown.stderr));
}

#[test]
fn templates_of_ones_own_are_checked_and_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |file: &str, text: &str| {
        let path = folder.path().join("welcome").join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
        std::fs::write(path, text).expect("the file is written");
    };
    write("en.subject", "Hello {{ name }}");
    write("en.html", "<p>{{ name }}</p>");
    write("en.text", "{{ name }}");
    write("sample.json", r#"{"name": "Hanako"}"#);
    let path = folder.path().to_str().expect("the path is UTF-8");
    let environment = [("MAIL_TEMPLATES_DIR", path)];
    let listed = text(&tashika(&["mail", "templates"], &environment).stdout);
    assert!(listed.contains("welcome (en)\n  name\n"), "{listed}");
    assert!(listed.contains("deadline-alert (ja, en)\n  staffName: who"), "{listed}");
    let shown = tashika(&["mail", "preview", "welcome", "--templates", path], &[]);
    assert_eq!(text(&shown.stdout), "Subject: Hello Hanako\n\nHanako\n");

    write("en.html", "<p>\n{{ name | no_such_filter }}");
    let broken = tashika(&["mail", "preview", "welcome"], &environment);
    assert!(!broken.status.success());
    let message = text(&broken.stderr);
    assert!(message.contains("welcome/en.html, line 2: "), "{message}");
}

#[test]
fn shells_are_told_what_can_be_typed() {
    for (shell, part) in
        [("bash", "complete -F"), ("zsh", "#compdef tashika"), ("fish", "complete -c tashika")]
    {
        let output = tashika(&["completions", shell], &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let script = text(&output.stdout);
        for word in [part, "cases", "decide", "doctor", "silence"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        if shell == "bash" {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let path = folder.path().join("tashika.bash");
            std::fs::write(&path, script).expect("the file is written");
            let read = Command::new("bash").arg("-n").arg(&path).output().expect("bash runs");
            assert!(read.status.success(), "{}", text(&read.stderr));
        }
    }
    let unknown = tashika(&["completions", "telex"], &[]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn there_is_a_manual() {
    let page = text(&tashika(&["man"], &[]).stdout);
    assert!(page.contains(".TH tashika 1") && page.contains("tashika\\-cases(1)"), "{page}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("man1");
    let written = tashika(&["man", "--dir", path.to_str().expect("the path is UTF-8")], &[]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for name in ["tashika.1", "tashika-cases-decide.1", "tashika-mail-batches-cancel.1"] {
        let page = std::fs::read_to_string(path.join(name)).expect(name);
        assert!(page.contains(".TH ") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
}

#[test]
fn whoever_stops_reading_is_not_an_error() {
    use std::process::Stdio;
    for arguments in [&["completions", "bash"][..], &["man"], &["config", "--markdown"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tashika"))
            .args(arguments)
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        // Nobody reads a single byte.
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn commands_that_look_do_not_make_a_database() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("typo.db");
    let url = format!("sqlite:{}", path.display());
    let environment = [("TASHIKA_DATABASE_URL", url.as_str())];
    for arguments in [
        &["cases", "list"][..],
        &["payments", "list", "--json"],
        &["dlq", "list"],
        &["webhooks", "stats"],
        &["mail", "lane"],
        &["alerts", "list"],
        &["audit", "verify"],
        &["top", "--once"],
    ] {
        let output = tashika(arguments, &environment);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("there is no database"), "{arguments:?}: {said}");
        assert_eq!((said.lines().count(), text(&output.stdout).as_str()), (1, ""), "{arguments:?}");
        assert!(!path.exists());
    }
}

#[test]
fn a_command_that_cannot_be_understood_ends_with_2() {
    for arguments in [&["cases"][..], &["cases", "show", "42"], &["dlq", "retry"], &["tops"]] {
        let output = tashika(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}
