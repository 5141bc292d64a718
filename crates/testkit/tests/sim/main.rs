//! The simulator: the promises hold, the faults really happen, and a broken promise is noticed.

mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tashika_testkit::sim::{self, Asked, Machine, Options, Planted, Profile, Report};
use worlds::{RUNS_MIN, Worlds};

#[expect(clippy::disallowed_methods, reason = "how long the machine takes is for people to read")]
fn now() -> Instant {
    Instant::now()
}

/// Runs side by side: they share nothing, not even time. Says how long each took.
fn run_all(wanted: &[Options]) -> Vec<(Report, Duration)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reports = Vec::new();
        while let Some(options) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begun = now();
            let report = sim::run(options).expect("the simulation runs");
            reports.push((report, begun.elapsed()));
        }
        reports
    };
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).max(2);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
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

/// All worlds in one test that has the machine for itself (`.config/nextest.toml`): the last lines say how
/// many runs there were, and how long they took.
#[test]
fn two_hundred_worlds_break_no_promise() {
    let begun = now();
    let wanted: Vec<Options> = worlds::ALL.iter().flat_map(Worlds::options).collect();
    let reports = run_all(&wanted);
    let took = begun.elapsed().as_secs();
    assert_eq!(reports.len(), wanted.len());
    assert!(reports.len() >= RUNS_MIN, "{} runs of {RUNS_MIN}", reports.len());
    let mut complaints = Vec::new();
    for kind in worlds::ALL {
        let of_kind = || reports.iter().filter(|(report, _)| report.profile == kind.profile);
        let busy: Duration = of_kind().map(|(_, took)| *took).sum();
        let of_kind: Vec<&Report> = of_kind().map(|(report, _)| report).collect();
        let (name, count) = (kind.profile.as_str(), of_kind.len());
        let things =
            kind.count(&of_kind).map_or_else(String::new, |(n, _)| format!(", {n} {name}"));
        println!("{name}: {count} runs{things}, {} s of one thread", busy.as_secs());
        complaints.extend(kind.complaints(&of_kind, told));
    }
    println!("{} runs in {took} s", reports.len());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_machine_has_a_world() {
    for machine in Machine::ALL {
        assert!(!machine.legal().is_empty(), "{machine:?}");
        assert!(worlds::ALL.iter().any(|kind| kind.machines.contains(&machine)), "{machine:?}");
    }
    for profile in Profile::ALL {
        assert!(worlds::ALL.iter().any(|kind| kind.profile == profile), "{profile:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hashes = |reports: Vec<(Report, Duration)>| -> BTreeMap<u64, (String, u64)> {
        reports.into_iter().map(|(r, _)| (r.seed, (r.trace_hash, r.trace_lines))).collect()
    };
    for profile in Profile::ALL {
        // Side by side and one after the other: neither threads nor what ran before may matter.
        let seeds = 41..=44;
        let wanted: Vec<Options> =
            seeds.map(|seed| Options { profile, seed, steps: 40, ..Options::default() }).collect();
        let run = || hashes(run_all(&wanted));
        let (one, two) = (run(), run());
        assert_eq!(one, two, "{profile:?}");
        let different: BTreeSet<_> = one.values().collect();
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
        Planted::RestoresBilling => &["one event, one effect", "the newest word counts"],
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
