//! The table against its documents, the sources against each other, and each refusal.

use std::path::PathBuf;

use secrecy::ExposeSecret as _;

use super::documentation::{defaults_toml, markdown};
use super::keys::{self, keys};
use super::*;

fn environment(pairs: &[(&str, &str)]) -> Sources {
    Sources {
        file: None,
        environment: pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    }
}

fn file(text: &str) -> Sources {
    Sources { file: Some((PathBuf::from("tashika.toml"), text.to_owned())), ..Sources::default() }
}

fn load(pairs: &[(&str, &str)]) -> Config {
    Config::from_sources(&environment(pairs)).unwrap()
}

fn refused(sources: &Sources) -> String {
    Config::from_sources(sources).unwrap_err().to_string()
}

#[test]
fn every_key_stands_in_the_defaults_file_with_the_same_default() {
    let table: toml::Table = DEFAULTS.parse().unwrap();
    assert_eq!(table.len(), keys().count());
    for key in keys() {
        assert!(table.contains_key(key.name), "{}", key.name);
        let resolved = source::resolve(&Sources::default());
        assert!(resolved.problems.is_empty(), "{:?}", resolved.problems);
        let from_file = &resolved.settings[key.name].value;
        let from_table = value::read(key.kind, key.default).unwrap();
        assert_eq!(*from_file, from_table, "{}", key.name);
    }
}

#[test]
fn the_defaults_file_is_the_table() {
    crate::testing::same_as_file("crates/server/config.default.toml", &defaults_toml());
}

#[test]
fn the_documentation_is_the_table() {
    crate::testing::same_as_file("docs/configuration.md", &markdown());
}

#[test]
fn the_defaults_are_those_of_the_domain() {
    let config = load(&[]);
    for lane in Lane::OWN {
        if keys::LANE_DEFAULTS.iter().all(|(known, _, _)| *known != lane) {
            assert_eq!(config.lanes[&lane], LanePolicy::default(), "{lane}");
        }
        assert!(config.enabled_lanes.contains(&lane), "{lane}");
    }
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.database_url.expose_secret(), "sqlite:tashika.db");
    assert_eq!(config.broker.timeout.as_millis(), 2500);
    assert_eq!(config.broker.adapter, Adapter::Paper);
    assert!(config.broker.idempotency_keys && config.traces.is_none());
    assert_eq!(config.payments.gateway, GatewayKind::Sandbox);
    assert_eq!(config.payments.timeout.as_secs(), 30);
    assert_eq!(config.payments.rules, tashika_domain::payment::PaymentRules::default());
    let webhooks = &config.lanes[&Lane::WEBHOOKS];
    assert_eq!((webhooks.concurrency, webhooks.max_attempts), (32, 4));
    assert_eq!(webhooks.backoff, [1, 2, 4].map(Duration::from_secs));
    assert_eq!(load(&[("OUTBOX_CONCURRENCY", "2")]).lanes[&Lane::PAYMENTS].concurrency, 2);
    let instruments = config.orders.instruments.unwrap();
    assert!(instruments.contains(&"USDJPY".to_owned()));
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let mut sources = file(
        "OUTBOX_BATCH = 7\nOUTBOX_CONCURRENCY = 9\nOUTBOX_BACKOFF_SEC = [0.5, 1]\nOUTBOX_ORDERS_BATCH = 3",
    );
    sources.environment.insert("OUTBOX_CONCURRENCY".into(), "11".into());
    sources.environment.insert("OUTBOX_ORDERS_WEIGHT".into(), "5".into());
    let config = Config::from_sources(&sources).unwrap();
    let orders = &config.lanes[&Lane::ORDERS];
    let mail = &config.lanes[&Lane::MAIL];
    assert_eq!((orders.batch, mail.batch), (3, 7));
    assert_eq!((orders.concurrency, mail.concurrency), (11, 11));
    assert_eq!((orders.weight, mail.weight), (5, 1));
    assert_eq!(orders.backoff[0].as_millis(), 500);
    let custom = Lane::parse("my_own").unwrap();
    assert_eq!(config.lane(&custom).batch, 7);

    let shown: BTreeMap<String, String> = config
        .effective()
        .into_iter()
        .map(|line| (line.name, format!("{} ({})", line.value, line.origin)))
        .collect();
    assert_eq!(shown["OUTBOX_BATCH"], "7 (tashika.toml)");
    assert_eq!(shown["OUTBOX_CONCURRENCY"], "11 (environment)");
    assert_eq!(shown["OUTBOX_WEIGHT"], "1 (default)");
    assert_eq!(shown["OUTBOX_ORDERS_WEIGHT"], "5 (environment)");
    assert!(!shown.contains_key("OUTBOX_MAIL_WEIGHT"));
}

