//! The clients: they publish, one message or many, to one consumer or a group, at once or later,
//! through queues and flow controls, with keys or without, leave early, and change their minds.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::message::address::Destination;
use tashika_domain::message::asked::Callback;
use tashika_domain::message::spec::Spec;
use tashika_engine::commands::message::{Publish, Published, QueueError, Receipt};
use uuid::Uuid;

use super::book::{label, number_of};
use super::dice::{Odds, Stream};
use super::process::Process;
use super::swarm::{CALLBACKS, GROUP, LINES, WIDE};
use super::tally::Tally;
use super::trouble::is_of_the_disk;
use super::{Planted, gates};

/// Clients mostly care about what they did last.
const RECENT: usize = 60;
/// The longest an impatient client waits.
const PATIENCE_MS: u64 = 8;
/// Keys are few, so that they meet.
const KEYS: u64 = 12;
/// Waits between attempts that end within the simulated time.
const WAITS: [Option<&str>; 4] =
    [None, Some("1000 * (1 + retried)"), Some("pow(2, retried) * 500"), Some("0")];

/// One thing that a client does.
pub(crate) fn act(process: &Arc<Process>, dice: &mut Stream) {
    let burst = process.scene.swarm.clients.burst;
    match dice.below(100) {
        0..64 => {
            for _ in 0..dice.between(1, burst) {
                let number = wish(process, dice);
                send(process, dice, vec![number]);
            }
        }
        64..76 => {
            let numbers = (0..dice.between(2, burst)).map(|_| wish(process, dice)).collect();
            send(process, dice, numbers);
        }
        76..90 => {
            for _ in 0..dice.between(1, 4) {
                cancel(process, dice);
            }
        }
        90..96 => gates::turn(process, dice),
        96 => gates::delete(process),
        _ => gates::schedule(process, dice),
    }
}

/// What somebody wants delivered, written into the book.
fn wish(process: &Arc<Process>, dice: &mut Stream) -> usize {
    let swarm = &process.scene.swarm;
    let mut book = process.scene.book();
    let number = book.next_number();
    let mut spec = Spec {
        labels: vec![label(number)],
        retries: Some(u32::try_from(*dice.pick(&[0, 1, 3, 3])).unwrap_or(3)),
        retry_delay: dice.pick(&WAITS).map(str::to_owned),
        ..Spec::default()
    };
    if dice.hit(Odds::percent(10)) {
        spec.timeout = Some(dice.millis(100, 5000));
    }
    // Whoever does not count here, host for callbacks, comes last.
    let host = dice.pick(&swarm.consumers[..swarm.consumers.len() - 1]).host.clone();
    let mut destination = Destination::Url(format!("https://{host}/hook"));
    let (mut queue, mut key, mut body) = (None, None, format!("message {number}"));
    match dice.below(100) {
        0..30 => {}
        30..38 => spec.delay = Some(Duration::from_secs(dice.between(1, 120))),
        38..48 => {
            let id = format!("k{}", dice.below(KEYS));
            key = Some(format!("id:{id}"));
            spec.dedup_id = Some(id);
        }
        48..53 => {
            // To the same consumer with the same content.
            body = format!("same {}", dice.below(KEYS));
            key = Some(format!("content:{host}:{body}"));
            spec.content_dedup = true;
        }
        53..75 => queue = Some((*dice.pick(&LINES)).to_owned()),
        75..81 => queue = Some(WIDE.to_owned()),
        81..95 => spec.flow = Some(dice.pick(&swarm.flows).clone()),
        _ => {
            destination = Destination::Group(GROUP.to_owned());
            if dice.hit(Odds::percent(30)) {
                let id = format!("g{}", dice.below(KEYS));
                key = Some(format!("group:{id}"));
                spec.dedup_id = Some(id);
            }
        }
    }
    // Through a queue, and then through a flow control; or first later.
    if queue.is_some() && dice.hit(Odds::percent(10)) {
        spec.flow = Some(dice.pick(&swarm.flows).clone());
    }
    if queue.is_some() && dice.hit(Odds::percent(8)) {
        spec.delay = Some(Duration::from_secs(dice.between(1, 30)));
    }
    callbacks(&mut spec, dice, swarm.clients.callback);
    let body = body.into_bytes().into();
    let publish = Publish { destination, spec, body, queue, caller_ip: None, traceparent: None };
    book.add(publish, key)
}

fn callbacks(spec: &mut Spec, dice: &mut Stream, odds: Odds) {
    let callback = Callback {
        url: CALLBACKS.to_owned(),
        retries: Some(3),
        retry_delay: Some("1000".to_owned()),
        ..Callback::default()
    };
    if dice.hit(odds) {
        spec.callback = Some(callback.clone());
    }
    if dice.hit(odds) {
        spec.failure_callback = Some(callback);
    }
}

/// Sends again what was not heard of.
pub(crate) fn try_again(process: &Arc<Process>, dice: &mut Stream, numbers: Vec<usize>) {
    send(process, dice, numbers);
}

