//! Asking before something that cannot be taken back.

use std::io::{BufRead, IsTerminal as _, Write};

use anyhow::{Context as _, bail};

/// Goes on if the person says yes, or has said so before. Where nobody can be asked, it must have been
/// said before: a script that decides says `--yes`.
pub fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("nobody can be asked here: say --yes to go on without being asked");
    }
    // Standard output may be a file.
    answered(question, &mut stdin.lock(), &mut std::io::stderr())
}

fn answered(question: &str, input: &mut impl BufRead, out: &mut impl Write) -> anyhow::Result<()> {
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut line = String::new();
    input.read_line(&mut line).context("reading the answer")?;
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" | "はい" => Ok(()),
        _ => bail!("not confirmed: nothing was changed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let answer = |text: &str| answered("Sure?", &mut text.as_bytes(), &mut Vec::new());
        for yes in ["y\n", "YES\n", " yes ", "はい\n"] {
            assert!(answer(yes).is_ok(), "{yes}");
        }
        for no in ["", "\n", "n\n", "yes please\n", "ye\n"] {
            let error = answer(no).unwrap_err().to_string();
            assert!(error.contains("nothing was changed"), "{no}: {error}");
        }
    }
}
