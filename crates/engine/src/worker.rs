//! One effect, from the claim to its settlement.
//!
//! Called by the dispatcher for every claimed effect. Guarantees: whatever the handler does,
//! panicking included, ends in a verdict; the verdict, the ledger and the record of the attempt are
//! one commit; and a commit that cannot be made because the database is away is made when it is back,
//! unless the lease was lost meanwhile.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use metrics::{counter, histogram};
use tashika_domain::changes::{Attempt, Release, Settle};
use tashika_domain::effect::{self, Effect, Verdict};
use tashika_domain::ledger::{self, Clearance, IDEMPOTENCY_CONFLICT, LedgerKey};
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::{Changes, Timestamp, Write, digest};
use tashika_store::{CommitError, Key, StoreError};
use tracing::{Instrument as _, field};

use crate::case;
use crate::engine::{Engine, lease};
use crate::handler::{Ending, Handler, Job, Settled, Standing, Tried};

/// Between two tries to write a settlement while the database is away.
const SETTLE_RETRY: Duration = Duration::from_millis(250);

/// How often a decision is taken again because what it was about has moved on. Each time somebody
/// else got ahead; this often is a defect.
const DECISIONS_MAX: u32 = 100;

// What is rare is boxed: an effect's future is moved several times before it runs, and is as large as the largest of what it
// may have to wait for.

/// Performs a claimed effect and settles it, and whatever its settlement puts into our hands.
///
/// `clearance` is what the ledger said about it, if it has been asked.
pub(crate) async fn perform(engine: Arc<Engine>, effect: Effect, clearance: Option<Clearance>) {
    let mut turn = Some((effect, clearance));
    while let Some((effect, clearance)) = turn.take() {
        if let Some(next) = perform_one(&engine, effect, clearance).await {
            let length = engine.policy(&next.lane).lease;
            engine.held.add(std::slice::from_ref(&next), next.created_at, length);
            turn = Some((next, Some(Clearance::Send)));
        }
    }
}

async fn perform_one(
    engine: &Engine,
    mut effect: Effect,
    clearance: Option<Clearance>,
) -> Option<Effect> {
    let span = tracing::info_span!(
        "outbox.process",
        outbox_id = %effect.id,
        kind = %effect.kind,
        attempts = effect.attempts,
        outcome = field::Empty,
    );
    if let Some(parent) = &effect.traceparent {
        (engine.settings.join_trace)(&span, parent);
    }
    let next = async {
        let began_at = engine.clock.now();
        let work = AssertUnwindSafe(perform_once(engine, &mut effect, clearance, began_at));
        match work.catch_unwind().await {
            Ok(next) => next,
            // Beside its attempt: over the digest, or while settling. Its help is not asked again.
            Err(panic) => {
                Box::pin(settle(engine, &effect, None, panicked(&*panic), began_at)).await
            }
        }
    }
    .instrument(span)
    .await;
    engine.held.remove(lease(&effect));
    next
}

async fn perform_once(
    engine: &Engine,
    effect: &mut Effect,
    clearance: Option<Clearance>,
    began_at: Timestamp,
) -> Option<Effect> {
    let Some(handler) = engine.handlers.get(&effect.kind).cloned() else {
        // Perhaps a newer process knows it: a failure like any other, not a refusal.
        let reason = Reason::new(effect::NO_HANDLER, "no handler knows this kind of effect");
        let tried = Tried::new(Outcome::Busy { reason, retry_in: None });
        return Box::pin(settle(engine, effect, None, tried, began_at)).await;
    };
    let clearance = match clearance {
        Some(clearance) => clearance,
        None => Box::pin(ask_ledger(engine, effect, &*handler)).await,
    };
    match clearance {
        Clearance::Send => {}
        Clearance::AlreadySucceeded => {
            Box::pin(settle_from_ledger(engine, effect)).await;
            return None;
        }
        Clearance::Conflict => {
            Box::pin(settle_conflict(engine, effect)).await;
            return None;
        }
    }
    if !Box::pin(is_ours(engine, effect)).await {
        counter!("outbox_processed_total", "outcome" => "lost_lease").increment(1);
        tracing::warn!(outbox_id = %effect.id, "the lease was lost before the effect had its turn");
        return None;
    }
    let started_at = engine.clock.now();
    let tried = attempt(&*handler, effect, started_at).await;
    if let Some(run_at) = tried.put_off {
        Box::pin(put_off(engine, effect, run_at)).await;
        return None;
    }
    effect.in_doubt &= !tried.doubt_cleared;
    let took = engine.clock.now().since(started_at);
    histogram!("outbox_latency_ms", "phase" => "send").record(millis(took));
    settle(engine, effect, Some(&*handler), tried, started_at).await
}

