//! The Stripe adapter against localstripe, a stand-in that somebody else wrote.
//!
//! It ignores idempotency keys and knows neither `amount_received` nor error codes for states, so it
//! checks that requests and replies are Stripe's, not what is made of doubt. The packages come from
//! Python's registry, through `scripts/stripe-packages`.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use secrecy::SecretString;
use serde_json::Value;
use tashika_domain::Outcome;
use tashika_providers::gateway::stripe::{StripeConfig, StripeGateway};
use tashika_providers::gateway::{Charge, Gateway as _};
use tashika_providers::http::{Client, ClientConfig, Known, Request};
use tashika_testkit::gateway::localstripe::LocalStripe;
use uuid::Uuid;

use crate::gateway::{REFUND, charge, refund_order, stands, told};

const KEY: &str = "sk_test_12345";
/// A card that is charged.
const GOOD: &str = "4242424242424242";
/// A card that is declined when it is charged.
const BAD: &str = "4000000000000341";
/// A card whose owner has to authenticate first.
const CAREFUL: &str = "4000002500003155";

/// localstripe, for as long as this lives, and a client of ours.
struct Stripe {
    server: LocalStripe,
    client: Client,
}

impl Stripe {
    async fn started() -> Self {
        let client = Client::new(&ClientConfig::with_timeout(Duration::from_secs(10))).unwrap();
        Self { server: LocalStripe::start().await, client }
    }

    fn gateway(&self) -> StripeGateway {
        StripeGateway::new(StripeConfig {
            api_key: SecretString::from(KEY),
            api_base: self.server.base_url(),
            client: ClientConfig::with_timeout(Duration::from_secs(10)),
        })
        .unwrap()
    }

    /// Makes an object by plain HTTP, and returns its id.
    async fn make(&self, path: &str, form: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer sk_test_12345"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let request = Request {
            method: Method::POST,
            url: format!("{}/v1/{path}", self.server.base_url()).parse().unwrap(),
            headers,
            body: Bytes::from(form.to_owned()),
        };
        let Known::Answered(answer) = self.client.call(request).await.known else {
            panic!("no answer about {path}");
        };
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        body["id"].as_str().unwrap_or_else(|| panic!("{path}: {body}")).to_owned()
    }

    /// A customer with a card: the ids of both.
    async fn card(&self, number: &str) -> (String, String) {
        let customer = self.make("customers", "email=a@example.com").await;
        let form = format!(
            "type=card&card[number]={number}&card[exp_month]=12&card[exp_year]=2030&card[cvc]=123"
        );
        let method = self.make("payment_methods", &form).await;
        let path = format!("payment_methods/{method}/attach");
        self.make(&path, &format!("customer={customer}")).await;
        (customer, method)
    }
}

/// Opens an intent, and returns its id.
async fn opened(gateway: &StripeGateway, charge: Charge<'_>) -> String {
    let reply = gateway.prepare(charge).await;
    let Outcome::Done(Some(id)) = reply.outcome else {
        panic!("{reply:?}");
    };
    id
}

#[tokio::test]
async fn a_payment_is_captured_and_given_back_in_parts() {
    let stripe = Stripe::started().await;
    let gateway = stripe.gateway();
    let (customer, method) = stripe.card(GOOD).await;
    let bare = Charge { customer: Some(&customer), ..charge(None, &method) };
    let id = opened(&gateway, bare).await;
    let payment = Charge { gateway_id: Some(&id), ..bare };
    assert_eq!(stands(&gateway.status(payment).await), "NOT_FOUND");
    let reply = gateway.authorize(payment).await;
    assert_eq!(stands(&reply), "AUTHORIZED");
    assert_eq!(reply.exchange.request, "POST /v1/payment_intents/{id}/confirm");
    assert_eq!(stands(&gateway.status(payment).await), "AUTHORIZED");
    assert_eq!(stands(&gateway.capture(payment, 3000).await), "CAPTURED 3000");
    assert_eq!(stands(&gateway.status(payment).await), "CAPTURED 3000");
    let reply = gateway.refund(payment, refund_order(1000)).await;
    let Outcome::Done(refund) = reply.outcome else {
        panic!("{reply:?}");
    };
    assert_eq!((refund.amount, refund.refund_id), (1000, Some(REFUND)));
    assert_eq!(stands(&gateway.status(payment).await), "CAPTURED 3000 1000:succeeded");

    // An intent that it does not have.
    let lost = Charge { gateway_id: Some("pi_nope"), ..bare };
    assert_eq!(stands(&gateway.status(lost).await), "Refused INVALID_REQUEST");
    // It cannot filter by time, and says so.
    let page = gateway.list(bare.now, bare.now, None).await;
    assert_eq!(told(&page.outcome, |_| String::new()), "Refused INVALID_REQUEST");
}

#[tokio::test]
async fn payments_are_voided_and_fenced() {
    let stripe = Stripe::started().await;
    let gateway = stripe.gateway();
    let (customer, method) = stripe.card(GOOD).await;
    let bare = Charge { customer: Some(&customer), ..charge(None, &method) };
    let id = opened(&gateway, bare).await;
    let payment = Charge { gateway_id: Some(&id), ..bare };
    assert_eq!(stands(&gateway.authorize(payment).await), "AUTHORIZED");
    assert_eq!(stands(&gateway.void(payment).await), "VOIDED");
    assert_eq!(stands(&gateway.status(payment).await), "VOIDED");

    let bare = Charge { payment_id: Uuid::from_u128(2), ..bare };
    let id = opened(&gateway, bare).await;
    let payment = Charge { gateway_id: Some(&id), ..bare };
    assert_eq!(stands(&gateway.fence(payment).await), "VOIDED");
    assert_eq!(stands(&gateway.authorize(payment).await), "Refused INVALID_REQUEST", "fenced");
    assert_eq!(stands(&gateway.status(payment).await), "VOIDED");
}

#[tokio::test]
async fn cards_are_declined_or_wait_for_their_owner() {
    let stripe = Stripe::started().await;
    let gateway = stripe.gateway();
    let (customer, method) = stripe.card(BAD).await;
    let bare = Charge { customer: Some(&customer), ..charge(None, &method) };
    let id = opened(&gateway, bare).await;
    let payment = Charge { gateway_id: Some(&id), ..bare };
    let reply = gateway.authorize(payment).await;
    assert_eq!(stands(&reply), "Refused CARD_DECLINED");
    assert_eq!(reply.exchange.reply, "402 card_declined");
    assert_eq!(stands(&gateway.status(payment).await), "DECLINED CARD_DECLINED");

    let (customer, method) = stripe.card(CAREFUL).await;
    let bare = Charge {
        payment_id: Uuid::from_u128(2),
        customer: Some(&customer),
        ..charge(None, &method)
    };
    let id = opened(&gateway, bare).await;
    let payment = Charge { gateway_id: Some(&id), ..bare };
    assert_eq!(stands(&gateway.authorize(payment).await), "PENDING ACTION_REQUIRED");
    assert_eq!(stands(&gateway.status(payment).await), "PENDING ACTION_REQUIRED");
    assert_eq!(stands(&gateway.fence(payment).await), "VOIDED");
    assert_eq!(stands(&gateway.status(payment).await), "VOIDED");
}
