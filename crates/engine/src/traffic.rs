//! Traffic to destinations: no destination takes more than its share, and one in trouble gets less.
//!
//! Kept by one process for its own deliveries, in memory: it decides when a message is attempted, never
//! whether. A message that cannot go now is put off to about the time when there will be room for it,
//! so that a long line for one destination is looked at rarely and stands in nobody's way. One that comes to
//! a long line stands behind it from the beginning.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_domain::Timestamp;

/// Failures in a row after which a destination is spared.
const TROUBLE: u32 = 20;
/// Between two attempts at a destination in trouble: at first, and at most.
const PROBE_FIRST: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(30);
/// How long a message is put off, at least and at most.
const PUT_OFF_MIN: Duration = Duration::from_millis(20);
const PUT_OFF_MAX: Duration = Duration::from_secs(60);
/// While nothing moves at a destination, a message is put off for at most so many times as long as
/// that has lasted.
const STILL: u32 = 4;
/// From here on a line is long: whoever comes now would only be looked at to be put off.
const LONG_LINE: Duration = Duration::from_millis(100);
/// Where in the second half of the longest wait the next one stands whom the line has no place for: steps of
/// the golden section spread any number of them evenly.
const NEXT_STAND: u32 = 2_654_435_769;
/// Destinations without traffic are forgotten when there are more than this many.
const REMEMBERED: usize = 10_000;

/// The traffic of a process.
#[derive(Debug)]
pub struct Traffic {
    /// Attempts at one destination at the same moment.
    limit: u32,
    hosts: Mutex<HashMap<String, Host>>,
    /// When the longest line ends, in microseconds: mostly there is none, and nobody has to look for it.
    lines_end: AtomicI64,
}

#[derive(Debug, Default)]
struct Host {
    in_flight: u32,
    /// When the last of those who were put off will ask again. Who does not come back, because he was
    /// cancelled or went to another process, leaves a gap and nothing to correct.
    line_ends: Option<Timestamp>,
    /// Of those whom it has no place for.
    stand: u32,
    /// How long an attempt takes, smoothed.
    took: Duration,
    /// When an attempt last ended, or began where none was under way.
    moved_at: Option<Timestamp>,
    /// Failures since the last answer.
    failures: u32,
    /// In trouble: no attempt before this.
    next_probe: Option<Timestamp>,
}

impl Host {
    /// A place at the end of the line, at most so far ahead: when to ask again.
    fn put_off(&mut self, spacing: Duration, most: Duration, now: Timestamp) -> Timestamp {
        let first = now.plus(PUT_OFF_MIN);
        let last = now.plus(most.min(PUT_OFF_MAX)).max(first);
        let next = self.line_ends.map_or(first, |end| end.plus(spacing)).max(first);
        if next <= last {
            self.line_ends = Some(next);
            return next;
        }
        // If all of these came at the same moment, others would have to wait until all were put off again.
        self.line_ends = Some(last);
        self.stand = self.stand.wrapping_add(NEXT_STAND);
        let half = last.since(first) / 2;
        first.plus(half + half.mul_f64(f64::from(self.stand) / f64::from(u32::MAX)))
    }

    /// There is no room: when to ask again.
    fn wait_for_room(&mut self, limit: u32, now: Timestamp) -> Timestamp {
        let still = self.moved_at.map_or(Duration::ZERO, |at| now.since(at));
        if still <= self.took {
            return self.put_off(self.took / limit, PUT_OFF_MAX, now);
        }
        // Nothing has ended yet, or for long: attempts take at least so long. Otherwise all who wait
        // would ask again and again for as long as the first attempts hang. But it is a guess, and
        // nobody shall wait for much longer than it has lasted.
        self.put_off(still / limit, still * STILL, now)
    }

    /// When to ask again, if there is no room now.
    fn refusal(&mut self, limit: u32, now: Timestamp) -> Option<Timestamp> {
        match self.next_probe {
            Some(probe) if !probe.has_come(now, self.probe_wait()) || self.in_flight > 0 => {
                Some(self.put_off(self.probe_wait(), PUT_OFF_MAX, now).max(probe))
            }
            None if self.in_flight >= limit => Some(self.wait_for_room(limit, now)),
            _ => None,
        }
    }

