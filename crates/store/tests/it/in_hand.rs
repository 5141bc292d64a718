//! Messages that carry their lease themselves: an effect that has no row until it needs one.

use tashika_domain::changes::{Lease, LetGo, Release, Settle};
use tashika_domain::effect::{self, Effect, FIRST_FENCE, Verdict};
use tashika_domain::message::{Begin, Draft, Event, Held, Message, State, cancel};
use tashika_domain::outcome::Reason;
use tashika_domain::{Lane, Status, Write};
use tashika_store::{EffectCount, EffectFilter, Store};

use crate::message_rig::*;
use crate::support::*;

on_both!(
    a_message_in_hand_is_an_effect_without_a_row,
    nobody_claims_what_is_in_hand,
    renewing_moves_the_lease,
    a_late_renewal_does_not_undo_a_newer_one,
    another_lease_is_not_renewed,
    exactly_those_before_the_cutoff_have_lapsed,
    who_came_back_in_time_is_not_taken_over,
    success_leaves_no_row,
    a_failure_writes_the_row_and_its_end_at_once,
    giving_back_makes_an_effect_that_waits,
    only_what_is_in_hand_can_be_let_go,
    who_cancels_leaves_it_in_the_hands_it_is_in,
    half_a_lease_is_refused,
);

const WORKER: &str = "host:1:a";

/// A message in the hands of a worker since its creation.
async fn held(store: &Store, number: u64) -> (Message, Effect) {
    let (message, _) = plain(number);
    let draft =
        Draft { begin: Begin::InHand(WORKER.into()), ..draft(number, (*message.asked).clone()) };
    let message = accepted(store, draft).await;
    let effect = message.in_hand().expect("it is in hand");
    (message, effect)
}

const fn lease_of(effect: &Effect) -> Lease {
    Lease { id: effect.id, fence: effect.fence }
}

async fn rows(db: &Db) -> i64 {
    db.number("select count(*) from outbox").await
}

async fn a_message_in_hand_is_an_effect_without_a_row(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    assert_eq!(rows(&db).await, 0);
    assert!(!effect.has_row);
    assert_eq!(read(&store, message.id).await, message);
    assert_eq!(message.held, Some(Held { by: WORKER.into(), at: message.created_at }));
    let seen = row(&store, effect.id).await;
    assert_eq!((seen.status, seen.fence, seen.attempts), (Status::Sending, FIRST_FENCE, 0));
    assert_eq!((seen.lane.clone(), seen.kind.as_str()), (Lane::DELIVERIES, "message"));
    assert_eq!(seen.locked_by.as_deref(), Some(WORKER));
    assert_eq!(seen.locked_at, Some(message.created_at));
    assert_eq!(store.effects(&EffectFilter::default(), 10).await.unwrap(), [seen]);
    let sending = EffectCount { lane: Lane::DELIVERIES, status: Status::Sending, count: 1 };
    assert_eq!(store.effect_counts().await.unwrap(), [sending]);
    assert_eq!(store.sending_count(&Lane::DELIVERIES).await.unwrap(), 1);
}

async fn nobody_claims_what_is_in_hand(db: Db) {
    let store = db.open().await;
    held(&store, 1).await;
    let claim = tashika_store::Claim {
        lane: &Lane::DELIVERIES,
        worker: "host:2:b",
        now: at(FOREVER),
        limit: 10,
    };
    assert_eq!(store.claim(claim).await.unwrap(), []);
}

async fn renewing_moves_the_lease(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    assert_eq!(store.renew(vec![lease_of(&effect)], at(5)).await.unwrap(), []);
    let after = read(&store, message.id).await;
    assert_eq!(after.held, Some(Held { by: WORKER.into(), at: at(5) }));
    assert_eq!(after.version, message.version + 1, "whoever has decided before decides again");
}

async fn a_late_renewal_does_not_undo_a_newer_one(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    for now in [at(9), at(5)] {
        assert_eq!(store.renew(vec![lease_of(&effect)], now).await.unwrap(), []);
    }
    assert_eq!(read(&store, message.id).await.held.map(|held| held.at), Some(at(9)));
}

async fn another_lease_is_not_renewed(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    let (other, _) = held(&store, 2).await;
    let later = Lease { fence: FIRST_FENCE + 1, ..lease_of(&effect) };
    assert_eq!(store.renew(vec![later], at(5)).await.unwrap(), [later]);
    assert_eq!(read(&store, message.id).await, message);
    let let_go = commit(&store, [Write::LetGo(LetGo { id: effect.id, unheard_since: None })]).await;
    assert_eq!(let_go, Said::Done);
    assert_eq!(store.renew(vec![lease_of(&effect)], at(5)).await.unwrap(), [lease_of(&effect)]);
    assert_eq!(read(&store, other.id).await, other);
}

async fn exactly_those_before_the_cutoff_have_lapsed(db: Db) {
    let store = db.open().await;
    let (early, effect) = held(&store, 1).await;
    let (late, _) = held(&store, 2000).await;
    for (cutoff, expected) in [(millis(0), 0), (early.created_at, 1), (late.created_at, 2)] {
        let found = store.lapsed(&Lane::DELIVERIES, cutoff, 10).await.unwrap();
        assert_eq!(found.len(), expected, "until {cutoff:?}");
    }
    assert_eq!(store.lapsed(&Lane::DELIVERIES, at(FOREVER), 1).await.unwrap().len(), 1);
    assert!(store.lapsed(&Lane::ORDERS, at(FOREVER), 10).await.unwrap().is_empty());
    let lapsed = store.lapsed(&Lane::DELIVERIES, early.created_at, 10).await.unwrap().remove(0);
    assert_eq!((lapsed.effect, lapsed.worker.as_str()), (effect, WORKER));
    assert_eq!(lapsed.locked_at, early.created_at);
    assert_eq!(store.lanes_lapsed(early.created_at).await.unwrap(), [Lane::DELIVERIES]);
    assert_eq!(store.lanes_lapsed(millis(0)).await.unwrap(), []);
}

