//! What came in, billings and the audit log, as rows.

use serde_json::json;
use tashika_domain::audit::{Actor, Audit, NewAudit};
use tashika_domain::billing::{self, Billing};
use tashika_domain::webhook::{self, Payload, Status, WebhookEvent};
use tashika_domain::{Timestamp, Write};
use tashika_store::{AuditFilter, Key, Seal, Store, WebhookCount, WebhookFilter};
use uuid::Uuid;

use crate::support::*;

on_both!(
    every_column_of_an_event_reads_back,
    a_body_is_its_own_payload,
    every_column_of_a_billing_reads_back,
    every_column_of_an_audit_line_reads_back,
    one_event_of_a_source_is_one_row,
    an_event_and_its_effect_are_one,
    an_event_that_somebody_else_changed_is_not_changed,
    an_office_and_a_customer_have_one_billing,
    events_are_listed_by_what_they_are,
    events_that_were_given_up_are_listed,
    events_are_counted_by_type_and_status,
    failed_events_are_a_view,
    only_what_ended_well_is_pruned,
    a_status_and_its_moment_belong_together,
    audit_lines_are_listed_by_what_they_say,
    audit_lines_are_never_changed_and_removed_only_by_retention,
    an_audit_line_that_fails_takes_its_changes_with_it,
    the_same_audit_line_is_refused_twice,
    a_seal_is_written_once,
);

fn uuid(number: u64) -> Uuid {
    id(number).0
}

fn event(number: u64) -> WebhookEvent {
    WebhookEvent {
        id: uuid(number),
        version: 1,
        source: "stripe".into(),
        event_id: format!("evt_{number}"),
        event_type: "invoice.payment_succeeded".into(),
        billing_id: None,
        office_id: None,
        payload: Payload::Apart(json!({"id": format!("evt_{number}")})),
        confirm_by: None,
        confirmed: None,
        body: format!("{{\"id\":\"evt_{number}\"}}").into_bytes(),
        content_type: None,
        occurred_at: None,
        status: Status::Pending,
        error_message: None,
        processed_at: None,
        created_at: at(i64::try_from(number).unwrap()),
        traceparent: None,
    }
}

fn ended(number: u64, status: Status, moment: Timestamp) -> WebhookEvent {
    let failed = status == Status::Failed;
    let error_message = failed.then(|| "UNKNOWN_CUSTOMER: nobody".to_owned());
    WebhookEvent { status, error_message, processed_at: Some(moment), ..event(number) }
}

fn insert(event: &WebhookEvent) -> Write {
    Write::WebhookInsert(Box::new(event.clone()))
}

fn update(event: &WebhookEvent) -> Write {
    Write::WebhookUpdate(Box::new(event.clone()))
}

fn some_billing(number: u64) -> Billing {
    Billing {
        id: uuid(number),
        version: 1,
        office_id: format!("office-{number}"),
        stripe_customer_id: format!("cus_{number}"),
        stripe_subscription_id: None,
        status: billing::Status::Free,
        trial_end_date: None,
        last_payment_at: None,
        payment_as_of: None,
        subscription_as_of: None,
        created_at: at(1),
        updated_at: at(1),
    }
}

fn line(number: u64, action: &str) -> NewAudit {
    NewAudit {
        id: uuid(number),
        actor: Actor::SYSTEM,
        action: action.into(),
        target_type: "billing",
        target_id: format!("t-{number}"),
        office_id: None,
        details: "{}".into(),
        now: at(i64::try_from(number).unwrap()),
    }
}

fn audit(line: &NewAudit) -> Write {
    Write::Audit(Box::new(line.clone()))
}

async fn listed(store: &Store, filter: WebhookFilter) -> Vec<u64> {
    let found = store.webhook_events(&filter, 100).await.unwrap();
    found.iter().map(|event| event.event_id[4..].parse().unwrap()).collect()
}

