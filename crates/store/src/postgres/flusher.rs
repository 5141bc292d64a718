//! Group commit on PostgreSQL.
//!
//! A flusher takes whatever changes are waiting, turns the writes of each kind into one statement
//! over arrays, runs the statements in one transaction, and answers everybody after the commit. If
//! some of the changes did not find what they expected, the transaction is rolled back and run
//! again without them: they fail alone. If a statement is refused altogether, or has to wait for a
//! row that somebody else has locked, the batch is halved until the culprit is alone.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use futures_util::future::{BoxFuture, join_all};
use tashika_domain::effect::EffectId;
use tashika_domain::ledger::LedgerKey;
use tashika_domain::{Changes, Write};
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::Job;
use super::listener::Announcer;
use crate::claim::Floors;
use crate::error::{CommitError, StoreError, Written};
use crate::step::{Lost, Owner, Step};
use crate::wakeups::{Wakeups, Work};
use crate::{alert, attempt, case, ledger, message, outbox, payment, race, rank, table};

/// Changes per transaction: beyond a thousand rows a statement gains nothing.
const BATCH_MAX: usize = 1000;
/// A commit that takes longer than this is not waited for: its fate is unknown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a batch is run again after a deadlock.
const DEADLOCK_RETRIES: usize = 5;

/// How long each part of a batch waits for locks, once the whole has waited for the full time.
const IMPATIENT: &str = "begin; set local lock_timeout = 100";

/// Whom to tell that there is work.
#[derive(Clone)]
pub(crate) struct AfterCommit {
    pub wakeups: Arc<Wakeups>,
    pub floors: Arc<Floors>,
    pub announcer: Announcer,
}

pub(crate) fn start(count: usize, pool: &Pool, queue: mpsc::Receiver<Job>, after: &AfterCommit) {
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..count {
        let flusher =
            Flusher { pool: pool.clone(), queue: Arc::clone(&queue), after: after.clone() };
        tokio::spawn(flusher.run());
    }
}

struct Flusher {
    pool: Pool,
    queue: Arc<Mutex<mpsc::Receiver<Job>>>,
    after: AfterCommit,
}

impl Flusher {
    async fn run(self) {
        // Changes that touch a row of the batch under way wait for the next one.
        let mut deferred: VecDeque<Job> = VecDeque::new();
        let mut arrived = Vec::with_capacity(BATCH_MAX);
        loop {
            if deferred.is_empty() {
                let mut queue = self.queue.lock().await;
                if queue.recv_many(&mut arrived, BATCH_MAX).await == 0 {
                    return;
                }
                gather(&mut queue, &mut arrived).await;
            }
            deferred.extend(arrived.drain(..));
            let batch = disjoint(&mut deferred);
            self.flush(batch).await;
        }
    }

    async fn flush(&self, jobs: Vec<Job>) {
        let results = match self.pool.get().await {
            Err(error) => {
                let detail = error.to_string();
                jobs.iter().map(|_| Err(StoreError::unavailable(&detail).into())).collect()
            }
            Ok(client) => {
                let changes: Vec<&Changes> = jobs.iter().map(|job| &*job.changes).collect();
                let work = commit_batch(&client, &changes, "begin");
                if let Ok(results) = tokio::time::timeout(FLUSH_TIMEOUT, work).await {
                    results
                } else {
                    // The connection is in the middle of something: it must not be used again.
                    drop(Object::take(client));
                    let lost = || StoreError::unknown("no answer from the database in time");
                    jobs.iter().map(|_| Err(lost().into())).collect()
                }
            }
        };
        let committed =
            jobs.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(job, _)| job);
        self.after.announce(committed.map(|job| &*job.changes));
        for (job, result) in jobs.into_iter().zip(results) {
            // A caller that is gone no longer wants to know.
            drop(job.tell.send(result));
        }
    }
}

/// Takes along what others are about to ask for: a statement costs nearly the same for one row as for ten.
///
/// Nobody waits for it by the clock. Whoever is ready to run runs first; where nobody is, this is over at once.
async fn gather(queue: &mut mpsc::Receiver<Job>, arrived: &mut Vec<Job>) {
    loop {
        tokio::task::yield_now().await;
        if queue.is_empty() || arrived.len() >= BATCH_MAX {
            return;
        }
        while arrived.len() < BATCH_MAX
            && let Ok(job) = queue.try_recv()
        {
            arrived.push(job);
        }
    }
}

