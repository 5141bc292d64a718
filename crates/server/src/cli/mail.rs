//! Arguments of `tashika mail`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tashika_domain::mail::{Locale, Status};
use uuid::Uuid;

use super::shared::{ByArgs, PageArgs, id, word};

/// Arguments of `tashika mail`: what mails say, what became of them, and the lane they leave by
#[derive(Clone, Debug, Args)]
pub struct MailArgs {
    /// Folder with templates of your own, checked as at start-up
    #[arg(long, global = true, env = "MAIL_TEMPLATES_DIR", value_name = "PATH")]
    pub templates: Option<PathBuf>,

    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: MailCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum MailCommand {
    /// List the templates, their languages and what they want to know
    Templates,

    /// Print a mail as it would be sent, without sending it
    Preview {
        /// The template's name
        template: String,

        /// The language: ja or en; the template's first unless given
        #[arg(long, value_parser = locale)]
        locale: Option<Locale>,

        /// What the template wants to know, as JSON; its sample unless given
        #[arg(long, value_name = "FILE")]
        data: Option<PathBuf>,

        /// Only the HTML, e.g. for a browser
        #[arg(long, conflicts_with = "text")]
        html: bool,

        /// Only the text
        #[arg(long)]
        text: bool,
    },

    /// List mails, newest first: was it sent?
    List {
        /// Only mails to this address
        #[arg(long, value_name = "ADDRESS")]
        to: Option<String>,

        /// Only mails of this batch
        #[arg(long, value_name = "ID", value_parser = id)]
        batch: Option<Uuid>,

        /// Only this status: queued, sent, failed, possiblySent or cancelled
        #[arg(long, value_parser = status)]
        status: Option<Status>,

        #[command(flatten)]
        page: PageArgs,
    },

    /// Show one mail with every attempt
    Show {
        #[arg(value_parser = id)]
        id: Uuid,
    },

    /// Look at batches and act on them
    Batches {
        #[command(subcommand)]
        command: BatchesCommand,
    },

    /// Show whether mails leave, and what is left of the quota
    Lane,

    /// Open the lane again that was parked or stopped
    Resume {
        #[command(flatten)]
        by: ByArgs,
    },

    /// Look into the sandbox's inbox: what would have been sent
    Inbox {
        /// Only mails to this address
        #[arg(long, value_name = "ADDRESS")]
        to: Option<String>,

        #[command(flatten)]
        page: PageArgs,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum BatchesCommand {
    /// List batches with how far they have come, newest first
    List {
        #[command(flatten)]
        page: PageArgs,
    },

    /// Show one batch, with the newest of its failures
    Show {
        #[arg(value_parser = id)]
        id: Uuid,
    },

    /// List what failed of a batch
    Failures {
        #[arg(value_parser = id)]
        id: Uuid,

        /// failed, or possiblySent for what may have arrived
        #[arg(long, default_value = "failed", value_parser = failure)]
        status: Status,

        #[command(flatten)]
        page: PageArgs,
    },

    /// Cancel what a batch has not sent yet
    Cancel {
        #[arg(value_parser = id)]
        id: Uuid,

        /// Do not ask; needed where there is no terminal to ask at
        #[arg(long, short)]
        yes: bool,

        #[command(flatten)]
        by: ByArgs,
    },

    /// Try again what failed of a batch
    Retry {
        #[arg(value_parser = id)]
        id: Uuid,

        /// What to try again: failed, possiblySent (may arrive twice), cancelled; may be repeated
        #[arg(long = "status", value_name = "STATUS", default_value = "failed", value_parser = retried)]
        statuses: Vec<Status>,

        #[command(flatten)]
        by: ByArgs,
    },
}

fn status(text: &str) -> Result<Status, String> {
    word(text, Status::parse_public, &Status::ALL.map(Status::public))
}

/// One of some statuses.
fn one_of(text: &str, some: &[Status]) -> Result<Status, String> {
    let known: Vec<&str> = some.iter().map(|status| status.public()).collect();
    word(text, |text| Status::parse_public(text).filter(|found| some.contains(found)), &known)
}

fn failure(text: &str) -> Result<Status, String> {
    one_of(text, &[Status::Failed, Status::PossiblySent])
}

fn retried(text: &str) -> Result<Status, String> {
    one_of(text, &[Status::Failed, Status::PossiblySent, Status::Cancelled])
}

fn locale(text: &str) -> Result<Locale, String> {
    text.parse::<Locale>().map_err(|error| error.to_string())
}
