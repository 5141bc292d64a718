//! The customers: they want the same slots, hold, pay or turn back, cancel, click twice, retry, mix up
//! keys, leave early, and ask.

use std::future::Future;
use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::payment::Payment;
use tashika_domain::reservation::Status;
use tashika_engine::commands::reservation::{Caller, CheckedOut, Held, ReservationError};
use uuid::Uuid;

use super::book::Heard;
use super::dice::{Odds, Stream};
use super::payments::page::Deed;
use super::process::Process;
use super::tally::Tally;
use super::trouble::is_of_the_disk;
use super::{Planted, planted};

/// Customers mostly care about what they did last.
const RECENT: usize = 20;
/// The longest an impatient customer waits.
const PATIENCE_MS: u64 = 400;

/// One thing that happens.
pub(crate) fn act(process: &Arc<Process>, dice: &mut Stream) {
    let (key, reservation) = {
        let book = process.scene.book();
        (recent(dice, book.keys()), recent(dice, book.known()))
    };
    match (dice.below(100), key, reservation) {
        (0..30, _, _) | (_, None, _) => rivals(process, dice),
        (30..36, _, _) => {
            let times = dice.between(2, 5);
            fresh(process, dice, times, None);
        }
        (36..39, _, _) => mix_up(process, dice),
        (39..45, Some(key), _) => again(process, dice, &key),
        (45..48, Some(key), _) => other_body(process, dice, &key),
        (48..78, _, Some(id)) => {
            let times = *dice.pick(&[1, 1, 2, 4]);
            (0..times).for_each(|_| check_out(process, id));
        }
        (78..92, _, Some(id)) => {
            let times = *dice.pick(&[1, 2, 2, 5]);
            (0..times).for_each(|_| cancel(process, id));
        }
        (92..96, _, Some(id)) => find(process, id),
        _ => nonsense(process, dice),
    }
}

fn recent<T: Clone>(dice: &mut Stream, from: &[T]) -> Option<T> {
    let old = dice.hit(Odds::percent(15));
    let from = if old { from } else { &from[from.len().saturating_sub(RECENT)..] };
    (!from.is_empty()).then(|| dice.pick(from).clone())
}

/// Several who want the same slot.
fn rivals(process: &Arc<Process>, dice: &mut Stream) {
    let place = place_of(process, dice);
    for _ in 0..dice.between(1, process.scene.swarm.clients.rivals) {
        fresh(process, dice, 1, Some(&place));
    }
}

/// A day and a slot.
fn place_of(process: &Process, dice: &mut Stream) -> (String, u64) {
    let swarm = &process.scene.swarm;
    let slots = u64::try_from(swarm.rules.slots_per_day).unwrap_or(1);
    let day = dice.between(1, swarm.clients.days);
    (format!("2026-12-{day:02}"), dice.between(1, slots))
}

fn body(dice: &mut Stream, (day, slot): &(String, u64)) -> Value {
    let user = dice.below(1000);
    json!({"videoId": dice.between(1, 50), "projectionDate": day, "slotNumber": slot,
        "userId": format!("u-{user}"), "userEmail": format!("u{user}@example.com"),
        "locale": dice.pick(&["ja", "en"]), "amount": dice.between(100, 9000), "currency": "JPY"})
}

fn new_key(process: &Process) -> String {
    format!("hold-{:05}", process.scene.book().number())
}

fn fresh(process: &Arc<Process>, dice: &mut Stream, times: u64, place: Option<&(String, u64)>) {
    let anywhere = place_of(process, dice);
    let body = body(dice, place.unwrap_or(&anywhere));
    let key = new_key(process);
    let asked = process.scene.book().add(&key, body);
    (0..times).for_each(|_| hold(process, dice, &key, asked));
}

/// Two different requests under one new key, at the same moment.
fn mix_up(process: &Arc<Process>, dice: &mut Stream) {
    let key = new_key(process);
    for _ in 0..2 {
        let place = place_of(process, dice);
        let body = body(dice, &place);
        let asked = process.scene.book().add(&key, body);
        hold(process, dice, &key, asked);
    }
}

