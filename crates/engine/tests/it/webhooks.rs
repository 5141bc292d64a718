//! Webhooks from the sender's request to the end of their processing.

use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::billing;
use tashika_domain::effect::SETTLEMENT_REFUSED;
use tashika_domain::webhook::Status;
use tashika_domain::{LanePolicy, Status as EffectStatus};
use tashika_engine::commands::webhook::WebhookError;
use tashika_engine::{Clock, Engine, Pruner, Settings};
use tashika_store::WebhookFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tokio::task::JoinSet;

use crate::support::{HOUR, REMEMBER, ahead, patience, policy, settings, stop};
use crate::webhook_rig::{CUSTOMER, Rig, at, send, told, told_about};

on_both!(
    a_hundred_deliveries_at_once_are_one_event,
    a_duplicate_changes_nothing,
    a_duplicate_of_a_failed_event_opens_it_again,
    a_failed_event_is_opened_again_after_its_effect_was_pruned,
    an_unknown_customer_fails_and_succeeds_on_replay,
    replaying_all_takes_what_the_filter_names,
    a_failing_audit_line_takes_everything_with_it,
    an_event_whose_end_could_not_be_written_is_not_lost,
    older_events_do_not_undo_newer_ones,
    a_subscription_lives_as_its_events_tell,
    what_nobody_listens_to_is_skipped,
    clean_up_keeps_what_is_not_resolved,
);

const PAID: &str = "invoice.payment_succeeded";

async fn a_hundred_deliveries_at_once_are_one_event(db: TestDb) {
    let rig = Rig::new(db).await;
    let billing = rig.billing(CUSTOMER).await;
    let running = rig.start();
    let body = told("evt_1", PAID, 0).to_string();
    let mut sending = JoinSet::new();
    for _ in 0..100 {
        let (webhooks, body) = (Arc::clone(&rig.webhooks), body.clone());
        sending.spawn(async move { send(&webhooks, body.as_bytes(), None).await.unwrap() });
    }
    let accepted = sending.join_all().await;
    assert_eq!(accepted.iter().filter(|accepted| !accepted.duplicate).count(), 1);
    assert!(accepted.iter().all(|other| other.message_id == accepted[0].message_id));
    rig.ended(&accepted[0], Status::Success).await;
    stop(running).await;

    let all = rig.store.webhook_events(&WebhookFilter::default(), 1000).await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(rig.known(&billing).await.version, billing.version + 1, "changed once");
    assert_eq!(rig.audit("billing.payment_succeeded").await.len(), 1);
    assert_eq!(rig.audit_count().await, 2, "and the line of the billing itself");
}

async fn a_duplicate_changes_nothing(db: TestDb) {
    let rig = Rig::new(db).await;
    let billing = rig.billing(CUSTOMER).await;
    let first = rig.send(&told("evt_1", PAID, 0)).await;
    let running = rig.start();
    let ended = rig.ended(&first, Status::Success).await;
    assert_eq!(ended.billing_id, Some(billing.id));
    assert_eq!(ended.office_id, Some(billing.office_id.clone()));
    let known = rig.known(&billing).await;

    let again = rig.send(&told("evt_1", PAID, 0)).await;
    assert!(again.duplicate && again.message_id == first.message_id && again.event_id == "evt_1");
    // The id is what counts, whatever else the sender says under it.
    assert!(rig.send(&told("evt_1", "invoice.payment_failed", 9)).await.duplicate);
    let other = rig.send(&told("evt_2", "nobody.listens", 0)).await;
    rig.ended(&other, Status::Skipped).await;
    stop(running).await;
    assert_eq!(rig.event(&first).await, ended);
    assert_eq!(rig.known(&billing).await, known);
    assert!(rig.audit("webhook.replayed").await.is_empty(), "and nobody looked at it again");
}

async fn a_duplicate_of_a_failed_event_opens_it_again(db: TestDb) {
    let rig = Rig::new(db).await;
    let running = rig.start();
    let first = rig.send(&told("evt_1", PAID, 0)).await;
    rig.ended(&first, Status::Failed).await;
    let billing = rig.billing(CUSTOMER).await;
    let again = rig.send(&told("evt_1", PAID, 0)).await;
    assert!(again.duplicate && again.message_id == first.message_id);
    let ended = rig.ended(&first, Status::Success).await;
    stop(running).await;
    assert_eq!(ended.error_message, None);
    assert_eq!(rig.known(&billing).await.last_payment_at, Some(at(0)));
    let replayed = &rig.audit("webhook.replayed").await[0];
    assert_eq!((replayed.actor_id.as_deref(), replayed.actor_role.as_str()), (None, "system"));
}

