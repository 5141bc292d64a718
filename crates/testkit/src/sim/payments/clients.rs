//! The clients: they pay, capture, void and refund; click twice, retry, mix up keys, leave early,
//! and ask.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::ledger::LedgerKey;
use tashika_domain::payment::ask::Wish;
use tashika_domain::payment::{Status, request};
use tashika_engine::commands::payment::{Answer, Caller, PaymentError};
use uuid::Uuid;

use super::book::{Heard, Request, Todo, Want};
use super::dice::{Odds, Stream};
use super::process::Process;
use super::tally::Tally;
use super::trouble::is_of_the_disk;
use super::{Planted, planted};

/// Clients mostly care about what they did last.
const RECENT: usize = 40;
/// The longest an impatient client waits.
const PATIENCE_MS: u64 = 400;

/// One thing that a client does.
pub(crate) fn act(process: &Arc<Process>, dice: &mut Stream) {
    let (key, payment) = {
        let book = process.scene.book();
        (recent(dice, book.keys()), recent(dice, book.payments()))
    };
    match (dice.below(100), key, payment) {
        (0..40, _, _) | (_, None, _) => {
            (0..dice.between(1, process.scene.swarm.clients.burst))
                .for_each(|_| fresh(process, dice, 1));
        }
        (40..45, _, _) => {
            let times = dice.between(2, 6);
            fresh(process, dice, times);
        }
        (45..48, _, _) => mix_up(process, dice),
        (48..56, Some(key), _) => again(process, dice, &key),
        (56..60, Some(key), _) => other_body(process, dice, &key),
        (60..90, _, Some(_)) => {
            for _ in 0..dice.between(1, process.scene.swarm.clients.burst) {
                let id = recent(dice, process.scene.book().payments());
                if let Some(id) = id {
                    fitting(process, dice, id);
                }
            }
        }
        (90..93, _, Some(id)) => find(process, id),
        (93..98, _, Some(id)) => verify(process, id),
        _ => nonsense(process, dice),
    }
}

/// Asks for what the payment allows, mostly.
fn fitting(process: &Arc<Process>, dice: &mut Stream, id: Uuid) {
    let known = process.scene.book().status(id);
    let (any, choice) = (dice.hit(Odds::percent(25)), dice.below(10));
    match (known, choice) {
        (Some(Status::Authorized), 0..6) => wish(process, dice, id, Want::Capture),
        (Some(Status::Authorized), _) => wish(process, dice, id, Want::Void),
        (Some(Status::Captured), _) => refund(process, dice, id),
        _ if !any => {}
        (_, 0..4) => wish(process, dice, id, Want::Capture),
        (_, 4..6) => wish(process, dice, id, Want::Void),
        _ => refund(process, dice, id),
    }
}

fn refund(process: &Arc<Process>, dice: &mut Stream, id: Uuid) {
    let refunds = *dice.pick(&[1, 1, 2, 3]);
    (0..refunds).for_each(|_| wish(process, dice, id, Want::Refund));
}

fn recent<T: Clone>(dice: &mut Stream, from: &[T]) -> Option<T> {
    let old = dice.hit(Odds::percent(20));
    let from = if old { from } else { &from[from.len().saturating_sub(RECENT)..] };
    (!from.is_empty()).then(|| dice.pick(from).clone())
}

/// Makes an attempt again whose answer was not heard.
pub(crate) fn try_again(process: &Arc<Process>, dice: &mut Stream, todo: &Todo) {
    place(process, dice, &todo.key, todo.request);
}

fn new_key(process: &Process, what: &str) -> String {
    format!("{what}-{:05}", process.scene.book().number())
}

fn new_payment(dice: &mut Stream) -> Request {
    let body = json!({
        "bookingId": format!("b-{}", dice.below(1000)),
        "userId": "u-1",
        "amount": dice.between(100, 10_000),
        "currency": "JPY",
        "paymentMethod": "tok",
        "capture": dice.pick(&["manual", "automatic"]),
    });
    Request { want: Want::Pay, payment: None, body }
}

