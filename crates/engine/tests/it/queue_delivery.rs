//! Messages, from publishing to their end: what arrives, what each answer means, and what becomes of dead letters.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tashika_domain::Status;
use tashika_domain::message::group::Endpoint;
use tashika_domain::message::spec::Spec;
use tashika_domain::message::{Logged, State, public_id};
use tashika_engine::Clock;
use tashika_engine::commands::message::{Published, QueueError};
use tashika_providers::guard::Guard;
use tashika_store::MessageFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;

use crate::queue_rig::{AT_ONCE, Answer, KEYS, Node, Sink, publish, says, spec};
use crate::support::{HOUR, stop};

on_both!(
    a_destination_gets_what_was_published,
    a_message_that_fails_is_tried_again,
    a_destination_may_say_when,
    a_destination_that_says_never_is_believed,
    a_message_out_of_retries_is_a_dead_letter,
    a_dead_letter_is_sent_again_as_a_new_message,
    a_dead_letter_that_is_sent_again_brings_its_limits,
    dead_letters_are_buried,
    callbacks_tell_of_every_attempt,
    a_failure_callback_tells_of_the_end,
    a_delayed_message_waits_for_its_time,
    a_group_is_one_message_for_each_url,
    an_address_that_is_refused_makes_a_dead_letter,
    a_literal_address_is_refused_at_the_door,
    a_destination_that_is_down_is_no_answer,
    a_destination_that_does_not_answer_in_time_is_asked_again,
);

/// Checks a signature the way a receiver does: by computing it again.
fn verify(token: &str, key: &str, url: &str, body: &[u8]) {
    let parts: Vec<&str> = token.split('.').collect();
    let [head, claims, signature] = parts[..] else { panic!("three parts: {token}") };
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(format!("{head}.{claims}").as_bytes());
    mac.verify_slice(&URL_SAFE_NO_PAD.decode(signature).unwrap()).expect("the signature holds");
    let read = |part: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    assert_eq!(read(head)["alg"], "HS256");
    let claims = read(claims);
    assert_eq!((&claims["iss"], &claims["sub"]), (&Value::from("Upstash"), &Value::from(url)));
    assert_eq!(claims["body"], URL_SAFE.encode(Sha256::digest(body)));
    assert_eq!(claims["nbf"], 0);
    let (iat, exp) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    assert_eq!(exp, iat + 300);
    assert!(iat * 1000 <= Clock::System.now().as_millis(), "not from the future");
}

async fn a_destination_gets_what_was_published(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    let url = sink.url("/a%2Fb/../c?x=1&y=%20z&x=2");
    let body = "{\"text\": \"確か\\u0000\" }\r\n";
    let settings = [
        ("Upstash-Method", "PUT"),
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Upstash-Forward-X-Own", "yes"),
        ("Upstash-Forward-Upstash-Message-Id", "msg_of_somebody_else"),
        ("Upstash-Label", "one"),
    ];
    let mut request = publish(&url, &settings, body);
    request.caller_ip = Some("192.0.2.7".into());
    request.traceparent =
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    let Published::One(receipt) = node.try_publish(request).await.unwrap() else { panic!("one") };
    let message = node.ended(receipt.id, State::Delivered).await;
    stop(running).await;

    let heard = sink.heard();
    assert_eq!(heard.len(), 1);
    let heard = &heard[0];
    assert_eq!(heard.method, http::Method::PUT);
    assert_eq!(heard.uri.to_string(), "/a%2Fb/../c?x=1&y=%20z&x=2", "byte for byte");
    assert_eq!(heard.body, body.as_bytes());
    assert_eq!(heard.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(heard.header("x-own"), "yes");
    assert_eq!(heard.header("user-agent"), "Upstash-QStash");
    assert_eq!(heard.header("upstash-message-id"), public_id(receipt.id), "ours wins");
    assert_eq!(heard.header("upstash-retried"), "0");
    assert_eq!(heard.header("upstash-caller-ip"), "192.0.2.7");
    assert_eq!(&heard.header("traceparent")[3..35], "0af7651916cd43dd8448eb211c80319c");
    verify(heard.header("upstash-signature"), KEYS.0, &url, body.as_bytes());
    assert!(node.is_settled(message.id).await);
    let log = node.log(message.id).await;
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].response.as_ref().map(|response| response.status), Some(200));
}

