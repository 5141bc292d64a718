//! What a caller may ask for: `OrderRequest` v1.1.

use serde_json::Value;

use crate::check::Check;
pub use crate::check::Violation;
use crate::decimal::Decimal;
use crate::digest;
use crate::time::Timestamp;

/// Longest and shortest idempotency key.
pub const KEY_LENGTH: std::ops::RangeInclusive<usize> = 8..=64;

const FIELDS: [&str; 11] = [
    "order_id",
    "instrument",
    "side",
    "qty",
    "price",
    "time_in_force",
    "tags",
    "risk_constraints",
    "trace_id",
    "requested_at",
    "idempotency_key",
];
const RISK_FIELDS: [&str; 3] = ["max_dd", "max_consecutive_loss", "max_spread"];

/// The venue's rules for orders, from configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderRules {
    /// Instruments that may be ordered; `None` allows every well-formed name.
    pub instruments: Option<Vec<String>>,
    /// Smallest quantity.
    pub min_lot: f64,
    /// Quantities are multiples of this.
    pub lot_step: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Buy,
    Sell,
}

impl Side {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buy => "BUY",
            Self::Sell => "SELL",
        }
    }
}

/// A valid order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderRequest {
    pub order_id: Option<String>,
    pub instrument: String,
    pub side: Side,
    pub qty: f64,
    /// `None` is a market order.
    pub price: Option<f64>,
    pub time_in_force: String,
    pub trace_id: Option<String>,
    pub requested_at: Option<Timestamp>,
    pub idempotency_key: String,
}

impl OrderRequest {
    /// Checks a body against the contract, and says everything that is wrong with it.
    pub fn parse(body: &Value, rules: &OrderRules) -> Result<Self, Vec<Violation>> {
        let mut check = Check::of(body)?;
        check.no_other_fields();
        let request = Self {
            order_id: check.text("order_id", 1..=64, false),
            instrument: check.instrument(rules),
            side: check.side(),
            qty: check.qty(rules),
            price: check.price(),
            time_in_force: check.time_in_force(),
            trace_id: check.text("trace_id", 0..=128, false),
            requested_at: check.requested_at(),
            idempotency_key: check.idempotency_key(),
        };
        check.tags();
        check.risk_constraints();
        check.finish(request)
    }

    /// Reads an order back that was checked when it was accepted.
    pub fn from_stored(payload: &str) -> Result<Self, String> {
        let body: Value = serde_json::from_str(payload).map_err(|e| e.to_string())?;
        // The venue's rules may have changed since; what was accepted stays accepted.
        let anything = OrderRules { instruments: None, min_lot: 0.0, lot_step: 0.0 };
        Self::parse(&body, &anything).map_err(|violations| {
            let texts: Vec<String> =
                violations.iter().map(|v| format!("{}: {}", v.field, v.problem)).collect();
            texts.join("; ")
        })
    }
}

/// The digest under which the ledger remembers a request.
#[must_use]
pub fn request_digest(body: &Value) -> String {
    digest::digest(body, &["trace_id", "idempotency_key"])
}

