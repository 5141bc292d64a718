//! Mail to a real server: what arrives, over which connection, with which login.

use std::time::Duration;

use serde_json::json;
use tashika_domain::Timestamp;
use tashika_domain::mail::{MailFault, MailResult};
use tashika_providers::mail::{Parcel, Posted, Postman as _, SmtpPostman};
use tashika_testkit::smtp::{PASSWORD, ROOT_PEM, SmtpServer, USER};

/// Longer than anything takes that is not meant to hang.
pub const LONG: Duration = Duration::from_secs(30);
/// For what hangs on purpose: long enough to get that far on a busy machine.
pub const SHORT: Duration = Duration::from_secs(2);

pub fn postman_at(url: &str, timeout: Duration) -> SmtpPostman {
    SmtpPostman::new(url.parse().unwrap(), Some(ROOT_PEM), timeout).unwrap()
}

pub fn postman(server: &SmtpServer) -> SmtpPostman {
    postman_at(&server.url(), LONG)
}

/// A mail of its own for each number.
pub fn parcel(to: &str, number: usize) -> Parcel {
    Parcel {
        from: "no-reply@tashika.example".to_owned(),
        to: format!("{to}@example.com"),
        message_id: format!("{to}-{number}@tashika.example"),
        subject: format!("Mail {number}"),
        html: format!("<p>Mail {number}</p>"),
        text: format!("Mail {number}"),
        date: Timestamp::from_micros(1_763_199_000_123_456),
    }
}

pub fn sent(posted: &Posted) -> bool {
    matches!(posted.result, MailResult::Sent { .. })
}

pub fn fault(posted: &Posted) -> (MailFault, Option<u16>) {
    match &posted.result {
        MailResult::Refused { class, code, .. } => (*class, *code),
        MailResult::Sent { response } => panic!("sent: {response}"),
    }
}

#[tokio::test]
async fn a_mail_arrives_as_it_was_written() {
    let server = SmtpServer::start().await;
    let parcel = Parcel {
        subject: "【返金のお知らせ】予約の仮押さえ期限が切れました（予約番号 res_20261115_0007）😀"
            .to_owned(),
        html: "<p>予約の仮押さえ期限が切れたため、<br>返金されました。</p>\n".to_owned(),
        text: ".\n..two dots\nfrom here\n.".to_owned(),
        ..parcel("taro", 1)
    };
    let posted = postman(&server).send(&parcel).await;
    assert_eq!(posted.result, MailResult::Sent { response: "Ok 0100-1".to_owned() });
    assert_eq!(posted.exchange.reference.as_deref(), Some("0100-1"));
    assert_eq!(posted.exchange.reply, "250 Ok 0100-1");
    assert!(posted.exchange.sent);
    assert!(posted.exchange.request.contains("RCPT TO:<t***@example.com>"));
    let shown = format!("{posted:?} {parcel:?}");
    assert!(!shown.contains("taro@example.com") && !shown.contains(PASSWORD), "{shown}");

    let mails = server.mails(&parcel.message_id).await;
    let [mail] = mails.as_slice() else { panic!("{mails:?}") };
    assert_eq!(
        (mail.from.as_str(), mail.to.as_str()),
        ("no-reply@tashika.example", "taro@example.com")
    );
    assert_eq!(mail.header("Subject"), [parcel.subject.as_str()]);
    assert_eq!(mail.header("Message-ID"), ["<taro-1@tashika.example>"]);
    assert_eq!(mail.header("Date"), ["Sat, 15 Nov 2025 09:30:00 +0000"]);
    assert_eq!(mail.header("From"), ["no-reply@tashika.example"]);
    assert_eq!(mail.header("To"), ["taro@example.com"]);
    let lines = |text: &Option<String>| text.as_ref().unwrap().replace("\r\n", "\n");
    assert_eq!(lines(&mail.html), parcel.html);
    assert_eq!(lines(&mail.text).trim_end_matches('\n'), parcel.text);
    assert!(mail.defects.is_empty(), "{:?}", mail.defects);
    assert!(mail.raw.is_ascii() && !mail.raw.contains("予約"));
}

/// Somebody else's reading of our headers: nothing in a subject becomes a header of its own.
#[tokio::test]
async fn a_subject_cannot_add_headers() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    let long = "a word and another ".repeat(30);
    for (number, subject, shown) in [
        (1, "Hi\r\nBcc: eve@example.com\r\n\r\nbody", "Hi  Bcc: eve@example.com    body"),
        (2, "=?UTF-8?B?SGk=?=", "=?UTF-8?B?SGk=?="),
        (3, long.as_str(), long.trim()),
        (4, "予約\nX-Evil: 1", "予約 X-Evil: 1"),
    ] {
        let parcel = Parcel { subject: subject.to_owned(), ..parcel("ok", number) };
        assert!(sent(&postman.send(&parcel).await));
        let mail = server.mails(&parcel.message_id).await.remove(0);
        assert_eq!(mail.headers.len(), 8, "{:?}", mail.headers);
        assert_eq!(mail.header("Subject"), [shown]);
        assert!(mail.defects.is_empty(), "{:?}", mail.defects);
    }
}

