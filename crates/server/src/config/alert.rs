//! Settings of alerts, typed.

use std::time::Duration;

use secrecy::SecretString;
use tashika_domain::alert::rules::{Rule, defaults, overridden};
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
