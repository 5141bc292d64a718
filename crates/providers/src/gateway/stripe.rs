//! Stripe, through payment intents.
//!
//! Called through the [`Gateway`] port. Cards only: an intent is made with `capture_method=manual` and
//! `payment_method_types[]=card`, so that authorizing never captures and no method that would send
//! the customer to another page can be asked for.
//!
//! # Requests
//!
//! | Operation | Request | Idempotency key |
//! |---|---|---|
//! | prepare | `POST /v1/payment_intents` | `{payment_id}:create` |
//! | authorize | `POST /v1/payment_intents/{id}/confirm` | `{payment_id}:confirm` |
//! | capture | `POST /v1/payment_intents/{id}/capture` | `{payment_id}:capture` |
//! | void | `POST /v1/payment_intents/{id}/cancel` | `{payment_id}:void` |
//! | refund | `POST /v1/refunds` | `refund:{payment_id}:{number}` |
//! | status | `GET /v1/payment_intents/{id}`, then `GET /v1/refunds` if something is captured | |
//! | fence | `POST /v1/payment_intents/{id}/cancel` | `{payment_id}:fence` |
//! | list | `GET /v1/payment_intents` | |
//! | open a checkout | `POST /v1/checkout/sessions` | `{payment_id}:checkout` |
//! | checkout | `GET /v1/checkout/sessions/{id}` | |
//! | expire a checkout | `POST /v1/checkout/sessions/{id}/expire` | none: closing twice is closing once |
//!
//! A capture or void after one that did not happen has `:2`, `:3`, … behind its key.
//!
//! # Doubt
//!
//! The intent's id is written down before it is confirmed, so every doubt is a `GET` by id, which is
//! immediate and the truth; Stripe's search, which lags, is not used, and no `POST` is ever repeated
//! in order to ask. Without a stored id no confirmation can have been sent: `status` and `fence` know
//! the answer without asking.
//!
//! Under one key Stripe repeats its first answer, failures of its own (500) included. The evidence says
//! `replayed` then, and the status tells more than a repeat would. A capture or a cancellation goes once more
//! without its key then: an intent is captured or cancelled once, by whomever, so the key protected from nothing
//! and would keep the payment from its end. A refund does not: under another key it could be a second one.
//!
//! A fence cancels the intent. An authorization that came before it is released by that, so a fence
//! ends in `Voided` unless the money is captured or Stripe is still at work.
//!
//! What errors mean is the table in `errors`. Not done here: webhooks, 3-D Secure (`requires_action`
//! is `Pending` with a reason), capturing in several parts.

mod ask;
mod checkout;
mod errors;
mod objects;

use std::time::Duration;

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteState, code};
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::{Outcome, Timestamp};
use url::{Url, form_urlencoded};

use super::wire::{self, AddressError, judged, lost, settled, unasked, unsendable};
use super::{Charge, CheckoutOrder, Gateway, Operation, Page, RefundOrder, SessionRef, observed};
use crate::http::{Call, Client, ClientConfig, ClientError, Known, Request};
use crate::reply::{BoxFuture, Reply};
use ask::Ask;
use errors::Failure;

/// Reads a body as every kind of answer that Stripe gives, for the fuzzer.
#[cfg(fuzzing)]
pub fn read_all(body: &[u8], id: &str, secret: &str) -> Vec<Remote> {
    let refunds = objects::refunds(body, id).map(|page| page.items);
    let refund = objects::refund(body, id).map(|refund| vec![refund]);
    let intent = objects::intent(body, None).and_then(|intent| objects::remote(&intent, secret));
    let listed = objects::listed(body, secret).map(|page| page.items).unwrap_or_default();
    let mut found: Vec<Remote> = listed.into_iter().map(|listed| listed.remote).collect();
    found.extend(intent.map(|remote| Remote { refunds: refunds.or(refund), ..remote }));
    found
}

/// Where Stripe is.
pub const API_BASE: &str = "https://api.stripe.com";

