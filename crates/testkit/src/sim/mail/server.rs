//! The mail server: what arrived, truly, and what it said.

use std::collections::BTreeMap;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::mail::pace::Limits;
use tashika_domain::mail::{MailFault, MailResult};

use super::dice::Stream;
use super::log::{Log, Violation};
use super::swarm::Nature;
use super::tally::Tally;

/// A server with outages refuses every login for one of four spans of this length.
const OUTAGE: Duration = Duration::from_secs(120);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What the server makes of one attempt, decided when it leaves.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub takes: Duration,
    /// After so long the server has counted it; `None` if it never saw it.
    pub counted: Option<Duration>,
    pub arrives: bool,
    pub result: MailResult,
}

/// What is true of one mail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    pub attempts: u32,
    pub arrived: u32,
    /// Answers that were heard: 250; and that it was refused for good.
    pub taken: u32,
    pub refused: u32,
}

pub(crate) struct Server {
    seed: u64,
    truths: BTreeMap<String, Truth>,
    /// When the server counted an attempt; and those that count for its quota: what it has taken.
    counted: Vec<Timestamp>,
    accepted: Vec<Timestamp>,
    calm: bool,
}

fn refusal(class: MailFault, code: Option<u16>, text: &str) -> MailResult {
    MailResult::Refused { class, code, text: text.to_owned() }
}

impl Plan {
    fn draw(dice: &mut Stream, nature: &Nature, timeout: Duration, away: bool) -> Self {
        let (unreachable, grey) = (dice.hit(nature.unreachable), dice.hit(nature.greylists));
        let (refuses, throttles) = (dice.hit(nature.refuses), dice.hit(nature.throttles));
        let (lost, unsent) = (dice.hit(nature.reply_lost), dice.hit(nature.request_lost));
        let (late, quota) = (dice.hit(nature.reply_late), dice.hit(nature.quota));
        let slow = dice.hit(nature.slow);
        let (prompt, dragging) = (dice.millis(5, 400), dice.millis(500, 2900));
        let takes = if slow { dragging } else { prompt }.min(timeout);
        let (arrives, result, takes) = if away {
            (false, refusal(MailFault::Configuration, Some(535), "the login is refused"), takes)
        } else if unreachable {
            (false, refusal(MailFault::Retryable, None, "connection refused"), takes)
        } else if throttles {
            (false, refusal(MailFault::Throttled, Some(454), "maximum sending rate"), takes)
        } else if quota {
            (false, refusal(MailFault::Quota, Some(454), "daily message quota"), takes)
        } else if grey {
            (false, refusal(MailFault::Retryable, Some(451), "come back later"), takes)
        } else if refuses {
            (false, refusal(MailFault::Recipient, Some(550), "nobody of this name"), takes)
        } else if unsent {
            (false, refusal(MailFault::PossiblySent, None, "no answer after the dot"), timeout)
        } else if lost || late {
            (true, refusal(MailFault::PossiblySent, None, "no answer after the dot"), timeout)
        } else {
            (true, MailResult::Sent { response: "250 Ok".into() }, takes)
        };
        let seen = !(unreachable || away);
        let millis = u64::try_from(takes.as_millis()).unwrap_or(0);
        let counted = dice.millis(0, millis);
        Self { takes, counted: seen.then_some(counted), arrives, result }
    }

    fn smooth(dice: &mut Stream) -> Self {
        let takes = dice.millis(5, 400);
        let result = MailResult::Sent { response: "250 Ok".into() };
        Self { takes, counted: Some(takes), arrives: true, result }
    }

    /// What will happen, in words.
    pub fn story(&self) -> String {
        let arrives = if self.arrives { "it arrives" } else { "it does not arrive" };
        let said = match &self.result {
            MailResult::Sent { response } => response.clone(),
            MailResult::Refused { code: Some(code), text, .. } => format!("{code} {text}"),
            MailResult::Refused { text, .. } => text.clone(),
        };
        format!("{arrives}, and {} ms later: {said}", self.takes.as_millis())
    }
}

