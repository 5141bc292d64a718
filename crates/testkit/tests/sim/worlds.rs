//! The worlds that every change is tried in, and what must have happened in them.

use std::collections::BTreeMap;

use tashika_testkit::sim::{Machine, Options, Profile, Report, Tally};

/// So many runs are tried with every change, at least. `scripts/nightly` makes 10,000.
pub const RUNS_MIN: usize = 200;

type Count = fn(&Report) -> u64;

/// Worlds of one kind.
pub struct Worlds {
    pub profile: Profile,
    /// Seeds 1 to this.
    pub runs: u64,
    pub steps: u64,
    /// What must have happened in them for their silence to mean anything.
    at_least: &'static [(Tally, u64)],
    /// Every legal transition of these is taken in some run.
    pub machines: &'static [Machine],
    /// What is counted when a run is over, and how many there must be in all.
    things: Option<(Count, u64)>,
}

/// Those whose runs take longest come first, so that all who run them have something to do to the end.
pub const ALL: [Worlds; 5] = [
    Worlds {
        profile: Profile::Payments,
        runs: 48,
        steps: 120,
        at_least: PAYMENTS,
        machines: &[Machine::Payment, Machine::Billing],
        things: Some((Report::payments, 10_000)),
    },
    Worlds {
        profile: Profile::Messages,
        runs: 36,
        steps: 110,
        at_least: MESSAGES,
        machines: &[Machine::Message],
        things: Some((Report::messages, 10_000)),
    },
    Worlds {
        profile: Profile::Mail,
        runs: 44,
        steps: 40,
        at_least: MAIL,
        machines: &[Machine::Mail, Machine::MailBatch],
        things: None,
    },
    Worlds {
        profile: Profile::Orders,
        runs: 40,
        steps: 150,
        at_least: ORDERS,
        machines: &[Machine::Effect],
        things: None,
    },
    Worlds {
        profile: Profile::Reservations,
        runs: 50,
        steps: 100,
        at_least: RESERVATIONS,
        machines: &[Machine::Reservation, Machine::Render],
        things: Some((Report::reservations, 1_000)),
    },
];

impl Worlds {
    pub fn options(&self) -> impl Iterator<Item = Options> {
        let Self { profile, runs, steps, .. } = *self;
        (1..=runs).map(move |seed| Options { profile, seed, steps, ..Options::default() })
    }

    /// How many things there were when the runs were over, and how many there must be.
    pub fn count(&self, reports: &[&Report]) -> Option<(u64, u64)> {
        let (count, least) = self.things?;
        Some((reports.iter().map(|report| count(report)).sum(), least))
    }

    /// What was not as it must be: promises, what must have happened, and transitions.
    pub fn complaints(&self, reports: &[&Report], told: impl Fn(&Report) -> String) -> Vec<String> {
        let broken = reports.iter().filter(|report| !report.violations.is_empty());
        let mut complaints: Vec<String> = broken.map(|report| told(report)).collect();
        let mut totals: BTreeMap<Tally, u64> = BTreeMap::new();
        for (what, count) in reports.iter().flat_map(|report| &report.tallies) {
            *totals.entry(*what).or_default() += count;
        }
        for (what, least) in self.at_least {
            let count = totals.get(what).copied().unwrap_or(0);
            if count < *least {
                complaints.push(format!("{what}: {count} of {least}"));
            }
        }
        if let Some((count, least)) = self.count(reports).filter(|(count, least)| count < least) {
            complaints.push(format!("{count} of {least} in all"));
        }
        for machine in self.machines {
            let taken = |line: &String| {
                reports.iter().any(|report| report.taken.contains_key(&(*machine, line.clone())))
            };
            let never = machine.legal().into_iter().filter(|line| !taken(line));
            complaints.extend(never.map(|line| format!("{}, never: {line}", machine.as_str())));
        }
        complaints.iter().map(|line| format!("{}: {line}", self.profile.as_str())).collect()
    }
}

