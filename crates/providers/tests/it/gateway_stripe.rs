//! Stripe: what it is sent, and what is made of every reply.

use secrecy::SecretString;
use tashika_domain::payment::remote::RemoteRefund;
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::gateway::stripe::{
    API_BASE, StripeConfig, StripeConfigError, StripeGateway,
};
use tashika_providers::gateway::{Charge, Gateway as _, RefundOrder};
use tashika_providers::reply::Reply;
use tokio::net::TcpListener;

use crate::gateway::{
    NOW, PAYMENT, REFUND, answering, charge, client, line, lines, refund_order, stands, told,
};
use crate::server::{Act, Server};

const KEY: &str = "sk_live_hunter2";
const CONFIRM: &str = "POST /v1/payment_intents/{id}/confirm";

pub fn stripe(api_base: String) -> StripeGateway {
    let api_key = SecretString::from(KEY);
    StripeGateway::new(StripeConfig { api_key, api_base, client: client() }).unwrap()
}

pub fn ours() -> Charge<'static> {
    charge(Some("pi_1"), "pm_card_visa")
}

pub fn intent(status: &str, more: &str) -> String {
    format!(
        r#"{{"object":"payment_intent","id":"pi_1","status":"{status}","amount":5000,
        "currency":"eur","created":1700000000,"client_secret":"pi_1_secret_hunter2",
        "metadata":{{"payment_id":"{PAYMENT}"}},"last_payment_error":null{more}}}"#
    )
    .replace(r#""last_payment_error":null,"last"#, r#""last"#)
}

pub fn error(kind: &str, code: &str) -> String {
    format!(r#"{{"error":{{"type":"{kind}","code":"{code}","message":"In Stripe's words."}}}}"#)
}

pub fn refund_object(id: &str, amount: i64, status: &str) -> String {
    format!(
        r#"{{"object":"refund","id":"{id}","amount":{amount},"status":"{status}",
        "payment_intent":"pi_1","metadata":{{"refund_id":"{REFUND}"}}}}"#
    )
}

