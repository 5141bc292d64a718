//! The default broker: executes every order on paper, at once, inside the process.
//!
//! For development, demonstrations, benchmarks and the first day with a new installation. The same
//! order is always executed in the same way: prices and fills are derived from its content, only
//! the time of the fills is the `now` that was passed in. A limit is respected: no fill is worse
//! than it, some are up to two ticks better. A market order is filled around a price that belongs to
//! the instrument's name.
//!
//! Repeats under the same key are recognised by nature. Executed orders are remembered **in memory
//! only**, the last [`REMEMBERED`] of them: after a restart, or in another process, `status` says
//! `NotFound` for an order that was executed, which is harmless because it was executed on paper. It fails no
//! order and has no market hours.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tashika_domain::order::{Execution, Fill, OrderRequest, Side, broker_code};
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::{Outcome, Timestamp, digest};

use super::{
    ALREADY_PROCESSED, BoxFuture, Broker, Operation, Reply, SendOrder, Whereabouts, observed,
};

/// How many executions are remembered: enough for any demonstration, a few megabytes at most.
pub const REMEMBERED: usize = 10_000;

/// Two hundredths of a percent of the value, a usual commission.
const COST_RATE: f64 = 0.0002;
/// Limits with fewer ticks than this are not improved on: a tick would be more than 0.1 % of them.
const TICKS_WORTH_IMPROVING: i128 = 1000;

/// The paper broker.
#[derive(Debug, Default)]
pub struct PaperBroker {
    executed: Mutex<Executed>,
}

#[derive(Debug, Default)]
struct Executed {
    by_id: BTreeMap<String, Execution>,
    oldest_first: VecDeque<String>,
}

impl PaperBroker {
    pub const NAME: &'static str = "paper";

    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn execute(&self, order: &OrderRequest, now: Timestamp) -> Outcome<Execution> {
        let execution = execution(order, now);
        let mut executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        match executed.by_id.get(&order.idempotency_key) {
            // The reference is a hash of key and content, so it tells a repeat from a mix-up.
            Some(before) if before.order_ref == execution.order_ref => {
                Outcome::Done(before.clone())
            }
            Some(_) => Outcome::Refused(Reason::new(
                broker_code::BAD_REQUEST,
                "another order was executed under this client order id",
            )),
            None => {
                executed.remember(&order.idempotency_key, &execution);
                Outcome::Done(execution)
            }
        }
    }

    fn recall(&self, client_order_id: &str) -> Option<Execution> {
        let executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        executed.by_id.get(client_order_id).cloned()
    }
}

impl Executed {
    fn remember(&mut self, id: &str, execution: &Execution) {
        self.by_id.insert(id.to_owned(), execution.clone());
        self.oldest_first.push_back(id.to_owned());
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }
}

impl Broker for PaperBroker {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn takes_keys(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, send: SendOrder<'a>) -> BoxFuture<'a, Reply<Execution>> {
        let work = async move {
            let mut reply = reply("send", self.execute(send.order, send.now));
            if let Outcome::Done(execution) = &reply.outcome {
                reply.exchange.reference = Some(execution.order_ref.clone());
            }
            reply
        };
        Box::pin(observed(Self::NAME, Operation::Send, work))
    }

    fn status<'a>(
        &'a self,
        client_order_id: &'a str,
        _now: Timestamp,
    ) -> BoxFuture<'a, Reply<Whereabouts>> {
        let work = async move {
            let found = self.recall(client_order_id);
            let whereabouts = found.map_or(Whereabouts::NotFound, Whereabouts::Executed);
            reply("status", Outcome::Done(whereabouts))
        };
        Box::pin(observed(Self::NAME, Operation::Status, work))
    }

    fn cancel<'a>(&'a self, client_order_id: &'a str, _now: Timestamp) -> BoxFuture<'a, Reply<()>> {
        let work = async move {
            let reason = match self.recall(client_order_id) {
                Some(_) => Reason::new(ALREADY_PROCESSED, "the order is executed already"),
                None => Reason::new(broker_code::BAD_REQUEST, "there is no such order"),
            };
            reply("cancel", Outcome::Refused(reason))
        };
        Box::pin(observed(Self::NAME, Operation::Cancel, work))
    }

    fn heartbeat(&self, _now: Timestamp) -> BoxFuture<'_, Reply<()>> {
        let work = async { reply("heartbeat", Outcome::Done(())) };
        Box::pin(observed(Self::NAME, Operation::Heartbeat, work))
    }
}

fn reply<T>(request: &str, outcome: Outcome<T>) -> Reply<T> {
    let said = match &outcome {
        Outcome::Done(_) => "ok",
        Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => {
            &reason.code
        }
    };
    let exchange = Exchange {
        request: format!("paper {request}"),
        reply: said.to_owned(),
        reference: None,
        sent: true,
    };
    Reply { outcome, exchange, rtt: Duration::ZERO }
}

