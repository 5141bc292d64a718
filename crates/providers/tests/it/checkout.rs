//! Checkout sessions at each gateway: opened once, read as they are, closed or found paid.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::gateway::http::{HttpGateway, HttpGatewayConfig};
use tashika_providers::gateway::sandbox::{LATE_AFTER, PayRefusal, SandboxGateway};
use tashika_providers::gateway::stripe::{StripeConfig, StripeGateway};
use tashika_providers::gateway::{Charge, CheckoutOrder, Gateway as _, SessionRef};
use tashika_providers::http::ClientConfig;
use tashika_providers::reply::Reply;
use tashika_testkit::gateway::server::GatewayServer;
use tashika_testkit::gateway::{Fault, Operation, World};
use uuid::{Uuid, uuid};

use crate::gateway::{
    NOW, PAYMENT, TRACE, answering, charge, client, lines, refund_order, stands, told,
};
use crate::gateway_sandbox::MemoryBook;

const RESERVATION: Uuid = uuid!("0190a1b2-0000-7000-8000-0000000000a1");
const HOLD: Duration = Duration::from_secs(900);

fn order(now: Timestamp) -> CheckoutOrder<'static> {
    CheckoutOrder {
        payment_id: PAYMENT,
        reservation_id: RESERVATION,
        amount: 1200,
        currency: "JPY",
        title: "2026-12-01 #3",
        customer_email: Some("hanako@example.com"),
        locale: Some("ja"),
        success_url: "https://shop.example/ok?a=1&b=2",
        cancel_url: "https://shop.example/no",
        expires_at: now.plus(HOLD),
        now,
        traceparent: Some(TRACE),
    }
}

fn of(session_id: &str, now: Timestamp) -> SessionRef<'_> {
    SessionRef { session_id, payment_id: PAYMENT, now, traceparent: Some(TRACE) }
}

/// `open`, `complete paid pi_1`, `expired`; or what else became of it.
fn seen(reply: &Reply<RemoteSession>) -> String {
    told(&reply.outcome, |session| {
        let paid = if session.paid { " paid" } else { "" };
        let intent = session.gateway_id.as_deref().map(|id| format!(" {}", &id[..3]));
        format!("{}{paid}{}", session.state.as_str(), intent.unwrap_or_default())
    })
}

fn opened(reply: Reply<RemoteSession>) -> RemoteSession {
    match reply.outcome {
        Outcome::Done(session) => session,
        other => panic!("{other:?}"),
    }
}

/// The Stripe adapter and the scripted gateway.
async fn stripe() -> (World, GatewayServer, StripeGateway) {
    let world = World::new();
    let server = GatewayServer::start(&world).await;
    let gateway = StripeGateway::new(StripeConfig {
        api_key: SecretString::from("sk_test_hunter2"),
        api_base: server.base_url(),
        client: ClientConfig::with_timeout(Duration::from_secs(5)),
    });
    (world, server, gateway.unwrap())
}

#[tokio::test]
async fn stripe_is_asked_with_exactly_these_parameters() {
    let body = format!(
        r#"{{"object":"checkout.session","id":"cs_1","url":"https://pay.example/cs_1","status":"open",
        "payment_status":"unpaid","payment_intent":null,"amount_total":1200,"currency":"jpy",
        "expires_at":1700002760,"metadata":{{"payment_id":"{PAYMENT}"}}}}"#
    );
    let server = answering([(200, "", &body), (200, "", &body)]).await;
    let gateway = crate::gateway_stripe::stripe(server.url(""));
    let session = opened(gateway.open_checkout(order(NOW)).await);
    assert_eq!(session.url.as_deref(), Some("https://pay.example/cs_1"));
    assert_eq!((session.amount, session.currency.as_str()), (1200, "JPY"));
    // A minute later, and not a letter different: under one key Stripe takes nothing else.
    let again = CheckoutOrder { now: NOW.plus(Duration::from_secs(60)), ..order(NOW) };
    opened(gateway.open_checkout(again).await);
    let heard = server.heard();
    assert_eq!(heard[0].body, heard[1].body);
    assert_eq!(heard[0].header("idempotency-key"), Some(&*format!("{PAYMENT}:checkout")));
    let form: Vec<(String, String)> =
        url::form_urlencoded::parse(heard[0].body.as_bytes()).into_owned().collect();
    let expected = [
        ("mode", "payment"),
        ("line_items[0][quantity]", "1"),
        ("line_items[0][price_data][currency]", "jpy"),
        ("line_items[0][price_data][unit_amount]", "1200"),
        ("line_items[0][price_data][product_data][name]", "2026-12-01 #3"),
        ("client_reference_id", &RESERVATION.to_string()),
        ("metadata[payment_id]", &PAYMENT.to_string()),
        ("metadata[reservation_id]", &RESERVATION.to_string()),
        ("payment_intent_data[metadata][payment_id]", &PAYMENT.to_string()),
        ("payment_intent_data[metadata][reservation_id]", &RESERVATION.to_string()),
        ("customer_email", "hanako@example.com"),
        ("locale", "ja"),
        ("success_url", "https://shop.example/ok?a=1&b=2"),
        ("cancel_url", "https://shop.example/no"),
        ("expires_at", "1700002760"),
    ];
    let form: Vec<(&str, &str)> = form.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert_eq!(form, expected);
}

