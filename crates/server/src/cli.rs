//! The command line: what can be typed, without what it does.
//!
//! Read by `main`, which loads the configuration and runs the command.

pub mod args;
pub mod mail;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use args::{
    AlertsArgs, AuditArgs, BenchArgs, ConsoleArgs, DoctorArgs, OutboxArgs, ServeArgs, SimArgs,
};
use mail::MailArgs;

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
    /// Bring the database to this version's schema
    Migrate,
    /// Look at effects and act on them
    Outbox(OutboxArgs),
    /// Look at alerts, and print their rules for Prometheus and Grafana
    Alerts(AlertsArgs),
    /// Look at what mails say
    Mail(MailArgs),
    /// Check that the audit log is what was written
    Audit(AuditArgs),
    /// Prepare logins for the console
    Console(ConsoleArgs),
    /// Check configuration, database, leases and broker, and say what to do
    Doctor(DoctorArgs),
    /// Run the real engine in a simulated world that fails
    Sim(SimArgs),
    /// Measure, with the database's own limit beside each figure
    Bench(BenchArgs),
    /// Show the configuration in force, secrets hidden, and where each value came from
    Config(ConfigArgs),
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
}