async fn a_failed_event_is_opened_again_after_its_effect_was_pruned(db: TestDb) {
    let rig = Rig::new(db).await;
    let running = rig.start();
    let first = rig.send(&told("evt_1", PAID, 0)).await;
    let second = rig.send(&told("evt_2", PAID, 1)).await;
    for accepted in [&first, &second] {
        rig.ended(accepted, Status::Failed).await;
    }
    stop(running).await;
    let later = Clock::System.now().plus(2 * REMEMBER);
    let (removed, _) = rig.store.prune_effects(later, None, 100).await.unwrap();
    assert_eq!(removed, 2);

    let billing = rig.billing(CUSTOMER).await;
    assert!(rig.send(&told("evt_1", PAID, 0)).await.duplicate);
    rig.webhooks.replay(second.message_id, "ops").await.unwrap();
    let running = rig.start();
    for accepted in [&first, &second] {
        rig.ended(accepted, Status::Success).await;
    }
    stop(running).await;
    assert_eq!(rig.known(&billing).await.last_payment_at, Some(at(1)));
    assert_eq!(rig.audit("billing.payment_succeeded").await.len(), 2);
}

async fn an_unknown_customer_fails_and_succeeds_on_replay(db: TestDb) {
    let rig = Rig::new(db).await;
    let running = rig.start();
    let accepted = rig.send(&told("evt_1", PAID, 0)).await;
    let failed = rig.ended(&accepted, Status::Failed).await;
    let why = failed.error_message.unwrap();
    assert!(why.contains("UNKNOWN_CUSTOMER") && why.contains(CUSTOMER), "{why}");
    let effect = rig.effect(&accepted).await;
    assert_eq!(effect.status, EffectStatus::Aborted, "a dead letter");
    assert_eq!(rig.audit("webhook.failed").await.len(), 1);

    let billing = rig.billing(CUSTOMER).await;
    let open = rig.webhooks.replay(accepted.message_id, "ops").await.unwrap();
    assert_ne!(open.status, Status::Failed);
    rig.ended(&accepted, Status::Success).await;
    stop(running).await;
    assert_eq!(rig.known(&billing).await.last_payment_at, Some(at(0)));
    let refused = rig.webhooks.replay(accepted.message_id, "ops").await;
    assert!(matches!(refused, Err(WebhookError::NotFailed)), "{refused:?}");
    let who = &rig.audit("webhook.replayed").await[0];
    assert_eq!((who.actor_id.as_deref(), who.actor_role.as_str()), (Some("ops"), "operator"));
}

async fn replaying_all_takes_what_the_filter_names(db: TestDb) {
    let rig = Rig::new(db).await;
    let running = rig.start();
    let mut paid = Vec::new();
    // More than a page of them.
    for n in 0..210 {
        paid.push(rig.send(&told(&format!("evt_{n}"), PAID, n)).await);
    }
    let other = rig.send(&told("evt_other", "invoice.payment_failed", 0)).await;
    for accepted in paid.iter().chain([&other]) {
        rig.ended(accepted, Status::Failed).await;
    }
    let billing = rig.billing(CUSTOMER).await;
    let filter = WebhookFilter { event_type: Some(PAID.into()), ..WebhookFilter::default() };
    assert_eq!(rig.webhooks.replay_all(&filter, "ops").await.unwrap(), 210);
    for accepted in &paid {
        rig.ended(accepted, Status::Success).await;
    }
    stop(running).await;
    assert_eq!(rig.event(&other).await.status, Status::Failed);
    assert_eq!(rig.known(&billing).await.last_payment_at, Some(at(209)));
    assert_eq!(rig.audit("billing.payment_succeeded").await.len(), 210);
}

