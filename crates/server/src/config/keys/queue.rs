//! Settings of the message queue.

use super::{Key, Kind, MAX_SECONDS, key};

const QUEUE: &str = "Message queue";

pub const KEYS: &[Key] = &[
    key(
        QUEUE,
        "QUEUE_PROVIDER",
        Kind::Choice(&["embedded", "qstash"]),
        "embedded",
        "Who delivers what Tashika itself sends through the queue, forwarded webhooks for example: this server, or QStash, with this server as the fallback when publishing fails.",
    ),
    key(
        QUEUE,
        "QSTASH_URL",
        Kind::WebUrl,
        "https://qstash.upstash.io",
        "Where QStash is, for `QUEUE_PROVIDER=qstash`.",
    ),
    key(
        QUEUE,
        "QSTASH_TOKEN",
        Kind::Secret,
        "",
        "The token for QStash, for `QUEUE_PROVIDER=qstash`.",
    ),
    key(
        QUEUE,
        "QSTASH_CURRENT_SIGNING_KEY",
        Kind::Secret,
        "",
        "The key that deliveries are signed with. None: the server makes its own, answers them at `GET /v2/keys` and rotates them at `POST /v2/keys/rotate`.",
    ),
    key(
        QUEUE,
        "QSTASH_NEXT_SIGNING_KEY",
        Kind::Secret,
        "",
        "The key that follows the current one. Both or none.",
    ),
    key(
        QUEUE,
        "QUEUE_DEDUP_WINDOW_SEC",
        Kind::Seconds { min: 1.0, max: MAX_SECONDS },
        "600",
        "How long a deduplication id keeps other messages out.",
    ),
    key(
        QUEUE,
        "QUEUE_DEDUP_REOPEN",
        Kind::Bool,
        "true",
        "A message that was given up lets go of its deduplication id, so that it can be sent again.",
    ),
    key(
        QUEUE,
        "QUEUE_KEEP_DAYS",
        Kind::Float { min: 0.000_01, max: 36_500.0 },
        "7",
        "How long messages and their log are kept after they were delivered or cancelled. Dead letters are kept until somebody removes them.",
    ),
    key(
        QUEUE,
        "QUEUE_MAX_TIMEOUT_SEC",
        Kind::Seconds { min: 0.05, max: 7200.0 },
        "900",
        "How long a destination may take to answer; `Upstash-Timeout` can only shorten it.",
    ),
    key(
        QUEUE,
        "QUEUE_MAX_RESPONSE_BYTES",
        Kind::Int { min: 0, max: 104_857_600 },
        "1048576",
        "How much of an answer is read. The rest is cut off; the status counts.",
    ),
    key(
        QUEUE,
        "QUEUE_DESTINATION_CONCURRENCY",
        Kind::Int { min: 1, max: 100_000 },
        "64",
        "Attempts at one destination (host and port) at the same moment, per process.",
    ),
    key(
        QUEUE,
        "TASHIKA_SSRF_GUARD",
        Kind::Choice(&["auto", "on", "off", "true", "false"]),
        "auto",
        "Refuse destinations in private, loopback, link-local, metadata and other special networks. `auto`: on, unless the server listens on a loopback address.",
    ),
    key(
        QUEUE,
        "TASHIKA_SSRF_ALLOW",
        Kind::Words,
        "",
        "Networks that are not refused, as CIDRs: `10.1.0.0/16,fd00::/8`.",
    ),
    key(
        QUEUE,
        "TASHIKA_ALLOW_LOOPBACK_DESTINATIONS",
        Kind::Bool,
        "false",
        "Workers on this machine may be destinations although the guard is on.",
    ),
];
