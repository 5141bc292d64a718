//! Mail under pressure: several processes, processes that die, limits that hold for all of them together.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::Lane;
use tashika_domain::effect::{Effect, EffectId};
use tashika_domain::mail::pace::Limits;
use tashika_domain::mail::{MailFault, Status};
use tashika_engine::{Clock, Handler as _, Job, MailHandler, MailRules, Rescuer};
use tashika_store::Claim;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;
use tokio::time::Instant;

use crate::mail_rig::{Heard, Node, World, addresses, refuses, rules, takes};
use crate::support::{HOUR, ahead, policy, stop};

on_both!(
    two_processes_send_each_mail_once,
    a_killed_process_leaves_in_doubt_what_it_was_sending_and_nothing_else,
    a_worker_that_lost_its_lease_sends_nothing,
    a_worker_that_wakes_up_when_its_mail_has_failed_sends_nothing,
    two_processes_together_keep_the_rate,
    two_processes_together_keep_the_quota,
    what_was_not_sent_is_given_back_to_the_quota,
);

async fn two_processes_send_each_mail_once(db: TestDb) {
    let world = World::fine();
    let nodes = [
        Node::with(&db, &world, Clock::System, rules(), "host:1:a").await,
        Node::with(&db, &world, Clock::System, rules(), "host:2:b").await,
    ];
    let running = nodes.each_ref().map(Node::start);
    let batch = nodes[0].batch(&addresses(150), None).await.unwrap().row;
    let view = nodes[1].finished(batch.id).await;
    for running in running {
        stop(running).await;
    }
    assert_eq!(view.counts.sent, 150);
    let arrived = world.arrived();
    assert_eq!(arrived.len(), 150);
    assert!(arrived.values().all(|count| *count == 1));
}

/// A process that stops in the middle: two mails at the server, others claimed and waiting.
async fn a_killed_process_leaves_in_doubt_what_it_was_sending_and_nothing_else(db: TestDb) {
    let gate = Gate::closed();
    let world = World::new({
        let gate = gate.clone();
        move |_, before| if before == 0 { takes().behind(&gate) } else { takes() }
    });
    let node = Node::new(&db, &world).await;
    let mut ids = Vec::new();
    for to in addresses(6) {
        ids.push(node.send(&to).await);
    }
    let killed = node.engine(2).start();
    world.until_heard(2).await;
    until("two claimed, and two more", async || {
        (node.store.sending_count(&Lane::MAIL).await.unwrap() == 4).then_some(())
    })
    .await;
    // It gives no more signs of life, and its mails never come back from the server.
    drop(killed);
    let after = Node::with(&db, &world, ahead(HOUR), rules(), "host:2:b").await;
    let other = World::fine();
    let survivor = Node::with(&db, &other, ahead(HOUR), rules(), "host:3:c").await;
    let engine = Arc::new(survivor.engine(5));
    let mut rescuer = Rescuer::new(Arc::clone(&engine));
    until("four taken back", async || {
        rescuer.run_once().await.unwrap();
        (after.store.sending_count(&Lane::MAIL).await.unwrap() == 0).then_some(())
    })
    .await;
    let mut doubtful = 0;
    for id in &ids {
        let mail = survivor.mail(*id).await;
        assert_eq!((mail.status, mail.attempts), (Status::Queued, 0), "a crash costs no attempt");
        doubtful += usize::from(mail.possibly_duplicate);
    }
    assert_eq!(doubtful, 2, "those that were at the server");
    let running = survivor.start();
    for id in ids {
        assert_eq!(survivor.ended(id).await.status, Status::Sent);
    }
    stop(running).await;
    assert_eq!(other.arrived().len(), 6, "nobody is skipped");
    gate.open();
}

