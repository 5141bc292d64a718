//! What people decide: from exactly what is possible, once, and with their names.

use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::case::{Case, CaseStatus, DEAD_LETTER, Decision};
use tashika_domain::order::{CASE_UNANSWERED, KIND as ORDER};
use tashika_domain::payment::{CASE_DIFFERENCE, CASE_UNKNOWN, KIND, Status};
use tashika_domain::webhook;
use tashika_domain::{LanePolicy, Write};
use tashika_engine::commands::case::{
    CaseError, DeadLetterCases, Desk, DifferenceCases, OrderCases, PaymentCases,
};
use tashika_engine::{Clock, Watchman};
use tashika_store::{AuditFilter, CaseFilter, Store};
use tashika_testkit::broker::{Account, Act};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::payments_support::{Shop, Town, VISA, asks};
use crate::support::{KEY, REMEMBER, Rig, orders, patience, policy, stop, unlimited};
use crate::{queue_rig, webhook_rig};

on_both!(
    a_payment_offers_what_can_be_done_and_does_it_once,
    of_two_operators_one_decides,
    a_decision_that_is_cut_off_is_taken_or_not,
    not_charged_is_made_true_first,
    not_charged_gives_way_to_what_the_gateway_says,
    asking_closes_the_case_when_there_is_an_answer,
    a_difference_closes_when_both_agree_or_a_person_says_so,
    an_order_is_decided_once,
    a_webhook_that_failed_is_tried_again_or_given_up,
    a_dead_letter_that_is_none_any_more_needs_nobody,
    what_is_not_offered_is_refused,
);

fn decision(action: &str, who: &str) -> Decision {
    Decision { action: action.into(), note: "looked at the dashboard".into(), who: who.into() }
}

fn payment_desk(shop: &Shop) -> Desk {
    let (store, clock, payments) = (&shop.store, Clock::System, &shop.payments);
    let unknown = PaymentCases { store: store.clone(), payments: Arc::clone(payments) };
    let difference =
        DifferenceCases { store: store.clone(), clock, payments: Arc::clone(payments) };
    Desk::new(store.clone(), clock).with(CASE_UNKNOWN, unknown).with(CASE_DIFFERENCE, difference)
}

const QUESTIONS: [Operation; 4] =
    [Operation::Retrieve, Operation::List, Operation::Search, Operation::Refunds];

fn mute(town: &Town) {
    for operation in QUESTIONS {
        town.world.usually(operation, Fault::DropBefore);
    }
}

fn speak(town: &Town) {
    for operation in QUESTIONS {
        town.world.usually(operation, Fault::Answer);
    }
}

/// A payment that the gateway has executed or not, and says nothing about.
async fn stuck(town: &Town, shop: &Shop, key: &str, fault: Fault) -> (Uuid, Case) {
    mute(town);
    town.world.script(Operation::Confirm, [fault]);
    let payment = shop.pay(key, VISA).await;
    shop.given_up(payment.id).await;
    let case = shop.open_cases(payment.id).await.pop().expect("a case");
    (payment.id, case)
}

async fn lines(store: &Store, action: &str) -> usize {
    let filter = AuditFilter { action: Some(action.into()), ..AuditFilter::default() };
    store.audit_logs(&filter, 100).await.unwrap().len()
}