impl AfterCommit {
    fn announce<'a>(&self, committed: impl Iterator<Item = &'a Changes>) {
        let work = Work::of(committed);
        for (lane, first) in &work.due {
            self.floors.announce(lane, *first);
            self.announcer.tell(lane, *first);
        }
        if let Some(at) = work.later {
            // Read before the commit, and by now perhaps below the floor. The writes do not say
            // which lane they are about.
            self.floors.announce_everywhere(at);
        }
        work.mark(&self.wakeups);
    }
}

/// What a write touches. Two changes of one batch must not touch the same row: a statement cannot
/// change a row twice, and the order between them would be lost.
#[derive(PartialEq, Eq, Hash)]
enum Touch<'a> {
    Ledger(&'a LedgerKey),
    Effect(EffectId),
    EffectKey(&'a str, &'a str),
    Case(&'a str, &'a str),
    Row(Uuid),
    Event(&'a str, &'a str),
    Alert(&'a str, &'a str),
    MessageKey(&'a str),
    MailKey(&'a str),
    BatchKey(&'a str),
}

fn touches(changes: &Changes) -> Vec<Touch<'_>> {
    let mut touched = Vec::with_capacity(changes.writes().len());
    for write in changes.writes() {
        match write {
            Write::LedgerAccept(entry) => touched.push(Touch::Ledger(&entry.key)),
            Write::LedgerSettle(end) => touched.push(Touch::Ledger(&end.key)),
            Write::LedgerReopen(touch) | Write::LedgerSeen(touch) => {
                touched.push(Touch::Ledger(&touch.key));
            }
            Write::Enqueue(effect) => {
                touched.push(Touch::Effect(effect.id));
                if let Some(key) = &effect.key {
                    touched.push(Touch::EffectKey(&effect.kind, key));
                }
            }
            Write::Settle(end) => touched.push(Touch::Effect(end.lease.id)),
            Write::Release(release) => touched.push(Touch::Effect(release.lease.id)),
            Write::Requeue(wish) => touched.push(Touch::Effect(wish.id)),
            Write::Reschedule(wish) => touched.push(Touch::Effect(wish.id)),
            Write::Withdraw(end) => touched.push(Touch::Effect(end.id)),
            Write::OpenCase(new) => touched.push(Touch::Case(new.kind, &new.subject_id)),
            Write::ResolveCase(end) => touched.push(Touch::Case(end.kind, &end.subject_id)),
            Write::RefundInsert(refund) | Write::RefundUpdate(refund) => {
                touched.push(Touch::Row(refund.payment_id));
            }
            Write::WebhookInsert(event) | Write::WebhookUpdate(event) => {
                touched.push(Touch::Event(&event.source, &event.event_id));
            }
            Write::AlertInsert(alert) | Write::AlertUpdate(alert) => {
                touched.push(Touch::Row(alert.id));
                touched.push(Touch::Alert(&alert.rule, &alert.subject));
            }
            Write::FireAlert(alert) => touched.push(Touch::Alert(alert.rule, &alert.subject)),
            Write::ResolveAlert(end) => touched.push(Touch::Alert(end.rule, &end.subject)),
            // Goes with the settlement of its effect, with its payment, with its message, or is
            // nobody else's.
            Write::Attempt(_)
            | Write::PaymentLine(_)
            | Write::MessageLog(_)
            | Write::Race(_)
            | Write::Audit(_) => {}
            Write::MessageInsert(message) => {
                touched.push(Touch::Row(message.id));
                touched.extend(message.dedup_key.as_deref().map(Touch::MessageKey));
            }
            Write::MailInsert(mail) => {
                touched.push(Touch::Row(mail.id));
                touched.extend(mail.key.as_deref().map(Touch::MailKey));
            }
            Write::MailBatchInsert(batch) => {
                touched.push(Touch::Row(batch.id));
                touched.extend(batch.key.as_deref().map(Touch::BatchKey));
            }
            row => touched.extend(crate::row_of(row).map(|(_, id)| Touch::Row(id))),
        }
    }
    touched
}

/// Takes the jobs from the queue that can share a transaction, in order.
fn disjoint(waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let keep: Vec<bool> = {
        let mut taken: HashSet<Touch<'_>> = HashSet::with_capacity(waiting.len() * 2);
        waiting
            .iter()
            .map(|job| {
                let touched = touches(&job.changes);
                let free = touched.iter().all(|touch| !taken.contains(touch));
                // Also what has to wait: whoever comes after it and touches the same must wait too.
                taken.extend(touched);
                free
            })
            .collect()
    };
    let mut batch = Vec::with_capacity(waiting.len());
    let mut rest = VecDeque::new();
    for (job, keep) in waiting.drain(..).zip(keep) {
        if keep { batch.push(job) } else { rest.push_back(job) }
    }
    *waiting = rest;
    batch
}

type Results = Vec<Result<(), CommitError>>;

/// Commits what can be committed; the result of each is its own.
fn commit_batch<'a>(
    client: &'a Object,
    changes: &'a [&'a Changes],
    begin: &'static str,
) -> BoxFuture<'a, Results> {
    Box::pin(async move {
        let mut results: Vec<Option<Result<(), CommitError>>> =
            changes.iter().map(|_| None).collect();
        let mut deadlocks = 0;
        loop {
            let open: Vec<Owner> = (0..changes.len()).filter(|i| results[*i].is_none()).collect();
            if open.is_empty() {
                break;
            }
            match try_commit(client, changes, &open, begin).await {
                Tried::Committed(lost) => {
                    settle_lost(&mut results, lost);
                    for i in open {
                        results[i].get_or_insert(Ok(()));
                    }
                }
                Tried::Undone(lost) => settle_lost(&mut results, lost),
                Tried::Deadlock if deadlocks < DEADLOCK_RETRIES => deadlocks += 1,
                Tried::Refused(error) | Tried::Locked(error) if open.len() == 1 => {
                    results[open[0]] = Some(Err(CommitError::refused(error)));
                }
                tried @ (Tried::Refused(_) | Tried::Locked(_)) => {
                    let begin = if matches!(tried, Tried::Locked(_)) { IMPATIENT } else { begin };
                    let (left, right) = open.split_at(open.len() / 2);
                    for half in [left, right] {
                        let part: Vec<&Changes> = half.iter().map(|i| changes[*i]).collect();
                        let outcome = commit_batch(client, &part, begin).await;
                        for (i, result) in half.iter().zip(outcome) {
                            results[*i] = Some(result);
                        }
                    }
                }
                Tried::Deadlock => {
                    let error = || StoreError::unavailable("deadlocks without end");
                    for i in open {
                        results[i] = Some(Err(error().into()));
                    }
                }
                Tried::Broken(make_error) => {
                    for i in open {
                        results[i] = Some(Err(make_error()));
                    }
                }
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Ok(()))).collect()
    })
}

