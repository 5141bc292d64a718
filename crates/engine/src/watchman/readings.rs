//! What the rules' values are now.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::gauge;
use tashika_domain::Timestamp;
use tashika_domain::alert::rules::{CASE_KINDS, Counter, Measure, Rule};
use tashika_domain::alert::watch::Reading;
use tashika_domain::case::CaseStatus;
use tashika_domain::payment::Status;
use tashika_store::{CaseFilter, Store, StoreError};

use super::history::History;
use crate::engine::Engine;
use crate::meter::p95;

/// What the database knows, read once per look.
pub(super) struct Facts {
    in_doubt: i64,
    pending: i64,
    dead_letters: i64,
    oldest_letter: Duration,
    cases: BTreeMap<String, i64>,
    /// Mails in the last 24 hours.
    mails: i64,
}

/// Reads them, and shows them to Prometheus.
#[expect(clippy::cast_precision_loss, reason = "a gauge shows a magnitude")]
pub(super) async fn facts(engine: &Engine, now: Timestamp) -> Result<Facts, StoreError> {
    let store = &engine.store;
    let mails = mail(store, engine.settings.mail_quota, now).await?;
    let pending = store.waiting_count().await?;
    gauge!("outbox_pending_count").set(pending as f64);
    gauge!("idempo_ledger_rows").set(store.ledger_rows().await? as f64);
    let in_doubt = store.payments_in_doubt().await?;
    gauge!("payment_pending_verification_count").set(in_doubt as f64);
    // What still waits for something to happen to it; the other statuses only ever grow.
    for status in [Status::Pending, Status::Authorized] {
        let count = store.payment_count(status).await?;
        gauge!("payment_active_count", "status" => status.as_str()).set(count as f64);
    }
    let (dead_letters, oldest) = store.dead_letters().await?;
    let oldest_letter = oldest.map_or(Duration::ZERO, |at| now.since(at));
    gauge!("queue_dlq_count").set(dead_letters as f64);
    gauge!("queue_dlq_oldest_seconds").set(oldest_letter.as_secs_f64());
    let cases = store.open_case_counts().await?;
    for kind in CASE_KINDS {
        gauge!("cases_open", "kind" => kind).set(cases.get(kind).copied().unwrap_or(0) as f64);
    }
    Ok(Facts { in_doubt, pending, dead_letters, oldest_letter, cases, mails })
}

/// How mail stands: how many were sent in the last 24 hours.
#[expect(clippy::cast_precision_loss, reason = "a gauge shows a magnitude")]
async fn mail(store: &Store, quota: i64, now: Timestamp) -> Result<i64, StoreError> {
    let (queued, oldest) = store.mail_queue().await?;
    gauge!("mail_queued_count").set(queued as f64);
    let age = oldest.map_or(Duration::ZERO, |at| now.since(at));
    gauge!("mail_queue_age_seconds").set(age.as_secs_f64());
    let (used, sending) = store.mail_usage(now).await?;
    gauge!("mail_rate_in_use").set(sending as f64);
    if quota > 0 {
        gauge!("mail_quota_left").set((quota - used).max(0) as f64);
    }
    Ok(used)
}

/// The share of the quota that is used up, in percent. Without a quota there is none.
#[expect(clippy::cast_precision_loss, reason = "a share needs no last digit")]
fn quota_used(mails: i64, quota: i64) -> Option<Reading> {
    let value = mails as f64 * 100.0 / quota as f64;
    (quota > 0).then(|| Reading { value, ..count(mails) })
}

/// The value of one rule. `None`: too little happened to say anything, or others say it.
pub(super) async fn read(
    engine: &Engine,
    rule: &Rule,
    facts: &Facts,
    histories: &mut BTreeMap<&'static str, History>,
    now: Timestamp,
) -> Result<Option<Reading>, StoreError> {
    let history = histories.entry(rule.name).or_insert_with(|| History::since(now));
    let reading = match &rule.measure {
        Measure::PaymentsInDoubt => Some(count(facts.in_doubt)),
        Measure::DeadLetters => Some(count(facts.dead_letters)),
        Measure::OldestDeadLetter => {
            let value = facts.oldest_letter.as_secs_f64();
            Some(Reading { value, ..count(facts.dead_letters) })
        }
        Measure::OutboxPending => Some(count(facts.pending)),
        Measure::MailQuotaUsed => quota_used(facts.mails, engine.settings.mail_quota),
        Measure::OpenCases(kind) => Some(open_cases(&engine.store, *kind, facts).await?),
        Measure::Races { scenario, resolution } => {
            let since = now.minus(rule.window);
            Some(count(engine.store.race_count(scenario, resolution, since).await?))
        }
        Measure::Increase(counter) => {
            let totals = vec![engine.meter.total(counter)];
            Some(counted(history.grown(totals, rule.window, now)[0]))
        }
        Measure::Share { part, whole } => {
            let sum = |counters: &[Counter]| counters.iter().map(|c| engine.meter.total(c)).sum();
            let totals = vec![sum(part), sum(whole)];
            let grown = history.grown(totals, rule.window, now);
            share(grown[0], grown[1], rule.minimum)
        }
        Measure::P95(counter) => {
            let grown = history.grown(engine.meter.buckets(counter), rule.window, now);
            let (value, events) = p95(&grown);
            (events >= rule.minimum.max(1)).then(|| Reading { value, ..counted(events) })
        }
        Measure::Reported => None,
    };
    let shown = reading.as_ref().map_or(0.0, |reading| reading.value);
    gauge!("alert_value", "rule" => rule.name).set(shown);
    Ok(reading)
}

#[expect(clippy::cast_precision_loss, reason = "thresholds are far below where it begins")]
fn count(count: i64) -> Reading {
    Reading { value: count as f64, count, ..Reading::default() }
}

fn counted(events: u64) -> Reading {
    count(i64::try_from(events).unwrap_or(i64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "a share is an estimate")]
fn share(part: u64, whole: u64, minimum: u64) -> Option<Reading> {
    let value = part as f64 / whole as f64;
    let labels = BTreeMap::from([("of".to_owned(), whole.to_string())]);
    (whole >= minimum.max(1)).then(|| Reading { value, labels, ..counted(part) })
}

/// How many wait, and the newest of them as an example.
async fn open_cases(
    store: &Store,
    kind: Option<&'static str>,
    facts: &Facts,
) -> Result<Reading, StoreError> {
    let counts = facts.cases.iter().filter(|(known, _)| kind.is_none_or(|kind| kind == **known));
    let mut reading = count(counts.clone().map(|(_, count)| count).sum());
    if reading.count == 0 {
        return Ok(reading);
    }
    let filter = CaseFilter {
        status: Some(CaseStatus::Open),
        kind: kind.map(ToOwned::to_owned),
        ..CaseFilter::default()
    };
    let Some(newest) = store.cases(&filter, 1).await?.pop() else { return Ok(reading) };
    if kind.is_none() {
        reading.labels.extend(counts.map(|(kind, count)| (kind.clone(), count.to_string())));
    } else if let Ok(serde_json::Value::Object(details)) = serde_json::from_str(&newest.details) {
        for (name, value) in details {
            let Some(text) = value.as_str() else { continue };
            if name == "alert" {
                reading.message = Some(text.to_owned());
            } else {
                reading.labels.insert(name, text.to_owned());
            }
        }
    }
    reading.labels.insert("caseId".to_owned(), newest.id.to_string());
    reading.labels.insert("subjectId".to_owned(), newest.subject_id);
    Ok(reading)
}
