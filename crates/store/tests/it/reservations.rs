//! Reservations: every column comes back, an index decides who has a slot, and a lock is a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tashika_domain::mail::Locale;
use tashika_domain::payment::RequestKey;
use tashika_domain::race::NewRace;
use tashika_domain::reservation::{Reservation, ReservationRequest, Status};
use tashika_domain::{Changes, Write};
use tashika_store::{
    CommitError, Dialect, Key, RaceFilter, ReservationFilter, SlotLockError, Store,
};
use tashika_testkit::gate::Gate;
use uuid::Uuid;

use crate::support::*;

on_both!(
    every_column_of_a_reservation_comes_back,
    a_slot_has_one_owner,
    many_who_want_one_slot_at_once,
    a_slot_that_is_given_up_can_be_taken_in_the_same_change,
    who_wants_a_slot_back_loses_it_to_its_owner_and_fails_alone,
    a_key_is_used_once,
    a_change_expects_the_version_before_it,
    what_makes_no_sense_is_refused,
    reservations_are_listed_by_day_status_and_user,
    payments_from_before_are_kept,
    races_are_listed_and_counted,
    a_slot_lock_lets_one_in_at_a_time,
    a_slot_lock_is_waited_for_so_long_and_no_longer,
    a_slot_lock_ends_with_its_holder,
);

const DAY: &str = "2026-12-24";

fn uuid(number: u64) -> Uuid {
    id(number).0
}

fn held(number: u64, slot: i64) -> Reservation {
    Reservation {
        id: uuid(number),
        version: 1,
        request: ReservationRequest {
            video_id: 7,
            projection_date: DAY.into(),
            slot_number: slot,
            user_id: format!("u-{}", number % 2),
            user_email: "a@example.com".into(),
            locale: Locale::En,
            amount: 1500,
            currency: "JPY".into(),
        },
        key: RequestKey { key: format!("k-{number}"), digest: "sha256:a".into() },
        status: Status::Hold,
        hold_expires_at: at(900),
        payment_id: None,
        confirmed_at: None,
        expired_at: None,
        cancelled_at: None,
        created_at: at(1),
        updated_at: at(1),
        traceparent: None,
    }
}

fn moved(reservation: &Reservation, status: Status) -> Reservation {
    let mut next = reservation.clone();
    next.version += 1;
    next.status = status;
    match status {
        Status::Hold => {}
        Status::Confirmed => next.confirmed_at = Some(at(5)),
        Status::Expired => next.expired_at = Some(at(6)),
        Status::Cancelled => next.cancelled_at = Some(at(7)),
    }
    next
}

fn insert(reservation: &Reservation) -> Changes {
    Changes::from(Write::ReservationInsert(Box::new(reservation.clone())))
}

fn update(reservation: &Reservation) -> Changes {
    Changes::from(Write::ReservationUpdate(Box::new(reservation.clone())))
}

async fn add(store: &Store, reservation: &Reservation) {
    store.commit(insert(reservation)).await.expect("the slot is free");
}

async fn find(store: &Store, number: u64) -> Reservation {
    store.reservation(uuid(number)).await.unwrap().expect("it is there")
}

async fn every_column_of_a_reservation_comes_back(db: Db) {
    let store = db.open().await;
    let mut first = held(1, 1);
    first.traceparent = Some("00-1-2-01".into());
    first.request.locale = Locale::Ja;
    add(&store, &first).await;
    assert_eq!(find(&store, 1).await, first);
    for (number, status) in Status::ALL.into_iter().enumerate() {
        let number = 10 + number as u64;
        let before = held(number, number.cast_signed());
        add(&store, &before).await;
        let mut after = moved(&before, status);
        after.payment_id = Some(uuid(99));
        store.commit(update(&after)).await.unwrap();
        assert_eq!(find(&store, number).await, after);
        assert_eq!(store.reservation_of_key(&after.key.key).await.unwrap(), Some(after));
    }
    assert_eq!(store.reservation(uuid(77)).await.unwrap(), None);
}

