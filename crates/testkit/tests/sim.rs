//! The simulator: the promises hold, the faults really happen, and a broken promise is noticed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tashika_testkit::sim::{self, Options, Planted, Profile, Report, Tally};

/// Runs seeds side by side: they share nothing, not even time.
fn run_all(profile: Profile, seeds: std::ops::RangeInclusive<u64>, steps: u64) -> Vec<Report> {
    let next = AtomicU64::new(*seeds.start());
    let work = || {
        let mut reports = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return reports;
            }
            reports.push(
                sim::run(&Options { profile, seed, steps, ..Options::default() })
                    .expect("the simulation runs"),
            );
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no simulation panics"))
            .collect()
    })
}

fn told(report: &Report) -> String {
    let mut text = Vec::new();
    report.print(&mut text).expect("memory takes everything");
    String::from_utf8(text).expect("a report is text")
}

/// What must have happened in the forty worlds for their silence to mean anything: about a third of
/// what happens with the present engine.
const AT_LEAST: [(Tally, u64); 33] = [
    (Tally::CrashBeforeCommit, 30),
    (Tally::CrashAfterCommit, 30),
    (Tally::CrashAtUpkeep, 3),
    (Tally::CrashInCall, 30),
    (Tally::GracefulStop, 20),
    (Tally::Stall, 100),
    (Tally::Accepted, 1500),
    (Tally::Replayed, 700),
    (Tally::Conflict, 200),
    (Tally::Invalid, 100),
    (Tally::RateLimited, 50),
    (Tally::Unheard, 80),
    (Tally::RequestLost, 70),
    (Tally::ReplyLost, 130),
    (Tally::ReplyLate, 60),
    (Tally::ServerErrorAfterEffect, 40),
    (Tally::Unreachable, 60),
    (Tally::Busy, 100),
    (Tally::Refused, 50),
    (Tally::Working, 45),
    (Tally::Duplicated, 90),
    (Tally::ExecutedLate, 180),
    (Tally::RepeatRecognised, 250),
    (Tally::StatusLost, 20),
    (Tally::StatusSaysExecuted, 140),
    (Tally::StatusSaysNotFound, 170),
    (Tally::StatusLied, 40),
    (Tally::Retry, 1000),
    (Tally::Lapse, 500),
    (Tally::LapseOfTheLiving, 3),
    (Tally::CaseOpened, 150),
    (Tally::CaseResolved, 10),
    (Tally::Requeued, 20),
];

/// Checks that no promise was broken, and that enough has happened for that to mean anything.
fn kept(reports: &[Report], at_least: &[(Tally, u64)]) -> BTreeMap<Tally, u64> {
    let mut totals: BTreeMap<Tally, u64> = BTreeMap::new();
    for report in reports {
        assert!(report.violations.is_empty(), "{}", told(report));
        for (what, count) in &report.tallies {
            *totals.entry(*what).or_default() += count;
        }
    }
    let too_few: Vec<String> = at_least
        .iter()
        .map(|(what, least)| (what, least, totals.get(what).copied().unwrap_or(0)))
        .filter(|(_, least, count)| count < least)
        .map(|(what, least, count)| format!("{what}: {count} of {least}"))
        .collect();
    assert!(too_few.is_empty(), "{too_few:#?}\nin all: {totals:#?}");
    totals
}

#[test]
fn forty_worlds_break_no_promise() {
    let reports = run_all(Profile::Orders, 1..=40, 150);
    assert_eq!(reports.len(), 40);
    kept(&reports, &AT_LEAST);
}

/// The same for payments: every fault, and every transition of the machine (`Took…`).
const AT_LEAST_PAYMENTS: [(Tally, u64); 55] = [
    (Tally::CrashBeforeCommit, 20),
    (Tally::CrashAfterCommit, 15),
    (Tally::CrashInCall, 40),
    (Tally::GracefulStop, 30),
    (Tally::Stall, 80),
    (Tally::Accepted, 10000),
    (Tally::Replayed, 800),
    (Tally::Conflict, 200),
    (Tally::InProgress, 500),
    (Tally::WishRefused, 1000),
    (Tally::Invalid, 80),
    (Tally::Unheard, 300),
    (Tally::VerifiedByHand, 150),
    (Tally::RequestLost, 400),
    (Tally::ReplyLost, 700),
    (Tally::ReplyLate, 350),
    (Tally::ServerErrorBeforeEffect, 120),
    (Tally::ServerErrorAfterEffect, 120),
    (Tally::Unreachable, 400),
    (Tally::Busy, 700),
    (Tally::Refused, 200),
    (Tally::Working, 200),
    (Tally::InFlight, 60),
    (Tally::Duplicated, 400),
    (Tally::ExecutedLate, 800),
    (Tally::RepeatRecognised, 500),
    (Tally::StatusLost, 80),
    (Tally::StatusSaysPending, 80),
    (Tally::StatusSaysNotFound, 500),
    (Tally::StatusLied, 30),
    (Tally::Fenced, 500),
    (Tally::FenceLied, 100),
    (Tally::Race, 30),
    (Tally::WebhookTaken, 8000),
    (Tally::WebhookTakenUnheard, 600),
    (Tally::WebhookDuplicate, 1800),
    (Tally::WebhookUnheard, 900),
    (Tally::WebhookTooOld, 120),
    (Tally::WebhookForged, 40),
    (Tally::WebhookReplayed, 60),
    (Tally::WebhookSucceeded, 9000),
    (Tally::WebhookSkipped, 40),
    (Tally::WebhookFailed, 40),
    (Tally::RefundBounced, 2),
    (Tally::DifferenceFound, 4),
    (Tally::Lapse, 700),
    (Tally::LapseOfTheLiving, 40),
    (Tally::CaseOpened, 80),
    (Tally::CaseResolved, 10),
    (Tally::TookAuthorize, 5000),
    (Tally::TookFail, 1500),
    (Tally::TookCapture, 2500),
    (Tally::TookVoid, 1500),
    (Tally::TookRefundPart, 250),
    (Tally::TookRefundRest, 250),
];

