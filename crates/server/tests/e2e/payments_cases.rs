//! What nobody can find out: asked about, given up, alerted, decided by a person.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::support::payments::{Gateway, id, payment};
use crate::support::{Request, Server, Setup};

on_both!(
    a_gateway_that_says_nothing_ends_in_a_case_that_a_person_settles,
    an_error_that_asking_will_not_mend_ends_in_a_case_at_once,
    every_decision_fits_what_is_in_doubt,
    a_case_is_settled_by_an_answer_that_arrives_late,
    a_capture_that_a_person_found_undone_can_be_asked_for_again,
    a_fence_on_its_way_is_not_overlooked,
);

const ATTEMPTS: usize = 3;

fn setup(db: &TestDb, gateway: &Gateway) -> Setup {
    Setup::of(db).stripe(gateway).set("PAYMENT_VERIFY_MAX_ATTEMPTS", ATTEMPTS)
}

/// Nobody answers any question.
fn mute(gateway: &Gateway) {
    for operation in [Operation::Retrieve, Operation::List, Operation::Search, Operation::Refunds] {
        gateway.world.usually(operation, Fault::DropBefore);
    }
}

fn honest(gateway: &Gateway) {
    for operation in [Operation::Retrieve, Operation::List, Operation::Search, Operation::Refunds] {
        gateway.world.usually(operation, Fault::Answer);
    }
}

async fn resolved(server: &Server, id: &str, outcome: &str, status: &str) -> Value {
    let body = json!({"outcome": outcome, "note": "looked at the dashboard"});
    server.ask(Request::json(&format!("/payments/{id}/resolve"), &body)).await.payment(200, status)
}

/// The only item of a list.
async fn only(server: &Server, path: &str) -> Value {
    let page = server.get(path).await.json();
    let items = page["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{path}: {page}");
    items[0].clone()
}

/// The alert about payments that nobody could find out about. The watchman looks when a case is opened or
/// closed, and writes what it sees in the next moment.
async fn alert(server: &Server, state: &str) -> Value {
    let path = format!("/alerts?rule=payment_verification_failed&state={state}");
    until("the alert", async || {
        let page = server.get(&path).await.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 1, "{page}");
        items.first().cloned()
    })
    .await
}

fn kinds(timeline: &[Value]) -> Vec<&str> {
    timeline.iter().map(|line| line["kind"].as_str().unwrap()).collect()
}

