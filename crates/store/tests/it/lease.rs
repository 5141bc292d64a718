//! Holding an effect: renew, settle, release, lapse, requeue. Who lost it can write nothing.

use tashika_domain::changes::{Lease, Settle};
use tashika_domain::effect::{NewEffect, Verdict};
use tashika_domain::outcome::Reason;
use tashika_domain::{Lane, Status, Write};
use tashika_store::Lapsed;

use crate::support::*;

on_both!(
    success_settles,
    a_failure_is_counted_and_remembered,
    giving_up_keeps_the_doubt,
    a_settled_effect_is_not_settled_again,
    a_stale_fence_writes_nothing,
    an_effect_that_is_not_held_is_not_settled,
    release_gives_it_back_untouched,
    requeue_takes_only_what_was_given_up,
    requeue_keeps_the_doubt_unless_told,
    renew_moves_the_lease_and_names_the_lost,
    renew_tells_two_leases_of_one_effect_apart,
    a_late_renewal_does_not_undo_a_newer_one,
    exactly_those_before_the_cutoff_have_lapsed,
    who_was_taken_over_can_write_nothing,
    who_came_back_in_time_is_not_taken_over,
);

async fn success_settles(db: Db) {
    let store = db.open().await;
    let held = held(&store, 1).await;
    done(&store, [succeed(held, at(2))]).await;
    let row = row(&store, id(1)).await;
    assert_eq!((row.status, row.attempts, row.in_doubt), (Status::Succeeded, 0, false));
    assert_eq!((row.locked_by, row.locked_at), (None, None));
    assert_eq!((row.updated_at, row.expires_at), (at(2), at(FOREVER)));
    assert_eq!((row.next_run_at, row.fence), (at(0), 1));
}

async fn a_failure_is_counted_and_remembered(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1)]).await;
    for failures in 1..=3_u32 {
        let now = at(i64::from(failures) * 10);
        let held = lease(&claim(&store, now, 1).await[0]);
        let reason = Reason::new(format!("CODE_{failures}"), "確".repeat(600));
        let in_doubt = failures == 2;
        done(&store, [settle(held, Verdict::Retry { run_at: now, reason, in_doubt }, now)]).await;
        let row = row(&store, id(1)).await;
        assert_eq!((row.status, row.attempts), (Status::Failed, failures));
        assert_eq!(row.last_error_code, Some(format!("CODE_{failures}")));
        assert_eq!(row.last_error_msg, Some("確".repeat(512)));
        assert_eq!((row.in_doubt, row.next_run_at, row.updated_at), (in_doubt, now, now));
    }
    let held = lease(&claim(&store, at(100), 1).await[0]);
    done(&store, [succeed(held, at(100))]).await;
    let row = row(&store, id(1)).await;
    assert_eq!((row.status, row.attempts), (Status::Succeeded, 3));
    assert_eq!(row.last_error_code.as_deref(), Some("CODE_3"), "what went wrong stays readable");
}

async fn giving_up_keeps_the_doubt(db: Db) {
    let store = db.open().await;
    for (number, in_doubt) in [(1, true), (2, false)] {
        let held = held(&store, number).await;
        done(&store, [abort(held, in_doubt, at(2))]).await;
        let row = row(&store, id(number)).await;
        assert_eq!((row.status, row.attempts, row.in_doubt), (Status::Aborted, 1, in_doubt));
        assert_eq!(row.last_error_code.as_deref(), Some("BROKER_TIMEOUT"));
        assert_eq!((row.locked_by, row.expires_at), (None, at(FOREVER)));
    }
}

async fn a_settled_effect_is_not_settled_again(db: Db) {
    let store = db.open().await;
    let held = held(&store, 1).await;
    done(&store, [succeed(held, at(2))]).await;
    let before = db.content().await;
    for write in [succeed(held, at(3)), abort(held, false, at(3)), release(held, at(3))] {
        assert_eq!(commit(&store, [write]).await, Said::Stale(id(1)));
    }
    assert_eq!(store.renew(vec![held], at(3)).await.unwrap(), [held]);
    assert_eq!(db.content().await, before);
}

async fn a_stale_fence_writes_nothing(db: Db) {
    let store = db.open().await;
    let held = held(&store, 1).await;
    let before = db.content().await;
    for fence in [0, held.fence - 1, held.fence + 1, -1, i64::MAX] {
        let stale = Lease { fence, ..held };
        for write in [succeed(stale, at(3)), retry(stale, at(9), at(3)), release(stale, at(3))] {
            assert_eq!(commit(&store, [write]).await, Said::Stale(id(1)), "fence {fence}");
        }
        assert_eq!(store.renew(vec![stale], at(3)).await.unwrap(), [stale]);
    }
    assert_eq!(db.content().await, before);
    done(&store, [succeed(held, at(3))]).await;
}