async fn a_slot_has_one_owner(db: Db) {
    let store = db.open().await;
    let (first, second) = (held(1, 3), held(2, 3));
    add(&store, &first).await;
    let lost = store.commit(insert(&second)).await.unwrap_err();
    assert!(matches!(lost, CommitError::Taken(Key::Reservation)), "{lost:?}");
    assert_eq!(store.reservation(second.id).await.unwrap(), None, "nothing was stored");
    assert_eq!(store.reservation_of_slot(DAY, 3).await.unwrap(), Some(first.clone()));
    // Confirmed keeps others away as well; expired and cancelled do not.
    let confirmed = moved(&first, Status::Confirmed);
    store.commit(update(&confirmed)).await.unwrap();
    assert!(store.commit(insert(&second)).await.is_err());
    let cancelled = moved(&confirmed, Status::Cancelled);
    store.commit(update(&cancelled)).await.unwrap();
    add(&store, &second).await;
    store.commit(update(&moved(&second, Status::Expired))).await.unwrap();
    add(&store, &held(3, 3)).await;
    assert_eq!(store.reservations_of_day(DAY).await.unwrap(), [held(3, 3)]);
}

async fn many_who_want_one_slot_at_once(db: Db) {
    let store = db.open().await;
    let other = db.open().await;
    let wishes = (0..200).map(|number| {
        let store = if number % 2 == 0 { store.clone() } else { other.clone() };
        async move { store.commit(insert(&held(number, (number % 5 + 1).cast_signed()))).await }
    });
    let results = join_all(wishes).await;
    let won = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(won, 5);
    for result in results {
        assert!(matches!(result, Ok(()) | Err(CommitError::Taken(Key::Reservation))), "{result:?}");
    }
    assert_eq!(store.reservations_of_day(DAY).await.unwrap().len(), 5);
}

async fn a_slot_that_is_given_up_can_be_taken_in_the_same_change(db: Db) {
    let store = db.open().await;
    let first = held(1, 3);
    add(&store, &first).await;
    // The order in which they are named does not matter: updates come first.
    let expired = moved(&first, Status::Expired);
    let both = insert(&held(2, 3)).with(Write::ReservationUpdate(Box::new(expired)));
    store.commit(both).await.unwrap();
    assert_eq!(store.reservation_of_slot(DAY, 3).await.unwrap(), Some(held(2, 3)));
}

async fn who_wants_a_slot_back_loses_it_to_its_owner_and_fails_alone(db: Db) {
    let store = db.open().await;
    let late = held(1, 3);
    add(&store, &late).await;
    let late = moved(&late, Status::Expired);
    store.commit(update(&late)).await.unwrap();
    add(&store, &held(2, 3)).await;
    let wanted = moved(&late, Status::Confirmed);
    // Together with others, who have nothing to do with it.
    let others: Vec<Reservation> = (10..20).map(|n| held(n, n.cast_signed())).collect();
    let neighbours = join_all(others.iter().map(|other| store.commit(insert(other))));
    let (lost, neighbours) = tokio::join!(store.commit(update(&wanted)), neighbours);
    assert!(matches!(lost, Err(CommitError::Taken(Key::Slot))), "{lost:?}");
    assert!(neighbours.iter().all(Result::is_ok), "{neighbours:?}");
    assert_eq!(find(&store, 1).await, late);
    // When it is free, it may be had again.
    store.commit(update(&moved(&held(2, 3), Status::Cancelled))).await.unwrap();
    store.commit(update(&wanted)).await.unwrap();
    assert_eq!(store.reservation_of_slot(DAY, 3).await.unwrap().unwrap().id, late.id);
}

async fn a_key_is_used_once(db: Db) {
    let store = db.open().await;
    add(&store, &held(1, 1)).await;
    let mut again = held(2, 2);
    again.key.key = "k-1".into();
    let lost = store.commit(insert(&again)).await.unwrap_err();
    assert!(matches!(lost, CommitError::Taken(Key::Reservation)), "{lost:?}");
    // Also when the first is over.
    store.commit(update(&moved(&held(1, 1), Status::Expired))).await.unwrap();
    assert!(store.commit(insert(&again)).await.is_err());
    let mut long = held(3, 3);
    long.key.key = "k".repeat(65);
    assert!(store.commit(insert(&long)).await.is_err());
}

