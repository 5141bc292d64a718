//! `tashika completions` and `tashika man`: files for the shell, made from the commands themselves.

use std::io::Write;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::{Shell as Generator, generate};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::cli::top::{CompletionsArgs, ManArgs, Shell};

pub fn completions(args: CompletionsArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let shell = match args.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    // In memory first: the generator panics where a pipe is closed.
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "tashika", &mut script);
    Ok(out.write_all(&script)?)
}

pub fn man(args: &ManArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(folder) = &args.dir else {
        let mut page = Vec::new();
        Man::new(Cli::command().disable_help_subcommand(true)).render(&mut page)?;
        return Ok(out.write_all(&page)?);
    };
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    // One page for each command, found as `man tashika-cases-decide`.
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| folder.display().to_string())?;
    Ok(writeln!(out, "wrote the pages to {}", folder.display())?)
}