/// The version of the API that the replies are read in. Without it an account's own default would
/// decide, and change under us when somebody clicks "upgrade".
const API_VERSION: HeaderValue = HeaderValue::from_static("2026-10-28.endive");
const STRIPE_VERSION: HeaderName = HeaderName::from_static("stripe-version");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// On the answer of an earlier request under the same key.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// Never goes without its key: an authorization in doubt is asked about and fenced off.
const CONFIRM: &str = "confirm";

/// Stripe's largest page.
const PAGE: &str = "100";
/// Ten thousand refunds of one payment. More than that is not a payment that we made.
const REFUND_PAGES_MAX: usize = 100;
/// Stripe takes only these as the reason of a refund; ours may be any words.
const REFUND_REASONS: [&str; 3] = ["duplicate", "fraudulent", "requested_by_customer"];

/// What an operator says about Stripe. Has no `Debug`: an address may be mistyped with a password.
pub struct StripeConfig {
    pub api_key: SecretString,
    /// [`API_BASE`], or where a stand-in listens.
    pub api_base: String,
    pub client: ClientConfig,
}

/// Why a configuration cannot be used. Quotes nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum StripeConfigError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(
        "Stripe's address must begin with https://, except on this machine or with a test key: \
         a key must not travel in the clear"
    )]
    InTheClear,
    #[error("the Stripe API key cannot be written into a header")]
    ApiKey,
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Stripe.
pub struct StripeGateway {
    /// Without a slash at the end.
    base: String,
    api_key: SecretString,
    authorization: HeaderValue,
    client: Client,
}

/// A reply, and what it says beside its outcome.
struct Heard<T> {
    reply: Reply<T>,
    /// Refused because the payment is in another state than we thought: Stripe has to be asked which.
    other_state: bool,
    /// Stripe broke down over an earlier request under this key, and will say so to everybody who comes with it.
    key_is_spent: bool,
}

impl StripeGateway {
    pub const NAME: &'static str = "stripe";

    pub fn new(config: StripeConfig) -> Result<Self, StripeConfigError> {
        let url = wire::address(&config.api_base)?;
        let key = config.api_key.expose_secret();
        // A test key moves no money, and stand-ins in a network of containers speak no TLS.
        let test_key = key.starts_with("sk_test_") || key.starts_with("rk_test_");
        if !wire::is_private(&url) && !test_key {
            return Err(StripeConfigError::InTheClear);
        }
        let authorization = wire::bearer(key).ok_or(StripeConfigError::ApiKey)?;
        let max_body = config.client.max_body.max(wire::LIST_BODY_MAX);
        Ok(Self {
            base: url.as_str().trim_end_matches('/').to_owned(),
            authorization,
            client: Client::new(&ClientConfig { max_body, ..config.client })?,
            api_key: config.api_key,
        })
    }

    /// Makes one request and reads the reply; `read` says what is in a successful one.
    async fn ask<T>(&self, ask: Ask, read: impl FnOnce(&[u8]) -> Option<T>) -> Heard<T> {
        let (request, now) = (ask.request, ask.now);
        let call = self.call(ask).await;
        let (mut told, mut other_state) = (None, false);
        let mut reply = judged(request, &call, |answer| {
            if answer.status.is_success() {
                let status = answer.status.as_u16();
                // It said yes, so it has probably acted; without an object nobody can say how.
                return read(&answer.body).map_or_else(
                    || lost(format!("Stripe answered {status} without a readable object")),
                    Outcome::Done,
                );
            }
            let failure = Failure::of(answer);
            let secret = self.api_key.expose_secret();
            told = Some(failure.told());
            failure.outcome(&answer.headers, now, secret).unwrap_or_else(|| {
                other_state = true;
                Outcome::Refused(failure.reason(code::INVALID_REQUEST, secret))
            })
        });
        if let Some(told) = told {
            reply.exchange.reply = told;
        }
        let mut key_is_spent = false;
        if let Known::Answered(answer) = &call.known
            && answer.headers.get(REPLAYED).is_some_and(|value| value == "true")
        {
            reply.exchange.reply.push_str(", replayed");
            key_is_spent = answer.status.is_server_error();
        }
        Heard { reply, other_state, key_is_spent }
    }

