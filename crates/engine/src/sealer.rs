//! Seals audit lines in batches into a hash chain, and checks it.
//!
//! A line that was changed, removed or slipped in after it was sealed no longer fits, and
//! [`verify`] names it. What is not sealed yet is a few seconds old, or was committed long after it was
//! made and is sealed within the hour.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::audit::Audit;
use tashika_domain::{Timestamp, digest, ids};
use tashika_store::{Seal, Store, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::engine::Engine;

/// Lines per seal.
const BATCH: i64 = 1000;
/// Nearly every line is committed as soon as it is made: so far back goes every look.
const SOON: Duration = Duration::from_secs(2 * 60);
/// A line may have waited for its database, or be from a clock that is behind: so far back goes a look now and then. A line
/// that is written still later is found by `verify`, not by the sealer.
const LATEST: Duration = Duration::from_secs(24 * 3600);
const LONG_LOOK_EVERY: Duration = Duration::from_secs(3600);
/// What is read at once of the past, which may be long.
const PART: Duration = Duration::from_secs(3600);

pub struct Sealer {
    engine: Arc<Engine>,
}

impl Sealer {
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { engine } = self;
        let every = engine.settings.seal_every;
        // In looks, not by the clock, which may be put back.
        let between = LONG_LOOK_EVERY.as_micros() / every.as_micros().max(1);
        for look in 0.. {
            let now = engine.clock.now();
            let sealed = if look % between.max(1) == 0 {
                seal(&engine.store, now).await
            } else {
                seal_recent(&engine.store, now).await
            };
            if let Err(error) = sealed {
                tracing::warn!(%error, "audit lines could not be sealed yet");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = engine.clock.sleep(every) => {}
            }
        }
    }
}

/// Seals what is there of the last day; returns how many lines.
pub async fn seal(store: &Store, now: Timestamp) -> Result<u64, StoreError> {
    seal_back(store, now, LATEST).await
}

/// Seals what was committed as soon as it was made; returns how many lines. Its cost does not depend on how many lines there
/// are.
pub async fn seal_recent(store: &Store, now: Timestamp) -> Result<u64, StoreError> {
    seal_back(store, now, SOON).await
}

/// Seals lines from so long before the last seal on.
async fn seal_back(store: &Store, now: Timestamp, back: Duration) -> Result<u64, StoreError> {
    let Some(last) = store.last_seal().await? else {
        return seal_between(store, now, Timestamp::from_micros(0), None).await;
    };
    let (mut from, mut sealed) = (last.sealed_at.min(now).minus(back), 0);
    loop {
        let end = from.plus(PART);
        // The last part has no end: a clock may be ahead.
        let until = (end < now).then_some(end);
        sealed += seal_between(store, now, from, until).await?;
        if until.is_none() {
            return Ok(sealed);
        }
        from = end;
    }
}

async fn seal_between(
    store: &Store,
    now: Timestamp,
    since: Timestamp,
    until: Option<Timestamp>,
) -> Result<u64, StoreError> {
    let mut sealed = 0;
    loop {
        let last = store.last_seal().await?;
        let lines = store.unsealed_audit(since, until, BATCH).await?;
        if lines.is_empty() {
            return Ok(sealed);
        }
        let digests: Vec<(Uuid, String)> =
            lines.iter().map(|line| (line.id, line_digest(line))).collect();
        let before = last.as_ref().map_or("", |seal| seal.digest.as_str());
        let number = last.as_ref().map_or(0, |seal| seal.number) + 1;
        let seal = Seal {
            number,
            lines: i64::try_from(digests.len()).unwrap_or(i64::MAX),
            digest: seal_digest(number, before, &digests),
            sealed_at: now,
        };
        // If another process was faster, its seal is the next one to look at.
        if store.write_seal(&seal, digests).await? {
            sealed += lines.len() as u64;
        }
    }
}

