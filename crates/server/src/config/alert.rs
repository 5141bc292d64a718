//! Settings of alerts, typed.

use std::time::Duration;

use secrecy::SecretString;
use tashika_domain::alert::Severity;
use tashika_domain::alert::rules::{Rule, defaults};
use tashika_domain::mail::Address;

use super::{Reader, Value, some};

#[derive(Clone, Debug)]
pub struct AlertConfig {
    pub every: Duration,
    pub rules: Vec<Rule>,
    pub webhook_url: Option<SecretString>,
    pub webhook_secret: Option<SecretString>,
    pub webhook_timeout: Duration,
    pub mail_to: Vec<String>,
    pub keep: Duration,
}

pub(super) fn alerts(read: &mut Reader) -> AlertConfig {
    let rules = match overridden(&read.text("ALERT_RULES")) {
        Ok(rules) => rules,
        Err(problem) => {
            read.problems.push(format!("ALERT_RULES: {problem}"));
            defaults()
        }
    };
    let mail_to = match read.get("ALERT_MAIL_TO") {
        Value::Words(words) => words.clone(),
        other => unreachable!("ALERT_MAIL_TO is {other:?}"),
    };
    let mut wrong = mail_to.iter().filter(|to| to.parse::<Address>().is_err());
    if let Some(to) = wrong.next() {
        read.problems.push(format!("ALERT_MAIL_TO: {to:?} is not an address"));
    }
    AlertConfig {
        every: read.span("ALERT_INTERVAL_SEC"),
        rules,
        webhook_url: some(read.text("ALERT_WEBHOOK_URL")).map(SecretString::from),
        webhook_secret: some(read.text("ALERT_WEBHOOK_SECRET")).map(SecretString::from),
        webhook_timeout: read.span("ALERT_WEBHOOK_TIMEOUT_MS"),
        mail_to,
        keep: Duration::from_secs_f64(read.float("ALERT_KEEP_DAYS") * 86_400.0),
    }
}

/// The table with other numbers: `name: threshold=500 for=900; other: off`.
fn overridden(text: &str) -> Result<Vec<Rule>, String> {
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
            rule.window = seconds(text).filter(|window| !window.is_zero())?;
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
            ("broker_timeouts: for=-1", "for=-1"),
            ("broker_timeouts: severity=bad", "severity=bad"),
            ("broker_timeouts: loud", "loud"),
        ] {
            let problem = overridden(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
