//! Arguments of the commands that need the engine.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tashika_domain::alert::AlertState;
use tashika_domain::{EffectId, Lane, Status};
use tashika_testkit::bench::Scenario;
use tashika_testkit::postgres::Database;

/// Arguments of `tashika serve`: the API, the workers, or both, until SIGTERM
#[derive(Clone, Copy, Debug, Args)]
pub struct ServeArgs {
    /// What this process does; several processes may share one PostgreSQL
    #[arg(long, value_enum, default_value_t = Role::All)]
    pub role: Role,

    /// Sign deliveries with the QStash SDK's published development keys, so that `QSTASH_DEV=true`
    /// finds this server; on a loopback address and without tokens only
    #[arg(long)]
    pub dev: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Take requests, send nothing
    Api,
    /// Send what was accepted, take no requests but health checks and metrics
    Worker,
    /// Both
    All,
}

impl Role {
    #[must_use]
    pub const fn takes_requests(self) -> bool {
        matches!(self, Self::Api | Self::All)
    }

    #[must_use]
    pub const fn works(self) -> bool {
        matches!(self, Self::Worker | Self::All)
    }
}

/// Arguments of `tashika console`: prepare logins for the console
#[derive(Clone, Copy, Debug, Args)]
pub struct ConsoleArgs {
    #[command(subcommand)]
    pub command: ConsoleCommand,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum ConsoleCommand {
    /// Read a password from standard input and print its hash for `CONSOLE_USERS`
    Hash,
}

/// Arguments of `tashika outbox`: look at effects and act on them
#[derive(Clone, Debug, Args)]
pub struct OutboxArgs {
    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: OutboxCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum OutboxCommand {
    /// Count effects by lane and status
    Stats,

    /// List effects, newest first
    List {
        #[command(flatten)]
        filter: Filter,

        /// Most effects to list
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,

        /// Continue after the last page (the `nextCursor` it ended with)
        #[arg(long)]
        cursor: Option<String>,
    },

    /// Show one effect with all its attempts
    Show {
        #[arg(value_parser = effect_id)]
        id: EffectId,
    },

    /// Try given-up (aborted) effects again, with all their attempts back
    #[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]))]
    Requeue {
        /// The effects, by id
        #[arg(value_parser = effect_id)]
        ids: Vec<EffectId>,

        /// Every aborted effect that the filter matches
        #[arg(long)]
        all: bool,

        /// Only effects of this lane
        #[arg(long, value_parser = lane, requires = "all", conflicts_with = "ids")]
        lane: Option<Lane>,

        /// Only effects that ended with this error code
        #[arg(long, value_name = "CODE", requires = "all", conflicts_with = "ids")]
        error_code: Option<String>,
    },

    /// Give leases that have run out back now, instead of at the next look of a worker
    Release {
        /// Only effects of this lane
        #[arg(long, value_parser = lane)]
        lane: Option<Lane>,
    },

    /// Decide about an order that nobody answered for
    Resolve {
        /// The order's idempotency key
        key: String,

        /// What happened, or what should happen
        #[arg(long, value_enum)]
        action: Resolution,

        /// What the broker says about the execution, as JSON (`order_ref`, `fills`, `cost`)
        #[arg(long, value_name = "PATH", required_if_eq("action", "executed"))]
        execution: Option<PathBuf>,

        /// Why; kept with the case
        #[arg(long)]
        note: String,
    },
}

/// Which effects.
#[derive(Clone, Debug, Default, Args)]
pub struct Filter {
    /// Only this lane
    #[arg(long, value_parser = lane)]
    pub lane: Option<Lane>,

    /// Only this status: pending, sending, succeeded, failed or aborted
    #[arg(long, value_parser = status)]
    pub status: Option<Status>,
}

/// What a person found out about an unanswered order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Resolution {
    /// The broker executed it
    #[value(name = "executed")]
    Executed,
    /// The broker did not execute it, and will not
    #[value(name = "not_executed")]
    NotExecuted,
    /// The broker did not execute it; send it now
    #[value(name = "resend")]
    Resend,
}

impl Resolution {
    /// The name under which the case knows the action.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::NotExecuted => "not_executed",
            Self::Resend => "resend",
        }
    }
}