async fn who_came_back_in_time_is_not_taken_over(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    assert_eq!(store.renew(vec![lease_of(&effect)], at(5)).await.unwrap(), []);
    assert_eq!(update(&store, &message.after(Event::Retry)).await, Said::Outdated("messages"));
    let unheard = |since| Write::LetGo(LetGo { id: effect.id, unheard_since: Some(since) });
    assert_eq!(commit(&store, [unheard(at(4))]).await, Said::Stale(effect.id));
    let found = read(&store, message.id).await;
    assert_eq!(found.held.map(|held| held.at), Some(at(5)));
    assert_eq!(commit(&store, [unheard(at(5))]).await, Said::Done);
}

fn end(effect: &Effect, verdict: Verdict) -> tashika_domain::Changes {
    let (now, expires_at, lease) = (at(3), at(FOREVER), lease_of(effect));
    effect::end(effect, WORKER, Settle { lease, verdict, now, expires_at, unheard_since: None })
}

async fn success_leaves_no_row(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    let after = Message { ended_at: Some(at(3)), ..message.after(Event::Deliver) };
    let mut changes = end(&effect, Verdict::Succeeded);
    changes.push(Write::MessageUpdate(Box::new(after.clone())));
    store.commit(changes).await.unwrap();
    assert_eq!(rows(&db).await, 0);
    assert_eq!(store.effect(effect.id).await.unwrap(), None);
    let found = read(&store, message.id).await;
    assert_eq!((found.state, &found.held), (State::Delivered, &None));
    assert_eq!(found, after);
}

async fn a_failure_writes_the_row_and_its_end_at_once(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    let reason = Reason::new("DESTINATION_DOWN", "nobody there");
    let mut changes = end(&effect, Verdict::Retry { run_at: at(9), reason, in_doubt: true });
    changes.push(Write::MessageUpdate(Box::new(message.after(Event::Retry))));
    store.commit(changes.clone()).await.unwrap();
    let seen = row(&store, effect.id).await;
    assert_eq!((seen.status, seen.attempts, seen.in_doubt), (Status::Failed, 1, true));
    assert_eq!((seen.fence, seen.locked_by), (FIRST_FENCE, None));
    assert_eq!((seen.next_run_at, seen.created_at), (at(9), message.created_at));
    assert_eq!(read(&store, message.id).await.held, None);
    let before = db.content().await;
    assert!(store.commit(changes).await.is_err(), "once");
    assert_eq!(db.content().await, before);
}

async fn giving_back_makes_an_effect_that_waits(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    let release = Release { lease: lease_of(&effect), now: at(3), run_at: at(4) };
    let back = effect::give_back(&effect, release, at(FOREVER));
    store.commit(back.clone()).await.unwrap();
    let seen = row(&store, effect.id).await;
    assert_eq!((seen.status, seen.attempts), (Status::Pending, 0));
    assert_eq!(seen.fence, FIRST_FENCE, "the next claim gets another");
    assert_eq!((seen.next_run_at, seen.locked_by), (at(4), None));
    let found = read(&store, message.id).await;
    assert_eq!((found.state, found.held), (State::Ready, None));
    let before = db.content().await;
    assert!(store.commit(back).await.is_err(), "once");
    assert_eq!(db.content().await, before);
}

async fn only_what_is_in_hand_can_be_let_go(db: Db) {
    let store = db.open().await;
    let (_, effect) = held(&store, 1).await;
    let waiting = accepted(&store, draft(2, asked())).await;
    let let_go = |id| Write::LetGo(LetGo { id, unheard_since: None });
    let other = tashika_domain::effect::EffectId(waiting.id);
    assert_eq!(commit(&store, [let_go(other)]).await, Said::Stale(other));
    assert_eq!(commit(&store, [let_go(id(99))]).await, Said::Stale(id(99)));
    assert_eq!(commit(&store, [let_go(effect.id)]).await, Said::Done);
    assert_eq!(commit(&store, [let_go(effect.id)]).await, Said::Stale(effect.id));
}

async fn who_cancels_leaves_it_in_the_hands_it_is_in(db: Db) {
    let store = db.open().await;
    let (message, effect) = held(&store, 1).await;
    store.commit(cancel(&message, at(2)).expect("it has not ended")).await.unwrap();
    let found = read(&store, message.id).await;
    assert_eq!((found.state, found.held), (State::Cancelled, message.held));
    assert_eq!(row(&store, effect.id).await.status, Status::Sending);
    assert_eq!(store.lapsed(&Lane::DELIVERIES, at(5), 10).await.unwrap().len(), 1);
}

async fn half_a_lease_is_refused(db: Db) {
    let store = db.open().await;
    let (message, _) = held(&store, 1).await;
    for half in ["held_by = null", "held_at = null"] {
        let sql = format!("update messages set {half}");
        assert!(db.sql(&sql).await.is_err(), "{half}");
    }
    assert_eq!(read(&store, message.id).await, message);
}
