//! Cases: everything that waits for a person, in one place.
//!
//! The [`Desk`] lists cases, lays the evidence out and carries decisions out. What is particular to a kind
//! of case, where its evidence is and what may be done about it now, is a [`CaseKind`], one per kind; a
//! new kind is one `with`. A decision, the change that it leads to, its audit line and the end of the
//! case are one commit, which expects that the case is open: of two decisions one counts, and the other
//! is told so.

mod dead_letter;
mod order;
mod payment;
mod render;
mod reservation;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::case::{Case, CaseStatus, Choice, Decision};
use tashika_domain::check::Violation;
use tashika_domain::outcome::Reason;
use tashika_domain::{Changes, Timestamp};
use tashika_store::{AttemptRecord, AuditFilter, CommitError, Store, StoreError};
use uuid::Uuid;

pub use dead_letter::DeadLetterCases;
pub use order::OrderCases;
pub use payment::{DifferenceCases, PaymentCases};
pub use render::RenderCases;
pub use reservation::RefundCases;

use crate::clock::Clock;
use crate::handler::BoxFuture;

/// Lines of the audit log that are shown with a case.
const AUDIT_LINES: i64 = 200;

/// What is particular to a kind of case.
///
/// A trait, because other parts bring kinds of their own.
pub trait CaseKind: Send + Sync {
    /// The evidence, and what may be done now.
    fn look<'a>(&'a self, case: &'a Case) -> BoxFuture<'a, Result<Dossier, StoreError>>;

    /// Carries a decision out that `look` has offered. Whatever ends the case commits
    /// [`Decision::closing`] with it.
    fn act<'a>(
        &'a self,
        case: &'a Case,
        decision: &'a Decision,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<(), CaseError>>;
}

/// What a person sees before deciding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dossier {
    /// What may be done now. Empty: nothing, whatever the case said when it was opened.
    pub choices: Vec<Choice>,
    /// What happened, oldest first.
    pub timeline: Vec<Entry>,
    pub tried: Tried,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub at: Timestamp,
    /// `accepted`, `attempt`, `check`, `race`, `audit`, …
    pub kind: String,
    /// An object.
    pub body: Value,
}

/// What the system has tried already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// How often it was sent.
    pub sent: usize,
    /// How often the other side was asked.
    pub asked: usize,
    /// What came back last.
    pub last: Option<Reason>,
}

impl Tried {
    /// Counted from the lines of a timeline.
    fn of(timeline: &[Entry]) -> Self {
        let count = |kind: &str| timeline.iter().filter(|entry| entry.kind == kind).count();
        let text = |entry: &Entry, name: &str| entry.body[name].as_str().map(ToOwned::to_owned);
        let last = timeline.iter().rev().find_map(|entry| {
            Some(Reason { code: text(entry, "code")?, message: text(entry, "message")? })
        });
        Self { sent: count("attempt"), asked: count("check"), last }
    }
}

/// Why a decision was not carried out. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    #[error("no such case")]
    NotFound,
    #[error("the case was resolved by another decision")]
    AlreadyResolved,
    #[error("this is not possible now")]
    NotAllowed(Vec<&'static str>),
    #[error("the request is not valid")]
    Invalid(Vec<Violation>),
    #[error("the other side says something else, and that was taken over")]
    Contradicted,
    #[error("the difference is still there: {0}")]
    StillDiffers(String),
    /// Somebody else has changed what the decision was about.
    #[error("somebody else was faster")]
    Lost,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<CommitError> for CaseError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => Self::Store(error),
            CommitError::Taken(_) | CommitError::Stale(_) | CommitError::Outdated { .. } => {
                Self::Lost
            }
        }
    }
}

/// Where cases are decided.
pub struct Desk {
    store: Store,
    clock: Clock,
    kinds: BTreeMap<&'static str, Arc<dyn CaseKind>>,
}

