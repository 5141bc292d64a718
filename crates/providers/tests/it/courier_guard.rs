//! The guard where it counts: at the connection.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tashika_providers::courier::{Courier, CourierConfig, Delivered, Known, Resolve};
use tashika_providers::guard::{Cidr, Guard};
use tashika_providers::reply::BoxFuture;

use crate::courier::{config, post};
use crate::server::{Act, Server, reply};

/// A resolver that gives each asker the next answer, and counts.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Vec<IpAddr>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn answering(answers: &[&[&str]]) -> Self {
        let answers = answers
            .iter()
            .map(|answer| answer.iter().map(|addr| addr.parse().unwrap()).collect())
            .collect();
        Self { answers: Arc::new(Mutex::new(answers)), asked: Arc::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Script {
    fn resolve(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(name);
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(async { answer.ok_or_else(|| io::Error::other("no such name")) })
    }
}

fn courier(guard: Guard, script: &Script) -> Courier {
    let config = CourierConfig { guard, ..config() };
    Courier::with_resolver(config, Arc::new(script.clone())).unwrap()
}

fn blocked(delivered: Delivered) -> String {
    match delivered.known {
        Known::Blocked(why) => why,
        other => panic!("{other:?}"),
    }
}

fn answered(delivered: &Delivered) -> bool {
    matches!(delivered.known, Known::Answered { status: 200, .. })
}

async fn server() -> Server {
    Server::playing(vec![Act::Say(reply(200, "", "")); 9]).await
}

#[tokio::test]
async fn literals_are_refused_without_a_resolver() {
    let server = server().await;
    let port = server.addr.port();
    let script = Script::default();
    let strict = courier(Guard::default(), &script);
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "u:p@127.1", "[::ffff:127.0.0.1]", "0"] {
        let why = blocked(post(&strict, &format!("http://{host}:{port}/?key=s3cret")).await);
        assert!(why.starts_with("invalid destination url: endpoint resolves to "), "{why}");
        assert!(!why.contains("s3cret"), "{why}");
    }
    assert!(script.asked().is_empty() && server.heard().is_empty());
}

#[tokio::test]
async fn names_are_refused_if_any_of_their_addresses_is() {
    let server = server().await;
    let url = format!("http://service.example:{}/", server.addr.port());
    for (answer, addr) in [
        (&["127.0.0.1"][..], "a loopback address: 127.0.0.1"),
        (&["8.8.8.8", "169.254.169.254"], "a cloud metadata address: 169.254.169.254"),
        (&["2606:4700::1111", "::ffff:10.0.0.1"], "a private address: ::ffff:10.0.0.1"),
    ] {
        let script = Script::answering(&[answer]);
        let why = blocked(post(&courier(Guard::default(), &script), &url).await);
        assert_eq!(why, format!("invalid destination url: endpoint resolves to {addr}"));
        assert_eq!(script.asked(), ["service.example"]);
    }
    assert!(server.heard().is_empty());
}

#[tokio::test]
async fn the_machines_own_names_are_refused_too() {
    let server = server().await;
    let strict = Courier::new(CourierConfig { guard: Guard::default(), ..config() }).unwrap();
    let url = format!("http://localhost:{}/", server.addr.port());
    assert!(blocked(post(&strict, &url).await).contains("a loopback address"));
    assert!(server.heard().is_empty());
}

#[tokio::test]
async fn what_is_allowed_is_reached() {
    let server = server().await;
    let url = format!("http://worker.internal:{}/", server.addr.port());
    let listed = |net: &str| Guard { allow: vec![Cidr::parse(net).unwrap()], ..Guard::default() };
    for guard in [
        Guard::off(),
        Guard { allow_loopback: true, ..Guard::default() },
        listed("127.0.0.0/8"),
        listed("127.0.0.1"),
    ] {
        let script = Script::answering(&[&["127.0.0.1"]]);
        let delivered = post(&courier(guard, &script), &url).await;
        assert!(answered(&delivered), "{delivered:?}");
    }
    let script = Script::answering(&[&["127.0.0.1"]]);
    blocked(post(&courier(listed("127.0.0.2"), &script), &url).await);
    let heard = server.heard();
    assert_eq!(heard.len(), 4);
    assert_eq!(heard[0].header("host"), Some(&url[7..url.len() - 1]));
}

#[tokio::test]
async fn what_was_vetted_is_what_is_dialled() {
    // Harmless first, then internal: whoever asks again between the check and the connection is
    // caught. Here the harmless one is the server's.
    let server = server().await;
    let url = format!("http://rebind.example:{}/", server.addr.port());
    let script = Script::answering(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let guard = Guard { allow: vec![Cidr::parse("127.0.0.1").unwrap()], ..Guard::default() };
    let courier = courier(guard, &script);
    assert!(answered(&post(&courier, &url).await));
    // The connection that is kept was vetted; nobody asks.
    assert!(answered(&post(&courier, &url).await));
    assert_eq!(script.asked().len(), 1);
    assert_eq!(server.heard().len(), 2);
}

#[tokio::test]
async fn every_new_connection_is_vetted_anew() {
    let once = Server::playing([Act::SayAndClose(reply(200, "connection: close\r\n", ""))]).await;
    let url = format!("http://rebind.example:{}/", once.addr.port());
    let script = Script::answering(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let guard = Guard { allow: vec![Cidr::parse("127.0.0.1").unwrap()], ..Guard::default() };
    let courier = courier(guard, &script);
    assert!(answered(&post(&courier, &url).await));
    assert!(blocked(post(&courier, &url).await).ends_with("127.0.0.2"));
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test]
async fn names_without_addresses_were_not_sent_to() {
    for (script, why) in [
        (Script::default(), "the name could not be resolved: no such name"),
        (Script::answering(&[&[]]), "the name could not be resolved: the name has no address"),
    ] {
        let delivered = post(&courier(Guard::default(), &script), "http://gone.example/").await;
        let Known::NotSent(said) = delivered.known else {
            panic!("{delivered:?}");
        };
        assert_eq!(said, why);
    }
}

#[tokio::test]
async fn hosts_in_other_scripts_are_asked_for_in_punycode() {
    let script = Script::default();
    drop(post(&courier(Guard::default(), &script), "http://確か.example./").await);
    assert_eq!(script.asked(), ["xn--u8jz49s.example."]);
}
