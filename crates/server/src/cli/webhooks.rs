//! Arguments of `tashika webhooks`.

use clap::{Args, Subcommand};
use tashika_domain::Timestamp;
use tashika_domain::webhook::Status;
use uuid::Uuid;

use super::shared::{ByArgs, PageArgs, id, moment, word};

/// Arguments of `tashika webhooks`: look at events that were received, and process them again
#[derive(Clone, Debug, Args)]
pub struct WebhooksArgs {
    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: WebhooksCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum WebhooksCommand {
    /// List events, newest first
    List {
        /// Only this status: pending, success, failed or skipped
        #[arg(long, value_parser = status)]
        status: Option<Status>,

        #[command(flatten)]
        filter: EventFilter,

        #[command(flatten)]
        page: PageArgs,
    },

    /// Count events by type and status
    Stats,

    /// Show one event with its payload, personal data masked
    Show {
        #[arg(value_parser = id)]
        id: Uuid,
    },

    /// Process events again that failed
    #[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]))]
    Replay {
        /// The events, by id
        #[arg(value_parser = id, conflicts_with_all = FILTERS)]
        ids: Vec<Uuid>,

        /// Every failed event that the filters match
        #[arg(long)]
        all: bool,

        #[command(flatten)]
        filter: EventFilter,

        #[command(flatten)]
        by: ByArgs,
    },
}

/// Whoever names events by their ids needs no filter, and one beside them would be ignored.
const FILTERS: [&str; 5] = ["event_type", "source", "office_id", "from", "to"];

/// Which events.
#[derive(Clone, Debug, Default, Args)]
pub struct EventFilter {
    /// Only this type, e.g. `payment_intent.succeeded`
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// Only this source, e.g. stripe
    #[arg(long)]
    pub source: Option<String>,

    /// Only events of this office
    #[arg(long, value_name = "ID")]
    pub office_id: Option<String>,

    /// Not before this moment (RFC 3339)
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    pub from: Option<Timestamp>,

    /// Not after this moment (RFC 3339)
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    pub to: Option<Timestamp>,
}

fn status(name: &str) -> Result<Status, String> {
    word(name, Status::parse, &["pending", "success", "failed", "skipped"])
}
