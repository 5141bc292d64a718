//! `/payments`: paying, and asking what became of it.
//!
//! Handlers read the request and word the answer; everything in between is
//! `engine::commands::payment`. An answer about a payment is the payment itself, whatever became of
//! it; only requests that are wrong in themselves are answered with a problem.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tashika_domain::payment::ask::{Refusal, Wish};
use tashika_domain::payment::resolve::ResolveRefusal;
use tashika_domain::payment::{Status, request};
use tashika_engine::commands::payment::{Answer, Caller, PaymentError, Payments};
use tashika_store::{Listed, PaymentFilter};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::idempotency::{key, mark_replayed};
use super::json::{JsonBody, OptionalJsonBody};
use super::page::Query;
use super::payment_json;
use super::problem::{Code, Document, Problem};
use super::schema::{
    AmountSchema, PaymentRequestSchema, PaymentSchema, PaymentStatusSchema, PaymentsSchema,
    RefundRequestSchema, ResolveRequestSchema, TimelineSchema,
};
use super::{to_its_end, unavailable};
use crate::telemetry::Traceparent;

/// Longest id of a user, as in the body of a payment.
const USER_MAX: usize = 100;

/// What the handlers share.
pub struct Face {
    pub payments: Arc<Payments>,
    /// When a caller who was told 202 may ask again.
    pub ask_again: Duration,
}

pub fn routes(face: Arc<Face>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(find))
        .routes(routes!(timeline))
        .routes(routes!(capture))
        .routes(routes!(void))
        .routes(routes!(refund))
        .routes(routes!(verify))
        .routes(routes!(resolve))
        .with_state(face)
}

