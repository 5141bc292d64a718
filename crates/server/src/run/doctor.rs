//! `tashika doctor`: checks, and what to do about what it finds.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use tashika_domain::{Outcome, Status};

use crate::app::{App, AppError};
use crate::config::Config;

/// Clocks further apart than this make leases lapse early or late.
const SKEW_MAX: Duration = Duration::from_secs(2);

struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    /// Allowed, and worth knowing.
    Note,
    /// Somebody must act.
    Alert,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Alert => "ALERT",
        }
    }
}

impl Finding {
    fn good(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), advice: None }
    }

    fn bad(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Alert, text: text.into(), advice: Some(advice.into()) }
    }
}

/// Returns whether everything is in order.
pub async fn doctor(config: &Config, json: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    let mut findings = vec![configuration(config)];
    match App::open_existing(config).await {
        Err(AppError::Store(error)) => findings.push(Finding::bad(
            "database",
            error.to_string(),
            "check TASHIKA_DATABASE_URL, that the server runs, and that the user may log in",
        )),
        Err(error @ AppError::NoDatabase(_)) => {
            findings.push(Finding::bad("database", error.to_string(), "start the server once"));
        }
        Err(error @ AppError::Broker(_)) => {
            findings.push(Finding::bad("broker", error.to_string(), "correct the setting"));
        }
        Err(error @ (AppError::Stripe(_) | AppError::Gateway(_))) => {
            findings.push(Finding::bad("gateway", error.to_string(), "correct the setting"));
        }
        Err(
            error @ (AppError::Sink(_)
            | AppError::AlertSink(_)
            | AppError::Worker(_)
            | AppError::Source(_)
            | AppError::Qstash(_)
            | AppError::Shotstack(_)),
        ) => {
            findings.push(Finding::bad("events", error.to_string(), "correct the setting"));
        }
        Err(error @ (AppError::Templates(_) | AppError::Mail(_))) => {
            findings.push(Finding::bad("mail", error.to_string(), "correct the setting"));
        }
        Err(
            error @ (AppError::Renderer(_)
            | AppError::TemplateFile(_)
            | AppError::Template(_)
            | AppError::Outputs(_)),
        ) => {
            findings.push(Finding::bad("renders", error.to_string(), "correct the setting"));
        }
        Err(error @ AppError::Courier(_)) => {
            let advice = "install the machine's root certificates";
            findings.push(Finding::bad("deliveries", error.to_string(), advice));
        }
        Ok(app) => {
            findings.extend(database(&app).await?);
            findings.extend(workers(&app, config).await?);
            findings.push(broker(&app).await);
            findings.extend(mail(&app).await?);
        }
    }
    let healthy = findings.iter().all(|finding| finding.level != Level::Alert);
    if json {
        let items: Vec<_> = findings
            .iter()
            .map(|f| {
                let level = f.level.as_str().to_lowercase();
                json!({"check": f.check, "level": level, "text": f.text, "advice": f.advice})
            })
            .collect();
        writeln!(out, "{}", json!({ "ok": healthy, "items": items }))?;
        return Ok(healthy);
    }
    for finding in &findings {
        writeln!(out, "{:<5}  {:<14} {}", finding.level.as_str(), finding.check, finding.text)?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "       {:<14} → {advice}", "")?;
        }
    }
    Ok(healthy)
}

fn configuration(config: &Config) -> Finding {
    if config.warnings.is_empty() {
        return Finding::good("configuration", "no contradictions");
    }
    Finding {
        check: "configuration",
        level: Level::Note,
        text: config.warnings.join("; "),
        advice: Some("`tashika config` shows where each value came from".into()),
    }
}

