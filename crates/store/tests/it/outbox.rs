//! `outbox`: effects as they are born, read, and removed.

use tashika_domain::changes::Lease;
use tashika_domain::effect::NewEffect;
use tashika_domain::{Lane, Status, Timestamp, Write};
use tashika_store::{EffectCount, EffectFilter, EffectRow, Key, Store};

use crate::support::*;

on_both!(
    an_effect_reads_back_as_it_was_written,
    a_key_is_enqueued_once_per_kind,
    effects_without_a_key_do_not_collide,
    a_key_is_reusable_when_its_effect_is_settled_and_over,
    a_reused_key_starts_from_nothing,
    the_same_id_is_refused,
    the_schema_holds_its_promises,
    effects_are_listed_newest_first_in_pages,
    effects_are_counted,
    every_read_works_on_an_empty_database,
    pruning_removes_what_is_settled_and_over,
    pruning_walks_the_table_once,
    attempts_go_with_their_effect,
);

const TAKEN: Said = Said::Taken(Key::Effect);

async fn an_effect_reads_back_as_it_was_written(db: Db) {
    let store = db.open().await;
    let new = NewEffect {
        id: id(1),
        lane: Lane::parse("invoices_2").unwrap(),
        kind: "invoice".into(),
        key: Some("確か'\"\\".into()),
        digest: Some("sha256:abc".into()),
        payload: r#"{"amount": "1.10", "list": [1, 2], "text": "確か"}"#.into(),
        run_at: Timestamp::from_micros(1_700_000_000_000_001),
        created_at: Timestamp::from_micros(1_699_999_999_999_999),
        expires_at: at(FOREVER),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        held_by: None,
    };
    enqueue(&store, [new.clone()]).await;
    let expected = EffectRow {
        id: new.id,
        lane: new.lane.clone(),
        kind: new.kind.clone(),
        key: new.key.clone(),
        digest: new.digest.clone(),
        status: Status::Pending,
        attempts: 0,
        in_doubt: false,
        last_error_code: None,
        last_error_msg: None,
        locked_by: None,
        locked_at: None,
        fence: 0,
        next_run_at: new.run_at,
        created_at: new.created_at,
        updated_at: new.created_at,
        expires_at: new.expires_at,
    };
    assert_eq!(row(&store, id(1)).await, expected);
    assert_eq!(store.effect_by_key("invoice", "確か'\"\\").await.unwrap(), Some(expected));
    assert_eq!(store.effect_by_key("order", "確か'\"\\").await.unwrap(), None);
    assert_eq!(json(&store.payload(id(1)).await.unwrap().unwrap()), json(&new.payload));

    let claimed = claim_as(&store, &new.lane, "w", at(1), 1).await.remove(0);
    assert_eq!(json(&claimed.payload), json(&new.payload));
    assert_eq!((claimed.id, claimed.lane, claimed.kind), (new.id, new.lane, new.kind));
    assert_eq!((claimed.key, claimed.digest), (new.key, new.digest));
    assert_eq!((claimed.created_at, claimed.run_at), (new.created_at, new.run_at));
    assert_eq!(claimed.traceparent, new.traceparent);
    assert_eq!((claimed.attempts, claimed.in_doubt, claimed.fence), (0, false, 1));
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

async fn a_key_is_enqueued_once_per_kind(db: Db) {
    let store = db.open().await;
    enqueue(&store, [keyed(1, "k")]).await;
    let first = row(&store, id(1)).await;
    let other_lane = NewEffect { lane: Lane::MAIL, ..keyed(2, "k") };
    assert_eq!(commit(&store, [Write::Enqueue(keyed(2, "k"))]).await, TAKEN);
    assert_eq!(commit(&store, [Write::Enqueue(other_lane)]).await, TAKEN);
    let other_kind = NewEffect { kind: "mail".into(), ..keyed(3, "k") };
    enqueue(&store, [other_kind]).await;
    assert_eq!(row(&store, id(1)).await, first);
    assert_eq!(all(&store).await.len(), 2);
}

async fn effects_without_a_key_do_not_collide(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=3).map(effect)).await;
    assert_eq!(all(&store).await.len(), 3);
}

