//! What has become known about a render, and what follows from it.
//!
//! Called by the handler of the lane `renders` after an attempt or a question, and by the webhooks'
//! handler after a callback that the provider has confirmed. All go through [`conclude`].

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::alert::{AlertResolution, NewAlert, Severity};
use crate::audit::Actor;
use crate::changes::{Changes, Write};
use crate::ids::derived;
use crate::outcome::Reason;
use crate::time::Timestamp;

use super::draft::{Draft, line};
use super::{
    ALERT_COPY_FAILED, Event, Render, RenderRules, RenderStatus, State, copy_effect,
    give_up_effect, step_effect,
};

/// A submission that nobody answered and no callback has told of.
pub const UNANSWERED: &str = "RENDER_UNANSWERED";
/// An attempt that took too long.
pub const OVERDUE: &str = "RENDER_OVERDUE";
/// The provider does not know the render that it had taken.
pub const GONE: &str = "RENDER_GONE";

/// A render as its provider sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRender {
    /// The provider's id.
    pub id: String,
    pub state: RemoteState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteState {
    /// It has it, and has not finished.
    Working,
    Done {
        url: String,
        /// When it is deleted there.
        expires_at: Option<Timestamp>,
    },
    Failed(Reason),
}

/// What has become known about the attempt that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Learned {
    /// The provider has it.
    Remote(RemoteRender),
    /// Nobody knows whether the provider has it.
    Unanswered(Reason),
    /// The attempt has failed.
    Failed(Reason),
}

/// When, by which rules, and how it became known (`submission`, `question`, `callback`, …).
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub now: Timestamp,
    pub rules: &'a RenderRules,
    pub via: &'static str,
}

/// Decides about the attempt that is under way.
#[must_use]
pub fn conclude(render: &Render, learned: &Learned, at: At<'_>) -> Changes {
    match (render.state(), learned) {
        // What is done stays done; and a question that was lost leaves no doubt.
        (State::Done, _) | (State::Processing, Learned::Unanswered(_)) => Changes::new(),
        (State::Closed, learned) => late(render, learned, at),
        (_, Learned::Remote(RemoteRender { id, state: RemoteState::Done { url, expires_at } })) => {
            finished(render, id, url, *expires_at, at)
        }
        // Its attempts are used up; that one of them has failed is known.
        (State::Failed, _) => Changes::new(),
        (
            _,
            Learned::Failed(reason)
            | Learned::Remote(RemoteRender { state: RemoteState::Failed(reason), .. }),
        ) => failed(render, reason, at),
        (_, Learned::Remote(RemoteRender { id, state: RemoteState::Working })) => {
            taken(render, id, at)
        }
        (State::Queued, Learned::Unanswered(reason)) => unanswered(render, reason, at),
    }
}

/// What a provider says without having been asked, about an attempt that it names.
///
/// `attempt` is what our own address in the callback says; without, the provider's id has to be the
/// one that we know.
#[must_use]
pub fn hear(render: &Render, remote: &RemoteRender, attempt: Option<u32>, at: At<'_>) -> Changes {
    let current = match &render.provider_id {
        Some(known) => *known == remote.id,
        None => attempt == Some(render.attempts),
    };
    // A video of an earlier attempt is as good as one of this attempt; its failure is old news.
    let done = matches!(remote.state, RemoteState::Done { .. });
    if !current && !done {
        return Changes::new();
    }
    conclude(render, &Learned::Remote(remote.clone()), at)
}

/// Too late: written down, and nothing else.
fn late(render: &Render, learned: &Learned, at: At<'_>) -> Changes {
    let Learned::Remote(remote) = learned else { return Changes::new() };
    let details = json!({"via": at.via, "providerId": remote.id, "said": remote.state});
    line(render, "render.late", Actor::SYSTEM, &details, at.now).into()
}

fn taken(render: &Render, id: &str, at: At<'_>) -> Changes {
    if render.provider_id.as_deref() == Some(id) {
        return Changes::new();
    }
    let Ok(mut draft) = Draft::after(render, Event::Submit, at.now) else { return Changes::new() };
    draft.render.provider_id = Some(id.to_owned());
    draft.render.submitted_at = render.submitted_at.or(Some(at.now));
    let details = json!({"via": at.via, "attempt": render.attempts, "providerId": id});
    draft.line("render.submitted", Actor::SYSTEM, &details);
    follow(draft, at.now.plus(at.rules.poll), at)
}