async fn a_change_expects_the_version_before_it(db: Db) {
    let store = db.open().await;
    let first = held(1, 1);
    add(&store, &first).await;
    let both = [moved(&first, Status::Confirmed), moved(&first, Status::Cancelled)];
    let results = join_all(both.iter().map(|next| store.commit(update(next)))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let outdated = |r: &Result<(), CommitError>| matches!(r, Err(CommitError::Outdated { table, .. }) if *table == "reservations");
    assert!(results.iter().any(outdated), "{results:?}");
}

async fn what_makes_no_sense_is_refused(db: Db) {
    let store = db.open().await;
    let spoil: [fn(&mut Reservation); 7] = [
        |r| r.request.slot_number = 0,
        |r| r.request.amount = 0,
        |r| r.request.projection_date = "soon".into(),
        |r| r.status = Status::Confirmed,
        |r| r.status = Status::Expired,
        |r| r.status = Status::Cancelled,
        |r| r.cancelled_at = Some(at(1)),
    ];
    for (number, spoil) in spoil.into_iter().enumerate() {
        let mut bad = held(1, 1);
        spoil(&mut bad);
        assert!(store.commit(insert(&bad)).await.is_err(), "{number}");
    }
    assert_eq!(store.reservation(uuid(1)).await.unwrap(), None);
}

async fn reservations_are_listed_by_day_status_and_user(db: Db) {
    let store = db.open().await;
    for number in 1..=6 {
        let mut reservation = held(number, number.cast_signed());
        if number > 4 {
            reservation.request.projection_date = "2026-12-25".into();
        }
        add(&store, &reservation).await;
    }
    store.commit(update(&moved(&held(2, 2), Status::Confirmed))).await.unwrap();
    let list = async |filter: ReservationFilter, limit| -> Vec<Uuid> {
        let found = store.reservations(&filter, limit).await.unwrap();
        found.into_iter().map(|r| r.id).collect()
    };
    let all = ReservationFilter::default;
    assert_eq!(list(all(), 3).await, [uuid(6), uuid(5), uuid(4)]);
    let before = Some(uuid(4));
    assert_eq!(list(ReservationFilter { before, ..all() }, 9).await, [3, 2, 1].map(uuid));
    let projection_date = Some(DAY.to_owned());
    let user_id = Some("u-0".to_owned());
    let filter = ReservationFilter { projection_date, user_id, ..all() };
    assert_eq!(list(filter, 9).await, [4, 2].map(uuid));
    let status = Some(Status::Confirmed);
    assert_eq!(list(ReservationFilter { status, ..all() }, 9).await, [uuid(2)]);
}

/// The migration makes the table of payments anew on SQLite: nothing may be lost on the way.
async fn payments_from_before_are_kept(db: Db) {
    db.open().await;
    for statement in ["drop table reservations", "drop index race_conditions_scenario"] {
        db.sql(statement).await.unwrap();
    }
    // The table as it was before, with a row in it.
    let (create, migrate) = match db.dialect() {
        Dialect::Sqlite => (
            include_str!("../../migrations/0002_payments.sqlite.sql"),
            include_str!("../../migrations/0007_reservations.sqlite.sql"),
        ),
        Dialect::Postgres => (
            include_str!("../../migrations/0002_payments.pg.sql"),
            include_str!("../../migrations/0007_reservations.pg.sql"),
        ),
    };
    let start = create.find("create table payments (").unwrap();
    let end = start + create[start..].find("create table refunds").unwrap();
    db.sql("drop table payments").await.unwrap();
    for statement in create[start..end].split_inclusive(";\n").filter(|s| s.contains("create")) {
        db.sql(statement).await.unwrap();
    }
    let (key, moment, no) = match db.dialect() {
        Dialect::Sqlite => ("x'0190a000000070008000000000000001'", "1000000", "0"),
        Dialect::Postgres => ("'0190a000-0000-7000-8000-000000000001'", "'epoch'", "false"),
    };
    db.sql(&format!(
        "insert into payments (id, booking_id, user_id, amount, currency, payment_method, capture,
             idempotency_key, request_digest, gateway, created_at, version, status,
             captured_amount, refunded_amount, refunding_amount, operations_in_vain,
             pending_verification, verification_failed, verification_attempts,
             operation_given_up, operation_fenced, updated_at)
         values ({key}, 'b', 'u', 100, 'EUR', 'pm', 'manual', 'k', 'd', 'stripe', {moment}, 4,
             'CAPTURED', 100, 30, 20, 0, {no}, {no}, 0, {no}, {no}, {moment})"
    ))
    .await
    .unwrap();
    for statement in migrate.split_inclusive(";\n") {
        db.sql(statement).await.unwrap();
    }
    let store = db.open().await;
    let kept = store.payments(&tashika_store::PaymentFilter::default(), 9).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].version, kept[0].captured_amount, &kept[0].checkout), (4, 100, &None));
}