fn line_digest(line: &Audit) -> String {
    let details: Value = serde_json::from_str(&line.details).unwrap_or_default();
    let whole = json!({
        "id": line.id, "actor_id": line.actor_id, "actor_role": line.actor_role,
        "action": line.action, "target_type": line.target_type, "target_id": line.target_id,
        "office_id": line.office_id, "details": details, "created_at": line.created_at,
    });
    digest::digest(&whole, &[])
}

fn seal_digest(number: i64, before: &str, lines: &[(Uuid, String)]) -> String {
    digest::digest(&json!({"number": number, "before": before, "lines": lines}), &[])
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The line is not what it was when it was sealed.
    Changed(Uuid),
    Removed(Uuid),
    /// The seal does not follow from its lines and the seal before it.
    Broken(i64),
    /// A seal is missing in the chain.
    Missing(i64),
    /// No seal covers the line, and it is too old to be waiting for one.
    SlippedIn(Uuid),
}

/// What a check has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub seals: u64,
    pub lines: u64,
    /// Sealed, and gone by retention.
    pub expired: u64,
    /// Not sealed yet.
    pub unsealed: u64,
    pub findings: Vec<Finding>,
}

/// Walks the whole chain.
pub async fn verify(store: &Store) -> Result<Verified, StoreError> {
    verify_telling(store, |_| {}).await
}

/// Walks the whole chain, and tells what it has seen after each seal.
pub async fn verify_telling(
    store: &Store,
    tell: impl Fn(&Verified) + Send,
) -> Result<Verified, StoreError> {
    let mut verified = Verified::default();
    // Asked first: the sealer may go on while the chain is walked.
    let last = store.last_sealed().await?;
    let (mut number, mut before) = (0, String::new());
    let mut sealed_at = None;
    loop {
        let seals = store.seals(number, 100).await?;
        if seals.is_empty() {
            break;
        }
        for seal in seals {
            for missing in number + 1..seal.number {
                verified.findings.push(Finding::Missing(missing));
            }
            let lines = store.audit_lines_of_seal(seal.number).await?;
            // Asked afterwards: it moves before the lines go.
            let horizon = store.audit_horizon().await?;
            let digests: Vec<(Uuid, String)> =
                lines.iter().map(|line| (line.id, line.digest.clone())).collect();
            if seal_digest(seal.number, &before, &digests) != seal.digest {
                verified.findings.push(Finding::Broken(seal.number));
            }
            for line in lines {
                verified.lines += 1;
                match line.line {
                    Some(now) if line_digest(&now) == line.digest => {}
                    Some(_) => verified.findings.push(Finding::Changed(line.id)),
                    None if horizon.is_some_and(|at| made_at(line.id) < at) => {
                        verified.expired += 1;
                    }
                    None => verified.findings.push(Finding::Removed(line.id)),
                }
            }
            (number, before) = (seal.number, seal.digest);
            sealed_at = Some(seal.sealed_at);
            verified.seals += 1;
            tell(&verified);
        }
    }
    // The end of the chain is gone, but what it covered is still listed.
    for missing in number + 1..=last {
        verified.findings.push(Finding::Missing(missing));
    }
    let sealable = sealed_at.map(|at: Timestamp| at.minus(LATEST));
    for line in store.unsealed_audit(Timestamp::from_micros(0), None, BATCH).await? {
        // The same bound as the sealer's own: such a line will never be sealed.
        if sealable.is_some_and(|since| line.id < ids::floor(since)) {
            verified.findings.push(Finding::SlippedIn(line.id));
        } else {
            verified.unsealed += 1;
        }
    }
    Ok(verified)
}

/// The moment that an id carries.
fn made_at(id: Uuid) -> Timestamp {
    let (seconds, nanos) = id.get_timestamp().map_or((0, 0), |at| at.to_unix());
    let micros = i64::try_from(seconds).unwrap_or(0) * 1_000_000 + i64::from(nanos / 1000);
    Timestamp::from_micros(micros)
}
