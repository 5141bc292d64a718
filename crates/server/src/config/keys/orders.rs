//! Settings of orders and their broker.

use super::{Key, Kind, MAX_COUNT, MAX_HOURS, MAX_MILLIS, key};

const ORDERS: &str = "Orders";
const BROKER: &str = "Broker";

pub const KEYS: &[Key] = &[
    key(
        ORDERS,
        "IDEMPO_TTL_HOURS",
        Kind::Hours { min: 0.000_1, max: MAX_HOURS },
        "48",
        "How long an idempotency key is remembered after its last change. After that the same key is a new request.",
    ),
    key(
        ORDERS,
        "RL_RATE_PER_MIN",
        Kind::Float { min: 0.0, max: 1e9 },
        "60",
        "Orders a client may send per minute; 0 is unlimited. Repeats of a known key are not counted.",
    ),
    key(
        ORDERS,
        "RL_BURST",
        Kind::Int { min: 0, max: 4_000_000_000 },
        "30",
        "Orders a client may send at once before the rate per minute holds.",
    ),
    key(
        ORDERS,
        "DAILY_QUOTA",
        Kind::Int { min: 0, max: MAX_COUNT },
        "10000",
        "Orders a client may send per day (UTC); 0 is unlimited.",
    ),
    key(
        ORDERS,
        "ORDER_INSTRUMENTS",
        Kind::Words,
        "USDJPY,EURUSD,EURJPY,GBPUSD,AUDUSD,BTC-USD,ETH-USD",
        "Instruments that may be ordered, separated by commas. Empty allows every well-formed name (`A-Z`, `0-9`, `.`, `_`, `-`, 3 to 20 characters). The default is a list with which a first order works; set your broker's before real ones.",
    ),
    key(
        ORDERS,
        "ORDER_MIN_LOT",
        Kind::Float { min: 0.0, max: 1e15 },
        "0.01",
        "Smallest quantity of an order.",
    ),
    key(
        ORDERS,
        "ORDER_LOT_STEP",
        Kind::Float { min: 0.0, max: 1e15 },
        "0.01",
        "Quantities are multiples of this; 0 allows any.",
    ),
    key(
        BROKER,
        "BROKER_ADAPTER",
        Kind::Choice(&["paper", "http"]),
        "paper",
        "`paper` fills orders by itself, the same way every time; `http` sends them to `BROKER_URL`.",
    ),
    key(BROKER, "BROKER_URL", Kind::WebUrl, "", "Base address of the broker's API."),
    key(
        BROKER,
        "BROKER_KEY_ID",
        Kind::Text,
        "",
        "Names the key with which requests to the broker are signed.",
    ),
    key(
        BROKER,
        "BROKER_SECRET",
        Kind::Secret,
        "",
        "The key with which requests to the broker are signed (HMAC-SHA256).",
    ),
    key(
        BROKER,
        "BROKER_TIMEOUT_MS",
        Kind::Millis { min: 1, max: MAX_MILLIS },
        "2500",
        "How long to wait for the broker's answer before it counts as lost.",
    ),
    key(
        BROKER,
        "BROKER_IDEMPOTENCY_KEYS",
        Kind::Bool,
        "true",
        "The broker recognises a repeated `Idempotency-Key`. `false`: after a lost answer Tashika asks the broker what happened and never simply sends again.",
    ),
];
