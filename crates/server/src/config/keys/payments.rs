//! Settings of payments and events.

use super::{Key, Kind, MAX_HOURS, MAX_MILLIS, MAX_SECONDS, key};

const PAYMENTS: &str = "Payments";
const EVENTS: &str = "Events";

pub const KEYS: &[Key] = &[
    key(
        PAYMENTS,
        "PAYMENT_GATEWAY",
        Kind::Choice(&["sandbox", "stripe", "http"]),
        "sandbox",
        "Who moves the money: `sandbox` moves none and shows every path (docs/payments.md), `stripe` is Stripe, `http` is a gateway of your own (docs/gateway-protocol.md).",
    ),
    key(
        PAYMENTS,
        "PAYMENT_GATEWAY_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "30000",
        "How long to wait for the gateway's answer before it counts as lost: the payment is then PENDING, and verified.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_VERIFY_INTERVAL_SEC",
        Kind::Seconds { min: 0.01, max: MAX_SECONDS },
        "300",
        "Between two questions to the gateway about an outcome that is not known.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_VERIFY_MAX_ATTEMPTS",
        Kind::Int { min: 1, max: 1000 },
        "10",
        "How often the gateway is asked before a person is: then a case is opened and an alert fires.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_RETRY_BACKOFF_SEC",
        Kind::SecondsList,
        "[1, 2, 5, 10, 30]",
        "Waits before an operation that the gateway certainly did not execute (no connection, 429, a lock) is sent again. One more failure ends it.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_AUTHORIZATION_LIFETIME_SEC",
        Kind::Seconds { min: 0.01, max: MAX_SECONDS },
        "604800",
        "When an authorization that nobody has captured is released.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_IDEMPO_TTL_HOURS",
        Kind::Hours { min: 0.000_1, max: MAX_HOURS },
        "24",
        "How long the idempotency key of a payment, capture, void or refund is remembered once it has ended.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_RECONCILE_INTERVAL_SEC",
        Kind::Seconds { min: 0.0, max: MAX_SECONDS },
        "86400",
        "How often the gateway's list of payments is compared with ours, for the window before; 0 is never.",
    ),
    key(
        PAYMENTS,
        "STRIPE_API_KEY",
        Kind::Secret,
        "",
        "Stripe's secret key. Needed with `PAYMENT_GATEWAY=stripe`.",
    ),
    key(
        PAYMENTS,
        "STRIPE_API_BASE",
        Kind::WebUrl,
        "https://api.stripe.com",
        "Where Stripe's API is. Another address is for tests.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_HTTP_URL",
        Kind::WebUrl,
        "",
        "Base address of your gateway. Needed with `PAYMENT_GATEWAY=http`.",
    ),
    key(
        PAYMENTS,
        "PAYMENT_HTTP_TOKEN",
        Kind::Secret,
        "",
        "Sent to your gateway as `Authorization: Bearer …`. Needed with `PAYMENT_GATEWAY=http`.",
    ),
    key(
        EVENTS,
        "EVENT_SINK_URLS",
        Kind::Secret,
        "",
        "Addresses that events (`PaymentAuthorized`, …) are posted to, separated by commas. Hidden like a secret, because addresses often hold one.",
    ),
    key(
        EVENTS,
        "EVENT_SINK_SECRET",
        Kind::Secret,
        "",
        "Signs events as Standard Webhooks has it: `whsec_` and base64. None: events are not signed.",
    ),
    key(
        EVENTS,
        "EVENT_SINK_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "10000",
        "How long a sink may take to answer.",
    ),
];