/// The execution of an order: the same for the same content, except for the time.
fn execution(order: &OrderRequest, ts: Timestamp) -> Execution {
    let content = format!(
        "{}|{}|{}|{}|{}",
        order.instrument,
        order.side.as_str(),
        order.qty,
        order.price.map_or_else(|| "market".to_owned(), |price| price.to_string()),
        order.time_in_force,
    );
    let dice = Dice::of(&content);
    let wanted = 1 + dice.roll(0, 3);
    let quantities = split(order.qty, wanted);
    let prices = prices(order, &dice, quantities.len());
    let fills: Vec<Fill> =
        quantities.into_iter().zip(prices).map(|(qty, px)| Fill { px, qty, ts }).collect();
    let value: f64 = fills.iter().map(|fill| fill.px * fill.qty).sum();
    Execution {
        order_ref: format!(
            "paper-{}",
            Dice::of(&format!("{}|{content}", order.idempotency_key)).name()
        ),
        fills,
        // Eight places, so that the product's noise does not show.
        cost: (value * COST_RATE * 1e8).round() / 1e8,
        warnings: Vec::new(),
    }
}

/// Prices of `count` fills, from the best to the worst: the book gets thinner as it is eaten.
fn prices(order: &OrderRequest, dice: &Dice, count: usize) -> Vec<f64> {
    let worse = match order.side {
        Side::Buy => 1,
        Side::Sell => -1,
    };
    let (best, limit) = match order.price.map(|price| Ticks::of(price).ok_or(price)) {
        Some(Ok(limit)) => {
            let better =
                if limit.count >= TICKS_WORTH_IMPROVING { i128::from(dice.roll(1, 3)) } else { 0 };
            (limit.moved(-worse * better), Some(limit.count))
        }
        // A limit that cannot be counted in ticks is filled at exactly its price.
        Some(Err(price)) => return vec![price; count],
        None => (market(&order.instrument), None),
    };
    (0_i128..)
        .take(count)
        .map(|step| {
            let price = best.moved(worse * step);
            let count = match (limit, order.side) {
                (Some(limit), Side::Buy) => price.count.min(limit),
                (Some(limit), Side::Sell) => price.count.max(limit),
                (None, _) => price.count,
            };
            Ticks { count, ..price }.to_f64()
        })
        .collect()
}

/// The price that belongs to an instrument: between 1.00 and 1000.99.
fn market(instrument: &str) -> Ticks {
    Ticks { count: i128::from(100 + Dice::of(instrument).roll(0, 100_000)), places: 2 }
}

/// Splits a quantity into at most `parts` whole multiples of its last decimal place, so that the
/// parts add up exactly: 0.3 in three is 0.1 each, 1 stays whole.
fn split(qty: f64, parts: u64) -> Vec<f64> {
    let Some(whole) = Ticks::of(qty).filter(|whole| whole.count > 0) else {
        return vec![qty];
    };
    let parts = i128::from(parts).min(whole.count);
    let each = whole.count / parts;
    (0..parts)
        .map(|part| {
            let rest = if part == 0 { whole.count % parts } else { 0 };
            let count = each + rest;
            Ticks { count, ..whole }.to_f64()
        })
        .collect()
}

/// A number as a count of its last decimal place: 151.25 is 15125 ticks with two places.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    count: i128,
    places: usize,
}

impl Ticks {
    fn of(number: f64) -> Option<Self> {
        let text = number.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let count = format!("{whole}{fraction}").parse().ok()?;
        let places = fraction.len();
        Some(Self { count, places })
    }

    const fn moved(self, by: i128) -> Self {
        Self { count: self.count + by, places: self.places }
    }

    /// Through text, so that 1510 ticks with one place are the same `f64` that `151.0` is read as.
    fn to_f64(self) -> f64 {
        let digits = format!("{:0width$}", self.count, width = self.places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.places);
        format!("{whole}.{fraction}").parse().unwrap_or(f64::NAN)
    }
}

/// Chance that always falls the same way: the hash of a text.
struct Dice(String);

impl Dice {
    fn of(text: &str) -> Self {
        let hash = digest::sha256(text.as_bytes());
        Self(hash.trim_start_matches("sha256:").to_owned())
    }

    /// A number below `sides`; each `index` (0 to 3) is a die of its own.
    fn roll(&self, index: usize, sides: u64) -> u64 {
        let digits = &self.0[index * 16..][..16];
        u64::from_str_radix(digits, 16).unwrap_or(0) % sides
    }

