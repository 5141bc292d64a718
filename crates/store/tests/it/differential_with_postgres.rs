//! The same random life on both databases: the same answers, the same rows.
//!
//! The sequences come from a fixed seed, so a failure comes again. Time only moves forward, as it
//! does for one process; everything else is as nasty as the types allow.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tashika_domain::case::{CaseResolution, NewCase};
use tashika_domain::changes::{Lease, LedgerTouch, Release, Reschedule, Withdraw};
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::{Lane, NewEffect, Timestamp, Write};
use tashika_store::Store;
use uuid::Uuid;

use crate::support::*;

#[derive(Clone, Debug)]
struct Step {
    /// Milliseconds since the step before.
    after: i64,
    op: Op,
}

#[derive(Clone, Debug)]
enum Op {
    Commit(Vec<Wish>),
    Claim { lane: usize, limit: usize },
    Renew(Vec<usize>),
    Lapsed { lane: usize, silent_for: i64 },
    PruneEffects { limit: i64 },
    PruneLedger { limit: i64 },
    Reserve { client: usize, want: i64, limit: i64 },
    Return { client: usize, unused: i64 },
}

/// Numbers of keys, effects, subjects and of the leases that were ever held; times in milliseconds
/// from the step's own moment.
#[derive(Clone, Debug)]
enum Wish {
    Accept { key: usize, digest: bool, expires: i64 },
    SettleLedger { key: usize, digest: bool, succeeded: bool, expires: i64 },
    Reopen(usize),
    Seen(usize),
    Enqueue { effect: u64, key: Option<usize>, lane: usize, run: i64, expires: i64 },
    Succeed { lease: usize, expires: i64 },
    Retry { lease: usize, run: i64 },
    Abort { lease: usize, in_doubt: bool, expires: i64 },
    Release { lease: usize, run: i64 },
    Reschedule { effect: u64, run: i64 },
    Withdraw(u64),
    Requeue { effect: u64, without_doubt: bool },
    Refused(usize),
    Attempt(usize),
    Open(usize),
    Resolve(usize),
}

const LANES: [Lane; 2] = [Lane::ORDERS, Lane::MAIL];
const EFFECTS: u64 = 12;
const KEYS: usize = 4;

fn wish() -> impl Strategy<Value = Wish> {
    let key = || 0..KEYS;
    let lease = || 0..64_usize;
    let effect = || 0..EFFECTS;
    let expires = || 0..20_000_i64;
    prop_oneof![
        2 => (key(), any::<bool>(), expires())
            .prop_map(|(key, digest, expires)| Wish::Accept { key, digest, expires }),
        2 => (key(), any::<bool>(), any::<bool>(), expires()).prop_map(
            |(key, digest, succeeded, expires)| {
                Wish::SettleLedger { key, digest, succeeded, expires }
            }
        ),
        1 => key().prop_map(Wish::Reopen),
        1 => key().prop_map(Wish::Seen),
        6 => (effect(), proptest::option::of(key()), 0..2_usize, -5_000..10_000_i64, expires())
            .prop_map(|(effect, key, lane, run, expires)| {
                Wish::Enqueue { effect, key, lane, run, expires }
            }),
        3 => (lease(), expires()).prop_map(|(lease, expires)| Wish::Succeed { lease, expires }),
        2 => (lease(), -2_000..10_000_i64).prop_map(|(lease, run)| Wish::Retry { lease, run }),
        3 => (lease(), any::<bool>(), expires())
            .prop_map(|(lease, in_doubt, expires)| Wish::Abort { lease, in_doubt, expires }),
        2 => (lease(), 0..10_000_i64).prop_map(|(lease, run)| Wish::Release { lease, run }),
        2 => (effect(), 0..10_000_i64).prop_map(|(effect, run)| Wish::Reschedule { effect, run }),
        1 => effect().prop_map(Wish::Withdraw),
        2 => (effect(), any::<bool>())
            .prop_map(|(effect, without_doubt)| Wish::Requeue { effect, without_doubt }),
        1 => lease().prop_map(Wish::Refused),
        1 => lease().prop_map(Wish::Attempt),
        1 => key().prop_map(Wish::Open),
        1 => key().prop_map(Wish::Resolve),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        10 => proptest::collection::vec(wish(), 1..4).prop_map(Op::Commit),
        5 => (0..2_usize, 0..4_usize).prop_map(|(lane, limit)| Op::Claim { lane, limit }),
        1 => proptest::collection::vec(0..64_usize, 0..4).prop_map(Op::Renew),
        1 => (0..2_usize, 0..5_000_i64)
            .prop_map(|(lane, silent_for)| Op::Lapsed { lane, silent_for }),
        1 => (1..20_i64).prop_map(|limit| Op::PruneEffects { limit }),
        1 => (1..4_i64).prop_map(|limit| Op::PruneLedger { limit }),
        1 => (0..2_usize, 0..5_i64, 0..12_i64)
            .prop_map(|(client, want, limit)| Op::Reserve { client, want, limit }),
        1 => (0..2_usize, 0..5_i64).prop_map(|(client, unused)| Op::Return { client, unused }),
    ];
    (0..2_000_i64, op).prop_map(|(after, op)| Step { after, op })
}

