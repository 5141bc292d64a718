//! Settings of the message queue, typed.

use std::time::Duration;

use secrecy::SecretString;
use tashika_providers::guard::{Cidr, Guard};
use url::Url;

use super::{Reader, Value, some};

#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Who delivers what Tashika itself sends: QStash, if it is set.
    pub qstash: Option<QstashConfig>,
    /// The current and the next key, if the operator has set them.
    pub keys: Option<(SecretString, SecretString)>,
    pub dedup_window: Duration,
    pub dedup_reopen: bool,
    pub keep: Duration,
    pub max_timeout: Duration,
    pub max_response: usize,
    pub destination_concurrency: u32,
    pub guard: Guard,
}

#[derive(Clone, Debug)]
pub struct QstashConfig {
    pub url: Option<Url>,
    pub token: SecretString,
}

pub(super) fn queue(read: &mut Reader) -> QueueConfig {
    let secret = |text: String| some(text).map(SecretString::from);
    let current = secret(read.text("QSTASH_CURRENT_SIGNING_KEY"));
    let next = secret(read.text("QSTASH_NEXT_SIGNING_KEY"));
    if current.is_some() != next.is_some() {
        read.problems.push(
            "QSTASH_CURRENT_SIGNING_KEY, QSTASH_NEXT_SIGNING_KEY: expected both or none".to_owned(),
        );
    }
    let qstash = (read.text("QUEUE_PROVIDER") == "qstash").then(|| QstashConfig {
        url: read.url("QSTASH_URL"),
        token: read.text("QSTASH_TOKEN").into(),
    });
    if qstash.is_some() && read.text("QSTASH_TOKEN").is_empty() {
        read.problems.push("QSTASH_TOKEN: is needed for QUEUE_PROVIDER=qstash".to_owned());
    }
    QueueConfig {
        qstash,
        keys: current.zip(next),
        dedup_window: read.span("QUEUE_DEDUP_WINDOW_SEC"),
        dedup_reopen: read.bool("QUEUE_DEDUP_REOPEN"),
        keep: Duration::from_secs_f64(read.float("QUEUE_KEEP_DAYS") * 86_400.0),
        max_timeout: read.span("QUEUE_MAX_TIMEOUT_SEC"),
        max_response: read.size("QUEUE_MAX_RESPONSE_BYTES"),
        destination_concurrency: u32::try_from(read.int("QUEUE_DESTINATION_CONCURRENCY"))
            .unwrap_or(u32::MAX),
        guard: guard(read),
    }
}

fn guard(read: &mut Reader) -> Guard {
    let enabled = match read.text("TASHIKA_SSRF_GUARD").as_str() {
        "on" | "true" => true,
        "off" | "false" => false,
        _ => !read.address("TASHIKA_LISTEN").ip().is_loopback(),
    };
    let words = match read.get("TASHIKA_SSRF_ALLOW") {
        Value::Words(words) => words.clone(),
        _ => unreachable!("TASHIKA_SSRF_ALLOW is a list of words"),
    };
    let mut allow = Vec::new();
    for word in words {
        match Cidr::parse(&word) {
            Ok(network) => allow.push(network),
            Err(why) => read.problems.push(format!("TASHIKA_SSRF_ALLOW: {word:?}: {why}")),
        }
    }
    Guard { enabled, allow, allow_loopback: read.bool("TASHIKA_ALLOW_LOOPBACK_DESTINATIONS") }
}
