//! What is asked of a gateway about checkout sessions.

use tashika_domain::Timestamp;
use uuid::Uuid;

/// A page to open, where a customer pays once.
///
/// The gateway acts once under the key `{payment_id}:checkout`, and may compare a repeat with the
/// first request word for word: whoever repeats an order passes the same fields again, except for
/// `now` and `traceparent`.
#[derive(Clone, Copy, Debug)]
pub struct CheckoutOrder<'a> {
    /// Our id of the payment that the session will become.
    pub payment_id: Uuid,
    /// What is bought.
    pub reservation_id: Uuid,
    /// Minor units.
    pub amount: i64,
    /// ISO 4217, upper case.
    pub currency: &'a str,
    /// What the customer reads on the page.
    pub title: &'a str,
    pub customer_email: Option<&'a str>,
    /// The language of the page, e.g. `ja`. The gateway chooses where there is none.
    pub locale: Option<&'a str>,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    /// When we will close the session. Gateways have bounds of their own for when *they* close it,
    /// so the session that comes back may live longer: closing it in time is the caller's affair.
    pub expires_at: Timestamp,
    pub now: Timestamp,
    /// W3C trace context to pass on.
    pub traceparent: Option<&'a str>,
}

/// A session that was opened.
#[derive(Clone, Copy, Debug)]
pub struct SessionRef<'a> {
    /// The gateway's id of the session.
    pub session_id: &'a str,
    pub payment_id: Uuid,
    pub now: Timestamp,
    pub traceparent: Option<&'a str>,
}
