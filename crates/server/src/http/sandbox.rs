//! `/sandbox/checkout/{id}`: the sandbox gateway's page, where somebody plays the customer.
//!
//! There only with `PAYMENT_GATEWAY=sandbox`. No token, as a real gateway's page needs none: whoever
//! has the address may pay, and no money moves. What the customer does is written into the sandbox's
//! own book first and then announced, as a real gateway would tell of it by webhook; a customer who
//! presses twice changes nothing and announces the same event.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tashika_domain::payment::session::SessionState;
use tashika_engine::Clock;
use tashika_engine::SANDBOX_SOURCE as SOURCE;
use tashika_engine::commands::webhook::{Announced, WebhookError, Webhooks};
use tashika_providers::gateway::sandbox::{MEANS, PayRefusal, SandboxGateway, SandboxPage};
use url::form_urlencoded;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::RawBody;
use super::home::{escape, frame};
use super::language::Language;
use super::problem::{Code, Document, Problem};
use super::unavailable;

/// What the handlers share.
pub struct Face {
    pub gateway: Arc<SandboxGateway>,
    pub webhooks: Arc<Webhooks>,
    pub clock: Clock,
}

pub fn routes(face: Arc<Face>) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(page)).routes(routes!(pay)).with_state(face)
}

/// See the sandbox's page for paying
///
/// Where a customer of the sandbox gateway ends up: buttons for every way a payment can go.
#[utoipa::path(
    get,
    path = "/sandbox/checkout/{id}",
    tag = "sandbox",
    operation_id = "getSandboxCheckout",
    params(("id" = String, Path, description = "`sessionId` of a checkout")),
    responses(
        (status = 200, description = "The page", content_type = "text/html"),
        (status = 404, description = "No such session", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn page(
    State(face): State<Arc<Face>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found = face.gateway.page_of(&id, face.clock.now()).await.map_err(refusal)?;
    Ok(shown(Language::of(&headers), &found))
}

/// Pay on the sandbox's page
///
/// Plays the customer. `paymentMethod`, in JSON or as a form, is one of the sandbox's; without a body
/// it is `ok`. Tashika hears of it as of a webhook.
#[utoipa::path(
    post,
    path = "/sandbox/checkout/{id}/pay",
    tag = "sandbox",
    operation_id = "paySandboxCheckout",
    params(("id" = String, Path, description = "`sessionId` of a checkout")),
    responses(
        (status = 200, description = "Paid, or on its way; also if it was paid before"),
        (status = 402, description = "Declined; the page is still open", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such session", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "The page is closed", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "No such means of payment", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn pay(
    State(face): State<Arc<Face>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let (method, is_form) = wish(&headers, &body)?;
    let now = face.clock.now();
    let paid = face.gateway.pay(&id, &method, now).await.map_err(refusal)?;
    for event in events(&paid, now) {
        face.webhooks.announce(event).await.map_err(|error| match error {
            WebhookError::Store(error) => unavailable(&error),
            other => {
                tracing::error!(error = %other, "the sandbox could not announce a payment");
                Problem::new(Code::InternalError)
            }
        })?;
    }
    if is_form {
        return Ok(shown(Language::of(&headers), &paid));
    }
    let session = &paid.session;
    let body = json!({
        "sessionId": session.id,
        "paymentId": paid.payment_id,
        "reservationId": paid.reservation_id,
        "status": session.state.as_str(),
        "paid": session.paid,
        "amount": session.amount,
        "currency": session.currency,
        "successUrl": paid.success_url,
    });
    Ok((StatusCode::OK, axum::Json(body)).into_response())
}

/// What the customer pays with, and whether a browser asks.
fn wish(headers: &HeaderMap, body: &[u8]) -> Result<(String, bool), Problem> {
    if body.is_empty() {
        return Ok(("ok".to_owned(), false));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("application/x-www-form-urlencoded") {
        let mut fields = form_urlencoded::parse(body);
        let method = fields.find(|(name, _)| name == "paymentMethod").map(|(_, value)| value);
        return Ok((method.unwrap_or("ok".into()).into_owned(), true));
    }
    let unreadable = || {
        Problem::new(Code::BadRequest).detail(
            "The body is not a JSON object with a text `paymentMethod`.",
            "本文が、文字列 `paymentMethod` を持つ JSON オブジェクトではありません。",
        )
    };
    let body: Value = serde_json::from_slice(body).map_err(|_| unreadable())?;
    match body.get("paymentMethod") {
        None if body.is_object() => Ok(("ok".to_owned(), false)),
        Some(Value::String(method)) => Ok((method.clone(), false)),
        _ => Err(unreadable()),
    }
}

/// What a gateway would tell of: the page is complete; and later, whether money came that was not
/// there at once.
fn events(paid: &SandboxPage, now: tashika_domain::Timestamp) -> Vec<Announced> {
    let session = &paid.session;
    let event = |kind: &str, not_before| {
        let event_id = format!("sandbox_evt_{}_{kind}", paid.payment_id.simple());
        let payload = json!({
            "id": event_id,
            "object": "event",
            "type": format!("checkout.session.{kind}"),
            "data": {"object": {
                "object": "checkout.session",
                "id": session.id,
                "status": session.state.as_str(),
                "payment_status": if session.paid { "paid" } else { "unpaid" },
                "payment_intent": session.gateway_id,
                "amount_total": session.amount,
                "currency": session.currency.to_ascii_lowercase(),
                "client_reference_id": paid.reservation_id,
                "metadata": {"payment_id": paid.payment_id, "reservation_id": paid.reservation_id},
            }},
        });
        let kind = format!("checkout.session.{kind}");
        Announced { source: SOURCE, event_id, kind, payload, not_before }
    };
    let mut events = vec![event("completed", now)];
    // Which of the two it will be is asked when it is time; the name is the one that is hoped for.
    events.extend(paid.arrives_at.map(|at| event("async_payment_succeeded", at)));
    events
}

fn refusal(refused: PayRefusal) -> Problem {
    match refused {
        PayRefusal::Unknown => Problem::new(Code::CheckoutNotFound),
        PayRefusal::Closed => Problem::new(Code::CheckoutClosed),
        PayRefusal::Declined(_) => Problem::new(Code::CheckoutDeclined),
        PayRefusal::Means => Problem::new(Code::ValidationError).detail(
            format!("The sandbox's page takes {MEANS}."),
            format!("サンドボックスで使えるのは次のとおりです: {MEANS}"),
        ),
        PayRefusal::Book(error) => {
            tracing::error!(error, "the sandbox's book is not available");
            Problem::new(Code::StoreUnavailable)
        }
    }
}

/// Buttons, and what they mean.
const BUTTONS: [(&str, &str, &str); 5] = [
    ("ok", "Pay", "支払う"),
    ("declined", "Pay with a card that is declined", "拒否されるカードで支払う"),
    ("delayed_ok", "Pay, and the money comes a minute later", "支払う（入金は 1 分後）"),
    ("delayed_declined", "Pay, and the money never comes", "支払う（入金されない）"),
    ("refund_charged_but_silent", "Pay; a refund will be silent", "支払う（返金の応答が失われる）"),
];

fn shown(language: Language, page: &SandboxPage) -> Response {
    let session = &page.session;
    let (amount, currency) = (session.amount, escape(&session.currency));
    let minor = language.pick("in minor units", "最小単位");
    let mut body = format!(
        "<p class=\"lead\">{}</p>\n<p><b>{amount}</b> {currency} ({minor})</p>\n",
        escape(&page.title)
    );
    match session.state {
        SessionState::Open => {
            let id = escape(&session.id);
            for (method, english, japanese) in BUTTONS {
                let label = language.pick(english, japanese);
                // Writing to a String cannot fail.
                writeln!(
                    body,
                    "<form method=\"post\" action=\"/sandbox/checkout/{id}/pay\">\
                     <button name=\"paymentMethod\" value=\"{method}\">{label}</button></form>"
                )
                .unwrap_or_default();
            }
            body.push_str(&link(&page.cancel_url, language.pick("Do not pay", "支払わない")));
        }
        SessionState::Complete => {
            let text = if session.paid {
                language.pick("Paid.", "支払い済みです。")
            } else {
                language.pick("The money is on its way.", "入金待ちです。")
            };
            writeln!(body, "<p>{text}</p>").unwrap_or_default();
            body.push_str(&link(&page.success_url, language.pick("Back", "戻る")));
        }
        SessionState::Expired => {
            let text = language.pick("This page is closed.", "このページは終了しました。");
            writeln!(body, "<p>{text}</p>").unwrap_or_default();
            body.push_str(&link(&page.cancel_url, language.pick("Back", "戻る")));
        }
    }
    let title = language.pick("Sandbox checkout", "サンドボックス決済");
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, frame(language, title, &body)).into_response()
}

/// Nothing from elsewhere, and forms go nowhere else.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A link for a caller's address, if it is one that a browser would follow as a page.
fn link(url: &str, label: &str) -> String {
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return String::new();
    }
    format!("<p><a href=\"{}\">{label}</a></p>\n", escape(url))
}

#[cfg(test)]
mod tests;
