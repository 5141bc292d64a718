//! The gateway's webhooks: what it says without being asked.
//!
//! A letter is a snapshot of the payment when something happened to it. It arrives late, twice, after
//! younger ones, or never; while nobody is there, or dies while reading, it is kept and tried again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tashika_domain::Timestamp;
use tashika_domain::payment::remote::Remote;
use uuid::Uuid;

use super::dice::Stream;
use super::process::Process;
use super::swarm;
use super::tally::Tally;

/// The latest a webhook arrives after what it is about.
const LATE_MS: u64 = 900_000;

#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub payment: Uuid,
    pub remote: Remote,
}

#[derive(Default)]
pub(crate) struct Post {
    waiting: BTreeMap<(Timestamp, u64), Letter>,
    reading: BTreeMap<(Timestamp, u64), Letter>,
    numbers: u64,
}

impl Post {
    /// Something has happened to a payment. `certain`: the gateway does not forget to tell.
    pub fn write(
        &mut self,
        letter: &Letter,
        certain: bool,
        at: Timestamp,
        dice: &mut Stream,
        odds: &swarm::Post,
    ) {
        let (never, twice) = (dice.hit(odds.never), dice.hit(odds.twice));
        if never && !certain {
            return;
        }
        for _ in 0..=u32::from(twice) {
            let late = dice.hit(odds.late);
            let delay = dice.millis(1, if late { LATE_MS } else { 3000 });
            self.numbers += 1;
            self.waiting.insert((at.plus(delay), self.numbers), letter.clone());
        }
    }

    /// Letters that arrive by `now`; they are being read until somebody says otherwise.
    pub fn due(&mut self, now: Timestamp) -> Vec<((Timestamp, u64), Letter)> {
        let later = self.waiting.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.waiting, later);
        self.reading.extend(due.clone());
        due.into_iter().collect()
    }

    pub fn read(&mut self, number: (Timestamp, u64)) {
        self.reading.remove(&number);
    }

    /// Whoever was reading is gone.
    pub fn process_ended(&mut self) {
        let reading = std::mem::take(&mut self.reading);
        self.waiting.extend(reading);
    }

    /// When the next letter arrives, if any will.
    pub fn next(&self) -> Option<Timestamp> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn is_being_read(&self) -> bool {
        !self.reading.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty()
    }
}

/// Delivers what is due.
pub(crate) fn deliver(process: &Arc<Process>) {
    let now = process.clock.now();
    let due = {
        let mut world = process.scene.world();
        world.flush(now, &process.scene.log);
        world.post.due(now)
    };
    for (number, letter) in due {
        let process = Arc::clone(process);
        tokio::spawn(async move {
            process.fate.alive().await;
            let Letter { payment, remote } = letter;
            let heard = process.till.hear(payment, &remote, "webhook").await;
            process.fate.alive().await;
            let (scene, now) = (&process.scene, process.clock.now());
            let state = remote.state.as_str();
            scene.log.count(Tally::WebhookRead);
            scene.log.note(now, &format!("webhook about {payment}: {state}"));
            scene.world().post.read(number);
            scene.memory().touch(payment);
            match heard {
                Ok(Some(_)) => {}
                Ok(None) => process.broken(
                    "nothing is lost",
                    &payment.to_string(),
                    "the gateway has a payment that is not in the database",
                ),
                Err(error) => process.broken("the store answers", "", &error.to_string()),
            }
        });
    }
}
