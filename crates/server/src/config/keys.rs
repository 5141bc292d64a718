//! The table of settings: every name, its kind, its default and what it means.
//!
//! Read by the loader (what may be set, and how it is parsed), by the documentation
//! (`docs/configuration.md`, `config.default.toml`) and by `tashika config`. A setting exists exactly
//! if it has a row here. The table does not say how settings depend on each other: see `rules`.

mod alert;
mod console;
mod mail;
mod orders;
mod payments;
mod queue;
mod render;
mod reservation;
mod webhooks;

use tashika_domain::Lane;

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Int {
        min: u64,
        max: u64,
    },
    Float {
        min: f64,
        max: f64,
    },
    Bool,
    /// A span in seconds; fractions are allowed.
    Seconds {
        min: f64,
        max: f64,
    },
    Millis {
        min: u64,
        max: u64,
    },
    /// A span in hours; fractions are allowed.
    Hours {
        min: f64,
        max: f64,
    },
    /// Spans in seconds, `5,10,20` or `[5, 10, 20]`.
    SecondsList,
    /// A comma list of words. The only kind for which "empty" says something else than "not set".
    Words,
    Choice(&'static [&'static str]),
    Text,
    /// `IP:PORT`, or `localhost:PORT`.
    Address,
    /// An `http://` or `https://` address; empty means none.
    WebUrl,
    /// May hold a password, so it is treated as a secret that is shown without it.
    DatabaseUrl,
    /// A filter of the logging library.
    LogFilter,
    /// Never shown. Also read from a file named by `<NAME>_FILE`.
    Secret,
}

impl Kind {
    /// May the value be read from a file named by `<NAME>_FILE`?
    #[must_use]
    pub const fn is_confidential(self) -> bool {
        matches!(self, Self::Secret | Self::DatabaseUrl)
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    pub name: &'static str,
    pub section: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub about: &'static str,
}

const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key { name, section, kind, default, about }
}

/// Ten years: longer spans are typing errors, and below it no arithmetic on times can overflow.
const MAX_SECONDS: f64 = 315_360_000.0;
const MAX_HOURS: f64 = 87_600.0;
const MAX_MILLIS: u64 = 86_400_000;
const MAX_COUNT: u64 = 1_000_000_000;

const SERVER: &str = "Server";
const LOGS: &str = "Logs and traces";
const OUTBOX: &str = "Outbox and lanes";

/// Names of the settings that a lane may override: `OUTBOX_BATCH` → `OUTBOX_ORDERS_BATCH`.
///
/// The intervals and the capacity are missing on purpose: they belong to the process, not to a lane.
pub const PER_LANE: [&str; 9] = [
    "ENABLED",
    "CONCURRENCY",
    "BATCH",
    "LOCK_LEASE_SEC",
    "MAX_ATTEMPTS",
    "BACKOFF_SEC",
    "RATE_PER_SEC",
    "WEIGHT",
    "KEEP_HOURS",
];

/// Every setting, in the order of the documentation.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    let features = [
        orders::KEYS,
        payments::KEYS,
        reservation::KEYS,
        render::KEYS,
        webhooks::KEYS,
        queue::KEYS,
        mail::KEYS,
        alert::KEYS,
        console::KEYS,
    ];
    KEYS.iter().chain(features.into_iter().flatten())
}

/// Defaults of single lanes that differ from those of all: money must not wait in a short queue
/// behind a gateway that has stopped answering, nor news behind a sink; and senders of webhooks try
/// again themselves, so we do not try for long.
pub const LANE_DEFAULTS: [(Lane, &str, &str); 10] = [
    (Lane::PAYMENTS, "CONCURRENCY", "32"),
    (Lane::EVENTS, "CONCURRENCY", "16"),
    (Lane::WEBHOOKS, "CONCURRENCY", "32"),
    (Lane::WEBHOOKS, "MAX_ATTEMPTS", "4"),
    (Lane::WEBHOOKS, "BACKOFF_SEC", "[1, 2, 4]"),
    // A timer waits for nobody outside: a read and a share of a flush. Many end at the same moment.
    (Lane::TIMERS, "CONCURRENCY", "32"),
    (Lane::DELIVERIES, "CONCURRENCY", "256"),
    (Lane::DELIVERIES, "BATCH", "256"),
    (Lane::DELIVERIES, "MAX_ATTEMPTS", "4"),
    (Lane::DELIVERIES, "BACKOFF_SEC", "[1, 2, 4]"),
];

/// A lane's own default for a setting, with the setting.
#[must_use]
pub fn lane_default(lane: &Lane, suffix: &str) -> Option<(&'static Key, &'static str)> {
    let (_, _, own) = LANE_DEFAULTS.iter().find(|(l, s, _)| l == lane && *s == suffix)?;
    let key = keys().find(|key| key.name.strip_prefix("OUTBOX_") == Some(suffix))?;
    Some((key, own))
}