/// Arguments of `tashika alerts`: look at alerts, and print their rules for other tools
#[derive(Clone, Debug, Args)]
pub struct AlertsArgs {
    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: AlertsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum AlertsCommand {
    /// List alerts, newest first
    List {
        /// Only this state: firing or resolved
        #[arg(long, value_parser = alert_state)]
        state: Option<AlertState>,

        /// Most alerts to list
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },

    /// Show the rules with the numbers in force
    Rules {
        /// As a rules file for Prometheus
        #[arg(long)]
        prometheus: bool,
    },

    /// Print a dashboard for Grafana
    Dashboard,
}

/// Arguments of `tashika audit`
#[derive(Clone, Copy, Debug, Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: AuditCommand,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum AuditCommand {
    /// Walk the chain of seals and name every line that was changed or removed
    Verify,
}

/// Arguments of `tashika doctor`: check the configuration, the database and the broker
#[derive(Clone, Copy, Debug, Args)]
pub struct DoctorArgs {
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tashika sim`: run the real engine in a simulated world that fails
#[derive(Clone, Copy, Debug, Args)]
pub struct SimArgs {
    /// What to simulate
    #[arg(long, value_enum, default_value_t = SimProfile::Orders)]
    pub profile: SimProfile,

    /// The run: the same seed gives the same run, to the byte
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Length of the run
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,

    /// Runs, with this seed and the ones that follow it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,

    /// Print every step
    #[arg(long)]
    pub verbose: bool,
}

/// What `tashika sim` simulates
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimProfile {
    /// Orders, and a broker
    Orders,
    /// Payments, and a gateway with the true ledger of money
    Payments,
    /// Messages, and consumers that are slow, flaky, or lie
    Messages,
    /// Reservations, slow payers and flaky renders, and the gateway of payments
    Reservations,
}

/// Arguments of `tashika bench`: our figures beside the database's own limit
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Measure only on this database; may be repeated
    #[arg(long, value_enum)]
    pub on: Vec<BenchDatabase>,

    /// Measure on this PostgreSQL; everything in its schema `public` is removed. Without it a
    /// throwaway server is started
    #[arg(long, value_name = "URL", env = "TASHIKA_BENCH_POSTGRES_URL", hide_env_values = true)]
    pub postgres_url: Option<String>,

    /// What to measure: enqueue, cycle, latency, pinned, footprint, payments,
    /// webhooks
    #[arg(long, value_delimiter = ',', value_parser = scenario,
          default_value = "enqueue,cycle,latency,footprint,payments,webhooks")]
    pub scenarios: Vec<Scenario>,

    /// Callers that each wait for their own effect to be durable; connections of `webhooks`
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub callers: u32,

    /// Seconds per measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,

    /// Effects that wait while the full cycle is measured
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 1_000_000])]
    pub backlog: Vec<u64>,

    /// How long the scenario `pinned` holds a foreign transaction open
    #[arg(long, default_value_t = 120)]
    pub pinned_seconds: u32,

    /// Also write the figures as JSON
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchDatabase {
    Sqlite,
    Postgres,
}

impl From<BenchDatabase> for Database {
    fn from(database: BenchDatabase) -> Self {
        match database {
            BenchDatabase::Sqlite => Self::Sqlite,
            BenchDatabase::Postgres => Self::Postgres,
        }
    }
}

fn scenario(name: &str) -> Result<Scenario, String> {
    Scenario::parse(name).ok_or_else(|| {
        let all: Vec<&str> = Scenario::ALL.iter().map(|scenario| scenario.as_str()).collect();
        format!("expected some of {}", all.join(", "))
    })
}

fn lane(name: &str) -> Result<Lane, String> {
    Lane::parse(name).ok_or_else(|| {
        let own: Vec<String> = Lane::OWN.iter().map(ToString::to_string).collect();
        format!("not a lane; ours are {}", own.join(", "))
    })
}

fn alert_state(name: &str) -> Result<AlertState, String> {
    AlertState::parse(name).ok_or_else(|| "expected firing or resolved".to_owned())
}

fn status(name: &str) -> Result<Status, String> {
    Status::parse(name).ok_or_else(|| {
        let all: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
        format!("expected one of {}", all.join(", "))
    })
}

fn effect_id(text: &str) -> Result<EffectId, String> {
    uuid::Uuid::try_parse(text)
        .map(EffectId)
        .map_err(|_| "expected an effect's id, as `outbox list` shows it".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

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
            "alerts list --state firing --json",
            "alerts rules --prometheus",
            "alerts dashboard",
            "doctor --json",
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
            "alerts list --state loud",
            "sim --steps 0",
            "sim --profile weather",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn resolutions_are_those_of_the_case() {
        let ours = Resolution::value_variants().iter().map(|r| r.as_str());
        let cases = tashika_domain::order::UNANSWERED_ACTIONS;
        assert_eq!(ours.collect::<Vec<_>>(), cases);
        for role in Role::value_variants() {
            assert!(role.takes_requests() || role.works());
        }
    }
}
