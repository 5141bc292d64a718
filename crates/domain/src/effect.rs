//! The life of an effect: one thing owed to the outside, one row in `outbox`.
//!
//! The state machine ([`next`]) and the decision what an attempt's outcome means ([`settle`],
//! [`lapse`]). Called by the engine after every attempt; recovery goes through the same functions as
//! the live path. Guarantees: only the transitions of `docs/states/effect.md` exist, a settled
//! effect never comes back except by an operator's requeue, and an unknown outcome is carried along
//! as `in_doubt` until somebody answers it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::changes::{Changes, LetGo, Release, Settle, Write};
use crate::lane::{Lane, LanePolicy};
use crate::mutant::{self, Mutant};
use crate::outcome::{Outcome, Reason};
use crate::time::Timestamp;

/// Identifies an effect; a `UUIDv7`, so ids sort by the time they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectId(pub Uuid);

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Where an effect stands. Spelled in the database as in the seed protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Waits for its time and for a worker.
    Pending,
    /// A worker holds the lease and may be talking to the other side.
    Sending,
    /// Ended well.
    Succeeded,
    /// The last attempt failed; becomes pending again when its backoff has passed.
    Failed,
    /// Given up: a dead letter.
    Aborted,
}

impl Status {
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Sending, Self::Succeeded, Self::Failed, Self::Aborted];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sending => "sending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Nothing happens to it any more without a person.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Succeeded | Self::Aborted)
    }
}

/// What can happen to an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A worker took the lease.
    Claim,
    /// The attempt ended well, or the ledger says that it ended well before.
    Succeed,
    /// The attempt failed and may be repeated.
    Fail,
    /// The backoff after a failure has passed.
    BackoffElapsed,
    /// It will not be tried again by software.
    GiveUp,
    /// The worker gave it back untouched, e.g. at shutdown.
    Release,
    /// The lease ran out: its worker is gone.
    Lapse,
    /// An operator wants it tried again.
    Requeue,
}

impl Event {
    pub const ALL: [Self; 8] = [
        Self::Claim,
        Self::Succeed,
        Self::Fail,
        Self::BackoffElapsed,
        Self::GiveUp,
        Self::Release,
        Self::Lapse,
        Self::Requeue,
    ];
}

/// A transition that the machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an effect that is {} cannot {event:?}", .state.as_str())]
pub struct IllegalTransition {
    pub state: Status,
    pub event: Event,
}

/// The state machine, whole.
pub const fn next(state: Status, event: Event) -> Result<Status, IllegalTransition> {
    match (state, event) {
        (Status::Pending, Event::Claim) => Ok(Status::Sending),
        (Status::Failed, Event::BackoffElapsed)
        | (Status::Sending, Event::Release)
        | (Status::Aborted, Event::Requeue) => Ok(Status::Pending),
        (Status::Sending, Event::Succeed) => Ok(Status::Succeeded),
        (Status::Sending, Event::Fail | Event::Lapse) => Ok(Status::Failed),
        (Status::Sending | Status::Failed, Event::GiveUp) => Ok(Status::Aborted),
        (state, event) => Err(IllegalTransition { state, event }),
    }
}

/// What is asked of an effect at birth.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEffect {
    pub id: EffectId,
    pub lane: Lane,
    /// Which handler performs it.
    pub kind: String,
    /// At most one live effect per kind and key.
    pub key: Option<String>,
    /// Digest of the request in the ledger; `Some` exactly if a ledger row under `(kind, key)` must
    /// agree before anything is sent.
    pub digest: Option<String>,
    /// JSON text for the handler.
    pub payload: String,
    /// Not before.
    pub run_at: Timestamp,
    pub created_at: Timestamp,
    /// When the row may be pruned, once it is settled.
    pub expires_at: Timestamp,
    /// W3C trace context of the request that asked for it: a retry days later joins its trace.
    pub traceparent: Option<String>,
    /// Born in the hands of this worker, which performs it at once; nobody claims it. If the worker
    /// disappears, it lapses like any other.
    pub held_by: Option<String>,
}

impl NewEffect {
    /// The effect as its worker has it, if it was born in somebody's hands.
    #[must_use]
    pub fn in_hand(&self) -> Option<Effect> {
        self.held_by.as_ref()?;
        Some(Effect {
            id: self.id,
            lane: self.lane.clone(),
            kind: self.kind.clone(),
            key: self.key.clone(),
            digest: self.digest.clone(),
            payload: self.payload.clone(),
            attempts: 0,
            in_doubt: false,
            fence: FIRST_FENCE,
            has_row: true,
            created_at: self.created_at,
            run_at: self.run_at,
            traceparent: self.traceparent.clone(),
        })
    }
}

/// The fence of a first claim.
pub const FIRST_FENCE: i64 = 1;

