//! Every deliberate bug in the product is caught, and this table says by what.
//!
//! Built and run by `scripts/mutants`, with the feature `mutants` and the suites' test programs. A bug that
//! is caught by nothing is a hole in the suite: the table has no place for it. `docs/mutants.md` is made
//! from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use tashika_domain::mutant::{self, Mutant};
use tashika_testkit::sim::{self, Options, Profile};

/// What catches a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Catcher {
    /// A run of the simulator: its seed and its steps, and the rule that is broken first.
    Run(Profile, u64, u64, &'static str),
    /// A test of a suite. Where it runs on both databases, on SQLite: bugs of the store are made there.
    Test(&'static str, &'static str),
}
use Catcher::{Run, Test};
use Profile::{Messages, Orders, Payments};

fn caught_by(mutant: Mutant) -> Catcher {
    match mutant {
        Mutant::FenceSkipped => Run(Payments, 2, 40, "failure is true"),
        Mutant::ReplayedInsteadOfAsked => Run(Payments, 1, 40, "an authorization is sent once"),
        Mutant::LostIsDeclined => Run(Payments, 2, 40, "failure is true"),
        Mutant::LostIsRefused => Run(Orders, 1, 60, "failure is true"),
        Mutant::OrderSentWithoutAsking => Run(Orders, 3, 60, "at most once"),
        Mutant::LapseLeavesNoDoubt => Run(Orders, 3, 60, "at most once"),
        Mutant::AckBeforeCommit => Run(Orders, 2, 60, "nothing is lost"),
        Mutant::FenceNotCompared => Test("store", "lease::a_stale_fence_writes_nothing::sqlite"),
        Mutant::ExpiredLeaseSends => {
            Test("engine", "leases::what_lost_its_lease_in_the_queue_is_not_sent::sqlite")
        }
        Mutant::SignOfLifeIgnored => {
            Test("store", "lease::who_came_back_in_time_is_not_taken_over::sqlite")
        }
        Mutant::OutboxBeforeLedger => Run(Orders, 1, 60, "ledger and outbox agree"),
        Mutant::LedgerNotAsked => Test(
            "engine",
            "protocol::w_105_ledger_succeeded_settles_leftover_without_sending::sqlite",
        ),
        Mutant::DigestNotCompared => Run(Orders, 1, 60, "one order per key"),
        Mutant::RefundNotReserved => Run(Payments, 6, 40, "answers as agreed"),
        Mutant::RefundsUnconstrained => Test(
            "store",
            "payments::never_more_back_than_was_taken_whatever_the_code_believes::sqlite",
        ),
        Mutant::RefundKeyPerAttempt => Test(
            "engine",
            "payments_keys::a_refund_whose_answer_was_lost_is_found_and_not_sent_again::sqlite",
        ),
        Mutant::LateSuccessKept => {
            Test("engine", "payments_races::a_success_after_a_failure_is_undone::sqlite")
        }
        Mutant::VersionNotCompared => {
            Test("store", "payments::a_change_expects_the_version_before_it::sqlite")
        }
        Mutant::MoneyBeforeId => {
            Test("engine", "payments::the_gateways_id_is_stored_before_money_can_move::sqlite")
        }
        Mutant::EventIdNotCompared => {
            Test("engine", "webhooks::a_duplicate_changes_nothing::sqlite")
        }
        Mutant::SignatureNotCompared => {
            Test("providers", "webhook_headers::what_is_signed_is_taken_and_nothing_else")
        }
        Mutant::UnsignedBelieved => {
            Test("engine", "confirmations::without_anybody_to_ask_nothing_is_believed::sqlite")
        }
        Mutant::DedupKeyNotStored => {
            Test("engine", "queue_once::a_duplicate_is_the_first_message::sqlite")
        }
        Mutant::QueueGateOpen => Run(Messages, 1, 30, "first in, first out"),
        Mutant::FlowNotCounted => {
            Test("engine", "queue_flow::a_rate_holds_in_every_period::sqlite")
        }
        Mutant::CancelOverwritten => Run(Messages, 1, 30, "cancelled is cancelled"),
        Mutant::CancelledIsSent => {
            Test("engine", "queue_once::a_claimed_message_that_was_cancelled_is_not_sent::sqlite")
        }
        Mutant::CallbackForgotten => Run(Messages, 1, 30, "told of every attempt"),
        Mutant::AttemptsUnlimited => {
            Test("engine", "protocol::w_104_max_attempts_aborts_and_requeue_succeeds::sqlite")
        }
        Mutant::BackoffIgnored => {
            Test("engine", "backoff::failures_wait_as_the_table_says::sqlite")
        }
        Mutant::TickFiresAgain => {
            Test("engine", "queue_schedules::a_paused_schedule_does_not_fire::sqlite")
        }
        Mutant::MailNotMarked => Test(
            "engine",
            "mail_races::a_killed_process_leaves_in_doubt_what_it_was_sending_and_nothing_else::sqlite",
        ),
        Mutant::MailDoubtForgotten => {
            Test("engine", "mail::a_mail_out_of_answers_is_possibly_sent::sqlite")
        }
        Mutant::MessageIdPerAttempt => {
            Test("engine", "mail::a_lost_answer_is_repeated_under_the_same_message_id::sqlite")
        }
        Mutant::PermitNotRested => {
            Test("engine", "mail_races::two_processes_together_keep_the_rate::sqlite")
        }
        Mutant::DeadlineIgnored => {
            Test("engine", "reservations::it_is_too_late_to_cancel_what_has_expired::sqlite")
        }
        Mutant::SlotNotUnique => Test("store", "reservations::a_slot_has_one_owner::sqlite"),
        Mutant::LateMoneyKept => {
            Test("engine", "reservations::paid_after_the_end_is_given_back_once::sqlite")
        }
        Mutant::AuditForgotten => Test(
            "engine",
            "audit_lines::a_payment_leaves_a_line_for_whatever_becomes_true_of_it::sqlite",
        ),
        Mutant::CaseDecidedTwice => {
            Test("store", "watch::of_two_decisions_about_a_case_one_counts::sqlite")
        }
        Mutant::NamesNotVetted => {
            Test("providers", "courier_guard::names_are_refused_if_any_of_their_addresses_is")
        }
    }
}

