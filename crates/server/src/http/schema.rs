//! The shapes of requests and answers, for `/openapi.json`.
//!
//! Described here and checked in `domain`: the checks there are stricter than a schema can say, and
//! name everything that is wrong at once.

#![expect(dead_code, reason = "these types are read by the OpenAPI generator only")]

pub mod mail;
pub mod reservations;

use serde_json::{Value, json};
use utoipa::ToSchema;

mod watch;
mod words;

pub use watch::*;
pub use words::*;

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
    #[schema(exclusive_minimum = 0.0, maximum = 1_000_000_000_000_000.0)]
    qty: f64,
    /// `null` is a market order.
    #[schema(exclusive_minimum = 0.0, maximum = 1_000_000_000_000_000.0)]
    price: Option<f64>,
    #[schema(nullable = false)]
    time_in_force: Option<TimeInForceSchema>,
    #[schema(max_items = 8)]
    tags: Option<Vec<TagSchema>>,
    risk_constraints: Option<RiskConstraintsSchema>,
    #[schema(max_length = 128)]
    trace_id: Option<String>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    requested_at: Option<String>,
    #[schema(min_length = 8, max_length = 64, pattern = "^[!#-~]([ -~]*[!#-~])?$")]
    idempotency_key: String,
}

#[derive(ToSchema)]
#[schema(as = OrderTag, max_length = 32)]
pub struct TagSchema(String);

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

fn payment_example() -> Value {
    json!({
        "bookingId": "b-1001", "userId": "u-1", "amount": 5000, "currency": "JPY",
        "paymentMethod": "sandbox_ok", "capture": "manual",
    })
}

#[derive(ToSchema)]
#[schema(as = PaymentRequest, rename_all = "camelCase", example = payment_example)]
pub struct PaymentRequestSchema {
    #[schema(min_length = 1, max_length = 100)]
    booking_id: String,
    #[schema(min_length = 1, max_length = 100)]
    user_id: String,
    /// In the currency's smallest unit.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64)]
    amount: i64,
    currency: CurrencySchema,
    /// The gateway's token. Card numbers are refused.
    #[schema(min_length = 1, max_length = 255)]
    payment_method: String,
    #[schema(min_length = 1, max_length = 255)]
    customer: Option<String>,
    #[schema(max_length = 200)]
    description: Option<String>,
    /// Default `manual`.
    capture: Option<CaptureSchema>,
}

#[derive(ToSchema)]
#[schema(as = Capture, rename_all = "lowercase")]
pub enum CaptureSchema {
    Manual,
    Automatic,
}

#[derive(ToSchema)]
#[schema(as = Amount)]
pub struct AmountSchema {
    /// Everything, if it is left out.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64)]
    amount: Option<i64>,
}

#[derive(ToSchema)]
#[schema(as = RefundRequest)]
pub struct RefundRequestSchema {
    /// Everything that is left, if it is left out.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64)]
    amount: Option<i64>,
    #[schema(max_length = 500)]
    reason: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = ResolveRequest)]
pub struct ResolveRequestSchema {
    outcome: ResolutionSchema,
    /// Why, for whoever asks later.
    #[schema(min_length = 1, max_length = 500)]
    note: String,
}

#[derive(ToSchema)]
#[schema(as = Resolution, rename_all = "snake_case")]
pub enum ResolutionSchema {
    Charged,
    NotCharged,
    Refunded,
}

#[derive(ToSchema)]
#[schema(as = PaymentStatus, rename_all = "UPPERCASE")]
pub enum PaymentStatusSchema {
    Pending,
    Authorized,
    Captured,
    Refunded,
    Failed,
}