/// Leaves an effect with the key `k` in a status; it is over at 100.
async fn leave(store: &Store, status: Status) {
    enqueue(store, [NewEffect { expires_at: at(100), ..keyed(1, "k") }]).await;
    if status == Status::Pending {
        return;
    }
    let held = lease(&claim(store, at(1), 1).await[0]);
    let mut end = match status {
        Status::Succeeded => succeed(held, at(1)),
        Status::Failed => retry(held, at(50), at(1)),
        Status::Aborted => abort(held, true, at(1)),
        Status::Pending | Status::Sending => return,
    };
    if let Write::Settle(end) = &mut end {
        end.expires_at = at(100);
    }
    done(store, [end, Write::Attempt(attempt(held))]).await;
}

fn second(created: Timestamp) -> Write {
    Write::Enqueue(NewEffect {
        created_at: created,
        run_at: created,
        payload: r#"{"second":true}"#.into(),
        lane: Lane::MAIL,
        ..keyed(2, "k")
    })
}

async fn a_key_is_reusable_when_its_effect_is_settled_and_over(db: Db) {
    let store = db.open().await;
    for status in Status::ALL {
        leave(&store, status).await;
        assert_eq!(row(&store, id(1)).await.status, status);
        assert_eq!(commit(&store, [second(millis(100_000 - 1))]).await, TAKEN, "{status:?}");
        let expected = if status.is_settled() { Said::Done } else { TAKEN };
        assert_eq!(commit(&store, [second(at(100))]).await, expected, "{status:?}");
        assert_eq!(all(&store).await.len(), 1, "{status:?}");
        db.sql("delete from outbox").await.unwrap();
    }
}

async fn a_reused_key_starts_from_nothing(db: Db) {
    let store = db.open().await;
    leave(&store, Status::Aborted).await;
    done(&store, [second(at(100))]).await;
    assert_eq!(store.effect(id(1)).await.unwrap(), None);
    let reused = row(&store, id(2)).await;
    assert_eq!((reused.status, reused.lane), (Status::Pending, Lane::MAIL));
    assert_eq!((reused.attempts, reused.in_doubt, reused.fence), (0, false, 0));
    assert_eq!((reused.last_error_code, reused.last_error_msg), (None, None));
    assert_eq!((reused.created_at, reused.next_run_at), (at(100), at(100)));
    assert_eq!((reused.updated_at, reused.expires_at), (at(100), at(FOREVER)));
    assert_eq!(store.attempts(id(2)).await.unwrap(), []);
    assert_eq!(claim_as(&store, &Lane::MAIL, "w", at(100), 9).await[0].fence, 1);
}

async fn the_same_id_is_refused(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1)]).await;
    assert_eq!(commit(&store, [Write::Enqueue(effect(1))]).await, Said::Rejected);
    // With a key it is the repeat of a commit, and that is an answer.
    enqueue(&store, [keyed(2, "k")]).await;
    assert_eq!(commit(&store, [Write::Enqueue(keyed(2, "k"))]).await, TAKEN);
}

async fn the_schema_holds_its_promises(db: Db) {
    let store = db.open().await;
    let held = held(&store, 1).await;
    enqueue(&store, [effect(2)]).await;
    let before = db.content().await;
    let long = "x".repeat(513);
    let one = db.pick("id = (select min(id) from outbox)", "status = 'sending'");
    for broken in [
        format!("update outbox set status = 'sent' where {one}"),
        format!("update outbox set status = 'pending' where {one}"),
        format!("update outbox set locked_by = null, locked_at = null where {one}"),
        format!("update outbox set locked_by = null where {one}"),
        format!("update outbox set locked_at = null where {one}"),
        "update outbox set status = 'sending' where status = 'pending'".into(),
        "update outbox set locked_by = 'w' where status = 'pending'".into(),
        format!("update outbox set last_error_msg = '{long}'"),
        "update outbox set next_run_at = null".into(),
        "update outbox set idempotency_key = 'k'".into(),
        "update outbox set id = (select min(cast(id as text)) from outbox)".into(),
    ] {
        db.sql(&broken).await.expect_err(&broken);
    }
    assert_eq!(db.content().await, before);
    let message = "確".repeat(512);
    db.sql(&format!("update outbox set last_error_msg = '{message}'")).await.unwrap();
    assert_eq!(row(&store, held.id).await.last_error_msg, Some(message), "characters, not bytes");
}