/// An effect that this worker has claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub id: EffectId,
    pub lane: Lane,
    pub kind: String,
    pub key: Option<String>,
    pub digest: Option<String>,
    pub payload: String,
    /// Failures so far.
    pub attempts: u32,
    /// An earlier attempt may have taken effect without our knowing.
    pub in_doubt: bool,
    /// Proves the lease: every write about the effect must carry it. Grows with every claim, so it
    /// also numbers the attempts.
    pub fence: i64,
    /// A message in the hands of the process that took it has no row in the outbox yet: its own row
    /// carries the lease, and most messages have ended before they need another.
    pub has_row: bool,
    pub created_at: Timestamp,
    pub run_at: Timestamp,
    pub traceparent: Option<String>,
}

impl Effect {
    /// The row of an effect that has none.
    fn row(&self, held_by: Option<String>, run_at: Timestamp, expires_at: Timestamp) -> NewEffect {
        NewEffect {
            id: self.id,
            lane: self.lane.clone(),
            kind: self.kind.clone(),
            key: self.key.clone(),
            digest: self.digest.clone(),
            payload: self.payload.clone(),
            run_at,
            created_at: self.created_at,
            expires_at,
            traceparent: self.traceparent.clone(),
            held_by,
        }
    }
}

/// What is written about an effect at the end of an attempt of `worker`.
///
/// One without a row that has succeeded needs none: what it is about tells how it ended. Any other
/// gets its row now; whoever writes this takes the lease off what carried it.
#[must_use]
pub fn end(effect: &Effect, worker: &str, end: Settle) -> Changes {
    match end.verdict {
        _ if effect.has_row => Write::Settle(end).into(),
        Verdict::Succeeded => Changes::new(),
        Verdict::Retry { .. } | Verdict::Aborted { .. } => {
            let row = effect.row(Some(worker.to_owned()), effect.run_at, end.expires_at);
            Changes::from(Write::Enqueue(row)).with(Write::Settle(end))
        }
    }
}

/// Gives an effect back untouched, for `release.run_at`.
#[must_use]
pub fn give_back(effect: &Effect, release: Release, expires_at: Timestamp) -> Changes {
    if effect.has_row {
        return Write::Release(release).into();
    }
    // Born in hand and released, all at once: a fence is never given twice, and the next claim gets the second.
    let row = effect.row(Some(NOBODY.into()), release.run_at, expires_at);
    let_go(effect, None).with(Write::Enqueue(row)).with(Write::Release(release))
}

/// A holder whose lease is over in the transaction in which it begins.
const NOBODY: &str = "nobody";

/// Takes the lease off what carries it, if the effect has no row and its holder was not heard of since.
#[must_use]
pub fn let_go(effect: &Effect, unheard_since: Option<Timestamp>) -> Changes {
    if effect.has_row {
        return Changes::new();
    }
    Write::LetGo(LetGo { id: effect.id, unheard_since }).into()
}

/// What is to become of an effect after an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Succeeded,
    /// Try again (or, in doubt, ask again) at `run_at`.
    Retry {
        run_at: Timestamp,
        reason: Reason,
        in_doubt: bool,
    },
    /// Given up. `in_doubt` says that it may nevertheless have happened.
    Aborted {
        reason: Reason,
        in_doubt: bool,
    },
}

impl Verdict {
    /// The status the row takes.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Succeeded => Status::Succeeded,
            Self::Retry { .. } => Status::Failed,
            Self::Aborted { .. } => Status::Aborted,
        }
    }

    /// Why it did not succeed.
    #[must_use]
    pub const fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Succeeded => None,
            Self::Retry { reason, .. } | Self::Aborted { reason, .. } => Some(reason),
        }
    }
}

/// Decides what an attempt's outcome means for the effect.
///
/// `Lost` and `Busy` are both tried again; what differs is the doubt that `Lost` leaves behind. A
/// handler that is given an effect in doubt must not repeat it unless repeating is safe: it asks.
pub fn settle<T>(
    effect: &Effect,
    outcome: &Outcome<T>,
    policy: &LanePolicy,
    now: Timestamp,
) -> Verdict {
    match outcome {
        Outcome::Done(_) => Verdict::Succeeded,
        Outcome::Lost(reason) if mutant::on(Mutant::LostIsRefused) => {
            Verdict::Aborted { reason: reason.clone(), in_doubt: false }
        }
        // Refusing this attempt says nothing about an earlier one that was lost.
        Outcome::Refused(reason) => {
            Verdict::Aborted { reason: reason.clone(), in_doubt: effect.in_doubt }
        }
        Outcome::Busy { reason, retry_in } => {
            retry_or_give_up(effect, reason, *retry_in, effect.in_doubt, policy, now)
        }
        Outcome::Lost(reason) => retry_or_give_up(effect, reason, None, true, policy, now),
    }
}

fn retry_or_give_up(
    effect: &Effect,
    reason: &Reason,
    retry_in: Option<Duration>,
    in_doubt: bool,
    policy: &LanePolicy,
    now: Timestamp,
) -> Verdict {
    let failures = effect.attempts + 1;
    let reason = reason.clone();
    if failures >= policy.max_attempts && !mutant::on(Mutant::AttemptsUnlimited) {
        return Verdict::Aborted { reason, in_doubt };
    }
    if mutant::on(Mutant::BackoffIgnored) {
        return Verdict::Retry { run_at: now, reason, in_doubt };
    }
    Verdict::Retry { run_at: now.plus(policy.wait_after(failures, retry_in)), reason, in_doubt }
}

