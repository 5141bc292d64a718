//! Deliveries as they are on the wire, byte for byte.

use bytes::Bytes;
use tashika_domain::message::asked::{Headers, Method};
use tashika_providers::courier::{Courier, Known, Parcel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::courier::courier;
use crate::server::reply;

/// Answers one request that ends with `end`, and returns its bytes.
async fn hear(listen: &str, end: &'static str) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind(listen).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "{bytes:?}");
        }
        stream.write_all(&reply(204, "", "")).await.unwrap();
        String::from_utf8(bytes).unwrap()
    });
    (port, heard)
}

async fn deliver(courier: &Courier, parcel: Parcel<'_>) {
    let delivered = courier.deliver(parcel).await;
    assert!(matches!(delivered.known, Known::Answered { status: 204, .. }), "{delivered:?}");
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in pairs {
        headers.entry((*name).to_owned()).or_default().push((*value).to_owned());
    }
    headers
}

/// The lines of a head, sorted but for the first.
fn lines(heard: &str) -> Vec<&str> {
    let (head, _) = heard.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    lines[1..].sort_unstable();
    lines
}

#[tokio::test]
async fn targets_are_sent_as_they_were_given() {
    for (given, sent) in [
        ("", "/"),
        ("/", "/"),
        ("?x=1", "/?x=1"),
        ("/a%20b?x=1&y=2", "/a%20b?x=1&y=2"),
        ("//a//b//", "//a//b//"),
        ("/a/../b/./c", "/a/../b/./c"),
        ("/%2e%2E/%2F%7euser/~user", "/%2e%2E/%2F%7euser/~user"),
        ("/%E7%A2%BA%e3%81%8b", "/%E7%A2%BA%e3%81%8b"),
        ("/a;b=c,d:e@f!$&'()*+=", "/a;b=c,d:e@f!$&'()*+="),
        ("/x?", "/x?"),
        ("/x??a=?b=/c&&=&d", "/x??a=?b=/c&&=&d"),
        ("/?next=https://example.com/?a=1%26b", "/?next=https://example.com/?a=1%26b"),
        ("/?q=a+b%2Bc|d{e}'`^[]", "/?q=a+b%2Bc|d{e}'`^[]"),
        ("/bad%zz%", "/bad%zz%"),
        ("/page?a=1#part?b=2", "/page?a=1"),
        ("#only", "/"),
        ("/\\back\\slash", "/\\back\\slash"),
    ] {
        let (port, heard) = hear("127.0.0.1:0", "\r\n\r\n").await;
        let url = format!("http://127.0.0.1:{port}{given}");
        let parcel = Parcel {
            method: Method::Get,
            url: &url,
            headers: &Headers::new(),
            own: &[],
            body: Bytes::new(),
            timeout: None,
        };
        deliver(&courier(), parcel).await;
        let expected = format!(
            "GET {sent} HTTP/1.1\r\nUser-Agent: Upstash-QStash\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        );
        assert_eq!(heard.await.unwrap(), expected, "{given}");
    }
}

#[tokio::test]
async fn headers_are_forwarded_but_not_those_of_the_hop() {
    let (port, heard) = hear("127.0.0.1:0", "\r\n\r\nbody").await;
    let forwarded = headers(&[
        ("Content-Type", "text/plain"),
        ("X-Twice", "1"),
        ("X-Twice", "2"),
        ("X-Utf-8", "確か"),
        ("Upstash-Message-Id", "forged"),
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Host", "elsewhere.example"),
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Keep-Alive", "1"),
        ("Proxy-Authorization", "1"),
        ("Te", "trailers"),
        ("Trailer", "X"),
        ("Upgrade", "websocket"),
        ("Expect", "100-continue"),
    ]);
    let url = format!("http://127.0.0.1:{port}/");
    let own = [("Upstash-Message-Id", "msg_1"), ("upstash-retried", "0")];
    let parcel = Parcel {
        method: Method::Post,
        url: &url,
        headers: &forwarded,
        own: &own,
        body: Bytes::from_static(b"body"),
        timeout: None,
    };
    deliver(&courier(), parcel).await;
    let heard = heard.await.unwrap();
    let host = format!("Host: 127.0.0.1:{port}");
    let expected = [
        "POST / HTTP/1.1",
        "Content-Length: 4",
        "Content-Type: text/plain",
        &host,
        "Upstash-Message-Id: msg_1",
        "Upstash-Retried: 0",
        "User-Agent: Upstash-QStash",
        "X-Twice: 1",
        "X-Twice: 2",
        "X-Utf-8: 確か",
    ];
    assert_eq!(lines(&heard), expected);
}

#[tokio::test]
async fn every_method_is_sent_with_its_body_and_without() {
    for method in Method::ALL {
        for body in ["", "{\"a\":1}"] {
            let end: &'static str = if body.is_empty() { "\r\n\r\n" } else { "\r\n\r\n{\"a\":1}" };
            let (port, heard) = hear("127.0.0.1:0", end).await;
            let url = format!("http://127.0.0.1:{port}/");
            let agent = headers(&[("User-Agent", "mine")]);
            let parcel = Parcel {
                method,
                url: &url,
                headers: &agent,
                own: &[],
                body: Bytes::from_static(body.as_bytes()),
                timeout: None,
            };
            deliver(&courier(), parcel).await;
            let heard = heard.await.unwrap();
            let length = match (method, body) {
                (Method::Get | Method::Delete, "") => None,
                _ => Some(format!("Content-Length: {}", body.len())),
            };
            let (first, host) = (format!("{method} / HTTP/1.1"), format!("Host: 127.0.0.1:{port}"));
            let expected: Vec<&str> =
                [Some(first.as_str()), length.as_deref(), Some(host.as_str())]
                    .into_iter()
                    .flatten()
                    .chain(["User-Agent: mine"])
                    .collect();
            assert_eq!(lines(&heard), expected);
        }
    }
}

#[tokio::test]
async fn a_user_in_the_url_is_basic_authorization_unless_one_is_forwarded() {
    for (forwarded, sent) in [
        (headers(&[]), "Authorization: Basic dXNlcjpwQHc="),
        (headers(&[("Authorization", "Bearer t")]), "Authorization: Bearer t"),
    ] {
        let (port, heard) = hear("127.0.0.1:0", "\r\n\r\n").await;
        let url = format!("http://user:p%40w@127.0.0.1:{port}/");
        let parcel = Parcel {
            method: Method::Get,
            url: &url,
            headers: &forwarded,
            own: &[],
            body: Bytes::new(),
            timeout: None,
        };
        deliver(&courier(), parcel).await;
        let heard = heard.await.unwrap();
        let host = format!("Host: 127.0.0.1:{port}");
        let expected = ["GET / HTTP/1.1", sent, &host, "User-Agent: Upstash-QStash"];
        assert_eq!(lines(&heard), expected);
    }
}

#[tokio::test]
async fn ipv6_literals_are_dialled() {
    let (port, heard) = hear("[::1]:0", "\r\n\r\n").await;
    let url = format!("http://[0:0::1]:{port}/x");
    let parcel = Parcel {
        method: Method::Get,
        url: &url,
        headers: &Headers::new(),
        own: &[],
        body: Bytes::new(),
        timeout: None,
    };
    deliver(&courier(), parcel).await;
    let heard = heard.await.unwrap();
    let host = format!("Host: [::1]:{port}");
    assert_eq!(lines(&heard), ["GET /x HTTP/1.1", &host, "User-Agent: Upstash-QStash"]);
}
