//! Arguments of `tashika top`, and of the commands that print files for the shell.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `tashika top`: what flows, waits and needs somebody, every second
#[derive(Clone, Copy, Debug, Args)]
pub struct TopArgs {
    /// Print what is to be seen now, and end; the rule where there is no terminal
    #[arg(long)]
    pub once: bool,

    /// As JSON, for programs; once
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tashika completions`
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionsArgs {
    /// Your shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Shells that can be helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `tashika man`
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write one page per command into this folder, instead of printing the first
    #[arg(long, value_name = "PATH")]
    pub dir: Option<PathBuf>,
}
