//! A render on its way from one version to the next, with everything that is written with it.

use serde_json::{Value, json};

use crate::audit::{Actor, NewAudit};
use crate::case::{CaseResolution, NewCase};
use crate::changes::{Changes, Write};
use crate::ids::derived;
use crate::time::Timestamp;

use super::{CASE_FAILED, Event, Illegal, KIND, Render, RenderStatus, State, Why, next};

pub(super) struct Draft {
    pub render: Render,
    pub changes: Changes,
    pub now: Timestamp,
}

impl Draft {
    /// The next version, in the state that the event leads to.
    pub fn after(render: &Render, event: Event, now: Timestamp) -> Result<Self, Illegal> {
        let state = next(render.state(), event)?;
        let mut after = Render { version: render.version + 1, updated_at: now, ..render.clone() };
        after.status = match state {
            State::Queued => RenderStatus::Queued,
            State::Processing => RenderStatus::Processing,
            State::Done => RenderStatus::Done,
            State::Failed | State::Closed => RenderStatus::Failed,
        };
        if state == State::Closed {
            let why = if event == Event::GiveUp { Why::GivenUp } else { Why::Cancelled };
            after.closed = Some((now, why));
        }
        Ok(Self { render: after, changes: Changes::new(), now })
    }

    /// The next version, in the same state.
    pub fn same(render: &Render, now: Timestamp) -> Self {
        let render = Render { version: render.version + 1, updated_at: now, ..render.clone() };
        Self { render, changes: Changes::new(), now }
    }

    pub fn push(&mut self, write: Write) {
        self.changes.push(write);
    }

    /// An audit line about this version.
    pub fn line(&mut self, action: &str, actor: Actor, details: &Value) {
        let write = line(&self.render, action, actor, details, self.now);
        self.changes.push(write);
    }

    /// Nobody has to look at it any more.
    pub fn settle_case(&mut self, action: &str, note: &str) {
        let (subject_id, now) = (self.render.id.to_string(), self.now);
        self.push(Write::ResolveCase(CaseResolution {
            kind: CASE_FAILED,
            subject_id,
            action: action.to_owned(),
            note: note.to_owned(),
            now,
        }));
    }

    /// A person has to look at it, before the clock runs out.
    pub fn open_case(&mut self, until: Timestamp) {
        let (render, now) = (&self.render, self.now);
        let id = |what: &[u8]| {
            let attempts = render.attempts.to_be_bytes();
            derived(now, &[what, render.id.as_bytes(), &attempts])
        };
        let reason = render.error.as_ref();
        let details = json!({
            "renderId": render.id,
            "reservationId": render.reservation_id,
            "videoId": render.video_id,
            "provider": render.provider,
            "attempts": render.attempts,
            "error": reason,
            "giveUpAt": until,
        });
        let case = NewCase {
            id: id(b"case"),
            kind: CASE_FAILED,
            subject_type: KIND,
            subject_id: render.id.to_string(),
            summary: format!(
                "The video of a paid reservation could not be made in {} attempts",
                render.attempts
            ),
            actions: vec!["retry", "resolve"],
            details: details.to_string(),
            now,
        };
        self.push(Write::OpenCase(case));
    }

    pub fn done(mut self) -> Changes {
        self.changes.push(Write::RenderUpdate(Box::new(self.render)));
        self.changes
    }
}

/// An audit line about a render as it is.
pub(super) fn line(
    render: &Render,
    action: &str,
    actor: Actor,
    details: &Value,
    now: Timestamp,
) -> Write {
    let target_id = render.id.to_string();
    // The details are part of its name: two things may be learned of one version in one millisecond.
    let details = details.to_string();
    let (version, micros) = (render.version.to_be_bytes(), now.as_micros().to_be_bytes());
    let parts: [&[u8]; 6] =
        [b"audit", render.id.as_bytes(), action.as_bytes(), &version, &micros, details.as_bytes()];
    Write::Audit(Box::new(NewAudit {
        id: derived(now, &parts),
        actor,
        action: action.to_owned(),
        target_type: KIND,
        target_id,
        office_id: None,
        details,
        now,
    }))
}
