//! A gateway of one's own, behind HTTP.
//!
//! Called through the [`Gateway`] port. It speaks the small protocol that `docs/gateway-protocol.md`
//! describes for those who write the other side; this is its client, and the two say the same.
//!
//! | Operation | Request | Idempotency key |
//! |---|---|---|
//! | prepare | none: the gateway can be asked by our id | |
//! | authorize | `POST {base}/payments` | `{payment_id}:authorize` |
//! | capture | `POST {base}/payments/{reference}/capture` | `{payment_id}:capture` |
//! | void | `POST {base}/payments/{reference}/void` | `{payment_id}:void` |
//! | refund | `POST {base}/payments/{reference}/refunds` | `refund:{payment_id}:{number}` |
//! | status | `GET {base}/payments/{reference}` | |
//! | fence | `POST {base}/payments/{reference}/fence` | `{payment_id}:fence` |
//! | list | `GET {base}/payments?from=&until=&cursor=` | |
//! | open a checkout | `POST {base}/checkouts` | `{payment_id}:checkout` |
//! | checkout | `GET {base}/checkouts/{id}` | |
//! | expire a checkout | `POST {base}/checkouts/{id}/expire` | `{payment_id}:expire` |
//!
//! A capture or void after one that did not happen has `:2`, `:3`, … behind its key.
//!
//! The reference is our payment id. Every answer has to carry it, and an answer about another payment
//! is no answer. What a status code means is the table in `mapping`. Plain `http://` is allowed, for
//! gateways in the same private network; the bearer token then travels as readable as the payments do.

mod checkout;
mod mapping;
mod payment;

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteState, code};
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::{Outcome, Timestamp};
use url::Url;
use uuid::Uuid;

use super::wire::{self, AddressError, judged, lost, settled, unasked, unsendable};
use super::{Charge, CheckoutOrder, Gateway, Operation, Page, RefundOrder, SessionRef, observed};
use crate::http::{Answer, Call, Client, ClientConfig, ClientError, Request};
use crate::reply::{BoxFuture, Reply};
use mapping::Meaning;