async fn a_message_that_fails_is_tried_again(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|_, before| says(if before < 2 { 500 } else { 204 })).await;
    let running = node.start();
    let id = node.publish(&sink.url("/"), &[AT_ONCE], "x").await;
    node.ended(id, State::Delivered).await;
    stop(running).await;
    let heard = sink.heard();
    let retried: Vec<&str> = heard.iter().map(|heard| heard.header("upstash-retried")).collect();
    assert_eq!(retried, ["0", "1", "2"]);
    assert_eq!(node.logged(id).await, [Logged::Error, Logged::Error, Logged::Delivered]);
    node.assert_nothing_is_forgotten().await;
}

async fn a_destination_may_say_when(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, before| match (heard.uri.path(), before) {
        ("/soon", 0) => says(429).with("Retry-After", "0"),
        ("/later", 0) => says(503).with("Retry-After", "3600"),
        ("/never", 0) => says(503).with("Retry-After", "86401"),
        _ => says(200),
    })
    .await;
    let running = node.start();
    let later = node.publish(&sink.url("/later"), &[AT_ONCE], "x").await;
    let never = node.publish(&sink.url("/never"), &[AT_ONCE], "x").await;
    // Without its Retry-After it would wait for twelve seconds.
    let began = node.clock.now();
    let soon = node.publish(&sink.url("/soon"), &[], "x").await;
    node.ended(soon, State::Delivered).await;
    assert!(node.clock.now().since(began) < Duration::from_secs(12));
    node.ended(never, State::Delivered).await;
    let line = until("an attempt", async || node.log(later).await.pop()).await;
    let wait = line.next_at.expect("another attempt").since(line.at);
    assert_eq!(wait, HOUR);
    assert_eq!(node.message(later).await.state, State::Ready);
    stop(running).await;

    let tomorrow = Node::ahead(&db, HOUR * 2).await;
    let running = tomorrow.start();
    tomorrow.ended(later, State::Delivered).await;
    stop(running).await;
}

async fn a_destination_that_says_never_is_believed(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, _| {
        let answer = Answer { body: "no", ..says(489) };
        if heard.uri.path() == "/never" {
            answer.with("Upstash-NonRetryable-Error", "true")
        } else {
            answer
        }
    })
    .await;
    let running = node.start();
    let never = node.publish(&sink.url("/never"), &[AT_ONCE], "x").await;
    let other = node.publish(&sink.url("/other"), &[AT_ONCE], "x").await;
    let letter = node.ended(never, State::Failed).await;
    node.ended(other, State::Failed).await;
    stop(running).await;
    assert_eq!(sink.count(), 1 + 4, "one, and the default of three retries");
    let response = letter.response.expect("the answer is kept");
    assert_eq!((response.status, &response.body[..]), (489, &b"no"[..]));
    assert!(letter.dlq_id.is_some());
    assert_eq!(node.logged(never).await, [Logged::Failed]);
}

async fn a_message_out_of_retries_is_a_dead_letter(db: TestDb) {
    let node = Node::new(&db).await;
    let sink =
        Sink::start(|_, _| Answer { body: "broken", ..says(500) }.with("X-Why", "dust")).await;
    let running = node.start();
    let settings = [AT_ONCE, ("Upstash-Retries", "2")];
    let id = node.publish(&sink.url("/hook"), &settings, "x").await;
    let none = node.publish(&sink.url("/once"), &[("Upstash-Retries", "0")], "x").await;
    let letter = node.ended(id, State::Failed).await;
    node.ended(none, State::Failed).await;
    stop(running).await;
    assert_eq!(sink.heard().iter().filter(|heard| heard.uri.path() == "/hook").count(), 3);
    assert_eq!(sink.count(), 4);
    let response = letter.response.clone().expect("the answer is kept");
    assert_eq!((response.status, &response.body[..]), (500, &b"broken"[..]));
    assert_eq!(response.headers["X-Why"], ["dust"]);
    let dlq_id = letter.dlq_id.clone().expect("a dead letter");
    assert_eq!(node.messages.dead_letter(&dlq_id).await.unwrap(), letter);
    assert_eq!(node.store.dead_letters().await.unwrap().0, 2);
    assert_eq!(node.effect_status(id).await, Some(Status::Aborted));
    node.assert_nothing_is_forgotten().await;
}

