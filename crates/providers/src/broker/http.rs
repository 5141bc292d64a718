//! A broker behind HTTP.
//!
//! Called through the [`Broker`] port. This is the wire protocol; a broker that speaks another one
//! needs a small gateway, or an adapter of its own beside this one.
//!
//! # Requests
//!
//! | Operation | Request | Body |
//! |---|---|---|
//! | send | `POST {base}/orders` | the order as canonical JSON (keys sorted, no white space, NFC) |
//! | status | `GET {base}/orders/{client_order_id}` | none |
//! | cancel | `DELETE {base}/orders/{client_order_id}` | none |
//! | heartbeat | `GET {base}/health` | none |
//!
//! The client order id is the order's idempotency key, percent-encoded in paths. Headers:
//!
//! | Header | On | Value |
//! |---|---|---|
//! | `Idempotency-Key` | send, if the profile says that the broker takes keys | the client order id |
//! | `X-Client-Order-Id` | send | the client order id |
//! | `traceparent` | send, where there is a trace | W3C trace context |
//! | `X-Broker-Key` | all | names the secret |
//! | `X-Broker-Timestamp` | all | Unix time in milliseconds |
//! | `X-Broker-Nonce` | all | 32 hexadecimal digits, never repeated, not even by a retry |
//! | `X-Broker-Signature` | all | hexadecimal HMAC-SHA256 over `method\|path\|query\|body\|ts\|nonce` |
//!
//! `path` is the path of the request line, base path included; `query` is empty; see
//! [`signature`].
//!
//! # Replies
//!
//! A reply about an order is a JSON object (`report` reads it): `status` (`executed`, `working`,
//! `rejected`, `not_found`), `order_ref`, `fills: [{px, qty, ts}]`, `cost`, `warnings`, and
//! `client_order_id`, which must be ours if it is given. What a status code means is the table in
//! `mapping`.
//!
//! A client order id that cannot be written into a header unchanged (anything but printable ASCII)
//! is refused before anything is sent: bending it could make two keys one.

mod mapping;
mod report;

use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use secrecy::SecretString;
use serde_json::Value;
use tashika_domain::order::{Execution, broker_code};
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::{Outcome, Timestamp, digest};
use url::Url;

use super::{
    ALREADY_PROCESSED, BoxFuture, Broker, Operation, Reply, SendOrder, Whereabouts, observed,
};
use crate::http::{Answer, Call, Client, ClientConfig, ClientError, Known, NotSent, Request};
use crate::signature::{self, Nonces, Signed};
use mapping::{Meaning, judged, located, placed, withdrawn};

/// Reads a body as every kind of answer that a broker gives, for the fuzzer.
#[cfg(fuzzing)]
pub fn read_all(body: &[u8], id: &str) -> (Option<super::Whereabouts>, Option<Execution>) {
    let flags = [report::is_already_processed, report::is_key_conflict, report::is_not_found];
    for flag in flags {
        std::hint::black_box(flag(body));
    }
    (report::whereabouts(body, id), report::enclosed_execution(body, id))
}

/// How long a broker may take (`BROKER_TIMEOUT_MS`).
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(2500);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const CLIENT_ORDER_ID: HeaderName = HeaderName::from_static("x-client-order-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const KEY: HeaderName = HeaderName::from_static("x-broker-key");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-broker-timestamp");
const NONCE: HeaderName = HeaderName::from_static("x-broker-nonce");
const SIGNATURE: HeaderName = HeaderName::from_static("x-broker-signature");

/// What an operator says about a broker. Has no `Debug`: an address may be mistyped with a password.
pub struct Profile {
    /// The adapter's name in results, metrics and traces.
    pub name: String,
    /// Where the protocol starts, e.g. `https://broker.example/v1`.
    pub base_url: String,
    /// Names the secret to the broker.
    pub key_id: String,
    pub secret: SecretString,
    /// Whether the broker recognises a repeat under the same `Idempotency-Key`. If it does not, the
    /// header is not sent and a lost answer must be asked about.
    pub takes_keys: bool,
    pub client: ClientConfig,
}

