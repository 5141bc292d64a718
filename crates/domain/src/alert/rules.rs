//! The table of what is watched.
//!
//! One row per rule: what is measured, what it is compared with, over which window, for how long it
//! must be so, how bad it is and what people are told. The watchman evaluates the rows, the
//! configuration overrides their numbers, and the Prometheus rules and the dashboard are written from
//! them: there is no second list.

use std::time::Duration;

use super::Severity;
use crate::text::Text;

mod overrides;
mod table;

pub use overrides::overridden;
pub use table::{CASE_KINDS, defaults};

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub name: &'static str,
    pub severity: Severity,
    pub measure: Measure,
    pub comparison: Comparison,
    pub threshold: f64,
    /// How far back is looked. Zero: at what is so now.
    pub window: Duration,
    /// For how long it must be so before the alert fires.
    pub hold: Duration,
    /// Of a share or a quantile: with fewer events than this in the window nothing is said.
    pub minimum: u64,
    pub text: Text,
    /// What to do about it.
    pub advice: Text,
    pub enabled: bool,
}

/// What a value is compared with its threshold by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Above,
    AtLeast,
}

impl Comparison {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// Payments whose outcome is not known and asked about.
    PaymentsInDoubt,
    /// Cases that wait for a person: of one kind, or of all.
    OpenCases(Option<&'static str>),
    /// Messages that were given up.
    DeadLetters,
    /// How long the oldest of them has been waiting, in seconds.
    OldestDeadLetter,
    /// Effects that wait to be sent.
    OutboxPending,
    /// What was sent of the mails that may be sent in 24 hours, in percent.
    MailQuotaUsed,
    /// Races of a scenario that ended in a way, in the window.
    Races { scenario: &'static str, resolution: &'static str },
    /// How much a counter of this process grew in the window.
    Increase(Counter),
    /// The share of `part` in `whole`, of counters of this process, in the window.
    Share { part: &'static [Counter], whole: &'static [Counter] },
    /// The 95th percentile of a histogram of this process, in the window.
    P95(Counter),
    /// Fired and resolved by whoever notices it: here it is only described and told.
    Reported,
}

/// A metric, and which of its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    pub metric: &'static str,
    /// A label, and how its value begins.
    pub label: Option<(&'static str, &'static str)>,
}

impl Counter {
    /// Whether a series with these labels belongs to it.
    pub fn takes<'a>(&self, mut labels: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
        self.label.is_none_or(|(name, prefix)| {
            labels.any(|(label, value)| label == name && value.starts_with(prefix))
        })
    }

    fn selector(&self, suffix: &str) -> String {
        let metric = self.metric;
        match self.label {
            None => format!("{metric}{suffix}"),
            Some((label, prefix)) => format!("{metric}{suffix}{{{label}=~\"{prefix}.*\"}}"),
        }
    }
}

impl Measure {
    /// Whether every process measures for itself: then one that sees nothing cannot say that nobody does.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Increase(_) | Self::Share { .. } | Self::P95(_))
    }

    /// The counters of this process that it needs.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        match self {
            Self::Increase(counter) | Self::P95(counter) => vec![*counter],
            Self::Share { part, whole } => part.iter().chain(*whole).copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The same, as Prometheus is asked for it.
    #[must_use]
    pub fn expression(&self, rule: &str, window: Duration) -> String {
        let span = span(window);
        let grown = |counters: &[Counter]| {
            let parts: Vec<String> = counters
                .iter()
                .map(|c| format!("sum(increase({}[{span}]) or vector(0))", c.selector("")))
                .collect();
            parts.join(" + ")
        };
        match self {
            Self::PaymentsInDoubt => "max(payment_pending_verification_count)".to_owned(),
            Self::OpenCases(None) => "sum(max by (kind) (cases_open))".to_owned(),
            Self::OpenCases(Some(kind)) => format!("max(cases_open{{kind=\"{kind}\"}})"),
            Self::DeadLetters => "max(queue_dlq_count)".to_owned(),
            Self::OldestDeadLetter => "max(queue_dlq_oldest_seconds)".to_owned(),
            Self::OutboxPending => "max(outbox_pending_count)".to_owned(),
            // The database knows, and the watchman tells.
            Self::Races { .. } | Self::MailQuotaUsed => {
                format!("max(alert_value{{rule=\"{rule}\"}})")
            }
            Self::Reported => format!("max(alert_firing{{rule=\"{rule}\"}})"),
            Self::Increase(counter) => format!("sum(increase({}[{span}]))", counter.selector("")),
            Self::Share { part, whole } => {
                format!("({}) / ({})", grown(part), grown(whole))
            }
            Self::P95(counter) => format!(
                "histogram_quantile(0.95, sum by (le) (rate({}[{span}])))",
                counter.selector("_bucket")
            ),
        }
    }
}

