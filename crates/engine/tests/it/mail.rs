//! Single mails, from being asked for to their end: what each answer means, and that the lane is closed when it must be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tashika_domain::Status as EffectStatus;
use tashika_domain::effect::EffectId;
use tashika_domain::mail::control::LaneState;
use tashika_domain::mail::pace::Limits;
use tashika_domain::mail::{MailFault, Status};
use tashika_engine::commands::mail::MailError;
use tashika_engine::commands::outbox::Outbox;
use tashika_engine::{Clock, MailRules};
use tashika_providers::templates::TemplateError;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::mail_rig::{Node, World, body, refuses, rules, takes};
use crate::support::{HOUR, ahead, stop};

on_both!(
    a_mail_is_sent_once_and_known,
    a_repeat_under_a_key_is_the_same_mail,
    what_a_template_misses_is_said_at_the_door,
    each_class_ends_as_the_table_says,
    a_lost_answer_is_repeated_under_the_same_message_id,
    a_mail_out_of_answers_is_possibly_sent,
    a_dead_letter_is_requeued_by_hand,
    the_servers_quota_parks_the_lane,
    our_own_quota_parks_the_lane_until_it_frees,
    a_server_that_finds_us_too_fast_gets_half,
    wrong_credentials_stop_the_lane_and_fail_nothing,
    a_probe_opens_the_lane_again,
);

async fn a_mail_is_sent_once_and_known(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let id = node.send("Taro@example.com").await;
    let mail = node.ended(id).await;
    assert_eq!((mail.status, mail.attempts, mail.possibly_duplicate), (Status::Sent, 1, false));
    assert_eq!(mail.sending, None);
    stop(running).await;
    let heard = world.heard();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].message_id, format!("{}@mail.example.com", id.simple()));
    assert!(!heard[0].subject.is_empty());
    assert_eq!(node.audited(&id.to_string()).await, ["mail.sent"]);
    let effect = node.store.effect(EffectId(id)).await.unwrap().unwrap();
    assert_eq!(effect.status, EffectStatus::Succeeded);
    let by_address = tashika_store::MailFilter {
        to: Some("taro@EXAMPLE.com".into()),
        ..tashika_store::MailFilter::default()
    };
    assert_eq!(node.mails.list(&by_address, 10).await.unwrap().len(), 1);
    let inbox = node.mails.inbox(None, None, 10).await.unwrap();
    assert_eq!(inbox[0].1.as_ref().unwrap().subject, heard[0].subject);
}

async fn a_repeat_under_a_key_is_the_same_mail(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let first = node.try_send(Some("k"), &body("a@example.com")).await.unwrap();
    let mut in_body = body("a@example.com");
    in_body["idempotencyKey"] = json!("k");
    for (header, body) in
        [(Some("k"), body("a@example.com")), (None, in_body.clone()), (Some("k"), in_body.clone())]
    {
        let again = node.try_send(header, &body).await.unwrap();
        assert!(again.replayed && again.row.id == first.row.id);
    }
    let other = node.try_send(Some("k"), &body("b@example.com")).await;
    assert!(matches!(other, Err(MailError::Conflict)), "{other:?}");
    let differing = node.try_send(Some("other"), &in_body).await;
    assert!(matches!(differing, Err(MailError::KeyMismatch)), "{differing:?}");
    let (one, two) = (body("c@example.com"), body("c@example.com"));
    let (left, right) =
        tokio::join!(node.try_send(Some("race"), &one), node.try_send(Some("race"), &two));
    assert_eq!(left.unwrap().row.id, right.unwrap().row.id);
    until("two mails", async || (world.count() == 2).then_some(())).await;
    stop(running).await;
    assert_eq!(world.count(), 2);
}