async fn every_column_of_an_event_reads_back(db: Db) {
    let store = db.open().await;
    let full = WebhookEvent {
        payload: Payload::Apart(
            json!({"id": "evt_1", "big": u64::MAX, "n": [1.5, -1, null, true], "確": {"か": ""}}),
        ),
        confirm_by: Some("shotstack".into()),
        body: (0..=255).collect(),
        content_type: Some("application/json; charset=utf-8".into()),
        occurred_at: Some(millis(-1)),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..event(1)
    };
    done(&store, [insert(&full), insert(&event(2))]).await;
    assert_eq!(store.webhook_event(full.id).await.unwrap(), Some(full.clone()));
    assert_eq!(store.webhook_event(uuid(2)).await.unwrap(), Some(event(2)));
    let after = WebhookEvent {
        version: 2,
        billing_id: Some(uuid(7)),
        office_id: Some("事務所".into()),
        status: Status::Failed,
        error_message: Some("why \u{1f600}".into()),
        processed_at: Some(millis(5)),
        confirmed: Some(json!({"status": "done", "確": [1.5, null]})),
        ..full
    };
    done(&store, [update(&after)]).await;
    assert_eq!(store.webhook_event_of("stripe", "evt_1").await.unwrap(), Some(after.clone()));
    let open = WebhookEvent {
        version: 3,
        billing_id: None,
        office_id: None,
        status: Status::Pending,
        error_message: None,
        processed_at: None,
        confirmed: None,
        ..after
    };
    done(&store, [update(&open)]).await;
    assert_eq!(store.webhook_event(open.id).await.unwrap(), Some(open));
    assert_eq!(store.webhook_event(uuid(9)).await.unwrap(), None);
    assert_eq!(store.webhook_event_of("github", "evt_1").await.unwrap(), None);
}

async fn a_body_is_its_own_payload(db: Db) {
    let store = db.open().await;
    let body = "{ \"id\":\"evt_1\",  \"確\":\"\\u304b\", \"n\":[1,-2,null] , \"n\":3}";
    let came = WebhookEvent { payload: Payload::Body, body: body.into(), ..event(1) };
    done(&store, [insert(&came)]).await;
    let kept = store.webhook_event(came.id).await.unwrap().unwrap();
    assert_eq!(kept.body, body.as_bytes());
    assert_eq!(kept.payload, Payload::Apart(json!({"id": "evt_1", "確": "か", "n": 3})));
    assert_eq!(kept.said(), came.said());
    // No text, no payload: nobody may say so, and nothing is kept of it.
    let noise = WebhookEvent { payload: Payload::Body, body: vec![0xff], ..event(2) };
    assert_eq!(commit(&store, [insert(&noise)]).await, Said::Rejected);
    assert_eq!(store.webhook_event(noise.id).await.unwrap(), None);
}

async fn every_column_of_a_billing_reads_back(db: Db) {
    let store = db.open().await;
    let bare = some_billing(1);
    done(&store, [Write::BillingInsert(Box::new(bare.clone()))]).await;
    assert_eq!(store.billing(bare.id).await.unwrap(), Some(bare.clone()));
    for (version, status) in (2..).zip(billing::Status::ALL) {
        let full = Billing {
            version,
            stripe_subscription_id: Some("sub_1".into()),
            status,
            trial_end_date: Some(at(10)),
            last_payment_at: Some(millis(20)),
            payment_as_of: Some(millis(30)),
            subscription_as_of: Some(millis(40)),
            updated_at: at(50),
            ..bare.clone()
        };
        done(&store, [Write::BillingUpdate(Box::new(full.clone()))]).await;
        assert_eq!(store.billing_of_customer("cus_1").await.unwrap(), Some(full.clone()));
        assert_eq!(store.billings(Some("office-1"), None, 10).await.unwrap(), [full]);
    }
    assert_eq!(store.billings(Some("office-2"), None, 10).await.unwrap(), []);
    assert_eq!(store.billings(None, Some(bare.id), 10).await.unwrap(), [], "before the first");
    let stale = Write::BillingUpdate(Box::new(Billing { version: 3, ..bare }));
    assert!(store.commit(changes([stale])).await.is_err());
}

async fn every_column_of_an_audit_line_reads_back(db: Db) {
    let store = db.open().await;
    let full = NewAudit {
        actor: Actor::operator("ops"),
        office_id: Some("o".into()),
        details: r#"{"text": "確か"}"#.into(),
        ..line(1, "billing.created")
    };
    done(&store, [audit(&full), audit(&line(2, "billing.created"))]).await;
    let found = store.audit_logs(&AuditFilter::default(), 10).await.unwrap();
    let expected = Audit {
        id: full.id,
        actor_id: Some("ops".into()),
        actor_role: "operator".into(),
        action: full.action,
        target_type: "billing".into(),
        target_id: full.target_id,
        office_id: full.office_id,
        details: full.details,
        created_at: full.now,
    };
    assert_eq!(found[1], expected);
    assert_eq!((found[0].actor_id.as_deref(), found[0].office_id.as_deref()), (None, None));
    assert_eq!((found[0].actor_role.as_str(), found[0].details.as_str()), ("system", "{}"));
}