/// The seed's story: the billing, the event and the audit line are one, and the audit line fails.
async fn a_failing_audit_line_takes_everything_with_it(db: TestDb) {
    let rig = Rig::new(db).await;
    let billing = rig.billing(CUSTOMER).await;
    let accepted = rig.send(&told("evt_1", PAID, 0)).await;
    rig.break_audit().await;
    let running = rig.engine(&patience(100_000)).start();
    until("two failures", async || (rig.effect(&accepted).await.attempts >= 2).then_some(())).await;
    let event = rig.event(&accepted).await;
    assert_eq!((event.status, event.processed_at, event.version), (Status::Pending, None, 1));
    assert_eq!(rig.known(&billing).await, billing, "nothing of it was written");
    assert_eq!(rig.audit("billing.payment_succeeded").await, []);
    let reason = rig.effect(&accepted).await.last_error_code;
    assert_eq!(reason.as_deref(), Some(SETTLEMENT_REFUSED));

    rig.mend_audit().await;
    rig.ended(&accepted, Status::Success).await;
    stop(running).await;
    let known = rig.known(&billing).await;
    assert_eq!((known.last_payment_at, known.version), (Some(at(0)), 2));
    assert_eq!(rig.audit("billing.payment_succeeded").await.len(), 1);
}

/// All retries fall into the time in which the audit log is broken: not even the failure can be told.
async fn an_event_whose_end_could_not_be_written_is_not_lost(db: TestDb) {
    let rig = Rig::new(db).await;
    let billing = rig.billing(CUSTOMER).await;
    let sent_again = rig.send(&told("evt_1", PAID, 0)).await;
    let by_hand = rig.send(&told("evt_2", PAID, 1)).await;
    let with_all = rig.send(&told("evt_3", PAID, 2)).await;
    rig.break_audit().await;
    let running = rig.engine(&patience(2)).start();
    for accepted in [&sent_again, &by_hand, &with_all] {
        until("a dead letter", async || {
            (rig.effect(accepted).await.status == EffectStatus::Aborted).then_some(())
        })
        .await;
        assert_eq!(rig.event(accepted).await.status, Status::Pending);
    }
    assert_eq!(rig.known(&billing).await, billing);

    rig.mend_audit().await;
    assert!(rig.send(&told("evt_1", PAID, 0)).await.duplicate);
    rig.ended(&sent_again, Status::Success).await;
    rig.webhooks.replay(by_hand.message_id, "ops").await.unwrap();
    rig.ended(&by_hand, Status::Success).await;
    let filter = WebhookFilter::default();
    assert_eq!(rig.webhooks.replay_all(&filter, "ops").await.unwrap(), 1);
    rig.ended(&with_all, Status::Success).await;
    stop(running).await;
    assert_eq!(rig.audit("billing.payment_succeeded").await.len(), 3);
    assert_eq!(rig.known(&billing).await.last_payment_at, Some(at(2)));
}

async fn older_events_do_not_undo_newer_ones(db: TestDb) {
    let rig = Rig::new(db).await;
    let billing = rig.billing(CUSTOMER).await;
    let running = rig.start();
    let tell = async |id: &str, kind: &str, second: i64| {
        let accepted = rig.send(&told(id, kind, second)).await;
        rig.ended(&accepted, Status::Success).await;
        rig.known(&billing).await
    };
    let known = tell("evt_1", "invoice.payment_failed", 30).await;
    assert_eq!(known.status, billing::Status::PastDue);
    let known = tell("evt_2", PAID, 20).await;
    assert_eq!(known.status, billing::Status::PastDue, "an older payment mends nothing");
    assert_eq!(known.last_payment_at, Some(at(20)), "but it was made");
    let known = tell("evt_3", "customer.subscription.created", 10).await;
    assert_eq!(known.status, billing::Status::PastDue);
    assert_eq!(known.stripe_subscription_id.as_deref(), Some("sub_1"));
    let known = tell("evt_4", PAID, 40).await;
    assert_eq!((known.status, known.last_payment_at), (billing::Status::Active, Some(at(40))));
    let known = tell("evt_5", "customer.subscription.deleted", 60).await;
    assert_eq!(known.status, billing::Status::Canceled);
    for (id, kind) in [
        ("evt_6", "customer.subscription.created"),
        ("evt_7", "customer.subscription.updated"),
        ("evt_8", "invoice.payment_failed"),
    ] {
        let known = tell(id, kind, 50).await;
        assert_eq!(known.status, billing::Status::Canceled, "{kind}");
    }
    stop(running).await;
    let late = &rig.audit("billing.subscription_created").await[0];
    let details: Value = serde_json::from_str(&late.details).unwrap();
    assert_eq!(details["out_of_order"], true);
    assert_eq!(details["event_id"], "evt_6");
    assert_eq!(details["event_type"], "customer.subscription.created");
    assert_eq!(details["source"], "stripe_webhook");
}

