//! The gateway behind HTTP: what it is sent, and what is made of every reply.

use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::payment::remote::Remote;
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::gateway::http::{HttpGateway, HttpGatewayConfig, HttpGatewayConfigError};
use tashika_providers::gateway::{Charge, Gateway as _, RefundOrder};
use tashika_providers::reply::Reply;
use tokio::net::TcpListener;

use crate::gateway::{
    NOW, PAYMENT, REFUND, TRACE, answering, charge, client, line, lines, refund_order, stands, told,
};
use crate::server::{Act, Server};

const TOKEN: &str = "hunter2-hunter2";

pub fn gateway(base_url: String) -> HttpGateway {
    let token = SecretString::from(TOKEN);
    HttpGateway::new(HttpGatewayConfig { base_url, token, client: client() }).unwrap()
}

fn ours() -> Charge<'static> {
    charge(None, "card-7")
}

fn payment(change: Value) -> String {
    let mut body = json!({
        "id": "P-7", "reference": PAYMENT, "status": "authorized", "amount": 5000,
        "currency": "EUR", "capturedAmount": 0, "refunds": [],
        "createdAt": "2026-11-15T09:30:00Z",
    });
    let Value::Object(change) = change else { panic!("{change}") };
    body.as_object_mut().unwrap().extend(change);
    body.to_string()
}

