//! What people decide about renders, and what ends one from outside.

use serde_json::{Value, json};

use crate::audit::Actor;
use crate::changes::{Changes, Write};
use crate::check::Violation;
use crate::time::Timestamp;

use super::conclude::again;
use super::draft::Draft;
use super::{Event, GiveUpPayload, Illegal, Render, RenderRules, RenderStatus, State, copy_effect};

/// Longest note and longest address that are kept.
const NOTE_MAX: usize = 1000;
const URL_MAX: usize = 2000;

/// A person's word about a failed render.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The video, where there is one; else it was handled some other way.
    pub output_url: Option<String>,
    pub note: String,
}

impl Resolution {
    /// Reads `{outputUrl?, note}`.
    pub fn parse(body: &Value) -> Result<Self, Vec<Violation>> {
        let mut wrong = Vec::new();
        let mut refuse = |field: &str, problem: &str| {
            wrong.push(Violation { field: field.to_owned(), problem: problem.to_owned() });
        };
        let Some(fields) = body.as_object() else {
            refuse("", "must be an object");
            return Err(wrong);
        };
        for name in fields.keys().filter(|name| !["outputUrl", "note"].contains(&name.as_str())) {
            refuse(name, "is not known");
        }
        let note = fields.get("note").and_then(Value::as_str).map(str::trim).unwrap_or_default();
        if note.is_empty() || note.chars().count() > NOTE_MAX || note.contains('\0') {
            refuse("note", "must be a text of 1 to 1000 characters: what was done");
        }
        let output_url = match fields.get("outputUrl") {
            None | Some(Value::Null) => None,
            Some(Value::String(url)) if is_address(url) => Some(url.clone()),
            Some(_) => {
                refuse("outputUrl", "must be an http:// or https:// address");
                None
            }
        };
        if wrong.is_empty() { Ok(Self { output_url, note: note.to_owned() }) } else { Err(wrong) }
    }
}

fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    text.len() <= URL_MAX && rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(plain))
}

/// Has a failed render tried again, as often as before. One that is under way is left alone:
/// `Ok` without changes.
pub fn retry(
    render: &Render,
    actor: Actor,
    rules: &RenderRules,
    now: Timestamp,
) -> Result<Changes, Illegal> {
    if matches!(render.status, RenderStatus::Queued | RenderStatus::Processing) {
        return Ok(Changes::new());
    }
    let mut draft = Draft::after(render, Event::Retry, now)?;
    draft.render.allowed = render.attempts + rules.attempts;
    draft.render.error = None;
    draft.line("render.retried", actor, &json!({"attempt": render.attempts + 1}));
    draft.settle_case("retry", "");
    Ok(again(draft, now, now, rules))
}

/// Takes a person's word for a failed render: it is done. A repeat changes nothing.
pub fn resolve(
    render: &Render,
    resolution: &Resolution,
    actor: Actor,
    rules: &RenderRules,
    now: Timestamp,
) -> Result<Changes, Illegal> {
    if render.status == RenderStatus::Done {
        return Ok(Changes::new());
    }
    let mut draft = Draft::after(render, Event::Resolve, now)?;
    draft.render.output_url.clone_from(&resolution.output_url);
    draft.render.output_expires_at = None;
    let details = json!({"outputUrl": resolution.output_url, "note": resolution.note});
    draft.line("render.resolved", actor, &details);
    draft.settle_case("resolve", &resolution.note);
    if rules.copies && resolution.output_url.is_some() {
        let effect = copy_effect(&draft.render, now, rules);
        draft.push(Write::Enqueue(effect));
    }
    Ok(draft.done())
}

/// Whether the clock of a failed render has run out for it: still failed, nobody has helped, and it
/// is this clock and not one of an earlier round.
#[must_use]
pub fn may_give_up(render: &Render, clock: &GiveUpPayload) -> bool {
    render.state() == State::Failed && render.attempts == clock.attempts
}

/// Gives a failed render up. What follows for the reservation goes into the same commit; a video that
/// comes later changes nothing any more.
#[must_use]
pub fn given_up(render: &Render, now: Timestamp) -> Changes {
    ended(render, Event::GiveUp, "given_up", now)
}

/// The reservation is over: nobody wants the video any more. One that is done stays done.
#[must_use]
pub fn cancelled(render: &Render, now: Timestamp) -> Changes {
    ended(render, Event::Cancel, "cancelled", now)
}

fn ended(render: &Render, event: Event, word: &str, now: Timestamp) -> Changes {
    let Ok(mut draft) = Draft::after(render, event, now) else { return Changes::new() };
    draft.render.step += 1;
    draft.line(&format!("render.{word}"), Actor::SYSTEM, &json!({"was": render.state().as_str()}));
    if render.state() == State::Failed {
        draft.settle_case(word, "");
    }
    draft.done()
}