#[tokio::test]
async fn a_page_at_stripe_is_opened_once_whatever_happens_to_the_answer() {
    let (world, _server, gateway) = stripe().await;
    let now = world.now();
    world.script(
        Operation::OpenCheckout,
        [Fault::DropBefore, Fault::ExecuteThenClose, Fault::rate_limited()],
    );
    for expected in ["Lost UNKNOWN", "Lost UNKNOWN", "Busy NETWORK_ERROR"] {
        assert_eq!(seen(&gateway.open_checkout(order(now)).await), expected);
    }
    let session = opened(gateway.open_checkout(order(now)).await);
    assert_eq!(world.sessions().len(), 1);
    assert!(session.url.is_some());
    let life = session.expires_at.since(now);
    assert!((Duration::from_secs(1800)..Duration::from_secs(86_400)).contains(&life), "{life:?}");
    assert_eq!(seen(&gateway.checkout(of(&session.id, now)).await), "open");

    assert!(world.customer_pays(&session.id));
    let read = gateway.checkout(of(&session.id, now)).await;
    assert_eq!(seen(&read), "complete paid pi_");
    // What was paid on the page is a payment like any other.
    let intent = opened(read).gateway_id.unwrap();
    let paid = Charge { now, ..charge(Some(&intent), "") };
    assert_eq!(stands(&gateway.status(paid).await), "CAPTURED 1200");
    let refunded = gateway.refund(paid, refund_order(1200)).await;
    assert!(matches!(refunded.outcome, Outcome::Done(_)), "{refunded:?}");
    assert_eq!(world.charged(&PAYMENT.to_string()), 0);
    assert_eq!(world.violations(), []);
    assert_eq!(world.strays(), Vec::<String>::new());
}

#[tokio::test]
async fn closing_a_page_at_stripe_ends_it_or_finds_it_paid() {
    let (world, _server, gateway) = stripe().await;
    let now = world.now();
    let session = opened(gateway.open_checkout(order(now)).await);
    world.script(Operation::ExpireCheckout, [Fault::ExecuteThenClose]);
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, now)).await), "Lost UNKNOWN");
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, now)).await), "expired");
    assert!(!world.customer_pays(&session.id));

    // A key would remember the failure, and nobody could ever close the page.
    let (world, _server, gateway) = stripe().await;
    let session = opened(gateway.open_checkout(order(now)).await);
    world.script(Operation::ExpireCheckout, [Fault::fail_before()]);
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, now)).await), "Lost UNKNOWN");
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, now)).await), "expired");

    let (world, _server, gateway) = stripe().await;
    let session = opened(gateway.open_checkout(order(now)).await);
    assert!(world.customer_pays_later(&session.id));
    let reply = gateway.expire_checkout(of(&session.id, now)).await;
    assert_eq!(seen(&reply), "complete pi_", "not closed, and not paid either");
    assert_eq!(reply.exchange.reply, "400; asked: 200");
    assert!(world.money_comes(&session.id, true));
    // Where the session stands is asked every time.
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, now)).await), "complete paid pi_");
    world.script(Operation::Checkout, [Fault::fail_before()]);
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, now)).await), "Lost UNKNOWN");
    assert_eq!(seen(&gateway.checkout(of("cs_nobody", now)).await), "Refused INVALID_REQUEST");
    assert_eq!(seen(&gateway.checkout(of("../x", now)).await), "Refused INVALID_REQUEST");
    let other = SessionRef { payment_id: RESERVATION, ..of(&session.id, now) };
    assert_eq!(seen(&gateway.checkout(other).await), "Lost UNKNOWN", "another payment's");
}

