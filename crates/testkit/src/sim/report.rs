//! What a run has shown, for people.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::life::Play;
use super::log::{Violation, hex};
use super::stage::EPOCH;
use super::tally::Tally;
use super::{Options, Profile, run};

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Report {
    pub profile: Profile,
    pub seed: u64,
    /// SHA-256 over the whole trace, hexadecimal.
    pub trace_hash: String,
    pub trace_lines: u64,
    /// The last lines of the trace that are for people; all of them in a verbose run.
    pub story: Vec<String>,
    pub steps: u64,
    pub lives: u32,
    pub simulated: Duration,
    /// The kind of world it was.
    pub world: String,
    pub tallies: BTreeMap<Tally, u64>,
    pub violations: Vec<Violation>,
}

impl Report {
    pub(crate) fn new(play: &impl Play, profile: Profile, lives: u32) -> Self {
        let stage = play.stage();
        let closed = stage.log.close();
        Self {
            profile,
            seed: stage.seed,
            trace_hash: closed.hash,
            trace_lines: closed.lines,
            story: closed.last,
            steps: stage.steps_taken(),
            lives,
            simulated: stage.now().since(EPOCH),
            world: play.world(),
            tallies: closed.tallies,
            violations: closed.violations,
        }
    }

    #[must_use]
    pub fn tally(&self, what: Tally) -> u64 {
        self.tallies.get(&what).copied().unwrap_or(0)
    }

    /// Payments that exist at the end of the run.
    #[must_use]
    pub fn payments(&self) -> u64 {
        Tally::ENDED.into_iter().map(|ended| self.tally(ended)).sum()
    }

    /// Messages that exist at the end of the run.
    #[must_use]
    pub fn messages(&self) -> u64 {
        Tally::ENDED_MESSAGES.into_iter().map(|ended| self.tally(ended)).sum()
    }

    /// Reservations that exist at the end of the run.
    #[must_use]
    pub fn reservations(&self) -> u64 {
        Tally::ENDED_RESERVATIONS.into_iter().map(|ended| self.tally(ended)).sum()
    }

    /// Writes the report; its last line is `trace <hex>`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_head(out)?;
        for (what, count) in &self.tallies {
            writeln!(out, "  {count:>7}  {what}")?;
        }
        self.print_violations(out)?;
        writeln!(out, "trace {}", self.trace_hash)
    }

    fn print_head(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { seed, steps, lives, world, trace_lines, .. } = self;
        let minutes = self.simulated.as_secs() / 60;
        let end = match self.violations.len() {
            0 => "all promises kept".to_owned(),
            n => format!("{n} PROMISES BROKEN"),
        };
        writeln!(
            out,
            "seed {seed}: {end}; {steps} steps, {lives} lives, {minutes} simulated minutes, \
             {trace_lines} trace lines; {world}"
        )
    }

    fn print_violations(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.violations.is_empty() {
            return Ok(());
        }
        writeln!(out, "the last steps of seed {}:", self.seed)?;
        for line in &self.story {
            writeln!(out, "  {line}")?;
        }
        for violation in &self.violations {
            writeln!(out, "broken: {violation}")?;
        }
        let Self { profile, seed, steps, .. } = self;
        let profile = profile.as_str();
        writeln!(out, "again: tashika sim --profile {profile} --seed {seed} --steps {steps}")
    }
}

/// What `tashika sim` does. Returns the exit code: 0 if every promise was kept, 1 if one was broken,
/// 2 if the machine did not let it run or print.
pub fn main(options: &Options, out: &mut dyn Write) -> i32 {
    match try_main(options, out) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            // The output may be what is broken.
            writeln!(out, "the simulation could not run: {error:#}").ok();
            2
        }
    }
}

fn try_main(options: &Options, out: &mut dyn Write) -> anyhow::Result<bool> {
    if options.runs <= 1 {
        let report = run(options)?;
        if options.verbose && report.violations.is_empty() {
            for line in &report.story {
                writeln!(out, "{line}")?;
            }
        }
        report.print(out)?;
        return Ok(report.violations.is_empty());
    }
    let mut hash = Sha256::new();
    let mut totals: BTreeMap<Tally, u64> = BTreeMap::new();
    let mut broken = Vec::new();
    for seed in options.seed..options.seed.saturating_add(options.runs) {
        let report = run(&Options { seed, verbose: false, ..options.clone() })?;
        if options.verbose {
            report.print_head(out)?;
        }
        report.print_violations(out)?;
        hash.update(report.trace_hash.as_bytes());
        for (what, count) in &report.tallies {
            *totals.entry(*what).or_default() += count;
        }
        if !report.violations.is_empty() {
            broken.push(seed);
        }
    }
    let Options { seed, runs, steps, .. } = options;
    writeln!(out, "{runs} runs from seed {seed}, {steps} steps each: {} broken", broken.len())?;
    for (what, count) in &totals {
        writeln!(out, "  {count:>9}  {what}")?;
    }
    if !broken.is_empty() {
        writeln!(out, "broken seeds: {broken:?}")?;
    }
    writeln!(out, "trace {}", hex(&hash.finalize()))?;
    Ok(broken.is_empty())
}
