//! The ledger: what was asked under an idempotency key, and how it ended.
//!
//! The single source of truth for answers. The API asks [`recall`] what to say to a request whose
//! key may have been seen; the dispatcher asks [`before_sending`] whether an effect may still be
//! performed. Guarantees: a settled entry is never changed, and an entry that is not settled never
//! expires.

use crate::mutant::{self, Mutant};
use crate::time::Timestamp;

/// How far the request under a key has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LedgerStatus {
    Accepted,
    Succeeded,
    Failed,
}

impl LedgerStatus {
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Succeeded, Self::Failed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// Names an entry. The scope keeps the keys of orders, payments, … apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerKey {
    pub scope: String,
    pub key: String,
}

impl LedgerKey {
    pub fn new(scope: impl Into<String>, key: impl Into<String>) -> Self {
        Self { scope: scope.into(), key: key.into() }
    }
}

/// A first request under a key.
#[derive(Clone, Debug, PartialEq)]
pub struct NewLedgerEntry {
    pub key: LedgerKey,
    pub request_digest: String,
    /// What a replay is answered while nothing else is known.
    pub http_status: u16,
    pub response: String,
    pub now: Timestamp,
    pub expires_at: Timestamp,
}

/// How a request ended: written once, by whoever holds the lease of its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerSettlement {
    pub key: LedgerKey,
    pub request_digest: String,
    pub status: LedgerStatus,
    pub http_status: u16,
    /// The stored answer, JSON text.
    pub response: String,
    pub result_digest: Option<String>,
    pub now: Timestamp,
    pub expires_at: Timestamp,
}

/// An entry as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerEntry {
    pub key: LedgerKey,
    pub request_digest: String,
    pub result_digest: Option<String>,
    pub status: LedgerStatus,
    pub http_status: u16,
    pub response: String,
    pub first_seen_at: Timestamp,
    pub last_seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl LedgerEntry {
    /// Counts as never seen. What is not settled stays remembered for as long as it takes.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.status != LedgerStatus::Accepted && self.expires_at <= now
    }
}

/// What a request under a key is, given what the ledger remembers.
#[derive(Clone, Debug, PartialEq)]
pub enum Recall<'a> {
    /// Never seen, or forgotten: do it.
    Fresh,
    /// The same request again: answer what is known.
    Replay(&'a LedgerEntry),
    /// The key belongs to another request.
    Conflict,
}

#[must_use]
pub fn recall<'a>(
    entry: Option<&'a LedgerEntry>,
    request_digest: &str,
    now: Timestamp,
) -> Recall<'a> {
    match entry {
        Some(entry) if entry.is_expired(now) => Recall::Fresh,
        Some(entry) if entry.request_digest == request_digest => Recall::Replay(entry),
        Some(entry) if mutant::on(Mutant::DigestNotCompared) => Recall::Replay(entry),
        Some(_) => Recall::Conflict,
        None => Recall::Fresh,
    }
}

/// Whether an effect under a key may still be performed.
#[derive(Clone, Debug, PartialEq)]
pub enum Clearance {
    /// Go ahead.
    Send,
    /// It already ended well; only the row was left behind (W-105).
    AlreadySucceeded,
    /// The key belongs to another request; the ledger stays as it is.
    Conflict,
}

/// Code of an effect whose key belongs to another request.
pub const IDEMPOTENCY_CONFLICT: &str = "IDEMPOTENCY_CONFLICT";

/// Decides whether the holder of a lease may perform the effect.
///
/// A `failed` entry lets it through: that is an operator's requeue after the first life of the
/// effect was given up. A missing entry lets it through as well, because effects are also enqueued
/// by applications that keep no ledger of their own.
#[must_use]
pub fn before_sending(entry: Option<&LedgerEntry>, request_digest: &str) -> Clearance {
    match entry {
        _ if mutant::on(Mutant::LedgerNotAsked) => Clearance::Send,
        Some(entry) if entry.request_digest != request_digest => Clearance::Conflict,
        Some(entry) if entry.status == LedgerStatus::Succeeded => Clearance::AlreadySucceeded,
        _ => Clearance::Send,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn entry(status: LedgerStatus, expires_in_us: i64) -> LedgerEntry {
        LedgerEntry {
            key: LedgerKey::new("order", "k"),
            request_digest: "sha256:a".into(),
            result_digest: None,
            status,
            http_status: 200,
            response: "{}".into(),
            first_seen_at: NOW,
            last_seen_at: NOW,
            expires_at: Timestamp::from_micros(NOW.as_micros() + expires_in_us),
        }
    }

    #[test]
    fn recall_tells_fresh_replay_and_conflict_apart() {
        let known = entry(LedgerStatus::Succeeded, 1);
        assert_eq!(recall(None, "sha256:a", NOW), Recall::Fresh);
        assert_eq!(recall(Some(&known), "sha256:a", NOW), Recall::Replay(&known));
        assert_eq!(recall(Some(&known), "sha256:b", NOW), Recall::Conflict);
        assert_eq!(recall(Some(&entry(LedgerStatus::Failed, 0)), "sha256:b", NOW), Recall::Fresh);
    }

    #[test]
    fn what_is_not_settled_never_expires() {
        let waiting = entry(LedgerStatus::Accepted, -1);
        assert_eq!(recall(Some(&waiting), "sha256:a", NOW), Recall::Replay(&waiting));
        assert_eq!(recall(Some(&waiting), "sha256:b", NOW), Recall::Conflict);
    }

    #[test]
    fn clearance_follows_the_ledger() {
        let of = |status| before_sending(Some(&entry(status, 1)), "sha256:a");
        assert_eq!(before_sending(None, "sha256:a"), Clearance::Send);
        assert_eq!(of(LedgerStatus::Accepted), Clearance::Send);
        assert_eq!(of(LedgerStatus::Failed), Clearance::Send);
        assert_eq!(of(LedgerStatus::Succeeded), Clearance::AlreadySucceeded);
        let known = entry(LedgerStatus::Succeeded, 1);
        assert_eq!(before_sending(Some(&known), "sha256:b"), Clearance::Conflict);
    }
}