/// About a sixth of what happens with the present engine.
const ORDERS: &[(Tally, u64)] = &[
    (Tally::CrashBeforeCommit, 15),
    (Tally::CrashAfterCommit, 15),
    (Tally::CrashAtUpkeep, 1),
    (Tally::CrashInCall, 15),
    (Tally::GracefulStop, 10),
    (Tally::Stall, 50),
    (Tally::Accepted, 750),
    (Tally::Replayed, 350),
    (Tally::Conflict, 100),
    (Tally::Invalid, 50),
    (Tally::RateLimited, 3),
    (Tally::Unheard, 40),
    (Tally::RequestLost, 35),
    (Tally::ReplyLost, 65),
    (Tally::ReplyLate, 30),
    (Tally::ServerErrorAfterEffect, 20),
    (Tally::Unreachable, 30),
    (Tally::Busy, 50),
    (Tally::Refused, 25),
    (Tally::Working, 22),
    (Tally::Duplicated, 45),
    (Tally::ExecutedLate, 90),
    (Tally::RepeatRecognised, 125),
    (Tally::StatusLost, 10),
    (Tally::StatusSaysExecuted, 70),
    (Tally::StatusSaysNotFound, 85),
    (Tally::StatusLied, 20),
    (Tally::Retry, 500),
    (Tally::Lapse, 250),
    (Tally::LapseOfTheLiving, 1),
    (Tally::CaseOpened, 75),
    (Tally::CaseResolved, 5),
    (Tally::Requeued, 10),
    (Tally::NodeDied, 3),
    (Tally::ZombieRefused, 1),
    (Tally::DiskFull, 5),
    (Tally::WriteUnknownAndLost, 5),
    (Tally::WriteUnknownAndKept, 5),
];

/// Every fault, and every transition of the machine (`Took…`).
const PAYMENTS: &[(Tally, u64)] = &[
    (Tally::CrashBeforeCommit, 5),
    (Tally::CrashAfterCommit, 3),
    (Tally::CrashInCall, 10),
    (Tally::GracefulStop, 7),
    (Tally::Stall, 20),
    (Tally::Accepted, 2500),
    (Tally::Replayed, 200),
    (Tally::Conflict, 50),
    (Tally::InProgress, 125),
    (Tally::WishRefused, 250),
    (Tally::Invalid, 20),
    (Tally::Unheard, 75),
    (Tally::VerifiedByHand, 37),
    (Tally::RequestLost, 100),
    (Tally::ReplyLost, 175),
    (Tally::ReplyLate, 87),
    (Tally::ServerErrorBeforeEffect, 30),
    (Tally::ServerErrorAfterEffect, 30),
    (Tally::Unreachable, 100),
    (Tally::Busy, 175),
    (Tally::Refused, 50),
    (Tally::Working, 50),
    (Tally::InFlight, 15),
    (Tally::Duplicated, 100),
    (Tally::ExecutedLate, 200),
    (Tally::RepeatRecognised, 125),
    (Tally::StatusLost, 20),
    (Tally::StatusSaysPending, 20),
    (Tally::StatusSaysNotFound, 125),
    (Tally::StatusLied, 7),
    (Tally::Fenced, 125),
    (Tally::FenceLied, 25),
    (Tally::Race, 7),
    (Tally::WebhookTaken, 2000),
    (Tally::WebhookTakenUnheard, 150),
    (Tally::WebhookDuplicate, 450),
    (Tally::WebhookUnheard, 225),
    (Tally::WebhookTooOld, 30),
    (Tally::WebhookForged, 10),
    (Tally::WebhookReplayed, 15),
    (Tally::WebhookSucceeded, 2250),
    (Tally::WebhookSkipped, 10),
    (Tally::WebhookFailed, 10),
    (Tally::News, 300),
    (Tally::OldNews, 10),
    (Tally::RefundBounced, 1),
    (Tally::DifferenceFound, 1),
    (Tally::Lapse, 175),
    (Tally::LapseOfTheLiving, 10),
    (Tally::CaseOpened, 20),
    (Tally::CaseResolved, 2),
    (Tally::TookAuthorize, 1250),
    (Tally::TookFail, 375),
    (Tally::TookCapture, 625),
    (Tally::TookVoid, 375),
    (Tally::TookRefundPart, 62),
    (Tally::TookRefundRest, 62),
    (Tally::NodeDied, 3),
    (Tally::ZombieRefused, 1),
    (Tally::DiskFull, 5),
    (Tally::WriteUnknownAndLost, 5),
    (Tally::WriteUnknownAndKept, 5),
];