/// Reads a body as every kind of answer that a gateway of one's own gives, for the fuzzer.
#[cfg(fuzzing)]
pub fn read_all(body: &[u8], id: Uuid, secret: &str) -> (Vec<Remote>, Vec<Reason>) {
    let page = payment::page(body, secret).map(|page| page.items).unwrap_or_default();
    let mut found: Vec<Remote> = page.into_iter().map(|listed| listed.remote).collect();
    found.extend(payment::remote(body, id, secret));
    drop(payment::made(body, id));
    (found, vec![payment::declined(&payment::trouble(body), secret)])
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What an operator says about a gateway. Has no `Debug`: an address may be mistyped with a password.
pub struct HttpGatewayConfig {
    /// Where the protocol starts, e.g. `https://payments.internal/v1`.
    pub base_url: String,
    /// Sent as `Authorization: Bearer …`.
    pub token: SecretString,
    pub client: ClientConfig,
}

/// Why a configuration cannot be used. Quotes nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum HttpGatewayConfigError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("the gateway's token cannot be written into a header")]
    Token,
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A gateway behind HTTP.
pub struct HttpGateway {
    /// Without a slash at the end.
    base: String,
    token: SecretString,
    authorization: HeaderValue,
    client: Client,
}

/// One request, before it is written.
struct Ask<'a> {
    /// As it is told in the evidence.
    request: &'static str,
    method: Method,
    /// Below the base.
    path: String,
    query: Vec<(&'static str, String)>,
    key: Option<String>,
    body: String,
    traceparent: Option<&'a str>,
    now: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewPayment<'a> {
    reference: Uuid,
    amount: i64,
    currency: &'a str,
    payment_method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

#[derive(Serialize)]
struct Amount {
    amount: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewRefund<'a> {
    refund_id: Uuid,
    amount: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> Ask<'a> {
    fn get(request: &'static str, path: String, now: Timestamp) -> Self {
        let (query, body) = (Vec::new(), String::new());
        Self { request, method: Method::GET, path, query, key: None, body, traceparent: None, now }
    }

    fn post(request: &'static str, path: String, key: String, charge: Charge<'a>) -> Self {
        Self {
            method: Method::POST,
            key: Some(key),
            traceparent: charge.traceparent,
            ..Self::get(request, path, charge.now)
        }
    }

    fn json(mut self, body: &impl Serialize) -> Self {
        // These are structs of strings and numbers, which always have a JSON.
        self.body = serde_json::to_string(body).unwrap_or_default();
        self
    }
}

impl HttpGateway {
    pub const NAME: &'static str = "http";

    pub fn new(config: HttpGatewayConfig) -> Result<Self, HttpGatewayConfigError> {
        let url = wire::address(&config.base_url)?;
        let authorization =
            wire::bearer(config.token.expose_secret()).ok_or(HttpGatewayConfigError::Token)?;
        let max_body = config.client.max_body.max(wire::LIST_BODY_MAX);
        Ok(Self {
            base: url.as_str().trim_end_matches('/').to_owned(),
            authorization,
            client: Client::new(&ClientConfig { max_body, ..config.client })?,
            token: config.token,
        })
    }

    /// Makes one request; `read` looks at the answer first, the table decides about the rest.
    async fn ask<T>(
        &self,
        ask: Ask<'_>,
        read: impl FnOnce(&Answer) -> Option<Outcome<T>>,
    ) -> Reply<T> {
        let (request, now) = (ask.request, ask.now);
        let call = self.call(ask).await;
        judged(request, &call, |answer| {
            read(answer).unwrap_or_else(|| mapping::outcome(answer, now, self.secret()))
        })
    }

    fn secret(&self) -> &str {
        self.token.expose_secret()
    }

    async fn call(&self, ask: Ask<'_>) -> Call {
        let mut url = match Url::parse(&format!("{}{}", self.base, ask.path)) {
            Ok(url) => url,
            Err(error) => return unsendable(&error.to_string()),
        };
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&ask.query);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, JSON);
        headers.insert(AUTHORIZATION, self.authorization.clone());
        if ask.method == Method::POST {
            headers.insert(CONTENT_TYPE, JSON);
        }
        if let Some(key) = ask.key.as_deref() {
            match wire::header(key) {
                Some(key) => headers.insert(IDEMPOTENCY_KEY, key),
                None => return unsendable("the idempotency key does not fit into a header"),
            };
        }
        // A trace that cannot be written is not worth a payment.
        if let Some(trace) = ask.traceparent.and_then(wire::header) {
            headers.insert(TRACEPARENT, trace);
        }
        let body = Bytes::from(ask.body);
        self.client.call(Request { method: ask.method, url, headers, body }).await
    }

    /// What a reply about the payment says: a success, or a conflict that tells the state.
    fn told(&self, answer: &Answer, reference: Uuid) -> Option<Outcome<Remote>> {
        match Meaning::of(answer.status) {
            Meaning::Accepted | Meaning::Conflict => {
                payment::remote(&answer.body, reference, self.secret()).map(Outcome::Done)
            }
            _ => None,
        }
    }

    async fn reserve(&self, charge: Charge<'_>) -> Reply<Remote> {
        let id = charge.payment_id;
        let key = format!("{id}:authorize");
        let ask =
            Ask::post("POST /payments", "/payments".to_owned(), key, charge).json(&NewPayment {
                reference: id,
                amount: charge.amount,
                currency: charge.currency,
                payment_method: charge.payment_method,
                customer: charge.customer,
                description: charge.description,
            });
        let reply = self.ask(ask, |answer| self.told(answer, id)).await;
        settled(reply, |remote| match (remote.state, remote.reason.clone()) {
            // A decline of this request: it moved no money, and never will.
            (RemoteState::Declined, Some(reason)) => Outcome::Refused(reason),
            _ => Outcome::Done(remote),
        })
    }

    /// Does something to a payment. If its state does not allow it, the state is the answer.
    async fn act(
        &self,
        charge: Charge<'_>,
        request: &'static str,
        verb: &str,
        amount: Option<i64>,
    ) -> Reply<Remote> {
        let id = charge.payment_id;
        let path = format!("/payments/{id}/{verb}");
        let mut ask = Ask::post(request, path, charge.key(verb), charge);
        ask = match amount {
            Some(amount) => ask.json(&Amount { amount }),
            None => Ask { body: "{}".to_owned(), ..ask },
        };
        self.ask(ask, |answer| self.told(answer, id)).await
    }

    async fn give_back(&self, charge: Charge<'_>, refund: RefundOrder<'_>) -> Reply<RemoteRefund> {
        let (id, refund_id) = (charge.payment_id, refund.refund_id);
        let key = format!("refund:{id}:{}", refund.number);
        let path = format!("/payments/{id}/refunds");
        let ask = Ask::post("POST /payments/{reference}/refunds", path, key, charge)
            .json(&NewRefund { refund_id, amount: refund.amount, reason: refund.reason });
        self.ask(ask, |answer| match Meaning::of(answer.status) {
            Meaning::Accepted => payment::made(&answer.body, refund_id).map(Outcome::Done),
            Meaning::Conflict => {
                let remote = payment::remote(&answer.body, id, self.secret())?;
                let ours = |made: &RemoteRefund| made.refund_id == Some(refund_id);
                // Without a list of refunds it has not been said whether ours is among them.
                let made = remote.refunds?.into_iter().find(ours);
                let why = "the payment's state does not allow the refund";
                Some(made.map_or_else(
                    || Outcome::Refused(Reason::new(code::INVALID_REQUEST, why)),
                    Outcome::Done,
                ))
            }
            _ => None,
        })
        .await
    }

    async fn locate(&self, charge: Charge<'_>) -> Reply<Remote> {
        let id = charge.payment_id;
        let path = format!("/payments/{id}");
        let ask = Ask::get("GET /payments/{reference}", path, charge.now);
        self.ask(ask, |answer| match answer.status.as_u16() {
            // "Not found" ends a payment. A 404 of some router on the way must not do that, so the
            // gateway has to say it in words.
            404 => Some(match payment::trouble(&answer.body).code.as_deref() {
                Some("PAYMENT_NOT_FOUND") => Outcome::Done(Remote::not_found()),
                _ => lost(
                    "404, but not the gateway's PAYMENT_NOT_FOUND: it may come from something in \
                     between"
                        .to_owned(),
                ),
            }),
            200..=299 => self.told(answer, id),
            _ => None,
        })
        .await
    }

    async fn page(&self, from: Timestamp, until: Timestamp, after: Option<&str>) -> Reply<Page> {
        // There is no `now` here. It would only be needed for a `Retry-After` with a date in it.
        let mut ask = Ask::get("GET /payments", "/payments".to_owned(), until);
        ask.query = vec![("from", from.to_string()), ("until", until.to_string())];
        ask.query.extend(after.map(|cursor| ("cursor", cursor.to_owned())));
        self.ask(ask, |answer| {
            let accepted = Meaning::of(answer.status) == Meaning::Accepted;
            let page = accepted.then(|| payment::page(&answer.body, self.secret())).flatten();
            page.map(Outcome::Done)
        })
        .await
    }
}