async fn a_payment_offers_what_can_be_done_and_does_it_once(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    let desk = payment_desk(&shop);
    for (action, fault, status) in [
        ("charged", Fault::ExecuteThenClose, Status::Authorized),
        ("not_charged", Fault::DropBefore, Status::Failed),
        ("refunded", Fault::DropBefore, Status::Refunded),
    ] {
        let (id, case) = stuck(&town, &shop, action, fault).await;
        let (_, dossier) = desk.look(case.id).await.unwrap();
        let offered: Vec<&str> = dossier.choices.iter().map(|choice| choice.action).collect();
        assert_eq!(offered, ["charged", "not_charged", "refunded", "verify"]);
        assert!(dossier.tried.asked > 0 && dossier.tried.last.is_some(), "{:?}", dossier.tried);
        let kinds: Vec<&str> = dossier.timeline.iter().map(|e| e.kind.as_str()).collect();
        for kind in ["accepted", "attempt", "check", "verification_failed", "audit"] {
            assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
        }
        let nameless = Decision { note: " ".into(), ..decision(action, "mika") };
        let refused = desk.act(case.id, &nameless, &Value::Null).await.unwrap_err();
        assert!(matches!(refused, CaseError::Invalid(_)), "{refused:?}");

        let closed = desk.act(case.id, &decision(action, "mika"), &Value::Null).await.unwrap();
        let end = closed.resolution.clone().expect("an end");
        assert_eq!((end.action.as_str(), end.by.as_deref()), (action, Some("mika")));
        assert_eq!(shop.find(id).await.status, status);
        let before = lines(&shop.store, "case.resolved").await;
        let again = desk.act(case.id, &decision(action, "mika"), &Value::Null).await.unwrap();
        assert_eq!((again, lines(&shop.store, "case.resolved").await), (closed, before));
        let other = desk.act(case.id, &decision(action, "ken"), &Value::Null).await.unwrap_err();
        assert!(matches!(other, CaseError::AlreadyResolved), "{other:?}");
        let (_, after) = desk.look(case.id).await.unwrap();
        assert_eq!(after.choices, [], "nothing is left to decide");
    }
    shop.stop().await;
}

async fn of_two_operators_one_decides(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    for round in 0..4 {
        let (id, case) = stuck(&town, &shop, &format!("k-{round}"), Fault::ExecuteThenClose).await;
        let desk = Arc::new(payment_desk(&shop));
        let tasks =
            ["charged", "refunded", "charged", "refunded"].iter().zip(0..).map(|(action, n)| {
                let (desk, decision) = (Arc::clone(&desk), decision(action, &format!("w{n}")));
                tokio::spawn(async move { desk.act(case.id, &decision, &Value::Null).await })
            });
        let results: Vec<_> = futures_util::future::join_all(tasks).await;
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let won: Vec<&Case> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
        assert_eq!(won.len(), 1, "{results:?}");
        let lost = results.iter().filter(|r| matches!(r, Err(CaseError::AlreadyResolved)));
        assert_eq!(lost.count(), 3, "{results:?}");
        let status = shop.find(id).await.status;
        let expected = match won[0].resolution.as_ref().unwrap().action.as_str() {
            "charged" => Status::Authorized,
            _ => Status::Refunded,
        };
        assert_eq!(status, expected, "what is written is what was decided");
        assert_eq!(lines(&shop.store, "case.resolved").await, round + 1);
    }
    shop.stop().await;
}

/// The process, or the request, may end at any moment.
async fn a_decision_that_is_cut_off_is_taken_or_not(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    for (round, action) in
        ["charged", "not_charged", "refunded"].into_iter().cycle().take(18).enumerate()
    {
        let fault = if action == "charged" { Fault::ExecuteThenClose } else { Fault::DropBefore };
        let (id, case) = stuck(&town, &shop, &format!("k-{round}"), fault).await;
        let desk = Arc::new(payment_desk(&shop));
        let task = {
            let (desk, decision) = (Arc::clone(&desk), decision(action, "mika"));
            tokio::spawn(async move { desk.act(case.id, &decision, &Value::Null).await.map(drop) })
        };
        // It gets a little further in every round.
        for _ in 0..round * 3 {
            tokio::task::yield_now().await;
        }
        task.abort();
        drop(task.await);
        let (open, failed) = (
            desk.find(case.id).await.unwrap().status == CaseStatus::Open,
            shop.find(id).await.verification_failed(),
        );
        assert_eq!(open, failed, "the case and what it is about end together");
        let closed = desk.act(case.id, &decision(action, "mika"), &Value::Null).await.unwrap();
        assert_eq!(closed.status, CaseStatus::Resolved);
        assert!(!shop.find(id).await.verification_failed());
    }
    shop.stop().await;
}

