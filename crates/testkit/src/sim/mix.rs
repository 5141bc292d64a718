//! What a run is made of, as data: which kinds of trouble it may have, how many nodes and lives, and
//! which steps.
//!
//! The seed draws all of it. A [`Mix`] takes away from what was drawn, and adds nothing: a run with a
//! part of its troubles is otherwise the same run, because every kind of trouble has its own chance.
//! That is what shrinking works with, and what `--without`, `--nodes`, `--lives` and `--skip` say.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A kind of trouble, in all worlds that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    // Between us and the other side, and over there.
    Unreachable,
    RequestLost,
    ArrivesLate,
    Duplicated,
    Busy,
    Refused,
    Working,
    ReplyLost,
    ReplyLate,
    ServerError,
    StatusLost,
    StatusBusy,
    /// The other side says what is not so.
    Lies,
    /// It takes its time, or is away for minutes.
    Slow,
    Outages,
    /// Its webhooks: late, twice, unheard, strange; refunds that come back.
    Webhooks,
    Bounces,
    /// A mail server that slows us down, has had enough for today, or does not let us in.
    Throttled,
    Quota,
    Misconfigured,
    // In our own processes.
    CrashAtCommit,
    CrashAtUpkeep,
    CrashInCall,
    /// A node that dies alone.
    NodeDeath,
    Stall,
    Stop,
    /// Clocks of nodes that differ.
    Drift,
    /// A database that refuses to write, or does not say whether it has.
    DiskFull,
    WriteUnknown,
    /// Other settings after a restart.
    Upgrade,
    // People.
    Impatient,
    Person,
}

impl Fault {
    pub const ALL: [Self; 32] = [
        Self::Unreachable,
        Self::RequestLost,
        Self::ArrivesLate,
        Self::Duplicated,
        Self::Busy,
        Self::Refused,
        Self::Working,
        Self::ReplyLost,
        Self::ReplyLate,
        Self::ServerError,
        Self::StatusLost,
        Self::StatusBusy,
        Self::Lies,
        Self::Slow,
        Self::Outages,
        Self::Webhooks,
        Self::Bounces,
        Self::Throttled,
        Self::Quota,
        Self::Misconfigured,
        Self::CrashAtCommit,
        Self::CrashAtUpkeep,
        Self::CrashInCall,
        Self::NodeDeath,
        Self::Stall,
        Self::Stop,
        Self::Drift,
        Self::DiskFull,
        Self::WriteUnknown,
        Self::Upgrade,
        Self::Impatient,
        Self::Person,
    ];

    /// The name on the command line: `ReplyLost` is `reply-lost`.
    #[must_use]
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

/// What is taken away from the run that a seed gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    pub without: BTreeSet<Fault>,
    /// At most so many nodes.
    pub nodes: Option<usize>,
    /// After so many lives nobody dies or stops any more.
    pub lives: Option<u32>,
    /// Steps at which nobody acts.
    pub skip: BTreeSet<u64>,
}

impl Mix {
    /// Takes everything that this mix is without away, by `take`.
    pub(crate) fn take_away(&self, take: impl FnMut(Fault)) {
        self.without.iter().copied().for_each(take);
    }

    /// As arguments of `tashika sim`; each with a space before it.
    #[must_use]
    pub fn arguments(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        if !self.without.is_empty() {
            let names: Vec<String> = self.without.iter().map(|fault| fault.name()).collect();
            write!(text, " --without {}", names.join(",")).ok();
        }
        if let Some(nodes) = self.nodes {
            write!(text, " --nodes {nodes}").ok();
        }
        if let Some(lives) = self.lives {
            write!(text, " --lives {lives}").ok();
        }
        if !self.skip.is_empty() {
            write!(text, " --skip {}", ranges(&self.skip)).ok();
        }
        text
    }
}

/// `1-4,7` for 1, 2, 3, 4 and 7.
fn ranges(numbers: &BTreeSet<u64>) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let word = |(first, last): &(u64, u64)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(word).collect::<Vec<_>>().join(",")
}

/// Reads what [`ranges`] writes.
#[must_use]
pub fn parse_ranges(text: &str) -> Option<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last - first > 1_000_000 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_can_be_read_again() {
        for fault in Fault::ALL {
            assert_eq!(Fault::parse(&fault.name()), Some(fault));
        }
        let skip = BTreeSet::from([1, 2, 3, 7, 9, 10]);
        assert_eq!(ranges(&skip), "1-3,7,9-10");
        assert_eq!(parse_ranges("1-3,7,9-10"), Some(skip.clone()));
        assert_eq!(parse_ranges("3-1"), None);
        assert_eq!(parse_ranges("x"), None);
        let without = BTreeSet::from([Fault::ReplyLost, Fault::Stall]);
        let mix = Mix { without, nodes: Some(1), lives: Some(2), skip };
        let words = " --without reply-lost,stall --nodes 1 --lives 2 --skip 1-3,7,9-10";
        assert_eq!(mix.arguments(), words);
        assert_eq!(Mix::default().arguments(), "");
    }
}