async fn a_gateway_that_says_nothing_ends_in_a_case_that_a_person_settles(db: TestDb) {
    let gateway = Gateway::start().await;
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenSilence]);
    mute(&gateway);
    let server = setup(&db, &gateway).start().await;
    assert_eq!(server.get("/cases").await.json(), json!({"items": []}));
    assert_eq!(server.get("/alerts").await.json(), json!({"items": []}));
    let pending = server.paid("case-0001", &payment("pm_card_visa"), 202, "PENDING").await;
    let id = id(&pending);
    let found = server.payment_given_up(&id).await;
    assert_eq!(
        (&found["status"], &found["pendingVerification"]),
        (&json!("PENDING"), &json!(false))
    );
    assert_eq!(found["verification"]["attempts"], ATTEMPTS, "{found}");
    assert_eq!(found["case"]["status"], "open", "{found}");

    let case = only(&server, "/cases?status=open&kind=payment_unknown").await;
    for field in ["id", "kind", "status", "subjectType", "subjectId", "summary", "openedAt"] {
        assert!(case[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {case}");
    }
    assert_eq!(
        (&case["status"], &case["subjectType"], &case["subjectId"]),
        (&json!("open"), &json!("payment"), &json!(id))
    );
    assert_eq!(case["actions"], json!(["charged", "not_charged", "refunded", "verify"]));
    let alert = alert(&server, "firing").await;
    for field in ["id", "rule", "firedAt"] {
        assert!(alert[field].is_string(), "{field}: {alert}");
    }
    assert_eq!(
        (&alert["severity"], &alert["state"], &alert["count"]),
        (&json!("high"), &json!("firing"), &json!(1))
    );
    assert_eq!(alert["message"], "Payment verification failed after max attempts");
    assert_eq!(alert["labels"]["paymentId"], json!(id));
    assert_eq!(alert.get("resolvedAt"), Some(&Value::Null), "{alert}");

    // A replay is told how it stands; asking now brings nothing; another operation must wait.
    let again = server.ask(Request::pay("case-0001", &payment("pm_card_visa"))).await;
    assert_eq!(
        (again.payment(200, "PENDING")["verificationFailed"].as_bool(), again.replayed()),
        (Some(true), true)
    );
    let verify = Request::new("POST", &format!("/payments/{id}/verify"));
    assert!(
        server.ask(verify.clone()).await.payment(202, "PENDING")["verificationRequired"] == true
    );

    let settled = resolved(&server, &id, "charged", "AUTHORIZED").await;
    assert_eq!(
        (&settled["verificationFailed"], &settled["pendingVerification"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(server.open_cases().await, [] as [Value; 0]);
    let case = only(&server, "/cases?status=resolved").await;
    assert_eq!(
        (&case["resolution"], &case["note"]),
        (&json!("charged"), &json!("looked at the dashboard"))
    );
    assert!(case["resolvedAt"].is_string(), "{case}");
    let alert = self::alert(&server, "resolved").await;
    assert!(alert["resolvedAt"].is_string(), "{alert}");
    let body = json!({"outcome": "charged", "note": "again"});
    server
        .ask(Request::json(&format!("/payments/{id}/resolve"), &body))
        .await
        .is_problem(409, "NO_OPEN_CASE");

    let timeline = server.timeline(&id).await;
    let kinds = kinds(&timeline);
    for kind in
        ["accepted", "prepared", "attempt", "check", "verification_failed", "person", "transition"]
    {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let times: Vec<&str> = timeline.iter().map(|line| line["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let decision = timeline.iter().find(|line| line["kind"] == "person").unwrap();
    assert_eq!(
        (&decision["note"], &decision["decision"]),
        (&json!("looked at the dashboard"), &json!("charged"))
    );
    assert!(decision["who"].is_string(), "{decision}");
    // What the person said was true: the money is there, and can be taken.
    honest(&gateway);
    server.act(&id, "capture", "case-capture", &json!({})).await.payment(200, "CAPTURED");
    assert_eq!((gateway.world.charged(&id), gateway.world.violations()), (100, vec![]));
    for wrong in [
        "/cases?status=closed",
        "/cases?colour=red",
        "/cases?limit=0",
        "/alerts?state=on",
        "/alerts?cursor=x",
    ] {
        server.get(wrong).await.is_problem(400, "BAD_REQUEST");
    }
    server.stop().await;
}

async fn an_error_that_asking_will_not_mend_ends_in_a_case_at_once(db: TestDb) {
    let gateway = Gateway::start().await;
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    mute(&gateway);
    let setup = setup(&db, &gateway).set("PAYMENT_VERIFY_INTERVAL_SEC", 1);
    let server = setup.start().await;
    let found = server.paid("case-0002", &payment("pm_card_visa"), 202, "PENDING").await;
    server.stop().await;
    // The key is revoked: no question will ever be answered.
    let server = setup.set("STRIPE_API_KEY", "pk_of_somebody_else").start().await;
    let given_up = server.payment_given_up(&id(&found)).await;
    assert!(given_up["verification"]["attempts"].as_u64() < Some(ATTEMPTS as u64), "{given_up}");
    let alert = alert(&server, "firing").await;
    assert_eq!(alert["message"], "Non-retryable gateway error during verification");
    assert_eq!(alert["labels"]["paymentId"], found["id"]);
    assert!(
        alert["labels"]["error"].as_str().is_some_and(|error| error.contains("UNAUTHORIZED")),
        "{alert}"
    );
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("\npayment_verification_failed_total 1\n"), "{metrics}");
    server.stop().await;
}

async fn every_decision_fits_what_is_in_doubt(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).start().await;
    let authorized = async |n: usize| {
        id(&server.paid(&format!("fits-{n}"), &payment("pm_card_visa"), 201, "AUTHORIZED").await)
    };
    let captured = async |n: usize| {
        let id = authorized(n).await;
        server.act(&id, "capture", &format!("take-{n}"), &json!({})).await.payment(200, "CAPTURED");
        id
    };
    let given_up = async |id: &str, verb: &str, operation: Operation, body: Value| {
        gateway.world.script(operation, [Fault::DropBefore]);
        mute(&gateway);
        assert_eq!(server.act(id, verb, &format!("doubt-{id}"), &body).await.status, 202);
        server.payment_given_up(id).await;
        honest(&gateway);
    };
    // Authorizations.
    for (n, (outcome, status)) in
        [("not_charged", "FAILED"), ("refunded", "REFUNDED")].into_iter().enumerate()
    {
        gateway.world.script(Operation::Confirm, [Fault::DropBefore]);
        mute(&gateway);
        let key = format!("fits-authorize-{n}");
        let found = server.paid(&key, &payment("pm_card_visa"), 202, "PENDING").await;
        server.payment_given_up(&id(&found)).await;
        honest(&gateway);
        resolved(&server, &id(&found), outcome, status).await;
        // The key is answered with the decision from now on.
        let again = server.ask(Request::pay(&key, &payment("pm_card_visa"))).await;
        assert!(again.replayed() && [200, 402].contains(&again.status), "{again:?}");
    }
    let (one, two, three) = (captured(1).await, captured(2).await, authorized(3).await);
    given_up(&one, "refund", Operation::Refund, json!({"amount": 40})).await;
    let body = json!({"outcome": "not_charged", "note": "?"});
    let unfit = server.ask(Request::json(&format!("/payments/{one}/resolve"), &body)).await;
    unfit.is_problem(422, "RESOLUTION_DOES_NOT_FIT");
    let kept = resolved(&server, &one, "charged", "CAPTURED").await;
    assert_eq!(
        (&kept["refundedAmount"], &kept["refunds"][0]["status"]),
        (&json!(0), &json!("failed"))
    );
    given_up(&two, "refund", Operation::Refund, json!({})).await;
    assert_eq!(resolved(&server, &two, "refunded", "REFUNDED").await["refundedAmount"], 100);
    given_up(&three, "void", Operation::Cancel, json!({})).await;
    resolved(&server, &three, "refunded", "REFUNDED").await;
    assert_eq!(server.open_cases().await, [] as [Value; 0]);
    server.stop().await;
}

async fn a_case_is_settled_by_an_answer_that_arrives_late(db: TestDb) {
    let gateway = Gateway::start().await;
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    mute(&gateway);
    let server = setup(&db, &gateway).start().await;
    let id = id(&server.paid("case-0003", &payment("pm_card_visa"), 202, "PENDING").await);
    server.payment_given_up(&id).await;
    alert(&server, "firing").await;
    honest(&gateway);
    let verified = server.ask(Request::new("POST", &format!("/payments/{id}/verify"))).await;
    let found = verified.payment(200, "AUTHORIZED");
    assert_eq!(found["verificationFailed"], false, "{found}");
    assert_eq!(server.open_cases().await, [] as [Value; 0]);
    alert(&server, "resolved").await;
    server.stop().await;
}

/// The gateway keeps a failure under the key of a request. A person who says that it did not happen must not
/// leave the payment with a key that can only fail.
async fn a_capture_that_a_person_found_undone_can_be_asked_for_again(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).start().await;
    let one = id(&server.paid("again-0001", &payment("pm_card_visa"), 201, "AUTHORIZED").await);
    gateway.world.usually(Operation::Capture, Fault::fail_before());
    let first = server.act(&one, "capture", "again-capture-1", &json!({})).await;
    assert_eq!(first.status, 202, "{first:?}");
    server.payment_given_up(&one).await;
    resolved(&server, &one, "not_charged", "AUTHORIZED").await;
    gateway.world.usually(Operation::Capture, Fault::Answer);
    let second = server.act(&one, "capture", "again-capture-2", &json!({"amount": 80})).await;
    assert_eq!(second.payment(200, "CAPTURED")["capturedAmount"], 80);
    assert_eq!((gateway.world.captured(&one), gateway.world.violations()), (80, vec![]));
    server.stop().await;
}

/// A late confirmation, a late fence, and a look in between: the fence is ours, so what it will release is no
/// authorization.
async fn a_fence_on_its_way_is_not_overlooked(db: TestDb) {
    let gateway = Gateway::start().await;
    let world = &gateway.world;
    world.script(Operation::Confirm, [Fault::late_by(std::time::Duration::from_millis(600))]);
    world.script(Operation::Cancel, [Fault::late()]);
    let server = setup(&db, &gateway).set("PAYMENT_VERIFY_INTERVAL_SEC", 3600).start().await;
    let id = id(&server.paid("fence-0001", &payment("pm_card_visa"), 202, "PENDING").await);
    let verify = Request::new("POST", &format!("/payments/{id}/verify"));
    // The fence is sent, and is lost on its way.
    server.ask(verify.clone()).await.payment(202, "PENDING");
    assert_eq!(world.calls(Operation::Cancel), 1);
    // The confirmation arrives.
    world.until_landed(1).await;
    assert_eq!(world.held(&id), 100);
    server.ask(verify).await.payment(200, "FAILED");
    world.run_late();
    until("rest", async || (world.landed().len() == 2).then_some(())).await;
    assert_eq!((world.held(&id), world.violations()), (0, vec![]));
    assert_eq!(server.payment(&id).await["status"], "FAILED");
    server.stop().await;
}
