//! `commit`: all of the changes, or none, and an answer that says which.

use tashika_domain::case::{CaseResolution, NewCase};
use tashika_domain::changes::{Lease, LedgerTouch};
use tashika_domain::effect::EffectId;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::{Changes, NewEffect, Status, Write};
use tashika_store::{Key, Store};
use uuid::Uuid;

use crate::support::*;

on_both!(
    changes_are_all_or_nothing,
    the_answer_names_the_first_write_that_lost,
    a_loser_is_named_even_if_a_later_write_is_refused,
    changes_that_collide_with_themselves_fail,
    empty_changes_are_fine,
    writes_are_performed_ledger_first,
    what_is_acknowledged_is_seen_by_another_store,
);

/// One row in every state that a write may meet.
struct World {
    held: Lease,
    stale: Lease,
    aborted: EffectId,
    pending: EffectId,
}

async fn world(store: &Store) -> World {
    let stale = held(store, 1).await;
    done(store, [release(stale, at(1))]).await;
    let held_again = lease(&claim(store, at(2), 1).await[0]);
    let aborted = held(store, 2).await;
    done(store, [abort(aborted, true, at(2))]).await;
    let pending = keyed(3, "taken");
    let pending_id = pending.id;
    enqueue(store, [NewEffect { run_at: at(1000), ..pending }]).await;
    done(store, [Write::LedgerAccept(accept("taken")), Write::LedgerAccept(accept("open"))]).await;
    done(store, [Write::LedgerSettle(ended("ended", LedgerStatus::Failed, at(3)))]).await;
    done(store, [open_case("order 2")]).await;
    World { held: held_again, stale, aborted: aborted.id, pending: pending_id }
}

fn open_case(subject: &str) -> Write {
    Write::OpenCase(NewCase {
        id: Uuid::from_u128(subject.len() as u128),
        kind: "order_unanswered",
        subject_type: "order",
        subject_id: subject.into(),
        summary: "nobody knows".into(),
        actions: vec!["retry"],
        details: "{}".into(),
        now: at(3),
    })
}

fn touch(key: &str) -> LedgerTouch {
    LedgerTouch { key: ledger_key(key), now: at(10) }
}

/// A write of each kind that finds what it expects.
fn good(world: &World) -> Vec<Write> {
    vec![
        Write::LedgerAccept(accept("new")),
        Write::LedgerSettle(ended("open", LedgerStatus::Succeeded, at(10))),
        Write::LedgerReopen(touch("ended")),
        Write::LedgerSeen(touch("taken")),
        Write::Enqueue(keyed(100, "new")),
        succeed(world.held, at(10)),
        requeue(world.aborted, false, at(10)),
        Write::Attempt(attempt(world.held)),
        open_case("order number three"),
        Write::ResolveCase(CaseResolution {
            kind: "order_unanswered",
            subject_id: "order 2".into(),
            action: "retry".into(),
            note: "asked the broker".into(),
            now: at(10),
        }),
    ]
}

/// A write of each kind that does not, and what is said about it.
fn bad(world: &World) -> Vec<(Write, Said)> {
    let mut other_digest = ended("taken", LedgerStatus::Succeeded, at(10));
    other_digest.request_digest = "sha256:other".into();
    vec![
        (Write::LedgerAccept(accept("taken")), Said::Taken(Key::Ledger)),
        (Write::LedgerSettle(other_digest), Said::Taken(Key::Ledger)),
        (Write::Enqueue(keyed(101, "taken")), Said::Taken(Key::Effect)),
        (Write::Enqueue(NewEffect { id: world.pending, ..effect(0) }), Said::Rejected),
        (succeed(world.stale, at(10)), Said::Stale(world.stale.id)),
        (succeed(Lease { id: id(999), fence: 1 }, at(10)), Said::Stale(id(999))),
        (release(world.stale, at(10)), Said::Stale(world.stale.id)),
        (requeue(world.pending, true, at(10)), Said::Stale(world.pending)),
        (refused(world.held), Said::Rejected),
    ]
}

