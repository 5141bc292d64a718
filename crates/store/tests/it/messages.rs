//! `messages` and `message_log`: what is kept, who may change it, and what happens to the effects of messages.

use tashika_domain::changes::{Release, Reschedule, Withdraw};
use tashika_domain::message::{
    Draft, Held, Message, PARKED, State, accept, bury, cancel, release_key,
};
use tashika_domain::{EffectId, Lane, Status, Timestamp, Write};
use tashika_store::{Key, MessageFilter, Store};
use uuid::Uuid;

use crate::message_rig::*;
use crate::support::*;

on_both!(
    a_message_reads_back,
    a_message_reads_back_as_it_ended,
    messages_alike_and_unlike_are_written_together,
    a_line_of_the_log_reads_back,
    a_version_of_a_message_is_written_once,
    a_state_and_its_columns_belong_together,
    an_id_is_taken_once,
    a_key_is_taken_once,
    a_key_taken_at_the_same_moment_is_taken_once,
    a_key_changes_hands_in_one_commit,
    another_time_for_an_effect_that_waits,
    an_effect_is_withdrawn_unless_somebody_has_it,
    an_effect_is_given_back_for_later,
    a_parked_effect_is_not_claimed,
    a_cancelled_message_is_not_claimed,
    lapses_are_counted,
);

const DELIVERIES: Lane = Lane::DELIVERIES;

async fn a_message_reads_back(db: Db) {
    let store = db.open().await;
    let full = draft(1, asked());
    let full = accepted(
        &store,
        Draft { not_before: Some(at(60)), dedup_key: Some("id:確".into()), ..full },
    )
    .await;
    assert_eq!(read(&store, full.id).await, full);
    let (bare, changes) = plain(2);
    let bare = Message { traceparent: None, body: [].into(), ..bare };
    let writes = changes.writes().iter().map(|write| match write {
        Write::MessageInsert(_) => Write::MessageInsert(Box::new(bare.clone())),
        other => other.clone(),
    });
    done(&store, writes.collect::<Vec<_>>()).await;
    assert_eq!(read(&store, bare.id).await, bare);
    assert_eq!(store.message(id(3).0).await.unwrap(), None);
    assert_eq!(store.message_of_key("id:確").await.unwrap(), Some(full));
    assert_eq!(store.message_of_key("id:other").await.unwrap(), None);
}

async fn a_message_reads_back_as_it_ended(db: Db) {
    let store = db.open().await;
    for (number, state) in (1..).zip(State::ALL) {
        let message = accepted(&store, draft(number, asked())).await;
        let after = match state {
            State::Failed => {
                Message { dlq_id: Some("1-1".into()), ..tried(&message, state, number) }
            }
            State::Delivered => tried(&message, state, number),
            state if state.is_over() => over(&message, state, 5),
            state => Message { state, version: 2, due_at: at(77), ..message.clone() },
        };
        assert_eq!(update(&store, &after).await, Said::Done);
        assert_eq!(read(&store, message.id).await, after);
    }
    let counts = store.message_counts().await.unwrap();
    assert_eq!(counts.len(), State::ALL.len());
    assert!(counts.iter().all(|count| count.count == 1));
}

/// A message with nothing but an address, in somebody's hands, and one with all there is.
fn bare_and_full(number: u64) -> [Message; 2] {
    let (bare, _) = plain(number);
    let held = Some(Held { by: "host:1:a".into(), at: at(1) });
    let (full, _) =
        accept(Draft { dedup_key: Some(format!("id:{number}")), ..draft(number + 1, asked()) });
    [Message { held, traceparent: None, ..bare }, full]
}

