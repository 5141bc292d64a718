//! Messages that are due at once go straight to this process's own workers.

use std::sync::Arc;

use tashika_domain::changes::{Lease, Release};
use tashika_domain::message::Draft;
use tashika_domain::{Changes, Write};

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
    pub(super) async fn hand_over(&self, changes: &Changes, mut places: Vec<Place>) {
        for write in changes.writes() {
            let Write::Enqueue(new) = write else { continue };
            let Some(effect) = new.in_hand() else { continue };
            let Some(place) = places.pop() else { break };
            let Err(effect) = place.fill(effect) else { continue };
            // We have stopped meanwhile: somebody else may have it.
            let lease = Lease { id: effect.id, fence: effect.fence };
            let now = self.clock.now();
            let release = Write::Release(Release { lease, now, run_at: now });
            if let Err(error) = self.store.commit(Changes::from(release)).await {
                tracing::warn!(%error, outbox_id = %effect.id, "left to its lease");
            }
        }
    }
}