async fn changes_are_all_or_nothing(db: Db) {
    let store = db.open().await;
    let world = world(&store).await;
    let before = db.content().await;
    for (write, expected) in bad(&world) {
        let mut neighbours = good(&world);
        if matches!(write, Write::Settle(_)) {
            // Twice about one effect would be another mistake.
            neighbours.retain(|write| !matches!(write, Write::Settle(_)));
        }
        for position in 0..=neighbours.len() {
            let mut writes = neighbours.clone();
            writes.insert(position, write.clone());
            assert_eq!(commit(&store, writes).await, expected, "{write:?} at {position}");
        }
        assert_eq!(db.content().await, before, "{write:?} left something behind");
        assert_eq!(commit(&store, [write.clone()]).await, expected, "{write:?} alone");
        assert_eq!(db.content().await, before, "{write:?} alone left something behind");
    }
    done(&store, good(&world)).await;
    assert_eq!(row(&store, world.held.id).await.status, Status::Succeeded);
    assert_eq!(row(&store, world.aborted).await.status, Status::Pending);
    assert_eq!(row(&store, id(100)).await.key.as_deref(), Some("new"));
    assert_eq!(store.attempts(world.held.id).await.unwrap().len(), 1);
    assert_eq!(store.cases_of("order", "order number three").await.unwrap().len(), 1);
    let entry = async |key| store.ledger_entry(&ledger_key(key)).await.unwrap().unwrap();
    assert_eq!(entry("new").await.status, LedgerStatus::Accepted);
    assert_eq!(entry("open").await.status, LedgerStatus::Succeeded);
    assert_eq!(entry("ended").await.status, LedgerStatus::Accepted);
    assert_eq!(entry("taken").await.last_seen_at, at(10));
}

async fn the_answer_names_the_first_write_that_lost(db: Db) {
    let store = db.open().await;
    let world = world(&store).await;
    let (ledger, effect, lease) = (
        Write::LedgerAccept(accept("taken")),
        Write::Enqueue(keyed(101, "taken")),
        succeed(world.stale, at(10)),
    );
    let everything = [lease.clone(), effect.clone(), ledger];
    assert_eq!(commit(&store, everything).await, Said::Taken(Key::Ledger));
    assert_eq!(commit(&store, [lease, effect]).await, Said::Taken(Key::Effect));
}

/// A commit whose answer was lost is repeated as it was, with the same ids. The repeat must learn
/// that its key is taken, which is an answer, not that its id is, which is a defect.
async fn a_loser_is_named_even_if_a_later_write_is_refused(db: Db) {
    let store = db.open().await;
    let writes = [Write::LedgerAccept(accept("k")), Write::Enqueue(effect(1))];
    done(&store, writes.clone()).await;
    assert_eq!(commit(&store, writes).await, Said::Taken(Key::Ledger));
}

/// No decision makes such changes on purpose; a list of messages with a key twice might.
async fn changes_that_collide_with_themselves_fail(db: Db) {
    let store = db.open().await;
    let world = world(&store).await;
    let before = db.content().await;
    let twice = |write: Write| [write.clone(), write];
    let collisions = [
        (twice(Write::LedgerAccept(accept("k"))), Said::Taken(Key::Ledger)),
        (
            [Write::Enqueue(keyed(101, "k")), Write::Enqueue(keyed(102, "k"))],
            Said::Taken(Key::Effect),
        ),
        (twice(succeed(world.held, at(10))), Said::Stale(world.held.id)),
        (twice(release(world.held, at(10))), Said::Stale(world.held.id)),
        (twice(requeue(world.aborted, false, at(10))), Said::Stale(world.aborted)),
        ([succeed(world.held, at(10)), release(world.held, at(10))], Said::Stale(world.held.id)),
        (twice(Write::Enqueue(effect(101))), Said::Rejected),
        ([Write::Enqueue(keyed(101, "taken")), Write::Enqueue(effect(101))], Said::Rejected),
    ];
    for (writes, expected) in collisions {
        let neighbour = store.commit(Changes::from(Write::LedgerSeen(touch("taken"))));
        let (result, neighbour) = tokio::join!(store.commit(changes(writes.clone())), neighbour);
        neighbour.unwrap_or_else(|error| panic!("{writes:?} hit its neighbour: {error}"));
        assert_eq!(said(&result), expected, "{writes:?}");
    }
    let after = db.content().await;
    assert_eq!((&before["outbox"], &before["cases"]), (&after["outbox"], &after["cases"]));
    assert_eq!(before["idempo_ledger"].len(), after["idempo_ledger"].len());
}

async fn empty_changes_are_fine(db: Db) {
    db.open().await.commit(Changes::new()).await.unwrap();
}

/// The order in the `Changes` does not matter: an entry is accepted and settled, an effect is
/// enqueued, whatever stands first.
async fn writes_are_performed_ledger_first(db: Db) {
    let store = db.open().await;
    let writes = [
        Write::Enqueue(keyed(1, "k")),
        Write::LedgerSettle(ended("k", LedgerStatus::Succeeded, at(1))),
        Write::LedgerAccept(accept("k")),
    ];
    done(&store, writes).await;
    let entry = store.ledger_entry(&ledger_key("k")).await.unwrap().unwrap();
    assert_eq!((entry.status, entry.first_seen_at), (LedgerStatus::Succeeded, at(0)));
}

async fn what_is_acknowledged_is_seen_by_another_store(db: Db) {
    let (one, two) = (db.open().await, db.open().await);
    enqueue(&one, [effect(1)]).await;
    assert_eq!(row(&two, id(1)).await, row(&one, id(1)).await);
    drop(one);
    drop(two);
    assert_eq!(row(&db.open().await, id(1)).await.status, Status::Pending);
}