/// Does something for each of them, on two threads: neither runs nor tests share anything.
fn for_each<T: Send + Sync>(all: &[T], work: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut complaints = Vec::new();
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            complaints.extend(work(one));
        }
        complaints
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no check panics")).collect()
    })
}

/// The rule that a run breaks first, with this bug alive.
fn broken(profile: Profile, seed: u64, steps: u64, alive: Option<Mutant>) -> Option<&'static str> {
    mutant::plant(alive);
    let report = sim::run(&Options { profile, seed, steps, ..Options::default() });
    mutant::plant(None);
    let report = report.expect("the simulation runs");
    report.violations.first().map(|violation| violation.rule)
}

/// Seeds that do catch it, for whoever has changed the simulator and with it what a seed means.
fn others(profile: Profile, steps: u64, mutant: Mutant) -> String {
    let found = (1..=10).filter_map(|seed| {
        broken(profile, seed, steps, Some(mutant)).map(|rule| format!("seed {seed}: {rule}"))
    });
    format!("of seeds 1 to 10: {}", found.collect::<Vec<_>>().join(", "))
}

/// The test program of a crate, as `scripts/mutants` has built it.
fn program(package: &str) -> String {
    let programs = std::env::var("TASHIKA_MUTANT_SUITES").expect("run by scripts/mutants");
    let found = programs.lines().filter_map(|line| line.split_once('='));
    let mut found = found.filter(|(name, _)| *name == package);
    found.next().unwrap_or_else(|| panic!("no test program of {package}")).1.to_owned()
}

/// Runs one test of a suite in a process of its own, with this bug alive.
fn tested(package: &str, test: &str, alive: Option<Mutant>) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package);
    let name = alive.map(|mutant| format!("{mutant:?}")).unwrap_or_default();
    let mut command = Command::new(program(package));
    command.args(["--exact", test]).current_dir(folder).env(mutant::VARIABLE, name);
    command.output().expect("the test program runs")
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn without_a_bug_every_catcher_is_silent() {
    let mut catchers: Vec<Catcher> = Mutant::ALL.iter().map(|mutant| caught_by(*mutant)).collect();
    catchers.sort_unstable();
    catchers.dedup_by_key(|catcher| match *catcher {
        Run(profile, seed, steps, _) => (profile.as_str(), seed, steps, ""),
        Test(package, test) => (package, 0, 0, test),
    });
    let complaints = for_each(&catchers, |catcher| match *catcher {
        Run(profile, seed, steps, _) => {
            broken(profile, seed, steps, None).map(|rule| format!("{catcher:?}: {rule}"))
        }
        Test(package, test) => {
            let output = tested(package, test, None);
            let fine = output.status.success() && said(&output).contains("1 passed");
            (!fine).then(|| format!("{catcher:?}:\n{}", said(&output)))
        }
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_bug_is_caught() {
    let complaints = for_each(Mutant::ALL, |mutant| {
        let caught = caught_by(*mutant);
        let complaint = match caught {
            Run(profile, seed, steps, rule) => match broken(profile, seed, steps, Some(*mutant)) {
                Some(found) if found == rule => None,
                found => Some(format!("noticed as {found:?}; {}", others(profile, steps, *mutant))),
            },
            Test(package, test) => {
                let output = tested(package, test, Some(*mutant));
                // A test that ran and failed: anything else catches nothing.
                let failed = !output.status.success() && said(&output).contains("1 failed");
                (!failed).then(|| said(&output))
            }
        };
        complaint.map(|why| format!("{mutant:?} by {caught:?}: {why}"))
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    print!("{}", table());
}

fn table() -> String {
    let mut table =
        String::from("| Bug | What it does | Caught by | Seed or test |\n|---|---|---|---|\n");
    for mutant in Mutant::ALL {
        let (by, what) = match caught_by(*mutant) {
            Run(profile, seed, steps, rule) => (
                format!("the simulator: {rule}"),
                format!("`--profile {} --seed {seed} --steps {steps}`", profile.as_str()),
            ),
            Test(package, test) => (format!("the tests of `{package}`"), format!("`{test}`")),
        };
        writeln!(table, "| `{mutant:?}` | {} | {by} | {what} |", mutant.description())
            .expect("a string takes everything");
    }
    table
}

#[test]
fn the_document_lists_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mutants.md");
    let document = std::fs::read_to_string(&path).expect("docs/mutants.md");
    let start = document.find("| Bug |").expect("the table");
    let written = format!("{}{}", &document[..start], table());
    if std::env::var_os("TASHIKA_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &written).expect("docs/mutants.md can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/mutants.md");
    assert!(found == written, "docs/mutants.md is not what the table says: TASHIKA_UPDATE_DOCS=1");
}

#[test]
fn every_place_is_watched() {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for mutant in Mutant::ALL {
        let by = match caught_by(*mutant) {
            Run(profile, ..) => profile.as_str(),
            Test(package, _) => package,
        };
        *count.entry(by).or_default() += 1;
    }
    for by in ["orders", "payments", "messages", "engine", "store", "providers"] {
        assert!(count.contains_key(by), "{by} catches nothing: {count:?}");
    }
}