/// Why a profile cannot be used. Quotes nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("the broker's base URL is not a URL")]
    NotAUrl(#[source] url::ParseError),
    #[error("the broker's base URL must begin with http:// or https:// and name a host")]
    Scheme,
    #[error(
        "the broker's base URL must not contain a user name, a password, a query or a fragment"
    )]
    NotPlain,
    #[error("the path of the broker's base URL must not contain `|`, which separates signed parts")]
    Separator,
    #[error("the broker's key id cannot be written into a header")]
    KeyId,
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A broker behind HTTP.
pub struct HttpBroker {
    name: String,
    /// Without a slash at the end.
    base: String,
    key_id: HeaderValue,
    secret: SecretString,
    takes_keys: bool,
    client: Client,
    nonces: Nonces,
}

/// A request before it is signed.
struct Ask<'a> {
    method: Method,
    /// Below the base.
    path: &'a str,
    headers: HeaderMap,
    body: String,
    now: Timestamp,
}

impl<'a> Ask<'a> {
    fn bare(method: Method, path: &'a str, now: Timestamp) -> Self {
        Self { method, path, headers: HeaderMap::new(), body: String::new(), now }
    }
}

impl HttpBroker {
    /// `nonces` belong to this broker and this process alone.
    pub fn new(profile: Profile, nonces: Nonces) -> Result<Self, ProfileError> {
        let url = Url::parse(&profile.base_url).map_err(ProfileError::NotAUrl)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(ProfileError::Scheme);
        }
        let plain = url.username().is_empty() && url.password().is_none();
        if !plain || url.query().is_some() || url.fragment().is_some() {
            return Err(ProfileError::NotPlain);
        }
        if url.path().contains('|') {
            return Err(ProfileError::Separator);
        }
        Ok(Self {
            name: profile.name,
            base: url.as_str().trim_end_matches('/').to_owned(),
            key_id: header(&profile.key_id).ok_or(ProfileError::KeyId)?,
            secret: profile.secret,
            takes_keys: profile.takes_keys,
            client: Client::new(&profile.client)?,
            nonces,
        })
    }

    /// Signs and makes one request.
    async fn call(&self, ask: Ask<'_>) -> Call {
        let url = match Url::parse(&format!("{}{}", self.base, ask.path)) {
            Ok(url) => url,
            Err(error) => return unsendable(&error.to_string()),
        };
        let nonce = self.nonces.draw();
        let signed = Signed {
            method: ask.method.as_str(),
            path: url.path(),
            query: url.query().unwrap_or_default(),
            body: ask.body.as_bytes(),
            timestamp_ms: ask.now.as_millis(),
            nonce: &nonce,
        };
        let signature = signature::sign(&self.secret, &signed);
        let mut headers = ask.headers;
        headers.insert(ACCEPT, JSON);
        headers.insert(KEY, self.key_id.clone());
        headers.insert(TIMESTAMP, HeaderValue::from(ask.now.as_millis()));
        for (name, value) in [(NONCE, &nonce), (SIGNATURE, &signature)] {
            match HeaderValue::from_str(value) {
                Ok(value) => headers.insert(name, value),
                Err(error) => return unsendable(&error.to_string()),
            };
        }
        let request = Request { method: ask.method, url, headers, body: Bytes::from(ask.body) };
        self.client.call(request).await
    }

    async fn place(&self, send: SendOrder<'_>) -> Reply<Execution> {
        const REQUEST: &str = "POST /orders";
        let id = &send.order.idempotency_key;
        let (Some((id_header, _)), Ok(body)) =
            (written(id), serde_json::from_str::<Value>(send.body))
        else {
            return not_expressible(REQUEST, "the order cannot be written as a request");
        };
        let mut ask = Ask::bare(Method::POST, "/orders", send.now);
        ask.body = digest::canonical(&body);
        ask.headers.insert(CONTENT_TYPE, JSON);
        if self.takes_keys {
            ask.headers.insert(IDEMPOTENCY_KEY, id_header.clone());
        }
        ask.headers.insert(CLIENT_ORDER_ID, id_header);
        // A trace that cannot be written is not worth an order.
        if let Some(trace) = send.traceparent.and_then(header) {
            ask.headers.insert(TRACEPARENT, trace);
        }
        let call = self.call(ask).await;
        let mut reply = judged(REQUEST, &call, send.now, |answer| placed(answer, id));
        if let Known::Answered(answer) = &call.known
            && Meaning::of(answer.status) == Meaning::Conflict
            && report::is_already_processed(&answer.body)
        {
            reply = self.executed_before(reply, answer, id, send.now).await;
        }
        if let Outcome::Done(execution) = &reply.outcome {
            reply.exchange.reference = Some(execution.order_ref.clone());
        }
        reply
    }

    /// 409 "already processed" is a success; the execution is in the reply or must be fetched.
    async fn executed_before(
        &self,
        mut reply: Reply<Execution>,
        answer: &Answer,
        id: &str,
        now: Timestamp,
    ) -> Reply<Execution> {
        if let Some(execution) = report::enclosed_execution(&answer.body, id) {
            reply.outcome = Outcome::Done(execution);
            reply.exchange.reply.push_str(", already processed");
            return reply;
        }
        let read = self.locate(id, now).await;
        reply.rtt += read.rtt;
        let told = format!(", already processed; asked: {}", read.exchange.reply);
        reply.exchange.reply.push_str(&told);
        let known_but_unread = |why: &str| Outcome::Lost(Reason::new(ALREADY_PROCESSED, why));
        reply.outcome = match read.outcome {
            Outcome::Done(Whereabouts::Executed(execution)) => Outcome::Done(execution),
            Outcome::Done(Whereabouts::Rejected(reason)) => Outcome::Refused(reason),
            Outcome::Done(Whereabouts::Working) => known_but_unread(
                "the broker has the order from an earlier attempt and is not done with it",
            ),
            Outcome::Done(Whereabouts::NotFound) => known_but_unread(
                "the broker says both that the order is processed and that there is none",
            ),
            Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => {
                known_but_unread(&format!(
                    "the order was processed before, but not how: {}",
                    reason.message
                ))
            }
        };
        reply
    }

    async fn locate(&self, id: &str, now: Timestamp) -> Reply<Whereabouts> {
        const REQUEST: &str = "GET /orders/{client_order_id}";
        let Some((_, path)) = written(id) else {
            // It cannot have been sent under this id either.
            let mut reply = not_expressible(REQUEST, "the id cannot be written into a path");
            reply.outcome = Outcome::Done(Whereabouts::NotFound);
            return reply;
        };
        let call = self.call(Ask::bare(Method::GET, &path, now)).await;
        let mut reply = judged(REQUEST, &call, now, |answer| located(answer, id));
        match &reply.outcome {
            Outcome::Done(Whereabouts::Executed(execution)) => {
                reply.exchange.reference = Some(execution.order_ref.clone());
            }
            // The read was refused, not the order.
            Outcome::Refused(reason) => reply.outcome = Outcome::Lost(reason.clone()),
            _ => {}
        }
        reply
    }

    async fn withdraw(&self, id: &str, now: Timestamp) -> Reply<()> {
        const REQUEST: &str = "DELETE /orders/{client_order_id}";
        let Some((_, path)) = written(id) else {
            return not_expressible(REQUEST, "the id cannot be written into a path");
        };
        let call = self.call(Ask::bare(Method::DELETE, &path, now)).await;
        judged(REQUEST, &call, now, withdrawn)
    }

    async fn ping(&self, now: Timestamp) -> Reply<()> {
        let call = self.call(Ask::bare(Method::GET, "/health", now)).await;
        judged("GET /health", &call, now, |answer| {
            (Meaning::of(answer.status) == Meaning::Accepted).then_some(Outcome::Done(()))
        })
    }
}