async fn one_event_of_a_source_is_one_row(db: Db) {
    let store = db.open().await;
    done(&store, [insert(&event(1))]).await;
    let same = WebhookEvent { id: uuid(2), ..event(1) };
    assert_eq!(commit(&store, [insert(&same)]).await, Said::Taken(Key::Event));
    let elsewhere = WebhookEvent { source: "github".into(), ..same };
    done(&store, [insert(&elsewhere)]).await;
    assert_eq!(listed(&store, WebhookFilter::default()).await, [1, 1]);
}

async fn an_event_and_its_effect_are_one(db: Db) {
    let store = db.open().await;
    store.commit(webhook::accept(event(1), at(1000))).await.unwrap();
    assert_eq!(row(&store, id(1)).await.id, id(1));
    let again = WebhookEvent { id: uuid(2), ..event(1) };
    assert!(store.commit(webhook::accept(again, at(1000))).await.is_err());
    assert_eq!(store.effect(id(2)).await.unwrap(), None, "neither of the two");
}

async fn an_event_that_somebody_else_changed_is_not_changed(db: Db) {
    let store = db.open().await;
    done(&store, [insert(&event(1))]).await;
    let success = WebhookEvent { version: 2, ..ended(1, Status::Success, at(5)) };
    done(&store, [update(&success)]).await;
    let failed = WebhookEvent { version: 2, ..ended(1, Status::Failed, at(6)) };
    assert!(store.commit(changes([update(&failed)])).await.is_err());
    assert_eq!(store.webhook_event(uuid(1)).await.unwrap(), Some(success));
}

async fn an_office_and_a_customer_have_one_billing(db: Db) {
    let store = db.open().await;
    let insert = |billing: Billing| Write::BillingInsert(Box::new(billing));
    done(&store, [insert(some_billing(1))]).await;
    let office = Billing { office_id: "office-1".into(), ..some_billing(2) };
    let customer = Billing { stripe_customer_id: "cus_1".into(), ..some_billing(3) };
    for taken in [office, customer] {
        assert_eq!(commit(&store, [insert(taken)]).await, Said::Taken(Key::Billing));
    }
    assert_eq!(store.billings(None, None, 10).await.unwrap().len(), 1);
}

async fn events_are_listed_by_what_they_are(db: Db) {
    let store = db.open().await;
    let github = WebhookEvent { source: "github".into(), event_type: "push".into(), ..event(1) };
    let office = WebhookEvent { office_id: Some("o".into()), ..ended(3, Status::Success, at(9)) };
    let failed = ended(2, Status::Failed, at(9));
    done(&store, [insert(&github), insert(&failed), insert(&office), insert(&event(4))]).await;
    let all = WebhookFilter::default;
    assert_eq!(listed(&store, all()).await, [4, 3, 2, 1], "newest first");
    let source = WebhookFilter { source: Some("github".into()), ..all() };
    assert_eq!(listed(&store, source).await, [1]);
    let kind = WebhookFilter { event_type: Some("push".into()), ..all() };
    assert_eq!(listed(&store, kind).await, [1]);
    let office = WebhookFilter { office_id: Some("o".into()), ..all() };
    assert_eq!(listed(&store, office).await, [3]);
    for (status, expected) in [
        (Status::Pending, vec![4, 1]),
        (Status::Success, vec![3]),
        (Status::Failed, vec![2]),
        (Status::Skipped, vec![]),
    ] {
        let filter = WebhookFilter { status: Some(status), ..all() };
        assert_eq!(listed(&store, filter).await, expected);
    }
    let span = WebhookFilter { from: Some(at(2)), to: Some(at(4)), ..all() };
    assert_eq!(listed(&store, span).await, [3, 2], "from is included, to is not");
    let next = WebhookFilter { before: Some(uuid(3)), ..all() };
    assert_eq!(listed(&store, next).await, [2, 1]);
    assert_eq!(store.webhook_events(&all(), 2).await.unwrap().len(), 2);
}