async fn attempt(handler: &dyn Handler, effect: &Effect, now: Timestamp) -> Tried {
    let work = AssertUnwindSafe(async { handler.attempt(Job { effect, now }).await });
    work.catch_unwind().await.unwrap_or_else(|panic| panicked(&*panic))
}

fn panicked(panic: &(dyn Any + Send)) -> Tried {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the handler panicked".to_owned());
    // It may have panicked after sending.
    Tried::new(Outcome::Lost(Reason::new(effect::HANDLER_PANICKED, message)))
}

/// Gives the effect back untouched, for later.
async fn put_off(engine: &Engine, effect: &Effect, run_at: Timestamp) {
    counter!("outbox_processed_total", "outcome" => "put_off").increment(1);
    if let Err(error) = commit(engine, given_back(engine, effect, run_at)).await {
        not_settled(effect, &error);
    }
}

/// What gives an effect back untouched.
pub(crate) fn given_back(engine: &Engine, effect: &Effect, run_at: Timestamp) -> Changes {
    let now = engine.clock.now();
    let release = Release { lease: lease(effect), now, run_at };
    effect::give_back(effect, release, now.plus(engine.policy(&effect.lane).keep))
}

/// Whether the effect is still ours to perform.
///
/// It may have waited for its turn, or for the database, for longer than its lease. Somebody else
/// may have performed it then, and our copy would not say that it is in doubt: nothing may be sent
/// without the store's word.
async fn is_ours(engine: &Engine, effect: &Effect) -> bool {
    let lease = lease(effect);
    if mutant::on(Mutant::ExpiredLeaseSends) {
        return true;
    }
    loop {
        let now = engine.clock.now();
        if engine.held.is_certain(lease, now) {
            return true;
        }
        match engine.store.renew(vec![lease], now).await {
            Ok(lost) if lost.is_empty() && engine.held.contains(lease) => {
                engine.held.renewed(&[lease], now);
            }
            Ok(_) => return false,
            Err(error) => {
                tracing::warn!(%error, outbox_id = %effect.id, "a lease could not be renewed yet");
                engine.clock.sleep(SETTLE_RETRY).await;
            }
        }
    }
}

/// Decides what the attempt means, and writes it down.
async fn settle(
    engine: &Engine,
    effect: &Effect,
    handler: Option<&dyn Handler>,
    tried: Tried,
    started_at: Timestamp,
) -> Option<Effect> {
    let refusal = match try_settle(engine, effect, handler, &tried, started_at).await {
        Ok(next) => return next,
        Err(refusal) => refusal,
    };
    // What the database refuses once it refuses always: what the attempt brought cannot be kept,
    // and so nobody knows what became of it.
    tracing::error!(outbox_id = %effect.id, error = refusal, "a settlement was refused");
    let lost = Tried::new(Outcome::Lost(Reason::new(effect::SETTLEMENT_REFUSED, refusal)));
    for handler in [handler, None] {
        let settling = Box::pin(try_settle(engine, effect, handler, &lost, started_at));
        if let Ok(next) = settling.await {
            return next;
        }
    }
    None
}

