//! Arguments of `tashika payments`.

use clap::{Args, Subcommand};
use tashika_domain::payment::Status;
use uuid::Uuid;

use super::shared::{PageArgs, id, word};

/// Arguments of `tashika payments`: look at payments, ask the gateway, capture, void, refund
#[derive(Clone, Debug, Args)]
pub struct PaymentsArgs {
    /// As JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: PaymentsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum PaymentsCommand {
    /// List payments, newest first
    List {
        /// Only this status: PENDING, AUTHORIZED, CAPTURED, REFUNDED or FAILED
        #[arg(long, value_parser = status)]
        status: Option<Status>,

        /// Only payments whose outcome is being asked about (true) or is not (false)
        #[arg(long, value_name = "BOOL")]
        pending_verification: Option<bool>,

        /// Only payments for this booking
        #[arg(long, value_name = "ID")]
        booking_id: Option<String>,

        /// Only payments of this user
        #[arg(long, value_name = "ID")]
        user_id: Option<String>,

        #[command(flatten)]
        page: PageArgs,
    },

    /// Show a payment with everything that happened to it
    Show {
        #[arg(value_parser = id)]
        id: Uuid,
    },

    /// Ask the gateway now about everything that is in doubt; nothing is repeated there
    Verify {
        #[arg(value_parser = id)]
        id: Uuid,
    },

    /// Take the money, or part of it
    Capture {
        #[arg(value_parser = id)]
        id: Uuid,

        /// Minor units; everything unless given
        #[arg(long)]
        amount: Option<i64>,

        #[command(flatten)]
        once: OnceArgs,
    },

    /// Release the authorization
    Void {
        #[arg(value_parser = id)]
        id: Uuid,

        #[command(flatten)]
        once: OnceArgs,
    },

    /// Give money back, all that is left or part of it
    Refund {
        #[arg(value_parser = id)]
        id: Uuid,

        /// Minor units; all that is left unless given
        #[arg(long)]
        amount: Option<i64>,

        /// Why
        #[arg(long)]
        reason: Option<String>,

        #[command(flatten)]
        once: OnceArgs,
    },
}

/// What makes it safe to repeat a command that moves money.
#[derive(Clone, Debug, Args)]
pub struct OnceArgs {
    /// The idempotency key: the same key again moves nothing twice
    #[arg(long)]
    pub key: String,

    /// Do not ask; needed where there is no terminal to ask at
    #[arg(long, short)]
    pub yes: bool,
}

fn status(name: &str) -> Result<Status, String> {
    word(name, Status::parse, &["PENDING", "AUTHORIZED", "CAPTURED", "REFUNDED", "FAILED"])
}
