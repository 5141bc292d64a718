//! What must be true of a run, judged in pure functions over what was read.
//!
//! | Rule | Says |
//! |---|---|
//! | nothing is lost | a message that a client was told of is there, in one state |
//! | nothing is invented | every message has its origin: a client, a callback, a dead letter, a tick |
//! | delivered is true | a consumer answered 2xx; if it does not lie, it has done it |
//! | given up for a reason | all retries failed, it was refused for ever, or it killed workers |
//! | cancelled is cancelled | who was told so was told the truth, and nobody is who did not ask |
//! | over is over | states move along the machine; nothing is attempted that is over |
//! | somebody works on it | a message that is not over has a living effect, parked if it must wait |
//! | everything ends | at rest nothing is pending: accepted = delivered + dead + cancelled |
//! | every attempt is on record | there are no more attempts than lines in the log |
//! | told of every attempt | one callback per counted attempt, one failure callback per dead letter |
//! | dead until disposed of | a dead letter is there until somebody sends it again or buries it |
//! | one per key | within the window, unless one of the two failed or was cancelled |
//! | one per tick | a schedule fires once per tick |
//! | not before its time | see `turnstile`; `Retry-After` is waited for |
//! | first in, first out | see `turnstile` |
//! | flow control | see `turnstile`; a rate counts by the moment of the decision |
//! | one pair of hands | see `turnstile` |
//! | a pause is a pause | see `turnstile` |
//!
//! # What cannot be promised
//!
//! At least once, so a consumer may do a thing twice, and may have done one that is a dead letter
//! here: its answers were lost. A consumer that says 200 and does nothing has its message delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tashika_domain::Status;
use tashika_domain::message::conclude::LAPSES_MAX;
use tashika_domain::message::{LogLine, Logged, Message, PARKED, State};
use tashika_store::EffectRow;
use uuid::Uuid;

use super::log::Violation;
use super::world::Truth;

/// What was seen of the messages before.
#[derive(Default)]
pub(crate) struct Memory {
    seen: BTreeMap<Uuid, (i64, State)>,
    /// Messages that are not over, or were touched since they were looked at.
    hot: BTreeSet<Uuid>,
}

impl Memory {
    pub fn touch(&mut self, id: Uuid) {
        self.hot.insert(id);
    }

    /// Some that are worth a look, others each time.
    pub fn hot(&self, turn: u64, most: usize) -> Vec<Uuid> {
        let len = self.hot.len().max(1);
        let skip = usize::try_from(turn).unwrap_or(0).wrapping_mul(most) % len;
        let twice = self.hot.iter().chain(self.hot.iter());
        twice.skip(skip).take(most.min(self.hot.len())).copied().collect()
    }
}

/// Everything that is known about one message at one moment.
pub(crate) struct Evidence<'a> {
    pub id: Uuid,
    pub message: Option<&'a Message>,
    pub effect: Option<&'a EffectRow>,
    pub truth: &'a Truth,
    /// Somebody asked for its end; somebody was told that it has ended so.
    pub cancellation: (bool, bool),
    /// Somebody wanted the dead letter to go.
    pub disposed: bool,
    pub liar: bool,
    /// Nothing is under way any more.
    pub at_rest: Option<AtRest<'a>>,
}

/// What is known of a message in the end.
#[derive(Clone, Copy)]
pub(crate) struct AtRest<'a> {
    pub lines: &'a [LogLine],
    /// Callbacks about it, and failure callbacks.
    pub told: (usize, usize),
    /// How far the clocks of those who have written the lines may be apart.
    pub apart: Duration,
}