/// Those of one transaction are one statement on PostgreSQL, which knows a shorter one for the bare ones.
async fn messages_alike_and_unlike_are_written_together(db: Db) {
    let store = db.open().await;
    let [[one, two], [three, four]] = [bare_and_full(1), bare_and_full(3)];
    let [[five, six], [seven, eight]] = [bare_and_full(5), bare_and_full(7)];
    for together in [[&one, &three], [&two, &four], [&five, &six], [&eight, &seven]] {
        let inserts = together.map(|message| Write::MessageInsert(Box::new(message.clone())));
        done(&store, inserts).await;
        for message in together {
            assert_eq!(read(&store, message.id).await, *message);
        }
    }
    let delivered = |message: &Message, number| Message {
        held: None,
        dedup_key: None,
        ..tried(message, State::Delivered, number)
    };
    let failed = |message: &Message, number: u64| Message {
        dlq_id: Some(format!("1-{number}")),
        ..tried(message, State::Failed, number)
    };
    for together in [
        [delivered(&one, 11), delivered(&two, 12)],
        [failed(&three, 13), failed(&four, 14)],
        [delivered(&five, 15), failed(&six, 16)],
        [failed(&eight, 18), delivered(&seven, 17)],
    ] {
        let updates = together.clone().map(|message| Write::MessageUpdate(Box::new(message)));
        done(&store, updates).await;
        for message in &together {
            assert_eq!(read(&store, message.id).await, *message);
        }
    }
}

async fn a_line_of_the_log_reads_back(db: Db) {
    let store = db.open().await;
    let message = accepted(&store, draft(1, asked())).await;
    let full = line(10, message.id);
    let bare =
        tashika_domain::message::LogLine { next_at: None, response: None, ..line(11, message.id) };
    for line in [&full, &bare] {
        done(&store, [Write::MessageLog(Box::new(line.clone()))]).await;
    }
    let found = store.message_log(&MessageFilter::default(), 10).await.unwrap();
    assert_eq!(found, [bare, full], "the newest first");
}

async fn a_version_of_a_message_is_written_once(db: Db) {
    let store = db.open().await;
    let message = accepted(&store, draft(1, asked())).await;
    let next = Message { version: 2, due_at: at(5), ..message.clone() };
    for stale in [message.clone(), Message { version: 3, ..message.clone() }] {
        let beside = Write::Enqueue(effect(9));
        let update = Write::MessageUpdate(Box::new(stale));
        assert_eq!(commit(&store, [beside, update]).await, Said::Outdated("messages"));
    }
    assert_eq!(update(&store, &next).await, Said::Done);
    assert_eq!(update(&store, &next).await, Said::Outdated("messages"));
    assert_eq!(all(&store).await.len(), 1, "nothing beside it was written");
    // Of two who have read the same version, one wins.
    let calls: Vec<_> = (0..16)
        .map(|number| {
            let (store, next) = (store.clone(), next.clone());
            let due_at = at(100 + number);
            let after = Message { version: 3, due_at, ..next };
            tokio::spawn(async move { (due_at, update(&store, &after).await) })
        })
        .collect();
    let mut winners = Vec::new();
    for call in calls {
        match call.await.unwrap() {
            (due_at, Said::Done) => winners.push(due_at),
            (_, said) => assert_eq!(said, Said::Outdated("messages")),
        }
    }
    assert_eq!(winners, [read(&store, message.id).await.due_at]);
}

async fn a_state_and_its_columns_belong_together(db: Db) {
    let store = db.open().await;
    let message = accepted(&store, draft(1, asked())).await;
    for nonsense in [
        Message { ended_at: None, ..over(&message, State::Delivered, 5) },
        Message { ended_at: Some(at(5)), version: 2, ..message.clone() },
        Message { dlq_id: Some("1-1".into()), ..over(&message, State::Cancelled, 5) },
        tried(&message, State::Cancelled, 5),
        Message { ended_at: None, ..tried(&message, State::Ready, 5) },
    ] {
        assert_eq!(update(&store, &nonsense).await, Said::Rejected);
    }
    assert_eq!(read(&store, message.id).await, message);
}

fn keyed_draft(number: u64) -> tashika_domain::message::Draft {
    tashika_domain::message::Draft { dedup_key: Some("id:k".into()), ..draft(number, asked()) }
}

/// Without a key nobody looks whether something is there: it is refused, and takes nobody along.
async fn an_id_is_taken_once(db: Db) {
    let store = db.open().await;
    let first = accepted(&store, draft(1, asked())).await;
    let again = Message { version: 7, ..first.clone() };
    let (other, changes) = plain(2);
    let twice = [Write::MessageInsert(Box::new(again))];
    let (refused, taken) = tokio::join!(commit(&store, twice), store.commit(changes));
    assert_eq!(refused, Said::Rejected);
    taken.unwrap();
    assert_eq!(read(&store, first.id).await, first);
    assert_eq!(read(&store, other.id).await, other);
}

