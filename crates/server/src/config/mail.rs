//! Settings of mail, typed.

use std::path::PathBuf;
use std::time::Duration;

use tashika_domain::LanePolicy;
use tashika_domain::mail::Address;
use tashika_domain::mail::conclude::Patience;
use tashika_domain::mail::pace::Limits;
use tashika_engine::MailRules;
use tashika_providers::mail::SmtpUrl;

use super::{Reader, Value, some};

/// The sender of mails that do not leave this server.
const NOBODY: &str = "no-reply@sandbox.example";
/// A closed lane is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct MailConfig {
    pub provider: MailProvider,
    pub from: Option<String>,
    pub templates: Option<PathBuf>,
    pub keep: Duration,
    /// The lane's policy: what `MAIL_*` says counts.
    pub lane: LanePolicy,
    pub timeout: Duration,
    patience: Patience,
    pub limits: Limits,
    park: Duration,
    probe_every: Duration,
}

#[derive(Clone, Debug)]
pub enum MailProvider {
    Sandbox,
    /// `None`: it is not set, which a rule refuses.
    Smtp {
        url: Option<SmtpUrl>,
        roots: Option<PathBuf>,
    },
    File(PathBuf),
}

impl MailConfig {
    #[must_use]
    pub fn rules(&self) -> MailRules {
        MailRules {
            from: self.from.clone().unwrap_or_else(|| NOBODY.to_owned()),
            timeout: self.timeout,
            patience: self.patience.clone(),
            limits: self.limits,
            park: self.park,
            probe_every: self.probe_every,
            look_every: LOOK_EVERY.min(self.probe_every).min(self.park),
            keep: self.lane.keep,
            sandbox: matches!(self.provider, MailProvider::Sandbox),
        }
    }
}

pub(super) fn mail(read: &mut Reader, lane: &LanePolicy) -> MailConfig {
    let path = |text: String| some(text).map(PathBuf::from);
    let provider = match read.text("MAIL_PROVIDER").as_str() {
        "smtp" => {
            MailProvider::Smtp { url: smtp_url(read), roots: path(read.text("SMTP_CA_FILE")) }
        }
        "file" => MailProvider::File(read.text("MAIL_FILE_DIR").into()),
        _ => MailProvider::Sandbox,
    };
    let concurrency = read.size("MAIL_CONCURRENCY");
    let waits = match read.get("MAIL_BACKOFF_SEC") {
        Value::Spans(spans) => spans.clone(),
        other => unreachable!("MAIL_BACKOFF_SEC is {other:?}"),
    };
    MailConfig {
        provider,
        from: from(read),
        templates: path(read.text("MAIL_TEMPLATES_DIR")),
        keep: Duration::from_secs_f64(read.float("MAIL_KEEP_DAYS") * 86_400.0),
        // Claimed a few at a time: what waits in a process is not in doubt when it dies, but late. The
        // mail itself says when it is given up.
        lane: LanePolicy {
            concurrency,
            batch: concurrency,
            rate_per_sec: None,
            max_attempts: u32::MAX,
            backoff: waits.clone(),
            ..lane.clone()
        },
        timeout: read.span("MAIL_TIMEOUT_MS"),
        patience: Patience {
            max_attempts: u32::try_from(read.int("MAIL_MAX_ATTEMPTS")).unwrap_or(u32::MAX),
            waits,
        },
        limits: Limits {
            rate_per_sec: read.float("MAIL_RATE_PER_SEC"),
            daily_quota: i64::try_from(read.int("MAIL_DAILY_QUOTA")).unwrap_or(i64::MAX),
        },
        park: read.span("MAIL_PARK_SEC"),
        probe_every: read.span("MAIL_PROBE_SEC"),
    }
}

fn smtp_url(read: &mut Reader) -> Option<SmtpUrl> {
    let text = some(read.text("SMTP_URL"))?;
    match text.parse() {
        Ok(url) => Some(url),
        Err(error) => {
            let error: <SmtpUrl as std::str::FromStr>::Err = error;
            read.problems.push(format!("SMTP_URL: {error}"));
            None
        }
    }
}

fn from(read: &mut Reader) -> Option<String> {
    let text = some(read.text("MAIL_FROM"))?;
    match text.parse::<Address>() {
        Ok(address) => Some(address.as_str().to_owned()),
        Err(error) => {
            read.problems.push(format!("MAIL_FROM: {error}"));
            None
        }
    }
}