type Finding = Result<(), (&'static str, String)>;

fn broken(rule: &'static str, detail: impl Into<String>) -> Finding {
    Err((rule, detail.into()))
}

impl Evidence<'_> {
    pub fn judge(&self, memory: &mut Memory) -> Vec<Violation> {
        let findings = match self.message {
            None => vec![broken("nothing is lost", "a client was told of it, and it is not there")],
            Some(message) => {
                if message.state.is_over() {
                    memory.hot.remove(&self.id);
                } else {
                    memory.hot.insert(self.id);
                }
                let mut findings = vec![
                    self.delivered_is_true(message),
                    self.cancelled_is_cancelled(message),
                    self.dead_until_disposed_of(message),
                    self.somebody_works_on_it(message),
                    over_is_over(message, memory),
                ];
                if let Some(rest) = self.at_rest {
                    findings.extend([
                        everything_ends(message),
                        self.given_up_for_a_reason(message, rest),
                        self.attempts_are_on_record(rest),
                        told_of_every_attempt(message, rest),
                        waits_as_told(rest),
                    ]);
                }
                findings
            }
        };
        let violation = |(rule, detail)| Violation { rule, key: self.id.to_string(), detail };
        findings.into_iter().filter_map(Result::err).map(violation).collect()
    }

    fn delivered_is_true(&self, message: &Message) -> Finding {
        const RULE: &str = "delivered is true";
        if message.state != State::Delivered {
            return Ok(());
        }
        if self.truth.fine == 0 {
            return broken(RULE, "no consumer has answered 2xx");
        }
        if !self.liar && self.truth.processed == 0 {
            return broken(RULE, "nobody has done it, and nobody lies");
        }
        Ok(())
    }

    fn cancelled_is_cancelled(&self, message: &Message) -> Finding {
        const RULE: &str = "cancelled is cancelled";
        let (asked, told) = self.cancellation;
        match message.state {
            State::Cancelled if !asked => broken(RULE, "nobody has asked for that"),
            State::Cancelled => Ok(()),
            state if told => {
                broken(RULE, format!("a client was told so, it is {}", state.as_str()))
            }
            _ => Ok(()),
        }
    }

    fn dead_until_disposed_of(&self, message: &Message) -> Finding {
        const RULE: &str = "dead until disposed of";
        match (message.state, &message.dlq_id) {
            (State::Failed, None) if !self.disposed => broken(RULE, "nobody has disposed of it"),
            (State::Failed, _) | (_, None) => Ok(()),
            (state, Some(_)) => broken(RULE, format!("a dead letter that is {}", state.as_str())),
        }
    }

    fn somebody_works_on_it(&self, message: &Message) -> Finding {
        const RULE: &str = "somebody works on it";
        let Some(effect) = self.effect else {
            // Nothing is left of one that ended in the hands of whoever took it.
            return match message.state {
                State::Delivered | State::Cancelled => Ok(()),
                state => broken(RULE, format!("{}, and it has no effect", state.as_str())),
            };
        };
        let (state, status) = (message.state, effect.status);
        let waits = !status.is_settled() && status != Status::Sending;
        let parked = effect.next_run_at == PARKED;
        let right = match state {
            State::Queued | State::Throttled => waits && parked,
            State::Ready => status == Status::Sending || (waits && !parked),
            State::Delivered | State::Failed => status.is_settled(),
            State::Cancelled => status.is_settled() || self.at_rest.is_none(),
        };
        if right {
            return Ok(());
        }
        let text = format!("{}, its effect {}, parked: {parked}", state.as_str(), status.as_str());
        broken(RULE, text)
    }

    fn given_up_for_a_reason(&self, message: &Message, rest: AtRest<'_>) -> Finding {
        if message.state != State::Failed {
            return Ok(());
        }
        let lapses = count(rest.lines, |what| what == Logged::Lapsed);
        let tries = count(rest.lines, |what| matches!(what, Logged::Error | Logged::Failed));
        let enough = tries > message.asked.retries as usize;
        if enough || self.truth.never > 0 || lapses >= LAPSES_MAX as usize {
            return Ok(());
        }
        let retries = message.asked.retries;
        let detail = format!("after {tries} attempts of 1 + {retries}, and {lapses} lapses");
        broken("given up for a reason", detail)
    }

    fn attempts_are_on_record(&self, rest: AtRest<'_>) -> Finding {
        let lines = count(rest.lines, |what| what != Logged::Cancelled);
        if self.truth.attempts as usize > lines {
            let detail = format!("{} attempts, {lines} lines", self.truth.attempts);
            return broken("every attempt is on record", detail);
        }
        Ok(())
    }
}

fn everything_ends(message: &Message) -> Finding {
    if message.state.is_over() {
        return Ok(());
    }
    broken("everything ends", format!("it is {}", message.state.as_str()))
}

fn count(lines: &[LogLine], which: impl Fn(Logged) -> bool) -> usize {
    lines.iter().filter(|line| which(line.what)).count()
}

/// What comes of an attempt after its message was cancelled is nobody's business.
fn told_of_every_attempt(message: &Message, rest: AtRest<'_>) -> Finding {
    const RULE: &str = "told of every attempt";
    let counted = |line: &&LogLine| !matches!(line.what, Logged::Lapsed | Logged::Cancelled);
    let lines: Vec<&LogLine> = rest.lines.iter().filter(counted).collect();
    let most = lines.len();
    // An attempt that ended about when the message was cancelled may have been before or after it.
    let least = match message.ended_at.filter(|_| message.state == State::Cancelled) {
        Some(at) => lines.iter().filter(|line| line.at.plus(rest.apart) < at).count(),
        None => most,
    };
    let (told, told_of_failure) = rest.told;
    let asked = &message.asked;
    let (least, most) = if asked.callback.is_some() { (least, most) } else { (0, 0) };
    if !(least..=most).contains(&told) {
        return broken(RULE, format!("{told} callbacks of {least} to {most}"));
    }
    let failed = message.state == State::Failed && asked.failure_callback.is_some();
    if told_of_failure != usize::from(failed) {
        return broken(RULE, format!("{told_of_failure} failure callbacks, failed: {failed}"));
    }
    Ok(())
}

fn waits_as_told(rest: AtRest<'_>) -> Finding {
    for line in rest.lines {
        let told = line.response.as_ref().and_then(|response| response.headers.get("Retry-After"));
        let told: Option<u64> = told.and_then(|values| values.first()?.parse().ok());
        let (Some(told), Some(next)) = (told, line.next_at) else { continue };
        if next.since(line.at).as_secs() < told {
            return broken("not before its time", format!("told to wait {told} s: {line:?}"));
        }
    }
    Ok(())
}

fn over_is_over(message: &Message, memory: &mut Memory) -> Finding {
    const RULE: &str = "over is over";
    let now = (message.version, message.state);
    let Some((version, state)) = memory.seen.insert(message.id, now) else { return Ok(()) };
    if message.version < version {
        return broken(RULE, format!("version {version}, then {}", message.version));
    }
    let moves = match (state, message.state) {
        (was, is) if was == is => true,
        (was, _) if was.is_over() => false,
        // Once through a queue nobody goes back into it.
        (_, is) => is != State::Queued,
    };
    if moves {
        return Ok(());
    }
    broken(RULE, format!("was {}, is {}", state.as_str(), message.state.as_str()))
}