async fn a_key_is_taken_once(db: Db) {
    let store = db.open().await;
    let first = accepted(&store, keyed_draft(1)).await;
    let (_, second) = accept(keyed_draft(2));
    let (_, other) = plain(3);
    let mut both = other.clone();
    both.extend(second);
    let refused = store.commit(both).await;
    assert_eq!(said(&refused), Said::Taken(Key::Message));
    assert_eq!(all(&store).await.len(), 1, "neither of the two");
    assert_eq!(store.message_of_key("id:k").await.unwrap().map(|m| m.id), Some(first.id));
    store.commit(other).await.unwrap();
}

async fn a_key_taken_at_the_same_moment_is_taken_once(db: Db) {
    let (one, two) = (db.open().await, db.open().await);
    let calls: Vec<_> = (0..32)
        .map(|number| {
            let store = if number % 2 == 0 { one.clone() } else { two.clone() };
            let (_, changes) = accept(keyed_draft(number));
            tokio::spawn(async move { said(&store.commit(changes).await) })
        })
        .collect();
    let mut won = 0;
    for call in calls {
        match call.await.unwrap() {
            Said::Done => won += 1,
            said => assert_eq!(said, Said::Taken(Key::Message)),
        }
    }
    let kept = one.messages(&MessageFilter::default(), 100).await.unwrap();
    assert_eq!((won, kept.len(), all(&one).await.len()), (1, 1, 1));
}

async fn a_key_changes_hands_in_one_commit(db: Db) {
    let store = db.open().await;
    let first = accepted(&store, keyed_draft(1)).await;
    let (second, mut changes) = accept(keyed_draft(2));
    // Whatever stands first in the changes, the old owner lets go before the new one takes it.
    changes.push(release_key(&first));
    store.commit(changes).await.unwrap();
    assert_eq!(read(&store, first.id).await.dedup_key, None);
    assert_eq!(store.message_of_key("id:k").await.unwrap(), Some(second));
    // Whoever decided with the old owner in mind comes too late.
    let (_, mut late) = accept(keyed_draft(3));
    late.push(release_key(&first));
    assert_eq!(said(&store.commit(late).await), Said::Outdated("messages"));
}

fn reschedule(id: EffectId, run_at: Timestamp) -> Write {
    Write::Reschedule(Reschedule { id, lane: DELIVERIES, run_at })
}

async fn take(store: &Store, now: Timestamp) -> Vec<tashika_domain::Effect> {
    claim_as(store, &DELIVERIES, "host:1:a", now, 10).await
}

async fn another_time_for_an_effect_that_waits(db: Db) {
    let store = db.open().await;
    let (message, changes) = plain(1);
    store.commit(changes).await.unwrap();
    let id = EffectId(message.id);
    done(&store, [reschedule(id, at(50))]).await;
    assert!(take(&store, at(49)).await.is_empty());
    let claimed = take(&store, at(50)).await;
    assert_eq!(claimed.len(), 1);
    let before = row(&store, id).await;
    assert_eq!(commit(&store, [reschedule(id, at(60))]).await, Said::Stale(id), "in our hands");
    assert_eq!(row(&store, id).await, before);
    done(&store, [retry(lease(&claimed[0]), PARKED, at(51))]).await;
    done(&store, [reschedule(id, at(52))]).await;
    let again = take(&store, at(52)).await;
    assert_eq!((again.len(), again[0].attempts, again[0].fence), (1, 1, 2));
    done(&store, [succeed(lease(&again[0]), at(53))]).await;
    assert_eq!(commit(&store, [reschedule(id, at(60))]).await, Said::Stale(id), "over");
    let unknown = EffectId(Uuid::from_u128(5));
    assert_eq!(commit(&store, [reschedule(unknown, at(60))]).await, Said::Stale(unknown));
}