fn again(process: &Arc<Process>, dice: &mut Stream, key: &str) {
    let bodies = process.scene.book().entry(key).map_or(0, |entry| entry.bodies.len());
    let asked = dice.index(bodies);
    hold(process, dice, key, asked);
}

fn other_body(process: &Arc<Process>, dice: &mut Stream, key: &str) {
    let place = place_of(process, dice);
    let body = body(dice, &place);
    let asked = process.scene.book().add(key, body);
    hold(process, dice, key, asked);
}

/// Makes an attempt again whose answer was not heard.
pub(crate) fn try_again(process: &Arc<Process>, dice: &mut Stream, key: &str, asked: usize) {
    hold(process, dice, key, asked);
}

/// Asks for a slot, in a task of its own, as a server would.
fn hold(process: &Arc<Process>, dice: &mut Stream, key: &str, asked: usize) {
    let (process, key) = (Arc::clone(process), key.to_owned());
    let impatient = dice.hit(process.scene.swarm.clients.impatient);
    let (patience, delay) = (dice.millis(0, PATIENCE_MS), dice.millis(0, 5));
    let goes_on = dice.hit(Odds::percent(70)).then(|| dice.millis(0, 3000));
    let Some((number, body)) = process.scene.book().begin(&key, asked) else { return };
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        process.fate.alive().await;
        let caller = Caller { key: Some(&key), user: None, traceparent: None };
        let answer = process.reservations.hold(caller, &body);
        let answer = if impatient && !process.scene.is_calm() {
            tokio::time::timeout(patience, answer).await.ok()
        } else {
            Some(answer.await)
        };
        process.fate.alive().await;
        let (heard, tally) = hear(answer);
        let (scene, now) = (&process.scene, process.clock.now());
        scene.log.count(tally);
        scene.log.note(now, &format!("customer hears about {key}: {heard:?}"));
        let held = if let Heard::Held(id) = heard { Some(id) } else { None };
        let ended = scene.book().end(number, heard);
        if let Err(violation) = ended {
            scene.log.violate(now, violation);
        }
        let Some(id) = held else { return };
        scene.memory().touch(id);
        if let Some(later) = goes_on.filter(|_| tally == Tally::Accepted) {
            tokio::time::sleep(later).await;
            check_out(&process, id);
        }
    });
}

fn hear(answer: Option<Result<Held, ReservationError>>) -> (Heard, Tally) {
    match answer {
        None => (Heard::Nothing, Tally::Unheard),
        Some(Ok(Held { reservation, replayed })) => {
            let tally = if replayed { Tally::Replayed } else { Tally::Accepted };
            (Heard::Held(reservation.id), tally)
        }
        Some(Err(ReservationError::Conflict)) => (Heard::Conflict, Tally::Conflict),
        Some(Err(ReservationError::SlotTaken)) => (Heard::SlotTaken, Tally::SlotTaken),
        // 503: nothing was promised.
        Some(Err(error)) if is_of_the_disk(&error.to_string()) => (Heard::Nothing, Tally::Unheard),
        Some(Err(error)) => (Heard::Wrong(error.to_string()), Tally::Unheard),
    }
}

/// Does something in a task of its own that everybody waits for in the end.
fn begin(process: &Arc<Process>, work: impl Future<Output = ()> + Send + 'static) {
    let process = Arc::clone(process);
    process.scene.book().act(true);
    tokio::spawn(async move {
        process.fate.alive().await;
        work.await;
        process.fate.alive().await;
        process.scene.book().act(false);
    });
}

const NOBODY: Caller<'static> = Caller { key: None, user: None, traceparent: None };

fn check_out(process: &Arc<Process>, id: Uuid) {
    let at = Arc::clone(process);
    begin(process, async move {
        let answer = at.reservations.check_out(id, NOBODY).await;
        at.fate.alive().await;
        let log = &at.scene.log;
        let word = match answer {
            Ok(CheckedOut::Open(payment)) => {
                log.count(Tally::CheckoutOpened);
                on_the_page(&at, &payment);
                "open"
            }
            Ok(CheckedOut::Opening(_)) => {
                log.count(Tally::CheckoutOpening);
                "opening"
            }
            Err(ReservationError::CannotCheckOut(_) | ReservationError::CheckoutRefused(_)) => {
                log.count(Tally::CheckoutRefused);
                "refused"
            }
            Err(error) if is_of_the_disk(&error.to_string()) => "nothing",
            Err(error) => {
                at.broken("answers as agreed", &id.to_string(), &error.to_string());
                "wrong"
            }
        };
        log.note(at.clock.now(), &format!("customer hears about the page of {id}: {word}"));
        at.scene.memory().touch(id);
    });
}

