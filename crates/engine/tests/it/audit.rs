//! The audit log: sealed into a chain, and whoever changes it afterwards is found out.

use std::time::Duration;

use tashika_domain::audit::{Actor, Audit, NewAudit, line_id};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_engine::Clock;
use tashika_engine::sealer::{Finding, Verified, seal, seal_recent, verify};
use tashika_store::{AuditFilter, Dialect, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::support::HOUR;

on_both!(
    sealed_lines_are_intact,
    a_changed_line_is_named,
    a_removed_line_is_named,
    a_line_changed_together_with_its_digest_breaks_the_seal,
    a_removed_seal_is_named,
    a_removed_last_seal_is_named,
    a_line_slipped_into_the_past_is_named,
    what_retention_removed_has_expired_and_everything_else_was_removed,
    a_look_goes_back_a_little_and_now_and_then_a_day,
    two_processes_seal_at_once,
);

fn now() -> Timestamp {
    Clock::System.now()
}

async fn write(store: &Store, from: u64, count: u64, at: Timestamp) {
    let mut changes = Changes::new();
    for n in from..from + count {
        let target_id = format!("t-{n}");
        changes.push(Write::Audit(Box::new(NewAudit {
            id: line_id(at, &target_id, "thing.done", n),
            actor: Actor::caller("somebody"),
            action: "thing.done".into(),
            target_type: "thing",
            target_id,
            office_id: (n % 2 == 0).then(|| "o".into()),
            details: r#"{"n": 1.50, "text": "確か", "list": [1, null, true]}"#.into(),
            now: at,
        })));
    }
    store.commit(changes).await.unwrap();
}

async fn lines(store: &Store) -> Vec<Audit> {
    let mut lines = store.audit_logs(&AuditFilter::default(), 10_000).await.unwrap();
    lines.reverse();
    lines
}

async fn findings(store: &Store) -> Vec<Finding> {
    verify(store).await.unwrap().findings
}

/// What no process of ours could do.
async fn without_guards(db: &TestDb) {
    db.sql(match db.dialect() {
        Dialect::Sqlite => {
            "drop trigger audit_logs_never_changed; drop trigger audit_logs_never_removed"
        }
        Dialect::Postgres => "drop trigger audit_logs_append_only on audit_logs",
    })
    .await;
}

fn named(db: &TestDb, id: Uuid) -> String {
    match db.dialect() {
        Dialect::Sqlite => format!("x'{}'", id.simple()),
        Dialect::Postgres => format!("'{id}'"),
    }
}

/// Three seals of three lines each.
async fn sealed(db: &TestDb) -> (Store, Vec<Audit>) {
    let store = db.open().await;
    for n in 0..3 {
        write(&store, 3 * n, 3, now()).await;
        assert_eq!(seal(&store, now()).await.unwrap(), 3);
    }
    let lines = lines(&store).await;
    (store, lines)
}

async fn sealed_lines_are_intact(db: TestDb) {
    let store = db.open().await;
    assert_eq!(verify(&store).await.unwrap(), Verified::default());
    // More than one seal holds.
    write(&store, 0, 1001, now()).await;
    assert_eq!(seal(&store, now()).await.unwrap(), 1001);
    assert_eq!(seal(&store, now()).await.unwrap(), 0, "nothing is sealed twice");
    write(&store, 5000, 2, now()).await;
    let seen = verify(&store).await.unwrap();
    let expected = Verified { seals: 2, lines: 1001, unsealed: 2, ..Verified::default() };
    assert_eq!(seen, expected);
}

async fn a_changed_line_is_named(db: TestDb) {
    let (store, lines) = sealed(&db).await;
    without_guards(&db).await;
    for (line, change) in lines.iter().zip([
        "actor_id = 'nobody'",
        "actor_id = null",
        "actor_role = 'operator'",
        "action = 'thing.undone'",
        "target_type = 'other'",
        "target_id = 't-x'",
        "office_id = 'p'",
        r#"details = '{"n": 1.51}'"#,
    ]) {
        let id = named(&db, line.id);
        db.sql(&format!("update audit_logs set {change} where id = {id}")).await;
    }
    let last = lines.last().unwrap();
    let later = match db.dialect() {
        Dialect::Sqlite => "created_at + 1",
        Dialect::Postgres => "created_at + interval '1 microsecond'",
    };
    let id = named(&db, last.id);
    db.sql(&format!("update audit_logs set created_at = {later} where id = {id}")).await;
    let expected: Vec<Finding> = lines.iter().map(|line| Finding::Changed(line.id)).collect();
    let mut found = findings(&store).await;
    found.sort_by_key(|finding| match finding {
        Finding::Changed(id) => *id,
        _ => Uuid::max(),
    });
    assert_eq!(found, expected);
}

async fn a_removed_line_is_named(db: TestDb) {
    let (store, lines) = sealed(&db).await;
    without_guards(&db).await;
    let id = named(&db, lines[4].id);
    db.sql(&format!("delete from audit_logs where id = {id}")).await;
    assert_eq!(findings(&store).await, [Finding::Removed(lines[4].id)]);
    // And from the list of sealed lines as well.
    db.sql(&format!("delete from audit_sealed where audit_id = {id}")).await;
    assert_eq!(findings(&store).await, [Finding::Broken(2)]);
}

async fn a_line_changed_together_with_its_digest_breaks_the_seal(db: TestDb) {
    let (store, lines) = sealed(&db).await;
    let id = named(&db, lines[4].id);
    db.sql(&format!("update audit_sealed set digest = 'sha256:00' where audit_id = {id}")).await;
    assert_eq!(findings(&store).await, [Finding::Broken(2), Finding::Changed(lines[4].id)]);
}

async fn a_removed_seal_is_named(db: TestDb) {
    let (store, _) = sealed(&db).await;
    db.sql("delete from audit_seals where number = 2").await;
    assert_eq!(findings(&store).await, [Finding::Missing(2), Finding::Broken(3)]);
}

async fn a_removed_last_seal_is_named(db: TestDb) {
    let (store, _) = sealed(&db).await;
    db.sql("delete from audit_seals where number = 3").await;
    assert_eq!(findings(&store).await, [Finding::Missing(3)]);
    // Sealing goes on, and hides nothing.
    write(&store, 100, 1, now()).await;
    seal(&store, now()).await.unwrap();
    assert!(!findings(&store).await.is_empty());
    db.sql("delete from audit_seals").await;
    assert!(!findings(&store).await.is_empty());
}

async fn a_line_slipped_into_the_past_is_named(db: TestDb) {
    let (store, _) = sealed(&db).await;
    write(&store, 500, 1, now().minus(48 * HOUR)).await;
    let slipped = lines(&store).await[0].id;
    assert_eq!(findings(&store).await, [Finding::SlippedIn(slipped)]);
    seal(&store, now()).await.unwrap();
    assert_eq!(findings(&store).await, [Finding::SlippedIn(slipped)], "it does not become good");
}

async fn what_retention_removed_has_expired_and_everything_else_was_removed(db: TestDb) {
    let store = db.open().await;
    let second = Duration::from_secs(1);
    let begin = now().minus(10 * HOUR);
    for n in 0..10_u32 {
        write(&store, n.into(), 1, begin.plus(n * second)).await;
    }
    seal(&store, now()).await.unwrap();
    let all = lines(&store).await;
    let horizon = begin.plus(4 * second);
    assert_eq!(store.prune_audit(horizon, 3).await.unwrap(), 3);
    assert_eq!(store.prune_audit(horizon, 3).await.unwrap(), 1);
    assert_eq!(store.prune_audit(horizon.minus(2 * second), 3).await.unwrap(), 0);
    let kept = store.audit_horizon().await.unwrap().unwrap();
    assert!(horizon.since(kept) < Duration::from_millis(1), "it never moves back");
    let seen = verify(&store).await.unwrap();
    let expected = Verified { seals: 1, lines: 10, expired: 4, ..Verified::default() };
    assert_eq!(seen, expected);
    without_guards(&db).await;
    let id = named(&db, all[4].id);
    db.sql(&format!("delete from audit_logs where id = {id}")).await;
    assert_eq!(findings(&store).await, [Finding::Removed(all[4].id)]);
}

/// Every few seconds: whatever a look reads again, it reads again and again.
async fn a_look_goes_back_a_little_and_now_and_then_a_day(db: TestDb) {
    let (store, _) = sealed(&db).await;
    write(&store, 100, 1, now().minus(Duration::from_secs(30))).await;
    write(&store, 200, 1, now().minus(HOUR / 4)).await;
    write(&store, 300, 1, now().minus(23 * HOUR)).await;
    assert_eq!(seal_recent(&store, now()).await.unwrap(), 1);
    assert_eq!(seal_recent(&store, now()).await.unwrap(), 0);
    assert_eq!(seal(&store, now()).await.unwrap(), 2, "each in its hour");
    assert_eq!(verify(&store).await.unwrap().unsealed, 0);
    // The clock is put back by an hour, and lines go on.
    let earlier = now().minus(HOUR);
    write(&store, 400, 1, earlier).await;
    assert_eq!(seal_recent(&store, earlier).await.unwrap(), 1);
    assert_eq!(findings(&store).await, []);
}

async fn two_processes_seal_at_once(db: TestDb) {
    let (one, two) = (db.open().await, db.open().await);
    for n in 0..20 {
        write(&one, 50 * n, 50, now()).await;
        let (first, second) = tokio::join!(seal(&one, now()), seal(&two, now()));
        assert_eq!(first.unwrap() + second.unwrap(), 50, "each line once");
    }
    let seen = verify(&two).await.unwrap();
    assert_eq!((seen.lines, seen.unsealed, seen.findings), (1000, 0, vec![]));
}
