//! The clients: they place orders, click twice, retry, mix up keys, leave early, and ask.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_engine::commands::order::{OrderError, PlaceOrder, Placed};

use super::book::{Book, Entry, Heard, Todo};
use super::dice::{Odds, Stream};
use super::process::Process;
use super::tally::Tally;
use super::trouble::is_of_the_disk;

const INSTRUMENTS: [&str; 3] = ["USDJPY", "EURUSD", "BTC-USD"];
const CLIENTS: [&str; 3] = ["ann", "ben", "cho"];
/// Orders that come all at once: more than one claim takes, or than run at the same moment.
const BURST_MAX: u64 = 20;
/// The longest an impatient client waits: about as long as a commit takes here.
const PATIENCE_MS: u64 = 8;

/// One thing that a client does.
pub(crate) fn act(process: &Arc<Process>, dice: &mut Stream) {
    let keys = process.scene.book().keys();
    let earlier = (!keys.is_empty()).then(|| dice.pick(&keys).clone());
    match (dice.below(100), earlier) {
        (0..42, _) | (_, None) => fresh(process, dice),
        (42..45, _) => (0..dice.between(5, BURST_MAX)).for_each(|_| fresh(process, dice)),
        (45..55, _) => double_click(process, dice),
        (55..60, _) => mix_up(process, dice),
        (60..75, Some(key)) => again(process, dice, &key),
        (75..83, Some(key)) => other_body(process, dice, &key),
        (83..94, Some(key)) => ask(process, dice, &key),
        (_, Some(_)) => nonsense(process, dice),
    }
}

/// Makes an attempt again whose answer was not heard.
pub(crate) fn try_again(process: &Arc<Process>, dice: &mut Stream, todo: &Todo) {
    place(process, dice, &todo.key, todo.body);
}

fn new_key(process: &Process) -> String {
    format!("order-{:05}", process.scene.book().number())
}

fn new_body(dice: &mut Stream, key: &str) -> Value {
    let mut body = json!({
        "instrument": dice.pick(&INSTRUMENTS),
        "side": dice.pick(&["BUY", "SELL"]),
        "qty": dice.between(1, 500),
        "idempotency_key": key,
    });
    if dice.hit(Odds::percent(50)) {
        body["price"] = json!(dice.between(50, 200));
    }
    body
}

fn fresh(process: &Arc<Process>, dice: &mut Stream) {
    let key = new_key(process);
    let body = process.scene.book().add(&key, new_body(dice, &key));
    place(process, dice, &key, body);
}

fn double_click(process: &Arc<Process>, dice: &mut Stream) {
    let key = new_key(process);
    let body = process.scene.book().add(&key, new_body(dice, &key));
    for _ in 0..dice.between(2, 6) {
        place(process, dice, &key, body);
    }
}

/// Two different orders under one new key, at the same moment.
fn mix_up(process: &Arc<Process>, dice: &mut Stream) {
    let key = new_key(process);
    for _ in 0..2 {
        let body = process.scene.book().add(&key, new_body(dice, &key));
        place(process, dice, &key, body);
    }
}

fn again(process: &Arc<Process>, dice: &mut Stream, key: &str) {
    let bodies = process.scene.book().entry(key).map_or(0, |entry| entry.bodies.len());
    let body = dice.index(bodies);
    place(process, dice, key, body);
}

fn other_body(process: &Arc<Process>, dice: &mut Stream, key: &str) {
    let body = process.scene.book().add(key, new_body(dice, key));
    place(process, dice, key, body);
}

/// Sends an order of the book, in a task of its own, as a server would.
fn place(process: &Arc<Process>, dice: &mut Stream, key: &str, body: usize) {
    let (process, key) = (Arc::clone(process), key.to_owned());
    let client = *dice.pick(&CLIENTS);
    let impatient = dice.hit(process.scene.swarm.clients.impatient);
    let patience = dice.millis(0, PATIENCE_MS);
    let trace_id = format!("t-{:08x}", dice.roll() & 0xffff_ffff);
    let Some((number, mut order)) = process.scene.book().begin(&key, body) else { return };
    tokio::spawn(async move {
        process.fate.alive().await;
        // Does not belong to what makes two orders the same.
        order["trace_id"] = json!(trace_id);
        let request =
            PlaceOrder { client, header_key: Some(&key), body: &order, traceparent: None };
        let answer = process.orders.place(request);
        let heard = if impatient && !process.scene.is_calm() {
            tokio::time::timeout(patience, answer).await.map_or(Heard::Nothing, hear)
        } else {
            hear(answer.await)
        };
        // An answer that nobody sent was not heard.
        process.fate.alive().await;
        conclude(&process, &key, body, number, heard);
    });
}