fn settle_lost(results: &mut [Option<Result<(), CommitError>>], lost: Vec<Lost>) {
    for (owner, error) in lost {
        results[owner].get_or_insert(Err(error));
    }
}

/// How running a batch went.
enum Tried {
    /// Committed, except for those who lost.
    Committed(Vec<Lost>),
    /// Rolled back because of those who lost.
    Undone(Vec<Lost>),
    Deadlock,
    /// A statement was refused; nothing was written.
    Refused(StoreError),
    /// A row is locked by somebody who takes his time; nothing was written.
    Locked(StoreError),
    /// The connection broke.
    Broken(Box<dyn Fn() -> CommitError + Send>),
}

async fn try_commit(
    client: &Object,
    changes: &[&Changes],
    open: &[Owner],
    begin: &'static str,
) -> Tried {
    let steps = steps(changes, open);
    let mut prepared = Vec::with_capacity(steps.len());
    for step in &steps {
        match client.prepare_cached(step.sql).await {
            Ok(statement) => prepared.push(statement),
            Err(error) => return failed(&error, Written::No),
        }
    }
    // One statement, one write each: a loser is a row that is not there, nothing to undo.
    let single = begin != IMPATIENT && open.iter().all(|i| changes[*i].writes().len() == 1);
    if let ([_], true) = (&steps[..], single) {
        let [step]: [Step<'_>; 1] = match steps.try_into() {
            Ok(step) => step,
            Err(_) => return Tried::Committed(Vec::new()),
        };
        return match client.query(&prepared[0], &borrowed(&step)).await {
            Ok(rows) => Tried::Committed((step.judge)(&rows)),
            Err(error) => failed(&error, Written::Unknown),
        };
    }
    run_in_transaction(client, steps, &prepared, begin).await
}