    async fn call(&self, ask: Ask) -> Call {
        let mut url = match Url::parse(&format!("{}{}", self.base, ask.path)) {
            Ok(url) => url,
            Err(error) => return unsendable(&error.to_string()),
        };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, JSON);
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(STRIPE_VERSION, API_VERSION);
        if let Some(key) = &ask.key {
            match wire::header(key) {
                Some(key) => headers.insert(IDEMPOTENCY_KEY, key),
                None => return unsendable("the idempotency key does not fit into a header"),
            };
        }
        let mut body = Bytes::new();
        if ask.method == Method::GET {
            if !ask.fields.is_empty() {
                url.query_pairs_mut().extend_pairs(&ask.fields);
            }
        } else {
            headers.insert(CONTENT_TYPE, FORM);
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(&ask.fields);
            body = Bytes::from(form.finish());
        }
        self.client.call(Request { method: ask.method, url, headers, body }).await
    }

    /// What a body says about the payment with this id.
    fn remote(&self, body: &[u8], id: &str) -> Option<Remote> {
        objects::remote(&objects::intent(body, Some(id))?, self.api_key.expose_secret())
    }

    async fn open(&self, charge: Charge<'_>) -> Reply<Option<String>> {
        let key = format!("{}:create", charge.payment_id);
        let path = "/v1/payment_intents".to_owned();
        let ask = Ask::post("POST /v1/payment_intents", path, key, charge.now)
            .with("amount", charge.amount.to_string())
            .with("currency", charge.currency.to_ascii_lowercase())
            .with("capture_method", "manual")
            .with("payment_method_types[]", "card")
            .with("payment_method", charge.payment_method)
            .with_some("customer", charge.customer)
            .with_some("description", charge.description)
            .with("metadata[payment_id]", charge.payment_id.to_string());
        // There is no other state yet to ask for, and an intent that is not confirmed moves nothing.
        let heard = self.ask(ask, |body| objects::intent(body, None)).await;
        heard.reply.map(|intent| Some(intent.id))
    }

    async fn confirm(&self, charge: Charge<'_>) -> Reply<Remote> {
        let reply = self
            .act(charge, "POST /v1/payment_intents/{id}/confirm", CONFIRM, "confirm", None)
            .await;
        settled(reply, |remote| match remote.state {
            // A decline of this request: it moved no money, and never will.
            RemoteState::Declined => Outcome::Refused(
                remote
                    .reason
                    .unwrap_or_else(|| Reason::new(code::CARD_DECLINED, "the card was declined")),
            ),
            // Confirmed and not confirmed at once: not an answer to build on.
            RemoteState::NotFound => {
                lost("Stripe took the confirmation and says that there was none".to_owned())
            }
            _ => Outcome::Done(remote),
        })
    }

    /// Does something to an intent. If its state does not allow it, the state is the answer.
    async fn act(
        &self,
        charge: Charge<'_>,
        request: &'static str,
        verb: &str,
        key: &str,
        amount: Option<i64>,
    ) -> Reply<Remote> {
        let Some(id) = prepared(charge) else {
            return unprepared(request);
        };
        let ask = |key: Option<String>| {
            let path = format!("/v1/payment_intents/{id}/{verb}");
            let ask = Ask { method: Method::POST, key, ..Ask::get(request, path, charge.now) };
            ask.with_some("amount_to_capture", amount.map(|amount| amount.to_string()).as_deref())
        };
        let mut heard = self.ask(ask(Some(charge.key(key))), |body| self.remote(body, id)).await;
        if heard.key_is_spent && verb != CONFIRM {
            let again = self.ask(ask(None), |body| self.remote(body, id)).await;
            heard = Heard { reply: after_breakdown(&heard.reply, again.reply), ..again };
        }
        if !heard.other_state {
            return heard.reply;
        }
        let read = self.look(id, charge.now).await;
        adopted(heard.reply, read, |remote, _| Outcome::Done(remote))
    }

    async fn give_back(&self, charge: Charge<'_>, refund: RefundOrder<'_>) -> Reply<RemoteRefund> {
        const REQUEST: &str = "POST /v1/refunds";
        let Some(id) = prepared(charge) else {
            return unprepared(REQUEST);
        };
        let key = format!("refund:{}:{}", charge.payment_id, refund.number);
        let reason = refund.reason.filter(|reason| REFUND_REASONS.contains(reason));
        let ask = Ask::post(REQUEST, "/v1/refunds".to_owned(), key, charge.now)
            .with("payment_intent", id)
            .with("amount", refund.amount.to_string())
            .with_some("reason", reason)
            .with("metadata[refund_id]", refund.refund_id.to_string())
            .with("metadata[payment_id]", charge.payment_id.to_string());
        let heard = self.ask(ask, |body| objects::refund(body, id)).await;
        if !heard.other_state {
            return heard.reply;
        }
        let read = self.refunds(id, charge.now).await;
        adopted(heard.reply, read, |refunds, refused| {
            let ours = refunds.into_iter().find(|made| made.refund_id == Some(refund.refund_id));
            ours.map_or(Outcome::Refused(refused), Outcome::Done)
        })
    }

    /// Reads an intent, with its refunds if there can be any.
    async fn look(&self, id: &str, now: Timestamp) -> Reply<Remote> {
        let path = format!("/v1/payment_intents/{id}");
        let ask = Ask::get("GET /v1/payment_intents/{id}", path, now);
        let mut reply = self.ask(ask, |body| self.remote(body, id)).await.reply;
        let remote = match &reply.outcome {
            Outcome::Done(remote) if remote.captured > 0 => remote.clone(),
            _ => return reply,
        };
        let refunds = self.refunds(id, now).await;
        reply.rtt += refunds.rtt;
        reply.exchange.reply.push_str("; refunds: ");
        reply.exchange.reply.push_str(&refunds.exchange.reply);
        reply.outcome = refunds.outcome.map(|refunds| Remote { refunds: Some(refunds), ..remote });
        reply
    }

    /// Every refund of an intent, page by page.
    async fn refunds(&self, id: &str, now: Timestamp) -> Reply<Vec<RemoteRefund>> {
        let (mut all, mut pages, mut rtt) = (Vec::new(), 0, Duration::ZERO);
        let mut after: Option<String> = None;
        loop {
            let ask = Ask::get("GET /v1/refunds", "/v1/refunds".to_owned(), now)
                .with("payment_intent", id)
                .with("limit", PAGE)
                .with_some("starting_after", after.as_deref());
            let mut reply = self.ask(ask, |body| objects::refunds(body, id)).await.reply;
            rtt += reply.rtt;
            reply.rtt = rtt;
            pages += 1;
            let Outcome::Done(page) = &mut reply.outcome else {
                return reply.map(|_| Vec::new());
            };
            all.append(&mut page.items);
            after = page.next.take();
            if after.is_none() {
                return reply.map(|_| all);
            }
            if pages == REFUND_PAGES_MAX {
                return settled(reply, |_| lost("there are more refunds than can be read".into()));
            }
        }
    }

    async fn locate(&self, charge: Charge<'_>) -> Reply<Remote> {
        let Some(id) = charge.gateway_id else {
            return unasked(
                "no intent was made, so none can have been confirmed",
                Outcome::Done(Remote::not_found()),
            );
        };
        if prepared(charge).is_none() {
            return unprepared("GET /v1/payment_intents/{id}");
        }
        self.look(id, charge.now).await
    }

    async fn cut_off(&self, charge: Charge<'_>) -> Reply<Remote> {
        if charge.gateway_id.is_none() {
            let voided = Remote { state: RemoteState::Voided, ..Remote::not_found() };
            return unasked("no intent was made, so none can be confirmed", Outcome::Done(voided));
        }
        self.act(charge, "POST /v1/payment_intents/{id}/cancel", "cancel", "fence", None).await
    }

    async fn page(&self, from: Timestamp, until: Timestamp, after: Option<&str>) -> Reply<Page> {
        // Stripe counts in whole seconds, cut off: this is exact for the times that it gives, and
        // puts each payment into one of two windows that meet.
        let seconds = |at: Timestamp| {
            at.as_micros().div_euclid(1_000_000)
                + i64::from(at.as_micros().rem_euclid(1_000_000) > 0)
        };
        // There is no `now` here. It would only be needed for a `Retry-After` with a date in it.
        let ask = Ask::get("GET /v1/payment_intents", "/v1/payment_intents".to_owned(), until)
            .with("created[gte]", seconds(from).to_string())
            .with("created[lt]", seconds(until).to_string())
            .with("limit", PAGE)
            .with_some("starting_after", after);
        let secret = self.api_key.expose_secret();
        self.ask(ask, |body| objects::listed(body, secret)).await.reply
    }
}