/// Fails only if the database refuses the settlement itself; says why.
///
/// Returns the effect to go on with, if the settlement has put one into our hands.
async fn try_settle(
    engine: &Engine,
    effect: &Effect,
    handler: Option<&dyn Handler>,
    tried: &Tried,
    started_at: Timestamp,
) -> Result<Option<Effect>, String> {
    let now = engine.clock.now();
    let mut next = None;
    // After two leases without a heartbeat somebody else has it for certain.
    let give_up = now.plus(engine.longest_lease() * 2);
    let mut decisions = 0;
    let result = loop {
        match settle_once(engine, effect, handler, tried, started_at).await {
            Ok((verdict, follows)) => {
                next = follows;
                let adapter = handler.and_then(Handler::adapter);
                report(engine, effect, adapter, &verdict, started_at);
                break Ok(());
            }
            // Somebody else has changed what the decision was about: it is taken again.
            Err(
                CommitError::Outdated { .. }
                | CommitError::Taken(Key::Effect | Key::Message | Key::Name | Key::Slot | Key::Mail),
            ) if decisions < DECISIONS_MAX => {
                decisions += 1;
            }
            // So has whoever settled the ledger entry of something that an effect without an entry of
            // its own is about: a webhook and the answer to the request that it tells of.
            Err(CommitError::Taken(Key::Ledger))
                if decisions < DECISIONS_MAX && !has_entry(effect, handler) =>
            {
                decisions += 1;
            }
            // Waiting does not change what the schema allows.
            Err(error @ CommitError::Store(StoreError::Rejected(_))) => break Err(error),
            Err(CommitError::Store(error)) if engine.clock.now() < give_up => {
                tracing::warn!(%error, "a settlement could not be written yet");
                engine.clock.sleep(SETTLE_RETRY).await;
            }
            Err(error) => break Err(error),
        }
    };
    match result {
        Ok(()) => {}
        Err(CommitError::Taken(Key::Ledger)) if has_entry(effect, handler) => {
            // The ledger was settled behind our back: it is the truth, the row follows it.
            let clearance = match handler {
                Some(handler) => Box::pin(ask_ledger(engine, effect, handler)).await,
                None => Clearance::Conflict,
            };
            match clearance {
                Clearance::AlreadySucceeded => Box::pin(settle_from_ledger(engine, effect)).await,
                Clearance::Send | Clearance::Conflict => {
                    Box::pin(settle_conflict(engine, effect)).await;
                }
            }
        }
        Err(CommitError::Store(StoreError::Rejected(refusal))) => return Err(refusal),
        Err(error) => not_settled(effect, &error),
    }
    histogram!("outbox_latency_ms", "phase" => "commit")
        .record(millis(engine.clock.now().since(now)));
    Ok(next)
}

/// Decides once, with everything as it is now, and writes it.
async fn settle_once(
    engine: &Engine,
    effect: &Effect,
    handler: Option<&dyn Handler>,
    tried: &Tried,
    started_at: Timestamp,
) -> Result<(Verdict, Option<Effect>), CommitError> {
    let now = engine.clock.now();
    let verdict = effect::settle(effect, &tried.outcome, engine.policy(&effect.lane), now);
    let ending = Ending {
        effect,
        verdict: &verdict,
        outcome: &tried.outcome,
        exchange: tried.exchange.as_ref(),
        note: tried.note.as_ref(),
        lapsed: false,
        started_at,
        rtt: tried.rtt,
        now,
        id: engine.ids.uuid(),
    };
    let settled = match handler {
        Some(handler) => handler.conclude(&ending).await?,
        None => Settled::plain(effect, verdict.clone(), None),
    };
    if settled.standing == Standing::Taken {
        return Err(CommitError::Stale(effect.id));
    }
    let mut changes = settled.changes;
    if !settled.recorded
        && let Some(record) = record(engine, effect, tried, started_at, now)
    {
        changes.push(Write::Attempt(record));
    }
    changes.extend(case::given_up(effect, &settled.verdict, now));
    if settled.standing == Standing::Ours {
        let settlement = settlement(engine, effect, settled.verdict.clone(), now);
        let end = effect::end(effect, &engine.settings.worker, settlement);
        if mutant::on(Mutant::OutboxBeforeLedger) {
            engine.store.commit(end).await?;
        } else {
            changes.extend(end);
        }
    }
    engine.store.commit(changes).await?;
    if let Some(after) = settled.after {
        after();
    }
    Ok((settled.verdict, settled.next))
}

/// The ledger already has the answer; only the row was left behind (W-105).
async fn settle_from_ledger(engine: &Engine, effect: &Effect) {
    settle_alone(engine, effect, &Verdict::Succeeded).await;
}

/// The key belongs to another request: the row is given up, the ledger stays as it is.
async fn settle_conflict(engine: &Engine, effect: &Effect) {
    let reason = Reason::new(IDEMPOTENCY_CONFLICT, "the key belongs to another request");
    settle_alone(engine, effect, &Verdict::Aborted { reason, in_doubt: effect.in_doubt }).await;
}

/// Settles the row, and nothing else.
async fn settle_alone(engine: &Engine, effect: &Effect, verdict: &Verdict) {
    let now = engine.clock.now();
    let settlement = settlement(engine, effect, verdict.clone(), now);
    match commit(engine, Write::Settle(settlement).into()).await {
        Ok(()) => report(engine, effect, None, verdict, now),
        Err(error) => not_settled(effect, &error),
    }
}

/// Whether the ledger has an entry of the effect itself.
fn has_entry(effect: &Effect, handler: Option<&dyn Handler>) -> bool {
    effect.key.is_some() && handler.is_none_or(|known| known.request_digest(effect).is_some())
}