async fn an_effect_is_withdrawn_unless_somebody_has_it(db: Db) {
    let store = db.open().await;
    let withdraw = |id| Write::Withdraw(Withdraw { id, now: at(9), code: "CANCELLED" });
    let mut effects = Vec::new();
    for number in 1..=4 {
        let (message, changes) = plain(number);
        store.commit(changes).await.unwrap();
        effects.push(EffectId(message.id));
    }
    let claimed = claim_as(&store, &DELIVERIES, "host:1:a", at(1), 3).await;
    done(&store, [retry(lease(&claimed[1]), at(99), at(2))]).await;
    done(&store, [succeed(lease(&claimed[2]), at(2))]).await;
    done(&store, effects.iter().map(|id| withdraw(*id))).await;
    done(&store, [withdraw(EffectId(Uuid::from_u128(5)))]).await;
    let mut statuses = Vec::new();
    for id in &effects {
        statuses.push(row(&store, *id).await.status);
    }
    let [sending, aborted] = [Status::Sending, Status::Aborted];
    assert_eq!(statuses, [sending, aborted, Status::Succeeded, aborted]);
    assert_eq!(row(&store, effects[3]).await.last_error_code.as_deref(), Some("CANCELLED"));
    // It is still the worker's to settle, once.
    done(&store, [abort(lease(&claimed[0]), false, at(10))]).await;
    assert_eq!(row(&store, effects[0]).await.status, Status::Aborted);
}

async fn an_effect_is_given_back_for_later(db: Db) {
    let store = db.open().await;
    let (message, changes) = plain(1);
    store.commit(changes).await.unwrap();
    let claimed = take(&store, at(1)).await;
    let lease = lease(&claimed[0]);
    let release = || Write::Release(Release { lease, now: at(2), run_at: at(30) });
    done(&store, [release()]).await;
    let id = EffectId(message.id);
    assert_eq!(commit(&store, [release()]).await, Said::Stale(id));
    let given_back = row(&store, id).await;
    assert_eq!((given_back.status, given_back.attempts), (Status::Pending, 0));
    assert!(take(&store, at(29)).await.is_empty());
    assert_eq!(take(&store, at(30)).await[0].fence, 2);
}

async fn a_parked_effect_is_not_claimed(db: Db) {
    let store = db.open().await;
    let message = accepted(&store, draft(1, asked())).await;
    assert_eq!(message.state, State::Queued);
    assert_eq!(row(&store, EffectId(message.id)).await.next_run_at, PARKED);
    let century = at(100 * 365 * 86_400);
    assert!(take(&store, century).await.is_empty());
    done(&store, [reschedule(EffectId(message.id), at(5))]).await;
    assert_eq!(take(&store, at(5)).await.len(), 1);
}

async fn a_cancelled_message_is_not_claimed(db: Db) {
    let store = db.open().await;
    let (message, changes) = plain(1);
    store.commit(changes).await.unwrap();
    let changes = cancel(&message, at(3)).expect("it waits");
    store.commit(changes.clone()).await.unwrap();
    assert!(take(&store, at(10)).await.is_empty());
    let after = read(&store, message.id).await;
    assert_eq!((after.state, after.ended_at), (State::Cancelled, Some(at(3))));
    assert_eq!(said(&store.commit(changes).await), Said::Outdated("messages"));
    let (_, letter) = plain(2);
    store.commit(letter).await.unwrap();
    let letter = dead(&plain(2).0, 5, 500);
    assert_eq!(update(&store, &letter).await, Said::Done);
    store.commit(bury(&letter)).await.unwrap();
    assert_eq!(store.dead_letters().await.unwrap(), (0, None));
}

async fn lapses_are_counted(db: Db) {
    use tashika_domain::message::Logged;
    let store = db.open().await;
    let (one, other) = (id(1).0, id(2).0);
    for (number, what) in (10..).zip(Logged::ALL.into_iter().chain([Logged::Lapsed])) {
        let line = tashika_domain::message::LogLine { what, ..line(number, one) };
        done(&store, [Write::MessageLog(Box::new(line))]).await;
    }
    assert_eq!(store.lapses(one).await.unwrap(), 2);
    assert_eq!(store.lapses(other).await.unwrap(), 0);
}
