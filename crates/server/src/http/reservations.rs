//! `/reservations` and `/slots`: holding a slot, paying for it, giving it up.
//!
//! Handlers read the request and word the answer; everything in between is
//! `engine::commands::reservation`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_domain::payment::Payment;
use tashika_domain::reservation::request::is_date;
use tashika_domain::reservation::{Reservation, Status};
use tashika_engine::commands::reservation::{
    Caller, CheckedOut, Held, ReservationError, ReservationView, Reservations,
};
use tashika_store::ReservationFilter;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::idempotency::{key, mark_replayed};
use super::json::JsonBody;
use super::page::Query;
use super::payments::user;
use super::problem::{Code, Document, Problem};
use super::schema::ReservationStatusSchema;
use super::schema::reservations::{
    CheckoutOpeningSchema, CheckoutSchema, HoldSchema, ReservationRequestSchema, ReservationSchema,
    ReservationsSchema, SlotsSchema,
};
use super::{races, to_its_end, unavailable};
use crate::telemetry::Traceparent;

type Face = State<Arc<Reservations>>;

pub fn routes(reservations: Arc<Reservations>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(hold, list))
        .routes(routes!(find))
        .routes(routes!(cancel))
        .routes(routes!(check_out))
        .routes(routes!(slots))
        .with_state(reservations)
}