async fn what_a_template_misses_is_said_at_the_door(db: TestDb) {
    let node = Node::new(&db, &World::fine()).await;
    let mut missing = body("a@example.com");
    missing["data"].as_object_mut().unwrap().remove("currency");
    let refused = node.try_send(None, &missing).await;
    let Err(MailError::Template(TemplateError::MissingVariable { name, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(name, "currency");
    let mut unknown = body("a@example.com");
    unknown["template"] = json!("no-such");
    let refused = node.try_send(None, &unknown).await;
    assert!(matches!(refused, Err(MailError::Template(TemplateError::UnknownTemplate { .. }))));
    let filter = tashika_store::MailFilter::default();
    assert!(node.mails.list(&filter, 10).await.unwrap().is_empty());
}

async fn each_class_ends_as_the_table_says(db: TestDb) {
    let world = World::new(|parcel, _| {
        let class = parcel.to.split('@').next().unwrap();
        refuses(match class {
            "retryable" => MailFault::Retryable,
            "recipient" => MailFault::Recipient,
            _ => MailFault::Template,
        })
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    for (class, attempts, actions) in [
        ("retryable", 3, &["mail.attempt_failed", "mail.attempt_failed", "mail.failed"][..]),
        ("recipient", 1, &["mail.failed"][..]),
        ("template", 1, &["mail.failed"][..]),
    ] {
        let id = node.send(&format!("{class}@example.com")).await;
        let mail = node.ended(id).await;
        assert_eq!((mail.status, mail.attempts), (Status::Failed, attempts), "{class}");
        assert_eq!(mail.fault.unwrap().class, class);
        assert_eq!(u32::try_from(mail.history.len()), Ok(attempts));
        assert_eq!(node.audited(&id.to_string()).await, actions);
        let effect = node.store.effect(EffectId(id)).await.unwrap().unwrap();
        assert_eq!((effect.status, effect.in_doubt), (EffectStatus::Aborted, false));
    }
    stop(running).await;
}

async fn a_lost_answer_is_repeated_under_the_same_message_id(db: TestDb) {
    let world = World::new(|_, before| match before {
        0 => refuses(MailFault::PossiblySent).arriving(),
        _ => takes(),
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let id = node.send("a@example.com").await;
    let mail = node.ended(id).await;
    stop(running).await;
    assert_eq!((mail.status, mail.possibly_duplicate), (Status::Sent, true));
    let heard = world.heard();
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[0].message_id, heard[1].message_id);
    assert_eq!(world.arrived()["a@example.com"], 2);
}

async fn a_mail_out_of_answers_is_possibly_sent(db: TestDb) {
    let world = World::new(|_, before| match before {
        0 => refuses(MailFault::PossiblySent),
        _ => refuses(MailFault::Retryable),
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let id = node.send("a@example.com").await;
    let mail = node.ended(id).await;
    stop(running).await;
    assert_eq!((mail.status, mail.attempts), (Status::PossiblySent, 3));
    let effect = node.store.effect(EffectId(id)).await.unwrap().unwrap();
    assert_eq!((effect.status, effect.in_doubt), (EffectStatus::Aborted, true));
}

async fn a_dead_letter_is_requeued_by_hand(db: TestDb) {
    let world = World::new(|_, before| match before {
        0 => refuses(MailFault::Recipient),
        _ => takes(),
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let id = node.send("a@example.com").await;
    assert_eq!(node.ended(id).await.status, Status::Failed);
    Outbox::new(node.store.clone(), node.clock).requeue(EffectId(id)).await.unwrap();
    let mail = node.until_mail(id, "the mail sent", |mail| mail.status == Status::Sent).await;
    assert_eq!(mail.attempts, 1, "a new life");
    stop(running).await;
}

async fn the_servers_quota_parks_the_lane(db: TestDb) {
    let world = World::new(|parcel, before| match (parcel.to.as_str(), before) {
        ("a@example.com", 0) => refuses(MailFault::Quota),
        _ => takes(),
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let id = node.send("a@example.com").await;
    until("the alert", async || {
        node.firing().await.contains(&"mail_quota_used_up".to_owned()).then_some(())
    })
    .await;
    let held = node.mail(id).await;
    assert_eq!((held.status, held.attempts, held.history.len()), (Status::Queued, 0, 1));
    assert_eq!(node.control().await.state, LaneState::Parked);
    let second = node.send("b@example.com").await;
    stop(running).await;
    assert_eq!(world.count(), 1, "a parked lane sends nothing");
    // Its time is over; nobody has to say so.
    let later = Node::with(&db, &world, ahead(HOUR), rules(), "host:2:b").await;
    let running = later.start();
    for id in [id, second] {
        let mail = later.until_mail(id, "a mail sent", |mail| mail.status == Status::Sent).await;
        assert!(mail.attempts <= 1 && !mail.possibly_duplicate, "{mail:?}");
    }
    assert_eq!(later.control().await.state, LaneState::Open);
    assert!(later.firing().await.is_empty());
    stop(running).await;
}

async fn our_own_quota_parks_the_lane_until_it_frees(db: TestDb) {
    let world = World::fine();
    let limited =
        || MailRules { limits: Limits { rate_per_sec: 10_000.0, daily_quota: 5 }, ..rules() };
    let node = Node::with(&db, &world, Clock::System, limited(), "host:1:a").await;
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(node.send(&format!("r{n}@example.com")).await);
    }
    let running = node.start();
    until("the alert", async || (!node.firing().await.is_empty()).then_some(())).await;
    until("five mails", async || (world.count() == 5).then_some(())).await;
    let control = node.control().await;
    assert_eq!(control.state, LaneState::Parked);
    let frees = control.until.unwrap().since(Clock::System.now());
    // A day, what is left of its minute, and one for clocks that differ.
    assert!(frees > 23 * HOUR && frees <= 24 * HOUR + Duration::from_secs(120), "{frees:?}");
    stop(running).await;
    assert_eq!(world.count(), 5);
    let queued = node.store.mail_queue().await.unwrap().0;
    assert_eq!(queued, 3);
    // A day later there is room again.
    let later = Node::with(&db, &world, ahead(25 * HOUR), limited(), "host:2:b").await;
    let running = later.start();
    for id in ids {
        let mail = later.ended(id).await;
        assert_eq!((mail.status, mail.attempts), (Status::Sent, 1));
    }
    stop(running).await;
    assert_eq!(world.count(), 8);
    assert!(later.firing().await.is_empty());
}

async fn a_server_that_finds_us_too_fast_gets_half(db: TestDb) {
    let world = World::new(|_, before| match before {
        0..5 => refuses(MailFault::Throttled),
        _ => takes(),
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let id = node.send("a@example.com").await;
    let mail = node.ended(id).await;
    assert_eq!((mail.status, mail.attempts), (Status::Sent, 1), "being too fast is no attempt");
    assert_eq!(mail.history.len(), 6);
    let control = node.control().await;
    assert!(control.is_slowed(Clock::System.now()));
    assert_eq!(node.firing().await, ["mail_throttled"]);
    stop(running).await;
}

/// A server that refuses our login until it is told otherwise.
fn with_login() -> (World, Arc<AtomicBool>) {
    let right = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&right);
    let world = World::new(move |_, _| {
        if known.load(Ordering::SeqCst) { takes() } else { refuses(MailFault::Configuration) }
    });
    world.answer_probes(Err("535".into()));
    (world, right)
}

async fn wrong_credentials_stop_the_lane_and_fail_nothing(db: TestDb) {
    let (world, right) = with_login();
    let node = Node::new(&db, &world).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(node.send(&format!("r{n}@example.com")).await);
    }
    let running = node.start();
    until("the alert", async || (node.firing().await == ["mail_lane_stopped"]).then_some(())).await;
    for id in &ids {
        assert_eq!(node.mail(*id).await.status, Status::Queued);
    }
    assert_eq!(node.control().await.state, LaneState::Stopped);
    let heard = world.count();
    assert!(heard <= 5, "those that were under way: {heard}");
    right.store(true, Ordering::SeqCst);
    assert!(node.mails.resume("operator").await.unwrap());
    for id in ids {
        let mail = node.ended(id).await;
        assert_eq!((mail.status, mail.attempts), (Status::Sent, 1));
    }
    assert!(node.firing().await.is_empty());
    assert!(!node.mails.resume("operator").await.unwrap(), "it is open");
    stop(running).await;
}

async fn a_probe_opens_the_lane_again(db: TestDb) {
    let (world, right) = with_login();
    let quick = MailRules { probe_every: Duration::from_millis(30), ..rules() };
    let node = Node::with(&db, &world, Clock::System, quick, "host:1:a").await;
    let running = node.start();
    let id = node.send("a@example.com").await;
    until("probes that are refused", async || (world.probes() >= 2).then_some(())).await;
    assert_eq!(node.mail(id).await.status, Status::Queued);
    assert_eq!(world.count(), 1, "a stopped lane sends nothing");
    right.store(true, Ordering::SeqCst);
    world.answer_probes(Ok(()));
    let mail = node.ended(id).await;
    assert_eq!((mail.status, mail.attempts), (Status::Sent, 1));
    assert_eq!(node.control().await.state, LaneState::Open);
    assert!(node.firing().await.is_empty());
    stop(running).await;
}