async fn not_charged_is_made_true_first(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    let desk = payment_desk(&shop);
    // It is still on its way when everybody has given up.
    let (id, case) = stuck(&town, &shop, KEY, Fault::late()).await;
    speak(&town);
    desk.act(case.id, &decision("not_charged", "mika"), &Value::Null).await.unwrap();
    town.world.run_late();
    assert_eq!(town.world.authorizations(&id.to_string()), 0, "the fence was there before it");
    assert_eq!(shop.find(id).await.status, Status::Failed);
    town.agrees(&shop, id).await;
    let person = shop.lines(id, "person").await;
    assert_eq!(person.len(), 1);
    let audit = AuditFilter { action: Some("payment.resolved".into()), ..AuditFilter::default() };
    let line = shop.store.audit_logs(&audit, 1).await.unwrap().pop().unwrap();
    let details: Value = serde_json::from_str(&line.details).unwrap();
    assert_eq!(details["fenced"], json!(true), "{details}");

    // A gateway that still does not answer does not stop a person: it is written down that nobody fenced.
    let (id, case) = stuck(&town, &shop, "k-2", Fault::DropBefore).await;
    desk.act(case.id, &decision("not_charged", "mika"), &Value::Null).await.unwrap();
    assert_eq!(shop.find(id).await.status, Status::Failed);
    let line = shop.store.audit_logs(&audit, 1).await.unwrap().pop().unwrap();
    let details: Value = serde_json::from_str(&line.details).unwrap();
    assert_eq!(details["fenced"], json!(false), "{details}");
    shop.stop().await;
}

async fn not_charged_gives_way_to_what_the_gateway_says(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    let desk = payment_desk(&shop);
    let (id, case) = stuck(&town, &shop, KEY, Fault::ExecuteThenClose).await;
    speak(&town);
    let wrong =
        desk.act(case.id, &decision("not_charged", "mika"), &Value::Null).await.unwrap_err();
    assert!(matches!(wrong, CaseError::Contradicted), "{wrong:?}");
    assert_eq!(shop.find(id).await.status, Status::Authorized);
    town.agrees(&shop, id).await;
    let end = desk.find(case.id).await.unwrap().resolution.unwrap();
    assert_eq!((end.action.as_str(), end.by), ("verified", None), "the gateway has answered");
    shop.stop().await;
}

async fn asking_closes_the_case_when_there_is_an_answer(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    let desk = payment_desk(&shop);
    let (id, case) = stuck(&town, &shop, KEY, Fault::ExecuteThenClose).await;
    let verify = Decision { note: String::new(), ..decision("verify", "mika") };
    let still = desk.act(case.id, &verify, &Value::Null).await.unwrap();
    assert_eq!(still.status, CaseStatus::Open, "nobody has answered");
    speak(&town);
    let closed = desk.act(case.id, &verify, &Value::Null).await.unwrap();
    assert_eq!(closed.status, CaseStatus::Resolved);
    assert_eq!(shop.find(id).await.status, Status::Authorized);
    let again = desk.act(case.id, &verify, &Value::Null).await.unwrap();
    assert_eq!(again, closed, "it is answered already");
    shop.stop().await;
}

async fn difference(shop: &Shop, id: &str, details: &Value) -> Case {
    let now = Clock::System.now();
    let new = tashika_domain::case::NewCase {
        id: tashika_domain::ids::derived(now, &[id.as_bytes()]),
        kind: CASE_DIFFERENCE,
        subject_type: KIND,
        subject_id: id.to_owned(),
        summary: "they differ".into(),
        actions: vec!["settled"],
        details: details.to_string(),
        now,
    };
    let case = new.id;
    shop.store.commit(tashika_domain::Changes::from(Write::OpenCase(new))).await.unwrap();
    shop.store.case(case).await.unwrap().unwrap()
}