/// One of the two, and what it has been given to hold.
struct Player {
    db: Db,
    store: Store,
    leases: Vec<Lease>,
    cases: u128,
}

impl Player {
    async fn new(db: Db) -> Self {
        let store = db.open().await;
        Self { db, store, leases: Vec::new(), cases: 0 }
    }

    fn lease(&self, number: usize) -> Lease {
        let count = self.leases.len().max(1);
        self.leases.get(number % count).copied().unwrap_or(Lease { id: id(0), fence: 1 })
    }

    fn write(&mut self, wish: &Wish, now: Timestamp) -> Write {
        let later = |ms: i64| Timestamp::from_micros(now.as_micros() + ms * 1000);
        let name = |key: usize| format!("k{key}");
        let digest = |key: usize, same: bool| format!("sha256:{}", if same { key } else { 99 });
        let settled = |mut write: Write, expires: i64| {
            if let Write::Settle(end) = &mut write {
                end.expires_at = later(expires);
            }
            write
        };
        let touch = |key: usize| LedgerTouch { key: ledger_key(&name(key)), now };
        match *wish {
            Wish::Accept { key, digest: same, expires } => {
                let mut entry = accept(&name(key));
                entry.request_digest = digest(key, same);
                (entry.now, entry.expires_at) = (now, later(expires));
                Write::LedgerAccept(entry)
            }
            Wish::SettleLedger { key, digest: same, succeeded, expires } => {
                let status = if succeeded { LedgerStatus::Succeeded } else { LedgerStatus::Failed };
                let mut end = ended(&name(key), status, now);
                end.request_digest = digest(key, same);
                end.expires_at = later(expires);
                Write::LedgerSettle(end)
            }
            Wish::Reopen(key) => Write::LedgerReopen(touch(key)),
            Wish::Seen(key) => Write::LedgerSeen(touch(key)),
            Wish::Enqueue { effect: number, key, lane, run, expires } => {
                Write::Enqueue(NewEffect {
                    key: key.map(name),
                    lane: LANES[lane].clone(),
                    run_at: later(run),
                    created_at: now,
                    expires_at: later(expires),
                    ..effect(number)
                })
            }
            Wish::Succeed { lease, expires } => settled(succeed(self.lease(lease), now), expires),
            Wish::Retry { lease, run } => retry(self.lease(lease), later(run), now),
            Wish::Abort { lease, in_doubt, expires } => {
                settled(abort(self.lease(lease), in_doubt, now), expires)
            }
            Wish::Release { lease, run } => {
                Write::Release(Release { lease: self.lease(lease), now, run_at: later(run) })
            }
            Wish::Reschedule { effect, run } => Write::Reschedule(Reschedule {
                id: id(effect),
                lane: Lane::ORDERS,
                run_at: later(run),
            }),
            Wish::Withdraw(effect) => {
                Write::Withdraw(Withdraw { id: id(effect), now, code: "CANCELLED" })
            }
            Wish::Requeue { effect, without_doubt } => requeue(id(effect), without_doubt, now),
            Wish::Refused(lease) => refused(self.lease(lease)),
            Wish::Attempt(lease) => Write::Attempt(attempt(self.lease(lease))),
            Wish::Open(subject) => {
                self.cases += 1;
                Write::OpenCase(NewCase {
                    id: Uuid::from_u128(self.cases),
                    kind: "order_unanswered",
                    subject_type: "order",
                    subject_id: name(subject),
                    summary: "nobody knows".into(),
                    actions: vec!["retry"],
                    details: "{}".into(),
                    now,
                })
            }
            Wish::Resolve(subject) => Write::ResolveCase(CaseResolution {
                kind: "order_unanswered",
                subject_id: name(subject),
                action: "retry".into(),
                note: String::new(),
                now,
            }),
        }
    }