/// Asks the ledger until it answers: nothing may be sent without its word.
async fn ask_ledger(engine: &Engine, effect: &Effect, handler: &dyn Handler) -> Clearance {
    let (Some(key), Some(digest)) = (&effect.key, handler.request_digest(effect)) else {
        return Clearance::Send;
    };
    let key = LedgerKey::new(&effect.kind, key);
    loop {
        match engine.store.ledger_entry(&key).await {
            Ok(entry) => return ledger::before_sending(entry.as_ref(), &digest),
            Err(error) => {
                tracing::warn!(%error, outbox_id = %effect.id, "the ledger could not be asked yet");
                engine.clock.sleep(SETTLE_RETRY).await;
            }
        }
    }
}

/// The end of an effect's attempt.
pub(crate) fn settlement(
    engine: &Engine,
    effect: &Effect,
    verdict: Verdict,
    now: Timestamp,
) -> Settle {
    let expires_at = now.plus(engine.policy(&effect.lane).keep);
    Settle { lease: lease(effect), verdict, now, expires_at, unheard_since: None }
}

/// The record of an attempt. An effect that spoke to nobody and ended well is told by its row alone.
fn record(
    engine: &Engine,
    effect: &Effect,
    tried: &Tried,
    started_at: Timestamp,
    finished_at: Timestamp,
) -> Option<Attempt> {
    let (outcome, reason) = match &tried.outcome {
        Outcome::Done(_) if tried.exchange.is_none() => return None,
        Outcome::Done(_) => ("done", None),
        Outcome::Refused(reason) => ("refused", Some(reason)),
        Outcome::Busy { reason, .. } => ("busy", Some(reason)),
        Outcome::Lost(reason) => ("lost", Some(reason)),
    };
    Some(Attempt {
        lease: lease(effect),
        worker: engine.settings.worker.clone(),
        started_at,
        finished_at,
        outcome,
        code: reason.map(|reason| reason.code.clone()),
        message: reason.map(|reason| reason.message.clone()),
        exchange: tried.exchange.clone(),
    })
}

/// Commits, and keeps trying while the database is away and the lease may still be ours.
async fn commit(engine: &Engine, changes: Changes) -> Result<(), CommitError> {
    let changes = Arc::new(changes);
    // After two leases without a heartbeat somebody else has it for certain.
    let give_up = engine.clock.now().plus(engine.longest_lease() * 2);
    loop {
        match engine.store.commit(Arc::clone(&changes)).await {
            // Waiting does not change what the schema allows.
            Err(error @ CommitError::Store(StoreError::Rejected(_))) => return Err(error),
            Err(CommitError::Store(error)) if engine.clock.now() < give_up => {
                tracing::warn!(%error, "a settlement could not be written yet");
                engine.clock.sleep(SETTLE_RETRY).await;
            }
            result => return result,
        }
    }
}

/// Tells logs and metrics how an attempt ended.
fn report(
    engine: &Engine,
    effect: &Effect,
    adapter: Option<&str>,
    verdict: &Verdict,
    started_at: Timestamp,
) {
    let status = verdict.status();
    tracing::Span::current().record("outcome", status.as_str());
    counter!("outbox_processed_total", "outcome" => status.as_str()).increment(1);
    engine.pulse.note(&effect.lane, status, engine.clock.now().since(started_at));
    let failure = verdict.reason();
    let attempts = effect.attempts + u32::from(failure.is_some());
    if let Verdict::Retry { .. } = verdict {
        counter!("outbox_retry_total", "attempt" => attempts.to_string()).increment(1);
    }
    // The levels differ, the fields do not.
    macro_rules! log {
        ($level:ident, $text:literal) => {
            tracing::$level!(
                idempotency_key = effect.key.as_deref().map(hashed),
                outbox_id = %effect.id,
                status = status.as_str(),
                attempts,
                reason_code = failure.map(|reason| reason.code.as_str()),
                adapter,
                latency_ms = millis(engine.clock.now().since(started_at)),
                $text
            )
        };
    }
    match verdict {
        Verdict::Succeeded => log!(info, "an effect was performed"),
        Verdict::Retry { .. } => log!(warn, "an attempt failed"),
        Verdict::Aborted { .. } => log!(error, "an effect was given up"),
    }
}

fn not_settled(effect: &Effect, error: &CommitError) {
    counter!("outbox_processed_total", "outcome" => "lost_lease").increment(1);
    tracing::warn!(outbox_id = %effect.id, %error, "an effect is no longer ours to settle");
}

/// Keys identify customers' requests: logs carry a hash of them.
pub(crate) fn hashed(key: &str) -> String {
    digest::sha256(key.as_bytes())["sha256:".len()..][..16].to_owned()
}

pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}