/// A span as Prometheus writes it.
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds % 3600, seconds % 60) {
        (0, _) if seconds > 0 => format!("{}h", seconds / 3600),
        (_, 0) if seconds > 0 => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

impl Rule {
    /// Whether a value is one that somebody should look at.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Above => value > self.threshold,
            Comparison::AtLeast => value >= self.threshold,
        }
    }

    /// The condition, as Prometheus evaluates it.
    #[must_use]
    pub fn expression(&self) -> String {
        let value = self.measure.expression(self.name, self.window);
        let text = format!("{value} {} {}", self.comparison.as_str(), self.threshold);
        if let (Measure::Share { whole, .. }, 2..) = (&self.measure, self.minimum) {
            let events = Measure::Share { part: whole, whole: &[] };
            let count = events.expression(self.name, self.window);
            let count = count.trim_end_matches(" / ()");
            return format!("{text} and {count} >= {}", self.minimum);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str) -> Rule {
        defaults().into_iter().find(|rule| rule.name == name).expect("a rule")
    }

    #[test]
    fn names_are_unique_and_every_rule_says_something() {
        let rules = defaults();
        for rule in &rules {
            assert_eq!(rules.iter().filter(|other| other.name == rule.name).count(), 1);
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(rule.name.chars().all(plain), "{}", rule.name);
            for text in [rule.text.en, rule.text.ja, rule.advice.en, rule.advice.ja] {
                assert!(!text.is_empty(), "{}", rule.name);
            }
            let windowed = rule.measure.is_local() || matches!(rule.measure, Measure::Races { .. });
            assert_eq!(windowed, rule.window > Duration::ZERO, "{}", rule.name);
        }
    }

    /// Row by row, as the documents that ask for them have it.
    #[test]
    fn the_thresholds_are_those_of_the_contract() {
        use Severity::{Critical, Warning};
        let minutes = |rule: &Rule| (rule.window.as_secs() / 60, rule.hold.as_secs() / 60);
        for (name, not_yet, enough, window, hold) in [
            ("payment_pending_verification", 10.0, 11.0, 0, 0),
            ("payment_verification_failed", 0.0, 1.0, 0, 0),
            ("payment_gateway_timeouts", 5.0, 6.0, 1, 0),
            ("queue_dead_letters", 0.0, 1.0, 0, 0),
            ("queue_dead_letters_old", 86_400.0, 86_401.0, 0, 0),
            ("queue_retries", 0.0099, 0.01, 5, 0),
            ("queue_publish_failures", 0.01, 0.0101, 5, 0),
            ("queue_worker_errors", 0.005, 0.0051, 5, 0),
            ("queue_end_to_end", 10_000.0, 10_001.0, 5, 0),
            ("expiry_refunds", 4.0, 5.0, 60, 0),
            ("render_refund", 0.0, 1.0, 24 * 60, 0),
            ("manual_case", 0.0, 1.0, 0, 0),
            ("broker_timeouts", 20.0, 21.0, 5, 0),
            ("order_conflicts", 50.0, 51.0, 60, 0),
            ("outbox_pending", 1000.0, 1001.0, 0, 15),
            ("availability", 0.01, 0.0101, 30, 0),
        ] {
            let rule = rule(name);
            assert!(!rule.holds(not_yet) && rule.holds(enough), "{name}");
            assert_eq!(minutes(&rule), (window, hold), "{name}");
        }
        let severity = |name| rule(name).severity;
        assert_eq!(severity("expiry_refunds"), Warning);
        assert_eq!([severity("render_refund"), severity("manual_case")], [Critical; 2]);
    }

    #[test]
    fn expressions_are_made_of_the_row() {
        assert_eq!(
            rule("payment_gateway_timeouts").expression(),
            "sum(increase(payment_gateway_timeout_total[1m])) > 5"
        );
        assert_eq!(
            rule("broker_timeouts").expression(),
            "sum(increase(broker_requests_total{outcome=~\"timeout.*\"}[5m])) > 20"
        );
        assert_eq!(
            rule("expiry_refunds").expression(),
            "max(alert_value{rule=\"expiry_refunds\"}) >= 5"
        );
        assert_eq!(
            rule("queue_retries").expression(),
            "(sum(increase(queue_retries_total[5m]) or vector(0))) / \
             (sum(increase(queue_deliveries_total[5m]) or vector(0))) >= 0.01 \
             and (sum(increase(queue_deliveries_total[5m]) or vector(0))) >= 20"
        );
        assert_eq!(
            rule("queue_end_to_end").expression(),
            "histogram_quantile(0.95, sum by (le) (rate(queue_end_to_end_ms_bucket[5m]))) > 10000"
        );
        for rule in defaults() {
            let text = rule.expression();
            let count = |c| text.matches(c).count();
            assert_eq!((count('('), count('['), count('{')), (count(')'), count(']'), count('}')));
        }
    }

    #[test]
    fn spans_are_written_as_short_as_possible() {
        for (seconds, text) in [(0, "0s"), (90, "90s"), (60, "1m"), (3600, "1h"), (86_400, "24h")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