async fn run_in_transaction(
    client: &Object,
    steps: Vec<Step<'_>>,
    prepared: &[tokio_postgres::Statement],
    begin: &'static str,
) -> Tried {
    // All in one go: the server works through them while we wait once.
    let borrowed: Vec<Vec<&(dyn ToSql + Sync)>> = steps.iter().map(borrowed).collect();
    let mut requests: Vec<BoxFuture<'_, Result<Vec<Row>, tokio_postgres::Error>>> =
        Vec::with_capacity(steps.len() + 1);
    requests.push(Box::pin(async {
        client.batch_execute(begin).await?;
        Ok(Vec::new())
    }));
    for (statement, params) in prepared.iter().zip(&borrowed) {
        requests.push(Box::pin(client.query(statement, params)));
    }
    let mut answers = Vec::with_capacity(requests.len());
    let mut error = None;
    for answer in join_all(requests).await {
        match answer {
            Ok(rows) => answers.push(rows),
            Err(cause) => {
                error.get_or_insert(cause);
            }
        }
    }
    // Everything after a refused statement is refused as well, so these are the answers before it.
    let lost: Vec<Lost> = steps
        .into_iter()
        .zip(answers.iter().skip(1))
        .flat_map(|(step, rows)| (step.judge)(rows))
        .collect();
    if let Some(error) = error {
        return match client.batch_execute("rollback").await {
            Ok(()) if lost.is_empty() => failed(&error, Written::No),
            Ok(()) => Tried::Undone(lost),
            Err(rollback) => failed(&rollback, Written::No),
        };
    }
    if lost.is_empty() {
        return match client.batch_execute("commit").await {
            Ok(()) => Tried::Committed(lost),
            Err(error) => failed(&error, Written::Unknown),
        };
    }
    match client.batch_execute("rollback").await {
        Ok(()) => Tried::Undone(lost),
        Err(error) => failed(&error, Written::No),
    }
}

fn borrowed<'a>(step: &'a Step<'_>) -> Vec<&'a (dyn ToSql + Sync)> {
    step.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

fn failed(error: &tokio_postgres::Error, written: Written) -> Tried {
    use tokio_postgres::error::SqlState as S;
    let detail = super::describe(error);
    match error.code() {
        Some(code)
            if *code == S::T_R_DEADLOCK_DETECTED || *code == S::T_R_SERIALIZATION_FAILURE =>
        {
            Tried::Deadlock
        }
        Some(code) if *code == S::LOCK_NOT_AVAILABLE => {
            Tried::Locked(StoreError::unavailable(detail))
        }
        // The server said no to the statement, so it was not written. P0: a trigger of the user's.
        Some(code)
            if ["21", "22", "23", "42", "54", "P0"].iter().any(|c| code.code().starts_with(c)) =>
        {
            Tried::Refused(StoreError::Rejected(detail))
        }
        // Shutting down, out of disk, out of time: said before the commit took effect.
        Some(_) => Tried::Broken(Box::new(move || StoreError::unavailable(&detail).into())),
        None => Tried::Broken(Box::new(move || {
            StoreError::Unavailable { detail: detail.clone(), written }.into()
        })),
    }
}

#[expect(clippy::borrowed_box, reason = "that is how a write holds a large row")]
fn unboxed<'a, T>(rows: &[(Owner, &'a Box<T>)]) -> Vec<(Owner, &'a T)> {
    rows.iter().map(|(owner, row)| (*owner, &***row)).collect()
}

/// The writes of one kind together, in the order of the kinds.
fn steps<'a>(changes: &[&'a Changes], open: &[Owner]) -> Vec<Step<'a>> {
    let mut writes: Vec<(Owner, &Write)> = open
        .iter()
        .flat_map(|owner| changes[*owner].writes().iter().map(move |write| (*owner, write)))
        .collect();
    writes.sort_by_key(|(_, write)| rank(write));
    writes.chunk_by(|(_, one), (_, next)| rank(one) == rank(next)).map(step).collect()
}