impl Server {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            truths: BTreeMap::new(),
            counted: Vec::new(),
            accepted: Vec::new(),
            calm: false,
        }
    }

    /// From now on nothing goes wrong any more.
    pub fn calm_down(&mut self) {
        self.calm = true;
    }

    pub fn truth(&self, message_id: &str) -> Truth {
        self.truths.get(message_id).cloned().unwrap_or_default()
    }

    pub fn known(&self) -> impl Iterator<Item = (&String, &Truth)> {
        self.truths.iter()
    }

    /// Whether the server refuses every login now.
    pub fn is_away(&self, nature: &Nature, now: Timestamp) -> bool {
        let span = now.as_micros().unsigned_abs() / 1_000_000 / OUTAGE.as_secs();
        nature.outages && !self.calm && span.is_multiple_of(4)
    }

    /// An attempt leaves; returns what will become of it.
    pub fn leave(
        &mut self,
        message_id: &str,
        nature: &Nature,
        timeout: Duration,
        now: Timestamp,
        log: &Log,
    ) -> Plan {
        let away = self.is_away(nature, now);
        let truth = self.truths.entry(message_id.to_owned()).or_default();
        truth.attempts += 1;
        let mut dice = Stream::new(self.seed, &format!("mail/{message_id}/{}", truth.attempts));
        let plan = if self.calm {
            Plan::smooth(&mut dice)
        } else {
            Plan::draw(&mut dice, nature, timeout, away)
        };
        // Whatever becomes of its sender: what has left arrives.
        truth.arrived += u32::from(plan.arrives);
        let counted = plan.counted.map(|after| now.plus(after));
        self.counted.extend(counted);
        // What is refused uses nothing up, and is given back here, too.
        self.accepted.extend(counted.filter(|_| plan.arrives));
        log.count(Tally::RequestSent);
        log.count(match &plan.result {
            MailResult::Sent { .. } => Tally::Executed,
            MailResult::Refused { class: MailFault::PossiblySent, .. } if plan.arrives => {
                Tally::ReplyLost
            }
            MailResult::Refused { class: MailFault::PossiblySent, .. } => Tally::RequestLost,
            MailResult::Refused { class: MailFault::Recipient, .. } => Tally::Refused,
            MailResult::Refused { class: MailFault::Throttled, .. } => Tally::Throttled,
            MailResult::Refused { class: MailFault::Quota, .. } => Tally::QuotaUsedUp,
            MailResult::Refused { class: MailFault::Configuration, .. } => Tally::LoginRefused,
            MailResult::Refused { code: None, .. } => Tally::Unreachable,
            MailResult::Refused { .. } => Tally::Busy,
        });
        plan
    }

    /// The engine hears the answer.
    pub fn hear(&mut self, message_id: &str, result: &MailResult) {
        let truth = self.truths.entry(message_id.to_owned()).or_default();
        match result {
            MailResult::Sent { .. } => truth.taken += 1,
            MailResult::Refused { class: MailFault::Recipient, .. } => truth.refused += 1,
            MailResult::Refused { .. } => {}
        }
    }

    /// Whether the pace and the quota were kept, whenever the server counted.
    pub fn keeps_within(&mut self, limits: &Limits, now: Timestamp, log: &Log) {
        self.counted.sort_unstable();
        self.accepted.sort_unstable();
        let permits = usize::try_from(limits.permits(false)).unwrap_or(usize::MAX);
        let quota = usize::try_from(limits.daily_quota).unwrap_or(0);
        let check = |rule, moments: &[Timestamp], most: usize, window: Duration| {
            let pairs = moments.iter().zip(moments.iter().skip(most));
            if let Some((first, last)) = pairs.clone().find(|(a, b)| b.since(**a) < window) {
                let span = last.since(*first).as_millis();
                let detail = format!("more than {most} mails within {span} ms");
                log.violate(now, Violation { rule, key: String::new(), detail });
            }
        };
        check("the pace is kept", &self.counted, permits, limits.rest());
        if quota > 0 {
            check("the quota is kept", &self.accepted, quota, DAY);
        }
    }
}
