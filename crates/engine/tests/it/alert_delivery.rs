//! People are told over HTTP: signed, in the form that chats take, until it is taken, whatever happens to us.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use tashika_domain::alert::notify::KIND;
use tashika_domain::case::{CaseStatus, DEAD_LETTER, Decision};
use tashika_domain::{Lane, LanePolicy, Status};
use tashika_engine::commands::case::{DeadLetterCases, Desk};
use tashika_engine::{AlertHandler, Clock, Running};
use tashika_providers::sink::Sink;
use tashika_store::{CaseFilter, EffectFilter, EffectRow, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::alert_rig::{START, Tower, after, alert_settings, rule};
use crate::forwarding::{Heard, Worker};
use crate::queue_rig;
use crate::support::{REMEMBER, engine, policy, stop};

on_both!(
    what_was_written_is_told_by_whoever_comes_next,
    what_cannot_be_told_is_a_case_and_can_be_sent_again,
);

const SECRET: &str = "whsec_dGFzaGlrYSBhbGVydHM=";

fn sink(worker: &Worker) -> Arc<Sink> {
    let secret = SecretString::from(SECRET);
    Arc::new(Sink::new(&worker.url, Some(&secret), Duration::from_secs(5)).unwrap())
}

fn start(store: &Store, sink: &Arc<Sink>, policy: LanePolicy) -> Running {
    engine(store, Clock::System, "host:1:b")
        .lane(Lane::EVENTS, policy)
        .effect(KIND, AlertHandler::new(Some(Arc::clone(sink))))
        .start()
}

async fn notifications(store: &Store) -> Vec<EffectRow> {
    let mut rows = store.effects(&EffectFilter::default(), 100).await.unwrap();
    rows.retain(|row| row.kind == KIND);
    rows
}

async fn what_was_written_is_told_by_whoever_comes_next(db: TestDb) {
    let worker = Worker::start(&["500 Oops", "", "204 No Content"]).await;
    let sink = sink(&worker);
    let tower = Tower::with(db.open().await, alert_settings(Some(sink.name())));
    let dead = rule("queue_dead_letters");
    tower.heat(&dead, 3, START).await;
    tower.look(START).await;
    // The process dies between the commit and the first attempt.
    let store = tower.store.clone();
    drop(tower);
    assert_eq!(worker.heard().len(), 0);
    let [row] = &notifications(&store).await[..] else { panic!("one is due") };
    assert_eq!(row.status, Status::Pending);
    let running = start(&store, &sink, policy());
    until("a delivery", async || {
        let rows = notifications(&store).await;
        rows.iter().all(|row| row.status == Status::Succeeded).then_some(())
    })
    .await;
    stop(running).await;
    let heard = worker.heard();
    assert_eq!(heard.len(), 3, "refused, not answered, taken");
    let first = &heard[0];
    for repeat in &heard {
        assert_eq!(repeat.header("webhook-id"), first.header("webhook-id"), "a repeat is known");
        assert_eq!(repeat.body, first.body);
        assert!(repeat.header("webhook-signature").starts_with("v1,"));
    }
    let body: Value = serde_json::from_slice(&first.body).unwrap();
    let text = body["text"].as_str().unwrap();
    assert!(text.starts_with("[WARNING] queue_dead_letters: ") && text.ends_with("(3)"), "{text}");
    assert_eq!(body["attachments"][0]["fields"][0]["value"], "queue_dead_letters");
    assert_eq!(body["metadata"]["event_payload"]["count"], 3);
}

async fn what_cannot_be_told_is_a_case_and_can_be_sent_again(db: TestDb) {
    let worker = Worker::start(&["410 Gone", "204 No Content"]).await;
    let sink = sink(&worker);
    let tower = Tower::with(db.open().await, alert_settings(Some(sink.name())));
    let dead = rule("queue_dead_letters");
    tower.heat(&dead, 1, START).await;
    tower.look(START).await;
    let running = start(&tower.store, &sink, policy());
    let filter = CaseFilter { kind: Some(DEAD_LETTER.into()), ..CaseFilter::default() };
    let case = until("a case", async || tower.store.cases(&filter, 9).await.unwrap().pop()).await;
    assert_eq!((case.subject_type.as_str(), case.status), (KIND, CaseStatus::Open));
    tower.look(after(1)).await;
    assert_eq!(tower.store.case(case.id).await.unwrap().unwrap().status, CaseStatus::Open);

    let queue = queue_rig::messages(&tower.store);
    let (store, clock) = (tower.store.clone(), Clock::System);
    let letters = DeadLetterCases { store, clock, messages: queue, keep: REMEMBER };
    let desk = Desk::new(tower.store.clone(), clock).with(DEAD_LETTER, letters);
    let (_, dossier) = desk.look(case.id).await.unwrap();
    assert_eq!(dossier.choices.iter().map(|c| c.action).collect::<Vec<_>>(), ["requeue", "drop"]);
    assert_eq!(dossier.tried.sent, 1, "{dossier:?}");
    let decision = Decision { action: "requeue".into(), note: String::new(), who: "mika".into() };
    let closed = desk.act(case.id, &decision, &Value::Null).await.unwrap();
    assert_eq!(closed.status, CaseStatus::Resolved);
    let again = desk.act(case.id, &decision, &Value::Null).await.unwrap();
    assert_eq!(again, closed, "a repeat is answered as the first");
    until("a delivery", async || {
        let rows = notifications(&tower.store).await;
        rows.iter().all(|row| row.status == Status::Succeeded).then_some(())
    })
    .await;
    stop(running).await;
    // The case is worth an alert of its own: that one is told, too.
    let about =
        |heard: &Heard| String::from_utf8_lossy(&heard.body).contains("] queue_dead_letters:");
    assert_eq!(worker.heard().iter().filter(|heard| about(heard)).count(), 2);
}
