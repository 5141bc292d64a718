//! Settings of webhooks.

use super::{Key, Kind, MAX_MILLIS, MAX_SECONDS, key};

const WEBHOOKS: &str = "Webhooks";

pub const KEYS: &[Key] = &[
    key(
        WEBHOOKS,
        "STRIPE_WEBHOOK_SECRET",
        Kind::Secret,
        "",
        "Secrets of Stripe's endpoint (`whsec_…`), separated by commas: several during rotation. With it, `POST /webhooks/stripe` takes events.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_SOURCES",
        Kind::Words,
        "",
        "Other senders, separated by commas: a name, or `name:kind`. Kinds: `standard-webhooks`, `github`, `shopify`, `slack`, `shotstack`, `generic-hmac`. `github,shop:shopify` takes `POST /webhooks/github` and `/webhooks/shop`.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_SECRETS",
        Kind::Secret,
        "",
        "The senders' secrets as `name=secret`, separated by commas; a name may stand several times during rotation.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_GENERIC",
        Kind::Text,
        "",
        "How senders of kind `generic-hmac` sign, as JSON: `{\"partner\": {\"header\": \"X-Signature\", \"algorithm\": \"sha256\", \"encoding\": \"hex\", \"prefix\": \"\", \"timestampHeader\": \"X-Timestamp\", \"template\": \"{timestamp}.{body}\", \"idField\": \"id\", \"typeField\": \"type\"}}`. Only `header` is needed. `algorithm`: `sha1`, `sha256`, `sha512`; `encoding`: `hex`, `base64`.",
    ),
    key(
        WEBHOOKS,
        "SHOTSTACK_API_KEY",
        Kind::Secret,
        "",
        "Key for reading renders. Shotstack signs nothing, so what its callbacks say is asked for with this key before anything is done about it; a source of kind `shotstack` needs it.",
    ),
    key(
        WEBHOOKS,
        "SHOTSTACK_API_BASE",
        Kind::WebUrl,
        "https://api.shotstack.io/edit/v1",
        "Where Shotstack is asked; its sandbox is at `https://api.shotstack.io/edit/stage`.",
    ),
    key(
        WEBHOOKS,
        "SHOTSTACK_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "10000",
        "How long Shotstack may take to answer.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_TOLERANCE_SEC",
        Kind::Seconds { min: 1.0, max: MAX_SECONDS },
        "300",
        "How old a signed timestamp may be.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_KEEP_DAYS",
        Kind::Float { min: 0.000_01, max: 36_500.0 },
        "90",
        "How long events are kept that ended well. What failed or waits is never removed.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_FORWARD",
        Kind::Text,
        "",
        "Workers that events are forwarded to, as a JSON list: `[{\"name\": \"billing\", \"source\": \"stripe\", \"types\": [\"invoice.*\"], \"url\": \"https://…\"}]`. Without `source` or `types`: all.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_FORWARD_SECRET",
        Kind::Secret,
        "",
        "Signs forwarded events as Standard Webhooks has it: `whsec_` and base64. None: they are not signed.",
    ),
    key(
        WEBHOOKS,
        "WEBHOOK_FORWARD_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "30000",
        "How long a worker may take to answer.",
    ),
    key(
        "Audit",
        "AUDIT_KEEP_DAYS",
        Kind::Float { min: 0.0, max: 36_500.0 },
        "0",
        "How long audit lines are kept; 0 is for ever. Nothing else can remove them.",
    ),
    key(
        "Audit",
        "AUDIT_SEAL_INTERVAL_SEC",
        Kind::Seconds { min: 0.05, max: MAX_SECONDS },
        "5",
        "How often new audit lines are sealed into the chain that `tashika audit verify` checks.",
    ),
];
