//! The line from a process to the broker of the world: the real port, with a scripted far end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tashika_domain::order::{Execution, broker_code, request_digest};
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::{Outcome, Timestamp};
use tashika_engine::Clock;
use tashika_providers::broker::{
    BoxFuture, Broker, Operation, Reply, SendOrder, Whereabouts, observed,
};

use super::Scene;
use super::fate::Fate;
use super::plan::{Hearing, ReplyFate};
use super::tally::Tally;
use super::trouble::TIMEOUT;
use super::world::{Call, Sight, Verdict};

/// Names the broker in results.
pub(crate) const NAME: &str = "sim";

pub(crate) struct Line {
    pub scene: Arc<Scene>,
    pub fate: Arc<Fate>,
    pub clock: Clock,
}

impl Line {
    async fn place(&self, sent: SendOrder<'_>) -> Reply<Execution> {
        let Self { scene, fate, clock } = self;
        fate.linger(scene.small_delay()).await;
        let left = clock.now();
        let digest = serde_json::from_str::<Value>(sent.body)
            .map_or_else(|_| "unreadable".to_owned(), |body| request_digest(&body));
        let call = scene.world().leave(sent.order, digest, fate.node, left, &scene.log);
        fate.in_call("a request has left").await;
        tokio::time::sleep(call.listens_for).await;
        fate.alive().await;
        let verdict = scene.world().hear(call.request, clock.now(), &scene.log);
        let outcome = self.placed(&call, verdict);
        let heard = outcome_word(&outcome);
        let text = format!("node {} hears of {}: {heard}", fate.node, sent.order.idempotency_key);
        scene.log.note(clock.now(), &text);
        fate.in_call("an answer has come").await;
        reply("send", outcome, call.hearing != Hearing::Unreachable, clock.now().since(left))
    }

    fn placed(&self, call: &Call, verdict: Option<Verdict>) -> Outcome<Execution> {
        let log = &self.scene.log;
        let timeout = || Reason::new(broker_code::TIMEOUT, "no answer in time");
        match (call.hearing, verdict) {
            (Hearing::Unreachable, _) => Outcome::Busy {
                reason: Reason::new(broker_code::UNREACHABLE, "connection refused"),
                retry_in: None,
            },
            (Hearing::ServerError, verdict) => {
                if let Some(Verdict::Executed(_)) = verdict {
                    log.count(Tally::ServerErrorAfterEffect);
                }
                Outcome::Lost(Reason::new(broker_code::SERVER_ERROR, "502 from something between"))
            }
            (Hearing::Nothing, verdict) => {
                match (verdict, call.reply) {
                    (Some(_), ReplyFate::Lost) => log.count(Tally::ReplyLost),
                    (Some(_), ReplyFate::Late) => log.count(Tally::ReplyLate),
                    _ => {}
                }
                Outcome::Lost(timeout())
            }
            (Hearing::Reply, Some(Verdict::Executed(execution))) => Outcome::Done(execution),
            (Hearing::Reply, Some(Verdict::Refused(reason))) => Outcome::Refused(reason),
            (Hearing::Reply, Some(Verdict::TurnedAway(retry_in))) => Outcome::Busy {
                reason: Reason::new(broker_code::RATE_LIMITED, "turned away"),
                retry_in,
            },
            (Hearing::Reply, Some(Verdict::Working) | None) => Outcome::Lost(timeout()),
        }
    }

    async fn ask(&self, id: &str) -> Reply<Whereabouts> {
        let Self { scene, fate, clock } = self;
        let (mut faults, mut latencies) = scene.world().question(id);
        fate.linger(latencies.millis(0, 3)).await;
        let left = clock.now();
        let network = &scene.swarm.network;
        let lost = faults.hit(network.status_lost) && !scene.is_calm();
        let busy = faults.hit(network.status_busy) && !scene.is_calm();
        scene.log.count(Tally::StatusAsked);
        fate.in_call("a question has left").await;
        tokio::time::sleep(latencies.millis(1, 200)).await;
        fate.alive().await;
        let outcome = if lost {
            scene.log.count(Tally::StatusLost);
            tokio::time::sleep(TIMEOUT.saturating_sub(clock.now().since(left))).await;
            Outcome::Lost(Reason::new(broker_code::TIMEOUT, "no answer in time"))
        } else if busy {
            let retry_in = Some(Duration::from_secs(faults.between(1, 20)));
            Outcome::Busy { reason: Reason::new(broker_code::RATE_LIMITED, "later"), retry_in }
        } else {
            let sight = scene.world().look(id, clock.now(), &scene.log);
            tokio::time::sleep(latencies.millis(1, 200)).await;
            Outcome::Done(self.located(sight))
        };
        fate.alive().await;
        let text = format!("node {} asks about {id}: {}", fate.node, outcome_word(&outcome));
        scene.log.note(clock.now(), &text);
        fate.in_call("the broker has said where an order is").await;
        reply("status", outcome, true, clock.now().since(left))
    }

    fn located(&self, sight: Sight) -> Whereabouts {
        match sight {
            Sight::Executed(execution) => {
                self.scene.log.count(Tally::StatusSaysExecuted);
                Whereabouts::Executed(execution)
            }
            Sight::Working => Whereabouts::Working,
            Sight::Rejected(reason) => Whereabouts::Rejected(reason),
            Sight::NotFound => {
                self.scene.log.count(Tally::StatusSaysNotFound);
                Whereabouts::NotFound
            }
        }
    }
}

fn outcome_word<T: std::fmt::Debug>(outcome: &Outcome<T>) -> String {
    match outcome {
        Outcome::Done(what) => {
            let what = format!("{what:?}");
            format!("done, {}", what.split([' ', '(']).next().unwrap_or_default())
        }
        Outcome::Refused(reason) => format!("refused {}", reason.code),
        Outcome::Busy { reason, .. } => format!("busy {}", reason.code),
        Outcome::Lost(reason) => format!("lost {}", reason.code),
    }
}

fn reply<T>(request: &str, outcome: Outcome<T>, sent: bool, rtt: Duration) -> Reply<T> {
    let heard = match &outcome {
        Outcome::Done(_) => "done",
        Outcome::Refused(_) => "refused",
        Outcome::Busy { .. } => "busy",
        Outcome::Lost(_) => "lost",
    };
    let exchange = Exchange { request: request.into(), reply: heard.into(), reference: None, sent };
    Reply { outcome, exchange, rtt }
}

impl Broker for Line {
    fn name(&self) -> &str {
        NAME
    }

    fn takes_keys(&self) -> bool {
        self.scene.swarm.honours_keys
    }

    fn send<'a>(&'a self, order: SendOrder<'a>) -> BoxFuture<'a, Reply<Execution>> {
        Box::pin(observed(NAME, Operation::Send, self.place(order)))
    }

    fn status<'a>(
        &'a self,
        client_order_id: &'a str,
        _now: Timestamp,
    ) -> BoxFuture<'a, Reply<Whereabouts>> {
        Box::pin(observed(NAME, Operation::Status, self.ask(client_order_id)))
    }

    /// Nobody in the engine withdraws orders yet.
    fn cancel<'a>(&'a self, _id: &'a str, _now: Timestamp) -> BoxFuture<'a, Reply<()>> {
        let unknown = Outcome::Lost(Reason::new(broker_code::UNKNOWN, "not in this world"));
        Box::pin(async move { reply("cancel", unknown, true, Duration::ZERO) })
    }

    fn heartbeat(&self, _now: Timestamp) -> BoxFuture<'_, Reply<()>> {
        Box::pin(async { reply("heartbeat", Outcome::Done(()), true, Duration::ZERO) })
    }
}