/// The next step is due then; effects of earlier steps are out of date.
fn follow(mut draft: Draft, run_at: Timestamp, at: At<'_>) -> Changes {
    draft.render.step += 1;
    let effect = step_effect(&draft.render, run_at, at.now, at.rules);
    draft.push(Write::Enqueue(effect));
    draft.done()
}

fn unanswered(render: &Render, reason: &Reason, at: At<'_>) -> Changes {
    let Ok(mut draft) = Draft::after(render, Event::Doubt, at.now) else { return Changes::new() };
    draft.render.submitted_at = Some(at.now);
    let until = at.now.plus(at.rules.doubt);
    let details = json!({
        "attempt": render.attempts, "reason": reason, "waitsUntil": until,
    });
    draft.line("render.unanswered", Actor::SYSTEM, &details);
    follow(draft, until, at)
}

fn finished(
    render: &Render,
    id: &str,
    url: &str,
    expires_at: Option<Timestamp>,
    at: At<'_>,
) -> Changes {
    let Ok(mut draft) = Draft::after(render, Event::Finish, at.now) else { return Changes::new() };
    draft.render.step += 1;
    draft.render.provider_id = Some(id.to_owned());
    draft.render.output_url = Some(url.to_owned());
    draft.render.output_expires_at = expires_at;
    draft.render.error = None;
    let details = json!({"via": at.via, "attempt": render.attempts, "providerId": id});
    draft.line("render.done", Actor::SYSTEM, &details);
    if render.status == RenderStatus::Failed {
        draft.settle_case("finished", "the provider has finished it after all");
    }
    if at.rules.copies && (url.starts_with("https://") || url.starts_with("http://")) {
        let effect = copy_effect(&draft.render, at.now, at.rules);
        draft.push(Write::Enqueue(effect));
    }
    draft.done()
}

fn failed(render: &Render, reason: &Reason, at: At<'_>) -> Changes {
    let last = render.attempts >= render.allowed;
    let event = if last { Event::Exhaust } else { Event::TryAgain };
    let Ok(mut draft) = Draft::after(render, event, at.now) else { return Changes::new() };
    draft.render.error = Some(reason.clone());
    let details = json!({
        "via": at.via, "attempt": render.attempts, "of": render.allowed,
        "providerId": render.provider_id, "reason": reason,
    });
    draft.line(
        if last { "render.failed" } else { "render.attempt_failed" },
        Actor::SYSTEM,
        &details,
    );
    if !last {
        return again(draft, at.now.plus(at.rules.pause), at.now, at.rules);
    }
    draft.render.step += 1;
    draft.open_case(at.now.plus(at.rules.give_up));
    let clock = give_up_effect(&draft.render, at.now, at.rules);
    draft.push(Write::Enqueue(clock));
    draft.done()
}

/// Another attempt, from its beginning.
pub(super) fn again(
    mut draft: Draft,
    run_at: Timestamp,
    now: Timestamp,
    rules: &RenderRules,
) -> Changes {
    draft.render.attempts += 1;
    draft.render.step += 1;
    draft.render.provider_id = None;
    draft.render.submitted_at = None;
    let effect = step_effect(&draft.render, run_at, now, rules);
    draft.push(Write::Enqueue(effect));
    draft.done()
}

/// The output was copied to a place of our own.
#[must_use]
pub fn copied(render: &Render, path: &str, bytes: u64, now: Timestamp) -> Changes {
    if render.status != RenderStatus::Done || render.output_path.is_some() {
        return Changes::new();
    }
    let mut draft = Draft::same(render, now);
    draft.render.output_path = Some(path.to_owned());
    draft.line("render.copied", Actor::SYSTEM, &json!({"path": path, "bytes": bytes}));
    let subject = render.id.to_string();
    draft.push(Write::ResolveAlert(AlertResolution { rule: ALERT_COPY_FAILED, subject, now }));
    draft.done()
}

/// The output could not be copied, and will not be tried again by itself.
#[must_use]
pub fn not_copied(render: &Render, reason: &Reason, now: Timestamp) -> Changes {
    let subject = render.id.to_string();
    let labels = json!({"render_id": subject, "code": reason.code});
    let alert = NewAlert {
        id: derived(now, &[b"copy", render.id.as_bytes()]),
        rule: ALERT_COPY_FAILED,
        subject,
        severity: Severity::High,
        message: "The output of a render could not be copied; its address dies",
        labels: labels.to_string(),
        now,
    };
    let details = json!({"reason": reason, "expiresAt": render.output_expires_at});
    Changes::from(Write::FireAlert(alert)).with(line(
        render,
        "render.copy_failed",
        Actor::SYSTEM,
        &details,
        now,
    ))
}