/// Our token is not in what is kept or printed.
fn discreet<T: std::fmt::Debug>(reply: Reply<T>) -> Reply<T> {
    let shown = format!("{reply:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    reply
}

#[tokio::test]
async fn each_operation_has_its_path_its_key_and_its_body() {
    let held = payment(json!({}));
    let taken = payment(json!({"status": "captured", "capturedAmount": 3000}));
    let gone = payment(json!({"status": "voided"}));
    let refund = json!({"id": "R-1", "refundId": REFUND, "amount": 1000, "status": "pending"});
    let refund = refund.to_string();
    let bodies = [&held, &held, &taken, &gone, &refund, &gone, &held];
    let server = answering(bodies.map(|body| (200, "x-request-id: req-7\r\n", body))).await;
    let gateway = gateway(server.url("/v1/"));

    let prepared = gateway.prepare(ours()).await;
    assert_eq!(prepared.outcome, Outcome::Done(None));
    assert!(!prepared.exchange.sent);

    let reply = discreet(gateway.authorize(ours()).await);
    assert_eq!(stands(&reply), "AUTHORIZED");
    assert_eq!(reply.exchange.request, "POST /payments");
    assert_eq!(reply.exchange.reply, "200");
    assert_eq!(reply.exchange.reference.as_deref(), Some("req-7"));
    let full = Charge { customer: Some("c-1"), description: Some("two"), ..ours() };
    assert_eq!(stands(&gateway.authorize(full).await), "AUTHORIZED");
    assert_eq!(stands(&gateway.capture(ours(), 3000).await), "CAPTURED 3000");
    assert_eq!(stands(&gateway.void(ours()).await), "VOIDED");
    let order = RefundOrder { number: 3, reason: Some("it was raining"), ..refund_order(1000) };
    let reply = discreet(gateway.refund(ours(), order).await);
    assert_eq!(told(&reply.outcome, |refund| refund.gateway_id.clone()), "R-1");
    assert_eq!(stands(&gateway.fence(ours()).await), "VOIDED");
    assert_eq!(stands(&gateway.status(ours()).await), "AUTHORIZED");

    let heard = server.heard();
    let sent: Vec<(String, String, Value)> = heard
        .iter()
        .map(|heard| {
            let key = heard.header("idempotency-key").unwrap_or("-").to_owned();
            (line(heard), key, serde_json::from_str(&heard.body).unwrap_or_default())
        })
        .collect();
    let new =
        json!({"reference": PAYMENT, "amount": 5000, "currency": "EUR", "paymentMethod": "card-7"});
    let mut full = new.clone();
    full["customer"] = "c-1".into();
    full["description"] = "two".into();
    let refund = json!({"refundId": REFUND, "amount": 1000, "reason": "it was raining"});
    let path = |verb: &str| format!("POST /v1/payments/{PAYMENT}/{verb}");
    let key = |verb: &str| format!("{PAYMENT}:{verb}");
    let expected = [
        ("POST /v1/payments".to_owned(), key("authorize"), new),
        ("POST /v1/payments".to_owned(), key("authorize"), full),
        (path("capture"), key("capture"), json!({"amount": 3000})),
        (path("void"), key("void"), json!({})),
        (path("refunds"), format!("refund:{PAYMENT}:3"), refund),
        (path("fence"), key("fence"), json!({})),
        (format!("GET /v1/payments/{PAYMENT}"), "-".to_owned(), Value::Null),
    ];
    assert_eq!(sent, expected);
    for (name, value) in [
        ("authorization", "Bearer hunter2-hunter2"),
        ("content-type", "application/json"),
        ("traceparent", TRACE),
    ] {
        assert_eq!(heard[0].header(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn every_reply_to_an_authorization_means_one_thing() {
    let held = payment(json!({}));
    let declined = payment(json!({"status": "declined", "reason": {"code": "EXPIRED_CARD"}}));
    let fenced = payment(json!({"status": "voided"}));
    let pending = payment(json!({"status": "pending"}));
    let action = payment(json!({"status": "pending", "reason": {"code": "X", "message": "3DS"}}));
    let other = held.replace(&PAYMENT.to_string(), &REFUND.to_string());
    let funds = r#"{"code":"INSUFFICIENT_FUNDS","message":"Too little."}"#;
    for (status, headers, body, expected) in [
        (200, "", held.as_str(), "AUTHORIZED"),
        (201, "", &held, "AUTHORIZED"),
        (202, "", &pending, "PENDING"),
        (200, "", &action, "PENDING ACTION_REQUIRED"),
        (200, "", &declined, "Refused EXPIRED_CARD"),
        (200, "", &other, "Lost UNKNOWN"),
        (200, "", "", "Lost UNKNOWN"),
        (200, "", &payment(json!({"status": "maybe"})), "Lost UNKNOWN"),
        (200, "", &payment(json!({"status": "captured", "capturedAmount": null})), "Lost UNKNOWN"),
        (200, "", &payment(json!({"capturedAmount": -1})), "Lost UNKNOWN"),
        (200, "", &payment(json!({"id": "a b"})), "Lost UNKNOWN"),
        (204, "", "", "Lost UNKNOWN"),
        (302, "location: /\r\n", "", "Lost UNKNOWN"),
        (400, "", "", "Refused INVALID_REQUEST"),
        (401, "", "", "Refused GATEWAY_UNAUTHORIZED"),
        (402, "", "", "Refused CARD_DECLINED"),
        (402, "", funds, "Refused INSUFFICIENT_FUNDS"),
        (402, "", r#"{"code":"BAD_MOOD"}"#, "Refused CARD_DECLINED"),
        (403, "", "", "Refused GATEWAY_UNAUTHORIZED"),
        (404, "", "", "Refused INVALID_REQUEST"),
        (408, "", "", "Lost TIMEOUT"),
        (409, "", "", "Lost UNKNOWN"),
        (409, "", r#"{"code":"IDEMPOTENCY_CONFLICT"}"#, "Lost UNKNOWN"),
        (409, "", &other, "Lost UNKNOWN"),
        (409, "", &fenced, "VOIDED"),
        (409, "", &declined, "Refused EXPIRED_CARD"),
        (422, "", "", "Refused INVALID_REQUEST"),
        (429, "", "", "Busy NETWORK_ERROR"),
        (429, "retry-after: 7\r\n", "", "Busy NETWORK_ERROR 7s"),
        (500, "", "", "Lost UNKNOWN"),
        (500, "retry-after: 7\r\n", "", "Lost UNKNOWN"),
        (502, "", "", "Lost UNKNOWN"),
        (503, "", "", "Lost UNKNOWN"),
        (503, "retry-after: 7\r\n", "", "Busy NETWORK_ERROR 7s"),
        (504, "", "", "Lost TIMEOUT"),
        (999, "", "", "Lost UNKNOWN"),
    ] {
        let server = answering([(status, headers, body)]).await;
        let reply = discreet(gateway(server.url("")).authorize(ours()).await);
        assert_eq!(stands(&reply), expected, "{status} {headers}{body}");
        assert!(reply.exchange.sent);
        assert_eq!(reply.exchange.reply, status.to_string());
        assert_eq!(server.heard().len(), 1, "{status}: one operation, one request");
    }
}

#[tokio::test]
async fn a_conflict_with_a_payment_is_where_the_payment_stands() {
    let taken = json!({"status": "captured", "capturedAmount": 3000, "refunds": [
        {"id": "R-1", "refundId": REFUND, "amount": 1000, "status": "succeeded"},
        {"id": "R-2", "amount": 5, "status": "failed"},
    ]});
    let taken = payment(taken);
    let server = answering([409, 409, 409].map(|status| (status, "", &taken))).await;
    let gateway = gateway(server.url(""));
    let expected = "CAPTURED 3000 1000:succeeded 5:failed";
    assert_eq!(stands(&gateway.capture(ours(), 3000).await), expected);
    assert_eq!(stands(&gateway.void(ours()).await), expected);
    assert_eq!(stands(&gateway.fence(ours()).await), expected);
}

#[tokio::test]
async fn every_reply_to_a_refund_means_one_thing() {
    let made = json!({"id": "R-1", "refundId": REFUND, "amount": 1000, "status": "succeeded"});
    let other = json!({"id": "R-1", "refundId": PAYMENT, "amount": 1000, "status": "succeeded"});
    for (status, body, expected) in [
        (201, made.to_string(), "R-1"),
        (201, other.to_string(), "Lost UNKNOWN"),
        (201, payment(json!({})), "Lost UNKNOWN"),
        (409, payment(json!({"refunds": [other, made]})), "R-1"),
        (409, payment(json!({"refunds": [other]})), "Refused INVALID_REQUEST"),
        (409, payment(json!({"refunds": null})), "Lost UNKNOWN"),
        (409, payment(json!({"refunds": [{"id": ""}]})), "Lost UNKNOWN"),
        (404, String::new(), "Refused INVALID_REQUEST"),
        (500, String::new(), "Lost UNKNOWN"),
    ] {
        let server = answering([(status, "", &body)]).await;
        let reply = discreet(gateway(server.url("")).refund(ours(), refund_order(1000)).await);
        assert_eq!(told(&reply.outcome, |refund| refund.gateway_id.clone()), expected, "{body}");
    }
}

#[tokio::test]
async fn every_reply_to_a_question_means_one_thing() {
    let declined = payment(json!({"status": "declined", "reason": {"code": "CARD_DECLINED"}}));
    for (status, body, expected) in [
        (200, payment(json!({})), "AUTHORIZED"),
        (200, declined, "DECLINED CARD_DECLINED"),
        (200, payment(json!({"refunds": null, "id": null})), "AUTHORIZED"),
        (200, "{}".into(), "Lost UNKNOWN"),
        (404, r#"{"code":"PAYMENT_NOT_FOUND"}"#.into(), "NOT_FOUND"),
        // A router's, not the gateway's.
        (404, String::new(), "Lost UNKNOWN"),
        (404, "<html>404</html>".into(), "Lost UNKNOWN"),
        (404, r#"{"code":"NO_ROUTE"}"#.into(), "Lost UNKNOWN"),
        (401, String::new(), "Refused GATEWAY_UNAUTHORIZED"),
        (409, payment(json!({})), "Lost UNKNOWN"),
        (429, String::new(), "Busy NETWORK_ERROR"),
        (500, String::new(), "Lost UNKNOWN"),
    ] {
        let server = answering([(status, "", &body)]).await;
        let reply = discreet(gateway(server.url("")).status(ours()).await);
        assert_eq!(stands(&reply), expected, "{status} {body}");
        assert_eq!(reply.exchange.request, "GET /payments/{reference}");
    }
}

#[tokio::test]
async fn a_reference_never_seen_can_be_fenced() {
    let fenced = json!({"reference": PAYMENT, "status": "voided"}).to_string();
    let server = answering([(200, "", &fenced)]).await;
    let reply = gateway(server.url("")).fence(ours()).await;
    let Outcome::Done(Remote { gateway_id, refunds, .. }) = &reply.outcome else {
        panic!("{reply:?}");
    };
    assert_eq!((gateway_id, refunds), (&None, &None));
    assert_eq!(stands(&reply), "VOIDED");
}

#[tokio::test]
async fn no_answer_is_lost_and_no_connection_is_busy() {
    for (act, expected) in
        [(Act::SayAndHold(vec![]), "Lost TIMEOUT"), (Act::SayAndClose(vec![]), "Lost UNKNOWN")]
    {
        let server = Server::playing([act]).await;
        let reply = discreet(gateway(server.url("")).authorize(ours()).await);
        assert_eq!(stands(&reply), expected);
        assert!(reply.exchange.sent);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let reply = discreet(gateway(url).authorize(ours()).await);
    assert_eq!(stands(&reply), "Busy NETWORK_ERROR");
    assert!(!reply.exchange.sent);
}

#[tokio::test]
async fn the_list_is_read_page_by_page() {
    let one: Value = serde_json::from_str(&payment(json!({}))).unwrap();
    let two: Value = serde_json::from_str(&payment(json!({"reference": "by hand"}))).unwrap();
    let mut three = one.clone();
    three["createdAt"] = Value::Null;
    let first = json!({"payments": [one, two], "next": "a&b"}).to_string();
    let last = json!({"payments": [], "next": null}).to_string();
    let broken = json!({"payments": [three]}).to_string();
    let server = answering([&first, &last, &broken].map(|page| (200, "", page))).await;
    let gateway = gateway(server.url(""));
    let until = Timestamp::from_micros(1_700_000_100_000_000);
    let Outcome::Done(page) = gateway.list(NOW, until, None).await.outcome else {
        panic!("no page");
    };
    assert_eq!(page.next.as_deref(), Some("a&b"));
    let ids: Vec<_> = page.items.iter().map(|item| item.payment_id).collect();
    assert_eq!(ids, [Some(PAYMENT), None]);
    assert_eq!((page.items[0].amount, page.items[0].currency.as_str()), (5000, "EUR"));
    assert_eq!(page.items[0].created_at.to_string(), "2026-11-15T09:30:00.000000Z");
    let reply = gateway.list(NOW, until, page.next.as_deref()).await;
    assert!(matches!(reply.outcome, Outcome::Done(page) if page.next.is_none()));
    let reply = gateway.list(NOW, until, None).await;
    assert_eq!(told(&reply.outcome, |_| String::new()), "Lost UNKNOWN");
    let window = "from=2023-11-14T22%3A13%3A20.123456Z&until=2023-11-14T22%3A15%3A00.000000Z";
    assert_eq!(
        lines(&server)[..2],
        [format!("GET /payments?{window}"), format!("GET /payments?{window}&cursor=a%26b")]
    );
}

#[tokio::test]
async fn a_gateways_words_reach_the_operator_but_never_our_token() {
    let echo = format!(r#"{{"code":"X","message":"no such token: {TOKEN}"}}"#);
    for (body, message) in [
        (
            r#"{"code":"CURRENCY","message":"only USD"}"#,
            "the gateway answered 422: CURRENCY: only USD",
        ),
        ("nonsense", "the gateway answered 422"),
        (&echo, "the gateway answered 422: X"),
    ] {
        let server = answering([(422, "", body)]).await;
        let reply = discreet(gateway(server.url("")).authorize(ours()).await);
        let Outcome::Refused(reason) = reply.outcome else {
            panic!("{reply:?}");
        };
        assert_eq!(reason.message, message);
    }
}

#[tokio::test]
async fn configurations_that_cannot_work_are_refused() {
    let made = |base_url: &str, token: &str| {
        let token = SecretString::from(token);
        HttpGateway::new(HttpGatewayConfig { base_url: base_url.into(), token, client: client() })
    };
    assert!(made("http://payments:8080/v1", "t").is_ok());
    assert!(matches!(made("https://a.example", ""), Err(HttpGatewayConfigError::Token)));
    let error = made("https://u:hunter2@a.example", "t").err().unwrap();
    assert!(matches!(error, HttpGatewayConfigError::Address(_)));
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