pub fn list(items: &[String], has_more: bool) -> String {
    format!(r#"{{"object":"list","data":[{}],"has_more":{has_more}}}"#, items.join(","))
}

/// Neither our key nor a customer's secret is in what is kept or printed.
pub fn discreet<T: std::fmt::Debug>(reply: Reply<T>) -> Reply<T> {
    let shown = format!("{reply:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    reply
}

#[tokio::test]
async fn an_intent_is_opened_with_exactly_these_parameters() {
    let body = intent("requires_confirmation", "");
    let (head, replayed) = ("request-id: req_77\r\n", "idempotent-replayed: true\r\n");
    let server = answering([(200, head, &body), (200, replayed, &body)]).await;
    let gateway = stripe(server.url("/"));
    let full = Charge { customer: Some("cus_1"), description: Some("two & more"), ..ours() };
    let reply = discreet(gateway.prepare(Charge { gateway_id: None, ..full }).await);
    assert_eq!(reply.outcome, Outcome::Done(Some("pi_1".to_owned())));
    assert_eq!(reply.exchange.request, "POST /v1/payment_intents");
    assert_eq!(reply.exchange.reply, "200");
    assert_eq!(reply.exchange.reference.as_deref(), Some("req_77"));
    assert!(reply.exchange.sent);
    let reply = gateway.prepare(Charge { gateway_id: None, ..ours() }).await;
    assert_eq!(reply.exchange.reply, "200, replayed");

    let heard = server.heard();
    assert_eq!(line(&heard[0]), "POST /v1/payment_intents");
    assert_eq!(
        heard[0].body,
        format!(
            "amount=5000&currency=eur&capture_method=manual&payment_method_types%5B%5D=card\
             &payment_method=pm_card_visa&customer=cus_1&description=two+%26+more\
             &metadata%5Bpayment_id%5D={PAYMENT}"
        )
    );
    assert!(!heard[1].body.contains("customer") && !heard[1].body.contains("description"));
    let key = format!("{PAYMENT}:create");
    for (name, value) in [
        ("idempotency-key", key.as_str()),
        ("authorization", "Bearer sk_live_hunter2"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "application/json"),
        ("stripe-version", "2026-10-28.endive"),
    ] {
        assert_eq!(heard[0].header(name), Some(value), "{name}");
    }
    assert_eq!(heard[0].header("traceparent"), None, "Stripe is not part of our traces");
}

#[tokio::test]
async fn each_operation_has_its_path_its_key_and_its_form() {
    let (open, held) = (intent("requires_confirmation", ""), intent("requires_capture", ""));
    let taken = intent("succeeded", r#","amount_received":3000"#);
    let gone = intent("canceled", "");
    let refund = refund_object("re_1", 1000, "succeeded");
    let bodies = [&held, &taken, &gone, &refund, &refund, &gone, &open];
    let server = answering(bodies.map(|body| (200, "", body.as_str()))).await;
    let gateway = stripe(server.url(""));
    assert_eq!(stands(&gateway.authorize(ours()).await), "AUTHORIZED");
    assert_eq!(stands(&gateway.capture(ours(), 3000).await), "CAPTURED 3000");
    assert_eq!(stands(&gateway.void(ours()).await), "VOIDED");
    for reason in ["duplicate", "it was raining"] {
        let order = RefundOrder { reason: Some(reason), number: 3, ..refund_order(1000) };
        let reply = gateway.refund(ours(), order).await;
        let Outcome::Done(RemoteRefund { refund_id, gateway_id, amount, .. }) = reply.outcome
        else {
            panic!("{reply:?}");
        };
        assert_eq!((refund_id, gateway_id.as_str(), amount), (Some(REFUND), "re_1", 1000));
    }
    assert_eq!(stands(&gateway.fence(ours()).await), "VOIDED");
    assert_eq!(stands(&gateway.status(ours()).await), "NOT_FOUND");

    let sent: Vec<(String, String, String)> = server
        .heard()
        .iter()
        .map(|heard| {
            let key = heard.header("idempotency-key").unwrap_or("-").to_owned();
            (line(heard), key, heard.body.clone())
        })
        .collect();
    let ids = format!("&metadata%5Brefund_id%5D={REFUND}&metadata%5Bpayment_id%5D={PAYMENT}");
    let intents = "POST /v1/payment_intents/pi_1";
    let expected = [
        (format!("{intents}/confirm"), format!("{PAYMENT}:confirm"), String::new()),
        (
            format!("{intents}/capture"),
            format!("{PAYMENT}:capture"),
            "amount_to_capture=3000".into(),
        ),
        (format!("{intents}/cancel"), format!("{PAYMENT}:void"), String::new()),
        (
            "POST /v1/refunds".into(),
            format!("refund:{PAYMENT}:3"),
            format!("payment_intent=pi_1&amount=1000&reason=duplicate{ids}"),
        ),
        (
            "POST /v1/refunds".into(),
            format!("refund:{PAYMENT}:3"),
            format!("payment_intent=pi_1&amount=1000{ids}"),
        ),
        (format!("{intents}/cancel"), format!("{PAYMENT}:fence"), String::new()),
        ("GET /v1/payment_intents/pi_1".into(), "-".into(), String::new()),
    ];
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn every_error_means_one_thing() {
    let retry = "stripe-should-retry: true\r\n";
    let invalid = error("invalid_request_error", "parameter_missing");
    let funds = r#"{"error":{"code":"card_declined","decline_code":"insufficient_funds"}}"#;
    let nameless = r#"{"error":{"type":"invalid_request_error"}}"#;
    let in_use = error("invalid_request_error", "idempotency_key_in_use");
    let other_params = error("idempotency_error", "");
    let (lock, limit) = (error("x", "lock_timeout"), error("x", "rate_limit"));
    let missing = error("invalid_request_error", "resource_missing");
    for (status, headers, body, expected) in [
        (200, "", "", "Lost UNKNOWN"),
        (200, "", "<html>", "Lost UNKNOWN"),
        (200, "", r#"{"object":"payment_intent"}"#, "Lost UNKNOWN"),
        (200, "", &intent("requires_prayer", ""), "Lost UNKNOWN"),
        (200, "", &intent("requires_capture", "").replace("pi_1", "pi_2"), "Lost UNKNOWN"),
        (204, "", "", "Lost UNKNOWN"),
        (302, "location: /\r\n", "", "Lost UNKNOWN"),
        (302, retry, "", "Lost UNKNOWN"),
        (400, "", &invalid, "Refused INVALID_REQUEST"),
        (400, "", nameless, "Refused INVALID_REQUEST"),
        (400, retry, &invalid, "Busy NETWORK_ERROR"),
        (400, "stripe-should-retry: false\r\n", &invalid, "Refused INVALID_REQUEST"),
        (400, "", "", "Lost UNKNOWN"),
        (400, retry, "", "Lost UNKNOWN"),
        (400, "", "<html>400</html>", "Lost UNKNOWN"),
        (400, "", &other_params, "Lost UNKNOWN"),
        (400, retry, &other_params, "Lost UNKNOWN"),
        (400, "retry-after: 7\r\n", &limit, "Busy NETWORK_ERROR 7s"),
        (401, "", "", "Refused GATEWAY_UNAUTHORIZED"),
        (401, retry, &invalid, "Refused GATEWAY_UNAUTHORIZED"),
        (402, "", &error("card_error", "card_declined"), "Refused CARD_DECLINED"),
        (402, "", &error("card_error", "incorrect_cvc"), "Refused CARD_DECLINED"),
        (402, "", &error("card_error", "expired_card"), "Refused EXPIRED_CARD"),
        (402, "", funds, "Refused INSUFFICIENT_FUNDS"),
        (402, retry, funds, "Refused INSUFFICIENT_FUNDS"),
        (402, "", "", "Lost UNKNOWN"),
        (403, "", &invalid, "Refused GATEWAY_UNAUTHORIZED"),
        (404, "", &missing, "Refused INVALID_REQUEST"),
        (404, "", "", "Lost UNKNOWN"),
        (408, "", "", "Lost TIMEOUT"),
        (409, "", &in_use, "Lost UNKNOWN"),
        (409, retry, &in_use, "Lost UNKNOWN"),
        (409, "", &lock, "Busy NETWORK_ERROR"),
        (409, "retry-after: 3\r\n", &lock, "Busy NETWORK_ERROR 3s"),
        (409, "", nameless, "Lost UNKNOWN"),
        (409, retry, nameless, "Busy NETWORK_ERROR"),
        (422, "", nameless, "Refused INVALID_REQUEST"),
        (429, "", "", "Busy NETWORK_ERROR"),
        (429, "", &limit, "Busy NETWORK_ERROR"),
        (429, "stripe-should-retry: false\r\n", &lock, "Busy NETWORK_ERROR"),
        (429, "retry-after: 7\r\n", "", "Busy NETWORK_ERROR 7s"),
        (500, "", "", "Lost UNKNOWN"),
        (500, retry, &invalid, "Lost UNKNOWN"),
        (502, "", "", "Lost UNKNOWN"),
        (503, "retry-after: 7\r\n", "", "Lost UNKNOWN"),
        (504, "", "", "Lost UNKNOWN"),
        (999, "", "", "Lost UNKNOWN"),
    ] {
        let server = answering([(status, headers, body)]).await;
        let reply = discreet(stripe(server.url("")).authorize(ours()).await);
        assert_eq!(stands(&reply), expected, "{status} {headers}{body}");
        assert!(reply.exchange.sent);
        assert_eq!(reply.exchange.request, CONFIRM);
        assert!(reply.exchange.reply.starts_with(&status.to_string()));
        assert_eq!(server.heard().len(), 1, "{status} {body}: one operation, one request");
    }
}

#[tokio::test]
async fn every_status_after_a_confirmation_means_one_thing() {
    let failed = r#","last_payment_error":{"type":"card_error","code":"expired_card"}"#;
    for (status, more, expected) in [
        ("requires_capture", "", "AUTHORIZED"),
        ("requires_action", "", "PENDING ACTION_REQUIRED"),
        ("processing", "", "PENDING"),
        ("requires_payment_method", failed, "Refused EXPIRED_CARD"),
        ("requires_payment_method", "", "Lost UNKNOWN"),
        ("requires_confirmation", "", "Lost UNKNOWN"),
        ("canceled", "", "VOIDED"),
        ("succeeded", r#","amount_received":5000"#, "CAPTURED 5000"),
    ] {
        let body = intent(status, more);
        let server = answering([(200, "", body.as_str())]).await;
        let reply = discreet(stripe(server.url("")).authorize(ours()).await);
        assert_eq!(stands(&reply), expected, "{status}");
    }
}

#[tokio::test]
async fn the_status_tells_every_refund_and_asks_for_them_only_if_there_can_be_any() {
    let taken = intent("succeeded", r#","amount_received":3000"#);
    let first = list(&[refund_object("re_1", 1000, "succeeded")], true);
    let second = list(
        &[refund_object("re_2", 500, "requires_action"), refund_object("re_3", 1, "canceled")],
        false,
    );
    let server =
        answering([(200, "", taken.as_str()), (200, "", &first), (200, "", &second)]).await;
    let reply = discreet(stripe(server.url("")).status(ours()).await);
    assert_eq!(stands(&reply), "CAPTURED 3000 1000:succeeded 500:pending 1:failed");
    assert_eq!(reply.exchange.request, "GET /v1/payment_intents/{id}");
    assert_eq!(
        lines(&server)[1..],
        [
            "GET /v1/refunds?payment_intent=pi_1&limit=100",
            "GET /v1/refunds?payment_intent=pi_1&limit=100&starting_after=re_1"
        ]
    );
    // Half an answer is none: who sees no refund might make it again.
    for (status, body, expected) in [
        (500, "", "Lost UNKNOWN"),
        (429, "", "Busy NETWORK_ERROR"),
        (200, "{}", "Lost UNKNOWN"),
        (200, r#"{"data":[],"has_more":true}"#, "Lost UNKNOWN"),
    ] {
        let server = answering([(200, "", taken.as_str()), (status, "", body)]).await;
        assert_eq!(stands(&stripe(server.url("")).status(ours()).await), expected, "{status}");
    }
}

#[tokio::test]
async fn a_stored_intent_that_stripe_does_not_know_is_an_alarm() {
    let missing = error("invalid_request_error", "resource_missing");
    let server = answering([(404, "", missing.as_str())]).await;
    let reply = stripe(server.url("")).status(ours()).await;
    assert_eq!(stands(&reply), "Refused INVALID_REQUEST");
    assert_eq!(reply.exchange.reply, "404 resource_missing");
}

#[tokio::test]
async fn without_an_intent_nothing_is_asked() {
    let server = Server::playing([]).await;
    let gateway = stripe(server.url(""));
    let bare = charge(None, "pm_card_visa");
    for (reply, expected) in [
        (gateway.status(bare).await, "NOT_FOUND"),
        (gateway.fence(bare).await, "VOIDED"),
        (gateway.authorize(bare).await, "Refused INVALID_REQUEST"),
        (gateway.capture(bare, 1).await, "Refused INVALID_REQUEST"),
        (gateway.void(bare).await, "Refused INVALID_REQUEST"),
        (gateway.status(charge(Some("../v1/x"), "pm")).await, "Refused INVALID_REQUEST"),
    ] {
        assert_eq!(stands(&reply), expected);
        assert!(!reply.exchange.sent);
    }
    let reply = gateway.status(bare).await;
    assert!(reply.exchange.request.starts_with("none: "), "{reply:?}");
    let reply = gateway.refund(bare, refund_order(1)).await;
    assert_eq!(told(&reply.outcome, |_| String::new()), "Refused INVALID_REQUEST");
    assert!(server.heard().is_empty());
}

#[tokio::test]
async fn no_answer_is_lost_and_no_connection_is_busy() {
    for (act, expected) in [
        (Act::SayAndHold(vec![]), "Lost TIMEOUT"),
        (Act::SayAndHold(b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{".to_vec()), "Lost TIMEOUT"),
        (Act::SayAndClose(vec![]), "Lost UNKNOWN"),
        (
            Act::SayAndClose(b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{".to_vec()),
            "Lost UNKNOWN",
        ),
        (Act::SayAndClose(b"who is there?\r\n\r\n".to_vec()), "Lost UNKNOWN"),
    ] {
        let server = Server::playing([act]).await;
        let reply = discreet(stripe(server.url("")).authorize(ours()).await);
        assert_eq!(stands(&reply), expected);
        assert!(reply.exchange.sent);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let reply = discreet(stripe(url).authorize(ours()).await);
    assert!(!reply.exchange.sent);
    assert_eq!(stands(&reply), "Busy NETWORK_ERROR");
    assert_eq!(reply.exchange.reply, "not sent: connection refused");
}

#[tokio::test]
async fn stripes_words_reach_the_operator_but_never_our_key() {
    let echo = format!(r#"{{"error":{{"code":"x","message":"No such key: {KEY}"}}}}"#);
    for (status, body, message) in [
        (
            400,
            error("x", "amount_too_small"),
            "Stripe answered 400: amount_too_small: In Stripe's words.",
        ),
        (400, echo.clone(), "Stripe answered 400 x"),
        (401, echo, "Stripe answered 401 x"),
        (402, error("card_error", "card_declined"), "In Stripe's words."),
    ] {
        let server = answering([(status, "", body.as_str())]).await;
        let reply = discreet(stripe(server.url("")).authorize(ours()).await);
        let Outcome::Refused(reason) = reply.outcome else {
            panic!("{reply:?}");
        };
        assert_eq!(reason.message, message);
    }
}

#[tokio::test]
async fn the_list_is_read_page_by_page() {
    let one = intent("requires_capture", "");
    let two = intent("succeeded", r#","amount_received":3000"#)
        .replace("pi_1", "pi_2")
        .replace(&PAYMENT.to_string(), "somebody else's");
    let pages = [list(&[one, two], true), list(&[], false), "{}".to_owned()];
    let server = answering(pages.iter().map(|page| (200, "", page.as_str()))).await;
    let gateway = stripe(server.url(""));
    let until = Timestamp::from_micros(1_700_000_100_000_000);
    let reply = discreet(gateway.list(NOW, until, None).await);
    let Outcome::Done(page) = reply.outcome else {
        panic!("{reply:?}");
    };
    assert_eq!(page.next.as_deref(), Some("pi_2"));
    let ids: Vec<_> = page.items.iter().map(|item| item.payment_id).collect();
    assert_eq!(ids, [Some(PAYMENT), None]);
    assert_eq!((page.items[1].remote.captured, page.items[1].currency.as_str()), (3000, "EUR"));
    assert_eq!(page.items[0].created_at, Timestamp::from_micros(1_700_000_000_000_000));
    let reply = gateway.list(NOW, until, Some("pi_2")).await;
    assert!(matches!(reply.outcome, Outcome::Done(page) if page.next.is_none()));
    let reply = gateway.list(NOW, until, None).await;
    assert_eq!(told(&reply.outcome, |_| String::new()), "Lost UNKNOWN");
    // 1700000000.123456 is after the second that it is in.
    let window = "created%5Bgte%5D=1700000001&created%5Blt%5D=1700000100&limit=100";
    assert_eq!(
        lines(&server)[..2],
        [
            format!("GET /v1/payment_intents?{window}"),
            format!("GET /v1/payment_intents?{window}&starting_after=pi_2")
        ]
    );
}

#[tokio::test]
async fn a_key_does_not_travel_in_the_clear() {
    let made = |key: &str, api_base: &str| {
        let api_key = SecretString::from(key);
        StripeGateway::new(StripeConfig { api_key, api_base: api_base.into(), client: client() })
    };
    for (key, base) in [
        (KEY, API_BASE),
        (KEY, "http://127.0.0.1:8420"),
        (KEY, "http://localhost:8420/"),
        ("sk_test_1", "http://localstripe:8420"),
        ("rk_test_1", "http://localstripe:8420"),
    ] {
        assert!(made(key, base).is_ok(), "{base}");
    }
    for base in ["http://api.stripe.com", "http://10.0.0.7", "http://localhost.example"] {
        assert!(matches!(made(KEY, base), Err(StripeConfigError::InTheClear)), "{base}");
    }
    assert!(matches!(made("", API_BASE), Err(StripeConfigError::ApiKey)));
    assert!(matches!(made("a\nb", API_BASE), Err(StripeConfigError::ApiKey)));
    assert!(matches!(made(KEY, "stripe"), Err(StripeConfigError::Address(_))));
}