impl Desk {
    #[must_use]
    pub fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock, kinds: BTreeMap::new() }
    }

    /// Knows a kind of case.
    #[must_use]
    pub fn with(mut self, kind: &'static str, cases: impl CaseKind + 'static) -> Self {
        self.kinds.insert(kind, Arc::new(cases));
        self
    }

    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn find(&self, id: Uuid) -> Result<Case, CaseError> {
        self.store.case(id).await?.ok_or(CaseError::NotFound)
    }

    /// A case with everything that is known about it.
    pub async fn look(&self, id: Uuid) -> Result<(Case, Dossier), CaseError> {
        let case = self.find(id).await?;
        let mut dossier = match self.kinds.get(case.kind.as_str()) {
            Some(kind) => kind.look(&case).await?,
            None => Dossier::default(),
        };
        if case.status == CaseStatus::Resolved {
            dossier.choices.clear();
        }
        dossier.timeline.extend(audit(&self.store, "case", &case.id.to_string()).await?);
        dossier.timeline.sort_by_key(|entry| entry.at);
        dossier.tried = Tried::of(&dossier.timeline);
        Ok((case, dossier))
    }

    /// Carries a decision out. The same decision again is answered as the first one was.
    pub async fn act(
        &self,
        id: Uuid,
        decision: &Decision,
        body: &Value,
    ) -> Result<Case, CaseError> {
        let case = self.find(id).await?;
        if case.status == CaseStatus::Resolved {
            return decided(case, decision);
        }
        let Some(kind) = self.kinds.get(case.kind.as_str()) else {
            return Err(CaseError::NotAllowed(Vec::new()));
        };
        let choices = kind.look(&case).await?.choices;
        let Some(choice) = choices.iter().find(|choice| choice.action == decision.action) else {
            // It may have been closed since it was read.
            let case = self.find(id).await?;
            if case.status == CaseStatus::Resolved {
                return decided(case, decision);
            }
            return Err(CaseError::NotAllowed(choices.iter().map(|c| c.action).collect()));
        };
        if choice.needs_note && decision.note.trim().is_empty() {
            return Err(CaseError::Invalid(vec![violation("note", "is required")]));
        }
        match kind.act(&case, decision, body).await {
            Ok(()) => self.find(id).await,
            Err(CaseError::Lost) => decided(self.find(id).await?, decision),
            Err(error) => Err(error),
        }
    }
}

fn violation(field: &str, problem: impl Into<String>) -> Violation {
    Violation { field: field.to_owned(), problem: problem.into() }
}

/// A case that somebody has decided: with the same decision, or with another.
fn decided(case: Case, decision: &Decision) -> Result<Case, CaseError> {
    let same = case.resolution.as_ref().is_some_and(|end| {
        // A question that was answered meanwhile needs no other answer.
        decision.is(end) || end.by.is_none() && decision.action == "verify"
    });
    if same { Ok(case) } else { Err(CaseError::AlreadyResolved) }
}

/// What the audit log has to say about something.
async fn audit(store: &Store, kind: &str, id: &str) -> Result<Vec<Entry>, StoreError> {
    let filter = AuditFilter {
        target_type: Some(kind.to_owned()),
        target_id: Some(id.to_owned()),
        ..AuditFilter::default()
    };
    let lines = store.audit_logs(&filter, AUDIT_LINES).await?;
    let entry = |line: tashika_domain::audit::Audit| Entry {
        at: line.created_at,
        kind: "audit".to_owned(),
        body: json!({
            "action": line.action,
            "actorId": line.actor_id,
            "actorRole": line.actor_role,
            "details": serde_json::from_str::<Value>(&line.details).unwrap_or_default(),
        }),
    };
    Ok(lines.into_iter().map(entry).collect())
}

/// What was sent and what came back.
fn attempt(attempt: &AttemptRecord) -> Entry {
    let exchange = attempt.exchange.as_ref();
    Entry {
        at: attempt.started_at,
        kind: "attempt".to_owned(),
        body: json!({
            "outcome": attempt.outcome,
            "code": attempt.code,
            "message": attempt.message,
            "request": exchange.map(|e| &e.request),
            "reply": exchange.map(|e| &e.reply),
            "reference": exchange.and_then(|e| e.reference.as_ref()),
            "finishedAt": attempt.finished_at,
            "worker": attempt.worker,
        }),
    }
}

/// Closes a case, and does nothing else.
async fn close(
    store: &Store,
    case: &Case,
    decision: &Decision,
    now: Timestamp,
) -> Result<(), CaseError> {
    let changes: Changes = decision.closing(case, now);
    Ok(store.commit(changes).await?)
}