async fn a_dead_letter_is_sent_again_as_a_new_message(db: TestDb) {
    let node = Node::new(&db).await;
    let sink =
        Sink::start(|heard, _| says(if heard.headers.contains_key("x-again") { 200 } else { 500 }))
            .await;
    let running = node.start();
    let settings = [("Upstash-Retries", "0"), ("Upstash-Forward-X-Own", "yes")];
    let id = node.publish(&sink.url("/hook"), &settings, "body").await;
    let letter = node.ended(id, State::Failed).await;
    let overrides = spec(&[("Upstash-Forward-X-Again", "1"), ("Upstash-Retries", "5")]);
    let again = node.messages.resend(&letter, &overrides).await.unwrap().expect("a new message");
    assert_ne!(again, id);
    node.ended(again, State::Delivered).await;
    stop(running).await;
    assert_eq!(node.message(again).await.asked.retries, 5);
    let heard = sink.heard().pop().unwrap();
    assert_eq!((heard.message(), heard.text().as_str()), (again, "body"));
    assert_eq!(heard.header("x-own"), "yes");
    let gone = node.messages.dead_letter(letter.dlq_id.as_deref().unwrap()).await;
    assert!(matches!(gone, Err(QueueError::NotFound(_))), "{gone:?}");
    assert_eq!(node.messages.resend(&letter, &Spec::default()).await.unwrap(), None, "once");
    assert_eq!(node.all().await.len(), 2);
}

async fn a_dead_letter_that_is_sent_again_brings_its_limits(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|_, before| says(if before == 0 { 500 } else { 200 })).await;
    let running = node.start();
    let limited = |value: &'static str| {
        [
            ("Upstash-Retries", "0"),
            ("Upstash-Flow-Control-Key", "k"),
            ("Upstash-Flow-Control-Value", value),
        ]
    };
    let id = node.publish(&sink.url("/"), &limited("parallelism=1"), "x").await;
    let letter = node.ended(id, State::Failed).await;
    stop(running).await;
    node.messages.resend(&letter, &spec(&limited("parallelism=7"))).await.unwrap().expect("sent");
    let flow = node.messages.flow("k").await.unwrap();
    assert_eq!(flow.control.parallelism, Some(7), "the newest message's limits count");
}

async fn dead_letters_are_buried(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|_, _| says(500)).await;
    let running = node.start();
    let mut letters = Vec::new();
    for number in 0..3 {
        let settings = [("Upstash-Retries", "0"), ("Upstash-Label", "l")];
        let id = node.publish(&sink.url(&format!("/{number}")), &settings, "x").await;
        letters.push(node.ended(id, State::Failed).await);
    }
    stop(running).await;
    assert!(node.messages.bury(&letters[0]).await.unwrap());
    assert!(!node.messages.bury(&letters[0]).await.unwrap(), "once");
    assert!(node.messages.bury(&letters[1]).await.unwrap());
    let left = node.messages.dead_letters(&MessageFilter::default(), 100).await.unwrap();
    assert_eq!(left, letters[2..]);
    assert_eq!(node.counts().await["failed"], 3, "buried is not undone");
}

