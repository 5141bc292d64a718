//! Arguments of `tashika cases`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tashika_domain::case::CaseStatus;
use uuid::Uuid;

use super::shared::{ByArgs, PageArgs, id, word};

/// Arguments of `tashika cases`: look at what software could not decide, and decide it
#[derive(Clone, Debug, Args)]
pub struct CasesArgs {
    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: CasesCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum CasesCommand {
    /// List cases, newest first
    List {
        /// Only this status: open or resolved
        #[arg(long, value_parser = status)]
        status: Option<CaseStatus>,

        /// Only this kind, e.g. `payment_unknown`
        #[arg(long)]
        kind: Option<String>,

        /// Only cases about things of this type, e.g. payment
        #[arg(long, value_name = "TYPE")]
        subject_type: Option<String>,

        /// Only cases about this thing
        #[arg(long, value_name = "ID")]
        subject_id: Option<String>,

        #[command(flatten)]
        page: PageArgs,
    },

    /// Show a case: what happened, what was tried, and what may be done now
    Show {
        #[arg(value_parser = id)]
        id: Uuid,
    },

    /// Decide a case with one of the actions that `show` offers
    Decide {
        #[arg(value_parser = id)]
        id: Uuid,

        /// One of the case's actions
        action: String,

        /// Why; kept with the case and in the audit log
        #[arg(long, default_value = "")]
        note: String,

        /// What the broker says about an order's execution, as JSON (`order_ref`, `fills`, `cost`)
        #[arg(long, value_name = "PATH")]
        execution: Option<PathBuf>,

        /// Do not ask; needed where there is no terminal to ask at
        #[arg(long, short)]
        yes: bool,

        #[command(flatten)]
        by: ByArgs,
    },
}

fn status(name: &str) -> Result<CaseStatus, String> {
    word(name, CaseStatus::parse, &["open", "resolved"])
}
