//! What goes on beside the payments: telling the world, comparing books, releasing, forgetting.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::SecretString;
use serde_json::{Value, json};
use sha2::Sha256;
use tashika_domain::case::CaseStatus;
use tashika_domain::payment::resolve::Resolution;
use tashika_domain::payment::{CASE_DIFFERENCE, KIND, Payment, PaymentRules, Status};
use tashika_domain::{Lane, LanePolicy, NewEffect, Timestamp, event};
use tashika_engine::{Clock, EventHandler, Pruner, RECONCILE_KIND, ReconcileHandler, Window};
use tashika_providers::gateway::{Charge, Gateway as _};
use tashika_providers::sink::Sink;
use tashika_store::{AuditFilter, CaseFilter, EffectFilter, EffectRow};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::payments_support::{
    AMOUNT, Shop, Town, VISA, asks, charge, payments_policy, rules, shop_with,
};
use crate::support::{HOUR, KEY, REMEMBER, ahead, engine};

on_both!(
    an_authorization_that_nobody_captures_is_released,
    an_authorization_is_released_even_if_the_gateway_was_busy_at_the_time,
    a_captured_payment_outlives_the_timer,
    every_step_is_told_to_a_sink_and_signed,
    a_sink_that_fails_is_told_again,
    a_sink_that_is_down_holds_up_nobody_else,
    books_that_differ_become_cases,
    a_late_charge_is_found_by_comparing_and_given_back,
    windows_follow_each_other_and_none_is_compared_twice,
    pruning_leaves_a_case_with_its_evidence,
);

const SECRET: &[u8] = b"a secret of twenty-four b";

/// A server that takes events. It refuses as many as it is told to first.
#[derive(Clone, Default)]
struct Listener {
    heard: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    refuses: Arc<Mutex<usize>>,
}

impl Listener {
    async fn start(&self) -> Arc<Sink> {
        let listener = self.clone();
        let answer = move |headers: HeaderMap, body: Bytes| {
            let body = String::from_utf8(body.to_vec()).unwrap();
            listener.heard.lock().unwrap().push((headers, body));
            let mut refuses = listener.refuses.lock().unwrap();
            let refused = *refuses > 0;
            *refuses = refuses.saturating_sub(1);
            let status =
                if refused { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::NO_CONTENT };
            std::future::ready(status)
        };
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", socket.local_addr().unwrap());
        let router = Router::new().route("/hook", post(answer));
        tokio::spawn(async move { axum::serve(socket, router).await });
        sink(&url)
    }

    fn heard(&self) -> Vec<(HeaderMap, String)> {
        self.heard.lock().unwrap().clone()
    }

    /// Waits until so many deliveries have arrived, and returns them in the order of what happened.
    async fn events(&self, count: usize) -> Vec<Value> {
        until("events", async || (self.heard().len() >= count).then_some(())).await;
        let heard = self.heard();
        let read = heard.iter().map(|(_, body)| serde_json::from_str::<Value>(body).unwrap());
        let mut events: Vec<Value> = read.collect();
        events.sort_by_key(|event| event["occurredAt"].as_str().unwrap().to_owned());
        events
    }
}

fn sink(url: &str) -> Arc<Sink> {
    let secret = SecretString::from(format!("whsec_{}", STANDARD.encode(SECRET)));
    Arc::new(Sink::new(url, Some(&secret), Duration::from_secs(5)).unwrap())
}

