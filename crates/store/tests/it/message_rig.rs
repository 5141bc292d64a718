//! Messages as cases about them need them.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::message::asked::{Asked, Callback, Flow, Headers, Method, Redact};
use tashika_domain::message::gate::{FlowControl, Queue};
use tashika_domain::message::group::{Endpoint, Group};
use tashika_domain::message::keys::SigningKeys;
use tashika_domain::message::schedule::Schedule;
use tashika_domain::message::{
    Begin, Draft, LastAttempt, LogLine, Logged, Message, Response, State, accept,
};
use tashika_domain::{Changes, Write};
use tashika_store::{MessageFilter, Store};
use uuid::Uuid;

use crate::support::*;

/// Everything that can be asked for at once.
pub fn asked() -> Asked {
    let headers = |name: &str| Headers::from([(name.to_owned(), vec!["a".into(), "確".into()])]);
    Asked {
        url: "https://User@A.example:8443/Hook/x?q=%20&q=2".into(),
        method: Method::Patch,
        headers: headers("X-Sent"),
        retries: 7,
        retry_delay: Some("pow(2, retried)".into()),
        timeout: Some(Duration::from_millis(1500)),
        callback: Some(Callback {
            url: "https://c.example/".into(),
            method: Some(Method::Put),
            retries: Some(2),
            retry_delay: Some("1".into()),
            timeout: Some(Duration::from_secs(3)),
            headers: headers("X-Told"),
        }),
        failure_callback: Some(Callback {
            url: "https://f.example/".into(),
            ..Callback::default()
        }),
        topic: Some("team".into()),
        endpoint: Some("first".into()),
        queue: Some("q".into()),
        schedule: Some("s".into()),
        caller_ip: Some("192.0.2.7".into()),
        labels: vec!["one".into(), "Two, \"quoted\" %_".into()],
        flow: Some(flow()),
        redact: Redact { body: true, headers: false, named: vec!["X-Sent".into()] },
    }
}

pub fn flow() -> Flow {
    Flow { key: "k/1".into(), parallelism: Some(2), rate: Some(3), period: Duration::from_secs(9) }
}

pub fn draft(number: u64, asked: Asked) -> Draft {
    Draft {
        id: id(number).0,
        asked: asked.into(),
        body: Arc::from(&[0, 159, 255, b'x'][..]),
        not_before: None,
        dedup_key: None,
        holds: None,
        traceparent: Some("00-trace".into()),
        now: millis(i64::try_from(number).unwrap()),
        expires_at: at(FOREVER),
        begin: Begin::Due,
    }
}

/// A message to an address of its own, and what accepting it writes.
pub fn plain(number: u64) -> (Message, Changes) {
    accept(draft(number, Asked { url: format!("https://a.example/{number}"), ..Asked::default() }))
}

/// Accepts a message.
pub async fn accepted(store: &Store, draft: Draft) -> Message {
    let (message, changes) = accept(draft);
    store.commit(changes).await.expect("it is accepted");
    message
}

pub async fn update(store: &Store, message: &Message) -> Said {
    commit(store, [Write::MessageUpdate(Box::new(message.clone()))]).await
}

pub async fn read(store: &Store, id: Uuid) -> Message {
    store.message(id).await.expect("the read succeeds").expect("the message is kept")
}

pub fn over(message: &Message, state: State, second: i64) -> Message {
    let version = message.version + 1;
    Message { state, version, ended_at: Some(at(second)), ..message.clone() }
}

/// A message that a last attempt ended, with the name that attempt has among the lines of the log.
pub fn tried(message: &Message, state: State, number: u64) -> Message {
    let LogLine { id, at, started_at, retried, response, .. } = line(number, message.id);
    let last = Some(LastAttempt { id, started_at, retried });
    Message { ended_at: Some(at), last, response, ..over(message, state, 0) }
}

/// A dead letter that died of a status.
pub fn dead(message: &Message, second: i64, status: u16) -> Message {
    Message {
        dlq_id: Some(format!("{second}-{}", message.id.simple())),
        response: Some(Response { status, ..Response::default() }),
        ..over(message, State::Failed, second)
    }
}

pub async fn list(store: &Store, filter: &MessageFilter) -> Vec<Uuid> {
    let found = store.messages(filter, 1000).await.expect("the read succeeds");
    found.iter().map(|message| message.id).collect()
}

pub fn line(number: u64, message: Uuid) -> LogLine {
    LogLine {
        id: id(number).0,
        message_id: message,
        at: millis(i64::try_from(number).unwrap()),
        what: Logged::Error,
        started_at: millis(i64::try_from(number).unwrap() - 1),
        retried: 2,
        next_at: Some(at(99)),
        response: Some(Response {
            status: 503,
            headers: Headers::from([("Retry-After".into(), vec!["1".into()])]),
            body: vec![0, 255],
            error: Some("確か".into()),
        }),
    }
}

pub fn queue(number: u64, name: &str) -> Queue {
    Queue::new(id(number).0, name, at(0))
}

pub fn control(number: u64) -> FlowControl {
    FlowControl::new(id(number).0, &flow(), at(0))
}

pub fn group(number: u64, name: &str) -> Group {
    let mut group = Group::new(id(number).0, name, at(0));
    group.add([
        Endpoint { url: "https://a.example/".into(), name: Some("確".into()) },
        Endpoint { url: "https://b.example/".into(), name: None },
    ]);
    group.headers = asked().headers;
    group
}

pub fn schedule(number: u64, name: &str) -> Schedule {
    Schedule {
        id: id(number).0,
        version: 1,
        name: name.into(),
        cron: "CRON_TZ=Asia/Tokyo 0 9 * * *".into(),
        destination: "https://a.example/".into(),
        // The address of a schedule is its destination.
        asked: Asked { url: String::new(), ..asked() },
        body: Arc::from(&[0, 255][..]),
        delay: Some(Duration::from_millis(1500)),
        paused: true,
        created_at: at(0),
        updated_at: at(1),
        last_at: Some(at(2)),
        next_at: Some(at(3)),
        last_messages: vec![id(1).0, id(2).0],
        error: Some("確か".into()),
        deleted_at: None,
    }
}

pub fn keys() -> SigningKeys {
    SigningKeys { version: 1, current: "sig_a".into(), next: "sig_b".into() }
}
