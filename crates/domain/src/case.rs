//! Cases: what a person has to decide, with the evidence.
//!
//! A case is opened with the change that led to it and closed with the change that answers it. What may
//! be decided follows from how its subject stands now, not from how it stood when it was opened: a
//! [`Choice`] is offered only while it can be carried out.

use serde_json::json;
use uuid::Uuid;

use crate::audit::{Actor, NewAudit, line_id};
use crate::changes::{Changes, Write};
use crate::ids::derived;
use crate::text::Text;
use crate::time::Timestamp;

/// The kind of a case about an effect or a message that was given up.
pub const DEAD_LETTER: &str = "dead_letter";

/// Opens a case. At most one case per kind and subject is open at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCase {
    pub id: Uuid,
    /// What kind of question it is, e.g. `order_unanswered`.
    pub kind: &'static str,
    pub subject_type: &'static str,
    pub subject_id: String,
    /// One sentence for the person.
    pub summary: String,
    /// What the person may decide.
    pub actions: Vec<&'static str>,
    /// Evidence, JSON text.
    pub details: String,
    pub now: Timestamp,
}

/// Closes the open case of a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResolution {
    pub kind: &'static str,
    pub subject_id: String,
    pub action: String,
    pub note: String,
    pub now: Timestamp,
}

/// A person's decision about one open case. Expects that it is open: of two decisions, one counts.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseClosing {
    pub id: Uuid,
    pub action: String,
    pub note: String,
    pub by: String,
    pub now: Timestamp,
}

/// One thing that may be done about a case now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub action: &'static str,
    /// For a button.
    pub label: Text,
    /// What follows from it, in one sentence.
    pub consequence: Text,
    /// The question to answer with yes before it is done.
    pub confirm: Text,
    /// Whoever comes later must be able to read why.
    pub needs_note: bool,
}

/// What a person has decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub action: String,
    pub note: String,
    pub who: String,
}

impl Decision {
    /// What closes the case, and its line in the audit log.
    #[must_use]
    pub fn closing(&self, case: &Case, now: Timestamp) -> Changes {
        const ACTION: &str = "case.resolved";
        let target = case.id.to_string();
        let details = json!({"kind": case.kind, "subject_type": case.subject_type,
            "subject_id": case.subject_id, "decision": self.action, "note": self.note});
        let line = NewAudit {
            id: line_id(now, &target, ACTION, 0),
            actor: Actor::operator(self.who.as_str()),
            action: ACTION.to_owned(),
            target_type: "case",
            target_id: target,
            office_id: None,
            details: details.to_string(),
            now,
        };
        Changes::from(Write::CloseCase(CaseClosing {
            id: case.id,
            action: self.action.clone(),
            note: self.note.clone(),
            by: self.who.clone(),
            now,
        }))
        .with(Write::Audit(Box::new(line)))
    }

    /// Whether it is the decision that closed the case: then a repeat is answered as the first.
    #[must_use]
    pub fn is(&self, end: &CaseEnd) -> bool {
        end.action == self.action && end.note == self.note && end.by.as_ref() == Some(&self.who)
    }
}

/// A case as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub id: Uuid,
    pub kind: String,
    pub status: CaseStatus,
    pub subject_type: String,
    pub subject_id: String,
    pub summary: String,
    pub actions: Vec<String>,
    pub details: String,
    pub opened_at: Timestamp,
    /// How it was closed.
    pub resolution: Option<CaseEnd>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseEnd {
    pub action: String,
    pub note: String,
    /// `None`: the case answered itself.
    pub by: Option<String>,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseStatus {
    Open,
    Resolved,
}

impl CaseStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resolved => "resolved",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Open, Self::Resolved].into_iter().find(|status| status.as_str() == text)
    }
}

/// The case about something of Tashika's own that was given up: a webhook that nobody could process, an
/// event or a notification that nobody took. Messages that callers sent have a list of their own.
#[must_use]
pub fn dead_letter(
    subject_type: &'static str,
    subject_id: String,
    summary: String,
    details: &serde_json::Value,
    now: Timestamp,
) -> NewCase {
    NewCase {
        id: derived(now, &[DEAD_LETTER.as_bytes(), subject_type.as_bytes(), subject_id.as_bytes()]),
        kind: DEAD_LETTER,
        subject_type,
        subject_id,
        summary,
        actions: dead_letter_choices().iter().map(|choice| choice.action).collect(),
        details: details.to_string(),
        now,
    }
}

/// What may be done about a dead letter.
#[must_use]
pub fn dead_letter_choices() -> Vec<Choice> {
    vec![
        Choice {
            action: "requeue",
            label: Text::new("Try again", "再試行する"),
            consequence: Text::new(
                "It is attempted again with all its attempts; if they fail, a new case is opened.",
                "最初から再試行されます。すべて失敗すると新しいケースが開かれます。",
            ),
            confirm: Text::new(
                "Is what made it fail repaired?",
                "失敗の原因は解消されていますか？",
            ),
            needs_note: false,
        },
        Choice {
            action: "drop",
            label: Text::new("Give it up", "破棄する"),
            consequence: Text::new(
                "It will not be attempted again; whoever was to receive it never does.",
                "二度と試行されません。宛先には届きません。",
            ),
            confirm: Text::new("Can it be lost for good?", "完全に失われても問題ありませんか？"),
            needs_note: true,
        },
    ]
}