fn sandbox() -> SandboxGateway {
    let gateway = SandboxGateway::new(Arc::new(MemoryBook::default()), Duration::from_millis(20));
    gateway.show_pages_at("http://127.0.0.1:8080/");
    gateway
}

#[tokio::test]
async fn a_page_of_the_sandbox_lives_and_is_paid_once() {
    let gateway = sandbox();
    let session = opened(gateway.open_checkout(order(NOW)).await);
    let again = opened(gateway.open_checkout(order(NOW)).await);
    assert_eq!(session, again);
    let url = format!("http://127.0.0.1:8080/sandbox/checkout/{}", session.id);
    assert_eq!(session.url, Some(url));
    assert_eq!(session.expires_at, NOW.plus(Duration::from_secs(1800)), "longer than the hold");
    let pay = async |method: &str| gateway.pay(&session.id, method, NOW).await;
    assert!(matches!(pay("declined").await, Err(PayRefusal::Declined(_))));
    assert_eq!(pay("shells").await, Err(PayRefusal::Means));
    assert_eq!(pay("requires_action").await, Err(PayRefusal::Means));
    assert_eq!(seen(&gateway.checkout(of(&session.id, NOW)).await), "open");
    let paid = pay("refund_declined").await.unwrap();
    assert_eq!(pay("ok").await.unwrap(), paid, "paying twice is paying once");
    assert_eq!((paid.reservation_id, paid.session.paid), (RESERVATION, true));
    assert_eq!(seen(&gateway.checkout(of(&session.id, NOW)).await), "complete paid san");
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, NOW)).await), "complete paid san");

    let charge = Charge { amount: 1200, currency: "JPY", ..charge(None, "whatever") };
    assert_eq!(stands(&gateway.status(charge).await), "CAPTURED 1200");
    let refund = gateway.refund(charge, refund_order(1200)).await;
    let refund = told(&refund.outcome, |_| "done".into());
    assert_eq!(refund, "Refused CARD_DECLINED", "as the customer chose");
    let page = gateway.list(NOW, NOW.plus(HOLD), None).await;
    assert!(matches!(page.outcome, Outcome::Done(page) if page.items.len() == 1));
}

#[tokio::test]
async fn a_page_of_the_sandbox_ends_by_hand_or_in_time() {
    let gateway = sandbox();
    assert_eq!(gateway.page_of("sandbox_cs_x", NOW).await, Err(PayRefusal::Unknown));
    let nobody = of("sandbox_cs_x", NOW);
    assert_eq!(seen(&gateway.expire_checkout(nobody).await), "Refused INVALID_REQUEST");
    let session = opened(gateway.open_checkout(order(NOW)).await);
    let later = session.expires_at;
    assert_eq!(seen(&gateway.checkout(of(&session.id, later)).await), "expired");
    assert_eq!(gateway.pay(&session.id, "ok", later).await, Err(PayRefusal::Closed));
    assert_eq!(seen(&gateway.checkout(of(&session.id, NOW)).await), "open");
    assert_eq!(seen(&gateway.expire_checkout(of(&session.id, NOW)).await), "expired");
    assert_eq!(gateway.pay(&session.id, "ok", NOW).await, Err(PayRefusal::Closed));
    assert_eq!(gateway.page_of(&session.id, NOW).await.unwrap().session.url, None);
}

#[tokio::test]
async fn money_of_the_sandbox_may_come_later() {
    for (method, expected) in
        [("delayed_ok", "complete paid san"), ("delayed_declined", "complete san")]
    {
        let gateway = sandbox();
        let session = opened(gateway.open_checkout(order(NOW)).await);
        let paid = gateway.pay(&session.id, method, NOW).await.unwrap();
        assert_eq!(paid.arrives_at, Some(NOW.plus(LATE_AFTER)));
        assert_eq!(seen(&gateway.checkout(of(&session.id, NOW)).await), "complete san");
        let later = NOW.plus(LATE_AFTER);
        assert_eq!(seen(&gateway.checkout(of(&session.id, later)).await), expected);
    }
}