/// Worlds per test, steps per world, and how many payments that must be at least. Five tests of them:
/// a hundred thousand payments.
const WORLDS: (u64, u64, u64) = (100, 120, 20_000);

/// The `part`-th hundred of worlds.
fn payments_in_part(part: u64) -> Vec<Report> {
    let (worlds, steps, least) = WORLDS;
    let first = part * worlds + 1;
    let reports = run_all(Profile::Payments, first..=first + worlds - 1, steps);
    kept(&reports, &[]);
    let payments: u64 = reports.iter().map(Report::payments).sum();
    println!("{payments} payments in {worlds} worlds from seed {first} on");
    assert!(payments >= least, "{payments} payments of {least}");
    reports
}

#[test]
fn worlds_of_payments_break_no_promise() {
    kept(&payments_in_part(0), &AT_LEAST_PAYMENTS);
}

#[test]
fn more_worlds_of_payments_break_no_promise() {
    payments_in_part(1);
}

#[test]
fn still_more_worlds_of_payments_break_no_promise() {
    payments_in_part(2);
}

#[test]
fn yet_more_worlds_of_payments_break_no_promise() {
    payments_in_part(3);
}

#[test]
fn the_last_worlds_of_payments_break_no_promise() {
    payments_in_part(4);
}

/// The same for messages: about a third of what happens in thirty worlds.
const AT_LEAST_MESSAGES: [(Tally, u64); 33] = [
    (Tally::CrashBeforeCommit, 12),
    (Tally::CrashAfterCommit, 8),
    (Tally::CrashInCall, 5),
    (Tally::GracefulStop, 18),
    (Tally::Stall, 60),
    (Tally::Accepted, 4500),
    (Tally::Unheard, 140),
    (Tally::RequestSent, 5500),
    (Tally::RequestLost, 40),
    (Tally::ReplyLost, 80),
    (Tally::ServerErrorBeforeEffect, 70),
    (Tally::ServerErrorAfterEffect, 35),
    (Tally::Unreachable, 150),
    (Tally::Busy, 50),
    (Tally::Refused, 80),
    (Tally::Lied, 100),
    (Tally::Retry, 350),
    (Tally::Lapse, 400),
    (Tally::LapseOfTheLiving, 1),
    (Tally::Deduplicated, 250),
    (Tally::Cancelled, 250),
    (Tally::CancelledTooLate, 70),
    (Tally::Paused, 15),
    (Tally::Resumed, 50),
    (Tally::QueueDeleted, 7),
    (Tally::Resent, 50),
    (Tally::Buried, 30),
    (Tally::Fired, 8),
    (Tally::CallbackMade, 350),
    (Tally::EndedDelivered, 4500),
    (Tally::EndedDead, 90),
    (Tally::EndedDisposed, 60),
    (Tally::EndedCancelled, 350),
];

/// Worlds per test, steps per world, and how many messages that must be at least. Two tests of them:
/// more than twenty thousand messages.
const WORLDS_OF_MESSAGES: (u64, u64, u64) = (30, 110, 10_000);

/// The `part`-th thirty of worlds.
fn messages_in_part(part: u64) -> Vec<Report> {
    let (worlds, steps, least) = WORLDS_OF_MESSAGES;
    let first = part * worlds + 1;
    let reports = run_all(Profile::Messages, first..=first + worlds - 1, steps);
    kept(&reports, &[]);
    let messages: u64 = reports.iter().map(Report::messages).sum();
    println!("{messages} messages in {worlds} worlds from seed {first} on");
    assert!(messages >= least, "{messages} messages of {least}");
    reports
}

#[test]
fn worlds_of_messages_break_no_promise() {
    kept(&messages_in_part(0), &AT_LEAST_MESSAGES);
}