async fn an_effect_that_is_not_held_is_not_settled(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1)]).await;
    let free = Lease { id: id(1), fence: 0 };
    for write in [succeed(free, at(1)), release(free, at(1))] {
        assert_eq!(commit(&store, [write]).await, Said::Stale(id(1)));
    }
    assert_eq!(row(&store, id(1)).await.status, Status::Pending);
}

async fn release_gives_it_back_untouched(db: Db) {
    let store = db.open().await;
    let lease_1 = held(&store, 1).await;
    done(&store, [retry(lease_1, at(2), at(1))]).await;
    let lease_2 = lease(&claim(&store, at(2), 1).await[0]);
    done(&store, [release(lease_2, at(3))]).await;
    let row = row(&store, id(1)).await;
    assert_eq!((row.status, row.attempts), (Status::Pending, 1), "no attempt is burnt");
    assert_eq!(row.last_error_code.as_deref(), Some("BROKER_5XX"));
    assert_eq!((row.next_run_at, row.updated_at), (at(3), at(3)));
    assert_eq!(claim(&store, at(3), 1).await[0].fence, 3);
}

async fn requeue_takes_only_what_was_given_up(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=5).map(effect)).await;
    let claimed = claim(&store, at(1), 4).await;
    let ends = [
        abort(lease(&claimed[0]), false, at(1)),
        succeed(lease(&claimed[1]), at(1)),
        retry(lease(&claimed[2]), at(9), at(1)),
    ];
    done(&store, ends).await;
    for number in 2..=6 {
        let said = commit(&store, [requeue(id(number), true, at(5))]).await;
        assert_eq!(said, Said::Stale(id(number)), "{number}");
    }
    done(&store, [requeue(id(1), true, at(5))]).await;
    let row = row(&store, id(1)).await;
    assert_eq!((row.status, row.attempts, row.fence), (Status::Pending, 0, 1));
    assert_eq!((row.last_error_code, row.last_error_msg), (None, None));
    assert_eq!((row.next_run_at, row.updated_at), (at(5), at(5)));
    assert_eq!(commit(&store, [requeue(id(1), true, at(5))]).await, Said::Stale(id(1)), "twice");
}

async fn requeue_keeps_the_doubt_unless_told(db: Db) {
    let store = db.open().await;
    let cases = [(1, true, false), (2, true, true), (3, false, false), (4, false, true)];
    for (number, in_doubt, without_doubt) in cases {
        let held = held(&store, number).await;
        done(&store, [abort(held, in_doubt, at(2))]).await;
        done(&store, [requeue(held.id, without_doubt, at(100))]).await;
        assert_eq!(row(&store, held.id).await.in_doubt, in_doubt && !without_doubt, "{number}");
    }
    let doubts: Vec<bool> = claim(&store, at(100), 9).await.iter().map(|e| e.in_doubt).collect();
    assert_eq!(doubts, [true, false, false, false]);
}

async fn renew_moves_the_lease_and_names_the_lost(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=4).map(effect)).await;
    let leases: Vec<Lease> = claim(&store, at(1), 9).await.iter().map(lease).collect();
    done(&store, [succeed(leases[1], at(2)), release(leases[2], at(2))]).await;
    assert_eq!(ids(&claim(&store, at(2), 9).await), [id(3)]);
    let unknown = Lease { id: id(99), fence: 1 };
    let asked: Vec<Lease> = leases.iter().copied().chain([unknown]).collect();
    let lost = store.renew(asked, at(60)).await.unwrap();
    assert_eq!(lost, [leases[1], leases[2], unknown]);
    for (number, heard) in [(1, Some(60)), (2, None), (3, Some(2)), (4, Some(60))] {
        assert_eq!(row(&store, id(number)).await.locked_at, heard.map(at), "{number}");
    }
}

/// A process that was asleep may have claimed again what its earlier self still works on.
async fn renew_tells_two_leases_of_one_effect_apart(db: Db) {
    let store = db.open().await;
    let old = held(&store, 1).await;
    done(&store, [retry(old, at(2), at(2))]).await;
    let new = lease(&claim(&store, at(2), 1).await[0]);
    assert_eq!(store.renew(vec![old, new], at(60)).await.unwrap(), [old]);
    assert_eq!(row(&store, id(1)).await.locked_at, Some(at(60)));
}

/// One was held up on its way to the database, and arrives after one that was sent later.
async fn a_late_renewal_does_not_undo_a_newer_one(db: Db) {
    let store = db.open().await;
    let held = held(&store, 1).await;
    for now in [at(60), at(30)] {
        assert_eq!(store.renew(vec![held], now).await.unwrap(), []);
    }
    assert_eq!(row(&store, id(1)).await.locked_at, Some(at(60)));
}

