//! Are the books balanced? What Tashika believes, beside what the others really did.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::Value;
use tashika_testkit::gateway::{Ledger, Totals};

use super::caller::Caller;
use super::world::World;

/// Money in yen, on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Money {
    /// Reserved on cards, neither taken nor released.
    pub held: i64,
    pub taken: i64,
    pub given_back: i64,
}

impl Money {
    /// What customers have paid in the end.
    pub const fn charged(self) -> i64 {
        self.taken - self.given_back
    }

    const fn add(&mut self, other: Self) {
        self.held += other.held;
        self.taken += other.taken;
        self.given_back += other.given_back;
    }
}

/// Payments on both sides.
#[derive(Debug, Default)]
pub(super) struct Payments {
    pub count: usize,
    pub ours: Money,
    pub theirs: Money,
    /// Payments that something is under way with, or whose outcome is not known.
    pub open: usize,
    /// Whose outcome nobody found out: a person is asked.
    pub with_a_person: usize,
    pub settled: usize,
    pub failed: usize,
    pub refunded: usize,
    /// Which payments are open.
    pub unsettled: Vec<String>,
    /// At rest, and not what the gateway says.
    pub different: Vec<String>,
    /// What must never happen to a customer.
    pub violations: usize,
}

impl Payments {
    pub const fn balanced(&self) -> bool {
        self.different.is_empty() && self.violations == 0
    }
}

/// Everything that is counted at the end.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub payments: Payments,
    pub orders: Orders,
    pub jobs: Jobs,
    pub mail_waiting: u64,
    pub holds: usize,
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    pub executed_here: usize,
    pub executed_there: usize,
    pub refused: usize,
    pub open: usize,
    pub different: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub taken: usize,
    pub done: usize,
    /// Given up, and shown to a person.
    pub dead_letters: usize,
    /// Neither done nor given up, nor on their way.
    pub missing: usize,
    pub on_their_way: usize,
}

impl Books {
    pub async fn read(world: &World, caller: &Caller) -> anyhow::Result<Self> {
        let lane = caller.get("/mail/lane").await;
        Ok(Self {
            payments: Payments::read(&world.gateway.ledger(), caller).await?,
            orders: Orders::read(world, caller).await?,
            jobs: Jobs::read(world, caller).await?,
            mail_waiting: lane.and_then(|lane| lane.body["queued"].as_u64()).unwrap_or_default(),
            holds: caller.all("/reservations?status=hold").await?.len(),
        })
    }

    /// Nothing is under way, and nobody waits for anything but a person.
    pub const fn at_rest(&self) -> bool {
        self.payments.open == 0
            && self.orders.open == 0
            && self.jobs.on_their_way == 0
            && self.holds == 0
            && self.mail_waiting == 0
    }

    pub fn balanced(&self) -> bool {
        self.payments.balanced() && self.orders.different.is_empty() && self.jobs.missing == 0
    }
}

impl Payments {
    /// While everything moves. The two sides are not read at the same moment, so only what is
    /// different twice is different.
    pub async fn of_now(world: &World, caller: &Caller) -> anyhow::Result<Self> {
        let first = Self::read(&world.gateway.ledger(), caller).await?;
        if first.different.is_empty() {
            return Ok(first);
        }
        let mut second = Self::read(&world.gateway.ledger(), caller).await?;
        second.different.retain(|id| first.different.contains(id));
        Ok(second)
    }

    pub async fn read(ledger: &Ledger, caller: &Caller) -> anyhow::Result<Self> {
        let payments = caller.all("/payments").await?;
        let totals = ledger.totals();
        let mut found = Self { violations: ledger.violations().len(), ..Self::default() };
        let mut known = BTreeSet::new();
        for payment in &payments {
            let id = payment["id"].as_str().unwrap_or_default();
            let none = Totals::default();
            found.count(payment, totals.get(id).unwrap_or(&none));
            known.insert(id);
        }
        for (id, total) in &totals {
            found.theirs.add(money_of(total));
            // Money that nobody here has heard of.
            if !known.contains(id.as_str()) && (total.held(), total.charged()) != (0, 0) {
                found.different.push(id.clone());
            }
        }
        Ok(found)
    }

    fn count(&mut self, payment: &Value, theirs: &Totals) {
        self.count += 1;
        let (status, ours) = (payment["status"].as_str().unwrap_or_default(), believed(payment));
        self.ours.add(ours);
        match status {
            "FAILED" => self.failed += 1,
            "REFUNDED" => self.refunded += 1,
            "PENDING" => {}
            _ => self.settled += 1,
        }
        if payment["verificationFailed"] == true {
            self.with_a_person += 1;
        }
        if payment["verificationRequired"] == true || status == "PENDING" {
            self.open += 1;
            self.unsettled.push(payment["id"].as_str().unwrap_or_default().to_owned());
        } else if !same(status, ours, theirs) {
            self.different.push(payment["id"].as_str().unwrap_or_default().to_owned());
        }
    }
}

