//! The state of the mail lane, one row for all processes.
//!
//! Open, parked until a moment (the quota is used up), or stopped (the server refuses us, whatever we
//! send). A parked lane opens by itself. A stopped one opens when an operator says so, or when a probe,
//! made by whoever has a mail to send, is answered well.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use crate::alert::{AlertResolution, NewAlert, Severity};
use crate::audit::{Actor, NewAudit, line_id};
use crate::changes::{Changes, Write};
use crate::mask::masked_text;
use crate::time::Timestamp;

pub const RULE_QUOTA: &str = "mail_quota_used_up";
pub const RULE_CONFIGURATION: &str = "mail_lane_stopped";
pub const RULE_THROTTLED: &str = "mail_throttled";

/// How long the lane goes at half its pace after the server found it too fast.
pub const SLOWED_FOR: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneState {
    Open,
    Parked,
    Stopped,
}

impl LaneState {
    pub const ALL: [Self; 3] = [Self::Open, Self::Parked, Self::Stopped];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Parked => "parked",
            Self::Stopped => "stopped",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    pub version: i64,
    pub state: LaneState,
    /// Parked: until then. Stopped: the next probe, not before.
    pub until: Option<Timestamp>,
    /// Why, in a sentence.
    pub reason: Option<String>,
    /// At half the pace until then.
    pub slow_until: Option<Timestamp>,
    pub updated_at: Timestamp,
}

impl Control {
    /// The row's key. There is one row, and it is there from the beginning.
    pub const ID: Uuid = Uuid::nil();

    /// Whether anything may be sent. A parked lane is open again when its time is over.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        match self.state {
            LaneState::Open => true,
            LaneState::Parked => self.until.is_none_or(|until| until <= now),
            LaneState::Stopped => false,
        }
    }

    #[must_use]
    pub fn is_slowed(&self, now: Timestamp) -> bool {
        self.slow_until.is_some_and(|until| until > now)
    }

    /// Whether somebody should find out if the server takes us again.
    #[must_use]
    pub fn wants_probe(&self, now: Timestamp) -> bool {
        self.state == LaneState::Stopped && self.until.is_none_or(|at| at <= now)
    }

    /// Whether alerts may still be firing that have no cause any more.
    #[must_use]
    pub fn has_recovered(&self, now: Timestamp) -> bool {
        let parked_before = self.state == LaneState::Parked && self.is_open(now);
        let slowed_before = self.slow_until.is_some() && !self.is_slowed(now);
        parked_before || (slowed_before && self.state == LaneState::Open)
    }

    fn changed(&self, now: Timestamp) -> Self {
        Self { version: self.version + 1, updated_at: now, ..self.clone() }
    }
}

/// The quota is used up.
#[must_use]
pub fn park(control: &Control, until: Timestamp, why: &str, now: Timestamp) -> Changes {
    let why = masked_text(why);
    let after = Control {
        state: LaneState::Parked,
        until: Some(until),
        reason: Some(why.clone()),
        ..control.changed(now)
    };
    let alert = NewAlert {
        id: crate::ids::derived(now, &[RULE_QUOTA.as_bytes(), &control.version.to_be_bytes()]),
        rule: RULE_QUOTA,
        subject: "mail".to_owned(),
        severity: Severity::High,
        message: "the quota of mails in 24 hours is used up: the lane is parked",
        labels: json!({"until": until.to_string(), "reason": why}).to_string(),
        now,
    };
    Changes::from(Write::MailControlUpdate(Box::new(after.clone())))
        .with(Write::FireAlert(alert))
        .with(audit(&after, "mail.lane_parked", Actor::SYSTEM, now))
}

/// The server refuses us, whatever we send.
#[must_use]
pub fn stop(control: &Control, probe_at: Timestamp, why: &str, now: Timestamp) -> Changes {
    let why = masked_text(why);
    let after = Control {
        state: LaneState::Stopped,
        until: Some(probe_at),
        reason: Some(why.clone()),
        ..control.changed(now)
    };
    let alert = NewAlert {
        id: crate::ids::derived(
            now,
            &[RULE_CONFIGURATION.as_bytes(), &control.version.to_be_bytes()],
        ),
        rule: RULE_CONFIGURATION,
        subject: "mail".to_owned(),
        severity: Severity::Critical,
        message: "the mail server refuses our settings: nothing is sent until they are right",
        labels: json!({"reason": why}).to_string(),
        now,
    };
    Changes::from(Write::MailControlUpdate(Box::new(after.clone())))
        .with(Write::FireAlert(alert))
        .with(audit(&after, "mail.lane_stopped", Actor::SYSTEM, now))
}

/// One process is about to probe: the others leave it to that one.
#[must_use]
pub fn probing(control: &Control, next_at: Timestamp, now: Timestamp) -> Changes {
    let after = Control { until: Some(next_at), ..control.changed(now) };
    Write::MailControlUpdate(Box::new(after)).into()
}

/// The server found us too fast.
#[must_use]
pub fn slow(control: &Control, why: &str, now: Timestamp) -> Changes {
    let after = Control { slow_until: Some(now.plus(SLOWED_FOR)), ..control.changed(now) };
    let alert = NewAlert {
        id: crate::ids::derived(now, &[RULE_THROTTLED.as_bytes(), &control.version.to_be_bytes()]),
        rule: RULE_THROTTLED,
        subject: "mail".to_owned(),
        severity: Severity::Warning,
        message: "the mail server finds us too fast: the lane goes at half its pace for a while",
        labels: json!({"reason": masked_text(why)}).to_string(),
        now,
    };
    Changes::from(Write::MailControlUpdate(Box::new(after))).with(Write::FireAlert(alert))
}

/// The lane is open again, because of an operator, a probe or the time.
#[must_use]
pub fn reopen(control: &Control, actor: Actor, now: Timestamp) -> Changes {
    let slow_until = control.slow_until.filter(|until| *until > now);
    let after = Control {
        state: LaneState::Open,
        until: None,
        reason: None,
        slow_until,
        ..control.changed(now)
    };
    let mut changes = Changes::from(Write::MailControlUpdate(Box::new(after.clone())));
    let mut over = vec![RULE_QUOTA, RULE_CONFIGURATION];
    if slow_until.is_none() {
        over.push(RULE_THROTTLED);
    }
    for rule in over {
        let subject = "mail".to_owned();
        changes.push(Write::ResolveAlert(AlertResolution { rule, subject, now }));
    }
    if control.state != LaneState::Open {
        changes.push(audit(&after, "mail.lane_resumed", actor, now));
    }
    changes
}

fn audit(control: &Control, action: &'static str, actor: Actor, now: Timestamp) -> Write {
    let nth = u64::try_from(control.version).unwrap_or(0);
    Write::Audit(Box::new(NewAudit {
        id: line_id(now, "mail", action, nth),
        actor,
        action: action.to_owned(),
        target_type: "mail_lane",
        target_id: "mail".to_owned(),
        office_id: None,
        details: json!({"reason": control.reason, "until": control.until}).to_string(),
        now,
    }))
}
