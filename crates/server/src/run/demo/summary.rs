//! What is said on the terminal, in words.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::books::{Books, Payments};
use super::caller::Caller;
use super::world::World;
use crate::telemetry::Metrics;

/// What is said first.
pub(super) fn welcome(console: &str, seconds: Option<u64>) -> String {
    let end = match seconds {
        Some(seconds) => format!("it ends after {seconds} s, or at Ctrl-C"),
        None => "Ctrl-C ends it".to_owned(),
    };
    format!(
        "\n  The console: {console}   ({end})\n\n  \
         A shop, its customers, a payment gateway, a broker, a worker and a mailbox, all on this machine. One call in four\n  \
         goes wrong: answers get lost, come late, or come twice. No money moves, and no mail leaves.\n\n  \
         Payments      lost answers, asked about until they are settled: {console}/payments\n  \
         Cases         what software could not find out, for you to decide: {console}/cases\n  \
         Reservations  slots, slow payers, and the races they lose: {console}/reservations\n  \
         Queue         jobs, and dead letters to replay: {console}/queue/dead-letters\n  \
         Mail          letters on their way, and the mailbox: {console}/mail\n\n"
    )
}

/// Where things stand, now and then.
pub(super) async fn line(
    since: Duration,
    world: &World,
    caller: &Caller,
    metrics: &Metrics,
) -> anyhow::Result<String> {
    let payments = Payments::of_now(world, caller).await?;
    let overview = caller.get("/console/api/overview").await;
    let counts = overview.map(|overview| overview.body["counts"].clone()).unwrap_or_default();
    let heard = Heard::of(&metrics.render());
    let mut line = format!("  {:>4} s  ", since.as_secs());
    let mut say = |text: String| line.push_str(&text);
    say(format!("{} payments: ", payments.count));
    say(format!("{} lost, {}", many(heard.lost, "answer"), many(heard.asked, "question")));
    say(format!(" asked, {} open", payments.open));
    say(format!(" · {} refunded", payments.refunded));
    say(format!(" · {}", many(heard.races, "race")));
    say(format!(" · {} mailed", heard.mailed));
    let count = |name: &str| counts[name].as_u64().unwrap_or_default();
    say(format!(" · {}", many(count("deadLetters"), "dead letter")));
    say(format!(
        " · {}, {}",
        many(count("openCases"), "case"),
        many(count("firingAlerts"), "alert")
    ));
    say(format!(" · {}\n", said(&payments)));
    Ok(line)
}

/// Both sides of the money, in a few words.
fn said(payments: &Payments) -> String {
    if !payments.balanced() {
        return format!(
            "THE BOOKS DIFFER about {}",
            many(payments.different.len() as u64, "payment")
        );
    }
    let charged = payments.ours.charged();
    match payments.theirs.charged() - charged {
        0 => format!("books: {} on both sides", yen(charged)),
        more => {
            let there = yen(charged + more);
            format!("books: {} here, {there} at the gateway, the rest is under way", yen(charged))
        }
    }
}

/// What the process's own counters say.
struct Heard {
    lost: u64,
    asked: u64,
    races: u64,
    mailed: u64,
}

impl Heard {
    fn of(metrics: &str) -> Self {
        let calls = "payment_gateway_request_total";
        let lost = ["status=\"timeout\"", "status=\"unknown\""];
        let asked = ["operation=\"status\"", "operation=\"checkout\""];
        Self {
            lost: lost.iter().map(|label| sum(metrics, calls, label)).sum(),
            asked: asked.iter().map(|label| sum(metrics, calls, label)).sum(),
            races: sum(metrics, "race_conditions_total", ""),
            mailed: sum(metrics, "mail_sent_total", ""),
        }
    }
}

/// The sum of a metric's series that have this label.
fn sum(metrics: &str, name: &str, label: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The final balance.
pub(super) fn balance(books: &Books, world: &World, open_cases: &[Value]) -> String {
    let mut text = String::new();
    let mut say = |line: &str| writeln!(text, "  {line}").unwrap_or_default();
    let payments = &books.payments;
    say("");
    say(&format!("{:<34}{:>16}{:>16}", "The books", "Tashika", "the gateway"));
    let (ours, theirs) = (payments.ours, payments.theirs);
    for (name, here, there) in [
        ("reserved on cards", ours.held, theirs.held),
        ("taken", ours.taken, theirs.taken),
        ("given back", ours.given_back, theirs.given_back),
        ("paid in the end", ours.charged(), theirs.charged()),
    ] {
        say(&format!("{name:<34}{:>16}{:>16}", yen(here), yen(there)));
    }
    let orders = &books.orders;
    let (here, there) = (orders.executed_here, orders.executed_there);
    say(&format!("{:<34}{here:>16}{there:>16}", "orders executed (the broker)"));
    let jobs = &books.jobs;
    say(&format!("{:<34}{:>16}{:>16}", "jobs (the worker)", jobs.taken, jobs.done));
    say("");
    say(&format!(
        "{} payments: {} settled, {} refunded, {} failed, {} open. Charged twice: {}.",
        payments.count,
        payments.settled,
        payments.refunded,
        payments.failed,
        payments.open,
        payments.violations
    ));
    let events = world.worker.events();
    say(&format!("{events} events told. {}.", many(jobs.dead_letters as u64, "dead letter")));
    for case in open_cases {
        let summary = case["summary"].as_str().unwrap_or_default();
        say(&format!("For a person to decide: {summary}"));
    }
    for id in payments.different.iter().chain(&orders.different) {
        say(&format!("DIFFERENT: {id}"));
    }
    for id in &payments.unsettled {
        say(&format!("OPEN: payment {id}"));
    }
    if jobs.missing > 0 {
        say(&format!("LOST: {}", many(jobs.missing as u64, "job")));
    }
    say("");
    say(match (books.balanced(), books.at_rest()) {
        (true, true) => "The books are balanced.",
        (true, false) => "Something is still under way, so the books cannot be closed.",
        (false, _) => "THE BOOKS ARE NOT BALANCED.",
    });
    text
}

pub(super) fn many(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn yen(amount: i64) -> String {
    let digits = amount.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{}{text} JPY", if amount < 0 { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        let said = [0, 7, 980, 1500, 1_234_567, -12_000].map(yen);
        let expected = ["0 JPY", "7 JPY", "980 JPY", "1,500 JPY", "1,234,567 JPY", "-12,000 JPY"];
        assert_eq!(said, expected);
        assert_eq!([many(1, "case"), many(0, "case")], ["1 case", "0 cases"]);
    }

    #[test]
    fn counters_are_added_up_over_their_series() {
        let metrics =
            "# HELP x_total x\nx_total{a=\"1\",b=\"2\"} 3\nx_total{a=\"1\",b=\"3\"} 4\ny_total 5\n";
        assert_eq!(sum(metrics, "x_total", "a=\"1\""), 7);
        assert_eq!(sum(metrics, "x_total", "b=\"3\""), 4);
        assert_eq!(sum(metrics, "y_total", ""), 5);
    }
}