/// Pay
///
/// Written down before it is attempted, then authorized at the gateway (and captured, with
/// `capture: automatic`). 202 means that nobody knows yet whether it happened: Tashika asks the
/// gateway until it does. The same key with the same body never pays twice.
#[utoipa::path(
    post,
    path = "/payments",
    tag = "payments",
    operation_id = "createPayment",
    request_body = PaymentRequestSchema,
    params(
        ("Idempotency-Key" = String, Header, description = "One value per payment, best a UUID; remembered for 24 h after the payment has been decided"),
        ("X-User-Id" = Option<String>, Header, description = "On whose behalf; must be `userId`"),
    ),
    responses(
        (status = 201, description = "Authorized, or captured", body = PaymentSchema, headers(("Location" = String))),
        (status = 202, description = "Not known yet: ask again", body = PaymentSchema,
            headers(("Location" = String), ("Retry-After" = u64, description = "Seconds"))),
        (status = 200, description = "A replay: the payment as it is now", body = PaymentSchema,
            headers(("Idempotent-Replayed" = String, description = "`true`"))),
        (status = 400, description = "The gateway found the request wrong (a payment), or the request cannot be read (a problem)",
            content((PaymentSchema = "application/json"), (Document = "application/problem+json"))),
        (status = 402, description = "Declined, or certain not to have happened", body = PaymentSchema),
        (status = 403, description = "`X-User-Id` is not `userId`", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "The key belongs to another request, or to one that is being processed", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The request is not valid", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "The database is away", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn create(
    State(face): State<Arc<Face>>,
    Extension(traceparent): Extension<Traceparent>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let caller = OwnedCaller::read(&headers, traceparent)?;
    let payments = Arc::clone(&face.payments);
    let created = async move { payments.create(caller.borrow(), &body).await };
    let answer = to_its_end(created).await?.map_err(refusal)?;
    Ok(face.answer(&answer))
}

/// List payments
#[utoipa::path(
    get,
    path = "/payments",
    tag = "payments",
    operation_id = "listPayments",
    params(
        ("status" = Option<PaymentStatusSchema>, Query),
        ("pendingVerification" = Option<bool>, Query, description = "Only payments whose outcome is (not) being asked about"),
        ("bookingId" = Option<String>, Query),
        ("userId" = Option<String>, Query),
        ("X-User-Id" = Option<String>, Header, description = "Only this user's payments"),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = PaymentsSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
        (status = 403, description = "`X-User-Id` is not `userId`", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn list(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let names = ["status", "pendingVerification", "bookingId", "userId"];
    let query = Query::read(query.as_deref(), &names)?;
    let page = query.page()?;
    let asked_for = query.text("userId");
    let user = user(&headers)?;
    if asked_for.is_some() && user.is_some() && asked_for != user {
        return Err(Problem::new(Code::Forbidden));
    }
    let filter = PaymentFilter {
        status: query.word("status", Status::parse)?,
        pending_verification: query.word("pendingVerification", |text| text.parse().ok())?,
        booking_id: query.text("bookingId").map(str::to_owned),
        user_id: asked_for.or(user).map(str::to_owned),
        ..PaymentFilter::default()
    };
    let of_somebody = filter.booking_id.is_some() || filter.user_id.is_some();
    let is_indexed =
        of_somebody || filter.status.is_none() || filter.pending_verification.is_none();
    let reach = page.reach(face.payments.store(), Listed::Payments, (None, None), is_indexed).await;
    let reach = reach.map_err(|error| unavailable(&error))?;
    let filter = PaymentFilter { before: reach.before, since: reach.since, ..filter };
    let found = face.payments.list(&filter, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer_of(found.iter().map(|p| (p.id, payment_json::payment(p))).collect(), reach))
}

/// Look a payment up
#[utoipa::path(
    get,
    path = "/payments/{id}",
    tag = "payments",
    operation_id = "getPayment",
    params(("id" = uuid::Uuid, Path), ("X-User-Id" = Option<String>, Header)),
    responses(
        (status = 200, description = "The payment as it is now; `case` is there when a person has to decide", body = PaymentSchema),
        (status = 403, description = "Another user's payment", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such payment", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(face): State<Arc<Face>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let view = face.payments.find(parse(&id)?, user(&headers)?).await.map_err(refusal)?;
    Ok(json_answer(StatusCode::OK, &payment_json::view(&view)))
}

/// See everything that happened to a payment
///
/// Every attempt, answer, question and transition, with its time.
#[utoipa::path(
    get,
    path = "/payments/{id}/timeline",
    tag = "payments",
    operation_id = "getPaymentTimeline",
    params(("id" = uuid::Uuid, Path), ("X-User-Id" = Option<String>, Header)),
    responses(
        (status = 200, description = "Oldest first", body = TimelineSchema),
        (status = 403, description = "Another user's payment", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such payment", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn timeline(
    State(face): State<Arc<Face>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let lines = face.payments.timeline(parse(&id)?, user(&headers)?).await.map_err(refusal)?;
    let items: Vec<Value> = lines.iter().map(payment_json::line).collect();
    Ok(json_answer(StatusCode::OK, &json!({ "items": items })))
}

/// Take the money
///
/// The whole amount, or less; the rest is released. A payment that is captured already is answered as
/// it is, and nothing is captured twice.
#[utoipa::path(
    post,
    path = "/payments/{id}/capture",
    tag = "payments",
    operation_id = "capturePayment",
    request_body(content = Option<AmountSchema>, content_type = "application/json"),
    params(("id" = uuid::Uuid, Path), ("Idempotency-Key" = String, Header), ("X-User-Id" = Option<String>, Header)),
    responses(
        (status = 200, description = "Captured", body = PaymentSchema),
        (status = 202, description = "Not known yet", body = PaymentSchema,
            headers(("Location" = String), ("Retry-After" = u64, description = "Seconds"))),
        (status = 400, description = "The gateway found the request wrong (a payment), or the request cannot be read (a problem)",
            content((PaymentSchema = "application/json"), (Document = "application/problem+json"))),
        (status = 402, description = "The gateway refused; `reason` says why", body = PaymentSchema),
        (status = 403, description = "Another user's payment", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such payment", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "Another operation is under way, or the key is another request's", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The payment's state or amount does not allow it", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn capture(
    State(face): State<Arc<Face>>,
    Extension(traceparent): Extension<Traceparent>,
    Path(id): Path<String>,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    let amount = request::parse_amount(&body).map_err(Problem::violations)?;
    face.ask(&id, &headers, traceparent, Wish::Capture { amount }, body).await
}

/// Release the authorization
#[utoipa::path(
    post,
    path = "/payments/{id}/void",
    tag = "payments",
    operation_id = "voidPayment",
    params(("id" = uuid::Uuid, Path), ("Idempotency-Key" = String, Header), ("X-User-Id" = Option<String>, Header)),
    responses(
        (status = 200, description = "Released: REFUNDED, with nothing captured", body = PaymentSchema),
        (status = 202, description = "Not known yet", body = PaymentSchema,
            headers(("Location" = String), ("Retry-After" = u64, description = "Seconds"))),
        (status = 400, description = "The gateway found the request wrong (a payment), or the request cannot be read (a problem)",
            content((PaymentSchema = "application/json"), (Document = "application/problem+json"))),
        (status = 402, description = "The gateway refused; `reason` says why", body = PaymentSchema),
        (status = 403, description = "Another user's payment", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such payment", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "Another operation is under way, or the key is another request's", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The payment's state does not allow it", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn void(
    State(face): State<Arc<Face>>,
    Extension(traceparent): Extension<Traceparent>,
    Path(id): Path<String>,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    request::parse_void(&body).map_err(Problem::violations)?;
    face.ask(&id, &headers, traceparent, Wish::Void, body).await
}

/// Give money back
///
/// All that is left, or part of it. What refunds that are under way have reserved does not count as
/// left.
#[utoipa::path(
    post,
    path = "/payments/{id}/refund",
    tag = "payments",
    operation_id = "refundPayment",
    request_body(content = Option<RefundRequestSchema>, content_type = "application/json"),
    params(("id" = uuid::Uuid, Path), ("Idempotency-Key" = String, Header), ("X-User-Id" = Option<String>, Header)),
    responses(
        (status = 200, description = "Given back", body = PaymentSchema),
        (status = 202, description = "Not known yet", body = PaymentSchema,
            headers(("Location" = String), ("Retry-After" = u64, description = "Seconds"))),
        (status = 400, description = "The gateway found the request wrong (a payment), or the request cannot be read (a problem)",
            content((PaymentSchema = "application/json"), (Document = "application/problem+json"))),
        (status = 402, description = "The gateway refused; the refund's `failure` says why", body = PaymentSchema),
        (status = 403, description = "Another user's payment", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such payment", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "The key is another request's, or one's that is being processed", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "More than is left, or nothing was captured", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn refund(
    State(face): State<Arc<Face>>,
    Extension(traceparent): Extension<Traceparent>,
    Path(id): Path<String>,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    let (amount, reason) = request::parse_refund(&body).map_err(Problem::violations)?;
    face.ask(&id, &headers, traceparent, Wish::Refund { amount, reason }, body).await
}

/// Ask the gateway now
///
/// About everything of this payment that is in doubt. Nothing is repeated at the gateway.
#[utoipa::path(
    post,
    path = "/payments/{id}/verify",
    tag = "payments",
    operation_id = "verifyPayment",
    params(("id" = uuid::Uuid, Path), ("X-User-Id" = Option<String>, Header)),
    responses(
        (status = 200, description = "Nothing is in doubt", body = PaymentSchema),
        (status = 202, description = "Still not known", body = PaymentSchema,
            headers(("Location" = String), ("Retry-After" = u64, description = "Seconds"))),
        (status = 403, description = "Another user's payment", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such payment", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn verify(
    State(face): State<Arc<Face>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    let user = user(&headers)?.map(str::to_owned);
    let payments = Arc::clone(&face.payments);
    let asked = async move { payments.verify(id, user.as_deref()).await };
    let payment = to_its_end(asked).await?.map_err(refusal)?;
    let http_status = if payment.is_at_rest() { 200 } else { 202 };
    Ok(face.answer(&Answer { payment, http_status, replayed: false }))
}

/// Settle a case
///
/// A person has looked at the gateway and says what happened. Allowed only where verification has
/// failed; written into the timeline with the note.
#[utoipa::path(
    post,
    path = "/payments/{id}/resolve",
    tag = "payments",
    operation_id = "resolvePayment",
    request_body = ResolveRequestSchema,
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The payment after the decision", body = PaymentSchema),
        (status = 400, description = "The request cannot be read", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such payment", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "No case waits for a decision, or the gateway says otherwise", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The decision does not fit what is in doubt", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn resolve(
    State(face): State<Arc<Face>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    let (resolution, note) = request::parse_resolution(&body).map_err(Problem::violations)?;
    let payments = Arc::clone(&face.payments);
    let decided = async move { payments.resolve(id, resolution, &note, &client.0).await };
    let payment = to_its_end(decided).await?.map_err(refusal)?;
    Ok(json_answer(StatusCode::OK, &payment_json::payment(&payment)))
}

impl Face {
    async fn ask(
        &self,
        id: &str,
        headers: &HeaderMap,
        traceparent: Traceparent,
        wish: Wish,
        body: Value,
    ) -> Result<Response, Problem> {
        let caller = OwnedCaller::read(headers, traceparent)?;
        let id = parse(id)?;
        let payments = Arc::clone(&self.payments);
        let asked = async move { payments.ask(caller.borrow(), id, wish, &body).await };
        Ok(self.answer(&to_its_end(asked).await?.map_err(refusal)?))
    }

    fn answer(&self, answer: &Answer) -> Response {
        let status = StatusCode::from_u16(answer.http_status).unwrap_or(StatusCode::OK);
        let mut response = json_answer(status, &payment_json::payment(&answer.payment));
        let headers = response.headers_mut();
        if matches!(answer.http_status, 201 | 202)
            && let Ok(place) = HeaderValue::from_str(&format!("/payments/{}", answer.payment.id))
        {
            headers.insert(LOCATION, place);
        }
        if answer.http_status == 202 {
            headers.insert(RETRY_AFTER, HeaderValue::from(self.ask_again.as_secs().max(1)));
        }
        if answer.replayed {
            mark_replayed(&mut response);
        }
        response
    }
}

/// Who asks, kept until the work is done.
struct OwnedCaller {
    key: Option<String>,
    user: Option<String>,
    traceparent: Option<String>,
}

impl OwnedCaller {
    fn read(headers: &HeaderMap, traceparent: Traceparent) -> Result<Self, Problem> {
        Ok(Self {
            // There is no key in the body here that it could differ from.
            key: key(headers)
                .map_err(|_| Problem::new(Code::IdempotencyKeyInvalid))?
                .map(str::to_owned),
            user: user(headers)?.map(str::to_owned),
            traceparent: traceparent.0,
        })
    }

    fn borrow(&self) -> Caller<'_> {
        Caller {
            key: self.key.as_deref(),
            user: self.user.as_deref(),
            traceparent: self.traceparent.clone(),
        }
    }
}

pub(super) fn user(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all("x-user-id").iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        // What no user can be called is nobody's id, and bytes that are no text neither.
        (Some(value), None) => match value.to_str() {
            Ok(name) if (1..=USER_MAX).contains(&name.len()) && !name.contains('\t') => {
                Ok(Some(name))
            }
            _ => Err(Problem::new(Code::Forbidden)),
        },
        // Of two, one may be the caller's own invention.
        (Some(_), Some(_)) => Err(Problem::new(Code::Forbidden)),
    }
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::new(Code::PaymentNotFound))
}

fn json_answer(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

pub(crate) fn refusal(error: PaymentError) -> Problem {
    match error {
        PaymentError::KeyMissing => Problem::new(Code::IdempotencyKeyMissing),
        PaymentError::KeyInvalid => Problem::new(Code::IdempotencyKeyInvalid),
        PaymentError::Invalid(violations) => Problem::violations(violations),
        PaymentError::Conflict => Problem::new(Code::IdempotencyConflict),
        PaymentError::InProgress => Problem::new(Code::IdempotencyInProgress),
        PaymentError::NotFound => Problem::new(Code::PaymentNotFound),
        PaymentError::Forbidden => Problem::new(Code::Forbidden),
        PaymentError::Refused(Refusal::WrongState(status)) => {
            let status = status.as_str();
            Problem::new(Code::PaymentStateConflict).detail(
                format!("A payment that is {status} does not allow this."),
                format!("状態が {status} の決済ではこの操作はできません。"),
            )
        }
        PaymentError::Refused(Refusal::TooMuch(left)) => Problem::new(Code::AmountTooHigh).detail(
            format!("At most {left} can be asked for."),
            format!("指定できるのは {left} までです。"),
        ),
        PaymentError::Refused(Refusal::UnderWay) => Problem::new(Code::PaymentBusy),
        PaymentError::Unresolvable(ResolveRefusal::NoCase) => Problem::new(Code::NoOpenCase),
        PaymentError::Unresolvable(ResolveRefusal::DoesNotFit) => {
            Problem::new(Code::ResolutionDoesNotFit)
        }
        PaymentError::Contradicted => Problem::new(Code::ResolutionContradicted),
        PaymentError::Store(error) => unavailable(&error),
    }
}