/// Hold a slot
///
/// For `RESERVATION_HOLD_SEC`. Who has a slot is decided when the row is written, by the database: of
/// many who ask at the same moment, one gets it. The same key with the same body is the same reservation.
#[utoipa::path(
    post,
    path = "/reservations",
    tag = "reservations",
    operation_id = "createReservation",
    request_body = ReservationRequestSchema,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "One value per reservation, at most 64 characters, best a UUID; here or as `idempotencyKey` in the body", max_length = 64),
        ("X-User-Id" = Option<String>, Header, description = "On whose behalf; must be `userId`"),
    ),
    responses(
        (status = 201, description = "Held", body = HoldSchema, headers(("Location" = String))),
        (status = 200, description = "A replay: the reservation as it is now", body = HoldSchema,
            headers(("Idempotent-Replayed" = String, description = "`true`"))),
        (status = 400, description = "The key is missing or cannot be used, or the body cannot be read", body = Document, content_type = "application/problem+json"),
        (status = 403, description = "`X-User-Id` is not `userId`", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "Somebody else has the slot (`SLOT_ALREADY_TAKEN`), or the key belongs to another request", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The request is not valid, or the header and the body name different keys", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "The database is away", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn hold(
    State(face): Face,
    Extension(traceparent): Extension<Traceparent>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let caller = caller(&headers, traceparent)?;
    let Held { reservation, replayed } = face.hold(caller, &body).await.map_err(refusal)?;
    let answer = json!({
        "reservationId": reservation.id,
        "status": reservation.status,
        "expiresAt": reservation.hold_expires_at,
    });
    let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = json_answer(status, &answer);
    if replayed {
        mark_replayed(&mut response);
    } else if let Ok(place) = HeaderValue::from_str(&format!("/reservations/{}", reservation.id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// List reservations
#[utoipa::path(
    get,
    path = "/reservations",
    tag = "reservations",
    operation_id = "listReservations",
    params(
        ("date" = Option<String>, Query, format = Date),
        ("status" = Option<ReservationStatusSchema>, Query),
        ("userId" = Option<String>, Query),
        ("X-User-Id" = Option<String>, Header, description = "Only this user's reservations"),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = ReservationsSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
        (status = 403, description = "`X-User-Id` is not `userId`", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn list(
    State(face): Face,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["date", "status", "userId"])?;
    let page = query.page()?;
    let asked_for = query.text("userId");
    let user = user(&headers)?;
    if asked_for.is_some() && user.is_some() && asked_for != user {
        return Err(Problem::new(Code::Forbidden));
    }
    let filter = ReservationFilter {
        projection_date: query.word("date", date)?,
        status: query.word("status", Status::parse)?,
        user_id: asked_for.or(user).map(str::to_owned),
        before: page.before,
    };
    let (found, now) = face.list(&filter, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer(found.iter().map(|found| (found.id, reservation(found, now))).collect()))
}

/// Look a reservation up
#[utoipa::path(
    get,
    path = "/reservations/{id}",
    tag = "reservations",
    operation_id = "getReservation",
    params(("id" = uuid::Uuid, Path), ("X-User-Id" = Option<String>, Header)),
    responses(
        (status = 200, description = "The reservation as it is now, with its payment and its races", body = ReservationSchema),
        (status = 403, description = "Another user's reservation", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such reservation", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(face): Face,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found = face.find(parse(&id)?, user(&headers)?).await.map_err(refusal)?;
    Ok(json_answer(StatusCode::OK, &view(&found)))
}

/// Give a reservation up
///
/// What was paid goes back, once, however often this is asked. A customer who is on the payment page
/// cannot pay any more; one who has paid in the same moment gets the money back.
#[utoipa::path(
    post,
    path = "/reservations/{id}/cancel",
    tag = "reservations",
    operation_id = "cancelReservation",
    params(
        ("id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Not needed: a repeat is answered like the first request", max_length = 64),
        ("X-User-Id" = Option<String>, Header),
    ),
    responses(
        (status = 200, description = "Cancelled, now or before", body = ReservationSchema),
        (status = 400, description = "The key cannot be used", body = Document, content_type = "application/problem+json"),
        (status = 403, description = "Another user's reservation", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such reservation", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "Too late: it has expired (`CANNOT_CANCEL`)", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The header and the body name different keys", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn cancel(
    State(face): Face,
    Extension(traceparent): Extension<Traceparent>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = caller(&headers, traceparent)?;
    let cancelled = face.cancel(parse(&id)?, caller).await.map_err(refusal)?;
    Ok(json_answer(StatusCode::OK, &view(&cancelled)))
}

/// Open the payment page
///
/// A checkout session at the gateway, which is closed at the end of the hold. Asked again, it is the
/// same page.
#[utoipa::path(
    post,
    path = "/reservations/{id}/checkout",
    tag = "reservations",
    operation_id = "checkoutReservation",
    params(
        ("id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Not needed: a repeat is answered like the first request", max_length = 64),
        ("X-User-Id" = Option<String>, Header),
    ),
    responses(
        (status = 200, description = "The page is open", body = CheckoutSchema),
        (status = 202, description = "The gateway has not answered yet: ask again", body = CheckoutOpeningSchema,
            headers(("Retry-After" = u64, description = "Seconds"))),
        (status = 400, description = "The key cannot be used", body = Document, content_type = "application/problem+json"),
        (status = 403, description = "Another user's reservation", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such reservation", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It is paid, expired or cancelled (`CANNOT_CHECK_OUT`)", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The header and the body name different keys", body = Document, content_type = "application/problem+json"),
        (status = 502, description = "The gateway would not open a page", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn check_out(
    State(face): Face,
    Extension(traceparent): Extension<Traceparent>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (id, user) = (parse(&id)?, user(&headers)?.map(str::to_owned));
    let key = key(&headers)?.map(str::to_owned);
    let work = async move {
        let caller =
            Caller { key: key.as_deref(), user: user.as_deref(), traceparent: traceparent.0 };
        face.check_out(id, caller).await
    };
    Ok(match to_its_end(work).await?.map_err(refusal)? {
        CheckedOut::Open(payment) => json_answer(StatusCode::OK, &session(&payment)),
        CheckedOut::Opening(payment) => {
            let body = json!({"status": "opening", "paymentId": payment.id});
            let mut response = json_answer(StatusCode::ACCEPTED, &body);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    })
}

/// See the slots of a day
#[utoipa::path(
    get,
    path = "/slots",
    tag = "reservations",
    operation_id = "listSlots",
    params(("date" = String, Query, format = Date)),
    responses(
        (status = 200, description = "Every slot of the day", body = SlotsSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn slots(State(face): Face, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["date"])?;
    let Some(date) = query.word("date", date)? else {
        return Err(Problem::new(Code::BadRequest)
            .detail("date is required.".to_owned(), "date を指定してください。".to_owned()));
    };
    let slots = face.slots(&date).await.map_err(refusal)?;
    let items: Vec<Value> = slots
        .iter()
        .map(|slot| {
            let status = slot.status.map_or("free", Status::as_str);
            json!({"slotNumber": slot.number, "status": status})
        })
        .collect();
    Ok(json_answer(StatusCode::OK, &json!({"date": date, "items": items})))
}

/// Fields without a value are left out.
fn reservation(reservation: &Reservation, now: Timestamp) -> Value {
    let request = &reservation.request;
    let mut body = json!({
        "reservationId": reservation.id,
        "status": reservation.standing(now),
        "videoId": request.video_id,
        "projectionDate": request.projection_date,
        "slotNumber": request.slot_number,
        "userId": request.user_id,
        "userEmail": request.user_email,
        "locale": request.locale.as_str(),
        "amount": request.amount,
        "currency": request.currency,
        "expiresAt": reservation.hold_expires_at,
        "createdAt": reservation.created_at,
        "updatedAt": reservation.updated_at,
    });
    let moments = [
        ("confirmedAt", reservation.confirmed_at),
        ("expiredAt", reservation.expired_at),
        ("cancelledAt", reservation.cancelled_at),
    ];
    for (name, moment) in moments {
        if let Some(moment) = moment {
            body[name] = json!(moment);
        }
    }
    if let Some(id) = reservation.payment_id {
        body["paymentId"] = json!(id);
    }
    body
}

/// A reservation with what else is known about it.
fn view(view: &ReservationView) -> Value {
    let mut body = reservation(&view.reservation, view.now);
    if let Some(payment) = &view.payment {
        body["payment"] = json!({
            "paymentId": payment.id,
            "status": payment.status,
            "capturedAmount": payment.captured_amount,
            "refundedAmount": payment.refunded_amount,
            "refundingAmount": payment.refunding_amount(),
        });
    }
    if !view.races.is_empty() {
        body["races"] = view.races.iter().map(races::race).collect();
    }
    body
}

fn session(payment: &Payment) -> Value {
    let page = payment.checkout.as_ref();
    let session = page.and_then(|page| page.session.as_ref());
    let mut body = json!({
        "sessionId": session.map(|session| &session.id),
        "expiresAt": page.map(|page| page.closes_at),
    });
    if let Some(url) = session.and_then(|session| session.url.as_ref()) {
        body["url"] = json!(url);
    }
    body
}

fn caller(headers: &HeaderMap, traceparent: Traceparent) -> Result<Caller<'_>, Problem> {
    Ok(Caller { key: key(headers)?, user: user(headers)?, traceparent: traceparent.0 })
}

fn date(text: &str) -> Option<String> {
    is_date(text).then(|| text.to_owned())
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::new(Code::ReservationNotFound))
}

fn json_answer(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn refusal(error: ReservationError) -> Problem {
    match error {
        ReservationError::KeyMissing => Problem::new(Code::IdempotencyKeyMissing),
        ReservationError::KeyInvalid => Problem::new(Code::IdempotencyKeyInvalid),
        ReservationError::KeysDiffer => Problem::new(Code::IdempotencyMismatch),
        ReservationError::Invalid(violations) => Problem::violations(violations),
        ReservationError::Conflict => Problem::new(Code::IdempotencyConflict),
        ReservationError::SlotTaken => Problem::new(Code::SlotAlreadyTaken),
        ReservationError::NotFound => Problem::new(Code::ReservationNotFound),
        ReservationError::Forbidden => Problem::new(Code::Forbidden),
        ReservationError::CannotCancel => Problem::new(Code::CannotCancel),
        ReservationError::CannotCheckOut(status) => {
            let status = status.as_str();
            Problem::new(Code::CannotCheckOut).detail(
                format!("A reservation that is {status} cannot be paid."),
                format!("状態が {status} の予約は決済できません。"),
            )
        }
        ReservationError::CheckoutRefused(code) => Problem::new(Code::CheckoutRefused).detail(
            format!("The gateway would not open a payment page ({code})."),
            format!("決済代行会社が決済ページの作成を拒否しました（{code}）。"),
        ),
        ReservationError::Store(error) => unavailable(&error),
    }
}
