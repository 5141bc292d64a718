//! How a promise was broken, told to people.
//!
//! First what happened to the one thing that the promise was about, from its beginning, together with
//! what happened to everybody (deaths, stalls, restarts, the disk); then the last steps of the whole run.
//! Times are hours, minutes and seconds of simulated time since the run began.

use std::io::{self, Write};

use super::report::Report;

/// Lines about one thing, and lines of the end.
const ABOUT_MAX: usize = 80;
const LAST_MAX: usize = 25;
/// How lines about everybody begin, after the time.
const EVERYBODY: [&str; 5] = ["node ", "life ", "process ", "stopped", "from here on"];

pub(crate) fn tell(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(violation) = report.violations.first() else { return Ok(()) };
    let key = violation.key.as_str();
    if !key.is_empty() {
        let about: Vec<&String> = report
            .story
            .iter()
            .filter(|line| line.contains(key) || is_of_everybody(line))
            .collect();
        writeln!(out, "the story of {key}:")?;
        print(&about, ABOUT_MAX, out)?;
    }
    writeln!(out, "the last steps:")?;
    print(&report.story.iter().collect::<Vec<_>>(), LAST_MAX, out)
}

/// Of a node only what happens to it, not what it says to others.
fn is_of_everybody(line: &str) -> bool {
    let Some((_, text)) = line.split_once(' ') else { return false };
    let speaks = ["sends", "hears", "asks", "delivers"].iter().any(|word| text.contains(word));
    EVERYBODY.iter().any(|word| text.starts_with(word)) && !speaks
}

fn print(lines: &[&String], most: usize, out: &mut dyn Write) -> io::Result<()> {
    if lines.len() > most {
        writeln!(out, "  ({} lines before)", lines.len() - most)?;
    }
    for line in &lines[lines.len().saturating_sub(most)..] {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