/// Sends publications of the book in one request, in a task of its own, as a server would.
fn send(process: &Arc<Process>, dice: &mut Stream, numbers: Vec<usize>) {
    let process = Arc::clone(process);
    let impatient = dice.hit(process.scene.swarm.clients.impatient);
    let patience = dice.millis(0, PATIENCE_MS);
    let delay = dice.millis(0, 5);
    let forgets = dice.hit(Odds::percent(10));
    let (flight, batch) = process.scene.book().begin(&numbers);
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        process.fate.alive().await;
        let answer = publish(&process, batch, forgets);
        let heard = if impatient && !process.scene.is_calm() {
            tokio::time::timeout(patience, answer).await.ok()
        } else {
            Some(answer.await)
        };
        // An answer that nobody sent was not heard.
        process.fate.alive().await;
        conclude(&process, &numbers, flight, heard).await;
    });
}

async fn publish(
    process: &Process,
    mut batch: Vec<Publish>,
    forgets: bool,
) -> Result<Vec<Published>, QueueError> {
    match process.scene.planted {
        Some(Planted::AcksUnwritten) if forgets && !process.scene.is_calm() => {
            let id = process.ids.uuid();
            let receipt =
                |_| Published::One(Receipt { id, url: String::new(), deduplicated: false });
            return Ok(batch.iter().map(receipt).collect());
        }
        Some(Planted::DropsKeys) if forgets => {
            for publish in &mut batch {
                publish.spec.dedup_id = None;
                publish.spec.content_dedup = false;
            }
        }
        _ => {}
    }
    process.messages.publish_all(batch).await
}

async fn conclude(
    process: &Process,
    numbers: &[usize],
    flight: u64,
    heard: Option<Result<Vec<Published>, QueueError>>,
) {
    let (scene, now) = (&process.scene, process.clock.now());
    let published = match heard {
        None => {
            scene.log.count(Tally::Unheard);
            scene.log.note(now, &format!("client of {numbers:?} left"));
            scene.book().unheard(flight);
            return;
        }
        // 503: nothing was promised.
        Some(Err(error)) if is_of_the_disk(&error.to_string()) => {
            scene.log.count(Tally::Unheard);
            scene.log.note(now, &format!("client of {numbers:?} is told: {error}"));
            scene.book().unheard(flight);
            return;
        }
        Some(Err(error)) => {
            process.broken("answers as agreed", "", &format!("{numbers:?}: {error}"));
            return;
        }
        Some(Ok(published)) => published,
    };
    let receipts: Vec<Vec<Receipt>> = published
        .into_iter()
        .map(|published| match published {
            Published::One(receipt) => vec![receipt],
            Published::Group(receipts) => receipts,
        })
        .collect();
    scene.book().taken(flight, &receipts);
    for (number, receipts) in numbers.iter().zip(&receipts) {
        for Receipt { id, deduplicated, .. } in receipts {
            scene.log.note(now, &format!("client of {number}: {id}, known: {deduplicated}"));
            if *deduplicated {
                scene.log.count(Tally::Deduplicated);
                is_known(process, *number, *id).await;
            } else {
                scene.log.count(Tally::Accepted);
                scene.memory().touch(*id);
            }
        }
    }
}

/// A message that is not taken has a twin that was.
async fn is_known(process: &Process, number: usize, id: Uuid) {
    const RULE: &str = "a duplicate has an original";
    let twin = match process.store.message(id).await {
        Ok(twin) => twin,
        Err(error) => return process.broken("the store answers", "", &error.to_string()),
    };
    let key = |number| process.scene.book().publication(number).and_then(|p| p.key.clone());
    let Some(other) = twin.as_ref().and_then(number_of) else {
        return process.broken(RULE, &id.to_string(), "it is not there");
    };
    if key(number).is_none() || key(number) != key(other) {
        process.broken(RULE, &id.to_string(), &format!("{number} has another key than {other}"));
    }
}

fn cancel(process: &Arc<Process>, dice: &mut Stream) {
    let chosen = {
        let book = process.scene.book();
        let ids = book.ids();
        let recent = &ids[ids.len().saturating_sub(RECENT)..];
        (!recent.is_empty()).then(|| *dice.pick(recent))
    };
    let Some(id) = chosen else { return };
    let (process, delay) = (Arc::clone(process), dice.millis(0, 5));
    let here = dice.hit(Odds::percent(50));
    process.scene.book().act(true);
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        process.fate.alive().await;
        process.scene.book().asks_to_cancel(id);
        let messages = if here { &process.messages } else { &process.elsewhere };
        let answer = messages.cancel(id).await;
        process.fate.alive().await;
        let scene = &process.scene;
        scene.book().act(false);
        scene.memory().touch(id);
        scene.log.note(process.clock.now(), &format!("client cancels {id}: {answer:?}"));
        match answer {
            Ok(true) => {
                scene.log.count(Tally::Cancelled);
                scene.book().is_cancelled(id);
            }
            Ok(false) => scene.log.count(Tally::CancelledTooLate),
            Err(error) => process.broken("nothing is lost", &id.to_string(), &error.to_string()),
        }
    });
}

/// How long clients think before the next one acts; now and then everybody is away.
pub(crate) fn think(dice: &mut Stream, max_ms: u64) -> Duration {
    if dice.hit(Odds::percent(1)) { dice.millis(1000, 60_000) } else { dice.millis(0, max_ms) }
}