#[test]
fn more_worlds_of_messages_break_no_promise() {
    messages_in_part(1);
}

/// The same for reservations: every fault, every race, and every transition of both machines (`Took…`,
/// `Render…`). About a third of what happens in fifty worlds.
const AT_LEAST_RESERVATIONS: [(Tally, u64); 60] = [
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

#[test]
fn worlds_of_reservations_break_no_promise() {
    let reports = run_all(Profile::Reservations, 1..=50, 100);
    kept(&reports, &AT_LEAST_RESERVATIONS);
    let reservations: u64 = reports.iter().map(Report::reservations).sum();
    println!("{reservations} reservations in {} worlds", reports.len());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hashes = |reports: Vec<Report>| -> BTreeMap<u64, (String, u64)> {
        reports.into_iter().map(|r| (r.seed, (r.trace_hash, r.trace_lines))).collect()
    };
    let all = [
        (Profile::Orders, 100),
        (Profile::Payments, 40),
        (Profile::Messages, 40),
        (Profile::Reservations, 40),
    ];
    for (profile, steps) in all {
        // Side by side and one after the other: neither threads nor what ran before may matter.
        let run = || hashes(run_all(profile, 41..=46, steps));
        let (one, two) = (run(), run());
        assert_eq!(one, two, "{profile:?}");
        let different: std::collections::BTreeSet<_> = one.values().collect();
        assert_eq!(different.len(), one.len(), "seeds differ");
    }
}

/// The rules that notice a mistake.
fn found_by(mistake: Planted) -> &'static [&'static str] {
    match mistake {
        Planted::LostIsRefused | Planted::ClosesUnasked => &["failure is true"],
        Planted::NeverAsks => &["at most once"],
        Planted::FreshKeyPerAttempt => &["nothing is invented", "success is true"],
        Planted::AckBeforeCommit | Planted::AcksUnwritten => &["nothing is lost"],
        Planted::LostIsDeclined | Planted::NoFence | Planted::KeepsLateMoney => {
            &["failure is true"]
        }
        Planted::ReplayInsteadOfAsk => &["an authorization is sent once"],
        Planted::NoReservation => &["refunds within captures"],
        Planted::FreshRefundKey => &["at most once", "refunds within captures"],
        Planted::IgnoresVersion => &["refunds add up", "settled stays settled", "the whole story"],
        Planted::SilenceIsFine => &["delivered is true"],
        Planted::JumpsTheQueue => &["first in, first out"],
        Planted::IgnoresFlow => &["flow control"],
        Planted::OverwritesCancel => {
            &["cancelled is cancelled", "delivered is true", "over is over"]
        }
        Planted::SkipsCallbacks => &["told of every attempt"],
        Planted::DropsKeys => &["one per key"],
        Planted::CompleteIsPaid => &["paid for what is kept", "the truth in the end"],
        Planted::RefundsAgain => &["refunds within captures", "the truth in the end"],
        Planted::ConfirmsExpired => &["over stays over", "no money back for what is kept"],
        Planted::RevivesRender => &["over stays over", "the whole story"],
    }
}

#[test]
fn planted_mistakes_are_found() {
    for mistake in Planted::ALL {
        let found = (1..=10).find_map(|seed| {
            let planted = Some(mistake);
            let steps = match mistake.profile() {
                Profile::Orders => 150,
                Profile::Payments => 100,
                Profile::Messages => 40,
                Profile::Reservations => 80,
            };
            let options = Options { seed, steps, planted, ..Options::default() };
            let report = sim::run(&options).unwrap();
            report.violations.first().map(|violation| violation.rule)
        });
        let rule = found.unwrap_or_else(|| panic!("{mistake:?} was not noticed in ten seeds"));
        assert!(found_by(mistake).contains(&rule), "{mistake:?} was noticed as: {rule}");
    }
}

#[test]
fn a_report_ends_with_its_trace_and_tells_how_a_promise_was_broken() {
    let print = |options: &Options| {
        let mut out = Vec::new();
        let code = sim::main(options, &mut out);
        (code, String::from_utf8(out).unwrap())
    };
    let (code, text) = print(&Options { steps: 20, ..Options::default() });
    assert_eq!(code, 0, "{text}");
    let last = text.lines().last().unwrap();
    let hex = last.strip_prefix("trace ").unwrap();
    assert!(hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()), "{last}");

    let planted = Some(Planted::FreshKeyPerAttempt);
    let (code, text) = print(&Options { seed: 5, steps: 50, planted, ..Options::default() });
    assert_eq!(code, 1, "{text}");
    for part in ["seed 5", "the last steps", "VIOLATION", "broken: ", "--seed 5"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(text.lines().last().unwrap().starts_with("trace "));

    let (code, text) = print(&Options { steps: 20, runs: 3, ..Options::default() });
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("3 runs from seed 1"), "{text}");
}
