//! Effects that are born in the hands of this process: committed as its own, and started without a claim.
//!
//! Whoever is about to write an effect that is due at once asks for a place first. There is one while
//! this process works and has few such effects. Others may wait in the store: the dispatcher starts them and
//! those in hand in turns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tashika_domain::effect::Effect;
use tokio::sync::mpsc;

/// Effects in hand, at most, that nobody has claimed. Should the process die, they wait until their
/// leases have run out, so there must not be too many.
const PLACES: usize = 2048;

/// The hands of one process. Closed until an engine opens them.
#[derive(Debug, Default)]
pub struct Hand(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    taken: usize,
}

#[derive(Debug)]
struct Open {
    worker: Arc<str>,
    born: mpsc::UnboundedSender<Born>,
}

/// Room for one effect, until the effect has ended or the place is dropped.
#[derive(Debug)]
pub struct Place {
    hand: Arc<Hand>,
    worker: Arc<str>,
}

/// An effect that is committed, with its place.
#[derive(Debug)]
pub(crate) struct Born {
    pub effect: Effect,
    pub place: Place,
}

impl Place {
    /// Who holds what is written for this place.
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// Hands over the effect, now that it is committed. Gives it back if nobody works any more.
    pub fn fill(self, effect: Effect) -> Result<(), Box<Effect>> {
        let born = self.hand.lock().open.as_ref().map(|open| open.born.clone());
        let Some(born) = born else { return Err(Box::new(effect)) };
        born.send(Born { effect, place: self }).map_err(|unsent| Box::new(unsent.0.effect))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hand.lock().taken -= 1;
    }
}

impl Hand {
    /// A place for an effect that is due at once, if there is one.
    pub fn reserve(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.lock();
        if state.taken >= PLACES {
            return None;
        }
        let worker = Arc::clone(&state.open.as_ref()?.worker);
        state.taken += 1;
        drop(state);
        Some(Place { hand: Arc::clone(self), worker })
    }

    /// From now on effects are taken, under this name.
    pub(crate) fn open(&self, worker: &str) -> mpsc::UnboundedReceiver<Born> {
        let (born, births) = mpsc::unbounded_channel();
        self.lock().open = Some(Open { worker: worker.into(), born });
        births
    }

    pub(crate) fn close(&self) {
        self.lock().open = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tashika_domain::effect::EffectId;
    use tashika_domain::{Lane, Timestamp};
    use uuid::Uuid;

    use super::*;

    fn effect() -> Effect {
        let at = Timestamp::from_micros(0);
        Effect {
            id: EffectId(Uuid::nil()),
            lane: Lane::DELIVERIES,
            kind: "message".into(),
            key: None,
            digest: None,
            payload: "{}".into(),
            attempts: 0,
            in_doubt: false,
            fence: 1,
            has_row: false,
            created_at: at,
            run_at: at,
            traceparent: None,
        }
    }

    #[test]
    fn there_is_no_place_before_somebody_works() {
        let hand = Arc::<Hand>::default();
        assert!(hand.reserve().is_none());
        let _births = hand.open("host:1:a");
        assert_eq!(hand.reserve().expect("a place").worker(), "host:1:a");
    }

    #[test]
    fn a_place_is_free_again_when_its_effect_has_ended() {
        let hand = Arc::<Hand>::default();
        let mut births = hand.open("host:1:a");
        let mut places: Vec<Place> = (0..PLACES).map(|_| hand.reserve().expect("one")).collect();
        assert!(hand.reserve().is_none());
        places.pop().expect("one").fill(effect()).expect("somebody works");
        assert!(hand.reserve().is_none(), "its effect waits");
        let born = births.try_recv().expect("it is there");
        assert!(hand.reserve().is_none(), "its effect is performed");
        drop(born);
        assert!(hand.reserve().is_some());
    }

    #[test]
    fn what_comes_too_late_is_given_back() {
        let hand = Arc::<Hand>::default();
        let births = hand.open("host:1:a");
        let (first, second) = (hand.reserve().expect("one"), hand.reserve().expect("another"));
        hand.close();
        assert!(first.fill(effect()).is_err());
        assert!(hand.reserve().is_none());
        drop(births);
        let _births = hand.open("host:1:b");
        drop(hand.open("host:1:c"));
        assert!(second.fill(effect()).is_err(), "nobody listens");
        assert_eq!(hand.lock().taken, 0);
    }
}