async fn callbacks_tell_of_every_attempt(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, before| match heard.uri.path() {
        "/hook" if before == 0 => Answer { body: "oops", ..says(500) },
        _ => Answer { body: "fine", ..says(200) },
    })
    .await;
    let running = node.start();
    let callback = sink.url("/told");
    let settings = [
        AT_ONCE,
        ("Upstash-Callback", callback.as_str()),
        ("Upstash-Callback-Forward-X-Secret", "s"),
        ("Upstash-Failure-Callback", callback.as_str()),
    ];
    let id = node.publish(&sink.url("/hook"), &settings, "original").await;
    node.ended(id, State::Delivered).await;
    assert_eq!(node.all_ended().await["delivered"], 3);
    stop(running).await;
    let mut told: Vec<Value> = sink
        .heard()
        .iter()
        .filter(|heard| heard.uri.path() == "/told")
        .map(|heard| {
            assert_eq!(heard.header("x-secret"), "s");
            verify(heard.header("upstash-signature"), KEYS.0, &callback, &heard.body);
            serde_json::from_slice(&heard.body).unwrap()
        })
        .collect();
    told.sort_by_key(|told| told["retried"].as_u64());
    assert_eq!(told.len(), 2, "no failure callback: {told:?}");
    let standard = base64::prelude::BASE64_STANDARD;
    for (told, (status, body)) in told.iter().zip([(500, "oops"), (200, "fine")]) {
        assert_eq!(
            (&told["status"], &told["body"]),
            (&status.into(), &standard.encode(body).into())
        );
        assert_eq!(told["sourceMessageId"], public_id(id));
        assert_eq!(told["sourceBody"], standard.encode("original"));
        assert_eq!((&told["maxRetries"], &told["method"]), (&3.into(), &"POST".into()));
        assert_eq!(told["url"], sink.url("/hook"));
        assert!(told.get("dlqId").is_none());
    }
}

async fn a_failure_callback_tells_of_the_end(db: TestDb) {
    let node = Node::new(&db).await;
    let sink =
        Sink::start(|heard, _| says(if heard.uri.path() == "/hook" { 500 } else { 200 })).await;
    let running = node.start();
    let callback = sink.url("/failed");
    let settings =
        [AT_ONCE, ("Upstash-Retries", "1"), ("Upstash-Failure-Callback", callback.as_str())];
    let id = node.publish(&sink.url("/hook"), &settings, "x").await;
    let letter = node.ended(id, State::Failed).await;
    assert_eq!(node.all_ended().await["delivered"], 1);
    stop(running).await;
    let heard = sink.heard();
    let told = heard.iter().filter(|heard| heard.uri.path() == "/failed").collect::<Vec<_>>();
    assert_eq!(told.len(), 1);
    let told: Value = serde_json::from_slice(&told[0].body).unwrap();
    assert_eq!(told["dlqId"].as_str(), letter.dlq_id.as_deref());
    assert_eq!((&told["status"], &told["retried"]), (&500.into(), &1.into()));
}

async fn a_delayed_message_waits_for_its_time(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    let limits = ("Upstash-Flow-Control-Value", "parallelism=5");
    let settings: [&[(&str, &str)]; 3] = [
        &[("Upstash-Delay", "1h")],
        &[("Upstash-Delay", "1h"), ("Upstash-Queue-Name", "q")],
        &[("Upstash-Delay", "1h"), ("Upstash-Flow-Control-Key", "k"), limits],
    ];
    let mut delayed = Vec::new();
    for settings in settings {
        delayed.push(node.publish(&sink.url("/delayed"), settings, "x").await);
    }
    // Whoever has none is not held up by them.
    let at_once: [&[(&str, &str)]; 3] =
        [&[], &[("Upstash-Queue-Name", "q")], &[("Upstash-Flow-Control-Key", "k"), limits]];
    for settings in at_once {
        let id = node.publish(&sink.url("/now"), settings, "x").await;
        node.ended(id, State::Delivered).await;
    }
    for id in &delayed {
        assert!(!node.message(*id).await.state.is_over());
    }
    stop(running).await;
    assert_eq!(sink.count(), 3);
    let later = Node::ahead(&db, HOUR * 2).await;
    let running = later.start();
    for id in delayed {
        later.ended(id, State::Delivered).await;
    }
    stop(running).await;
    assert_eq!(sink.count(), 6);
}

