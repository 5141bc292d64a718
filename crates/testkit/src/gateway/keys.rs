//! What the gateway remembers under idempotency keys.

use std::collections::BTreeMap;
use std::time::Duration;

use tashika_domain::Timestamp;

use super::refusal::{Answer, Refusal};

/// Stripe promises 24 h and no more. Here keys are gone at once after that, because a client that counts on more is wrong.
pub(crate) const LIFETIME: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
struct Kept {
    since: Timestamp,
    /// The endpoint and its parameters.
    fingerprint: String,
    /// `None` while the first request runs.
    answer: Option<Answer>,
    request_id: String,
}

/// The store of keys.
#[derive(Debug, Default)]
pub(crate) struct Keys(BTreeMap<String, Kept>);

impl Keys {
    /// Takes the key for a request. An answer instead means that the request must not be executed.
    pub fn begin(
        &mut self,
        key: &str,
        fingerprint: &str,
        request_id: &str,
        now: Timestamp,
    ) -> Option<Answer> {
        let lives = |kept: &&Kept| kept.answer.is_none() || now.since(kept.since) < LIFETIME;
        let Some(kept) = self.0.get(key).filter(lives) else {
            let kept = Kept {
                since: now,
                fingerprint: fingerprint.to_owned(),
                answer: None,
                request_id: request_id.to_owned(),
            };
            self.0.insert(key.to_owned(), kept);
            return None;
        };
        if kept.fingerprint != fingerprint {
            return Some(Refusal::other_parameters(key).into());
        }
        Some(match &kept.answer {
            Some(answer) => answer
                .clone()
                .with("Idempotent-Replayed", "true")
                .with("Original-Request", &*kept.request_id),
            None => Refusal::key_in_use(key).into(),
        })
    }

    /// Remembers the answer, or frees the key if the answer is of the kind that is not remembered.
    pub fn finish(&mut self, key: &str, answer: &Answer) {
        if !answer.kept {
            self.0.remove(key);
        } else if let Some(kept) = self.0.get_mut(key) {
            kept.answer = Some(answer.clone());
        }
    }
}
