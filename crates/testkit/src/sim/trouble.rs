//! What goes wrong, and how often: between us and the other side, and in our own process.

use std::time::Duration;

use super::dice::{Odds, Stream};

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
    /// Processes on one database: the first takes requests and sends them, a second one only sends.
    pub nodes: usize,
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
}

impl Process {
    pub fn draw(dice: &mut Stream, lease_ms: u64) -> Self {
        Self {
            crash_at_commit: dice.odds(Odds::percent(2)),
            crash_at_upkeep: dice.odds(Odds::millionth(400)),
            crash_in_call: dice.odds(Odds::percent(3)),
            nodes: *dice.pick(&[1, 2]),
            stall: dice.odds(Odds::percent(6)),
            // What was held when a long one began may have lapsed when it ends.
            stalls: [(500, 5000), (lease_ms * 3 / 4, lease_ms * 5 / 4)],
            stop: dice.odds(Odds::percent(3)),
            downtime_max_ms: *dice.pick(&[500, 20_000, lease_ms * 2]),
            same_name: dice.hit(Odds::percent(50)),
        }
    }
}