fn hear(answer: Result<Placed, OrderError>) -> Heard {
    match answer {
        Ok(Placed::Accepted(_)) => Heard::Accepted,
        Ok(Placed::Replayed { body, .. }) => Heard::Replayed(body),
        Err(OrderError::Conflict) => Heard::Conflict,
        Err(OrderError::RateLimited(span)) => Heard::RateLimited(span),
        // 503: nothing was promised.
        Err(error) if is_of_the_disk(&error.to_string()) => Heard::Nothing,
        Err(error) => Heard::Wrong(error.to_string()),
    }
}

fn conclude(process: &Process, key: &str, body: usize, number: u64, heard: Heard) {
    let (scene, now) = (&process.scene, process.clock.now());
    let (tally, word) = match &heard {
        Heard::Accepted => (Tally::Accepted, "accepted"),
        Heard::Replayed(_) => (Tally::Replayed, "replayed"),
        Heard::Conflict => (Tally::Conflict, "conflict"),
        Heard::RateLimited(_) => (Tally::RateLimited, "rate limited"),
        Heard::Nothing => (Tally::Unheard, "left"),
        Heard::Wrong(_) => (Tally::Invalid, "wrong"),
    };
    scene.log.count(tally);
    scene.log.note(now, &format!("client {key}.{body}: {word}"));
    if let Heard::Replayed(answer) = &heard {
        scene.log.mark(now, answer);
    }
    let ended = scene.book().end(number, heard, now);
    if let Err(violation) = ended {
        scene.log.violate(now, violation);
    }
}

fn ask(process: &Arc<Process>, dice: &mut Stream, key: &str) {
    let (process, key, delay) = (Arc::clone(process), key.to_owned(), dice.millis(0, 3));
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        process.fate.alive().await;
        let promised = |book: &Book| {
            book.entry(&key).filter(|entry| entry.promised().is_some()).map(Entry::asked)
        };
        let Some(since) = promised(&process.scene.book()) else { return };
        let view = process.orders.find(&key).await;
        process.fate.alive().await;
        let (scene, now) = (&process.scene, process.clock.now());
        scene.log.count(Tally::Found);
        match view {
            Ok(view) => {
                let word = view.as_ref().map_or("unknown", |view| view.status.as_str());
                scene.log.note(now, &format!("client asks for {key}: {word}"));
                let answer = view.map(|view| view.body);
                let found = scene.book().found(&key, since, answer);
                if let Err(violation) = found {
                    scene.log.violate(now, violation);
                }
            }
            Err(error) => process.broken("answers as agreed", &key, &error.to_string()),
        }
    });
}

/// Orders that must be refused and leave no trace.
fn nonsense(process: &Arc<Process>, dice: &mut Stream) {
    let key = format!("bogus-{:05}", process.scene.book().number());
    let mut body = new_body(dice, &key);
    let mut header = Some(key.clone());
    match dice.below(6) {
        0 => body["side"] = json!("HOLD"),
        1 => body["qty"] = json!(0),
        2 => body["surprise"] = json!(true),
        3 => body["instrument"] = json!("GOLD"),
        4 => header = Some(format!("{key}x")),
        _ => header = None,
    }
    let process = Arc::clone(process);
    let client = *dice.pick(&CLIENTS);
    tokio::spawn(async move {
        process.fate.alive().await;
        let request =
            PlaceOrder { client, header_key: header.as_deref(), body: &body, traceparent: None };
        let answer = process.orders.place(request).await;
        process.fate.alive().await;
        process.scene.log.count(Tally::Invalid);
        let refused = matches!(
            answer,
            Err(OrderError::Invalid(_) | OrderError::KeyMissing | OrderError::KeyMismatch)
        );
        if !refused {
            process.broken("answers as agreed", &key, &format!("{body} was answered {answer:?}"));
        }
    });
}

/// How long clients think before the next one acts; now and then everybody is away.
pub(crate) fn think(dice: &mut Stream, max_ms: u64) -> Duration {
    if dice.hit(Odds::percent(2)) { dice.millis(1000, 240_000) } else { dice.millis(0, max_ms) }
}