/// Whether the mail server takes us, and whether the lane is open.
async fn mail(app: &App) -> anyhow::Result<Vec<Finding>> {
    let name = app.office.postman.name().to_owned();
    let mut findings = vec![match app.office.postman.probe().await {
        Ok(()) => Finding::good("mail", format!("{name} would take mail")),
        Err(why) => Finding::bad(
            "mail",
            format!("{name} refuses us: {why}"),
            "check SMTP_URL, SMTP_CA_FILE and MAIL_FROM",
        ),
    }];
    let control = app.store.mail_control().await?;
    if !control.is_open(app.clock.now()) {
        let why = control.reason.unwrap_or_default();
        findings.push(Finding::bad(
            "mail lane",
            format!("{}: {why}", control.state.as_str()),
            "correct the cause, then `POST /mail/resume`; mails wait and none is lost",
        ));
    }
    Ok(findings)
}

async fn database(app: &App) -> anyhow::Result<Vec<Finding>> {
    let asked = app.clock.now();
    let found = app.store.diagnose().await?;
    let answered = app.clock.now();
    let mebibytes = found.size / (1024 * 1024);
    let mut findings =
        vec![Finding::good("database", format!("{}, {mebibytes} MiB", found.version))];
    app.store.probe(answered).await?;
    let took = app.clock.now().since(answered);
    findings.push(Finding::good("commit", format!("durable in {} ms", took.as_millis())));
    if let Some(theirs) = found.time {
        // Somewhere between asking and answering.
        let skew = theirs.since(answered).max(asked.since(theirs));
        findings.push(if skew > SKEW_MAX {
            Finding::bad(
                "clock",
                format!("this machine and the database differ by {} ms", skew.as_millis()),
                "synchronise the clocks (NTP): leases are compared across machines",
            )
        } else {
            Finding::good("clock", "agrees with the database's")
        });
    }
    if let Some(pin) = found.pin {
        findings.push(Finding::bad(
            "horizon",
            format!(
                "session {} ({}, {}) has kept a transaction open for {} s: dead rows cannot be removed",
                pin.pid, pin.application, pin.state, pin.open_for.as_secs(),
            ),
            format!("end it, or: select pg_terminate_backend({})", pin.pid),
        ));
    }
    Ok(findings)
}

async fn workers(app: &App, config: &Config) -> anyhow::Result<Vec<Finding>> {
    let now = app.clock.now();
    let mut findings = Vec::new();
    let workers = app.store.workers().await?;
    let alive = workers.iter().filter(|worker| {
        let lease = Duration::from_millis(u64::try_from(worker.lease_ms).unwrap_or(0));
        worker.heartbeat_at.plus(lease) > now
    });
    findings.push(Finding::good("workers", format!("{} alive", alive.count())));
    let mut lapsed = 0;
    for (lane, policy) in &config.lanes {
        lapsed += app.store.lapsed(lane, now.minus(policy.lease), 1000).await?.len();
    }
    findings.push(if lapsed == 0 {
        Finding::good("leases", "none has run out")
    } else {
        Finding::bad(
            "leases",
            format!("{lapsed} effects are held by workers that give no sign of life"),
            "a running worker takes them over; or: tashika outbox release",
        )
    });
    let counts = app.store.effect_counts().await?;
    let aborted: i64 = counts.iter().filter(|c| c.status == Status::Aborted).map(|c| c.count).sum();
    findings.push(if aborted == 0 {
        Finding::good("dead letters", "none")
    } else {
        Finding::bad(
            "dead letters",
            format!("{aborted} effects were given up"),
            "tashika outbox list --status aborted, then requeue or leave them",
        )
    });
    Ok(findings)
}

async fn broker(app: &App) -> Finding {
    let reply = app.broker.heartbeat(app.clock.now()).await;
    match reply.outcome {
        Outcome::Done(()) => Finding::good("broker", format!("{} answers", app.broker.name())),
        Outcome::Refused(reason) | Outcome::Lost(reason) | Outcome::Busy { reason, .. } => {
            Finding::bad(
                "broker",
                format!("{}: {} ({})", app.broker.name(), reason.code, reply.exchange.reply),
                "check BROKER_URL, BROKER_KEY_ID and BROKER_SECRET; orders wait until it answers",
            )
        }
    }
}