const KEYS: &[Key] = &[
    key(
        SERVER,
        "TASHIKA_LISTEN",
        Kind::Address,
        "127.0.0.1:8080",
        "Address and port to listen on. Anything but a loopback address needs `TASHIKA_API_TOKENS`. Port 0 takes a free port and logs it.",
    ),
    key(
        SERVER,
        "TASHIKA_PUBLIC_URL",
        Kind::WebUrl,
        "",
        "Where others reach this server, e.g. `https://tashika.example`: stands in addresses that customers and providers are given. None: the address that it listens on.",
    ),
    key(
        SERVER,
        "TASHIKA_DATABASE_URL",
        Kind::DatabaseUrl,
        "sqlite:tashika.db",
        "Where everything is remembered: `sqlite:PATH`, or `postgres://user:password@host/database`.",
    ),
    key(
        SERVER,
        "TASHIKA_POSTGRES_CONNECTIONS",
        Kind::Int { min: 1, max: 1000 },
        "8",
        "Size of the connection pool to PostgreSQL. Commits are grouped, so few connections carry a lot.",
    ),
    key(
        SERVER,
        "TASHIKA_API_TOKENS",
        Kind::Secret,
        "",
        "Tokens that may use the API (`Authorization: Bearer …`), separated by commas. Each token is one client for the rate limits. At least 16 characters each unless the server listens on a loopback address. None: everybody who reaches the address may use it.",
    ),
    key(
        SERVER,
        "TASHIKA_BODY_LIMIT_BYTES",
        Kind::Int { min: 1024, max: 1_073_741_824 },
        "1048576",
        "Longest request body, counted after decompression. Longer ones are answered 413.",
    ),
    key(
        SERVER,
        "TASHIKA_HEADER_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "10000",
        "How long a connection may take from its first moment to a complete request head, and from the first byte of each later one. Slower connections are closed.",
    ),
    key(
        SERVER,
        "TASHIKA_BODY_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "10000",
        "How long a request body may take to arrive in full. Slower ones are answered 408.",
    ),
    key(
        SERVER,
        "TASHIKA_REQUEST_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "60000",
        "How long a request may take as a whole before it is answered 503. Also how long a client may refuse to read an answer.",
    ),
    key(
        SERVER,
        "TASHIKA_KEEP_ALIVE_SEC",
        Kind::Seconds { min: 0.05, max: MAX_SECONDS },
        "75",
        "How long an idle connection is kept for another request.",
    ),
    key(
        SERVER,
        "TASHIKA_MAX_CONNECTIONS",
        Kind::Int { min: 1, max: 1_000_000 },
        "10000",
        "Connections served at the same time. One more is answered 503 at once and closed.",
    ),
    key(
        SERVER,
        "TASHIKA_MAX_HEADERS",
        Kind::Int { min: 8, max: 1000 },
        "64",
        "Most header lines a request may have. More are answered 431.",
    ),
    key(
        SERVER,
        "TASHIKA_MAX_HEADER_BYTES",
        Kind::Int { min: 8192, max: 1_048_576 },
        "16384",
        "Longest request head. Longer ones are answered 431.",
    ),
    key(
        SERVER,
        "TASHIKA_SHUTDOWN_SEC",
        Kind::Seconds { min: 0.0, max: 3600.0 },
        "30",
        "After SIGTERM, how long open requests and attempts may take to end before they are cut off. What is cut off is taken over by its lease.",
    ),
    key(
        LOGS,
        "TASHIKA_LOG",
        Kind::LogFilter,
        "info",
        "What is logged: `error`, `warn`, `info`, `debug`, `trace`, or per module, as in `info,tashika_engine=debug`.",
    ),
    key(
        LOGS,
        "TASHIKA_LOG_FORMAT",
        Kind::Choice(&["json", "text"]),
        "json",
        "`json` writes one object per line for machines, `text` lines for people. Logs go to standard error.",
    ),
    key(
        LOGS,
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        Kind::WebUrl,
        "",
        "Base address of an OpenTelemetry collector (OTLP over HTTP), as in `http://localhost:4318`. Traces are off unless it is set. The other standard `OTEL_*` variables (headers, timeout, sampler) are read from the environment.",
    ),
    key(LOGS, "OTEL_SERVICE_NAME", Kind::Text, "tashika", "The service's name in traces."),
    key(
        OUTBOX,
        "OUTBOX_ENABLED",
        Kind::Bool,
        "true",
        "Send what was accepted. `false` accepts and keeps everything and sends nothing until it is `true` again.",
    ),
    key(
        OUTBOX,
        "OUTBOX_CONCURRENCY",
        Kind::Int { min: 1, max: 10_000 },
        "4",
        "Effects of a lane that one process works on at the same time.",
    ),
    key(
        OUTBOX,
        "OUTBOX_BATCH",
        Kind::Int { min: 1, max: 10_000 },
        "32",
        "Most effects that one claim takes.",
    ),
    key(
        OUTBOX,
        "OUTBOX_POLL_INTERVAL_SEC",
        Kind::Seconds { min: 0.005, max: 3600.0 },
        "0.5",
        "How often workers look for due effects when nothing woke them. Wake-ups make it fast, this makes it certain.",
    ),
    key(
        OUTBOX,
        "OUTBOX_PRUNE_INTERVAL_SEC",
        Kind::Seconds { min: 0.05, max: MAX_SECONDS },
        "3600",
        "How often expired keys and settled effects are cleared away.",
    ),
    key(
        OUTBOX,
        "OUTBOX_CAPACITY",
        Kind::Int { min: 0, max: 1_000_000 },
        "0",
        "Effects of all lanes together that one process works on at the same time; 0 leaves it to the lanes' own limits. With a capacity, lanes share it by their weights.",
    ),
    key(
        OUTBOX,
        "OUTBOX_LOCK_LEASE_SEC",
        Kind::Seconds { min: 0.05, max: MAX_SECONDS },
        "120",
        "How long a claimed effect belongs to its worker without a sign of life. Heartbeats come at half of it; after it another worker takes over.",
    ),
    key(
        OUTBOX,
        "OUTBOX_MAX_ATTEMPTS",
        Kind::Int { min: 1, max: 1000 },
        "6",
        "Failures after which an effect is given up (`aborted`).",
    ),
    key(
        OUTBOX,
        "OUTBOX_BACKOFF_SEC",
        Kind::SecondsList,
        "[5, 10, 20, 40, 80, 160]",
        "Waits after the first, second, … failure; the last one repeats. `5,10` and `[5, 10]` mean the same.",
    ),
    key(
        OUTBOX,
        "OUTBOX_RATE_PER_SEC",
        Kind::Float { min: 0.0, max: 1_000_000.0 },
        "0",
        "Effects of a lane that one process may start per second; 0 is unlimited.",
    ),
    key(
        OUTBOX,
        "OUTBOX_WEIGHT",
        Kind::Int { min: 1, max: 1000 },
        "1",
        "A lane's share of the process when several lanes have work waiting.",
    ),
    key(
        OUTBOX,
        "OUTBOX_KEEP_HOURS",
        Kind::Hours { min: 0.0, max: MAX_HOURS },
        "48",
        "How long a settled effect is kept with its attempts. It may be longer or shorter than `IDEMPO_TTL_HOURS`: answers come from the ledger, and a settled effect does not keep its key from being used again.",
    ),
];

