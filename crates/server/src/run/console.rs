//! `tashika console`: hashes of passwords, for `CONSOLE_USERS`.

use std::io::{BufRead, IsTerminal as _, Write};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::cli::args::{ConsoleArgs, ConsoleCommand};
use crate::password::{PASSWORD_MIN, PasswordHash};

pub fn console(
    args: ConsoleArgs,
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    match args.command {
        ConsoleCommand::Hash => hash(input, out),
    }
}

/// Reads a password; at a terminal twice, and unseen.
fn hash(input: &mut impl BufRead, out: &mut impl Write) -> anyhow::Result<()> {
    let asked = std::io::stdin().is_terminal();
    let hidden = asked.then(Hidden::begin);
    if asked {
        eprint!("Password: ");
    }
    let password = line(input)?;
    if asked {
        eprint!("\nOnce more: ");
        ensure!(line(input)? == password, "the two passwords differ");
        eprintln!();
    }
    drop(hidden);
    ensure!(
        password.chars().count() >= PASSWORD_MIN,
        "a password needs at least {PASSWORD_MIN} characters"
    );
    let hash = PasswordHash::make(&password).context("the system has no randomness to give")?;
    writeln!(out, "{}", hash.text())?;
    Ok(())
}

fn line(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line).context("reading the password")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal that does not show what is typed, until this goes.
struct Hidden;

impl Hidden {
    fn begin() -> Self {
        echo("-echo");
        Self
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        echo("echo");
    }
}

/// The terminal's own program knows how; without it the password is seen while it is typed.
fn echo(how: &str) {
    let said = Command::new("stty").arg(how).stdin(Stdio::inherit()).stderr(Stdio::null()).status();
    if !said.is_ok_and(|status| status.success()) {
        eprintln!("(what you type can be seen)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_becomes_a_hash_that_fits_it() {
        let mut out = Vec::new();
        line_of("correct horse battery\n", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let hash = PasswordHash::parse(text.trim()).unwrap();
        assert!(hash.fits("correct horse battery"));
        assert!(!text.contains("horse"));
        let error = line_of("short\n", &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("12"), "{error}");
    }

    fn line_of(text: &str, out: &mut Vec<u8>) -> anyhow::Result<()> {
        // Tests have no terminal.
        hash(&mut text.as_bytes(), out)
    }
}