    fn probe_wait(&self) -> Duration {
        let doublings = (self.failures.saturating_sub(TROUBLE) / 4).min(8);
        (PROBE_FIRST * 2u32.saturating_pow(doublings)).min(PROBE_MAX)
    }
}

impl Traffic {
    #[must_use]
    pub fn new(limit: u32) -> Self {
        let lines_end = AtomicI64::new(i64::MIN);
        Self { limit: limit.max(1), hosts: Mutex::default(), lines_end }
    }

    /// Asks for an attempt at a destination now; if there is no room, says when to ask again.
    pub fn enter(&self, name: &str, now: Timestamp) -> Result<(), Timestamp> {
        let mut hosts = self.lock();
        if hosts.len() > REMEMBERED {
            hosts.retain(|_, host| host.in_flight > 0 || host.failures > 0);
        }
        let host = hosts.entry(name.to_owned()).or_default();
        if let Some(at) = host.refusal(self.limit, now) {
            self.note_line(host);
            return Err(at);
        }
        if host.next_probe.is_some() {
            host.next_probe = Some(now.plus(host.probe_wait()));
        }
        if host.in_flight == 0 {
            host.moved_at = Some(now);
        }
        host.in_flight += 1;
        Ok(())
    }

    /// Behind a line that is long already: when to ask for the first time. `None`: there may be room at once.
    pub fn line(&self, name: impl FnOnce() -> String, now: Timestamp) -> Option<Timestamp> {
        let is_long = |end: Timestamp| end > now.plus(LONG_LINE);
        if !is_long(Timestamp::from_micros(self.lines_end.load(Ordering::Relaxed))) {
            return None;
        }
        let mut hosts = self.lock();
        let host = hosts.get_mut(&name()).filter(|host| host.line_ends.is_some_and(is_long))?;
        let at = host.refusal(self.limit, now)?;
        self.note_line(host);
        Some(at)
    }

    fn note_line(&self, host: &Host) {
        let end = host.line_ends.map_or(i64::MIN, Timestamp::as_micros);
        self.lines_end.fetch_max(end, Ordering::Relaxed);
    }