impl Check<'_> {
    fn no_other_fields(&mut self) {
        for key in self.map.keys().filter(|key| !FIELDS.contains(&key.as_str())) {
            let shown: String = key.chars().take(64).collect();
            self.violations.push(Violation { field: shown, problem: "unknown field".into() });
        }
    }

    /// It travels in headers, ours and the broker's: ASCII, and nothing that they would trim.
    fn idempotency_key(&mut self) -> String {
        let key = self.text("idempotency_key", KEY_LENGTH, true).unwrap_or_default();
        let printable = |c: char| c.is_ascii_graphic() || c == ' ';
        if !key.chars().all(printable) || key.trim() != key {
            self.wrong("idempotency_key", "must be printable ASCII, without spaces at its ends");
        }
        key
    }

    fn instrument(&mut self, rules: &OrderRules) -> String {
        let Some(name) = self.text("instrument", 3..=20, true) else {
            return String::new();
        };
        let allowed_char =
            |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        if !name.chars().all(allowed_char) {
            self.wrong("instrument", "must match ^[A-Z0-9._-]{3,20}$");
        } else if let Some(list) = &rules.instruments
            && !list.contains(&name)
        {
            self.wrong("instrument", "is not on the allow-list");
        }
        name
    }

    fn side(&mut self) -> Side {
        match self.map.get("side").map(Value::as_str) {
            Some(Some("BUY")) => return Side::Buy,
            Some(Some("SELL")) => return Side::Sell,
            Some(_) => self.wrong("side", "must be BUY or SELL"),
            None => self.wrong("side", "is required"),
        }
        Side::Buy
    }

    fn qty(&mut self, rules: &OrderRules) -> f64 {
        let Some(value) = self.map.get("qty") else {
            self.wrong("qty", "is required");
            return 0.0;
        };
        let Some(qty) = value.as_f64() else {
            self.wrong("qty", "must be a number");
            return 0.0;
        };
        match Decimal::from_f64(qty) {
            _ if qty <= 0.0 => self.wrong("qty", "must be greater than 0"),
            None => self.wrong("qty", "is out of range"),
            Some(_) if qty < rules.min_lot => {
                self.wrong("qty", format!("must be at least {}", rules.min_lot));
            }
            Some(exact) => {
                let step = Decimal::from_f64(rules.lot_step).unwrap_or(Decimal::ZERO);
                if step != Decimal::ZERO && !exact.is_multiple_of(step) {
                    self.wrong("qty", format!("must be a multiple of {}", rules.lot_step));
                }
            }
        }
        qty
    }

    fn price(&mut self) -> Option<f64> {
        match self.map.get("price") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let price = value.as_f64();
                match price {
                    None => self.wrong("price", "must be a number or null"),
                    Some(price) if price <= 0.0 => {
                        self.wrong("price", "must be greater than 0, or null for a market order");
                    }
                    Some(price) if Decimal::from_f64(price).is_none() => {
                        self.wrong("price", "is out of range");
                    }
                    Some(_) => {}
                }
                price
            }
        }
    }

    fn time_in_force(&mut self) -> String {
        match self.map.get("time_in_force") {
            None => "IOC".into(),
            Some(Value::String(text)) if matches!(text.as_str(), "IOC" | "FOK" | "GTC") => {
                text.clone()
            }
            Some(_) => {
                self.wrong("time_in_force", "must be IOC, FOK or GTC");
                String::new()
            }
        }
    }

    fn requested_at(&mut self) -> Option<Timestamp> {
        let text = self.text("requested_at", 1..=64, false)?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.wrong("requested_at", "must be an RFC 3339 time");
        }
        parsed
    }

    fn tags(&mut self) {
        match self.map.get("tags") {
            None | Some(Value::Null) => {}
            Some(Value::Array(tags)) if tags.len() > 8 => self.wrong("tags", "must be at most 8"),
            Some(Value::Array(tags)) => {
                let fits = |tag: &Value| tag.as_str().is_some_and(|t| t.chars().count() <= 32);
                if !tags.iter().all(fits) {
                    self.wrong("tags", "must be strings of at most 32 characters");
                } else if tags.iter().any(|tag| tag.as_str().is_some_and(|t| t.contains('\0'))) {
                    self.wrong("tags", "must not contain NUL");
                }
            }
            Some(_) => self.wrong("tags", "must be a list"),
        }
    }

    fn risk_constraints(&mut self) {
        match self.map.get("risk_constraints") {
            None | Some(Value::Null) => {}
            Some(Value::Object(risk)) => {
                for (key, value) in risk {
                    if !RISK_FIELDS.contains(&key.as_str()) {
                        self.wrong("risk_constraints", "has an unknown field");
                    } else if !value.is_null() && !value.as_f64().is_some_and(|n| n >= 0.0) {
                        self.wrong(
                            "risk_constraints",
                            format!("{key} must be a number, 0 or more"),
                        );
                    }
                }
            }
            Some(_) => self.wrong("risk_constraints", "must be an object"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules() -> OrderRules {
        OrderRules {
            instruments: Some(vec!["USDJPY".into(), "BTC-USD".into()]),
            min_lot: 0.1,
            lot_step: 0.1,
        }
    }

    fn valid() -> Value {
        json!({"instrument": "USDJPY", "side": "BUY", "qty": 0.3, "idempotency_key": "key-0001"})
    }

    fn with(field: &str, value: Value) -> Value {
        let mut body = valid();
        body[field] = value;
        body
    }

    #[test]
    fn the_required_fields_suffice() {
        let order = OrderRequest::parse(&valid(), &rules()).unwrap();
        assert_eq!(order.time_in_force, "IOC");
        assert_eq!(order.price, None);
    }

    #[test]
    fn each_rule_names_its_field() {
        let many_tags = json!(["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
        for (field, value) in [
            ("instrument", json!("usdjpy")),
            ("instrument", json!("EURJPY")),
            ("instrument", json!("AB")),
            ("instrument", json!(7)),
            ("side", json!("HOLD")),
            ("qty", json!(0)),
            ("qty", json!(-1)),
            ("qty", json!("1")),
            ("qty", json!(1e300)),
            ("qty", json!(0.05)),
            ("qty", json!(0.35)),
            ("price", json!(0)),
            ("price", json!("market")),
            ("price", json!(1e200)),
            ("time_in_force", json!("DAY")),
            ("tags", many_tags),
            ("tags", json!(["x".repeat(33)])),
            ("tags", json!(["nul\u{0}"])),
            ("tags", json!("x")),
            ("risk_constraints", json!({"max_dd": -1})),
            ("risk_constraints", json!({"max_fun": 1})),
            ("risk_constraints", json!([])),
            ("trace_id", json!("t".repeat(129))),
            ("requested_at", json!("yesterday")),
            ("idempotency_key", json!("short")),
            ("idempotency_key", json!("k".repeat(65))),
            ("idempotency_key", json!("nul\u{0}nul\u{0}")),
            ("idempotency_key", json!("確かな鍵確かな鍵")),
            ("idempotency_key", json!(" key-0001")),
            ("idempotency_key", json!("line\nbreak")),
            ("order_id", json!("")),
            ("surprise", json!(1)),
        ] {
            let violations =
                OrderRequest::parse(&with(field, value.clone()), &rules()).unwrap_err();
            assert_eq!(violations.len(), 1, "{field} = {value}: {violations:?}");
            assert_eq!(violations[0].field, field, "{value}");
        }
    }

    #[test]
    fn all_missing_fields_are_named_at_once() {
        let violations = OrderRequest::parse(&json!({}), &rules()).unwrap_err();
        let fields: Vec<&str> = violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["instrument", "side", "qty", "idempotency_key"]);
        assert!(OrderRequest::parse(&json!([1]), &rules()).is_err());
    }

    #[test]
    fn digest_ignores_trace_and_key_but_nothing_else() {
        let digest = request_digest(&valid());
        assert_eq!(digest, request_digest(&with("trace_id", json!("other"))));
        assert_eq!(digest, request_digest(&with("idempotency_key", json!("key-0002"))));
        assert_ne!(digest, request_digest(&with("qty", json!(0.4))));
        assert_ne!(digest, request_digest(&with("order_id", json!("o-1"))));
    }
}