/// The customer sees the page, and decides once what to do there.
fn on_the_page(process: &Process, payment: &Payment) {
    let (scene, now) = (&process.scene, process.clock.now());
    if !scene.book().decides(payment.id) {
        return;
    }
    let mut dice = Stream::new(scene.seed, &format!("customer/{}", payment.id));
    let (clients, hold) = (&scene.swarm.clients, scene.swarm.rules.hold);
    if dice.hit(clients.turns_back) {
        scene.log.count(Tally::TurnedBack);
        return;
    }
    let hold = u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
    let slow = dice.hit(clients.slow);
    // Most slow ones come around the end of the hold: that is where the races are.
    let after = if slow { dice.millis(hold / 2, hold * 5 / 4) } else { dice.millis(1, 2000) };
    let deed = if dice.hit(clients.later) {
        let comes = !dice.hit(clients.never);
        Deed::PaysLater { after: dice.millis(100, hold * 2), comes }
    } else {
        Deed::Pays
    };
    scene.bank.world().customer(payment.id, deed, now.plus(after));
}

fn cancel(process: &Arc<Process>, id: Uuid) {
    let at = Arc::clone(process);
    begin(process, async move {
        let answer = at.reservations.cancel(id, NOBODY).await;
        at.fate.alive().await;
        let key = id.to_string();
        let word = match answer {
            Ok(view) if view.reservation.status == Status::Cancelled => {
                at.scene.log.count(Tally::Cancelled);
                at.scene.book().told_cancelled(id);
                if at.scene.planted == Some(Planted::RefundsAgain) {
                    planted::refund_again(&at, view.payment).await;
                }
                "cancelled"
            }
            Ok(view) => {
                let detail = format!("cancelled, and it is {}", view.reservation.status.as_str());
                at.broken("answers as agreed", &key, &detail);
                "wrong"
            }
            Err(ReservationError::CannotCancel) => {
                at.scene.log.count(Tally::CancelRefused);
                "too late"
            }
            Err(error) if is_of_the_disk(&error.to_string()) => "nothing",
            Err(error) => {
                at.broken("answers as agreed", &key, &error.to_string());
                "wrong"
            }
        };
        at.scene.log.note(at.clock.now(), &format!("customer cancels {id}: {word}"));
        at.scene.memory().touch(id);
    });
}

fn find(process: &Arc<Process>, id: Uuid) {
    let at = Arc::clone(process);
    begin(process, async move {
        let found = at.reservations.find(id, None).await;
        at.fate.alive().await;
        at.scene.log.count(Tally::Found);
        if let Err(error) = found {
            at.broken("nothing is lost", &id.to_string(), &error.to_string());
        }
    });
}

/// Requests that must be refused and leave no trace.
fn nonsense(process: &Arc<Process>, dice: &mut Stream) {
    let place = place_of(process, dice);
    let mut body = body(dice, &place);
    let key = new_key(process);
    match dice.below(5) {
        0 => body["amount"] = json!(0),
        1 => body["projectionDate"] = json!("2026-02-30"),
        2 => body["slotNumber"] = json!(process.scene.swarm.rules.slots_per_day + 1),
        3 => body["projectionDate"] = json!("2001-01-01"),
        _ => body["userEmail"] = json!("nobody"),
    }
    let at = Arc::clone(process);
    begin(process, async move {
        let caller = Caller { key: Some(&key), user: None, traceparent: None };
        let answer = at.reservations.hold(caller, &body).await;
        let stored = at.store.reservation_of_key(&key).await;
        at.fate.alive().await;
        at.scene.log.count(Tally::Invalid);
        let refused = matches!(answer, Err(ReservationError::Invalid(_)));
        if !refused || !matches!(stored, Ok(None)) {
            at.broken("answers as agreed", &key, &format!("{body} was answered {answer:?}"));
        }
    });
}