impl Gateway for HttpGateway {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn prepare<'a>(&'a self, _charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>> {
        let work = async { unasked("the gateway is asked by our id", Outcome::Done(None)) };
        Box::pin(observed(Self::NAME, Operation::Prepare, work))
    }

    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(observed(Self::NAME, Operation::Authorize, self.reserve(charge)))
    }

    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>> {
        const REQUEST: &str = "POST /payments/{reference}/capture";
        let work = self.act(charge, REQUEST, "capture", Some(amount));
        Box::pin(observed(Self::NAME, Operation::Capture, work))
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        let work = self.act(charge, "POST /payments/{reference}/void", "void", None);
        Box::pin(observed(Self::NAME, Operation::Void, work))
    }

    fn refund<'a>(
        &'a self,
        charge: Charge<'a>,
        refund: RefundOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteRefund>> {
        Box::pin(observed(Self::NAME, Operation::Refund, self.give_back(charge, refund)))
    }

    fn status<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(observed(Self::NAME, Operation::Status, self.locate(charge)))
    }

    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        let work = self.act(charge, "POST /payments/{reference}/fence", "fence", None);
        Box::pin(observed(Self::NAME, Operation::Fence, work))
    }

    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>> {
        Box::pin(observed(Self::NAME, Operation::List, self.page(from, until, after)))
    }

    fn open_checkout<'a>(
        &'a self,
        order: CheckoutOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        Box::pin(observed(Self::NAME, Operation::OpenCheckout, self.open_session(order)))
    }

    fn checkout<'a>(&'a self, session: SessionRef<'a>) -> BoxFuture<'a, Reply<RemoteSession>> {
        Box::pin(observed(Self::NAME, Operation::Checkout, self.session(session)))
    }

    fn expire_checkout<'a>(
        &'a self,
        session: SessionRef<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        Box::pin(observed(Self::NAME, Operation::ExpireCheckout, self.expire_session(session)))
    }
}