/// What a payment of ours says about money.
fn believed(payment: &Value) -> Money {
    let amount = |name: &str| payment[name].as_i64().unwrap_or_default();
    let held = if payment["status"] == "AUTHORIZED" { amount("amount") } else { 0 };
    Money { held, taken: amount("capturedAmount"), given_back: amount("refundedAmount") }
}

const fn money_of(total: &Totals) -> Money {
    Money { held: total.held(), taken: total.captured, given_back: total.refunded }
}

/// Whether a payment at rest is what the gateway did. One that failed may have been taken and given
/// back before that was known: what counts is that the customer has paid nothing.
fn same(status: &str, ours: Money, theirs: &Totals) -> bool {
    let theirs = money_of(theirs);
    match status {
        "FAILED" => theirs.held == 0 && theirs.charged() == 0,
        _ => ours == theirs,
    }
}

impl Orders {
    async fn read(world: &World, caller: &Caller) -> anyhow::Result<Self> {
        let mut found =
            Self { executed_there: world.broker.seen().executions.len(), ..Self::default() };
        for key in world.orders() {
            let Some(answer) = caller.get(&format!("/do/order/{key}")).await else {
                anyhow::bail!("no answer about the order {key}");
            };
            let times = world.broker.executed(&key);
            let fits = match (answer.status, answer.body["status"].as_str()) {
                (200, Some("ok")) => {
                    found.executed_here += 1;
                    times == 1
                }
                (200, Some("error")) => {
                    found.refused += 1;
                    times == 0
                }
                // Never taken: the demonstration was over.
                (404, _) => times == 0,
                _ => {
                    found.open += 1;
                    times <= 1
                }
            };
            if !fits {
                found.different.push(key);
            }
        }
        Ok(found)
    }
}

impl Jobs {
    async fn read(world: &World, caller: &Caller) -> anyhow::Result<Self> {
        let mut on_their_way = 0;
        for state in ["ready", "queued", "throttled"] {
            let path = format!("/console/api/messages?state={state}");
            on_their_way += caller.all(&path).await?.len();
        }
        let letters = dead_letters(caller).await?;
        let given_up: BTreeSet<u64> = letters.iter().filter_map(job_of).collect();
        let (taken, done) = (world.jobs(), world.worker.done());
        let lost = taken.iter().filter(|job| !done.contains(job) && !given_up.contains(job));
        let lost = lost.count();
        Ok(Self {
            taken: taken.len(),
            done: taken.intersection(&done).count(),
            dead_letters: letters.len(),
            missing: if on_their_way == 0 { lost } else { 0 },
            on_their_way,
        })
    }
}

async fn dead_letters(caller: &Caller) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let answer = caller.get(&format!("/v2/dlq?count=100{cursor}")).await;
        let mut page = answer.context("no answer about the dead letters")?.body;
        if let Some(letters) = page["messages"].as_array_mut() {
            found.append(letters);
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(found),
        }
    }
}

/// The number of the job that a dead letter holds.
fn job_of(letter: &Value) -> Option<u64> {
    serde_json::from_str::<Value>(letter["body"].as_str()?).ok()?["job"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn totals(authorized: i64, captured: i64, voided: i64, refunded: i64) -> Totals {
        Totals { authorized_by: Vec::new(), authorized, captured, voided, refunded }
    }

    #[test]
    fn a_payment_is_what_the_gateway_did_or_is_noticed() {
        let payment = |status: &str, captured: i64, refunded: i64| {
            json!({"id": "p-1", "status": status, "amount": 500, "capturedAmount": captured,
                "refundedAmount": refunded})
        };
        for (ours, theirs, fits) in [
            (payment("AUTHORIZED", 0, 0), totals(500, 0, 0, 0), true),
            (payment("AUTHORIZED", 0, 0), totals(500, 500, 0, 0), false),
            (payment("CAPTURED", 500, 200), totals(500, 500, 0, 200), true),
            (payment("CAPTURED", 500, 0), totals(500, 500, 0, 200), false),
            (payment("REFUNDED", 0, 0), totals(500, 0, 500, 0), true),
            (payment("FAILED", 0, 0), totals(500, 500, 0, 500), true),
            (payment("FAILED", 0, 0), totals(500, 0, 0, 0), false),
        ] {
            let mut found = Payments::default();
            found.count(&ours, &theirs);
            assert_eq!(found.balanced(), fits, "{ours} {theirs:?}");
        }
        let mut found = Payments::default();
        let mut unknown = payment("PENDING", 0, 0);
        unknown["verificationRequired"] = json!(true);
        found.count(&unknown, &totals(500, 0, 0, 0));
        assert!(found.balanced() && found.open == 1, "what is open is not a difference yet");
    }
}
