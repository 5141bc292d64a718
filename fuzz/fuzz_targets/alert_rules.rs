//! `ALERT_RULES`: read or refused, never a panic; whatever is read leaves the table whole, every condition
//! one that Prometheus can evaluate, and is read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_domain::alert::rules::{Rule, defaults, overridden};

/// The rule as an operator would write it.
fn written(rule: &Rule) -> String {
    let mut text = format!(
        "{}: threshold={} for={} minimum={} severity={} {}",
        rule.name,
        rule.threshold,
        rule.hold.as_secs_f64(),
        rule.minimum,
        rule.severity.as_str(),
        if rule.enabled { "on" } else { "off" },
    );
    if !rule.window.is_zero() {
        text.push_str(&format!(" window={}", rule.window.as_secs_f64()));
    }
    text
}

fuzz_target!(|text: &str| {
    let Ok(rules) = overridden(text) else { return };
    let before = defaults();
    assert_eq!(rules.len(), before.len(), "no rule is lost");
    for (rule, before) in rules.iter().zip(&before) {
        assert_eq!(rule.name, before.name);
        assert_eq!(rule.measure, before.measure);
        assert!(rule.threshold.is_finite());
        assert_eq!(rule.window.is_zero(), before.window.is_zero(), "{}", rule.name);
        assert!(!rule.expression().contains("[0s]") || rule.window.is_zero(), "{}", rule.name);
    }
    let text: Vec<String> = rules.iter().map(written).collect();
    let again = overridden(&text.join("; ")).expect("it reads back");
    for (rule, again) in rules.iter().zip(&again) {
        // A nanosecond may be lost in a decimal fraction.
        assert!(rule.hold.abs_diff(again.hold).as_micros() == 0, "{}", rule.name);
        assert!(rule.window.abs_diff(again.window).as_micros() == 0, "{}", rule.name);
        let same = Rule { hold: rule.hold, window: rule.window, ..again.clone() };
        assert_eq!(&same, rule);
    }
});
