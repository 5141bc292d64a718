//! What a caller is told in the end: `ExecResult` v1.0.

use serde::{Deserialize, Serialize};

use super::request::{OrderRequest, Side};
use crate::decimal::Decimal;
use crate::digest;
use crate::time::Timestamp;

/// One partial execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    pub px: f64,
    pub qty: f64,
    pub ts: Timestamp,
}

/// What a broker reports about an order that it executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// The broker's own reference.
    pub order_ref: String,
    pub fills: Vec<Fill>,
    /// Fees and commissions, in the quote currency.
    pub cost: f64,
    pub warnings: Vec<String>,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub queue: u64,
    pub broker_rtt: u64,
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokerRef {
    pub name: String,
    pub order_ref: Option<String>,
}

/// The stored answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecResult {
    pub status: String,
    pub order_id: Option<String>,
    pub instrument: String,
    pub side: String,
    pub requested_at: Timestamp,
    pub completed_at: Timestamp,
    pub trace_id: Option<String>,
    pub idempotency_key: String,
    pub fills: Vec<Fill>,
    pub avg_price: Option<f64>,
    pub executed_qty: f64,
    pub cost: f64,
    /// How much worse than the limit price; `null` for market orders.
    pub slippage: Option<f64>,
    pub broker: BrokerRef,
    pub latency_ms: Latency,
    pub reason_code: Option<String>,
    pub warnings: Vec<String>,
}

/// Circumstances of an order's end that the broker does not report.
#[derive(Clone, Debug, PartialEq)]
pub struct Circumstances<'a> {
    pub broker: &'a str,
    pub accepted_at: Timestamp,
    pub now: Timestamp,
    pub latency: Latency,
}

impl ExecResult {
    #[must_use]
    pub fn ok(order: &OrderRequest, execution: &Execution, at: &Circumstances<'_>) -> Self {
        let executed = total(execution.fills.iter().map(|fill| fill.qty));
        let value: f64 = execution.fills.iter().map(|fill| fill.px * fill.qty).sum();
        let avg_price = (executed > 0.0).then(|| round(value / executed));
        let slippage = order.price.zip(avg_price).map(|(limit, average)| {
            round(match order.side {
                Side::Buy => average - limit,
                Side::Sell => limit - average,
            })
        });
        Self {
            status: "ok".into(),
            fills: execution.fills.clone(),
            avg_price,
            executed_qty: executed,
            cost: execution.cost,
            slippage,
            broker: BrokerRef {
                name: at.broker.to_owned(),
                order_ref: Some(execution.order_ref.clone()),
            },
            warnings: execution.warnings.clone(),
            ..Self::error(order, None, at)
        }
    }

    #[must_use]
    pub fn error(order: &OrderRequest, reason_code: Option<&str>, at: &Circumstances<'_>) -> Self {
        Self {
            status: "error".into(),
            order_id: order.order_id.clone(),
            instrument: order.instrument.clone(),
            side: order.side.as_str().into(),
            // A caller's clock may be ahead of ours; the contract orders the two times.
            requested_at: order.requested_at.unwrap_or(at.accepted_at).min(at.now),
            completed_at: at.now,
            trace_id: order.trace_id.clone(),
            idempotency_key: order.idempotency_key.clone(),
            fills: Vec::new(),
            avg_price: None,
            executed_qty: 0.0,
            cost: 0.0,
            slippage: None,
            broker: BrokerRef { name: at.broker.to_owned(), order_ref: None },
            latency_ms: at.latency,
            reason_code: reason_code.map(Into::into),
            warnings: Vec::new(),
        }
    }

    /// Digest of the fields that a repeat of the same execution would have in common.
    #[must_use]
    pub fn digest(&self) -> String {
        let stable = serde_json::json!({
            "status": self.status,
            "order_id": self.order_id,
            "instrument": self.instrument,
            "side": self.side,
            "executed_qty": self.executed_qty,
            "avg_price": self.avg_price,
            "fills": self.fills,
            "reason_code": self.reason_code,
        });
        digest::digest(&stable, &[])
    }
}

fn total(quantities: impl Iterator<Item = f64>) -> f64 {
    let exact = quantities
        .map(Decimal::from_f64)
        .try_fold(Decimal::ZERO, |sum, qty| qty.map(|qty| sum.plus(qty)));
    exact.map_or(f64::NAN, Decimal::to_f64)
}

/// Averages are quotients: keep ten decimal places, more than any quotation has.
fn round(number: f64) -> f64 {
    (number * 1e10).round() / 1e10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::request::OrderRules;
    use serde_json::json;

    const ACCEPTED: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
    const NOW: Timestamp = Timestamp::from_micros(1_700_000_001_000_000);

    fn at() -> Circumstances<'static> {
        Circumstances {
            broker: "paper",
            accepted_at: ACCEPTED,
            now: NOW,
            latency: Latency { queue: 3, broker_rtt: 4, total: 7 },
        }
    }

    fn order(price: Option<f64>, requested_at: Option<&str>) -> OrderRequest {
        let mut body = json!({"instrument": "USDJPY", "side": "SELL", "qty": 0.3, "idempotency_key": "key-0001"});
        if let Some(price) = price {
            body["price"] = json!(price);
        }
        if let Some(requested_at) = requested_at {
            body["requested_at"] = json!(requested_at);
        }
        let rules = OrderRules { instruments: None, min_lot: 0.0, lot_step: 0.0 };
        OrderRequest::parse(&body, &rules).unwrap()
    }

    fn execution() -> Execution {
        Execution {
            order_ref: "r-1".into(),
            fills: vec![
                Fill { px: 150.0, qty: 0.1, ts: NOW },
                Fill { px: 151.0, qty: 0.2, ts: NOW },
            ],
            cost: 0.5,
            warnings: vec![],
        }
    }

    #[test]
    fn executed_quantity_is_the_exact_sum_of_the_fills() {
        let result = ExecResult::ok(&order(Some(151.0), None), &execution(), &at());
        assert_eq!(serde_json::to_string(&result.executed_qty).unwrap(), "0.3");
        assert_eq!(result.avg_price, Some(150.666_666_666_7));
        assert_eq!(result.slippage, Some(0.333_333_333_3));
        assert_eq!(result.status, "ok");
    }

    #[test]
    fn an_error_has_no_fills_and_executed_nothing() {
        let result = ExecResult::error(&order(None, None), Some("BROKER_DOWN"), &at());
        assert!(result.fills.is_empty());
        assert!(result.executed_qty.abs() < f64::EPSILON);
        assert_eq!(result.reason_code.as_deref(), Some("BROKER_DOWN"));
    }

    #[test]
    fn requested_never_comes_after_completed() {
        let ahead = order(None, Some("2099-01-01T00:00:00Z"));
        assert_eq!(ExecResult::error(&ahead, None, &at()).requested_at, NOW);
        assert_eq!(ExecResult::error(&order(None, None), None, &at()).requested_at, ACCEPTED);
    }

    #[test]
    fn the_digest_ignores_what_varies_between_repeats() {
        let one = ExecResult::ok(&order(None, None), &execution(), &at());
        let later = Circumstances { latency: Latency::default(), ..at() };
        let two = ExecResult::ok(&order(None, None), &execution(), &later);
        assert_eq!(one.digest(), two.digest());
        let error = ExecResult::error(&order(None, None), Some("BROKER_DOWN"), &at());
        assert_ne!(one.digest(), error.digest());
    }
}