#[tokio::test]
async fn tls_from_the_first_byte_and_none_at_all_work_too() {
    for tls in ["tls", "none"] {
        let server = SmtpServer::with(tls, json!({})).await;
        let postman = postman(&server);
        postman.probe().await.unwrap();
        assert!(sent(&postman.send(&parcel("ok", 1)).await), "{tls}");
        assert_eq!(server.stats().await.accepted, 1);
    }
}

#[tokio::test]
async fn a_server_that_knows_only_login_is_served() {
    let server = SmtpServer::with("starttls", json!({"mechanisms": ["LOGIN"]})).await;
    assert!(sent(&postman(&server).send(&parcel("ok", 1)).await));
}

#[tokio::test]
async fn a_refused_login_is_configuration_and_a_temporary_one_is_not() {
    let server = SmtpServer::start().await;
    let wrong = postman_at(&server.url_with(USER, "hunter2"), LONG);
    let posted = wrong.send(&parcel("ok", 1)).await;
    assert_eq!(fault(&posted), (MailFault::Configuration, Some(535)));
    assert!(!posted.exchange.sent);
    let probed = wrong.probe().await.unwrap_err();
    assert!(probed.contains("at AUTH: 535"), "{probed}");
    assert!(!format!("{wrong:?} {posted:?} {probed}").contains("hunter2"));

    server.set(json!({"login": "temporary"})).await;
    let posted = postman(&server).send(&parcel("ok", 2)).await;
    assert_eq!(fault(&posted), (MailFault::Retryable, Some(454)));

    // Without a login where one is wanted.
    server.set(json!({"login": "required"})).await;
    let url = format!("smtp://localhost:{}", server.port());
    let posted = postman_at(&url, LONG).send(&parcel("ok", 3)).await;
    assert_eq!(fault(&posted), (MailFault::Configuration, Some(530)));

    let none = SmtpServer::with("starttls", json!({"mechanisms": []})).await;
    let posted = postman(&none).send(&parcel("ok", 4)).await;
    assert_eq!(fault(&posted), (MailFault::Configuration, None));
    assert_eq!(server.stats().await.accepted + none.stats().await.accepted, 0);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_gets_no_mail_and_no_password() {
    for tls in ["starttls", "tls"] {
        let server = SmtpServer::with(tls, json!({})).await;
        // Another root, one that did not sign it.
        let url = server.url().parse().unwrap();
        let distrustful = SmtpPostman::new(url, Some(crate::tls::ROOT), LONG).unwrap();
        let posted = distrustful.send(&parcel("ok", 1)).await;
        assert_eq!(fault(&posted), (MailFault::Configuration, None), "{posted:?}");
        assert!(posted.exchange.reply.contains("certificate"), "{posted:?}");
        let probed = distrustful.probe().await.unwrap_err();
        assert!(probed.contains("at TLS: "), "{probed}");
        let stats = server.stats().await;
        assert_eq!((stats.accepted, stats.logins), (0, 0), "{stats:?}");
    }
}

#[tokio::test]
async fn a_server_without_starttls_gets_no_password() {
    let server = SmtpServer::with("none", json!({})).await;
    let url = server.url().replace("tls=none", "tls=starttls");
    let posted = postman_at(&url, LONG).send(&parcel("ok", 1)).await;
    assert_eq!(fault(&posted), (MailFault::Configuration, None));
    assert_eq!(server.stats().await.logins, 0);
}

#[tokio::test]
async fn nobody_there_is_worth_another_attempt() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    for host in [format!("127.0.0.1:{port}"), "no-such-host.invalid".to_owned()] {
        let url = format!("smtp://u:p@{host}");
        let posted = postman_at(&url, LONG).send(&parcel("ok", 1)).await;
        assert_eq!(fault(&posted), (MailFault::Retryable, None), "{host}");
        assert!(!posted.exchange.sent && posted.exchange.reply.starts_with("at connecting"));
    }
}

#[tokio::test]
async fn what_is_too_long_for_the_server_is_not_sent_to_it() {
    let server = SmtpServer::with("starttls", json!({"size": 1000})).await;
    let parcel = Parcel { text: "a line of words\n".repeat(100), ..parcel("ok", 1) };
    let posted = postman(&server).send(&parcel).await;
    assert_eq!(fault(&posted), (MailFault::Recipient, Some(552)));
    assert!(!posted.exchange.sent);
    assert!(!server.stats().await.answers.contains_key("354"));
}

#[tokio::test]
async fn what_is_no_mail_does_not_reach_the_server() {
    let server = SmtpServer::start().await;
    let postman = postman(&server);
    let bad_to = Parcel { to: "a@b\r\nRCPT TO:<eve@example.com>".to_owned(), ..parcel("ok", 1) };
    let bad_from = Parcel { from: "Tashika".to_owned(), ..parcel("ok", 2) };
    for (parcel, class) in [(bad_to, MailFault::Recipient), (bad_from, MailFault::Configuration)] {
        let posted = postman.send(&parcel).await;
        assert_eq!(fault(&posted), (class, None));
        assert_eq!((posted.exchange.sent, posted.rtt), (false, Duration::ZERO));
    }
    assert_eq!(server.stats().await.connections_total, 0);
}

#[tokio::test]
async fn a_probe_sends_nothing() {
    let server = SmtpServer::start().await;
    postman(&server).probe().await.unwrap();
    let stats = server.until("the connection is closed", |stats| stats.connections == 0).await;
    assert_eq!((stats.accepted, stats.logins, stats.sending_max), (0, 1, 0), "{stats:?}");
}
