//! Cases: what a person has to decide, with the evidence.

use uuid::Uuid;

use crate::time::Timestamp;

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