/// The table of the contract, line by line.
async fn a_subscription_lives_as_its_events_tell(db: TestDb) {
    let rig = Rig::new(db).await;
    let trial =
        json!({"officeId": "o", "stripeCustomerId": CUSTOMER, "trialEndDate": "2030-01-01"});
    let billing = rig.billings.create("somebody", &trial).await.unwrap();
    assert_eq!(billing.status, billing::Status::Free);
    let running = rig.start();
    let ending = json!({"id": "sub_1", "customer": {"id": CUSTOMER}, "cancel_at_period_end": true});
    let going_on = json!({"id": "sub_1", "customer": CUSTOMER, "cancel_at_period_end": false});
    let plain = json!({"id": "sub_1", "customer": CUSTOMER});
    let updated = "customer.subscription.updated";
    for (n, (kind, object, status, action)) in [
        (
            "customer.subscription.created",
            &plain,
            billing::Status::EarlyPayment,
            "subscription_created",
        ),
        (PAID, &plain, billing::Status::EarlyPayment, "payment_succeeded"),
        ("invoice.payment_failed", &plain, billing::Status::PastDue, "payment_failed"),
        (PAID, &plain, billing::Status::Active, "payment_succeeded"),
        (updated, &ending, billing::Status::Canceling, "subscription_updated"),
        (updated, &going_on, billing::Status::Active, "subscription_updated"),
        (updated, &going_on, billing::Status::Active, "subscription_updated"),
        (
            "customer.subscription.deleted",
            &plain,
            billing::Status::Canceled,
            "subscription_canceled",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let second = i64::try_from(n).unwrap();
        let event = told_about(&format!("evt_{n}"), kind, second, object);
        let accepted = rig.send(&event).await;
        rig.ended(&accepted, Status::Success).await;
        assert_eq!(rig.known(&billing).await.status, status, "{kind}");
        let line = &rig.audit(&format!("billing.{action}")).await[0];
        assert_eq!(line.target_id, billing.id.to_string());
        assert_eq!((line.target_type.as_str(), line.office_id.as_deref()), ("billing", Some("o")));
        let details: Value = serde_json::from_str(&line.details).unwrap();
        assert_eq!(details["event_id"], format!("evt_{n}"));
    }
    stop(running).await;
}

async fn what_nobody_listens_to_is_skipped(db: TestDb) {
    let rig = Rig::new(db).await;
    let running = rig.start();
    let accepted = rig.send(&told("evt_1", "charge.updated", 0)).await;
    let event = rig.ended(&accepted, Status::Skipped).await;
    stop(running).await;
    assert!(event.processed_at.is_some() && event.billing_id.is_none());
    assert_eq!(rig.effect(&accepted).await.status, EffectStatus::Succeeded);
}

/// The message itself is not believed: it is a reason to ask.
async fn clean_up_keeps_what_is_not_resolved(db: TestDb) {
    let rig = Rig::new(db).await;
    rig.billing(CUSTOMER).await;
    let running = rig.start();
    let success = rig.send(&told("evt_1", PAID, 0)).await;
    let skipped = rig.send(&told("evt_2", "nobody.listens", 0)).await;
    let stranger = json!({"id": "sub_1", "customer": "cus_stranger"});
    let failed = rig.send(&told_about("evt_3", PAID, 0, &stranger)).await;
    rig.ended(&success, Status::Success).await;
    rig.ended(&skipped, Status::Skipped).await;
    rig.ended(&failed, Status::Failed).await;
    stop(running).await;
    let pending = rig.send(&told("evt_4", PAID, 0)).await;

    let day = 24 * HOUR;
    let pruner = |clock: Clock| {
        let settings = Settings { keep_webhooks: 90 * day, ..settings("host:1:p") };
        let ids = tashika_engine::Ids::random(clock);
        Pruner::new(Arc::new(Engine::new(rig.store.clone(), clock, ids, settings)))
    };
    assert_eq!(pruner(ahead(89 * day)).run_once().await.unwrap().webhooks, 0);
    assert_eq!(pruner(ahead(91 * day)).run_once().await.unwrap().webhooks, 2);
    let kept = rig.store.webhook_events(&WebhookFilter::default(), 10).await.unwrap();
    let ids: Vec<_> = kept.iter().map(|event| event.id).collect();
    assert_eq!(ids, [pending.message_id, failed.message_id]);
    let policy = LanePolicy { max_attempts: 2, ..policy() };
    let running = rig.engine(&policy).start();
    rig.ended(&pending, Status::Success).await;
    stop(running).await;
}
