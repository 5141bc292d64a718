//! Handlers that break: whatever they do, the effect ends and the worker lives on.

use serde_json::{Value, json};
use tashika_domain::effect::{Effect, HANDLER_PANICKED, SETTLEMENT_REFUSED};
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::{Changes, Lane, Status};
use tashika_engine::{BoxFuture, Clock, Ending, Handler, Job, Simple, Tried};
use tashika_store::Store;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{
    HOUR, KEY, Rig, claim, effect, engine, enqueue, patience, stop, until_settled, until_succeeded,
};

on_both!(
    a_poison_order_is_given_up_and_the_worker_lives_on,
    a_handler_that_panics_before_its_future_is_given_up,
    a_handler_that_panics_while_settling_is_given_up,
    a_handler_that_panics_over_the_digest_is_given_up,
    a_settlement_that_the_database_refuses_is_given_up,
    a_rescuer_outlives_a_handler_that_panics,
);

async fn a_poison_order_is_given_up_and_the_worker_lives_on(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let poison = || Act::Panic("this order is poison");
    rig.broker.script_for(KEY, [poison(), poison(), poison()]);
    rig.place(KEY).await;
    let running = rig.start(patience(3));

    let row = rig.aborted(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (3, true), "it may have panicked after sending");
    assert_eq!(row.last_error_code.as_deref(), Some(HANDLER_PANICKED));
    assert_eq!(row.last_error_msg.as_deref(), Some("this order is poison"));
    assert_eq!(rig.outcomes(KEY).await, ["lost", "lost", "lost"]);
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Failed, 500));
    assert_eq!(rig.open_cases(KEY).await.len(), 1);

    // More than the lane's concurrency: none of the panics has cost it a place.
    for n in 0..10 {
        let key = format!("healthy-{n}");
        rig.place(&key).await;
        rig.succeeded(&key).await;
    }
    stop(running).await;
}

/// What a handler does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Breaks {
    BeforeItsFuture,
    WhileSettling,
    OverTheDigest,
    WithAReasonThatIsTooLong,
}

struct Broken(Breaks);

impl Handler for Broken {
    fn attempt<'a>(&'a self, _: Job<'a>) -> BoxFuture<'a, Tried> {
        assert!(self.0 != Breaks::BeforeItsFuture, "broken");
        Box::pin(async {
            if self.0 == Breaks::WithAReasonThatIsTooLong {
                let reason = Reason { code: "TOO_LONG".into(), message: "x".repeat(513) };
                return Tried::new(Outcome::Refused(reason));
            }
            Tried::done(Value::Null)
        })
    }

    fn settle(&self, _: &Ending<'_>) -> Changes {
        assert!(self.0 != Breaks::WhileSettling, "broken");
        Changes::new()
    }

    fn request_digest(&self, effect: &Effect) -> Option<String> {
        assert!(self.0 != Breaks::OverTheDigest, "broken");
        effect.digest.clone()
    }
}

/// Runs one poison effect and many healthy ones in a lane with one place.
async fn poisoned(db: TestDb, breaks: Breaks, code: &str) {
    let store: Store = db.open().await;
    let poison = effect(&Lane::TIMERS, "poison", Some("k"), &json!({}));
    let id = poison.id;
    enqueue(&store, [poison]).await;
    let one = tashika_domain::LanePolicy { concurrency: 1, ..patience(2) };
    let running = engine(&store, Clock::System, "host:1:a")
        .lane(Lane::TIMERS, one.clone())
        .lane(Lane::MAIL, one)
        .effect("poison", Broken(breaks))
        .effect("healthy", Simple(|_: &_| Outcome::Done(Value::Null)))
        .start();

    let row = until_settled(&store, id).await;
    assert_eq!((row.status, row.attempts), (Status::Aborted, 2));
    assert_eq!(row.last_error_code.as_deref(), Some(code));
    let outcomes: Vec<String> =
        store.attempts(id).await.unwrap().into_iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, ["lost", "lost"]);

    for lane in [Lane::TIMERS, Lane::MAIL] {
        enqueue(&store, (0..5).map(|_| effect(&lane, "healthy", None, &json!({})))).await;
        until_succeeded(&store, &lane, 5).await;
    }
    stop(running).await;
}

async fn a_handler_that_panics_before_its_future_is_given_up(db: TestDb) {
    poisoned(db, Breaks::BeforeItsFuture, HANDLER_PANICKED).await;
}

async fn a_handler_that_panics_while_settling_is_given_up(db: TestDb) {
    poisoned(db, Breaks::WhileSettling, HANDLER_PANICKED).await;
}

async fn a_handler_that_panics_over_the_digest_is_given_up(db: TestDb) {
    poisoned(db, Breaks::OverTheDigest, HANDLER_PANICKED).await;
}

/// A settlement that the schema refuses would be refused for ever.
async fn a_settlement_that_the_database_refuses_is_given_up(db: TestDb) {
    poisoned(db, Breaks::WithAReasonThatIsTooLong, SETTLEMENT_REFUSED).await;
}

/// Left behind by a dead process: the rescuer asks the handler what to write, and it panics.
async fn a_rescuer_outlives_a_handler_that_panics(db: TestDb) {
    let store = db.open().await;
    let poison = effect(&Lane::ORDERS, "poison", Some("k"), &json!({}));
    let healthy = effect(&Lane::ORDERS, "healthy", None, &json!({}));
    let ids = [poison.id, healthy.id];
    enqueue(&store, [poison, healthy]).await;
    let held = claim(&store, "host:9:dead", Clock::System.now()).await;
    for held in held {
        db.last_heard(held.id, Clock::System.now().minus(HOUR)).await;
    }

    let running = engine(&store, Clock::System, "host:1:a")
        .lane(Lane::ORDERS, patience(2))
        .effect("poison", Broken(Breaks::WhileSettling))
        .effect("healthy", Simple(|_: &_| Outcome::Done(Value::Null)))
        .start();
    assert_eq!(until_settled(&store, ids[0]).await.status, Status::Aborted);
    assert_eq!(until_settled(&store, ids[1]).await.status, Status::Succeeded);
    stop(running).await;
}
