//! Arguments of `tashika outbox`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tashika_domain::{EffectId, Lane, Status};

use super::shared::{ByArgs, lane, word};

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

        #[command(flatten)]
        by: ByArgs,
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

        #[command(flatten)]
        by: ByArgs,
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

fn status(name: &str) -> Result<Status, String> {
    word(name, Status::parse, &Status::ALL.map(Status::as_str))
}

fn effect_id(text: &str) -> Result<EffectId, String> {
    uuid::Uuid::try_parse(text)
        .map(EffectId)
        .map_err(|_| "expected an effect's id, as `outbox list` shows it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions_are_those_of_the_case() {
        let ours = Resolution::value_variants().iter().map(|r| r.as_str());
        let cases = tashika_domain::order::UNANSWERED_ACTIONS;
        assert_eq!(ours.collect::<Vec<_>>(), cases);
    }
}