    fn name(&self) -> &str {
        &self.0[..16]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tashika_domain::order::{Circumstances, ExecResult, Latency};

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
    const LATER: Timestamp = Timestamp::from_micros(1_700_000_060_000_000);

    fn order(key: &str, side: &str, qty: f64, price: Option<f64>) -> OrderRequest {
        let body = json!({
            "instrument": "USDJPY", "side": side, "qty": qty, "price": price, "idempotency_key": key,
        });
        OrderRequest::from_stored(&body.to_string()).unwrap()
    }

    async fn send(broker: &PaperBroker, order: &OrderRequest, now: Timestamp) -> Reply<Execution> {
        let send = SendOrder { order, body: "{}", now, traceparent: None };
        broker.send(send).await
    }

    fn done<T: std::fmt::Debug>(reply: Reply<T>) -> T {
        match reply.outcome {
            Outcome::Done(value) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fills_add_up_exactly_and_respect_the_limit() {
        let mut shapes = std::collections::BTreeSet::new();
        for qty in [1.0, 2.0, 3.0, 0.1, 0.3, 0.35, 7.77, 100.0, 12345.678, 1e15, 0.000_000_1] {
            for (side, price) in [
                ("BUY", Some(151.25)),
                ("SELL", Some(151.25)),
                ("BUY", Some(0.5)),
                ("SELL", Some(3.0)),
                ("BUY", None),
                ("SELL", None),
            ] {
                let order = order("key-0001", side, qty, price);
                let execution = execution(&order, NOW);
                let at = Circumstances {
                    broker: "paper",
                    accepted_at: NOW,
                    now: NOW,
                    latency: Latency::default(),
                };
                let result = ExecResult::ok(&order, &execution, &at);
                assert_eq!(result.executed_qty.to_string(), qty.to_string());
                assert!((1..=3).contains(&execution.fills.len()));
                assert!(execution.fills.iter().all(|f| f.px > 0.0 && f.qty > 0.0));
                assert!(execution.cost > 0.0 || qty < 0.001);
                shapes.insert(execution.fills.len());
                for fill in &execution.fills {
                    match (order.side, price) {
                        (Side::Buy, Some(limit)) => assert!(fill.px <= limit, "{execution:?}"),
                        (Side::Sell, Some(limit)) => assert!(fill.px >= limit, "{execution:?}"),
                        (_, None) => assert!((0.97..=1001.01).contains(&fill.px)),
                    }
                }
            }
        }
        assert_eq!(shapes.len(), 3, "one, two and three fills all occur");
    }

    #[test]
    fn the_same_order_is_executed_in_the_same_way_anywhere() {
        let one = execution(&order("key-0001", "BUY", 0.3, None), NOW);
        assert_eq!(one, execution(&order("key-0001", "BUY", 0.3, None), NOW));
        // Another key is another order at the same prices.
        let two = execution(&order("key-0002", "BUY", 0.3, None), NOW);
        assert_eq!(one.fills, two.fills);
        assert_ne!(one.order_ref, two.order_ref);
        assert!(one.fills.iter().all(|fill| fill.ts == NOW));
    }

    #[tokio::test]
    async fn a_repeat_gets_the_first_execution_and_a_mix_up_is_refused() {
        let broker = PaperBroker::new();
        let first = done(send(&broker, &order("key-0001", "BUY", 1.0, None), NOW).await);
        let again = done(send(&broker, &order("key-0001", "BUY", 1.0, None), LATER).await);
        assert_eq!(first, again);
        let other = send(&broker, &order("key-0001", "BUY", 2.0, None), LATER).await;
        assert!(matches!(other.outcome, Outcome::Refused(_)));
    }

    #[tokio::test]
    async fn status_and_cancel_know_what_was_executed() {
        let broker = PaperBroker::new();
        assert_eq!(done(broker.status("key-0001", NOW).await), Whereabouts::NotFound);
        let execution = done(send(&broker, &order("key-0001", "BUY", 1.0, None), NOW).await);
        assert_eq!(done(broker.status("key-0001", NOW).await), Whereabouts::Executed(execution));
        for (id, code) in [("key-0001", ALREADY_PROCESSED), ("key-0002", broker_code::BAD_REQUEST)]
        {
            match broker.cancel(id, NOW).await.outcome {
                Outcome::Refused(reason) => assert_eq!(reason.code, code),
                other => panic!("{other:?}"),
            }
        }
        done(broker.heartbeat(NOW).await);
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let broker = PaperBroker::new();
        for n in 0..=REMEMBERED {
            done(send(&broker, &order(&format!("key-{n:05}"), "BUY", 1.0, None), NOW).await);
        }
        assert_eq!(done(broker.status("key-00000", NOW).await), Whereabouts::NotFound);
        assert!(matches!(done(broker.status("key-00001", NOW).await), Whereabouts::Executed(_)));
    }
}
