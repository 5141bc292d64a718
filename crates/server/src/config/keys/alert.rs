//! Settings of alerts.

use super::{Key, Kind, MAX_MILLIS, key};

const ALERTS: &str = "Alerts";

pub const KEYS: &[Key] = &[
    key(
        ALERTS,
        "ALERT_INTERVAL_SEC",
        Kind::Seconds { min: 0.2, max: 3600.0 },
        "10",
        "Between two looks at what alerts are about. A case that is opened is looked at at once.",
    ),
    key(
        ALERTS,
        "ALERT_RULES",
        Kind::Text,
        "",
        "Other numbers than the defaults (docs/alerts.md): `outbox_pending: threshold=500 for=900; queue_retries: off`. A rule takes `threshold`, `window` and `for` (seconds), `minimum`, `severity` (warning, high, critical), `on` and `off`.",
    ),
    key(
        ALERTS,
        "ALERT_WEBHOOK_URL",
        Kind::Secret,
        "",
        "The address that alerts are posted to when they fire and when they are resolved, as Slack and everything compatible takes them. Hidden like a secret, because addresses often hold one.",
    ),
    key(
        ALERTS,
        "ALERT_WEBHOOK_SECRET",
        Kind::Secret,
        "",
        "Signs them as Standard Webhooks has it: `whsec_` and base64. None: they are not signed.",
    ),
    key(
        ALERTS,
        "ALERT_WEBHOOK_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "10000",
        "How long that address may take to answer.",
    ),
    key(
        ALERTS,
        "ALERT_MAIL_TO",
        Kind::Words,
        "",
        "Addresses that alerts are mailed to, separated by commas.",
    ),
    key(
        ALERTS,
        "ALERT_KEEP_DAYS",
        Kind::Float { min: 0.000_01, max: 36_500.0 },
        "90",
        "How long alerts are kept that are over.",
    ),
];
