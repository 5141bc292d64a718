//! The simulator: the promises hold, the faults really happen, and a broken promise is noticed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tashika_testkit::sim::{self, Asked, Machine, Options, Planted, Profile, Report, Tally};

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

/// What must have happened in the forty worlds for their silence to mean anything: about a sixth of
/// what happens with the present engine.
const AT_LEAST: [(Tally, u64); 38] = [
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
    covered(&reports, &[Machine::Effect]);
}

/// Whether every legal transition of these machines was taken in some run.
fn covered(reports: &[Report], machines: &[Machine]) {
    covered_but(reports, machines, &[]);
}

/// The same, but for transitions that more worlds are needed for than a test has time for.
fn covered_but(reports: &[Report], machines: &[Machine], rare: &[&str]) {
    let taken = |machine: Machine, line: &String| {
        reports.iter().any(|report| report.taken.contains_key(&(machine, line.clone())))
    };
    let never: Vec<String> = machines
        .iter()
        .flat_map(|machine| machine.legal().into_iter().map(|line| (*machine, line)))
        .filter(|(machine, line)| !taken(*machine, line) && !rare.contains(&line.as_str()))
        .map(|(machine, line)| format!("{}: {line}", machine.as_str()))
        .collect();
    assert!(never.is_empty(), "never taken: {never:#?}");
}

/// Which world takes every transition of a machine; or why there is none.
fn covered_by(machine: Machine) -> Result<Profile, &'static str> {
    match machine {
        Machine::Effect => Ok(Profile::Orders),
        Machine::Payment => Ok(Profile::Payments),
        Machine::Message => Ok(Profile::Messages),
        Machine::Mail | Machine::MailBatch => Ok(Profile::Mail),
        Machine::Reservation | Machine::Render => Ok(Profile::Reservations),
        Machine::Billing => {
            Err("every event is possible in every state, and each is one webhook: \
                                 the table is tested whole where it is decided")
        }
    }
}

#[test]
fn every_machine_has_a_world_or_a_reason() {
    for machine in Machine::ALL {
        assert!(!machine.legal().is_empty(), "{machine:?}");
        match covered_by(machine) {
            Ok(profile) => assert!(Profile::ALL.contains(&profile)),
            Err(reason) => println!("{}: {reason}", machine.as_str()),
        }
    }
}

/// The same for payments: every fault, and every transition of the machine (`Took…`).
const AT_LEAST_PAYMENTS: [(Tally, u64); 60] = [
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

/// Worlds, steps per world, and how many payments that must be at least. `scripts/nightly` runs
/// thousands of them.
const WORLDS: (u64, u64, u64) = (70, 120, 10_000);

#[test]
fn worlds_of_payments_break_no_promise() {
    let (worlds, steps, least) = WORLDS;
    let reports = run_all(Profile::Payments, 1..=worlds, steps);
    kept(&reports, &AT_LEAST_PAYMENTS);
    let payments: u64 = reports.iter().map(Report::payments).sum();
    println!("{payments} payments in {worlds} worlds");
    assert!(payments >= least, "{payments} payments of {least}");
    covered(&reports, &[Machine::Payment]);
}

/// The same for messages: about a third of what happens in thirty worlds.
const AT_LEAST_MESSAGES: [(Tally, u64); 38] = [
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

/// Worlds, steps per world, and how many messages that must be at least.
const WORLDS_OF_MESSAGES: (u64, u64, u64) = (50, 110, 10_000);

#[test]
fn worlds_of_messages_break_no_promise() {
    let (worlds, steps, least) = WORLDS_OF_MESSAGES;
    let reports = run_all(Profile::Messages, 1..=worlds, steps);
    kept(&reports, &AT_LEAST_MESSAGES);
    let messages: u64 = reports.iter().map(Report::messages).sum();
    println!("{messages} messages in {worlds} worlds");
    assert!(messages >= least, "{messages} messages of {least}");
    covered(&reports, &[Machine::Message]);
}

/// The same for mails.
const AT_LEAST_MAIL: [(Tally, u64); 19] = [
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

#[test]
fn worlds_of_mail_break_no_promise() {
    let reports = run_all(Profile::Mail, 1..=12, 40);
    kept(&reports, &AT_LEAST_MAIL);
    // A mail that is cancelled while it is on its way, and heard of afterwards.
    covered_but(&reports, &[Machine::Mail, Machine::MailBatch], &["cancelled --Send--> sent"]);
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
    // Allowed by the machines, and never asked for in these worlds.
    let rare = [
        "hold --Reclaimed--> confirmed",
        "hold past its time --GiveUp--> expired",
        "cancelled --Reclaimed--> cancelled",
        "processing --Submit--> processing",
    ];
    covered_but(&reports, &[Machine::Reservation, Machine::Render], &rare);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hashes = |reports: Vec<Report>| -> BTreeMap<u64, (String, u64)> {
        reports.into_iter().map(|r| (r.seed, (r.trace_hash, r.trace_lines))).collect()
    };
    for profile in Profile::ALL {
        // Side by side and one after the other: neither threads nor what ran before may matter.
        let run = || hashes(run_all(profile, 41..=44, 40));
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
        Planted::DropsKeys | Planted::ForgetsMailKeys => &["one per key"],
        Planted::SilenceIsRefused => &["what arrived is told"],
        Planted::SilenceIsSent => &["sent is true"],
        Planted::SendsTooFast => &["the pace is kept"],
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
                Profile::Messages | Profile::Mail => 40,
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
        let asked = Asked { shrink: false, ..Asked::of(Profile::Orders) };
        let code = sim::main(options, &asked, &mut out);
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
    for part in ["seed 5", "the story of", "the last steps", "VIOLATION", "broken: ", "--seed 5"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(text.lines().last().unwrap().starts_with("trace "));

    let (code, text) = print(&Options { steps: 20, runs: 3, ..Options::default() });
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("3 runs of orders from seed 1"), "{text}");
}

/// A run that breaks a promise is made smaller, and the smaller one breaks the same promise when it is
/// repeated by what is printed.
#[test]
fn a_broken_run_is_shrunk_and_told() {
    for (planted, seed, steps) in [
        (Planted::FreshKeyPerAttempt, 5, 60),
        (Planted::LostIsDeclined, 1, 60),
        (Planted::SilenceIsFine, 1, 30),
    ] {
        let options = Options { seed, steps, planted: Some(planted), ..Options::default() };
        let report = sim::run(&options).unwrap();
        let rule = report.violations.first().unwrap_or_else(|| panic!("{planted:?}")).rule;

        let smaller = sim::shrink(&options, &report).unwrap().expect("it happens again");

        assert_eq!(smaller.report.violations[0].rule, rule, "{planted:?}");
        let acting = smaller.options.steps - smaller.options.mix.skip.len() as u64;
        assert!(acting < report.steps, "{planted:?}: {acting} of {} steps", report.steps);
        assert!(!smaller.options.mix.without.is_empty(), "{planted:?}: no trouble was needless");
        assert!(smaller.report.trace_lines < report.trace_lines, "{planted:?}");
        let again = sim::run(&smaller.options).unwrap();
        assert_eq!(again.trace_hash, smaller.report.trace_hash, "{planted:?}");
        println!("{planted:?}: {} of {} steps, {} runs", acting, report.steps, smaller.tries);
        println!("{}", told(&smaller.report));
    }
}
