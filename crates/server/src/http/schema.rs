//! The shapes of requests and answers, for `/openapi.json`.
//!
//! Described here and checked in `domain`: the checks there are stricter than a schema can say, and
//! name everything that is wrong at once.

#![expect(dead_code, reason = "these types are read by the OpenAPI generator only")]

use serde_json::{Value, json};
use utoipa::ToSchema;

fn order_example() -> Value {
    json!({
        "instrument": "USDJPY", "side": "BUY", "qty": 1000, "price": 150.25,
        "idempotency_key": "first-order-0001",
    })
}

#[derive(ToSchema)]
#[schema(as = OrderRequest, example = order_example)]
pub struct OrderRequestSchema {
    #[schema(min_length = 1, max_length = 64)]
    order_id: Option<String>,
    /// Must be on the allow-list (`ORDER_INSTRUMENTS`).
    #[schema(pattern = "^[A-Z0-9._-]{3,20}$")]
    instrument: String,
    side: SideSchema,
    /// At least `ORDER_MIN_LOT`, a multiple of `ORDER_LOT_STEP`.
    #[schema(exclusive_minimum = 0.0)]
    qty: f64,
    /// `null` is a market order.
    #[schema(exclusive_minimum = 0.0)]
    price: Option<f64>,
    time_in_force: Option<TimeInForceSchema>,
    #[schema(max_items = 8)]
    tags: Option<Vec<String>>,
    risk_constraints: Option<RiskConstraintsSchema>,
    #[schema(max_length = 128)]
    trace_id: Option<String>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    requested_at: Option<String>,
    #[schema(min_length = 8, max_length = 64)]
    idempotency_key: String,
}

#[derive(ToSchema)]
#[schema(as = Side)]
pub enum SideSchema {
    #[schema(rename = "BUY")]
    Buy,
    #[schema(rename = "SELL")]
    Sell,
}

/// Default `IOC`.
#[derive(ToSchema)]
#[schema(as = TimeInForce)]
pub enum TimeInForceSchema {
    #[schema(rename = "IOC")]
    ImmediateOrCancel,
    #[schema(rename = "FOK")]
    FillOrKill,
    #[schema(rename = "GTC")]
    GoodTillCancelled,
}

#[expect(clippy::struct_field_names, reason = "the contract's names")]
#[derive(ToSchema)]
#[schema(as = RiskConstraints)]
pub struct RiskConstraintsSchema {
    #[schema(minimum = 0.0)]
    max_dd: Option<f64>,
    #[schema(minimum = 0.0)]
    max_consecutive_loss: Option<f64>,
    #[schema(minimum = 0.0)]
    max_spread: Option<f64>,
}

/// The light acknowledgement of an order that is under way.
#[derive(ToSchema)]
#[schema(as = OrderAck)]
pub struct OrderAckSchema {
    #[schema(example = "accepted")]
    status: String,
    order_id: Option<String>,
    idempotency_key: String,
    #[schema(example = "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862")]
    request_digest: String,
    #[schema(format = DateTime)]
    accepted_at: String,
    trace_id: Option<String>,
}

/// What became of an order. While it is under way, only the fields of the acknowledgement are there.
#[derive(ToSchema)]
#[schema(as = ExecResult)]
pub struct ExecResultSchema {
    /// `accepted`, `ok` or `error`.
    status: String,
    order_id: Option<String>,
    #[schema(required = false)]
    instrument: String,
    #[schema(required = false)]
    side: String,
    #[schema(required = false, format = DateTime)]
    requested_at: String,
    #[schema(required = false, format = DateTime)]
    completed_at: String,
    trace_id: Option<String>,
    idempotency_key: String,
    #[schema(required = false)]
    fills: Vec<FillSchema>,
    avg_price: Option<f64>,
    /// The exact sum of the fills.
    #[schema(required = false)]
    executed_qty: f64,
    #[schema(required = false)]
    cost: f64,
    slippage: Option<f64>,
    broker: Option<BrokerSchema>,
    latency_ms: Option<LatencySchema>,
    /// `BROKER_REJECTED`, `BROKER_TIMEOUT`, `BROKER_DOWN` or `INTERNAL_ERROR`.
    reason_code: Option<String>,
    #[schema(required = false)]
    warnings: Vec<String>,
    case: Option<OrderCaseSchema>,
}

#[derive(ToSchema)]
#[schema(as = Fill)]
pub struct FillSchema {
    px: f64,
    qty: f64,
    #[schema(format = DateTime)]
    ts: String,
}

#[derive(ToSchema)]
#[schema(as = Broker)]
pub struct BrokerSchema {
    name: String,
    order_ref: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = Latency)]
pub struct LatencySchema {
    queue: u64,
    broker_rtt: u64,
    total: u64,
}

/// What a person has to decide.
#[derive(ToSchema)]
#[schema(as = OrderCase)]
pub struct OrderCaseSchema {
    id: uuid::Uuid,
    kind: String,
    summary: String,
    actions: Vec<String>,
    #[schema(format = DateTime)]
    opened_at: String,
}