impl Broker for HttpBroker {
    fn name(&self) -> &str {
        &self.name
    }

    fn takes_keys(&self) -> bool {
        self.takes_keys
    }

    fn send<'a>(&'a self, order: SendOrder<'a>) -> BoxFuture<'a, Reply<Execution>> {
        Box::pin(observed(&self.name, Operation::Send, self.place(order)))
    }

    fn status<'a>(
        &'a self,
        client_order_id: &'a str,
        now: Timestamp,
    ) -> BoxFuture<'a, Reply<Whereabouts>> {
        let work = self.locate(client_order_id, now);
        Box::pin(observed(&self.name, Operation::Status, work))
    }

    fn cancel<'a>(&'a self, client_order_id: &'a str, now: Timestamp) -> BoxFuture<'a, Reply<()>> {
        let work = self.withdraw(client_order_id, now);
        Box::pin(observed(&self.name, Operation::Cancel, work))
    }

    fn heartbeat(&self, now: Timestamp) -> BoxFuture<'_, Reply<()>> {
        Box::pin(observed(&self.name, Operation::Heartbeat, self.ping(now)))
    }
}

/// Nothing was sent, because it could not even be written down. Repeating would not help.
fn not_expressible<T>(request: &str, why: &str) -> Reply<T> {
    Reply {
        outcome: Outcome::Refused(Reason::new(broker_code::BAD_REQUEST, why)),
        exchange: Exchange {
            request: request.to_owned(),
            reply: format!("not sent: {why}"),
            reference: None,
            sent: false,
        },
        rtt: Duration::ZERO,
    }
}