    /// Does it, and says what came back.
    async fn play(&mut self, op: &Op, now: Timestamp) -> String {
        match op {
            Op::Commit(wishes) => {
                let writes: Vec<Write> = wishes.iter().map(|wish| self.write(wish, now)).collect();
                format!("{:?}", commit(&self.store, writes).await)
            }
            Op::Claim { lane, limit } => {
                let mut claimed = claim_as(&self.store, &LANES[*lane], "w", now, *limit).await;
                self.leases.extend(claimed.iter().map(lease));
                for effect in &mut claimed {
                    effect.payload = compact(&effect.payload);
                }
                format!("{claimed:?}")
            }
            Op::Renew(leases) => {
                let leases = leases.iter().map(|number| self.lease(*number)).collect();
                format!("{:?}", self.store.renew(leases, now).await)
            }
            Op::Lapsed { lane, silent_for } => {
                let cutoff = Timestamp::from_micros(now.as_micros() - silent_for * 1000);
                let found = self.store.lapsed(&LANES[*lane], cutoff, 5).await.expect("a read");
                let found = found.iter().map(|l| (lease(&l.effect), &l.worker, l.locked_at));
                format!("{:?}", found.collect::<Vec<_>>())
            }
            Op::PruneEffects { limit } => {
                format!("{:?}", self.store.prune_effects(now, None, *limit).await)
            }
            Op::PruneLedger { limit } => {
                format!("{:?}", self.store.prune_ledger(now, *limit).await)
            }
            Op::Reserve { client, want, limit } => {
                let client = format!("c{client}");
                format!("{:?}", self.store.reserve_quota(&client, 1, *want, *limit).await)
            }
            Op::Return { client, unused } => {
                format!("{:?}", self.store.return_quota(&format!("c{client}"), 1, *unused).await)
            }
        }
    }

    /// Everything that can be read.
    async fn sight(&self) -> String {
        let mut sight = Vec::new();
        for row in all(&self.store).await {
            let payload = self.store.payload(row.id).await.expect("a read").expect("a payload");
            sight.push(format!("{row:?} {}", compact(&payload)));
        }
        for number in 0..EFFECTS {
            sight.push(format!("{:?}", self.store.attempts(id(number)).await));
        }
        for key in 0..KEYS {
            let name = format!("k{key}");
            let mut entry = self.store.ledger_entry(&ledger_key(&name)).await.expect("a read");
            if let Some(entry) = &mut entry {
                entry.response = compact(&entry.response);
            }
            sight.push(format!("{entry:?}"));
            sight.push(format!("{:?}", self.store.cases_of("order", &name).await));
        }
        let quotas = "select client, day, used from quotas order by client";
        sight.push(format!("{:?}", self.db.sql(quotas).await));
        sight.push(format!("{:?}", self.store.effect_counts().await));
        sight.join("\n")
    }
}

/// PostgreSQL keeps the meaning of JSON, SQLite its text.
fn compact(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json).expect("JSON").to_string()
}

/// Changes with a defect and a lost race in them fail on both, but which of the two is named first
/// depends on whether rows are written one by one or all in one statement.
fn both_failed(left: &str, right: &str) -> bool {
    let defect = format!("{:?}", Said::Rejected);
    let done = format!("{:?}", Said::Done);
    (left == defect || right == defect) && left != done && right != done
}

async fn compare(steps: &[Step], postgres: &mut Player) -> Result<(), TestCaseError> {
    let mut sqlite = Player::new(Db::sqlite()).await;
    let empty = "truncate idempo_ledger, outbox, outbox_attempts, cases, quotas";
    postgres.db.sql(empty).await.expect("emptied");
    // Its memory of floors goes as well.
    postgres.store = postgres.db.open().await;
    (postgres.leases, postgres.cases) = (Vec::new(), 0);
    let mut now = at(0);
    for (number, step) in steps.iter().enumerate() {
        now = Timestamp::from_micros(now.as_micros() + step.after * 1000);
        let (left, right) = (sqlite.play(&step.op, now).await, postgres.play(&step.op, now).await);
        if !both_failed(&left, &right) {
            prop_assert_eq!(left, right, "step {}: {:?}: SQLite on the left", number, step);
        }
        let (left, right) = (all(&sqlite.store).await, all(&postgres.store).await);
        prop_assert_eq!(left, right, "after step {}: {:?}", number, step);
    }
    let (left, right) = (sqlite.sight().await, postgres.sight().await);
    prop_assert_eq!(left, right, "at the end");
    Ok(())
}

#[test]
fn random_lives_are_the_same_on_both() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut postgres = runtime.block_on(async { Player::new(Db::postgres()).await });
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let postgres = std::cell::RefCell::new(&mut postgres);
    TestRunner::new_with_rng(config, rng)
        .run(&proptest::collection::vec(step(), 1..40), |steps| {
            runtime.block_on(compare(&steps, &mut postgres.borrow_mut()))
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
