//! The command line: what can be typed, without what it does.
//!
//! Read by `main`, which loads the configuration and runs the command.

pub mod alerts;
pub mod args;
pub mod audit;
pub mod cases;
pub mod demo;
pub mod dlq;
#[cfg(test)]
mod documentation;
pub mod mail;
pub mod outbox;
pub mod payments;
mod shared;
pub mod top;
pub mod webhooks;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use alerts::AlertsArgs;
use args::{BenchArgs, ConsoleArgs, DoctorArgs, ServeArgs, SimArgs};
use audit::AuditArgs;
use cases::CasesArgs;
use demo::DemoArgs;
use dlq::DlqArgs;
use mail::MailArgs;
use outbox::OutboxArgs;
use payments::PaymentsArgs;
use top::{CompletionsArgs, ManArgs, TopArgs};
use webhooks::WebhooksArgs;

/// Makes every call to somebody else's API end in a known state.
#[derive(Debug, Parser)]
#[command(
    name = "tashika",
    version,
    propagate_version = true,
    after_help = "Settings come from the environment and from a TOML file with the same names; \
                  `tashika config` shows what is in force."
)]
pub struct Cli {
    /// Configuration file (TOML); environment variables win over it
    #[arg(long, global = true, env = "TASHIKA_CONFIG", value_name = "PATH")]
    pub config: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the API, work on effects, or both, until SIGTERM
    Serve(ServeArgs),
    /// Start a small world in which answers get lost, and watch what becomes of them
    Demo(DemoArgs),
    /// Bring the database to this version's schema
    Migrate,
    /// Watch what flows, what waits and what needs somebody
    Top(TopArgs),
    /// Look at what software could not decide, and decide it
    Cases(CasesArgs),
    /// Look at payments, ask the gateway about them, capture, void and refund
    Payments(PaymentsArgs),
    /// Look at dead letters, send them again, remove them
    Dlq(DlqArgs),
    /// Look at events that were received, and process them again
    Webhooks(WebhooksArgs),
    /// Look at mails, their batches and the lane, and at what mails say
    Mail(MailArgs),
    /// Look at alerts, act on them, and print their rules for Prometheus and Grafana
    Alerts(AlertsArgs),
    /// Search the audit log, and check that it is what was written
    Audit(AuditArgs),
    /// Look at effects and act on them
    Outbox(OutboxArgs),
    /// Prepare logins for the console
    Console(ConsoleArgs),
    /// Check configuration, database, clocks, leases and everybody we speak to, and say what to do
    Doctor(DoctorArgs),
    /// Run the real engine in a simulated world that fails
    Sim(SimArgs),
    /// Measure, with the database's own limit beside each figure
    Bench(BenchArgs),
    /// Show the configuration in force, secrets hidden, and where each value came from
    Config(ConfigArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

#[derive(Clone, Copy, Debug, Args)]
pub struct ConfigArgs {
    /// As JSON, for programs
    #[arg(long, conflicts_with_all = ["defaults", "markdown"])]
    pub json: bool,

    /// Print the documented defaults as a file to start from
    #[arg(long, conflicts_with = "markdown")]
    pub defaults: bool,

    /// Print the reference of all settings (docs/configuration.md)
    #[arg(long)]
    pub markdown: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_configuration_file_can_stand_anywhere() {
        for line in [
            ["tashika", "--config", "a.toml", "config"],
            ["tashika", "config", "--config", "a.toml"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.config, Some(PathBuf::from("a.toml")));
        }
        let both = ["tashika", "config", "--json", "--defaults"];
        assert!(Cli::try_parse_from(both).is_err());
    }

    const ID: &str = "0198a1b2-0000-7000-8000-000000000001";

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("tashika").chain(line.split_whitespace()))
    }

    #[test]
    fn lines_that_are_meant_to_work_do() {
        for line in [
            "serve",
            "serve --role worker",
            "migrate",
            "outbox stats --json",
            "outbox --json list --lane orders --status aborted --limit 500",
            &format!("outbox show {ID}"),
            &format!("outbox requeue {ID} {ID}"),
            "outbox requeue --all --lane orders --error-code BROKER_DOWN",
            "outbox release --lane mail",
            "outbox resolve key-0001 --action not_executed --note phoned",
            "outbox resolve key-0001 --action executed --execution e.json --note phoned",
            "cases list --status open --kind payment_unknown --json",
            &format!("cases decide {ID} charged --note seen --by aiko --yes"),
            "payments list --status CAPTURED --pending-verification false --user-id u-1",
            &format!("payments refund {ID} --amount 100 --reason asked --key k-1 --yes"),
            "dlq list --response-status 0 --response-status 500 --host example.com",
            "dlq retry dlq-1 dlq-2",
            "dlq retry --all --queue q --from 2026-11-15T00:00:00Z",
            "dlq delete --all --yes",
            &format!("webhooks replay {ID} {ID} --by aiko"),
            "webhooks replay --all --type invoice.paid --source stripe",
            "mail list --to a@example.com --status possiblySent",
            &format!("mail batches retry {ID} --status failed --status cancelled"),
            "mail inbox --json",
            "alerts list --state firing --severity critical --json",
            &format!("alerts ack {ID}"),
            &format!("alerts silence {ID} --for 2h --reason deploying"),
            &format!("alerts silence {ID} --over --reason deployed"),
            "alerts rules --prometheus",
            "alerts dashboard",
            "audit search --action case.resolved --from 2026-11-15T00:00:00Z",
            "audit verify --json",
            "top --once",
            "doctor --json",
            "completions fish",
            "man --dir pages",
            "sim --seed 7 --steps 2000",
            "sim --profile payments --runs 20",
            "sim --profile messages --runs 20",
            "sim --profile reservations --runs 20",
            "bench --callers 64 --backlog 1000,1000000 --json out.json",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn lines_that_are_not_are_refused() {
        for line in [
            "serve --role boss",
            "outbox",
            "outbox list --lane Orders!",
            "outbox list --status done",
            "outbox list --limit 0",
            "outbox list --limit 501",
            "outbox show 42",
            "outbox requeue",
            &format!("outbox requeue --all {ID}"),
            &format!("outbox requeue {ID} --lane orders"),
            "outbox resolve key-0001 --action executed --note phoned",
            "outbox resolve key-0001 --action not_executed",
            "cases list --status done",
            "cases show 42",
            &format!("cases decide {ID}"),
            &format!("cases decide {ID} charged --by {}", "x".repeat(101)),
            "payments list --status captured",
            &format!("payments capture {ID}"),
            "dlq retry",
            "dlq retry --all dlq-1",
            "dlq retry dlq-1 --host example.com",
            "dlq list --response-status teapot",
            "webhooks replay",
            &format!("webhooks replay {ID} --source stripe"),
            "mail list --status lost",
            &format!("mail batches retry {ID} --status sent"),
            "alerts list --state loud",
            &format!("alerts silence {ID} --reason quiet"),
            &format!("alerts silence {ID} --for 1h --over --reason quiet"),
            &format!("alerts silence {ID} --for 1h"),
            "audit list --from yesterday",
            "completions telex",
            "sim --steps 0",
            "sim --profile weather",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
