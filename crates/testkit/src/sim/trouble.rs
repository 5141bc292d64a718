//! What goes wrong, and how often: between us and the other side, and in our own process.

use std::time::Duration;

use super::dice::{Odds, Stream};
use super::mix::{Fault, Mix};

/// How long the engine's side waits for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(2500);

/// What goes wrong between us and the other side, and over there.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub unreachable: Odds,
    pub request_lost: Odds,
    pub arrives_late: Odds,
    pub duplicated: Odds,
    pub busy: Odds,
    pub refused: Odds,
    /// The other side takes the request and is not done with it for a while.
    pub working: Odds,
    pub reply_lost: Odds,
    pub reply_late: Odds,
    pub server_error: Odds,
    pub status_lost: Odds,
    pub status_busy: Odds,
    /// The longest a request stays in the network after its caller has given up.
    pub linger_ms: u64,
}

/// What goes wrong in our own process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub crash_at_commit: Odds,
    /// Rare: most writes of the machinery itself are polls that find nothing.
    pub crash_at_upkeep: Odds,
    pub crash_in_call: Odds,
    /// Processes on one database: the first takes requests and sends them, the others only send.
    pub nodes: usize,
    /// Of the deaths of a node that only sends, how many are its own and nobody else's.
    pub dies_alone: Odds,
    /// How far the clock of a node that only sends may be off when it starts, in milliseconds; and how
    /// much faster or slower it may go, in parts per million.
    pub skew_ms: u64,
    pub drift_ppm: u64,
    /// The database refuses a write.
    pub disk_full: Odds,
    /// Nobody hears whether a write was made. It was, or was not.
    pub write_unknown: Odds,
    /// A process has other settings than the one before it.
    pub upgrade: Odds,
    /// After so many lives nobody dies or stops any more.
    pub lives_max: u32,
    /// A node cannot reach its database for a while.
    pub stall: Odds,
    /// For a short while, and for about as long as a lease, in milliseconds.
    pub stalls: [(u64, u64); 2],
    /// Per step.
    pub stop: Odds,
    pub downtime_max_ms: u64,
    /// In a container every life has the same host name and process id.
    pub same_name: bool,
}

impl Network {
    pub fn draw(dice: &mut Stream, linger_ms: u64) -> Self {
        Self {
            unreachable: dice.odds(Odds::percent(10)),
            request_lost: dice.odds(Odds::percent(10)),
            arrives_late: dice.odds(Odds::percent(15)),
            duplicated: dice.odds(Odds::percent(15)),
            busy: dice.odds(Odds::percent(20)),
            refused: dice.odds(Odds::percent(8)),
            working: dice.odds(Odds::percent(8)),
            reply_lost: dice.odds(Odds::percent(25)),
            reply_late: dice.odds(Odds::percent(15)),
            server_error: dice.odds(Odds::percent(10)),
            status_lost: dice.odds(Odds::percent(25)),
            status_busy: dice.odds(Odds::percent(15)),
            linger_ms,
        }
    }

    /// Takes a kind of trouble away.
    pub const fn without(&mut self, fault: Fault) {
        let odds = match fault {
            Fault::Unreachable => &mut self.unreachable,
            Fault::RequestLost => &mut self.request_lost,
            Fault::ArrivesLate => &mut self.arrives_late,
            Fault::Duplicated => &mut self.duplicated,
            Fault::Busy => &mut self.busy,
            Fault::Refused => &mut self.refused,
            Fault::Working => &mut self.working,
            Fault::ReplyLost => &mut self.reply_lost,
            Fault::ReplyLate => &mut self.reply_late,
            Fault::ServerError => &mut self.server_error,
            Fault::StatusLost => &mut self.status_lost,
            Fault::StatusBusy => &mut self.status_busy,
            _ => return,
        };
        *odds = Odds::NEVER;
    }
}

impl Process {
    pub fn draw(dice: &mut Stream, lease_ms: u64) -> Self {
        Self {
            crash_at_commit: dice.odds(Odds::percent(2)),
            crash_at_upkeep: dice.odds(Odds::millionth(400)),
            crash_in_call: dice.odds(Odds::percent(3)),
            nodes: *dice.pick(&[1, 2, 3]),
            dies_alone: Odds::percent(80),
            skew_ms: *dice.pick(&[0, 50, 800]),
            drift_ppm: *dice.pick(&[0, 100, 500]),
            disk_full: dice.odds(Odds::millionth(4000)),
            write_unknown: dice.odds(Odds::millionth(4000)),
            upgrade: dice.odds(Odds::percent(60)),
            lives_max: u32::MAX,
            stall: dice.odds(Odds::percent(6)),
            // What was held when a long one began may have lapsed when it ends.
            stalls: [(500, 5000), (lease_ms * 3 / 4, lease_ms * 5 / 4)],
            stop: dice.odds(Odds::percent(3)),
            downtime_max_ms: *dice.pick(&[500, 20_000, lease_ms * 2]),
            same_name: dice.hit(Odds::percent(50)),
        }
    }

    /// Takes a kind of trouble away.
    pub const fn without(&mut self, fault: Fault) {
        let odds = match fault {
            Fault::CrashAtCommit => &mut self.crash_at_commit,
            Fault::CrashAtUpkeep => &mut self.crash_at_upkeep,
            Fault::CrashInCall => &mut self.crash_in_call,
            Fault::NodeDeath => &mut self.dies_alone,
            Fault::Stall => &mut self.stall,
            Fault::Stop => &mut self.stop,
            Fault::DiskFull => &mut self.disk_full,
            Fault::WriteUnknown => &mut self.write_unknown,
            Fault::Upgrade => &mut self.upgrade,
            Fault::Drift => {
                (self.skew_ms, self.drift_ppm) = (0, 0);
                return;
            }
            _ => return,
        };
        *odds = Odds::NEVER;
    }

    /// Fewer nodes and lives than were drawn.
    pub fn restrict(&mut self, mix: &Mix) {
        self.nodes = mix.nodes.map_or(self.nodes, |most| self.nodes.min(most.max(1)));
        self.lives_max = mix.lives.unwrap_or(self.lives_max);
    }

    /// How far two clocks may be apart at most: a process does not live for longer than some hours.
    pub const fn clock_error(&self) -> Duration {
        Duration::from_millis(self.skew_ms + self.drift_ppm * 8)
    }

    /// How far the clock of a node is off when it starts (in milliseconds, from `-skew_ms`), and how
    /// it goes.
    pub fn clock(&self, dice: &mut Stream) -> (i64, i32) {
        let around = |dice: &mut Stream, most: u64| {
            let most = i64::try_from(most).unwrap_or(0);
            i64::try_from(dice.below(most.unsigned_abs() * 2 + 1)).unwrap_or(0) - most
        };
        let (skew, drift) = (around(dice, self.skew_ms), around(dice, self.drift_ppm));
        (skew, i32::try_from(drift).unwrap_or(0))
    }
}

/// What every error of the simulated disk says, and nobody else.
pub(crate) const DISK: &str = "the simulated disk";

/// Whether an error, or an answer with one, comes from the simulated disk: then nothing was promised,
/// and whoever hears it may try again.
pub(crate) fn is_of_the_disk(text: &str) -> bool {
    text.contains(DISK)
}
