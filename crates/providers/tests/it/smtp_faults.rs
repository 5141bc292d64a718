//! Every way a server can refuse or fail, and what is known afterwards, compared with what the server has.

use serde_json::json;
use tashika_domain::mail::MailFault::{PossiblySent, Quota, Recipient, Retryable, Throttled};
use tashika_domain::mail::verdict::sender_alert;
use tashika_domain::mail::{MailFault, MailResult};
use tashika_providers::mail::Postman as _;
use tashika_testkit::smtp::SmtpServer;

use crate::smtp::{SHORT, fault, parcel, postman, postman_at, sent};

/// Recipient, class, code, whether the server has the mail all the same, and whether any of it left.
type Row = (&'static str, MailFault, Option<u16>, bool, bool);

const ANSWERED: &[Row] = &[
    ("nouser", Recipient, Some(550), false, false),
    ("outoforder", Retryable, Some(503), false, false),
    ("shutdown", Retryable, Some(421), false, false),
    ("quota", Quota, Some(454), false, true),
    ("unverified", Recipient, Some(554), false, true),
    ("denied", Recipient, Some(554), false, true),
    ("toolong", Recipient, Some(552), false, true),
    ("tempfail", Retryable, Some(451), false, true),
    ("dropbefore", Retryable, None, false, true),
    ("drop", PossiblySent, None, true, true),
    ("strange", PossiblySent, Some(200), true, true),
];

#[tokio::test]
async fn every_answer_ends_as_the_table_says() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    for (number, (to, class, code, taken, left)) in ANSWERED.iter().enumerate() {
        let parcel = parcel(to, number);
        let posted = postman.send(&parcel).await;
        assert_eq!(fault(&posted), (*class, *code), "{to}: {posted:?}");
        assert_eq!(posted.exchange.sent, *left, "{to}");
        let copies = server.mails(&parcel.message_id).await.len();
        assert_eq!(copies, usize::from(*taken), "{to}");
        // Whatever went wrong, the next mail is not touched by it.
        assert!(sent(&postman.send(&self::parcel("ok", number)).await), "after {to}");
    }
    let taken = ANSWERED.iter().filter(|row| row.3).count();
    assert_eq!(server.stats().await.accepted, ANSWERED.len() + taken);
}

#[tokio::test]
async fn silence_is_known_not_sent_before_the_dot_and_possibly_sent_after_it() {
    let server = SmtpServer::start().await;
    let postman = postman_at(&server.url(), SHORT);
    for (number, (to, class, taken)) in [
        ("hangbefore", Retryable, 0),
        ("hangafter", PossiblySent, 0),
        ("hangaccepted", PossiblySent, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let posted = postman.send(&parcel(to, number)).await;
        assert_eq!(fault(&posted), (class, None), "{to}: {posted:?}");
        assert!(posted.exchange.reply.ends_with("no answer within 2000 ms"), "{posted:?}");
        assert_eq!(server.mails(&parcel(to, number).message_id).await.len(), taken, "{to}");
    }
}

#[tokio::test]
async fn greylisting_and_throttling_pass() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    let grey = parcel("greylist", 1);
    for _ in 0..2 {
        assert_eq!(fault(&postman.send(&grey).await), (Retryable, Some(451)));
    }
    assert!(sent(&postman.send(&grey).await));
    let fast = parcel("throttled", 1);
    assert_eq!(fault(&postman.send(&fast).await), (Throttled, Some(454)));
    assert!(sent(&postman.send(&fast).await));
    for mail in [grey, fast] {
        assert_eq!(server.mails(&mail.message_id).await.len(), 1);
    }
}

#[tokio::test]
async fn a_quota_is_over_when_it_is_over() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    server.set(json!({"quota": "all"})).await;
    assert_eq!(fault(&postman.send(&parcel("ok", 1)).await), (Quota, Some(454)));
    server.set(json!({"quota": "off"})).await;
    assert!(sent(&postman.send(&parcel("ok", 1)).await));
    assert!(sent(&postman.send(&parcel("quota", 2)).await));
}

/// Each refusal of a server that allows so many a second is told as one, and nothing else is.
#[tokio::test]
async fn a_strict_rate_is_told_as_throttling() {
    let server = SmtpServer::with("starttls", json!({"rate": 3})).await;
    let postman = postman(&server);
    let mut taken = 0;
    for number in 0..30 {
        let posted = postman.send(&parcel("ok", number)).await;
        if sent(&posted) {
            taken += 1;
        } else {
            assert_eq!(fault(&posted), (Throttled, Some(454)));
        }
    }
    let stats = server.stats().await;
    assert_eq!(stats.accepted, taken);
    assert!(stats.busiest_second <= 3, "{stats:?}");
}

#[tokio::test]
async fn trouble_with_the_sender_and_the_recipients_address_is_told_without_the_address() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    for to in ["unverified", "denied"] {
        let MailResult::Refused { code, text, .. } = postman.send(&parcel(to, 1)).await.result
        else {
            panic!("{to} was sent");
        };
        assert!(sender_alert(code, &text).is_some(), "{text}");
    }
    let posted = postman.send(&parcel("nouser", 1)).await;
    let MailResult::Refused { text, .. } = &posted.result else { panic!("sent") };
    assert_eq!(text, "5.1.1 no such user: n***@example.com");
    assert_eq!(sender_alert(Some(550), text), None);
    assert!(!format!("{posted:?}").contains("nouser@"));
}
