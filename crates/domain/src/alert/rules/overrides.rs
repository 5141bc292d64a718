//! `ALERT_RULES`: what an operator would have otherwise.

use std::time::Duration;

use super::{Rule, Severity, defaults};

/// The table with other numbers: `name: threshold=500 for=900; other: off`.
pub fn overridden(text: &str) -> Result<Vec<Rule>, String> {
    let mut rules = defaults();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, words) = part
            .split_once(':')
            .ok_or_else(|| format!("{part:?}: expected a rule, a colon, and what is to change"))?;
        let name = name.trim();
        let names = || defaults().iter().map(|rule| rule.name).collect::<Vec<_>>().join(", ");
        let rule = rules
            .iter_mut()
            .find(|rule| rule.name == name)
            .ok_or_else(|| format!("there is no rule {name:?}; expected one of {}", names()))?;
        for word in words.split_whitespace() {
            change(rule, word).ok_or_else(|| {
                format!(
                    "{name}: {word:?}: expected threshold=NUMBER, window=SECONDS, for=SECONDS, \
                     minimum=NUMBER, severity=warning|high|critical, on or off"
                )
            })?;
        }
    }
    Ok(rules)
}

/// One word about a rule; `None` if it cannot be understood.
fn change(rule: &mut Rule, word: &str) -> Option<()> {
    let seconds = |text: &str| {
        let seconds: f64 = text.parse().ok().filter(|s| (0.0..=315_360_000.0).contains(s))?;
        Some(Duration::from_secs_f64(seconds))
    };
    match word.split_once('=') {
        None if word == "on" => rule.enabled = true,
        None if word == "off" => rule.enabled = false,
        Some(("threshold", text)) => {
            rule.threshold = text.parse().ok().filter(|number: &f64| number.is_finite())?;
        }
        // A rule without a window has none to change.
        Some(("window", text)) if !rule.window.is_zero() => {
            // Prometheus knows no window of less.
            rule.window = seconds(text).filter(|window| window.as_secs() > 0)?;
        }
        Some(("for", text)) => rule.hold = seconds(text)?,
        Some(("minimum", text)) => rule.minimum = text.parse().ok()?,
        Some(("severity", text)) => rule.severity = Severity::parse(text)?,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(rules: &[Rule], name: &str) -> Rule {
        rules.iter().find(|rule| rule.name == name).expect("a rule").clone()
    }

    #[test]
    fn numbers_are_overridden_one_by_one() {
        assert_eq!(overridden("").unwrap(), defaults());
        let text = "outbox_pending: threshold=500 for=90 severity=critical; queue_retries: off ;
            broker_timeouts: window=60 minimum=3;";
        let rules = overridden(text).unwrap();
        let pending = rule(&rules, "outbox_pending");
        assert_eq!((pending.threshold, pending.hold.as_secs()), (500.0, 90));
        assert_eq!(pending.severity, Severity::Critical);
        assert!(!rule(&rules, "queue_retries").enabled);
        let timeouts = rule(&rules, "broker_timeouts");
        assert_eq!((timeouts.window.as_secs(), timeouts.minimum), (60, 3));
        assert_eq!(rule(&rules, "manual_case"), rule(&defaults(), "manual_case"));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (text, part) in [
            ("outbox_pending threshold=5", "a colon"),
            ("outbox: threshold=5", "no rule \"outbox\""),
            ("outbox_pending: threshold=many", "threshold=many"),
            ("outbox_pending: threshold=NaN", "threshold=NaN"),
            ("outbox_pending: window=60", "window=60"),
            ("broker_timeouts: window=0", "window=0"),
            ("broker_timeouts: window=0.5", "window=0.5"),
            ("broker_timeouts: for=-1", "for=-1"),
            ("broker_timeouts: severity=bad", "severity=bad"),
            ("broker_timeouts: loud", "loud"),
        ] {
            let problem = overridden(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