/// Code of an attempt whose worker disappeared.
pub const LEASE_EXPIRED: &str = "LEASE_EXPIRED";
/// Code of an attempt whose handler panicked.
pub const HANDLER_PANICKED: &str = "HANDLER_PANICKED";
/// Code of an attempt whose settlement the database did not take.
pub const SETTLEMENT_REFUSED: &str = "SETTLEMENT_REFUSED";
/// Code of an effect whose payload its handler could not read.
pub const PAYLOAD_UNREADABLE: &str = "PAYLOAD_UNREADABLE";
/// Code of an effect whose kind no handler in this process knows.
pub const NO_HANDLER: &str = "NO_HANDLER";

/// Decides what becomes of an effect whose lease ran out.
///
/// It counts as a failure, so that an effect that kills its worker is given up in the end, and it
/// leaves doubt, because the worker may have died between sending and writing down. There is no
/// backoff: the lease was the wait.
#[must_use]
pub fn lapse(attempts: u32, policy: &LanePolicy, now: Timestamp) -> Verdict {
    let reason = Reason::new(LEASE_EXPIRED, "the worker that held the lease gave no sign of life");
    let in_doubt = !mutant::on(Mutant::LapseLeavesNoDoubt);
    if attempts + 1 >= policy.max_attempts {
        Verdict::Aborted { reason, in_doubt }
    } else {
        Verdict::Retry { run_at: now, reason, in_doubt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn effect(attempts: u32, in_doubt: bool) -> Effect {
        Effect {
            id: EffectId(Uuid::nil()),
            lane: Lane::ORDERS,
            kind: "order".into(),
            key: None,
            digest: None,
            payload: "{}".into(),
            attempts,
            in_doubt,
            fence: 1,
            has_row: true,
            created_at: NOW,
            run_at: NOW,
            traceparent: None,
        }
    }

    fn busy() -> Outcome<()> {
        Outcome::Busy { reason: Reason::new("BROKER_5XX", "500"), retry_in: None }
    }

    #[test]
    fn transitions_are_those_of_the_document() {
        let mut lines = Vec::new();
        for state in Status::ALL {
            for event in Event::ALL {
                if let Ok(to) = next(state, event) {
                    lines.push(format!("{} --{event:?}--> {}", state.as_str(), to.as_str()));
                }
            }
        }
        let document = include_str!("../../../docs/states/effect.md");
        let documented: Vec<&str> = document.lines().filter(|l| l.contains("-->")).collect();
        assert_eq!(lines, documented, "docs/states/effect.md and the machine differ");
    }

    #[test]
    fn the_sixth_failure_is_the_last() {
        let policy = LanePolicy::default();
        for attempts in 0..5 {
            let verdict = settle(&effect(attempts, false), &busy(), &policy, NOW);
            assert_eq!(verdict.status(), Status::Failed, "after {attempts} failures");
        }
        assert_eq!(settle(&effect(5, false), &busy(), &policy, NOW).status(), Status::Aborted);
    }

    #[test]
    fn a_refusal_is_never_repeated() {
        let refused: Outcome<()> = Outcome::Refused(Reason::new("BROKER_BAD_REQUEST", "400"));
        let verdict = settle(&effect(0, false), &refused, &LanePolicy::default(), NOW);
        assert!(matches!(verdict, Verdict::Aborted { in_doubt: false, .. }));
        let verdict = settle(&effect(1, true), &refused, &LanePolicy::default(), NOW);
        assert!(
            matches!(verdict, Verdict::Aborted { in_doubt: true, .. }),
            "the first may have run"
        );
    }

    #[test]
    fn doubt_stays_until_somebody_answers() {
        let policy = LanePolicy::default();
        let lost: Outcome<()> = Outcome::Lost(Reason::new("BROKER_TIMEOUT", "no answer"));
        let verdict = settle(&effect(0, false), &lost, &policy, NOW);
        assert!(matches!(verdict, Verdict::Retry { in_doubt: true, .. }));
        let verdict = settle(&effect(1, true), &busy(), &policy, NOW);
        assert!(matches!(verdict, Verdict::Retry { in_doubt: true, .. }), "busy answers nothing");
        let verdict = settle(&effect(5, true), &busy(), &policy, NOW);
        assert!(matches!(verdict, Verdict::Aborted { in_doubt: true, .. }));
        let verdict = settle(&effect(5, true), &Outcome::Done(()), &policy, NOW);
        assert_eq!(verdict, Verdict::Succeeded);
    }

    #[test]
    fn a_lapsed_lease_is_a_failure_that_leaves_doubt_and_waits_no_longer() {
        let policy = LanePolicy::default();
        match lapse(0, &policy, NOW) {
            Verdict::Retry { run_at, in_doubt: true, reason } => {
                assert_eq!(run_at, NOW);
                assert_eq!(reason.code, LEASE_EXPIRED);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(lapse(5, &policy, NOW).status(), Status::Aborted);
    }
}