fn fresh(process: &Arc<Process>, dice: &mut Stream, times: u64) {
    let key = new_key(process, "pay");
    let request = process.scene.book().add(&key, new_payment(dice));
    for _ in 0..times {
        place(process, dice, &key, request);
    }
}

/// Two different payments under one new key, at the same moment.
fn mix_up(process: &Arc<Process>, dice: &mut Stream) {
    let key = new_key(process, "pay");
    for _ in 0..2 {
        let request = process.scene.book().add(&key, new_payment(dice));
        place(process, dice, &key, request);
    }
}

fn again(process: &Arc<Process>, dice: &mut Stream, key: &str) {
    let requests = process.scene.book().entry(key).map_or(0, |entry| entry.requests.len());
    let request = dice.index(requests);
    place(process, dice, key, request);
}

fn other_body(process: &Arc<Process>, dice: &mut Stream, key: &str) {
    let known = process.scene.book().entry(key).map(|entry| entry.requests[0].clone());
    let Some(Request { want, payment, .. }) = known else { return };
    let request = match want {
        Want::Pay => new_payment(dice),
        _ => Request { want, payment, body: json!({"amount": dice.between(1, 9000)}) },
    };
    let request = process.scene.book().add(key, request);
    place(process, dice, key, request);
}

/// Captures, voids or refunds; now and then twice at the same moment.
fn wish(process: &Arc<Process>, dice: &mut Stream, id: Uuid, want: Want) {
    let body = match (want, dice.below(10)) {
        (Want::Void, _) | (_, 0..4) => json!({}),
        (_, 4..9) => json!({"amount": dice.between(1, 5000)}),
        _ => json!({"amount": dice.between(1, 50_000)}),
    };
    let key = new_key(process, "wish");
    let request = Request { want, payment: Some(id), body };
    let request = process.scene.book().add(&key, request);
    let times = if dice.hit(Odds::percent(20)) { 2 } else { 1 };
    for _ in 0..times {
        place(process, dice, &key, request);
    }
}

/// Sends a request of the book, in a task of its own, as a server would.
fn place(process: &Arc<Process>, dice: &mut Stream, key: &str, request: usize) {
    let (process, key) = (Arc::clone(process), key.to_owned());
    let impatient = dice.hit(process.scene.swarm.clients.impatient);
    let patience = dice.millis(0, PATIENCE_MS);
    let delay = dice.millis(0, 5);
    let Some((number, asked)) = process.scene.book().begin(&key, request) else { return };
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        process.fate.alive().await;
        let answer = ask(&process, &key, &asked);
        let heard = if impatient && !process.scene.is_calm() {
            tokio::time::timeout(patience, answer).await.unwrap_or(Heard::Nothing)
        } else {
            answer.await
        };
        // An answer that nobody sent was not heard.
        process.fate.alive().await;
        conclude(&process, &key, number, heard);
    });
}

async fn ask(process: &Process, key: &str, asked: &Request) -> Heard {
    let caller = Caller { key: Some(key), user: None, traceparent: None };
    let Some(id) = asked.payment else {
        return hear(process.payments.create(caller, &asked.body).await);
    };
    let amount = asked.body["amount"].as_i64();
    let wish = match asked.want {
        Want::Capture => Wish::Capture { amount },
        Want::Void => Wish::Void,
        Want::Pay | Want::Refund => Wish::Refund { amount, reason: None },
    };
    if process.scene.planted == Some(Planted::NoReservation) && asked.want == Want::Refund {
        return planted::refund_without_reservation(process, id, key, amount).await;
    }
    let scope = wish.scope();
    let heard = hear(process.payments.ask(caller, id, wish, &asked.body).await);
    if matches!(heard, Heard::Refused) {
        // Read at the same moment: nothing passes between the answer and the look.
        let entry = process.store.ledger_entry(&LedgerKey::new(scope, key)).await;
        let digest = request::request_digest(&id.to_string(), &asked.body);
        if entry.is_ok_and(|entry| entry.is_some_and(|entry| entry.request_digest == digest)) {
            return Heard::Wrong("refused, and the same request was taken".to_owned());
        }
    }
    heard
}

