//! Messages that are due at once go straight to this process's own workers, or to the end of the line before their
//! destination.

use std::sync::Arc;

use tashika_domain::Timestamp;
use tashika_domain::changes::{Lease, Release};
use tashika_domain::effect::{self, Effect};
use tashika_domain::message::asked::host_of;
use tashika_domain::message::{Begin, Draft};

use super::message::Messages;
use crate::hand::{Hand, Place};
use crate::traffic::Traffic;

impl Messages {
    /// Gives messages that are due at once to this process's own workers.
    #[must_use]
    pub fn handing_to(mut self, hand: Arc<Hand>) -> Self {
        self.hand = hand;
        self
    }

    /// Has messages stand in line where others wait for their destination already.
    #[must_use]
    pub fn minding(mut self, traffic: Arc<Traffic>) -> Self {
        self.traffic = traffic;
        self
    }

    /// Places with our own workers, for messages that nothing makes wait; for those whose destination has a
    /// long line before it, a place in that line.
    pub(super) fn places_for(&self, drafts: &mut [Draft], now: Timestamp) -> Vec<Place> {
        let mut places = Vec::new();
        for draft in drafts.iter_mut() {
            let asked = &draft.asked;
            if draft.not_before.is_some() || asked.queue.is_some() || asked.flow.is_some() {
                continue;
            }
            if let Some(at) = self.traffic.line(|| host_of(&asked.url), now) {
                draft.begin = Begin::InLine(at);
            } else if let Some(place) = self.hand.reserve() {
                draft.begin = Begin::InHand(place.worker().to_owned());
                places.push(place);
            }
        }
        places
    }

    /// Starts what is committed in our hands.
    pub(super) async fn hand_over(&self, in_hand: Vec<Effect>, mut places: Vec<Place>) {
        for effect in in_hand {
            let Some(place) = places.pop() else { break };
            let Err(effect) = place.fill(effect) else { continue };
            // We have stopped meanwhile: somebody else may have it.
            let lease = Lease { id: effect.id, fence: effect.fence };
            let now = self.clock.now();
            let release = Release { lease, now, run_at: now };
            let back = effect::give_back(&effect, release, now.plus(self.rules.keep));
            if let Err(error) = self.store.commit(back).await {
                tracing::warn!(%error, outbox_id = %effect.id, "left to its lease");
            }
        }
    }
}