async fn a_difference_closes_when_both_agree_or_a_person_says_so(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    let desk = payment_desk(&shop);
    let payment = shop.authorized(KEY).await;
    let case = difference(&shop, &payment.id.to_string(), &json!({})).await;
    let (_, dossier) = desk.look(case.id).await.unwrap();
    assert_eq!(dossier.choices.iter().map(|c| c.action).collect::<Vec<_>>(), ["adopt", "settled"]);
    let adopt = Decision { note: String::new(), ..decision("adopt", "mika") };
    mute(&town);
    let silent = desk.act(case.id, &adopt, &Value::Null).await.unwrap_err();
    assert!(matches!(silent, CaseError::StillDiffers(_)), "{silent:?}");
    speak(&town);
    let closed = desk.act(case.id, &adopt, &Value::Null).await.unwrap();
    assert_eq!(closed.status, CaseStatus::Resolved, "both say the same");
    assert_eq!(desk.act(case.id, &adopt, &Value::Null).await.unwrap(), closed);

    // The gateway has money that we know nothing of: only a person can say what became of that.
    let foreign = difference(&shop, "pi_unknown", &json!({"gateways": "CAPTURED"})).await;
    let (_, dossier) = desk.look(foreign.id).await.unwrap();
    assert_eq!(dossier.choices.iter().map(|c| c.action).collect::<Vec<_>>(), ["settled"]);
    let refused = desk.act(foreign.id, &adopt, &Value::Null).await.unwrap_err();
    assert!(matches!(refused, CaseError::NotAllowed(_)), "{refused:?}");
    let settled = decision("settled", "mika");
    let closed = desk.act(foreign.id, &settled, &Value::Null).await.unwrap();
    assert_eq!(closed.resolution.unwrap().by.as_deref(), Some("mika"));
    let bounced = difference(&shop, &payment.id.to_string(), &json!({"refundId": "r"})).await;
    let (_, dossier) = desk.look(bounced.id).await.unwrap();
    assert_eq!(dossier.choices.len(), 1, "what came back cannot be taken over");
    shop.stop().await;
}

async fn unanswered(rig: &Rig, key: &str) -> Case {
    rig.broker.script_for(key, [Act::ExecuteThenLose]);
    rig.broker.account([Account::Lose]);
    rig.place(key).await;
    let running = rig.start(patience(2));
    rig.aborted(key).await;
    stop(running).await;
    rig.open_cases(key).await.pop().expect("a case")
}

async fn an_order_is_decided_once(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    let made = Arc::new(orders(&rig.store, Clock::System, unlimited()));
    let kind = OrderCases { store: rig.store.clone(), orders: made };
    let desk = Arc::new(Desk::new(rig.store.clone(), Clock::System).with(CASE_UNANSWERED, kind));
    let case = unanswered(&rig, KEY).await;
    assert_eq!(case.subject_type, ORDER);
    let (_, dossier) = desk.look(case.id).await.unwrap();
    let offered: Vec<&str> = dossier.choices.iter().map(|choice| choice.action).collect();
    assert_eq!(offered, ["executed", "not_executed", "resend"]);
    assert!(dossier.tried.sent >= 2, "{:?}", dossier.tried);
    let executed = decision("executed", "mika");
    let missing = desk.act(case.id, &executed, &json!({})).await.unwrap_err();
    assert!(matches!(missing, CaseError::Invalid(_)), "{missing:?}");
    let body = json!({"execution": {"order_ref": "r-1", "cost": 0.5, "warnings": [],
        "fills": [{"px": 150.0, "qty": 1.0, "ts": Clock::System.now()}]}});
    let race = [executed.clone(), decision("not_executed", "ken"), decision("resend", "yui")];
    let tasks = race.map(|decision| {
        let (desk, body) = (Arc::clone(&desk), body.clone());
        tokio::spawn(async move { desk.act(case.id, &decision, &body).await })
    });
    let results = futures_util::future::join_all(tasks).await;
    let won = results.iter().filter(|result| matches!(result, Ok(Ok(_)))).count();
    assert_eq!(won, 1, "{results:?}");
    let end = desk.find(case.id).await.unwrap().resolution.unwrap();
    let repeat = Decision {
        action: end.action.clone(),
        note: end.note.clone(),
        who: end.by.clone().unwrap(),
    };
    assert_eq!(desk.act(case.id, &repeat, &body).await.unwrap().resolution, Some(end));
    assert_eq!(lines(&rig.store, "case.resolved").await, 1);
    assert_eq!(lines(&rig.store, "order.resolved").await, 1);
}

