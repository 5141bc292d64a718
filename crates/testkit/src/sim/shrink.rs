//! A broken promise, in the smallest run that still breaks it.
//!
//! Takes away from the run whatever it can do without, and keeps what still breaks the same promise:
//! first the steps after it, then kinds of trouble, nodes and lives, then single steps; again and
//! again until nothing more can go. Every try is a run, so their number is bounded, not the time.

use std::collections::BTreeSet;

use super::mix::Fault;
use super::report::Report;
use super::{Options, run};

/// Runs that shrinking may take.
const TRIES_MAX: u32 = 250;

/// A run that was made smaller.
#[derive(Clone, Debug)]
pub struct Shrunk {
    pub options: Options,
    /// Of the smaller run, with its whole story.
    pub report: Report,
    /// Runs that it took.
    pub tries: u32,
}

/// Shrinks a run that broke a promise. `None` if it did not, or not when it is repeated.
pub fn shrink(options: &Options, report: &Report) -> anyhow::Result<Option<Shrunk>> {
    let Some(violation) = report.violations.first() else { return Ok(None) };
    let first = Options { verbose: true, runs: 1, seed: report.seed, ..options.clone() };
    let first = Options { profile: report.profile, steps: report.steps.max(1), ..first };
    let again = run(&first)?;
    if !breaks(&again, violation.rule) {
        return Ok(None);
    }
    let mut shrinking = Shrinking { rule: violation.rule, best: first, report: again, tries: 1 };
    loop {
        let before = shrinking.size();
        shrinking.shorten()?;
        shrinking.simplify()?;
        shrinking.thin_out()?;
        if shrinking.size() == before || shrinking.tries >= TRIES_MAX {
            break;
        }
    }
    let Shrinking { best, report, tries, .. } = shrinking;
    Ok(Some(Shrunk { options: best, report, tries }))
}

fn breaks(report: &Report, rule: &str) -> bool {
    report.violations.first().is_some_and(|violation| violation.rule == rule)
}

struct Shrinking {
    rule: &'static str,
    best: Options,
    report: Report,
    tries: u32,
}

impl Shrinking {
    /// Steps, kinds of trouble that are left, lives: smaller is better.
    fn size(&self) -> (u64, usize, u32) {
        let Options { steps, mix, .. } = &self.best;
        let kinds = Fault::ALL.len() - mix.without.len();
        (steps - (mix.skip.len() as u64).min(*steps), kinds, self.report.lives)
    }

    /// Tries a smaller run; keeps it if it breaks the same promise.
    fn attempt(&mut self, change: impl FnOnce(&mut Options)) -> anyhow::Result<bool> {
        let mut smaller = self.best.clone();
        change(&mut smaller);
        if self.tries >= TRIES_MAX
            || (smaller.steps, &smaller.mix) == (self.best.steps, &self.best.mix)
        {
            return Ok(false);
        }
        self.tries += 1;
        let report = run(&smaller)?;
        if !breaks(&report, self.rule) {
            return Ok(false);
        }
        // Whatever comes after the violation is not needed.
        smaller.steps = report.steps.max(1);
        let steps = smaller.steps;
        smaller.mix.skip.retain(|step| *step <= steps);
        (self.best, self.report) = (smaller, report);
        Ok(true)
    }

    /// Ends earlier.
    fn shorten(&mut self) -> anyhow::Result<()> {
        for parts in [2, 4, 8] {
            loop {
                let cut = (self.best.steps / parts).max(1);
                let steps = self.best.steps.saturating_sub(cut).max(1);
                if !self.attempt(|options| options.steps = steps)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Fewer lives, fewer nodes, fewer kinds of trouble.
    fn simplify(&mut self) -> anyhow::Result<()> {
        let lives = self.report.lives;
        for fewer in [1, lives / 2, lives.saturating_sub(1)] {
            if fewer >= 1 && fewer < lives && self.attempt(|o| o.mix.lives = Some(fewer))? {
                break;
            }
        }
        for nodes in [1, 2] {
            let fewer = self.best.mix.nodes.is_none_or(|now| nodes < now);
            if fewer && self.attempt(|o| o.mix.nodes = Some(nodes))? {
                break;
            }
        }
        for fault in Fault::ALL {
            self.attempt(|options| {
                options.mix.without.insert(fault);
            })?;
        }
        Ok(())
    }

    /// Leaves steps out: halves of them, then quarters, down to single ones.
    fn thin_out(&mut self) -> anyhow::Result<()> {
        let mut size = (self.best.steps / 2).max(1);
        loop {
            let mut first = 1;
            while first <= self.best.steps {
                let chunk: BTreeSet<u64> = (first..first + size).collect();
                self.attempt(|options| options.mix.skip.extend(chunk))?;
                first += size;
            }
            if size == 1 || self.tries >= TRIES_MAX {
                return Ok(());
            }
            size /= 2;
        }
    }
}