/// A name that may be set: a row of the table, for one lane or for all.
#[derive(Clone, Debug)]
pub struct Known {
    pub name: String,
    pub key: &'static Key,
    /// `Some` for an override of one lane.
    pub lane: Option<Lane>,
}

/// The name under which `lane` overrides the `OUTBOX_<suffix>` default.
#[must_use]
pub fn lane_name(lane: &Lane, suffix: &str) -> String {
    format!("OUTBOX_{}_{suffix}", lane.as_str().to_ascii_uppercase())
}

/// Every name that may be set: the table, then the overrides of each lane.
#[must_use]
pub fn all_names() -> Vec<Known> {
    let table = keys().map(|key| Known { name: key.name.to_owned(), key, lane: None });
    let overrides = Lane::OWN.into_iter().flat_map(|lane| {
        PER_LANE.iter().filter_map(move |suffix| {
            let key = keys().find(|key| key.name.strip_prefix("OUTBOX_") == Some(*suffix))?;
            Some(Known { name: lane_name(&lane, suffix), key, lane: Some(lane.clone()) })
        })
    });
    table.chain(overrides).collect()
}

/// The known name closest to a mistyped one, if one is close enough to be what was meant.
#[must_use]
pub fn nearest(wrong: &str, known: &[Known]) -> Option<String> {
    let wrong = wrong.to_ascii_uppercase();
    known
        .iter()
        .map(|candidate| (distance(&wrong, &candidate.name), &candidate.name))
        .min()
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(2))
        .map(|(_, name)| name.clone())
}

/// Levenshtein distance, in bytes: names are ASCII.
#[must_use]
pub fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_per_lane_suffix_is_a_row_of_the_table() {
        let overrides = all_names().into_iter().filter(|known| known.lane.is_some());
        assert_eq!(overrides.count(), PER_LANE.len() * Lane::OWN.len());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = all_names().into_iter().map(|known| known.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn typing_errors_find_what_was_meant() {
        let known = all_names();
        for (wrong, meant) in [
            ("OUTBOX_CONCURENCY", Some("OUTBOX_CONCURRENCY")),
            ("outbox_batch", Some("OUTBOX_BATCH")),
            ("OUTBOX_ORDER_BATCH", Some("OUTBOX_ORDERS_BATCH")),
            ("TASHIKA_TOKENS", Some("TASHIKA_API_TOKENS")),
            ("SOMETHING_ELSE_ENTIRELY", None),
        ] {
            assert_eq!(nearest(wrong, &known).as_deref(), meant, "{wrong}");
        }
    }
}