async fn a_group_is_one_message_for_each_url(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    let endpoint = |path: &str, name: Option<&str>| Endpoint {
        url: sink.url(path),
        name: name.map(ToOwned::to_owned),
    };
    let endpoints = [endpoint("/a", Some("first")), endpoint("/b", None)];
    node.messages.add_endpoints("team", &endpoints).await.unwrap();
    let mut request = publish("", &[], "x");
    request.destination = tashika_domain::message::address::Destination::Group("team".into());
    let Published::Group(receipts) = node.try_publish(request.clone()).await.unwrap() else {
        panic!("a group")
    };
    assert_eq!(receipts.len(), 2);
    for receipt in &receipts {
        node.ended(receipt.id, State::Delivered).await;
    }
    stop(running).await;
    let heard = sink.heard();
    assert!(heard.iter().all(|heard| heard.header("upstash-topic-name") == "team"));
    request.destination = tashika_domain::message::address::Destination::Group("none".into());
    let missing = node.try_publish(request).await;
    assert!(matches!(missing, Err(QueueError::NotFound(_))), "{missing:?}");
}

async fn an_address_that_is_refused_makes_a_dead_letter(db: TestDb) {
    // Published while the guard was off, or through a name: the courier has the last word.
    let node = Node::guarded(&db, Clock::System, Guard::default()).await;
    let sink = Sink::fine().await;
    let running = node.start();
    let literal = node.publish(&sink.url("/"), &[], "x").await;
    let named = sink.url("/").replace("127.0.0.1", "localhost");
    let named = node.publish(&named, &[], "x").await;
    for id in [literal, named] {
        let letter = node.ended(id, State::Failed).await;
        let why = letter.response.and_then(|response| response.error).expect("a reason");
        assert!(why.contains("loopback"), "{why}");
        assert_eq!(node.logged(id).await, [Logged::Failed], "not tried again");
    }
    stop(running).await;
    assert_eq!(sink.count(), 0);
}

async fn a_literal_address_is_refused_at_the_door(db: TestDb) {
    let node = Node::strict(&db).await;
    let (fine, refused) = ("https://a.example/", "http://169.254.169.254/latest");
    for (url, settings) in [
        (refused, vec![]),
        (fine, vec![("Upstash-Callback", refused)]),
        (fine, vec![("Upstash-Failure-Callback", refused)]),
    ] {
        let answer = node.try_publish(publish(url, &settings, "x")).await;
        assert!(matches!(answer, Err(QueueError::Bad(_))), "{answer:?}");
    }
    node.publish(fine, &[("Upstash-Callback", fine)], "x").await;
    assert_eq!(node.all().await.len(), 1);
}

async fn a_destination_that_is_down_is_no_answer(db: TestDb) {
    let node = Node::new(&db).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let running = node.start();
    let id = node.publish(&url, &[AT_ONCE, ("Upstash-Retries", "1")], "x").await;
    let letter = node.ended(id, State::Failed).await;
    stop(running).await;
    let response = letter.response.expect("what came instead of an answer");
    assert_eq!(response.status, 0);
    assert!(response.error.is_some());
    assert_eq!(node.logged(id).await, [Logged::Error, Logged::Failed]);
}

async fn a_destination_that_does_not_answer_in_time_is_asked_again(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, before| if before == 0 { says(200).behind(&gate) } else { says(200) }
    })
    .await;
    let running = node.start();
    let id = node.publish(&sink.url("/"), &[AT_ONCE, ("Upstash-Timeout", "1s")], "x").await;
    node.ended(id, State::Delivered).await;
    stop(running).await;
    gate.open();
    let log = node.log(id).await;
    assert_eq!(
        log.iter().map(|line| line.what).collect::<Vec<_>>(),
        [Logged::Error, Logged::Delivered]
    );
    let response = log[0].response.clone().expect("what came instead of an answer");
    assert_eq!(response.status, 0);
    assert!(response.error.is_some());
}
