//! Arguments of `tashika dlq`.

use clap::{Args, Subcommand};
use tashika_domain::Timestamp;
use uuid::Uuid;

use super::shared::{id, moment};

/// Arguments of `tashika dlq`: look at dead letters, send them again, remove them
#[derive(Clone, Debug, Args)]
pub struct DlqArgs {
    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: DlqCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, newest first
    List {
        #[command(flatten)]
        filter: LetterFilter,

        /// Most dead letters to list
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,

        /// Continue after the last page (the `cursor` it ended with)
        #[arg(long, value_parser = id)]
        cursor: Option<Uuid>,
    },

    /// Show one dead letter: what was sent, and the last answer
    Show {
        /// The dead letter's id (`dlqId`)
        id: String,
    },

    /// Send dead letters again, each as a new message
    #[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]))]
    Retry {
        /// The dead letters, by id (`dlqId`)
        #[arg(conflicts_with_all = FILTERS)]
        ids: Vec<String>,

        /// Every dead letter that the filters match; without filters, all but Tashika's own
        #[arg(long)]
        all: bool,

        #[command(flatten)]
        filter: LetterFilter,
    },

    /// Remove dead letters; they are not sent any more
    #[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]))]
    Delete {
        /// The dead letters, by id (`dlqId`)
        #[arg(conflicts_with_all = FILTERS)]
        ids: Vec<String>,

        /// Every dead letter that the filters match; without filters, all but Tashika's own
        #[arg(long)]
        all: bool,

        #[command(flatten)]
        filter: LetterFilter,

        /// Do not ask; needed where there is no terminal to ask at
        #[arg(long, short)]
        yes: bool,
    },
}

/// Whoever names letters by their ids needs no filter, and one beside them would be ignored.
const FILTERS: [&str; 11] = [
    "url",
    "host",
    "path",
    "queue",
    "topic",
    "schedule",
    "label",
    "flow_control_key",
    "response_status",
    "from",
    "to",
];

/// Which dead letters. A filter may be repeated: any of its values fits.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct LetterFilter {
    /// Only letters to this URL
    #[arg(long)]
    pub url: Vec<String>,

    /// Only letters to this host
    #[arg(long)]
    pub host: Vec<String>,

    /// Only letters to this path
    #[arg(long)]
    pub path: Vec<String>,

    /// Only letters of this queue
    #[arg(long, value_name = "NAME")]
    pub queue: Vec<String>,

    /// Only letters of this URL group
    #[arg(long, value_name = "NAME")]
    pub topic: Vec<String>,

    /// Only letters of this schedule
    #[arg(long, value_name = "ID")]
    pub schedule: Vec<String>,

    /// Only letters with this label
    #[arg(long)]
    pub label: Vec<String>,

    /// Only letters under this flow control key
    #[arg(long, value_name = "KEY")]
    pub flow_control_key: Vec<String>,

    /// Only letters that were last answered with this status; 0 is no answer
    #[arg(long, value_name = "STATUS")]
    pub response_status: Vec<u16>,

    /// Only letters that died at this moment or later (RFC 3339)
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    pub from: Option<Timestamp>,

    /// Only letters that died at this moment or earlier (RFC 3339)
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    pub to: Option<Timestamp>,
}