fn hear(answer: Result<Answer, PaymentError>) -> Heard {
    match answer {
        Ok(Answer { payment, http_status, .. }) => {
            Heard::Answer { payment: Box::new(payment), http: http_status }
        }
        Err(PaymentError::Conflict) => Heard::Conflict,
        Err(PaymentError::InProgress) => Heard::InProgress,
        Err(PaymentError::Refused(_)) => Heard::Refused,
        // 503: nothing was promised.
        Err(error) if is_of_the_disk(&error.to_string()) => Heard::Nothing,
        Err(error) => Heard::Wrong(error.to_string()),
    }
}

fn conclude(process: &Process, key: &str, number: u64, heard: Heard) {
    let (scene, now) = (&process.scene, process.clock.now());
    let (tally, word) = match &heard {
        Heard::Answer { payment, http } => {
            scene.memory().touch(payment.id);
            let known = scene.book().entry(key).is_some_and(|entry| entry.taken.is_some());
            let tally = if known { Tally::Replayed } else { Tally::Accepted };
            (tally, format!("{http} {}", payment.status.as_str()))
        }
        Heard::Conflict => (Tally::Conflict, "conflict".to_owned()),
        Heard::InProgress => (Tally::InProgress, "in progress".to_owned()),
        Heard::Refused => (Tally::WishRefused, "refused".to_owned()),
        Heard::Nothing => (Tally::Unheard, "nothing".to_owned()),
        Heard::Wrong(what) => (Tally::Unheard, what.clone()),
    };
    scene.log.count(tally);
    scene.log.note(now, &format!("client hears about {key}: {word}"));
    let ended = scene.book().end(number, heard, now);
    if let Err(violation) = ended {
        scene.log.violate(now, violation);
    }
}

fn find(process: &Arc<Process>, id: Uuid) {
    let process = Arc::clone(process);
    tokio::spawn(async move {
        process.fate.alive().await;
        let found = process.payments.find(id, None).await;
        process.fate.alive().await;
        process.scene.log.count(Tally::Found);
        if let Err(error) = found {
            process.broken("nothing is lost", &id.to_string(), &error.to_string());
        }
    });
}

/// Asks the gateway now.
fn verify(process: &Arc<Process>, id: Uuid) {
    let process = Arc::clone(process);
    process.scene.book().act(true);
    tokio::spawn(async move {
        process.fate.alive().await;
        let asked = process.payments.verify(id, None).await;
        process.fate.alive().await;
        process.scene.log.count(Tally::VerifiedByHand);
        process.scene.book().act(false);
        process.scene.memory().touch(id);
        if let Err(error) = asked {
            process.broken("answers as agreed", &id.to_string(), &error.to_string());
        }
    });
}

/// Requests that must be refused and leave no trace.
fn nonsense(process: &Arc<Process>, dice: &mut Stream) {
    let mut body = new_payment(dice).body;
    let key = new_key(process, "bogus");
    match dice.below(4) {
        0 => body["amount"] = json!(0),
        1 => body["currency"] = json!("GOLD"),
        2 => body["description"] = json!("4242 4242 4242 4242"),
        _ => body["bookingId"] = Value::Null,
    }
    let process = Arc::clone(process);
    tokio::spawn(async move {
        process.fate.alive().await;
        let caller = Caller { key: Some(&key), user: None, traceparent: None };
        let answer = process.payments.create(caller, &body).await;
        process.fate.alive().await;
        process.scene.log.count(Tally::Invalid);
        if !matches!(answer, Err(PaymentError::Invalid(_))) {
            process.broken("answers as agreed", &key, &format!("{body} was answered {answer:?}"));
        }
    });
}

/// How long clients think before the next one acts; now and then everybody is away.
pub(crate) fn think(dice: &mut Stream, max_ms: u64) -> Duration {
    if dice.hit(Odds::percent(1)) { dice.millis(1000, 30_000) } else { dice.millis(0, max_ms) }
}