async fn exactly_those_before_the_cutoff_have_lapsed(db: Db) {
    let store = db.open().await;
    for number in 1..=4 {
        enqueue(&store, [effect(number)]).await;
        let worker = format!("host:{number}");
        claim_as(&store, &Lane::ORDERS, &worker, at(number.cast_signed()), 1).await;
    }
    enqueue(&store, [NewEffect { lane: Lane::MAIL, ..effect(5) }, effect(6)]).await;
    claim_as(&store, &Lane::MAIL, "w", at(1), 1).await;
    let lapsed = store.lapsed(&Lane::ORDERS, at(3), 9).await.unwrap();
    let found: Vec<_> =
        lapsed.iter().map(|l| (l.effect.id, l.worker.as_str(), l.locked_at)).collect();
    let expected = [(id(1), "host:1", at(1)), (id(2), "host:2", at(2)), (id(3), "host:3", at(3))];
    assert_eq!(found, expected);
    assert_eq!(lapsed[0].effect.fence, 1);
    assert_eq!(lapsed[0].effect.lane, Lane::ORDERS);
    assert_eq!(store.lapsed(&Lane::ORDERS, at(3), 2).await.unwrap().len(), 2, "the limit");
    assert!(store.lapsed(&Lane::ORDERS, at(0), 9).await.unwrap().is_empty());
    let mut lanes = store.lanes_lapsed(at(3)).await.unwrap();
    lanes.sort();
    assert_eq!(lanes, [Lane::MAIL, Lane::ORDERS]);
    assert_eq!(store.lanes_lapsed(at(0)).await.unwrap(), []);
    store.renew(vec![lease(&lapsed[1].effect)], at(50)).await.unwrap();
    let left = store.lapsed(&Lane::ORDERS, at(3), 9).await.unwrap();
    assert_eq!(left.iter().map(|l| l.effect.id).collect::<Vec<_>>(), [id(1), id(3)]);
}

/// The whole story: a worker sleeps, is taken over, and wakes up with an answer.
async fn who_was_taken_over_can_write_nothing(db: Db) {
    let (sleeper, rescuer) = (db.open().await, db.open().await);
    let old = held(&sleeper, 1).await;
    let lapsed = rescuer.lapsed(&Lane::ORDERS, at(200), 9).await.unwrap().remove(0);
    done(&rescuer, [retry(lease(&lapsed.effect), at(200), at(200))]).await;
    assert_eq!(commit(&sleeper, [succeed(old, at(201))]).await, Said::Stale(id(1)));
    let new = lease(&claim(&rescuer, at(202), 1).await[0]);
    assert!(new.fence > old.fence);
    assert_eq!(commit(&sleeper, [succeed(old, at(203))]).await, Said::Stale(id(1)));
    assert_eq!(sleeper.renew(vec![old], at(203)).await.unwrap(), [old]);
    done(&rescuer, [succeed(new, at(204))]).await;
    assert_eq!(commit(&sleeper, [abort(old, true, at(205))]).await, Said::Stale(id(1)));
    assert_eq!(row(&sleeper, id(1)).await.status, Status::Succeeded);
}

/// A worker was found lapsed and gives a sign of life before it is taken over: it may be sending.
async fn who_came_back_in_time_is_not_taken_over(db: Db) {
    let (sleeper, rescuer) = (db.open().await, db.open().await);
    let held = held(&sleeper, 1).await;
    let take_back = |lapsed: &Lapsed| {
        let reason = Reason::new("LEASE_EXPIRED", "no sign of life");
        Write::Settle(Settle {
            lease: lease(&lapsed.effect),
            verdict: Verdict::Retry { run_at: at(200), reason, in_doubt: true },
            now: at(200),
            expires_at: at(FOREVER),
            unheard_since: Some(lapsed.locked_at),
        })
    };
    let lapsed = rescuer.lapsed(&Lane::ORDERS, at(100), 9).await.unwrap().remove(0);
    assert_eq!(sleeper.renew(vec![held], at(150)).await.unwrap(), []);
    assert_eq!(commit(&rescuer, [take_back(&lapsed)]).await, Said::Stale(id(1)));
    assert_eq!(row(&sleeper, id(1)).await.status, Status::Sending);
    let lapsed = rescuer.lapsed(&Lane::ORDERS, at(300), 9).await.unwrap().remove(0);
    done(&rescuer, [take_back(&lapsed)]).await;
    assert_eq!(row(&sleeper, id(1)).await.status, Status::Failed);
}