async fn effects_are_listed_newest_first_in_pages(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=5).map(effect)).await;
    let mail = NewEffect { lane: Lane::MAIL, kind: "mail".into(), ..effect(6) };
    enqueue(&store, [mail]).await;
    claim(&store, at(1), 2).await;
    let list = async |filter: EffectFilter, limit| -> Vec<_> {
        store.effects(&filter, limit).await.unwrap().iter().map(|row| row.id).collect()
    };
    let any = EffectFilter::default;
    assert_eq!(list(any(), 3).await, [id(6), id(5), id(4)]);
    assert_eq!(list(EffectFilter { before: Some(id(4)), ..any() }, 9).await, [3, 2, 1].map(id));
    let orders = EffectFilter { lane: Some(Lane::ORDERS), ..any() };
    assert_eq!(list(orders, 9).await, [5, 4, 3, 2, 1].map(id));
    assert_eq!(list(EffectFilter { kind: Some("mail".into()), ..any() }, 9).await, [id(6)]);
    let sending = EffectFilter { status: Some(Status::Sending), ..any() };
    assert_eq!(list(sending, 9).await, [id(2), id(1)]);
    let exactly = EffectFilter {
        lane: Some(Lane::ORDERS),
        status: Some(Status::Pending),
        kind: Some("order".into()),
        before: Some(id(5)),
        error_code: None,
        since: None,
    };
    assert_eq!(list(exactly, 1).await, [id(4)]);
    assert_eq!(list(EffectFilter { since: Some(id(5)), ..any() }, 9).await, [id(6), id(5)]);
    let held = lease(&claim(&store, at(1), 1).await[0]);
    done(&store, [abort(held, false, at(1))]).await;
    let code = |code: &str| EffectFilter { error_code: Some(code.into()), ..any() };
    assert_eq!(list(code("BROKER_TIMEOUT"), 9).await, [id(3)]);
    assert_eq!(list(code("BROKER_5XX"), 9).await, []);
}

async fn effects_are_counted(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=5).map(effect)).await;
    enqueue(&store, [NewEffect { lane: Lane::MAIL, ..effect(6) }]).await;
    let claimed = claim(&store, at(1), 3).await;
    done(&store, [retry(lease(&claimed[0]), at(9), at(1)), succeed(lease(&claimed[1]), at(1))])
        .await;
    let count = |lane, status, count| EffectCount { lane, status, count };
    assert_eq!(
        store.effect_counts().await.unwrap(),
        [
            count(Lane::MAIL, Status::Pending, 1),
            count(Lane::ORDERS, Status::Failed, 1),
            count(Lane::ORDERS, Status::Pending, 2),
            count(Lane::ORDERS, Status::Sending, 1),
            count(Lane::ORDERS, Status::Succeeded, 1),
        ]
    );
    assert_eq!(store.waiting_count().await.unwrap(), 4);
}

