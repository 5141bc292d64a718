//! What a run has shown, for people.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::coverage::{self, Taken};
use super::life::Play;
use super::log::{Violation, hex};
use super::stage::{EPOCH, lock};
use super::tally::Tally;
use super::{Options, Profile, run, shrink, story};

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
    /// The transitions that were taken.
    pub taken: Taken,
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
            taken: lock(&stage.coverage).taken.clone(),
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

    /// Writes the report, all but its last line, `trace <hex>`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_head(out)?;
        for (what, count) in &self.tallies {
            writeln!(out, "  {count:>7}  {what}")?;
        }
        self.print_violations(out)
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
        story::tell(self, out)?;
        for violation in &self.violations {
            writeln!(out, "broken: {violation}")?;
        }
        let Self { profile, seed, steps, .. } = self;
        let profile = profile.as_str();
        writeln!(out, "again: tashika sim --profile {profile} --seed {seed} --steps {steps}")
    }
}

/// What `tashika sim` is asked for, beside the run itself.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Which worlds; each gets all the seeds.
    pub profiles: Vec<Profile>,
    /// Runs at the same time.
    pub jobs: usize,
    /// Print which transitions were taken.
    pub coverage: bool,
    /// Make a run that breaks a promise smaller.
    pub shrink: bool,
}

impl Asked {
    /// One world, one run at a time.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        Self { profiles: vec![profile], jobs: 1, coverage: false, shrink: true }
    }
}

/// What `tashika sim` does. Returns the exit code: 0 if every promise was kept, 1 if one was broken,
/// 2 if the machine did not let it run or print.
pub fn main(options: &Options, asked: &Asked, out: &mut dyn Write) -> i32 {
    match try_main(options, asked, out) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            // The output may be what is broken.
            writeln!(out, "the simulation could not run: {error:#}").ok();
            2
        }
    }
}

fn try_main(options: &Options, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<bool> {
    match asked.profiles[..] {
        [profile] if options.runs <= 1 => {
            run_one(&Options { profile, ..options.clone() }, asked, out)
        }
        _ => run_many(options, asked, out),
    }
}

fn run_one(options: &Options, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<bool> {
    let report = run(options)?;
    if options.verbose && report.violations.is_empty() {
        for line in &report.story {
            writeln!(out, "{line}")?;
        }
    }
    report.print(out)?;
    if asked.shrink {
        make_smaller(options, &report, out)?;
    }
    if asked.coverage {
        coverage::print(&report.taken, out)?;
    }
    writeln!(out, "trace {}", report.trace_hash)?;
    Ok(report.violations.is_empty())
}

/// Tells how a promise is broken in the smallest run that breaks it.
fn make_smaller(options: &Options, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    if report.violations.is_empty() {
        return Ok(());
    }
    writeln!(out, "making it smaller ...")?;
    let Some(smaller) = shrink(options, report)? else {
        writeln!(out, "it did not happen again: the run is not a function of its seed")?;
        return Ok(());
    };
    let shrink::Shrunk { options, report, tries } = smaller;
    let steps = options.steps - (options.mix.skip.len() as u64).min(options.steps);
    let lives = report.lives;
    writeln!(out, "after {tries} runs: the same with {steps} steps and {lives} lives")?;
    story::tell(&report, out)?;
    for violation in &report.violations {
        writeln!(out, "broken: {violation}")?;
    }
    let Options { profile, seed, steps, mix, .. } = &options;
    let (profile, mix) = (profile.as_str(), mix.arguments());
    writeln!(out, "again: tashika sim --profile {profile} --seed {seed} --steps {steps}{mix}")?;
    Ok(())
}

/// What many runs have shown together.
#[derive(Default)]
struct Sum {
    hash: Sha256,
    totals: BTreeMap<Tally, u64>,
    taken: Taken,
    broken: Vec<(Profile, u64)>,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.hash.update(report.trace_hash.as_bytes());
        for (what, count) in &report.tallies {
            *self.totals.entry(*what).or_default() += count;
        }
        coverage::add(&mut self.taken, &report.taken);
        if !report.violations.is_empty() {
            self.broken.push((report.profile, report.seed));
        }
    }
}

fn run_many(options: &Options, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<bool> {
    let mut sum = Sum::default();
    let Options { seed, runs, steps, .. } = *options;
    let all: Vec<Options> = (seed..seed.saturating_add(runs.max(1)))
        .flat_map(|seed| asked.profiles.iter().map(move |profile| (seed, *profile)))
        .map(|(seed, profile)| Options { seed, profile, verbose: false, ..options.clone() })
        .collect();
    side_by_side(&all, asked.jobs, |run_options, report| {
        if options.verbose {
            report.print_head(out)?;
        }
        report.print_violations(out)?;
        // The first is told in full; the others are most likely the same.
        if asked.shrink && sum.broken.is_empty() {
            make_smaller(run_options, &report, out)?;
        }
        sum.add(&report);
        Ok(())
    })?;
    let Sum { hash, totals, taken, broken } = sum;
    let names: Vec<&str> = asked.profiles.iter().map(|profile| profile.as_str()).collect();
    let (count, names) = (all.len(), names.join(", "));
    writeln!(
        out,
        "{count} runs of {names} from seed {seed}, {steps} steps each: {} broken",
        broken.len()
    )?;
    for (what, count) in &totals {
        writeln!(out, "  {count:>9}  {what}")?;
    }
    if asked.coverage {
        coverage::print(&taken, out)?;
    }
    for (profile, seed) in &broken {
        writeln!(out, "broken: --profile {} --seed {seed}", profile.as_str())?;
    }
    writeln!(out, "trace {}", hex(&hash.finalize()))?;
    Ok(broken.is_empty())
}

/// Runs everything, so many at the same time, and hands the reports over in order: runs share
/// nothing, not even time.
fn side_by_side(
    all: &[Options],
    jobs: usize,
    mut each: impl FnMut(&Options, Report) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (next, stopped, tell) = (&next, &stopped, tell.clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(options) = all.get(number) else { return };
                    // Nobody listens any more.
                    if stopped.load(Ordering::Relaxed) || tell.send((number, run(options))).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut waiting = BTreeMap::new();
        let mut turn = 0;
        let result = told.into_iter().try_for_each(|(number, report)| {
            waiting.insert(number, report);
            while let Some(report) = waiting.remove(&turn) {
                each(&all[turn], report?)?;
                turn += 1;
            }
            Ok(())
        });
        stopped.store(true, Ordering::Relaxed);
        result
    })
}
