//! Renders: the video that a customer has paid for.
//!
//! A [`Render`] is read whole; a decision takes it and what has become known, and returns
//! [`Changes`] that the store commits only if nobody has moved the render meanwhile (`version`).
//!
//! - [`start`]: the render of a reservation begins, in the commit that confirms the reservation.
//! - [`conclude`]: what an attempt at the provider, a question or a callback has brought.
//! - [`person`]: what people decide, and what ends a render from outside.
//!
//! They guarantee: one submission at a time is under way; a submission that nobody answered is
//! waited for and then counted as an attempt; three failed attempts end as a case with a deadline;
//! and whatever is over stays over: a video that comes too late is written down and changes nothing.
//! A second submission costs credits, never the customer's money, so after a doubt it is allowed.

pub mod choices;
pub mod conclude;
mod draft;
pub mod person;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::changes::{Changes, Write};
use crate::effect::{EffectId, NewEffect};
use crate::ids::derived;
use crate::lane::Lane;
use crate::outcome::Reason;
use crate::time::Timestamp;

/// The effect kind that follows a render, and the subject type of cases and audit lines.
pub const KIND: &str = "render";
/// The effect kind that copies an output before its address dies.
pub const COPY_KIND: &str = "render_copy";
/// The effect kind of the deadline of a failed render, on the lane `timers`.
pub const GIVE_UP_KIND: &str = "render_give_up";
/// The case of a render whose attempts are used up, and the rule of its alert.
pub const CASE_FAILED: &str = "render_failed";
/// The rule of the alert about an output that could not be copied.
pub const ALERT_COPY_FAILED: &str = "render_copy_failed";

/// What callers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenderStatus {
    /// To be submitted.
    Queued,
    /// The provider has it, or may have it.
    Processing,
    Done,
    /// Every attempt failed; or it was ended from outside, then it is `closed`.
    Failed,
}

impl RenderStatus {
    pub const ALL: [Self; 4] = [Self::Queued, Self::Processing, Self::Done, Self::Failed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// Where a render stands: its status, with those told apart that failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Queued,
    Processing,
    Done,
    /// Waits for a person, or for its deadline.
    Failed,
    /// Failed, and over: nothing revives it.
    Closed,
}

impl State {
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Processing, Self::Done, Self::Failed, Self::Closed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Closed => "closed",
        }
    }
}

/// What can happen to a render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Submit,
    Doubt,
    Finish,
    TryAgain,
    Exhaust,
    Retry,
    Resolve,
    GiveUp,
    Cancel,
}

impl Event {
    pub const ALL: [Self; 9] = [
        Self::Submit,
        Self::Doubt,
        Self::Finish,
        Self::TryAgain,
        Self::Exhaust,
        Self::Retry,
        Self::Resolve,
        Self::GiveUp,
        Self::Cancel,
    ];
}

/// The render's state does not allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a render that is {} does not {event:?}", .state.as_str())]
pub struct Illegal {
    pub state: State,
    pub event: Event,
}

/// The machine; `docs/states/render.md` has the same lines.
pub const fn next(state: State, event: Event) -> Result<State, Illegal> {
    Ok(match (state, event) {
        (State::Queued, Event::Submit | Event::Doubt) | (State::Processing, Event::Submit) => {
            State::Processing
        }
        // Also of an earlier attempt, whose answer was lost or which was taken for dead.
        (State::Queued | State::Processing | State::Failed, Event::Finish)
        | (State::Failed, Event::Resolve) => State::Done,
        (State::Queued | State::Processing, Event::TryAgain) | (State::Failed, Event::Retry) => {
            State::Queued
        }
        (State::Queued | State::Processing, Event::Exhaust) => State::Failed,
        (State::Failed, Event::GiveUp)
        | (State::Queued | State::Processing | State::Failed, Event::Cancel) => State::Closed,
        _ => return Err(Illegal { state, event }),
    })
}

/// Why a render is over that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody helped in time; whoever paid gets the money back.
    GivenUp,
    /// Nobody wants it any more.
    Cancelled,
}

impl Why {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GivenUp => "given_up",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::GivenUp, Self::Cancelled].into_iter().find(|why| why.as_str() == text)
    }
}

/// A render as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Render {
    pub id: Uuid,
    pub version: i64,
    pub reservation_id: Uuid,
    pub video_id: i64,
    /// Who renders.
    pub provider: String,
    pub status: RenderStatus,
    /// Submissions begun, this one included.
    pub attempts: u32,
    /// How many there may be before a person is asked.
    pub allowed: u32,
    /// The step that is under way: an effect of another step is out of date and does nothing.
    pub step: i64,
    /// The provider's id of the attempt that is under way, once it is known.
    pub provider_id: Option<String>,
    /// When the attempt that is under way was taken, or sent without an answer.
    pub submitted_at: Option<Timestamp>,
    pub output_url: Option<String>,
    /// When the provider deletes it.
    pub output_expires_at: Option<Timestamp>,
    /// Where our own copy is.
    pub output_path: Option<String>,
    pub error: Option<Reason>,
    pub closed: Option<(Timestamp, Why)>,
    pub traceparent: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Render {
    #[must_use]
    pub const fn state(&self) -> State {
        match (self.status, self.closed) {
            (RenderStatus::Queued, _) => State::Queued,
            (RenderStatus::Processing, _) => State::Processing,
            (RenderStatus::Done, _) => State::Done,
            (RenderStatus::Failed, None) => State::Failed,
            (RenderStatus::Failed, Some(_)) => State::Closed,
        }
    }

    /// Submitted, and nobody has said whether it arrived.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.status == RenderStatus::Processing && self.provider_id.is_none()
    }
}