#[test]
fn a_lane_can_be_switched_on_and_off_by_itself() {
    let config = load(&[("OUTBOX_ENABLED", "false"), ("OUTBOX_MAIL_ENABLED", "true")]);
    assert_eq!(config.enabled_lanes, BTreeSet::from([Lane::MAIL]));
}

#[test]
fn empty_variables_count_as_not_set_except_where_empty_is_a_value() {
    let config = load(&[("OUTBOX_BATCH", ""), ("ORDER_INSTRUMENTS", "")]);
    assert_eq!(config.lanes[&Lane::ORDERS].batch, 32);
    assert_eq!(config.orders.instruments, None);
}

#[test]
fn unknown_keys_in_the_file_are_refused_with_the_nearest_name() {
    let message = refused(&file("OUTBOX_CONCURENCY = 8\nOUTBOX_ORDER_BATCH = 1"));
    assert!(
        message.contains("OUTBOX_CONCURENCY is not a setting; did you mean OUTBOX_CONCURRENCY?"),
        "{message}"
    );
    assert!(message.contains("did you mean OUTBOX_ORDERS_BATCH?"), "{message}");
    assert!(refused(&file("[outbox]\nbatch = 1")).contains("outbox is not a setting"));
    assert!(refused(&file("OUTBOX_BATCH = {a = 1}")).contains("must be a plain value"));
}

#[test]
fn mistyped_variables_are_warned_about_and_foreign_ones_are_not() {
    let config =
        load(&[("OUTBOX_CONCURENCY", "8"), ("TASHIKA_SERVICE_HOST", "10.0.0.1"), ("PATH", "/bin")]);
    let about: Vec<&String> =
        config.warnings.iter().filter(|warning| warning.contains("environment variable")).collect();
    assert_eq!(about.len(), 1, "{about:?}");
    assert!(about[0].contains("OUTBOX_CONCURRENCY"), "{about:?}");
}

#[test]
fn values_that_do_not_parse_are_refused_all_at_once() {
    let message = refused(&environment(&[
        ("OUTBOX_BATCH", "0"),
        ("OUTBOX_ORDERS_CONCURRENCY", "0"),
        ("OUTBOX_BACKOFF_SEC", "[5,x]"),
        ("BROKER_ADAPTER", "carrier-pigeon"),
        ("ORDER_INSTRUMENTS", ""),
    ]));
    for part in [
        r#"OUTBOX_BATCH = "0" (environment): expected a whole number from 1 to 10000"#,
        r#"OUTBOX_ORDERS_CONCURRENCY = "0""#,
        r#"OUTBOX_BACKOFF_SEC = "[5,x]""#,
        "expected one of paper, http",
    ] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    let message = refused(&environment(&[("ORDER_INSTRUMENTS", "USDJPY,usd jpy")]));
    assert!(message.contains("usd jpy"), "{message}");
}

#[test]
fn broken_files_are_refused_by_line_without_quoting_it() {
    let message = refused(&file("OUTBOX_BATCH = 1\nTASHIKA_API_TOKENS = \"s3cret"));
    assert!(message.contains("line 2"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
}

#[test]
fn secrets_come_from_files_and_are_shown_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, "s3cret-token-number-one, s3cret-token-number-two\n").unwrap();
    let path = path.to_str().unwrap();
    let config = load(&[
        ("TASHIKA_API_TOKENS_FILE", path),
        ("BROKER_SECRET", "s3cret-key"),
        ("BROKER_KEY_ID", "key-1"),
        ("TASHIKA_DATABASE_URL", "postgres://me:s3cret@db.example/t"),
    ]);
    assert_eq!(config.tokens.len(), 2);
    assert_eq!(config.tokens[1].expose_secret(), "s3cret-token-number-two");
    let shown = format!("{config:?} {:?}", config.effective());
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("file named by TASHIKA_API_TOKENS_FILE"));

    let both = refused(&environment(&[
        ("TASHIKA_API_TOKENS_FILE", path),
        ("TASHIKA_API_TOKENS", "s3cret-token"),
    ]));
    assert!(both.contains("TASHIKA_API_TOKENS and TASHIKA_API_TOKENS_FILE"));
    assert!(!both.contains("s3cret"));
    let missing = refused(&environment(&[("BROKER_SECRET_FILE", "/nowhere/at/all")]));
    assert!(missing.contains("BROKER_SECRET_FILE"), "{missing}");
    let unreadable = refused(&environment(&[("TASHIKA_DATABASE_URL", "mysql://me:s3cret@db/t")]));
    assert!(!unreadable.contains("s3cret"), "{unreadable}");
}

