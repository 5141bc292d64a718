//! Messages that are due at once go straight to this process's own workers.

use std::sync::Arc;

use tashika_domain::changes::{Lease, Release};
use tashika_domain::effect::{self, Effect};
use tashika_domain::message::Draft;

use super::message::Messages;
use crate::hand::{Hand, Place};

impl Messages {
    /// Gives messages that are due at once to this process's own workers.
    #[must_use]
    pub fn handing_to(mut self, hand: Arc<Hand>) -> Self {
        self.hand = hand;
        self
    }

    /// Places with our own workers, for messages that nothing makes wait.
    pub(super) fn places_for(&self, drafts: &mut [Draft]) -> Vec<Place> {
        let mut places = Vec::new();
        for draft in drafts.iter_mut() {
            let asked = &draft.asked;
            if draft.not_before.is_some() || asked.queue.is_some() || asked.flow.is_some() {
                continue;
            }
            let Some(place) = self.hand.reserve() else { break };
            draft.held_by = Some(place.worker().to_owned());
            places.push(place);
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