async fn events_that_were_given_up_are_listed(db: Db) {
    let store = db.open().await;
    for number in 1..=3 {
        store.commit(webhook::accept(event(number), at(1000))).await.unwrap();
    }
    let failed = WebhookEvent { version: 2, ..ended(1, Status::Failed, at(5)) };
    done(&store, [update(&failed)]).await;
    let claimed = store
        .claim(tashika_store::Claim {
            lane: &tashika_domain::Lane::WEBHOOKS,
            worker: "host:1:a",
            now: at(10),
            limit: 10,
        })
        .await
        .unwrap();
    let second = claimed.iter().find(|effect| effect.id == id(2)).unwrap();
    done(&store, [abort(lease(second), false, at(11))]).await;
    let status = Some(Status::Pending);
    let given_up = WebhookFilter { status, given_up: true, ..WebhookFilter::default() };
    assert_eq!(listed(&store, given_up).await, [2], "the third is still being processed");
}

async fn events_are_counted_by_type_and_status(db: Db) {
    let store = db.open().await;
    let other = WebhookEvent { event_type: "a".into(), ..event(4) };
    let failed = ended(3, Status::Failed, at(5));
    done(&store, [insert(&event(1)), insert(&event(2)), insert(&failed), insert(&other)]).await;
    let count = |event_type: &str, status, count| WebhookCount {
        event_type: event_type.into(),
        status,
        count,
    };
    let paid = "invoice.payment_succeeded";
    let expected = [
        count("a", Status::Pending, 1),
        count(paid, Status::Failed, 1),
        count(paid, Status::Pending, 2),
    ];
    assert_eq!(store.webhook_counts().await.unwrap(), expected);
}

async fn failed_events_are_a_view(db: Db) {
    let store = db.open().await;
    done(&store, [insert(&event(1)), insert(&ended(2, Status::Failed, at(5)))]).await;
    let sql = "select event_id, error from failed_webhook_events";
    let expected = [[Some("evt_2".to_owned()), Some("UNKNOWN_CUSTOMER: nobody".to_owned())]];
    assert_eq!(db.sql(sql).await.unwrap(), expected);
    let all = "select event_id, payload, error, created_at from failed_webhook_events";
    assert_eq!(db.sql(all).await.unwrap().len(), 1);
}

async fn only_what_ended_well_is_pruned(db: Db) {
    let store = db.open().await;
    let old = [
        ended(1, Status::Success, at(10)),
        ended(2, Status::Skipped, at(10)),
        ended(3, Status::Failed, at(10)),
        event(4),
        ended(5, Status::Success, at(100)),
    ];
    done(&store, old.iter().map(insert)).await;
    assert_eq!(store.prune_webhook_events(at(50), 1).await.unwrap(), 1);
    assert_eq!(store.prune_webhook_events(at(50), 10).await.unwrap(), 1);
    assert_eq!(store.prune_webhook_events(at(50), 10).await.unwrap(), 0);
    assert_eq!(listed(&store, WebhookFilter::default()).await, [5, 4, 3]);
}

async fn a_status_and_its_moment_belong_together(db: Db) {
    let store = db.open().await;
    let never = WebhookEvent { processed_at: None, ..ended(1, Status::Success, at(1)) };
    let early = WebhookEvent { processed_at: Some(at(1)), ..event(2) };
    for nonsense in [never, early] {
        assert!(store.commit(changes([insert(&nonsense)])).await.is_err());
    }
    assert!(db.sql("update webhook_events set status = 'lost'").await.is_ok(), "there is none");
    done(&store, [insert(&event(3))]).await;
    assert!(db.sql("update webhook_events set status = 'lost'").await.is_err());
}

async fn audit_lines_are_listed_by_what_they_say(db: Db) {
    let store = db.open().await;
    let office = NewAudit { office_id: Some("o".into()), ..line(2, "b") };
    let thing = NewAudit { target_type: "thing", ..line(3, "b") };
    done(&store, [audit(&line(1, "a")), audit(&office), audit(&thing)]).await;
    let all = AuditFilter::default;
    let text = |text: &str| Some(text.to_owned());
    for (filter, expected) in [
        (all(), vec![3, 2, 1]),
        (AuditFilter { action: text("b"), ..all() }, vec![3, 2]),
        (AuditFilter { target_type: text("thing"), ..all() }, vec![3]),
        (AuditFilter { target_id: text("t-1"), ..all() }, vec![1]),
        (AuditFilter { office_id: text("o"), ..all() }, vec![2]),
        (AuditFilter { from: Some(at(2)), to: Some(at(3)), ..all() }, vec![2]),
        (AuditFilter { before: Some(uuid(2)), ..all() }, vec![1]),
    ] {
        let found = store.audit_logs(&filter, 10).await.unwrap();
        let ids: Vec<Uuid> = found.iter().map(|line| line.id).collect();
        assert_eq!(ids, expected.into_iter().map(uuid).collect::<Vec<_>>(), "{filter:?}");
    }
}