#[test]
fn contradictions_are_refused_with_both_names() {
    let token = "0123456789abcdef";
    for (pairs, names) in [
        (vec![("BROKER_ADAPTER", "http")], ["BROKER_ADAPTER", "BROKER_URL"]),
        (vec![("BROKER_KEY_ID", "k")], ["BROKER_KEY_ID", "BROKER_SECRET"]),
        (vec![("BROKER_SECRET", "k")], ["BROKER_KEY_ID", "BROKER_SECRET"]),
        (vec![("BROKER_TIMEOUT_MS", "120000")], ["BROKER_TIMEOUT_MS", "OUTBOX_LOCK_LEASE_SEC"]),
        (
            vec![("OUTBOX_ORDERS_LOCK_LEASE_SEC", "2")],
            ["BROKER_TIMEOUT_MS", "OUTBOX_ORDERS_LOCK_LEASE_SEC"],
        ),
        (vec![("IDEMPO_TTL_HOURS", "0.01")], ["IDEMPO_TTL_HOURS", "OUTBOX_BACKOFF_SEC"]),
        (vec![("TASHIKA_LISTEN", "0.0.0.0:8080")], ["TASHIKA_LISTEN", "TASHIKA_API_TOKENS"]),
        (
            vec![("TASHIKA_LISTEN", "[::]:80"), ("TASHIKA_API_TOKENS", "short")],
            ["TASHIKA_LISTEN", "TASHIKA_API_TOKENS"],
        ),
        (vec![("RENDER_PROVIDER", "http")], ["RENDER_PROVIDER", "RENDER_URL"]),
        (vec![("RENDER_PROVIDER", "shotstack")], ["RENDER_PROVIDER", "SHOTSTACK_API_KEY"]),
        (
            vec![("RENDER_PROVIDER", "shotstack"), ("SHOTSTACK_API_KEY", "k")],
            ["RENDER_PROVIDER", "RENDER_TEMPLATE_FILE"],
        ),
        (vec![("RL_BURST", "0")], ["RL_RATE_PER_MIN", "RL_BURST"]),
        (vec![("WEBHOOK_SOURCES", "a:shotstack")], ["WEBHOOK_SOURCES", "SHOTSTACK_API_KEY"]),
    ] {
        let message = refused(&environment(&pairs));
        for name in names {
            assert!(message.contains(name), "{name} is not in {message}");
        }
    }
    load(&[("TASHIKA_LISTEN", "0.0.0.0:80"), ("TASHIKA_API_TOKENS", token)]);
    load(&[("TASHIKA_LISTEN", "[::1]:80"), ("TASHIKA_API_TOKENS", "short")]);
    load(&[("RL_BURST", "0"), ("RL_RATE_PER_MIN", "0")]);
    load(&[("WEBHOOK_SOURCES", "a:shotstack"), ("SHOTSTACK_API_KEY", "k")]);
    // 0.01 h is 36 s: long enough for waits that add up to 31 s.
    load(&[("IDEMPO_TTL_HOURS", "0.01"), ("OUTBOX_ORDERS_BACKOFF_SEC", "1,2,4,8,16")]);
}

#[test]
fn doubtful_combinations_are_warned_about() {
    let config = load(&[("BROKER_URL", "http://broker.example/"), ("BROKER_ADAPTER", "http")]);
    let warnings = config.warnings.join("\n");
    assert!(warnings.contains("BROKER_SECRET is not set"), "{warnings}");
    assert!(warnings.contains("not https"), "{warnings}");
    let config = load(&[("BROKER_URL", "http://127.0.0.1:9/")]);
    assert!(config.warnings.join("\n").contains("BROKER_ADAPTER is paper"));
}