async fn every_read_works_on_an_empty_database(db: Db) {
    let store = db.open().await;
    assert_eq!(store.dialect(), db.dialect());
    assert_eq!(store.effect(id(1)).await.unwrap(), None);
    assert_eq!(store.effect_by_key("order", "k").await.unwrap(), None);
    assert_eq!(store.payload(id(1)).await.unwrap(), None);
    assert_eq!(store.effects(&EffectFilter::default(), 9).await.unwrap(), []);
    assert_eq!(store.effect_counts().await.unwrap(), []);
    assert_eq!(store.waiting_count().await.unwrap(), 0);
    assert_eq!(store.attempts(id(1)).await.unwrap(), []);
    assert_eq!(store.cases_of("order", "1").await.unwrap(), []);
    assert_eq!(store.ledger_entry(&ledger_key("k")).await.unwrap(), None);
    assert_eq!(store.ledger_entries("order", vec!["k".into()]).await.unwrap(), []);
    assert_eq!(store.ledger_rows().await.unwrap(), 0);
    assert_eq!(store.workers().await.unwrap(), []);
    assert!(store.lapsed(&Lane::ORDERS, at(0), 9).await.unwrap().is_empty());
    assert!(!store.look_back(&Lane::ORDERS).await.unwrap());
    assert_eq!(claim(&store, at(0), 9).await, []);
    assert_eq!(store.renew(vec![], at(0)).await.unwrap(), []);
    let missing = Lease { id: id(1), fence: 1 };
    assert_eq!(store.renew(vec![missing], at(0)).await.unwrap(), [missing]);
    assert_eq!(store.prune_effects(at(0), None, 9).await.unwrap(), (0, None));
    assert_eq!(store.prune_ledger(at(0), 9).await.unwrap(), 0);
    assert_eq!(store.prune_quotas(0).await.unwrap(), 0);
    store.worker_gone("nobody").await.unwrap();
    store.return_quota("nobody", 1, 1).await.unwrap();
    // The one row of this table comes with it.
    let mut content = db.content().await;
    content.remove("mail_control");
    assert!(content.values().all(Vec::is_empty));
}

async fn pruning_removes_what_is_settled_and_over(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=6).map(|n| NewEffect { expires_at: at(10), ..effect(n) })).await;
    let claimed = claim(&store, at(1), 5).await;
    let mut ends = vec![
        succeed(lease(&claimed[0]), at(1)),
        abort(lease(&claimed[1]), false, at(1)),
        retry(lease(&claimed[2]), at(5), at(1)),
        succeed(lease(&claimed[3]), at(1)),
    ];
    for (end, expires) in ends.iter_mut().zip([10, 10, 10, 11]) {
        if let Write::Settle(end) = end {
            end.expires_at = at(expires);
        }
    }
    done(&store, ends).await;
    assert_eq!(store.prune_effects(millis(9_999), None, 100).await.unwrap().0, 0);
    assert_eq!(store.prune_effects(at(10), None, 100).await.unwrap(), (2, Some(id(6))));
    let left: Vec<_> = all(&store).await.iter().map(|row| (row.id, row.status)).collect();
    let expected = [
        (id(3), Status::Failed),
        (id(4), Status::Succeeded),
        (id(5), Status::Sending),
        (id(6), Status::Pending),
    ];
    assert_eq!(left, expected);
}

async fn pruning_walks_the_table_once(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=7).map(effect)).await;
    let claimed = claim(&store, at(1), 7).await;
    // The even ones are over.
    let ends = claimed.iter().zip(1..).map(|(effect, n)| {
        let mut end = succeed(lease(effect), at(1));
        if let (Write::Settle(end), true) = (&mut end, n % 2 == 0) {
            end.expires_at = at(5);
        }
        end
    });
    done(&store, ends).await;
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let (removed, last) = store.prune_effects(at(9), after, 3).await.unwrap();
        pages.push(removed);
        if last.is_none() {
            break;
        }
        after = last;
    }
    assert_eq!(pages, [1, 2, 0, 0]);
    assert_eq!(all(&store).await.iter().map(|r| r.id).collect::<Vec<_>>(), [1, 3, 5, 7].map(id));
}

/// Also those of an effect whose key went to another one.
async fn attempts_go_with_their_effect(db: Db) {
    let store = db.open().await;
    leave(&store, Status::Aborted).await;
    done(&store, [second(at(100))]).await;
    let held = lease(&claim_as(&store, &Lane::MAIL, "w", at(100), 9).await[0]);
    let mut end = succeed(held, at(101));
    if let Write::Settle(end) = &mut end {
        end.expires_at = at(200);
    }
    done(&store, [end, Write::Attempt(attempt(held))]).await;
    assert_eq!(store.prune_effects(at(200), None, 100).await.unwrap().0, 1);
    let content = db.content().await;
    assert_eq!((content["outbox"].len(), content["outbox_attempts"].len()), (0, 0));
}
