//! Settings of renders.

use super::{Key, Kind, MAX_MILLIS, MAX_SECONDS, key};

const RENDERS: &str = "Renders";

pub const KEYS: &[Key] = &[
    key(
        RENDERS,
        "RENDER_PROVIDER",
        Kind::Choice(&["sandbox", "shotstack", "http"]),
        "sandbox",
        "Who makes the videos: `sandbox` makes none and shows every path, `shotstack` is Shotstack (`SHOTSTACK_API_KEY`, `RENDER_TEMPLATE_FILE`), `http` is a service of your own (docs/renders.md).",
    ),
    key(
        RENDERS,
        "RENDER_URL",
        Kind::WebUrl,
        "",
        "Base address of your service. Needed with `RENDER_PROVIDER=http`.",
    ),
    key(
        RENDERS,
        "RENDER_TOKEN",
        Kind::Secret,
        "",
        "Sent to your service as `Authorization: Bearer …`. None: nothing is sent.",
    ),
    key(
        RENDERS,
        "RENDER_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "10000",
        "How long your service, or the sandbox, may take to answer. Shotstack has `SHOTSTACK_TIMEOUT_MS`.",
    ),
    key(
        RENDERS,
        "RENDER_TEMPLATE_FILE",
        Kind::Text,
        "",
        "A file with the video's description as Shotstack wants it: JSON with `timeline` and `output`, and `{{videoId}}`, `{{reservationId}}` and `{{renderId}}` in texts where they belong. Needed with `RENDER_PROVIDER=shotstack`.",
    ),
    key(
        RENDERS,
        "RENDER_POLL_SEC",
        Kind::Seconds { min: 0.01, max: MAX_SECONDS },
        "10",
        "Between two questions about a render that is under way. Callbacks are quicker; questions do not depend on them.",
    ),
    key(
        RENDERS,
        "RENDER_ATTEMPTS",
        Kind::Int { min: 1, max: 100 },
        "3",
        "Attempts before a person is asked; and again as many when a person has it tried again.",
    ),
    key(
        RENDERS,
        "RENDER_RETRY_SEC",
        Kind::Seconds { min: 0.0, max: MAX_SECONDS },
        "30",
        "Before the next attempt after one that failed.",
    ),
    key(
        RENDERS,
        "RENDER_ATTEMPT_SEC",
        Kind::Seconds { min: 0.01, max: MAX_SECONDS },
        "3600",
        "How long an attempt may take before it counts as failed.",
    ),
    key(
        RENDERS,
        "RENDER_DOUBT_SEC",
        Kind::Seconds { min: 0.0, max: MAX_SECONDS },
        "3600",
        "How long to wait for a callback about a submission that nobody answered, before it is submitted again. Counts only where there can be callbacks (`TASHIKA_PUBLIC_URL` and a source of kind `shotstack`).",
    ),
    key(
        RENDERS,
        "RENDER_GIVE_UP_SEC",
        Kind::Seconds { min: 0.01, max: MAX_SECONDS },
        "86400",
        "How long a person has to help a render whose attempts are used up. Then it is given up and the customer gets the money back.",
    ),
    key(
        RENDERS,
        "RENDER_OUTPUT_DIR",
        Kind::Text,
        "",
        "A folder that outputs are copied to, before their addresses die (Shotstack: after 24 hours). None: nothing is copied.",
    ),
    key(
        RENDERS,
        "RENDER_OUTPUT_MAX_BYTES",
        Kind::Int { min: 1, max: 1_000_000_000_000 },
        "4294967296",
        "The largest output that is copied.",
    ),
    key(
        RENDERS,
        "RENDER_KEEP_DAYS",
        Kind::Float { min: 0.000_01, max: 36_500.0 },
        "365",
        "How long renders are kept after they have ended. Copies of outputs are yours: they are never deleted.",
    ),
];