/// A payment as it is now.
#[derive(ToSchema)]
#[schema(as = Payment, rename_all = "camelCase")]
pub struct PaymentSchema {
    #[schema(format = Uuid)]
    id: String,
    status: PaymentStatusSchema,
    /// Why it failed, or why the last operation was refused.
    reason: Option<String>,
    reason_code: Option<String>,
    booking_id: String,
    user_id: String,
    amount: i64,
    currency: String,
    capture: CaptureSchema,
    captured_amount: i64,
    refunded_amount: i64,
    /// Something is not known, and the gateway is being asked.
    pending_verification: bool,
    /// Something is not known, and a person has to decide.
    verification_failed: bool,
    /// There while anything is under way: ask again.
    verification_required: Option<bool>,
    gateway: String,
    gateway_transaction_id: Option<String>,
    customer: Option<String>,
    description: Option<String>,
    /// What is under way: `kind`, `amount`, `askedAt`.
    operation: Option<Value>,
    /// What is in doubt: `operation`, `reason`, `sentAt`, `attempts`, `lastCheckAt`.
    verification: Option<Value>,
    refunds: Vec<RefundSchema>,
    /// What a person has to decide.
    case: Option<CaseSchema>,
    /// `LATE_EXECUTION`: it was executed after it had failed, and was undone.
    races: Option<Vec<Value>>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

#[derive(ToSchema)]
#[schema(as = Refund, rename_all = "camelCase")]
pub struct RefundSchema {
    #[schema(format = Uuid)]
    id: String,
    amount: i64,
    /// `pending`, `succeeded` or `failed`.
    status: String,
    reason: Option<String>,
    pending_verification: bool,
    gateway_refund_id: Option<String>,
    /// `code` and `message`.
    failure: Option<Value>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

#[derive(ToSchema)]
#[schema(as = Payments, rename_all = "camelCase")]
pub struct PaymentsSchema {
    items: Vec<PaymentSchema>,
    next_cursor: Option<String>,
}

/// Each line has `at`, `kind` and what there is to say: `operation`, `outcome`, `request`, `reply`,
/// `reference`, `from`, `to`, …
#[derive(ToSchema)]
#[schema(as = Timeline)]
pub struct TimelineSchema {
    items: Vec<Value>,
}

/// Something that a person has to decide.
/// An event as it was received, with what became of it.
#[derive(ToSchema)]
#[schema(as = WebhookEvent, rename_all = "camelCase")]
pub struct WebhookEventSchema {
    #[schema(format = Uuid)]
    id: String,
    /// The sender's id.
    event_id: String,
    event_type: String,
    source: String,
    billing_id: Option<String>,
    office_id: Option<String>,
    status: WebhookStatusSchema,
    error_message: Option<String>,
    #[schema(format = DateTime)]
    processed_at: Option<String>,
    #[schema(format = DateTime)]
    occurred_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// Masked.
    payload: Value,
    /// Who was asked, because the sender signs nothing.
    confirm_by: Option<String>,
    /// What that one answered, masked.
    confirmed: Option<Value>,
}

#[derive(ToSchema)]
#[schema(as = WebhookEvents, rename_all = "camelCase")]
pub struct WebhookEventsSchema {
    items: Vec<WebhookEventSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = WebhookStats)]
pub struct WebhookStatsSchema {
    items: Vec<WebhookCountSchema>,
}

#[derive(ToSchema)]
#[schema(as = WebhookCount, rename_all = "camelCase")]
pub struct WebhookCountSchema {
    event_type: String,
    status: WebhookStatusSchema,
    count: i64,
}

#[derive(ToSchema)]
#[schema(as = BillingRequest, rename_all = "camelCase")]
pub struct BillingRequestSchema {
    #[schema(min_length = 1, max_length = 100)]
    office_id: String,
    #[schema(min_length = 1, max_length = 255)]
    stripe_customer_id: String,
    /// A day or a moment.
    trial_end_date: Option<DayOrMomentSchema>,
}

#[derive(ToSchema)]
#[schema(as = Billing, rename_all = "camelCase")]
pub struct BillingSchema {
    #[schema(format = Uuid)]
    id: String,
    office_id: String,
    stripe_customer_id: String,
    stripe_subscription_id: Option<String>,
    status: BillingStatusSchema,
    #[schema(format = DateTime)]
    trial_end_date: Option<String>,
    #[schema(format = DateTime)]
    last_payment_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

#[derive(ToSchema)]
#[schema(as = Billings, rename_all = "camelCase")]
pub struct BillingsSchema {
    items: Vec<BillingSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = AuditLog, rename_all = "camelCase")]
pub struct AuditLogSchema {
    #[schema(format = Uuid)]
    id: String,
    actor_id: Option<String>,
    actor_role: String,
    action: String,
    target_type: String,
    target_id: String,
    office_id: Option<String>,
    /// Masked.
    details: Value,
    #[schema(format = DateTime)]
    created_at: String,
}

#[derive(ToSchema)]
#[schema(as = AuditLogs, rename_all = "camelCase")]
pub struct AuditLogsSchema {
    items: Vec<AuditLogSchema>,
    next_cursor: Option<String>,
}