/// About a third of what happens in thirty worlds.
const MESSAGES: &[(Tally, u64)] = &[
    (Tally::CrashBeforeCommit, 6),
    (Tally::CrashAfterCommit, 4),
    (Tally::CrashInCall, 2),
    (Tally::GracefulStop, 9),
    (Tally::Stall, 30),
    (Tally::Accepted, 2250),
    (Tally::Unheard, 70),
    (Tally::RequestSent, 2750),
    (Tally::RequestLost, 20),
    (Tally::ReplyLost, 40),
    (Tally::ServerErrorBeforeEffect, 35),
    (Tally::ServerErrorAfterEffect, 17),
    (Tally::Unreachable, 75),
    (Tally::Busy, 25),
    (Tally::Refused, 40),
    (Tally::Lied, 50),
    (Tally::Retry, 175),
    (Tally::Lapse, 200),
    (Tally::LapseOfTheLiving, 1),
    (Tally::Deduplicated, 125),
    (Tally::Cancelled, 125),
    (Tally::CancelledTooLate, 35),
    (Tally::Paused, 7),
    (Tally::Resumed, 25),
    (Tally::QueueDeleted, 3),
    (Tally::Resent, 25),
    (Tally::Buried, 15),
    (Tally::Fired, 4),
    (Tally::CallbackMade, 175),
    (Tally::EndedDelivered, 2250),
    (Tally::EndedDead, 45),
    (Tally::EndedDisposed, 30),
    (Tally::EndedCancelled, 175),
    (Tally::NodeDied, 3),
    (Tally::ZombieRefused, 1),
    (Tally::DiskFull, 5),
    (Tally::WriteUnknownAndLost, 5),
    (Tally::WriteUnknownAndKept, 5),
];

/// Every fault that a mail can meet.
const MAIL: &[(Tally, u64)] = &[
    (Tally::CrashBeforeCommit, 1),
    (Tally::CrashInCall, 1),
    (Tally::Stall, 5),
    (Tally::NodeDied, 1),
    (Tally::DiskFull, 5),
    (Tally::WriteUnknownAndKept, 6),
    (Tally::Accepted, 110),
    (Tally::Replayed, 40),
    (Tally::Conflict, 4),
    (Tally::ReplyLost, 4),
    (Tally::RequestLost, 1),
    (Tally::Refused, 2),
    (Tally::Busy, 4),
    (Tally::Throttled, 1),
    (Tally::LoginRefused, 2),
    (Tally::Cancelled, 8),
    (Tally::EndedSent, 160),
    (Tally::EndedPossiblySent, 2),
    (Tally::PossiblyDuplicate, 8),
];

/// Every fault, every race, and every transition of both machines (`Took…`, `Render…`): about a third of
/// what happens in fifty worlds.
const RESERVATIONS: &[(Tally, u64)] = &[
    (Tally::CrashBeforeCommit, 10),
    (Tally::CrashAfterCommit, 10),
    (Tally::CrashInCall, 10),
    (Tally::GracefulStop, 8),
    (Tally::Stall, 15),
    (Tally::Accepted, 400),
    (Tally::Replayed, 150),
    (Tally::Conflict, 40),
    (Tally::Invalid, 50),
    (Tally::Unheard, 5),
    (Tally::SlotTaken, 700),
    (Tally::CheckoutOpened, 250),
    (Tally::CheckoutOpening, 200),
    (Tally::CheckoutRefused, 500),
    (Tally::CancelRefused, 100),
    (Tally::Cancelled, 300),
    (Tally::RequestLost, 15),
    (Tally::ReplyLost, 50),
    (Tally::ReplyLate, 15),
    (Tally::ServerErrorAfterEffect, 8),
    (Tally::Unreachable, 8),
    (Tally::Busy, 30),
    (Tally::Refused, 5),
    (Tally::Working, 8),
    (Tally::Duplicated, 30),
    (Tally::ExecutedLate, 30),
    (Tally::RepeatRecognised, 100),
    (Tally::StatusLost, 15),
    (Tally::WebhookTaken, 200),
    (Tally::WebhookTakenUnheard, 15),
    (Tally::WebhookDuplicate, 30),
    (Tally::Retry, 200),
    (Tally::Lapse, 15),
    (Tally::CustomerPaid, 90),
    (Tally::CustomerPaidLater, 15),
    (Tally::MoneyNeverCame, 2),
    (Tally::PageClosed, 15),
    (Tally::TurnedBack, 10),
    (Tally::RaceExpired, 20),
    (Tally::RaceSlot, 50),
    (Tally::RaceRender, 7),
    (Tally::RaceCancel, 80),
    (Tally::Letter, 35),
    (Tally::TookPaid, 35),
    (Tally::TookReclaimed, 20),
    (Tally::TookDeadline, 180),
    (Tally::TookCancelOfHold, 60),
    (Tally::TookCancelOfConfirmed, 15),
    (Tally::TookPaidWhenExpired, 25),
    (Tally::TookPaidWhenCancelled, 12),
    (Tally::RenderSubmitted, 60),
    (Tally::RenderDoubted, 5),
    (Tally::RenderFinished, 45),
    (Tally::RenderTriedAgain, 15),
    (Tally::RenderRetried, 2),
    (Tally::RenderResolved, 2),
    (Tally::RenderGivenUp, 7),
    (Tally::RenderCancelled, 7),
    (Tally::RenderLate, 5),
    (Tally::Callback, 50),
];