async fn races_are_listed_and_counted(db: Db) {
    let store = db.open().await;
    let race = |number: u64, scenario, resolution| NewRace {
        id: uuid(number),
        scenario,
        subject_type: "reservation",
        subject_id: format!("r-{number}"),
        resolution,
        details: "{}".into(),
        now: at(number.cast_signed()),
    };
    for (number, scenario, resolution) in [
        (1, "EXPIRED_AFTER_PAYMENT", "REFUNDED"),
        (2, "SLOT_CONFLICT", "REFUNDED"),
        (3, "SLOT_CONFLICT", "RETRY"),
        (4, "EXPIRED_AFTER_PAYMENT", "REFUNDED"),
    ] {
        let race = race(number, scenario, resolution);
        store.commit(Changes::from(Write::Race(race))).await.unwrap();
    }
    let list = async |filter: RaceFilter, limit| -> Vec<Uuid> {
        store.races(&filter, limit).await.unwrap().into_iter().map(|race| race.id).collect()
    };
    assert_eq!(list(RaceFilter::default(), 2).await, [4, 3].map(uuid));
    let before = Some(uuid(3));
    assert_eq!(list(RaceFilter { before, ..RaceFilter::default() }, 9).await, [2, 1].map(uuid));
    let scenario = Some("SLOT_CONFLICT".to_owned());
    assert_eq!(list(RaceFilter { scenario, ..RaceFilter::default() }, 9).await, [3, 2].map(uuid));
    let subject_id = Some("r-1".to_owned());
    let found = store.races(&RaceFilter { subject_id, ..RaceFilter::default() }, 9).await.unwrap();
    assert_eq!((found.len(), found[0].subject_type.as_str()), (1, "reservation"));
}

async fn a_slot_lock_lets_one_in_at_a_time(db: Db) {
    let store = db.open().await;
    let (inside, most, entered) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let turns = (0..12).map(|_| {
        let (store, inside, most) = (store.clone(), Arc::clone(&inside), Arc::clone(&most));
        let entered = &entered;
        async move {
            let minute = Duration::from_secs(60);
            let turn = store.with_slot_lock_within(DAY, 3, minute, async || {
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                // Something that takes a while: others have every chance to come in.
                store.reservations_of_day(DAY).await.unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
                entered.fetch_add(1, Ordering::SeqCst) + 1
            });
            turn.await.unwrap()
        }
    });
    let mut order = join_all(turns).await;
    order.sort_unstable();
    assert_eq!(order, (1..=12).collect::<Vec<_>>());
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

async fn a_slot_lock_is_waited_for_so_long_and_no_longer(db: Db) {
    let store = db.open().await;
    let (taken, release) = (Gate::closed(), Gate::closed());
    let holder = tokio::spawn({
        let (store, taken, release) = (store.clone(), taken.clone(), release.clone());
        async move {
            store
                .with_slot_lock(DAY, 3, async || {
                    taken.open();
                    release.passed().await;
                })
                .await
        }
    });
    taken.passed().await;
    let short = Duration::from_millis(50);
    let refused = store.with_slot_lock_within(DAY, 3, short, async || unreachable!()).await;
    let refused: SlotLockError = refused.map(|(): ()| ()).unwrap_err();
    assert!(matches!(refused, SlotLockError::Timeout(limit) if limit == short), "{refused:?}");
    // Another slot, and another day, are not concerned.
    store.with_slot_lock(DAY, 4, async || {}).await.unwrap();
    store.with_slot_lock("2026-12-25", 3, async || {}).await.unwrap();
    release.open();
    holder.await.unwrap().unwrap();
    store.with_slot_lock(DAY, 3, async || {}).await.unwrap();
}

async fn a_slot_lock_ends_with_its_holder(db: Db) {
    let store = db.open().await;
    let panicking = tokio::spawn({
        let store = store.clone();
        async move { store.with_slot_lock(DAY, 3, async || panic!("in the middle")).await }
    });
    assert!(panicking.await.is_err());
    let taken = Gate::closed();
    let abandoned = tokio::spawn({
        let (store, taken) = (store.clone(), taken.clone());
        async move {
            let stays = async || {
                taken.open();
                std::future::pending::<()>().await;
            };
            store.with_slot_lock(DAY, 3, stays).await
        }
    });
    taken.passed().await;
    abandoned.abort();
    assert!(abandoned.await.is_err());
    store.with_slot_lock_within(DAY, 3, Duration::from_secs(60), async || {}).await.unwrap();
}