/// Writes of one kind.
fn step<'a>(writes: &[(Owner, &'a Write)]) -> Step<'a> {
    macro_rules! rows {
        ($variant:ident) => {
            writes
                .iter()
                .filter_map(|(owner, write)| match write {
                    Write::$variant(row) => Some((*owner, row)),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
    }
    match writes[0].1 {
        Write::LedgerAccept(_) => ledger::accept_pg(rows!(LedgerAccept)),
        Write::LedgerSettle(_) => ledger::settle_pg(rows!(LedgerSettle)),
        Write::LedgerReopen(_) => ledger::reopen_pg(&rows!(LedgerReopen)),
        Write::LedgerSeen(_) => ledger::seen_pg(&rows!(LedgerSeen)),
        Write::PaymentInsert(_) => table::insert_pg(&unboxed(&rows!(PaymentInsert))),
        Write::PaymentUpdate(_) => table::update_pg(&unboxed(&rows!(PaymentUpdate))),
        Write::RefundInsert(_) => table::insert_pg(&unboxed(&rows!(RefundInsert))),
        Write::RefundUpdate(_) => table::update_pg(&unboxed(&rows!(RefundUpdate))),
        Write::ReservationUpdate(_) => table::update_pg(&unboxed(&rows!(ReservationUpdate))),
        Write::ReservationInsert(_) => table::insert_pg(&unboxed(&rows!(ReservationInsert))),
        Write::WebhookInsert(_) => table::insert_pg(&unboxed(&rows!(WebhookInsert))),
        Write::WebhookUpdate(_) => table::update_pg(&unboxed(&rows!(WebhookUpdate))),
        Write::BillingInsert(_) => table::insert_pg(&unboxed(&rows!(BillingInsert))),
        Write::BillingUpdate(_) => table::update_pg(&unboxed(&rows!(BillingUpdate))),
        Write::RenderInsert(_) => table::insert_pg(&unboxed(&rows!(RenderInsert))),
        Write::RenderUpdate(_) => table::update_pg(&unboxed(&rows!(RenderUpdate))),
        Write::LetGo(_) => message::let_go_pg(rows!(LetGo)),
        Write::MessageUpdate(_) => table::update_pg(&unboxed(&rows!(MessageUpdate))),
        Write::MessageInsert(_) => table::insert_pg(&unboxed(&rows!(MessageInsert))),
        Write::QueueInsert(_) => table::insert_pg(&unboxed(&rows!(QueueInsert))),
        Write::QueueUpdate(_) => table::update_pg(&unboxed(&rows!(QueueUpdate))),
        Write::FlowInsert(_) => table::insert_pg(&unboxed(&rows!(FlowInsert))),
        Write::FlowUpdate(_) => table::update_pg(&unboxed(&rows!(FlowUpdate))),
        Write::GroupInsert(_) => table::insert_pg(&unboxed(&rows!(GroupInsert))),
        Write::GroupUpdate(_) => table::update_pg(&unboxed(&rows!(GroupUpdate))),
        Write::ScheduleInsert(_) => table::insert_pg(&unboxed(&rows!(ScheduleInsert))),
        Write::ScheduleUpdate(_) => table::update_pg(&unboxed(&rows!(ScheduleUpdate))),
        Write::KeysInsert(_) => table::insert_pg(&unboxed(&rows!(KeysInsert))),
        Write::KeysUpdate(_) => table::update_pg(&unboxed(&rows!(KeysUpdate))),
        Write::Enqueue(_) => outbox::enqueue_pg(rows!(Enqueue)),
        Write::Settle(_) => outbox::settle_pg(rows!(Settle)),
        Write::Release(_) => outbox::release_pg(rows!(Release)),
        Write::Requeue(_) => outbox::requeue_pg(rows!(Requeue)),
        Write::Reschedule(_) => outbox::reschedule_pg(rows!(Reschedule)),
        Write::Withdraw(_) => outbox::withdraw_pg(&rows!(Withdraw)),
        Write::Attempt(_) => attempt::record_pg(&rows!(Attempt)),
        Write::CloseCase(_) => case::close_pg(&rows!(CloseCase)),
        Write::OpenCase(_) => case::open_pg(&rows!(OpenCase)),
        Write::ResolveCase(_) => case::resolve_pg(&rows!(ResolveCase)),
        Write::PaymentLine(_) => payment::line_pg(&rows!(PaymentLine)),
        Write::MessageLog(_) => table::insert_pg(&unboxed(&rows!(MessageLog))),
        Write::AlertUpdate(_) => table::update_pg(&unboxed(&rows!(AlertUpdate))),
        Write::AlertInsert(_) => table::insert_pg(&unboxed(&rows!(AlertInsert))),
        Write::FireAlert(_) => alert::fire_pg(&rows!(FireAlert)),
        Write::ResolveAlert(_) => alert::resolve_pg(&rows!(ResolveAlert)),
        Write::Race(_) => race::record_pg(&rows!(Race)),
        Write::Audit(_) => table::insert_pg(&unboxed(&rows!(Audit))),
        Write::MailInsert(_) => table::insert_pg(&unboxed(&rows!(MailInsert))),
        Write::MailUpdate(_) => table::update_pg(&unboxed(&rows!(MailUpdate))),
        Write::MailBatchInsert(_) => table::insert_pg(&unboxed(&rows!(MailBatchInsert))),
        Write::MailBatchUpdate(_) => table::update_pg(&unboxed(&rows!(MailBatchUpdate))),
        Write::MailControlUpdate(_) => table::update_pg(&unboxed(&rows!(MailControlUpdate))),
    }
}