    /// An attempt is over. `answered`: the destination is alive, whatever it said.
    pub fn leave(&self, name: &str, answered: bool, took: Duration, now: Timestamp) {
        let mut hosts = self.lock();
        let Some(host) = hosts.get_mut(name) else { return };
        host.in_flight = host.in_flight.saturating_sub(1);
        host.moved_at = Some(now);
        host.took = (host.took * 7 + took) / 8;
        if answered {
            host.failures = 0;
            host.next_probe = None;
            return;
        }
        host.failures = host.failures.saturating_add(1);
        if host.failures == TROUBLE {
            tracing::warn!(destination = name, "a destination is in trouble and is spared");
        }
        if host.failures >= TROUBLE {
            host.next_probe = Some(now.plus(host.probe_wait()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    #[test]
    fn a_destination_in_trouble_is_tried_again_although_the_clock_was_put_back() {
        let (traffic, hour) = (Traffic::new(1), 3_600_000);
        for _ in 0..TROUBLE {
            let now = at(2 * hour);
            traffic.enter("down", now).expect("room");
            traffic.leave("down", false, Duration::ZERO, now);
        }
        assert!(traffic.enter("down", at(2 * hour)).is_err(), "spared");
        assert!(traffic.enter("down", at(hour)).is_ok());
    }

    #[test]
    fn one_destination_does_not_take_the_room_of_another() {
        let traffic = Traffic::new(2);
        assert!(traffic.enter("slow", at(0)).is_ok());
        assert!(traffic.enter("slow", at(0)).is_ok());
        assert!(traffic.enter("slow", at(0)).is_err());
        assert!(traffic.enter("fast", at(0)).is_ok());
        traffic.leave("slow", true, Duration::from_secs(1), at(1000));
        assert!(traffic.enter("slow", at(1000)).is_ok());
    }

    #[test]
    fn the_longer_the_line_the_later_the_turn() {
        let traffic = Traffic::new(1);
        assert!(traffic.enter("slow", at(0)).is_ok());
        traffic.leave("slow", true, Duration::from_secs(8), at(8000));
        assert!(traffic.enter("slow", at(8000)).is_ok());
        let waits: Vec<Timestamp> =
            (0..50).map(|_| traffic.enter("slow", at(8000)).expect_err("no room")).collect();
        assert!(waits.is_sorted() && waits[49] > waits[1]);
        assert!(waits.iter().all(|wait| *wait <= at(8000).plus(PUT_OFF_MAX)));
    }

    #[test]
    fn whom_the_line_has_no_place_for_does_not_come_with_all_others_at_once() {
        let traffic = Traffic::new(1);
        assert!(traffic.enter("hangs", at(0)).is_ok());
        let now = at(60_000);
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let wait = traffic.enter("hangs", now).expect_err("no room").since(now);
            assert!(wait <= PUT_OFF_MAX, "{wait:?}");
            tenths[usize::try_from(wait.as_millis() / 6_001).expect("few")] += 1;
        }
        assert!(tenths[5..].iter().all(|count| (1900..2100).contains(count)), "{tenths:?}");
    }

    #[test]
    fn who_comes_to_a_long_line_stands_behind_it() {
        let (traffic, slow) = (Traffic::new(1), || "slow".to_owned());
        assert_eq!(traffic.line(slow, at(0)), None, "nobody is there");
        assert!(traffic.enter("slow", at(0)).is_ok());
        assert_eq!(traffic.line(slow, at(0)), None, "there may be room again in a moment");
        let ends: Vec<Timestamp> =
            (0..3).map(|_| traffic.enter("slow", at(8000)).expect_err("no room")).collect();
        let behind = traffic.line(slow, at(8000)).expect("a line");
        assert!(ends.iter().all(|end| *end < behind), "{behind:?} after {ends:?}");
        assert_eq!(traffic.line(|| "fast".to_owned(), at(8000)), None, "another's line");
        traffic.leave("slow", true, Duration::from_secs(8), at(8001));
        assert_eq!(traffic.line(slow, at(8001)), None, "it has room");
    }

    #[test]
    fn a_destination_that_hangs_is_looked_at_less_and_less() {
        let traffic = Traffic::new(1);
        assert!(traffic.enter("hangs", at(0)).is_ok());
        // A hundred wait. Each comes back when it was told to, and the first attempt never ends.
        let mut waiting: Vec<Timestamp> =
            (0..100).map(|_| traffic.enter("hangs", at(0)).expect_err("no room")).collect();
        let mut looks = 0;
        while let Some(next) = waiting.iter().copied().min().filter(|next| *next < at(60_000)) {
            let place = waiting.iter().position(|wait| *wait == next).expect("it is there");
            waiting[place] = traffic.enter("hangs", next).expect_err("no room");
            looks += 1;
        }
        assert!(looks < 1000, "{looks} looks in a minute");
    }

    #[test]
    fn a_destination_that_stood_still_for_a_moment_is_not_left_alone_for_long() {
        let traffic = Traffic::new(1);
        assert!(traffic.enter("paused", at(0)).is_ok());
        for millis in 0..1000 {
            let again = traffic.enter("paused", at(millis)).expect_err("no room");
            assert!(again <= at(millis + 4 * millis.max(5)), "{millis}");
        }
    }

    #[test]
    fn a_destination_in_trouble_is_probed_and_recovers() {
        let traffic = Traffic::new(64);
        for _ in 0..TROUBLE {
            assert!(traffic.enter("down", at(0)).is_ok());
            traffic.leave("down", false, Duration::from_millis(1), at(0));
        }
        let again = traffic.enter("down", at(10)).expect_err("spared");
        assert!(again >= at(1000));
        assert!(traffic.enter("down", at(1000)).is_ok(), "a probe");
        assert!(traffic.enter("down", at(1000)).is_err(), "one at a time");
        traffic.leave("down", true, Duration::from_millis(1), at(1001));
        for _ in 0..64 {
            assert!(traffic.enter("down", at(1001)).is_ok());
        }
    }
}