fn letters_desk(store: &Store) -> Desk {
    let messages = queue_rig::messages(store);
    let (store, clock) = (store.clone(), Clock::System);
    let letters = DeadLetterCases { store: store.clone(), clock, messages, keep: REMEMBER };
    Desk::new(store, clock).with(DEAD_LETTER, letters)
}

async fn open_letter(store: &Store) -> Case {
    let filter = CaseFilter {
        status: Some(CaseStatus::Open),
        kind: Some(DEAD_LETTER.into()),
        ..CaseFilter::default()
    };
    until("a case", async || store.cases(&filter, 10).await.unwrap().pop()).await
}

/// An event of a customer that nobody knows fails.
fn unknown_customer(id: &str) -> Value {
    json!({"id": id, "type": "invoice.payment_succeeded", "created": 1_767_571_200,
        "data": {"object": {"id": "in_1", "customer": "cus_nobody"}}})
}

async fn a_webhook_that_failed_is_tried_again_or_given_up(db: TestDb) {
    let rig = webhook_rig::Rig::new(db).await;
    let running = rig.engine(&LanePolicy { max_attempts: 1, ..policy() }).start();
    rig.send(&unknown_customer("evt_1")).await;
    let case = open_letter(&rig.store).await;
    assert_eq!(case.subject_type, webhook::KIND);
    let desk = Arc::new(letters_desk(&rig.store));
    let tasks = ["requeue", "drop"].map(|action| {
        let (desk, decision) = (Arc::clone(&desk), decision(action, action));
        tokio::spawn(async move { desk.act(case.id, &decision, &Value::Null).await })
    });
    let results = futures_util::future::join_all(tasks).await;
    assert_eq!(results.iter().filter(|r| matches!(r, Ok(Ok(_)))).count(), 1, "{results:?}");
    let end = desk.find(case.id).await.unwrap().resolution.unwrap();
    if end.action == "requeue" {
        // It fails again, and that is another question.
        let next = open_letter(&rig.store).await;
        assert_ne!(next.id, case.id);
        desk.act(next.id, &decision("drop", "mika"), &Value::Null).await.unwrap();
    }
    let open = rig.store.open_case_counts().await.unwrap();
    assert!(open.is_empty(), "{open:?}");
    stop(running).await;
}

async fn a_dead_letter_that_is_none_any_more_needs_nobody(db: TestDb) {
    let rig = webhook_rig::Rig::new(db).await;
    let running = rig.engine(&LanePolicy { max_attempts: 1, ..policy() }).start();
    let sent = rig.send(&unknown_customer("evt_1")).await;
    let case = open_letter(&rig.store).await;
    rig.billing("cus_nobody").await;
    rig.webhooks.replay(sent.message_id, "mika").await.unwrap();
    until("the end of the case", async || {
        let engine = Arc::clone(running.engine());
        Watchman::new(engine).run_once(Clock::System.now()).await.unwrap();
        let case = rig.store.case(case.id).await.unwrap().unwrap();
        case.resolution.filter(|end| end.action == "gone")
    })
    .await;
    stop(running).await;
}

async fn what_is_not_offered_is_refused(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    let desk = payment_desk(&shop);
    let (_, case) = stuck(&town, &shop, KEY, Fault::DropBefore).await;
    let refused = desk.act(case.id, &decision("requeue", "mika"), &Value::Null).await.unwrap_err();
    let CaseError::NotAllowed(now) = refused else { panic!("{refused:?}") };
    assert_eq!(now, ["charged", "not_charged", "refunded", "verify"]);
    let nobody = desk.act(Uuid::nil(), &decision("charged", "m"), &Value::Null).await.unwrap_err();
    assert!(matches!(nobody, CaseError::NotFound));
    // Settled meanwhile by the gateway itself: the stored actions count for nothing.
    speak(&town);
    shop.payments.verify(case.subject_id.parse().unwrap(), None).await.unwrap();
    let late = desk.act(case.id, &decision("charged", "m"), &Value::Null).await.unwrap_err();
    assert!(matches!(late, CaseError::AlreadyResolved), "{late:?}");
    shop.stop().await;
}