/// Somebody claims the only mail there is, and gives no sign of life.
async fn claimed_and_asleep(node: &Node) -> Effect {
    let now = Clock::System.now();
    let claim = Claim { lane: &Lane::MAIL, worker: "host:9:z", now, limit: 10 };
    let mut claimed = node.store.claim(claim).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

async fn a_worker_that_lost_its_lease_sends_nothing(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let id = node.send("a@example.com").await;
    claimed_and_asleep(&node).await;
    let later = Node::with(&db, &world, ahead(HOUR), rules(), "host:2:b").await;
    let running = later.engine(5).lane(Lane::MAIL, policy()).start();
    let mail = later.ended(id).await;
    stop(running).await;
    assert_eq!((mail.status, mail.possibly_duplicate), (Status::Sent, false));
    let effect = node.store.effect(EffectId(id)).await.unwrap().unwrap();
    assert_eq!((world.count(), effect.attempts), (1, 1));
}

/// What has failed may be requeued by hand, and is then sent under the same effect: a claim that is older than the failure
/// must not be taken for that.
async fn a_worker_that_wakes_up_when_its_mail_has_failed_sends_nothing(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let id = node.send("a@example.com").await;
    let claimed = claimed_and_asleep(&node).await;
    let stern = World::new(|_, _| refuses(MailFault::Recipient));
    let later = Node::with(&db, &stern, ahead(HOUR), rules(), "host:2:b").await;
    let running = later.engine(5).lane(Lane::MAIL, policy()).start();
    let failed = later.ended(id).await;
    stop(running).await;
    assert_eq!((failed.status, stern.count()), (Status::Failed, 1));

    let asleep = MailHandler(Arc::clone(&node.office));
    asleep.attempt(Job { effect: &claimed, now: node.clock.now() }).await;
    assert_eq!(world.count(), 0);
    assert_eq!(node.mail(id).await, failed);
}

/// The most that any second saw.
fn most_in_a_second(heard: &[Heard]) -> usize {
    let mut times: Vec<Instant> = heard.iter().map(|heard| heard.at).collect();
    times.sort_unstable();
    let second = Duration::from_secs(1);
    let within = |first: &Instant| {
        times.iter().filter(|at| *at >= first && at.duration_since(*first) < second).count()
    };
    times.iter().map(within).max().unwrap_or(0)
}

fn limited(rate_per_sec: f64, daily_quota: i64) -> MailRules {
    MailRules { limits: Limits { rate_per_sec, daily_quota }, ..rules() }
}

async fn two_processes_together_keep_the_rate(db: TestDb) {
    let world = World::fine();
    let rules = limited(20.0, 0);
    let nodes = [
        Node::with(&db, &world, Clock::System, rules.clone(), "host:1:a").await,
        Node::with(&db, &world, Clock::System, rules, "host:2:b").await,
    ];
    let batch = nodes[0].batch(&addresses(70), None).await.unwrap().row;
    let running = nodes.each_ref().map(Node::start);
    let view = nodes[0].finished(batch.id).await;
    for running in running {
        stop(running).await;
    }
    assert_eq!(view.counts.sent, 70);
    let most = most_in_a_second(&world.heard());
    assert!(most <= 20, "{most} in a second");
}

async fn two_processes_together_keep_the_quota(db: TestDb) {
    let world = World::fine();
    let rules = limited(10_000.0, 50);
    let nodes = [
        Node::with(&db, &world, Clock::System, rules.clone(), "host:1:a").await,
        Node::with(&db, &world, Clock::System, rules, "host:2:b").await,
    ];
    let batch = nodes[0].batch(&addresses(80), None).await.unwrap().row;
    let running = nodes.each_ref().map(Node::start);
    nodes[0].until_batch(batch.id, "fifty sent", |view| view.counts.sent == 50).await;
    until("the alert", async || (!nodes[0].firing().await.is_empty()).then_some(())).await;
    for running in running {
        stop(running).await;
    }
    assert_eq!(world.count(), 50);
    assert_eq!(nodes[0].view(batch.id).await.counts.queued, 30);
    assert_eq!(nodes[0].mails.lane().await.unwrap().used, 50);
}

async fn what_was_not_sent_is_given_back_to_the_quota(db: TestDb) {
    let world = World::new(|parcel, before| match (parcel.to.as_str(), before) {
        ("r0@example.com", _) => refuses(MailFault::Recipient),
        ("r1@example.com", 0) => refuses(MailFault::Retryable),
        ("r2@example.com", 0) => refuses(MailFault::PossiblySent),
        _ => takes(),
    });
    let node = Node::with(&db, &world, Clock::System, limited(10_000.0, 100), "host:1:a").await;
    let batch = node.batch(&addresses(4), None).await.unwrap().row;
    let running = node.start();
    let view = node.finished(batch.id).await;
    stop(running).await;
    assert_eq!((view.counts.sent, view.counts.failed), (3, 1));
    // Three that were taken, and one that may have been.
    assert_eq!(node.mails.lane().await.unwrap().used, 4);
}