async fn audit_lines_are_never_changed_and_removed_only_by_retention(db: Db) {
    let store = db.open().await;
    done(&store, (1..=3).map(|n| audit(&line(n, "a")))).await;
    for statement in [
        "update audit_logs set action = 'b'",
        "update audit_logs set actor_id = actor_id",
        "delete from audit_logs",
    ] {
        let refused = db.sql(statement).await.unwrap_err();
        assert!(refused.contains("never changed"), "{refused}");
    }
    assert_eq!(store.prune_audit(at(3), 10).await.unwrap(), 2);
    assert!(db.sql("delete from audit_logs").await.is_err(), "younger than the horizon");
    assert_eq!(db.number("select count(*) from audit_logs").await, 1);
    assert!(db.sql("update audit_logs set action = 'b'").await.is_err());
}

async fn an_audit_line_that_fails_takes_its_changes_with_it(db: Db) {
    let store = db.open().await;
    let billing = some_billing(1);
    done(&store, [Write::BillingInsert(Box::new(billing.clone())), insert(&event(1))]).await;
    db.sql(db.pick(
        "create trigger broken before insert on audit_logs begin
             select raise(abort, 'broken'); end",
        "create function broken() returns trigger language plpgsql as
             'begin raise exception ''broken''; end';
         create trigger broken before insert on audit_logs
             for each row execute function broken()",
    ))
    .await
    .unwrap();
    let paid = Billing { version: 2, last_payment_at: Some(at(5)), ..billing.clone() };
    let success = WebhookEvent { version: 2, ..ended(1, Status::Success, at(5)) };
    let writes = [
        Write::BillingUpdate(Box::new(paid)),
        update(&success),
        audit(&line(1, "billing.payment_succeeded")),
    ];
    // In the company of changes that have nothing to do with it.
    let others: Vec<_> = (10..30).map(|n| store.commit(changes([insert(&event(n))]))).collect();
    let (failed, others) =
        tokio::join!(store.commit(changes(writes)), futures_util::future::join_all(others));
    assert!(failed.is_err());
    assert!(others.iter().all(Result::is_ok), "{others:?}");
    assert_eq!(store.billing(billing.id).await.unwrap(), Some(billing));
    assert_eq!(store.webhook_event(uuid(1)).await.unwrap(), Some(event(1)));
    assert_eq!(db.number("select count(*) from audit_logs").await, 0);
    assert_eq!(db.number("select count(*) from webhook_events").await, 21);
}

async fn the_same_audit_line_is_refused_twice(db: Db) {
    let store = db.open().await;
    done(&store, [audit(&line(1, "a"))]).await;
    let again = changes([insert(&event(1)), audit(&line(1, "a"))]);
    assert!(store.commit(again).await.is_err());
    assert_eq!(store.webhook_event(uuid(1)).await.unwrap(), None);
}

async fn a_seal_is_written_once(db: Db) {
    let (store, other) = (db.open().await, db.open().await);
    done(&store, (1..=2).map(|n| audit(&line(n, "a")))).await;
    assert_eq!(store.last_seal().await.unwrap(), None);
    assert_eq!(store.last_sealed().await.unwrap(), 0);
    let seal = Seal { number: 1, lines: 1, digest: "sha256:1".into(), sealed_at: at(9) };
    let lines = |number| vec![(uuid(number), format!("sha256:{number}"))];
    let (first, second) =
        tokio::join!(store.write_seal(&seal, lines(1)), other.write_seal(&seal, lines(2)));
    assert!(first.unwrap() ^ second.unwrap(), "one of the two");
    assert_eq!(store.last_seal().await.unwrap(), Some(seal.clone()));
    assert_eq!(store.seals(0, 10).await.unwrap(), [seal]);
    assert_eq!(store.last_sealed().await.unwrap(), 1);
    let sealed = store.audit_lines_of_seal(1).await.unwrap();
    assert_eq!(sealed.len(), 1);
    assert_eq!(sealed[0].line.as_ref().map(|line| line.id), Some(sealed[0].id));
    let begin = Timestamp::from_micros(0);
    let open = store.unsealed_audit(begin, None, 10).await.unwrap();
    assert_eq!(open.len(), 1, "the other line waits");
    assert_eq!(store.unsealed_audit(begin, Some(begin), 10).await.unwrap(), []);
}