#[tokio::test]
async fn an_address_can_ask_for_faults() {
    for (name, open, then, expire, last) in [
        ("hanako", "open", "open", "expired", "expired"),
        ("checkout_charged_but_silent", "Lost TIMEOUT", "open", "expired", "expired"),
        ("checkout-500-after-effect", "Lost UNKNOWN", "open", "expired", "expired"),
        ("checkout_lost_before_charge", "Lost TIMEOUT", "Lost TIMEOUT", "-", "-"),
        ("checkout_unreachable", "Busy NETWORK_ERROR", "Busy NETWORK_ERROR", "-", "-"),
        ("expire_charged_but_silent", "open", "open", "Lost TIMEOUT", "expired"),
        ("expire_unreachable", "open", "open", "Busy NETWORK_ERROR", "Busy NETWORK_ERROR"),
    ] {
        let gateway = sandbox();
        let address = format!("{name}@example.com");
        let order = CheckoutOrder { customer_email: Some(&address), ..order(NOW) };
        assert_eq!(seen(&gateway.open_checkout(order).await), open, "{name}");
        assert_eq!(seen(&gateway.open_checkout(order).await), then, "{name}");
        let id = format!("sandbox_cs_{}", PAYMENT.simple());
        for expected in [expire, last].into_iter().filter(|expected| *expected != "-") {
            assert_eq!(seen(&gateway.expire_checkout(of(&id, NOW)).await), expected, "{name}");
        }
    }
}

fn session(id: &str, change: &str) -> String {
    format!(
        r#"{{"id":"{id}","reference":"{PAYMENT}","url":"https://pay.example/{id}","status":"open",
        "paid":false,"amount":1200,"currency":"jpy","expiresAt":"2026-11-15T10:00:00Z"{change}}}"#
    )
}

#[tokio::test]
async fn the_protocol_has_its_paths_keys_and_meanings() {
    let open = session("C-1", "");
    let paid = open.replace(r#""open","#, r#""complete","#).replace("false", "true");
    let paid = paid.replace(r#""amount""#, r#""paymentId":"P-1","amount""#);
    let nameless = paid.replace(r#""paymentId":"P-1","#, "");
    let other = open.replace(&PAYMENT.to_string(), &RESERVATION.to_string());
    let missing = r#"{"code":"CHECKOUT_NOT_FOUND"}"#.to_owned();
    let replies = [
        (201, &open),
        (200, &paid),
        (409, &paid),
        (200, &nameless),
        (200, &other),
        (404, &missing),
        (404, &open),
        (409, &missing),
        (500, &open),
    ];
    let server = answering(replies.map(|(status, body)| (status, "", body))).await;
    let token = SecretString::from("hunter2");
    let config = HttpGatewayConfig { base_url: server.url("/v1"), token, client: client() };
    let gateway = HttpGateway::new(config).unwrap();
    assert_eq!(seen(&gateway.open_checkout(order(NOW)).await), "open");
    assert_eq!(seen(&gateway.checkout(of("C-1", NOW)).await), "complete paid P-1");
    assert_eq!(seen(&gateway.expire_checkout(of("C-1", NOW)).await), "complete paid P-1");
    for expected in
        ["Lost UNKNOWN", "Lost UNKNOWN", "Refused INVALID_REQUEST", "Lost UNKNOWN", "Lost UNKNOWN"]
    {
        assert_eq!(seen(&gateway.checkout(of("C-1", NOW)).await), expected);
    }
    assert_eq!(seen(&gateway.open_checkout(order(NOW)).await), "Lost UNKNOWN");
    let sent = lines(&server);
    assert_eq!(
        sent[..3],
        ["POST /v1/checkouts", "GET /v1/checkouts/C-1", "POST /v1/checkouts/C-1/expire"]
    );
    let heard = server.heard();
    assert_eq!(heard[0].header("idempotency-key"), Some(&*format!("{PAYMENT}:checkout")));
    assert_eq!(heard[2].header("idempotency-key"), Some(&*format!("{PAYMENT}:expire")));
    assert_eq!(heard[0].header("traceparent"), Some(TRACE));
    let sent: serde_json::Value = serde_json::from_str(&heard[0].body).unwrap();
    assert_eq!(sent["reservation"], RESERVATION.to_string());
    assert_eq!(sent["expiresAt"], NOW.plus(HOLD).to_string());
    assert_eq!(seen(&gateway.checkout(of("a/b", NOW)).await), "Refused INVALID_REQUEST");
}
