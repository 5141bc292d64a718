//! Connections that are used again, and those that must not be: no mail gets another's answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tashika_domain::mail::MailFault;
use tashika_providers::mail::{Postman as _, SmtpPostman};
use tashika_testkit::smtp::SmtpServer;

use crate::smtp::{SHORT, fault, parcel, postman, postman_at, sent};

/// Refused and accepted by turns: answers that were shifted by one would show.
async fn by_turns(server: &SmtpServer, postman: &SmtpPostman, round: usize) {
    for number in round * 100..round * 100 + 6 {
        let refused = parcel("nouser", number);
        assert_eq!(fault(&postman.send(&refused).await), (MailFault::Recipient, Some(550)));
        let taken = parcel("ok", number);
        assert!(sent(&postman.send(&taken).await));
        assert_eq!(server.mails(&taken.message_id).await.len(), 1);
        assert!(server.mails(&refused.message_id).await.is_empty());
    }
}

#[tokio::test]
async fn one_connection_carries_many_mails() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    for number in 0..20 {
        assert!(sent(&postman.send(&parcel("ok", number)).await));
    }
    let stats = server.stats().await;
    assert_eq!((stats.accepted, stats.connections_total, stats.logins), (20, 1, 1), "{stats:?}");
    drop(postman);
    server.until("the connection is closed", |stats| stats.connections == 0).await;
}

/// SES cuts connections that live long, so ours end before.
#[tokio::test]
async fn a_connection_is_renewed_after_a_hundred_mails() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    for number in 0..101 {
        assert!(sent(&postman.send(&parcel("ok", number)).await));
    }
    let stats = server.stats().await;
    assert_eq!((stats.accepted, stats.connections_total), (101, 2), "{stats:?}");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    // Closed after an answer, which we may notice before the next mail or with its first word, and closed while idle.
    assert!(sent(&postman.send(&parcel("closeafter", 1)).await));
    assert!(sent(&postman.send(&parcel("ok", 2)).await));
    server.close_idle().await;
    server.until("the connection is closed", |stats| stats.connections == 0).await;
    assert!(sent(&postman.send(&parcel("ok", 3)).await));
    let stats = server.stats().await;
    assert_eq!((stats.accepted, stats.connections_total), (3, 3), "{stats:?}");
}

#[tokio::test]
async fn a_cancelled_send_shifts_no_answers() {
    let server = SmtpServer::start().await;
    let postman = Arc::new(postman(&server));
    // A connection that will be used again by what is cancelled.
    assert!(sent(&postman.send(&parcel("ok", 9999)).await));
    for (round, to) in ["slow", "hangbefore", "hangafter"].into_iter().enumerate() {
        let sending = Arc::clone(&postman);
        let cancelled = parcel(to, round);
        let task = tokio::spawn(async move { sending.send(&cancelled).await });
        server.until("the send hangs", |stats| stats.hanging == 1).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        // The server sees the end of it: the connection went with the call.
        server.until("the hanging is over", |stats| stats.hanging == 0).await;
        by_turns(&server, &postman, round).await;
    }
}

#[tokio::test]
async fn a_timeout_shifts_no_answers() {
    let server = SmtpServer::start().await;
    let postman = postman_at(&server.url(), SHORT);
    for (round, to, class) in [
        (0, "hangafter", MailFault::PossiblySent),
        (1, "hangbefore", MailFault::Retryable),
        (2, "hangaccepted", MailFault::PossiblySent),
    ] {
        assert_eq!(fault(&postman.send(&parcel(to, round)).await), (class, None));
        by_turns(&server, &postman, round).await;
    }
}

/// While some hang, and when those get their late answers, the others get theirs.
#[tokio::test]
async fn late_answers_go_to_whom_they_belong() {
    let server = SmtpServer::start().await;
    let postman = Arc::new(postman(&server));
    let slow: Vec<_> = (0..3)
        .map(|number| {
            let postman = Arc::clone(&postman);
            tokio::spawn(async move { postman.send(&parcel("slow", number)).await })
        })
        .collect();
    server.until("three hang", |stats| stats.hanging == 3).await;
    by_turns(&server, &postman, 1).await;
    server.release().await;
    for task in slow {
        assert!(sent(&task.await.unwrap()));
    }
    by_turns(&server, &postman, 2).await;
}

#[tokio::test]
async fn two_hundred_mails_by_five_workers_each_arrive_once() {
    const MAILS: usize = 200;
    let server = SmtpServer::start().await;
    let postman = Arc::new(postman(&server));
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let (postman, next) = (Arc::clone(&postman), Arc::clone(&next));
            tokio::spawn(async move {
                let mut ours = BTreeMap::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= MAILS {
                        return ours;
                    }
                    // One in ten is refused, so that connections come and go.
                    let to = if number.is_multiple_of(10) { "nouser" } else { "ok" };
                    let parcel = parcel(to, number);
                    let posted = postman.send(&parcel).await;
                    assert_eq!(sent(&posted), to == "ok", "{posted:?}");
                    ours.insert(parcel.message_id, posted.exchange.reference);
                }
            })
        })
        .collect();
    let mut ours = BTreeMap::new();
    for worker in workers {
        ours.extend(worker.await.unwrap());
    }
    assert_eq!(ours.len(), MAILS);
    ours.retain(|_, reference| reference.is_some());
    // The server's answer to each mail carries the number under which it took that very mail.
    let theirs: BTreeMap<_, _> = server
        .accepted()
        .await
        .into_iter()
        .enumerate()
        .map(|(at, mail)| (mail.id, Some(format!("0100-{}", at + 1))))
        .collect();
    assert_eq!(ours, theirs);
    let stats = server.stats().await;
    assert_eq!(stats.accepted, MAILS - MAILS / 10);
    assert!(stats.sending_max <= 5, "{stats:?}");
}
