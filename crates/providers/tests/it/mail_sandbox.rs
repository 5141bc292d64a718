//! The postman that sends nothing: every way a mail can go, by its recipient.

use std::time::Duration;

use tashika_domain::mail::MailFault;
use tashika_providers::mail::{Parcel, Postman as _, SandboxPostman};

use crate::smtp::{fault, parcel, sent};

#[tokio::test(start_paused = true)]
async fn every_recipient_has_its_fate() {
    let sandbox = SandboxPostman::new(Duration::from_secs(30));
    sandbox.probe().await.unwrap();
    for (to, class, code) in [
        ("refused", MailFault::Recipient, Some(550)),
        ("Refused+17", MailFault::Recipient, Some(550)),
        ("toolong", MailFault::Recipient, Some(552)),
        ("unverified", MailFault::Recipient, Some(554)),
        ("quota", MailFault::Quota, Some(454)),
        ("badlogin", MailFault::Configuration, Some(535)),
        ("unreachable", MailFault::Retryable, None),
        ("lost", MailFault::PossiblySent, None),
    ] {
        // Again and again the same.
        for number in 0..3 {
            assert_eq!(fault(&sandbox.send(&parcel(to, number)).await), (class, code), "{to}");
        }
    }
    for to in ["taro", "refusedx", "ok"] {
        let posted = sandbox.send(&parcel(to, 1)).await;
        assert!(sent(&posted), "{posted:?}");
        assert!(!format!("{posted:?}").contains(&format!("{to}@example.com")));
    }
}

#[tokio::test(start_paused = true)]
async fn some_are_taken_in_the_end() {
    let sandbox = SandboxPostman::new(Duration::from_secs(30));
    for (to, class, code, times) in [
        ("greylist", MailFault::Retryable, Some(451), 2),
        ("throttled", MailFault::Throttled, Some(454), 1),
    ] {
        for number in 0..2 {
            for _ in 0..times {
                let posted = sandbox.send(&parcel(to, number)).await;
                assert_eq!(fault(&posted), (class, code), "{to}");
            }
            assert!(sent(&sandbox.send(&parcel(to, number)).await), "{to}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_takes_as_long_as_one_waits() {
    let sandbox = SandboxPostman::new(Duration::from_secs(30));
    let posted = sandbox.send(&parcel("lost", 1)).await;
    assert_eq!(posted.rtt, Duration::from_secs(30));
    assert!(posted.exchange.sent);
}

#[tokio::test]
async fn what_no_server_would_get_the_sandbox_does_not_get() {
    let sandbox = SandboxPostman::new(Duration::from_secs(30));
    let posted = sandbox.send(&Parcel { to: "nobody".to_owned(), ..parcel("ok", 1) }).await;
    assert_eq!(fault(&posted), (MailFault::Recipient, None));
}
