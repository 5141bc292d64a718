//! Stripe: refusals because of the payment's state, which are answered with the state, and keys that remember a breakdown.

use tashika_domain::payment::remote::Remote;
use tashika_providers::gateway::Gateway as _;
use tashika_providers::gateway::stripe::StripeGateway;
use tashika_providers::reply::Reply;

use crate::gateway::{REFUND, answering, lines, refund_order, stands, told};
use crate::gateway_stripe::{discreet, error, intent, list, ours, refund_object, stripe};

#[tokio::test]
async fn a_refusal_because_of_the_state_is_answered_with_the_state() {
    let failed = r#","last_payment_error":{"code":"card_declined","decline_code":"stolen_card"}"#;
    let (held, gone) = (intent("requires_capture", ""), intent("canceled", ""));
    let (declined, open) =
        (intent("requires_payment_method", failed), intent("requires_confirmation", ""));
    for code in [
        "payment_intent_unexpected_state",
        "charge_already_captured",
        "charge_already_refunded",
        "charge_expired_for_capture",
        "capture_charge_authorization_expired",
        "processing_error",
        "payment_method_provider_timeout",
        "authentication_required",
    ] {
        let refused = error("invalid_request_error", code);
        for (operation, read, expected) in [
            ("authorize", (200, held.as_str()), "AUTHORIZED"),
            ("authorize", (200, gone.as_str()), "VOIDED"),
            ("authorize", (200, declined.as_str()), "Refused CARD_DECLINED"),
            ("authorize", (200, open.as_str()), "Lost UNKNOWN"),
            ("capture", (200, gone.as_str()), "VOIDED"),
            ("capture", (200, declined.as_str()), "DECLINED CARD_DECLINED"),
            ("void", (200, gone.as_str()), "VOIDED"),
            ("fence", (200, held.as_str()), "AUTHORIZED"),
            ("capture", (500, ""), "Lost UNKNOWN"),
            ("capture", (429, ""), "Lost UNKNOWN"),
            ("fence", (401, ""), "Lost UNKNOWN"),
        ] {
            let first = (400, "request-id: req_1\r\n", refused.as_str());
            let server = answering([first, (read.0, "request-id: req_2\r\n", read.1)]).await;
            let gateway = stripe(server.url(""));
            let reply = discreet(act(&gateway, operation).await);
            assert_eq!(stands(&reply), expected, "{code} {operation}");
            let asked = format!("400 {code}; asked: {}", read.0);
            assert_eq!(reply.exchange.reply, asked);
            assert_eq!(reply.exchange.reference.as_deref(), Some("req_1"));
            let methods: Vec<String> = server.heard().into_iter().map(|h| h.method).collect();
            assert_eq!(methods, ["POST", "GET"], "asked, not sent again");
        }
    }
}

async fn act(gateway: &StripeGateway, operation: &str) -> Reply<Remote> {
    match operation {
        "authorize" => gateway.authorize(ours()).await,
        "capture" => gateway.capture(ours(), 3000).await,
        "void" => gateway.void(ours()).await,
        "fence" => gateway.fence(ours()).await,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_capture_that_was_made_before_is_adopted_with_its_refunds() {
    let refused = error("invalid_request_error", "charge_already_captured");
    let taken = intent("succeeded", r#","amount_received":3000"#);
    let refunds = list(&[refund_object("re_1", 1000, "pending")], false);
    let replies = [(400, "", &*refused), (200, "", &*taken), (200, "", &*refunds)];
    let server = answering(replies).await;
    let reply = stripe(server.url("")).capture(ours(), 3000).await;
    assert_eq!(stands(&reply), "CAPTURED 3000 1000:pending");
    assert_eq!(reply.exchange.reply, "400 charge_already_captured; asked: 200; refunds: 200");
}

#[tokio::test]
async fn a_refund_that_was_made_before_is_found_by_our_id() {
    let already = error("invalid_request_error", "charge_already_refunded");
    let mine = refund_object("re_1", 1000, "succeeded");
    let other = mine.replace(&REFUND.to_string(), "by hand").replace("re_1", "re_2");
    for (items, expected) in [
        (vec![other.clone(), mine], "re_1"),
        (vec![other], "Refused INVALID_REQUEST"),
        (vec![], "Refused INVALID_REQUEST"),
        (vec!["7".to_owned()], "Lost UNKNOWN"),
    ] {
        let page = list(&items, false);
        let server = answering([(400, "", already.as_str()), (200, "", page.as_str())]).await;
        let reply = stripe(server.url("")).refund(ours(), refund_order(1000)).await;
        assert_eq!(told(&reply.outcome, |refund| refund.gateway_id.clone()), expected);
        assert_eq!(lines(&server)[1], "GET /v1/refunds?payment_intent=pi_1&limit=100");
    }
}

/// Stripe repeats its own breakdown for ever to whoever comes with the key. What can happen once only, whatever the key, is
/// then asked for without one.
#[tokio::test]
async fn a_breakdown_that_the_key_remembers_does_not_keep_an_intent_from_its_end() {
    let (held, gone) = (intent("requires_capture", ""), intent("canceled", ""));
    let taken = intent("succeeded", r#","amount_received":3000"#);
    let (replayed, first) = ("idempotent-replayed: true\r\n", "");
    let broken = error("api_error", "");
    let refused = error("invalid_request_error", "charge_already_captured");
    for (operation, headers, then, expected) in [
        ("capture", replayed, vec![(200, "", &taken)], "CAPTURED 3000"),
        ("void", replayed, vec![(200, "", &gone)], "VOIDED"),
        ("fence", replayed, vec![(200, "", &gone)], "VOIDED"),
        ("capture", replayed, vec![(500, "", &broken)], "Lost UNKNOWN"),
        ("capture", replayed, vec![(400, "", &refused), (200, "", &held)], "AUTHORIZED"),
        ("capture", first, vec![], "Lost UNKNOWN"),
        ("void", first, vec![], "Lost UNKNOWN"),
        // An authorization is fenced off and asked about, never repeated.
        ("authorize", replayed, vec![], "Lost UNKNOWN"),
    ] {
        let server = answering([(500, headers, &broken)].into_iter().chain(then.clone())).await;
        let reply = discreet(act(&stripe(server.url("")), operation).await);
        assert_eq!(stands(&reply), expected, "{operation} {headers} {then:?}");
        let heard = server.heard();
        assert_eq!(heard.len(), 1 + then.len(), "{operation} {then:?}");
        let keys = heard.iter().map(|request| request.header("idempotency-key").is_some());
        assert!(keys.eq((0..heard.len()).map(|number| number == 0)), "only the first has a key");
        let said = &reply.exchange.reply;
        assert_eq!(said.contains("; without the key: "), !then.is_empty(), "{said}");
    }
}
