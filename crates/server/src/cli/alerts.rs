//! Arguments of `tashika alerts`.

use clap::{Args, Subcommand};
use tashika_domain::Timestamp;
use tashika_domain::alert::{AlertState, Severity};
use uuid::Uuid;

use super::shared::{ByArgs, PageArgs, id, moment, word};

/// Arguments of `tashika alerts`: look at alerts, act on them, and print their rules for other tools
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
        #[arg(long, value_parser = state)]
        state: Option<AlertState>,

        /// Only this severity: warning, high or critical
        #[arg(long, value_parser = severity)]
        severity: Option<Severity>,

        /// Only alerts of this rule
        #[arg(long)]
        rule: Option<String>,

        #[command(flatten)]
        page: PageArgs,
    },

    /// Show one alert
    Show {
        #[arg(value_parser = id)]
        id: Uuid,
    },

    /// Say that somebody has seen an alert; whoever was first stays
    #[command(visible_alias = "ack")]
    Acknowledge {
        #[arg(value_parser = id)]
        id: Uuid,

        /// What is being done about it
        #[arg(long, default_value = "")]
        note: String,

        #[command(flatten)]
        by: ByArgs,
    },

    /// Tell nobody about an alert, nor about the next ones of its rule and subject, for a while
    #[command(group = clap::ArgGroup::new("end").required(true).args(["span", "until", "over"]))]
    Silence {
        #[arg(value_parser = id)]
        id: Uuid,

        /// How long, in minutes, hours or days: 30m, 2h, 7d
        #[arg(long = "for", value_name = "SPAN", value_parser = minutes)]
        span: Option<u64>,

        /// Until this moment (RFC 3339)
        #[arg(long, value_name = "MOMENT", value_parser = moment)]
        until: Option<Timestamp>,

        /// No longer: end a silence
        #[arg(long)]
        over: bool,

        /// Why
        #[arg(long)]
        reason: String,

        #[command(flatten)]
        by: ByArgs,
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

fn state(name: &str) -> Result<AlertState, String> {
    word(name, AlertState::parse, &["firing", "resolved"])
}

fn severity(name: &str) -> Result<Severity, String> {
    word(name, Severity::parse, &["warning", "high", "critical"])
}

/// `90m`, `2h`, `7d`, in minutes. Whether it is too long is for the alert's own rules to say.
fn minutes(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number of minutes, hours or days, such as 30m, 2h or 7d".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let length: u64 = match unit {
        "m" => 1,
        "h" => 60,
        "d" => 24 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(length).filter(|minutes| *minutes > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_minutes() {
        for (text, length) in [("1m", 1), ("90m", 90), ("2h", 120), ("7d", 10_080)] {
            assert_eq!(minutes(text), Ok(length), "{text}");
        }
        for text in ["", "m", "5", "5s", "-1h", "1.5h", "0m", "9999999999999999999d", "5分"] {
            assert!(minutes(text).is_err(), "{text}");
        }
    }
}