/// A shop that tells these sinks.
fn telling(town: &Town, sinks: &[Arc<Sink>]) -> Shop {
    let names = sinks.iter().map(|sink| sink.name().to_owned()).collect();
    let rules = PaymentRules { sinks: names, ..rules() };
    shop_with(&town.store, "host:1:a", Arc::new(town.gateway()), rules, |engine, _| {
        let policy = LanePolicy { max_attempts: 1_000_000, ..payments_policy() };
        engine.lane(Lane::EVENTS, policy).effect(event::KIND, EventHandler::new(sinks))
    })
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

async fn every_step_is_told_to_a_sink_and_signed(db: TestDb) {
    let town = Town::new(db).await;
    let listener = Listener::default();
    let shop = telling(&town, &[listener.start().await]);
    let id = shop.captured("k-1").await.id;
    shop.refund(id, "r-1", Some(30)).await.unwrap();
    shop.refund(id, "r-2", None).await.unwrap();
    let events = listener.events(5).await;
    assert_eq!(
        kinds(&events),
        [
            "PaymentCreated",
            "PaymentAuthorized",
            "PaymentCaptured",
            "PaymentRefunded",
            "PaymentRefunded"
        ]
    );
    let ids: BTreeSet<&str> = events.iter().map(|e| e["eventId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 5);
    assert!(events.iter().all(|event| event["aggregateId"] == json!(id)));
    let refunds: Vec<_> = events[3..]
        .iter()
        .map(|e| (&e["payload"]["refundAmount"], &e["payload"]["totalRefunded"]))
        .collect();
    assert_eq!(refunds, [(&json!(30), &json!(30)), (&json!(70), &json!(100))]);
    for (headers, body) in listener.heard() {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        let event: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(json!(header("webhook-id")), event["eventId"]);
        let signed = format!("{}.{}.{body}", header("webhook-id"), header("webhook-timestamp"));
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET).unwrap();
        mac.update(signed.as_bytes());
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(header("webhook-signature"), expected);
    }

    let voided = shop.authorized("k-2").await.id;
    shop.void(voided, "v").await.unwrap();
    let failed = shop.pay("k-3", crate::payments_support::DECLINING).await.id;
    let events = listener.events(10).await;
    let of = |id: Uuid| -> Vec<&str> {
        let own = events.iter().filter(|event| event["aggregateId"] == json!(id));
        own.map(|event| event["type"].as_str().unwrap()).collect()
    };
    assert_eq!(of(voided), ["PaymentCreated", "PaymentAuthorized", "PaymentVoided"]);
    assert_eq!(of(failed), ["PaymentCreated", "PaymentFailed"]);
    shop.stop().await;
}

async fn a_sink_that_fails_is_told_again(db: TestDb) {
    let town = Town::new(db).await;
    let listener = Listener::default();
    *listener.refuses.lock().unwrap() = 3;
    let shop = telling(&town, &[listener.start().await]);
    shop.authorized(KEY).await;
    // Two events, and three deliveries that were refused.
    let events = listener.events(5).await;
    let ids: BTreeSet<&str> = events.iter().map(|e| e["eventId"].as_str().unwrap()).collect();
    assert_eq!((events.len(), ids.len()), (5, 2), "a repeat has the same id");
    crate::support::until_succeeded(&shop.store, &Lane::EVENTS, 2).await;
    shop.stop().await;
}

async fn a_sink_that_is_down_holds_up_nobody_else(db: TestDb) {
    let town = Town::new(db).await;
    let listener = Listener::default();
    let sinks = [sink("http://127.0.0.1:1/down"), listener.start().await];
    let shop = telling(&town, &sinks);
    for number in 0..5 {
        shop.captured(&format!("k-{number}")).await;
    }
    let events = listener.events(15).await;
    assert_eq!(events.len(), 15);
    let filter = EffectFilter { lane: Some(Lane::EVENTS), ..EffectFilter::default() };
    let waiting = until("the sink that is down was tried", async || {
        let rows = shop.store.effects(&filter, 100).await.unwrap();
        let failed = rows.iter().filter(|row| row.attempts > 0).count();
        (failed == 15).then_some(rows)
    })
    .await;
    assert_eq!(waiting.len(), 30);
    shop.stop().await;
}

const WINDOW: Duration = Duration::from_secs(1);

/// A shop that compares books, a second at a time.
async fn comparing(town: &Town, worker: &str) -> Shop {
    let gateway = Arc::new(town.gateway());
    let store = town.db.open().await;
    let shop = shop_with(&store, worker, gateway, asks(1), |engine, till| {
        let handler = ReconcileHandler::new(Arc::clone(till), WINDOW, REMEMBER);
        engine.effect(RECONCILE_KIND, handler)
    });
    shop.till.schedule_reconciliation(WINDOW).await.unwrap();
    shop
}

/// When a comparison's window begins; `None` for other effects.
fn begins(row: &EffectRow) -> Option<Timestamp> {
    let key = row.key.as_deref().filter(|_| row.kind == RECONCILE_KIND)?;
    Some(key.parse().unwrap())
}

/// Waits until a window that ended after now has been compared.
async fn compared(shop: &Shop) {
    let now = Clock::System.now();
    let filter = EffectFilter { lane: Some(Lane::TIMERS), ..EffectFilter::default() };
    until("a comparison", async || {
        let rows = shop.store.effects(&filter, 1000).await.unwrap();
        let ended = |row: &EffectRow| begins(row).is_some_and(|from| from.plus(WINDOW) > now);
        rows.iter().any(|row| row.status.is_settled() && ended(row)).then_some(())
    })
    .await;
}

async fn differences(shop: &Shop) -> Vec<(String, String)> {
    let filter = CaseFilter {
        kind: Some(CASE_DIFFERENCE.to_owned()),
        status: Some(CaseStatus::Open),
        ..CaseFilter::default()
    };
    let cases = shop.store.cases(&filter, 100).await.unwrap();
    cases.into_iter().map(|case| (case.subject_id, case.summary)).collect()
}

async fn books_that_differ_become_cases(db: TestDb) {
    let town = Town::new(db).await;
    let shop = comparing(&town, "host:1:a").await;
    town.world.script(Operation::List, [Fault::Unavailable, Fault::ExecuteThenClose]);
    let same = [shop.authorized("k-1").await.id, shop.captured("k-2").await.id];
    shop.refund(same[1], "r", Some(10)).await.unwrap();

    // The gateway has one that we do not know.
    let request = shop.find(same[0]).await;
    let stranger = Uuid::from_u128(77);
    let unknown = Charge { payment_id: stranger, gateway_id: None, ..charge(&request) };
    let gateway = town.gateway();
    let tashika_domain::Outcome::Done(Some(intent)) = gateway.prepare(unknown).await.outcome else {
        panic!("an intent");
    };
    gateway.authorize(Charge { gateway_id: Some(&intent), ..unknown }).await;

    // We have one that the gateway does not know: it was made at another.
    let other = Town::new(TestDb::sqlite()).await;
    let elsewhere =
        shop_with(&town.store, "host:2:b", Arc::new(other.gateway()), rules(), |engine, _| {
            engine.without_claims()
        });
    let ours = elsewhere.authorized("k-3").await.id;
    let simple = ours.simple();
    let id = match town.db.dialect() {
        tashika_store::Dialect::Sqlite => format!("x'{simple}'"),
        tashika_store::Dialect::Postgres => format!("'{ours}'"),
    };
    let gone = format!("update payments set gateway_transaction_id = 'pi_gone' where id = {id}");
    town.db.sql(&gone).await;

    // A person believed that it was given back, and it was not.
    town.world.script(Operation::Cancel, [Fault::DropBefore]);
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    let wrong = shop.authorized("k-4").await.id;
    shop.void(wrong, "v").await.unwrap();
    shop.given_up(wrong).await;
    shop.payments.resolve(wrong, Resolution::Refunded, "they said so", "ayumi").await.unwrap();
    town.world.usually(Operation::Retrieve, Fault::Answer);

    // Somebody captured at the gateway: that is no difference, it is taken over.
    let taken = shop.authorized("k-5").await;
    gateway.capture(charge(&taken), AMOUNT).await;
    compared(&shop).await;
    until("three cases", async || (differences(&shop).await.len() == 3).then_some(())).await;
    let mut found = differences(&shop).await;
    found.sort();
    let mut expected = vec![
        (intent.clone(), "The gateway has a payment of 100 EUR that Tashika does not know.".into()),
        (ours.to_string(), format!("Payment {ours} is AUTHORIZED here and NOT_FOUND at stripe.")),
        (wrong.to_string(), format!("Payment {wrong} is REFUNDED here and AUTHORIZED at stripe.")),
    ];
    expected.sort();
    assert_eq!(found, expected);
    let noted = AuditFilter {
        action: Some("payment.difference_found".to_owned()),
        ..AuditFilter::default()
    };
    let noted = shop.store.audit_logs(&noted, 100).await.unwrap();
    for (subject, _) in &expected {
        assert!(noted.iter().any(|line| line.target_id == *subject), "no line about {subject}");
    }
    assert_eq!(shop.find(taken.id).await.status, Status::Captured);
    for id in same {
        town.agrees(&shop, id).await;
    }
    elsewhere.stop().await;
    shop.stop().await;
}

async fn a_late_charge_is_found_by_comparing_and_given_back(db: TestDb) {
    let town = Town::new(db).await;
    let shop = comparing(&town, "host:1:a").await;
    let mut failed: Vec<Payment> = Vec::new();
    for captured in [false, true] {
        town.world.script(Operation::Confirm, vec![Fault::rate_limited(); 4]);
        let payment = shop.pay(&format!("k-{captured}"), VISA).await;
        let payment = shop.rest(payment.id).await;
        assert_eq!(payment.status, Status::Failed);
        let gateway = town.gateway();
        gateway.authorize(charge(&payment)).await;
        if captured {
            gateway.capture(charge(&payment), AMOUNT).await;
        }
        failed.push(payment);
    }
    for payment in &failed {
        let id = payment.id.to_string();
        until("the money is back", async || {
            (town.world.held(&id) == 0 && town.world.charged(&id) == 0).then_some(())
        })
        .await;
        shop.rest(payment.id).await;
    }
    // The books are compared again: what was given back is neither a difference nor another race.
    let now = Clock::System.now();
    let window = Window { from: now.minus(HOUR), until: now.plus(HOUR) };
    let again = window.effect(now, REMEMBER);
    let id = again.id;
    crate::support::enqueue(&shop.store, [NewEffect { run_at: now, ..again }]).await;
    crate::support::until_settled(&shop.store, id).await;
    for payment in &failed {
        shop.rest(payment.id).await;
        let races = shop.store.races_of(KIND, &payment.id.to_string()).await.unwrap();
        assert_eq!(races.len(), 1);
        town.agrees(&shop, payment.id).await;
    }
    assert_eq!(differences(&shop).await, []);
    shop.stop().await;
}

async fn windows_follow_each_other_and_none_is_compared_twice(db: TestDb) {
    let town = Town::new(db).await;
    let (first, second) = tokio::join!(comparing(&town, "host:1:a"), comparing(&town, "host:2:b"));
    compared(&first).await;
    second.till.schedule_reconciliation(WINDOW).await.unwrap();
    compared(&second).await;
    first.stop().await;
    second.stop().await;
    let rows = town.store.effects(&EffectFilter::default(), 1000).await.unwrap();
    let mut windows: Vec<Timestamp> = rows.iter().filter_map(begins).collect();
    windows.sort();
    assert!(windows.len() >= 3, "{windows:?}");
    for pair in windows.windows(2) {
        assert_eq!(pair[0].plus(WINDOW), pair[1], "no gap and no overlap: {windows:?}");
    }
    let done = rows.iter().filter(|r| r.status == tashika_domain::Status::Succeeded).count();
    assert_eq!(town.world.calls(Operation::List), done, "each was asked for once");
}

/// The effect of a given-up operation is forgotten after its time like any other; what a person needs to
/// decide is in the timeline, and the decision does not need the effect.
async fn pruning_leaves_a_case_with_its_evidence(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(2));
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    let id = shop.pay(KEY, VISA).await.id;
    shop.given_up(id).await;
    let told = shop.store.payment_timeline(id).await.unwrap();
    shop.stop().await;
    let later = Arc::new(engine(&town.store, ahead(REMEMBER + HOUR), "host:3:p"));
    Pruner::new(later).run_once().await.unwrap();

    let shop = town.shop(asks(2));
    assert_eq!(shop.store.payment_timeline(id).await.unwrap(), told);
    assert_eq!(shop.open_cases(id).await.len(), 1);
    let replay = shop.create(KEY, &crate::payments_support::request(VISA)).await.unwrap();
    assert!(replay.replayed, "what is not settled is not forgotten");
    town.world.usually(Operation::Retrieve, Fault::Answer);
    let payment = shop.payments.verify(id, None).await.unwrap();
    assert_eq!(payment.status, Status::Authorized);
    assert_eq!(shop.open_cases(id).await, []);
    shop.stop().await;
}

fn short_lived() -> PaymentRules {
    PaymentRules { authorization_lifetime: Duration::from_millis(50), ..rules() }
}

async fn released(shop: &Shop, town: &Town) {
    let id = shop.authorized(KEY).await.id;
    let what = "the release";
    let payment = shop.until(id, what, |payment| payment.status == Status::Refunded).await;
    assert_eq!((payment.captured_amount, payment.refunded_amount), (0, 0));
    assert_eq!(town.world.held(&id.to_string()), 0);
    town.agrees(shop, id).await;
}

async fn an_authorization_that_nobody_captures_is_released(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(short_lived());
    released(&shop, &town).await;
    assert_eq!(town.world.calls(Operation::Cancel), 1);
    shop.stop().await;
}

/// The timer has rung once and for all; what it asked for must not be forgotten with it.
async fn an_authorization_is_released_even_if_the_gateway_was_busy_at_the_time(db: TestDb) {
    let town = Town::new(db).await;
    town.world.script(Operation::Cancel, vec![Fault::rate_limited(); 6]);
    let shop = town.shop(short_lived());
    released(&shop, &town).await;
    shop.stop().await;
}

async fn a_captured_payment_outlives_the_timer(db: TestDb) {
    let town = Town::new(db).await;
    let shop =
        town.shop(PaymentRules { authorization_lifetime: Duration::from_millis(200), ..rules() });
    let id = shop.captured(KEY).await.id;
    let timer = tashika_testkit::gate::until("the timer", async || {
        let key = id.to_string();
        let kind = tashika_domain::payment::EXPIRY_KIND;
        let row = shop.store.effect_by_key(kind, &key).await.unwrap()?;
        row.status.is_settled().then_some(row)
    })
    .await;
    assert_eq!(timer.status, tashika_domain::Status::Succeeded);
    assert_eq!(shop.find(id).await.status, Status::Captured);
    assert_eq!(town.world.calls(Operation::Cancel), 0);
    shop.stop().await;
}