impl Gateway for StripeGateway {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn prepare<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>> {
        Box::pin(observed(Self::NAME, Operation::Prepare, self.open(charge)))
    }

    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(observed(Self::NAME, Operation::Authorize, self.confirm(charge)))
    }

    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>> {
        const REQUEST: &str = "POST /v1/payment_intents/{id}/capture";
        let work = self.act(charge, REQUEST, "capture", "capture", Some(amount));
        Box::pin(observed(Self::NAME, Operation::Capture, work))
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        const REQUEST: &str = "POST /v1/payment_intents/{id}/cancel";
        let work = self.act(charge, REQUEST, "cancel", "void", None);
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
        Box::pin(observed(Self::NAME, Operation::Fence, self.cut_off(charge)))
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

/// The intent's id, if there is one that can be written into a path.
fn prepared(charge: Charge<'_>) -> Option<&str> {
    charge.gateway_id.filter(|id| wire::is_id(id))
}

/// Nothing was sent, because there is no intent to send it to.
fn unprepared<T>(request: &str) -> Reply<T> {
    let why = "the payment has no intent at Stripe that could be written into a request";
    let mut reply = unasked(why, Outcome::Refused(Reason::new(code::INVALID_REQUEST, why)));
    request.clone_into(&mut reply.exchange.request);
    reply.exchange.reply = format!("not sent: {why}");
    reply
}

/// What came of a request that went again without its key.
fn after_breakdown<T>(first: &Reply<T>, mut again: Reply<T>) -> Reply<T> {
    again.exchange.reply =
        format!("{}; without the key: {}", first.exchange.reply, again.exchange.reply);
    again.rtt += first.rtt;
    again
}

/// The end of an operation that was refused because of the payment's state: what `read` found.
///
/// If the state could not be read, nobody knows where the payment stands.
fn adopted<T, U>(
    refused: Reply<U>,
    read: Reply<T>,
    found: impl FnOnce(T, Reason) -> Outcome<U>,
) -> Reply<U> {
    let Outcome::Refused(why) = refused.outcome else {
        return refused;
    };
    let outcome = match read.outcome {
        Outcome::Done(state) => found(state, why),
        Outcome::Refused(unread) | Outcome::Busy { reason: unread, .. } | Outcome::Lost(unread) => {
            lost(format!("{}; where it stands could not be read: {}", why.message, unread.message))
        }
    };
    let mut exchange = refused.exchange;
    exchange.reply = format!("{}; asked: {}", exchange.reply, read.exchange.reply);
    Reply { outcome, exchange, rtt: refused.rtt + read.rtt }
}
