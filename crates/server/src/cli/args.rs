//! Arguments of the commands that are about the process itself: serve, doctor, sim, bench.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tashika_testkit::bench::Scenario;
use tashika_testkit::postgres::Database;
use tashika_testkit::sim::{Fault, parse_ranges};

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

/// Arguments of `tashika doctor`: check the configuration, the database and the broker
#[derive(Clone, Copy, Debug, Args)]
pub struct DoctorArgs {
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tashika sim`: run the real engine in a simulated world that fails
#[derive(Clone, Debug, Args)]
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

    /// Runs, with this seed and the ones that follow it; of each world
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,

    /// Runs at the same time; as many as there are processors if it is not said
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    /// Print every step
    #[arg(long)]
    pub verbose: bool,

    /// Print which transitions of the state machines were taken, and which never
    #[arg(long)]
    pub coverage: bool,

    /// Do not look for a smaller run that breaks the same promise
    #[arg(long)]
    pub no_shrink: bool,

    /// Kinds of trouble that the runs are without, e.g. reply-lost,stall; `all` is every kind
    #[arg(long, value_delimiter = ',', value_parser = sim_fault)]
    pub without: Vec<SimFaults>,

    /// At most so many nodes
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub nodes: Option<u32>,

    /// After so many lives nobody dies or stops any more
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub lives: Option<u32>,

    /// Steps at which nobody acts, e.g. 1-4,7
    #[arg(long, value_parser = sim_steps)]
    pub skip: Option<SimSteps>,
}

/// One kind of trouble, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimFaults(pub Vec<Fault>);

/// Steps of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimSteps(pub std::collections::BTreeSet<u64>);

fn sim_fault(name: &str) -> Result<SimFaults, String> {
    if name == "all" {
        return Ok(SimFaults(Fault::ALL.to_vec()));
    }
    let known = || Fault::ALL.map(Fault::name).join(", ");
    let fault = Fault::parse(name).ok_or_else(|| format!("one of all, {}", known()))?;
    Ok(SimFaults(vec![fault]))
}

fn sim_steps(text: &str) -> Result<SimSteps, String> {
    parse_ranges(text).map(SimSteps).ok_or_else(|| "numbers and ranges, e.g. 1-4,7".to_owned())
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
    /// Mails, and a server that loses answers, slows us down, or does not let us in
    Mail,
    /// Every world, each with the same seeds
    All,
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
    /// webhooks, messages, reservations, lists
    #[arg(long, value_delimiter = ',', value_parser = scenario,
          default_value = "enqueue,cycle,latency,footprint,payments,webhooks")]
    pub scenarios: Vec<Scenario>,

    /// Callers that each wait for their own effect to be durable; connections of `webhooks`
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub callers: u32,

    /// Seconds per measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,

    /// Effects that wait while the full cycle is measured; the largest is the number of rows of each
    /// list in `lists`, and of delayed messages in `messages`
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_does_something() {
        for role in Role::value_variants() {
            assert!(role.takes_requests() || role.works());
        }
    }
}