fn unsendable(why: &str) -> Call {
    Call { known: Known::NotSent(NotSent::Unsendable(why.to_owned())), rtt: Duration::ZERO }
}

/// The text as a header value, if every recipient will read back exactly this text.
fn header(text: &str) -> Option<HeaderValue> {
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !printable || text.is_empty() || text.starts_with(' ') || text.ends_with(' ') {
        return None;
    }
    HeaderValue::from_str(text).ok()
}

/// An id as the header and the path that carry it.
///
/// `None` for ids that one of the two cannot carry unchanged, so that an id under which an order was
/// sent can always be asked about. In the path everything but unreserved characters is
/// percent-encoded; `.` and `..` would be swallowed by the URL.
fn written(id: &str) -> Option<(HeaderValue, String)> {
    let header = header(id).filter(|_| !matches!(id, "." | ".."))?;
    let segment: String = id
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    Some((header, format!("/orders/{segment}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_and_cannot_climb() {
        for (id, expected) in [
            ("key-0001", Some("/orders/key-0001")),
            ("a/b|c%d e", Some("/orders/a%2Fb%7Cc%25d%20e")),
            ("...", Some("/orders/...")),
            ("", None),
            (".", None),
            ("..", None),
            (" a", None),
            ("a\nb", None),
            ("鍵-鍵-鍵-鍵-鍵", None),
        ] {
            let path = written(id).map(|(_, path)| path);
            assert_eq!(path.as_deref(), expected, "{id:?}");
        }
    }

    #[test]
    fn profiles_that_cannot_work_are_refused_without_quoting_them() {
        for (base_url, key_id) in [
            ("broker.example", "k"),
            ("ftp://broker.example", "k"),
            ("https://user:hunter2@broker.example", "k"),
            ("https://broker.example/?a=1", "k"),
            ("https://broker.example/#a", "k"),
            ("https://broker.example/a|b", "k"),
            ("https://broker.example", "k\n"),
            ("https://broker.example", ""),
        ] {
            let profile = Profile {
                name: "http".into(),
                base_url: base_url.into(),
                key_id: key_id.into(),
                secret: SecretString::from("hunter2"),
                takes_keys: true,
                client: ClientConfig::with_timeout(DEFAULT_TIMEOUT),
            };
            let Err(error) = HttpBroker::new(profile, Nonces::new([0; 8])) else {
                panic!("{base_url} was taken");
            };
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }
}