/// What an operator has decided about renders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderRules {
    /// Who renders.
    pub provider: String,
    /// Attempts before a person is asked.
    pub attempts: u32,
    /// Before the next attempt.
    pub pause: Duration,
    /// Between two questions about a render.
    pub poll: Duration,
    /// How long an attempt may take.
    pub attempt_limit: Duration,
    /// How long a callback is waited for that would tell of a submission that nobody answered.
    pub doubt: Duration,
    /// How long a person has before the render is given up.
    pub give_up: Duration,
    /// Whether outputs are copied.
    pub copies: bool,
    /// How long effects are kept.
    pub keep: Duration,
}

impl Default for RenderRules {
    fn default() -> Self {
        Self {
            provider: "sandbox".to_owned(),
            attempts: 3,
            pause: Duration::from_secs(30),
            poll: Duration::from_secs(10),
            attempt_limit: Duration::from_secs(3600),
            doubt: Duration::from_secs(3600),
            give_up: Duration::from_secs(86_400),
            copies: false,
            keep: Duration::from_secs(7 * 86_400),
        }
    }
}

/// A render to begin.
#[derive(Clone, Copy, Debug)]
pub struct RenderOrder<'a> {
    /// Names the render.
    pub id: Uuid,
    pub reservation_id: Uuid,
    pub video_id: i64,
    pub traceparent: Option<&'a str>,
    pub rules: &'a RenderRules,
}

/// Begins a render: its row, and the effect that submits it.
#[must_use]
pub fn start(order: RenderOrder<'_>, now: Timestamp) -> Changes {
    let render = Render {
        id: order.id,
        version: 1,
        reservation_id: order.reservation_id,
        video_id: order.video_id,
        provider: order.rules.provider.clone(),
        status: RenderStatus::Queued,
        attempts: 1,
        allowed: order.rules.attempts,
        step: 1,
        provider_id: None,
        submitted_at: None,
        output_url: None,
        output_expires_at: None,
        output_path: None,
        error: None,
        closed: None,
        traceparent: order.traceparent.map(ToOwned::to_owned),
        created_at: now,
        updated_at: now,
    };
    let effect = step_effect(&render, now, now, order.rules);
    Changes::from(Write::RenderInsert(Box::new(render))).with(Write::Enqueue(effect))
}

/// What an effect of kind [`KIND`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepPayload {
    pub render_id: Uuid,
    pub step: i64,
}

/// What an effect of kind [`COPY_KIND`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyPayload {
    pub render_id: Uuid,
}

/// What an effect of kind [`GIVE_UP_KIND`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GiveUpPayload {
    pub render_id: Uuid,
    pub reservation_id: Uuid,
    /// How many attempts had failed. A person who has it tried again starts another clock.
    pub attempts: u32,
}

/// The effect of a render's next step.
fn step_effect(
    render: &Render,
    run_at: Timestamp,
    now: Timestamp,
    rules: &RenderRules,
) -> NewEffect {
    let payload = StepPayload { render_id: render.id, step: render.step };
    let parts: [&[u8]; 3] = [KIND.as_bytes(), render.id.as_bytes(), &render.step.to_be_bytes()];
    NewEffect {
        id: EffectId(derived(now, &parts)),
        lane: Lane::RENDERS,
        kind: KIND.to_owned(),
        key: None,
        digest: None,
        payload: text(&payload),
        run_at,
        created_at: now,
        expires_at: run_at.plus(rules.keep),
        traceparent: render.traceparent.clone(),
        held_by: None,
    }
}

fn copy_effect(render: &Render, now: Timestamp, rules: &RenderRules) -> NewEffect {
    let parts: [&[u8]; 2] = [COPY_KIND.as_bytes(), render.id.as_bytes()];
    NewEffect {
        id: EffectId(derived(now, &parts)),
        kind: COPY_KIND.to_owned(),
        payload: text(&CopyPayload { render_id: render.id }),
        ..step_effect(render, now, now, rules)
    }
}

fn give_up_effect(render: &Render, now: Timestamp, rules: &RenderRules) -> NewEffect {
    let run_at = now.plus(rules.give_up);
    let (id, attempts) = (render.id, render.attempts);
    let parts: [&[u8]; 3] = [GIVE_UP_KIND.as_bytes(), id.as_bytes(), &attempts.to_be_bytes()];
    let payload = GiveUpPayload { render_id: id, reservation_id: render.reservation_id, attempts };
    NewEffect {
        id: EffectId(derived(now, &parts)),
        lane: Lane::TIMERS,
        kind: GIVE_UP_KIND.to_owned(),
        payload: text(&payload),
        run_at,
        expires_at: run_at.plus(rules.keep),
        ..step_effect(render, now, now, rules)
    }
}

/// These are structs of ids and numbers, which always have a JSON.
fn text(payload: &impl Serialize) -> String {
    serde_json::to_string(payload).unwrap_or_default()
}
