//! Slows down whoever tries tokens.
//!
//! Each address may fail a few times at once and then at a slow rate. While an address is over it,
//! only tokens that have worked from there before are let through: a guesser learns nothing from
//! further tries, and clients that share the address (behind one proxy) go on working. The same wrong
//! token again is no further try: a client with an old token is told so, and does not lock others
//! out. The memory is
//! bounded; `X-Forwarded-For` is not believed, because anybody can write it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failures an address may have at once.
const BURST: u32 = 10;
/// One more failure is forgiven per this time: ten a minute.
const FORGIVE: Duration = Duration::from_secs(6);
/// Addresses that are remembered; beyond it the recovered and then the oldest are forgotten.
const MAX_ADDRESSES: usize = 10_000;

/// What to do with one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    Wait(Duration),
}

#[derive(Default)]
pub struct Throttle(Mutex<State>);

#[derive(Default)]
struct State {
    /// When each address has all its tries back. The distance to now is what it has used up.
    recovered_at: HashMap<IpAddr, Instant>,
    /// The digest of the last wrong token of each of these addresses.
    last_wrong: HashMap<IpAddr, [u8; 32]>,
    /// Tokens (by number) that have worked from an address.
    proven: HashSet<(IpAddr, usize)>,
}

impl Throttle {
    /// Judges a try from `peer`, with a token that is known by its number, or with one that is not, by
    /// its digest.
    pub fn judge(&self, peer: IpAddr, token: Result<usize, [u8; 32]>) -> Verdict {
        let known = token.ok();
        let peer = network(peer);
        let now = Instant::now();
        // The state is valid at every step, so a panic elsewhere does not spoil it.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = known
            && state.proven.contains(&(peer, token))
        {
            return Verdict::Pass;
        }
        if let Err(wrong) = token
            && state.last_wrong.get(&peer) == Some(&wrong)
        {
            return Verdict::Fail;
        }
        let recovered = state.recovered_at.get(&peer).copied();
        let recovered = recovered.filter(|at| *at > now).unwrap_or(now);
        let over = (recovered - now + FORGIVE).saturating_sub(FORGIVE * BURST);
        if !over.is_zero() {
            return Verdict::Wait(over);
        }
        if let Some(token) = known {
            if state.proven.len() < MAX_ADDRESSES {
                state.proven.insert((peer, token));
            }
            return Verdict::Pass;
        }
        state.remember(peer, recovered + FORGIVE, now);
        if let Err(wrong) = token {
            state.last_wrong.insert(peer, wrong);
        }
        Verdict::Fail
    }
}

impl Throttle {
    /// How long an address must wait before its next try, whatever it tries: for passwords, which can
    /// be guessed, nobody is let through early.
    pub fn wait(&self, peer: IpAddr) -> Option<Duration> {
        let now = Instant::now();
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recovered = state.recovered_at.get(&network(peer)).copied();
        let recovered = recovered.filter(|at| *at > now).unwrap_or(now);
        let over = (recovered - now + FORGIVE).saturating_sub(FORGIVE * BURST);
        (!over.is_zero()).then_some(over)
    }

    /// Counts a failure.
    pub fn failed(&self, peer: IpAddr) {
        let (peer, now) = (network(peer), Instant::now());
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recovered = state.recovered_at.get(&peer).copied();
        let recovered = recovered.filter(|at| *at > now).unwrap_or(now);
        state.remember(peer, recovered + FORGIVE, now);
    }
}

impl State {
    fn remember(&mut self, peer: IpAddr, recovered: Instant, now: Instant) {
        if self.recovered_at.len() >= MAX_ADDRESSES && !self.recovered_at.contains_key(&peer) {
            self.recovered_at.retain(|_, at| *at > now);
            if self.recovered_at.len() >= MAX_ADDRESSES {
                let oldest = self.recovered_at.iter().min_by_key(|(_, at)| **at);
                if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                    self.recovered_at.remove(&oldest);
                }
            }
            let Self { recovered_at, last_wrong, .. } = self;
            last_wrong.retain(|peer, _| recovered_at.contains_key(peer));
        }
        self.recovered_at.insert(peer, recovered);
    }
}

/// One household has a whole IPv6 /64: its addresses count as one.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Another wrong token each time.
    fn guess(n: u32) -> Result<usize, [u8; 32]> {
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&n.to_be_bytes());
        Err(digest)
    }

    #[tokio::test(start_paused = true)]
    async fn tries_come_back_one_by_one() {
        let throttle = Throttle::default();
        for n in 0..BURST {
            assert_eq!(throttle.judge(PEER, guess(n)), Verdict::Fail);
        }
        assert_eq!(throttle.judge(PEER, guess(100)), Verdict::Wait(FORGIVE));
        tokio::time::advance(FORGIVE).await;
        assert_eq!(throttle.judge(PEER, guess(101)), Verdict::Fail);
        assert!(matches!(throttle.judge(PEER, guess(102)), Verdict::Wait(_)));
        let neighbour = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(throttle.judge(neighbour, guess(0)), Verdict::Fail);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_wrong_token_again_is_no_further_try() {
        let throttle = Throttle::default();
        for _ in 0..10 * BURST {
            assert_eq!(throttle.judge(PEER, guess(7)), Verdict::Fail);
        }
        for n in 0..BURST - 1 {
            assert_eq!(throttle.judge(PEER, guess(n)), Verdict::Fail, "{n}");
        }
        assert!(matches!(throttle.judge(PEER, guess(100)), Verdict::Wait(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_ipv6_network_is_one_address() {
        let throttle = Throttle::default();
        for n in 0..u16::try_from(BURST).unwrap() {
            let peer = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, n));
            assert_eq!(throttle.judge(peer, guess(n.into())), Verdict::Fail);
        }
        let peer = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 9, 9, 9, 9));
        assert!(matches!(throttle.judge(peer, guess(100)), Verdict::Wait(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let throttle = Throttle::default();
        for n in 0..u32::try_from(MAX_ADDRESSES).unwrap() + 5 {
            throttle.judge(IpAddr::V4(n.into()), guess(n));
        }
        let state = throttle.0.lock().unwrap();
        assert_eq!(state.recovered_at.len(), MAX_ADDRESSES);
        assert!(state.last_wrong.len() <= MAX_ADDRESSES, "{}", state.last_wrong.len());
    }
}
