//! Arguments of `tashika demo`.

use clap::{Args, ValueEnum};

/// Arguments of `tashika demo`: start a small world in which answers get lost, and watch what becomes of them
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArgs {
    /// Port of the console on 127.0.0.1; another one is taken if it is in use
    #[arg(long, default_value_t = 8080)]
    pub port: u16,

    /// End by itself after so many seconds, instead of at Ctrl-C
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,

    /// Decides what customers do and what goes wrong
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Keep the database, and say where it is
    #[arg(long)]
    pub keep: bool,

    /// Show the console in a browser: `auto` does so where a person and a browser are
    #[arg(long, value_enum, default_value_t = Open::Auto, default_missing_value = "always",
        num_args = 0..=1, require_equals = true, value_name = "WHEN")]
    pub open: Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Open {
    Auto,
    Always,
    Never,
}
