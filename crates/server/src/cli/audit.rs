//! Arguments of `tashika audit`.

use clap::{Args, Subcommand};
use tashika_domain::Timestamp;

use super::shared::{PageArgs, moment};

/// Arguments of `tashika audit`: who did what, and whether the log is what was written
#[derive(Clone, Debug, Args)]
pub struct AuditArgs {
    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: AuditCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum AuditCommand {
    /// Search the log, newest first
    #[command(visible_alias = "search")]
    List {
        /// Only this action, e.g. case.resolved
        #[arg(long)]
        action: Option<String>,

        /// Only what was done to things of this type, e.g. payment
        #[arg(long, value_name = "TYPE")]
        target_type: Option<String>,

        /// Only what was done to this thing
        #[arg(long, value_name = "ID")]
        target_id: Option<String>,

        /// Only lines of this office
        #[arg(long, value_name = "ID")]
        office_id: Option<String>,

        /// Not before this moment (RFC 3339)
        #[arg(long, value_name = "MOMENT", value_parser = moment)]
        from: Option<Timestamp>,

        /// Not after this moment (RFC 3339)
        #[arg(long, value_name = "MOMENT", value_parser = moment)]
        to: Option<Timestamp>,

        #[command(flatten)]
        page: PageArgs,
    },

    /// Walk the chain of seals and name every line that was changed or removed
    Verify,
}
