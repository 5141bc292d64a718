//! The way from a process to the consumers of the world: the real carrier's port, with a scripted far
//! end.

use std::sync::Arc;

use bytes::Bytes;
use tashika_domain::Timestamp;
use tashika_domain::message::asked::{Headers, host_of};
use tashika_domain::message::parse_id;
use tashika_engine::{BoxFuture, Carrier, Clock};
use tashika_providers::courier::{Delivered, Known, Parcel};
use tashika_store::Store;

use super::Scene;
use super::fate::Fate;
use super::tally::Tally;
use super::world::{Answer, Plan};

pub(crate) struct Line {
    pub scene: Arc<Scene>,
    pub fate: Arc<Fate>,
    pub clock: Clock,
    /// Of the node: to look at the message as it is when an attempt begins.
    pub store: Store,
}

impl Line {
    async fn carry(&self, parcel: Parcel<'_>) -> Delivered {
        let Self { scene, fate, clock, .. } = self;
        let began = clock.now();
        let named = parcel.own.iter().find(|(name, _)| *name == "upstash-message-id");
        let id = named.and_then(|(_, id)| parse_id(id));
        let host = host_of(parcel.url);
        let (Some(id), Some(consumer)) = (id, scene.swarm.consumer(&host)) else {
            scene.broken(began, "answers as agreed", parcel.url, "a parcel for nobody");
            return Delivered {
                known: Known::NotSent("nobody".into()),
                rtt: clock.now().since(began),
            };
        };
        let flight = match self.enter(id).await {
            Ok(flight) => flight,
            Err(error) => {
                scene.broken(began, "the store answers", "", &error.to_string());
                return Delivered {
                    known: Known::NotSent(String::new()),
                    rtt: std::time::Duration::ZERO,
                };
            }
        };
        let timeout = parcel.timeout.map_or(scene.swarm.timeout, |t| t.min(scene.swarm.timeout));
        let fence = flight.fence;
        let (number, plan) = scene.world().leave(flight, consumer, timeout, began);
        scene.log.count(Tally::RequestSent);
        scene.log.note(
            began,
            &format!("node {} delivers {id} ({fence}) to {host}: {plan:?}", fate.node),
        );
        fate.in_call("a message has left").await;
        tokio::time::sleep(plan.takes).await;
        fate.alive().await;
        let now = clock.now();
        scene.world().hear(number, plan.answer, now);
        scene.log.note(
            now,
            &format!("node {} hears about {id} ({fence}): {:?}", fate.node, plan.answer),
        );
        self.count(plan);
        fate.in_call("an answer has come").await;
        Delivered { known: known(plan.answer), rtt: clock.now().since(began) }
    }

    fn count(&self, plan: Plan) {
        let tally = match (plan.answer, plan.processes) {
            (Answer::Fine, true) => Tally::Executed,
            (Answer::Fine, false) => Tally::Lied,
            (Answer::Error, true) => Tally::ServerErrorAfterEffect,
            (Answer::Error, false) => Tally::ServerErrorBeforeEffect,
            (Answer::Busy(_), _) => Tally::Busy,
            (Answer::Never, _) => Tally::Refused,
            (Answer::Unreachable, _) => Tally::Unreachable,
            (Answer::Silence, true) => Tally::ReplyLost,
            (Answer::Silence, false) => Tally::RequestLost,
        };
        self.scene.log.count(tally);
    }
}

fn known(answer: Answer) -> Known {
    let mut headers = Headers::new();
    let mut with = |name: &str, value: String| drop(headers.insert(name.into(), vec![value]));
    let status = match answer {
        Answer::Unreachable => return Known::NotSent("connection refused".into()),
        Answer::Silence => return Known::NoAnswer("no answer in time".into()),
        Answer::Fine => 200,
        Answer::Error => 500,
        Answer::Busy(wait) => {
            if let Some(seconds) = wait {
                with("Retry-After", seconds.to_string());
            }
            429
        }
        Answer::Never => {
            with("Upstash-NonRetryable-Error", "true".into());
            489
        }
    };
    Known::Answered { status, headers, body: Bytes::from_static(b"ok"), truncated: false }
}

impl Carrier for Line {
    fn deliver<'a>(&'a self, parcel: Parcel<'a>, _: Timestamp) -> BoxFuture<'a, Delivered> {
        Box::pin(self.carry(parcel))
    }
}
