//! Arguments of `tashika mail`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tashika_domain::mail::Locale;

/// Arguments of `tashika mail`: look at what mails say
#[derive(Clone, Debug, Args)]
pub struct MailArgs {
    /// Folder with templates of your own, checked as at start-up
    #[arg(long, global = true, env = "MAIL_TEMPLATES_DIR", value_name = "PATH")]
    pub templates: Option<PathBuf>,

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
}

fn locale(text: &str) -> Result<Locale, String> {
    text.parse::<Locale>().map_err(|error| error.to_string())
}
