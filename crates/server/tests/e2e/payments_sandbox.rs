//! The sandbox's payment methods: each goes its way to the end, with short waits.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::payments::{id, payment};
use crate::support::{Server, Setup};

on_both!(every_method_goes_its_way, every_fault_can_happen_to_a_later_step);

/// Pays, waits for the end, and says `first answer, last status and reason code`.
async fn way(server: &Server, method: &str) -> String {
    let answer =
        server.ask(crate::support::Request::pay(format!("key-{method}"), &payment(method))).await;
    let first = answer.json();
    let last = server.payment_when(&id(&first), "an end", at_rest_or_given_up).await;
    told(answer.status, &last)
}

fn at_rest_or_given_up(found: &Value) -> bool {
    found.get("verificationRequired").is_none() || found["verificationFailed"] == true
}

fn told(status: u16, last: &Value) -> String {
    let reason = last["reasonCode"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
    let case = if last["case"].is_object() { " case" } else { "" };
    format!("{status} {}{reason}{case}", last["status"].as_str().unwrap())
}

async fn every_method_goes_its_way(db: TestDb) {
    let server = Setup::of(&db).impatient().set("PAYMENT_VERIFY_MAX_ATTEMPTS", 3).start().await;
    for (method, expected) in [
        ("ok", "201 AUTHORIZED"),
        ("pm_card_visa", "201 AUTHORIZED"),
        ("sandbox_ok", "201 AUTHORIZED"),
        ("declined", "402 FAILED CARD_DECLINED"),
        ("insufficient_funds", "402 FAILED INSUFFICIENT_FUNDS"),
        ("expired", "402 FAILED EXPIRED_CARD"),
        ("expired_card", "402 FAILED EXPIRED_CARD"),
        ("charged_but_silent", "202 AUTHORIZED"),
        ("lost_before_charge", "202 FAILED NOT_CHARGED"),
        ("late_execution", "202 FAILED NOT_CHARGED"),
        ("500_after_effect", "202 AUTHORIZED"),
        ("unreachable", "202 FAILED NETWORK_ERROR"),
        ("requires_action", "202 PENDING case"),
        ("pm_unknown", "400 FAILED INVALID_REQUEST"),
    ] {
        assert_eq!(way(&server, method).await, expected, "{method}");
    }
    // How it was found out stands in the timeline, and the failure in the words of the contract.
    let page = server.get("/payments?status=FAILED&limit=500").await.json();
    let lost = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|found| found["reasonCode"] == "NOT_CHARGED");
    for found in lost {
        assert_eq!(found["reason"], "Gateway status: NOT_FOUND", "{found}");
        let timeline = server.timeline(&id(found)).await;
        assert!(timeline.iter().any(|line| line["kind"] == "check"), "{timeline:?}");
    }
    server.stop().await;
}

async fn every_fault_can_happen_to_a_later_step(db: TestDb) {
    let server = Setup::of(&db).impatient().set("PAYMENT_VERIFY_MAX_ATTEMPTS", 3).start().await;
    for (step, done) in [("capture", "CAPTURED"), ("void", "REFUNDED"), ("refund", "REFUNDED")] {
        let before = if step == "refund" { "CAPTURED" } else { "AUTHORIZED" };
        for (fault, expected) in [
            ("charged_but_silent", format!("202 {done}")),
            // It is lost however often it is sent: the way to see a case.
            ("lost_before_charge", format!("202 {before} case")),
            ("500_after_effect", format!("202 {done}")),
            (
                "declined",
                format!("402 {before}{}", if step == "refund" { "" } else { " CARD_DECLINED" }),
            ),
            (
                "unreachable",
                format!("202 {before}{}", if step == "refund" { "" } else { " NETWORK_ERROR" }),
            ),
        ] {
            let method = format!("{step}_{fault}");
            let one = id(&server
                .paid(&format!("key-{method}"), &payment(&method), 201, "AUTHORIZED")
                .await);
            if step == "refund" {
                let taken =
                    server.act(&one, "capture", &format!("take-{method}"), &json!({})).await;
                taken.payment(200, "CAPTURED");
            }
            let answer = server.act(&one, step, &format!("act-{method}"), &json!({})).await;
            let last = server.payment_when(&one, "an end", at_rest_or_given_up).await;
            assert_eq!(told(answer.status, &last), expected, "{method}: {last}");
            let again = server.act(&one, step, &format!("act-{method}"), &json!({})).await;
            assert!(again.replayed(), "{method}: {again:?}");
            let failed = ["declined", "unreachable"].contains(&fault);
            assert_eq!(again.status, if failed { 402 } else { 200 }, "{method}: {again:?}");
        }
    }
    server.stop().await;
}
