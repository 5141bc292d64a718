//! Servers that no library would be: what they say out of turn is never taken for an answer.

use std::sync::{Arc, Mutex};

use tashika_domain::mail::MailFault;
use tashika_providers::mail::{Postman as _, SmtpPostman};
use tashika_testkit::gate::until;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::smtp::{LONG, fault, parcel, postman_at, sent};

/// What a server says: to nothing (the greeting), to commands, and to the final dot.
type Says = fn(&str) -> Option<&'static str>;

fn polite(line: &str) -> Option<&'static str> {
    Some(match line {
        "" => "220 hello\r\n",
        "." => "250 Ok\r\n",
        "DATA" => "354 go on\r\n",
        "QUIT" => return None,
        line if line.starts_with("EHLO") => "250-hello\r\n250 8BITMIME\r\n",
        _ => "250 fine\r\n",
    })
}

/// A server of this kind; returns a postman for it and the lines that it has heard, a list for each connection.
async fn server(says: Says, tls: &str) -> (SmtpPostman, Arc<Mutex<Vec<Vec<String>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("smtp://127.0.0.1:{}?tls={tls}", listener.local_addr().unwrap().port());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hearing = Arc::clone(&heard);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = {
                let mut heard = hearing.lock().unwrap();
                heard.push(Vec::new());
                heard.len() - 1
            };
            let hearing = Arc::clone(&hearing);
            tokio::spawn(serve(stream, says, move |line| {
                hearing.lock().unwrap()[number].push(line);
            }));
        }
    });
    (postman_at(&url, LONG), heard)
}

/// Until the client goes, or there is nothing to say.
async fn serve(stream: TcpStream, says: Says, heard: impl Fn(String)) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut in_data = false;
    let mut line = String::new();
    loop {
        if !in_data || line == "." {
            in_data = line == "DATA";
            let Some(said) = says(&line) else { return };
            if writer.write_all(said.as_bytes()).await.is_err() {
                return;
            }
        }
        match lines.next_line().await {
            Ok(Some(next)) => line = next,
            _ => return,
        }
        heard(line.clone());
    }
}

#[tokio::test]
async fn a_polite_server_gets_its_mail() {
    let (postman, heard) = server(polite, "none").await;
    assert!(sent(&postman.send(&parcel("ok", 1)).await));
    assert!(sent(&postman.send(&parcel("ok", 2)).await));
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 1, "one connection for both");
    assert_eq!(
        &heard[0][..4],
        [
            "EHLO [127.0.0.1]",
            "MAIL FROM:<no-reply@tashika.example>",
            "RCPT TO:<ok@example.com>",
            "DATA"
        ]
    );
}

/// An answer too many: whoever used the connection again would take it for the next mail's.
#[tokio::test]
async fn a_connection_with_something_unread_is_not_used_again() {
    fn talkative(line: &str) -> Option<&'static str> {
        if line == "." { Some("250 Ok\r\n250 Ok again\r\n") } else { polite(line) }
    }
    let (postman, heard) = server(talkative, "none").await;
    for number in 0..3 {
        assert!(sent(&postman.send(&parcel("ok", number)).await));
    }
    assert_eq!(heard.lock().unwrap().len(), 3, "one connection each");
}

#[tokio::test]
async fn only_250_to_the_final_dot_is_a_yes() {
    for (says, class, code) in [
        (
            (|line| if line == "." { Some("354 go on\r\n") } else { polite(line) }) as Says,
            MailFault::PossiblySent,
            Some(354),
        ),
        (
            |line| if line == "." { Some("251 elsewhere\r\n") } else { polite(line) },
            MailFault::PossiblySent,
            Some(251),
        ),
        (
            |line| if line == "." { Some("Ok\r\n") } else { polite(line) },
            MailFault::PossiblySent,
            None,
        ),
        (|line| if line == "." { None } else { polite(line) }, MailFault::PossiblySent, None),
        (
            |line| if line == "DATA" { Some("250 Ok\r\n") } else { polite(line) },
            MailFault::Retryable,
            Some(250),
        ),
        (|line| if line == "DATA" { None } else { polite(line) }, MailFault::Retryable, None),
        (
            |line| if line.is_empty() { Some("HTTP/1.1 400 Bad\r\n\r\n") } else { polite(line) },
            MailFault::Retryable,
            None,
        ),
        (
            |line| if line.is_empty() { Some("554 go away\r\n") } else { polite(line) },
            MailFault::Configuration,
            Some(554),
        ),
    ] {
        let (postman, _) = server(says, "none").await;
        let posted = postman.send(&parcel("ok", 1)).await;
        assert_eq!(fault(&posted), (class, code), "{posted:?}");
    }
}

/// An idle connection on which the server says goodbye is replaced once, and the mail sent once.
#[tokio::test]
async fn a_goodbye_to_an_idle_connection_costs_nothing() {
    fn once(line: &str) -> Option<&'static str> {
        if line == "MAIL FROM:<again@tashika.example>" {
            return Some("421 too late\r\n");
        }
        polite(line)
    }
    let (postman, heard) = server(once, "none").await;
    assert!(sent(&postman.send(&parcel("ok", 1)).await));
    let mut again = parcel("ok", 2);
    again.from = "again@tashika.example".to_owned();
    // The new connection says the same, and that is an answer.
    let posted = postman.send(&again).await;
    assert_eq!(fault(&posted), (MailFault::Retryable, Some(421)));
    assert_eq!(heard.lock().unwrap().len(), 2, "replaced once, not again and again");
    assert!(!posted.exchange.sent);
}

/// What stood in the open before TLS began is not believed (CVE-2011-0411).
#[tokio::test]
async fn words_before_tls_are_not_believed() {
    fn injecting(line: &str) -> Option<&'static str> {
        match line {
            "STARTTLS" => Some("220 go on\r\n250 Ok\r\n"),
            line if line.starts_with("EHLO") => Some("250-hello\r\n250 STARTTLS\r\n"),
            _ => polite(line),
        }
    }
    let (postman, heard) = server(injecting, "starttls").await;
    let posted = postman.send(&parcel("ok", 1)).await;
    assert_eq!(fault(&posted), (MailFault::Retryable, None));
    assert!(posted.exchange.reply.starts_with("at TLS: "), "{posted:?}");
    let last = until("the server has heard STARTTLS", async || {
        heard.lock().unwrap()[0].iter().find(|line| *line == "STARTTLS").cloned()
    });
    last.await;
    assert!(!heard.lock().unwrap()[0].iter().any(|line| line.starts_with("MAIL")));
}
