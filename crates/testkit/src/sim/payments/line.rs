//! The line from a process to the gateway of the world: the real port, with a scripted far end.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteState, code};
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::{Outcome, Timestamp};
use tashika_engine::Clock;
use tashika_providers::gateway::{
    Charge, CheckoutOrder, Gateway, Listed, Operation, Page, RefundOrder, SessionRef, observed,
};
use tashika_providers::reply::{BoxFuture, Reply};
use uuid::Uuid;

use super::Scene;
use super::account::{Act, Said};
use super::fate::Fate;
use super::plan::{Hearing, ReplyFate};
use super::tally::Tally;
use super::trouble::TIMEOUT;
use super::world::{Call, Verdict};

/// Names the gateway in results.
pub(crate) const NAME: &str = "sim";
/// Payments in a page of the list.
const PAGE: usize = 100;

pub(crate) struct Line {
    pub scene: Arc<Scene>,
    pub fate: Arc<Fate>,
    pub clock: Clock,
}

impl Line {
    /// Sends a request and listens as long as its fate allows.
    async fn send(&self, charge: Charge<'_>, act: Act) -> Reply<Said> {
        if self.scene.swarm.nature.two_step && act != Act::Prepare && charge.gateway_id.is_none() {
            let reason = Reason::new(code::INVALID_REQUEST, "the payment was never opened");
            return reply(act, Outcome::Refused(reason), false, Duration::ZERO);
        }
        self.request(charge.payment_id, charge.amount, act).await
    }

    async fn request(&self, id: Uuid, amount: i64, act: Act) -> Reply<Said> {
        let Self { scene, fate, clock } = self;
        fate.linger(scene.small_delay()).await;
        let left = clock.now();
        let call = scene.world().leave(id, amount, act, left, &scene.log);
        fate.in_call("a request has left").await;
        tokio::time::sleep(call.listens_for).await;
        fate.alive().await;
        let verdict = scene.world().hear(call.request, clock.now(), &scene.log);
        let outcome = self.heard(&call, verdict, act);
        if act == Act::Authorize && matches!(outcome, Outcome::Busy { .. }) {
            scene.world().known_undone(id);
        }
        scene.log.note(
            clock.now(),
            &format!("node {} hears {} {id}: {}", fate.node, act.key(), word(&outcome)),
        );
        fate.in_call("an answer has come").await;
        let sent = call.hearing != Hearing::Unreachable;
        reply(act, outcome, sent, clock.now().since(left))
    }

    fn heard(&self, call: &Call, verdict: Option<Verdict>, act: Act) -> Outcome<Said> {
        let log = &self.scene.log;
        let unknown = |text| Outcome::Lost(Reason::new(code::UNKNOWN, text));
        let silence = || Outcome::Lost(Reason::new(code::TIMEOUT, "no answer in time"));
        match (call.hearing, verdict) {
            (Hearing::Unreachable, _) => busy("connection refused", None),
            (Hearing::ServerError, Some(Verdict::TurnedAway(_))) => unknown("503"),
            (Hearing::ServerError, verdict) => {
                if matches!(verdict, Some(Verdict::Said(_))) {
                    log.count(Tally::ServerErrorAfterEffect);
                }
                unknown("500")
            }
            (Hearing::Nothing, verdict) => {
                match (verdict, call.reply) {
                    (Some(_), ReplyFate::Lost) => log.count(Tally::ReplyLost),
                    (Some(_), ReplyFate::Late) => log.count(Tally::ReplyLate),
                    _ => {}
                }
                silence()
            }
            (Hearing::Reply, Some(Verdict::Said(Said::Refused(reason)))) => {
                Outcome::Refused(reason)
            }
            (Hearing::Reply, Some(Verdict::Said(said))) => Outcome::Done(said),
            (Hearing::Reply, Some(Verdict::TurnedAway(retry_in))) => busy("429", retry_in),
            (Hearing::Reply, Some(Verdict::InFlight)) => unknown("409: the key is in use"),
            (Hearing::Reply, Some(Verdict::Working)) if act == Act::Authorize => {
                let pending = Remote { state: RemoteState::Pending, ..Remote::not_found() };
                Outcome::Done(Said::Payment(pending))
            }
            (Hearing::Reply, _) => silence(),
        }
    }

    async fn act(&self, charge: Charge<'_>, act: Act) -> Reply<Remote> {
        self.send(charge, act).await.map(|said| match said {
            Said::Payment(remote) => remote,
            // The gateway does not mix them up.
            _ => Remote::not_found(),
        })
    }

    /// A question: what `answer` says, unless it is lost or turned away.
    async fn ask<T>(&self, id: Uuid, what: &str, answer: impl FnOnce(bool) -> T) -> Reply<T> {
        let Self { scene, fate, clock } = self;
        let mut dice = scene.world().stream("question", id);
        fate.linger(dice.millis(0, 3)).await;
        let left = clock.now();
        let (network, calm) = (&scene.swarm.network, scene.is_calm());
        let lost = dice.hit(network.status_lost) && !calm;
        let turned_away = dice.hit(network.status_busy) && !calm;
        let lie = dice.hit(scene.swarm.post.lies) && !calm;
        scene.log.count(Tally::StatusAsked);
        fate.in_call("a question has left").await;
        tokio::time::sleep(dice.millis(1, 200)).await;
        fate.alive().await;
        let outcome = if lost {
            scene.log.count(Tally::StatusLost);
            tokio::time::sleep(TIMEOUT.saturating_sub(clock.now().since(left))).await;
            Outcome::Lost(Reason::new(code::TIMEOUT, "no answer in time"))
        } else if turned_away {
            busy("later", Some(Duration::from_secs(dice.between(1, 20))))
        } else {
            let answer = answer(lie);
            tokio::time::sleep(dice.millis(1, 200)).await;
            Outcome::Done(answer)
        };
        fate.alive().await;
        let text = format!("node {} asks, {what} {id}: {}", fate.node, word(&outcome));
        scene.log.note(clock.now(), &text);
        fate.in_call("a question was answered").await;
        let exchange = exchange(what, &outcome, true);
        Reply { outcome, exchange, rtt: clock.now().since(left) }
    }

    async fn look(&self, charge: Charge<'_>) -> Reply<Remote> {
        let (scene, id) = (&self.scene, charge.payment_id);
        if self.unopened(charge) {
            return unasked(Outcome::Done(Remote::not_found()));
        }
        let reply = self
            .ask(id, "status", |lie| scene.world().look(id, lie, self.clock.now(), &scene.log))
            .await;
        if let Outcome::Done(remote) = &reply.outcome {
            scene.log.count(match remote.state {
                RemoteState::NotFound => Tally::StatusSaysNotFound,
                _ => Tally::StatusSaysExecuted,
            });
        }
        reply
    }

    async fn look_at_page(&self, id: Uuid) -> Reply<RemoteSession> {
        let (scene, clock) = (&self.scene, self.clock);
        let reply = self
            .ask(id, "page", |_| {
                let mut world = scene.world();
                world.flush(clock.now(), &scene.log);
                world.account(id).session(id, clock.now())
            })
            .await;
        let Reply { outcome, exchange, rtt } = reply;
        let outcome = match outcome {
            Outcome::Done(Some(session)) => Outcome::Done(session),
            Outcome::Done(None) => {
                Outcome::Refused(Reason::new(code::INVALID_REQUEST, "no such page"))
            }
            Outcome::Refused(reason) => Outcome::Refused(reason),
            Outcome::Busy { reason, retry_in } => Outcome::Busy { reason, retry_in },
            Outcome::Lost(reason) => Outcome::Lost(reason),
        };
        Reply { outcome, exchange, rtt }
    }

    /// Without an id from the gateway no confirmation can have been sent.
    fn unopened(&self, charge: Charge<'_>) -> bool {
        self.scene.swarm.nature.two_step && charge.gateway_id.is_none()
    }

    async fn page(&self, from: Timestamp, until: Timestamp, after: Option<&str>) -> Reply<Page> {
        let scene = &self.scene;
        let after: Option<Uuid> = after.and_then(|id| id.parse().ok());
        self.ask(Uuid::nil(), "list", |_| {
            let mut listed = scene.world().list(from, until, self.clock.now(), &scene.log);
            listed.retain(|(id, _)| after.is_none_or(|after| *id > after));
            let more = listed.len() > PAGE;
            listed.truncate(PAGE);
            let next = listed.last().filter(|_| more).map(|(id, _)| id.to_string());
            Page { items: listed.into_iter().map(|(_, item): (Uuid, Listed)| item).collect(), next }
        })
        .await
    }
}

fn busy<T>(text: &str, retry_in: Option<Duration>) -> Outcome<T> {
    Outcome::Busy { reason: Reason::new(code::NETWORK_ERROR, text), retry_in }
}

fn word<T>(outcome: &Outcome<T>) -> String {
    match outcome {
        Outcome::Done(_) => "done".to_owned(),
        Outcome::Refused(reason) => format!("refused {}", reason.code),
        Outcome::Busy { reason, .. } => format!("busy {}", reason.message),
        Outcome::Lost(reason) => format!("lost {}", reason.message),
    }
}

fn exchange<T>(request: &str, outcome: &Outcome<T>, sent: bool) -> Exchange {
    Exchange { request: request.into(), reply: word(outcome), reference: None, sent }
}

fn reply(act: Act, outcome: Outcome<Said>, sent: bool, rtt: Duration) -> Reply<Said> {
    let exchange = exchange(&act.key(), &outcome, sent);
    Reply { outcome, exchange, rtt }
}

fn unasked<T>(outcome: Outcome<T>) -> Reply<T> {
    let exchange = exchange("", &outcome, false);
    Reply { outcome, exchange, rtt: Duration::ZERO }
}

/// The page that was answered with.
fn page(reply: Reply<Said>) -> Reply<RemoteSession> {
    let Reply { outcome, exchange, rtt } = reply;
    let outcome = match outcome {
        Outcome::Done(Said::Session(session)) => Outcome::Done(session),
        Outcome::Done(_) => Outcome::Lost(Reason::new(code::UNKNOWN, "not a page")),
        Outcome::Refused(reason) => Outcome::Refused(reason),
        Outcome::Busy { reason, retry_in } => Outcome::Busy { reason, retry_in },
        Outcome::Lost(reason) => Outcome::Lost(reason),
    };
    Reply { outcome, exchange, rtt }
}

impl Gateway for Line {
    fn name(&self) -> &str {
        NAME
    }

    fn prepare<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>> {
        let work = async move {
            if !self.scene.swarm.nature.two_step {
                return unasked(Outcome::Done(None));
            }
            self.send(charge, Act::Prepare).await.map(|said| match said {
                Said::Opened(id) => Some(id),
                _ => None,
            })
        };
        Box::pin(observed(NAME, Operation::Prepare, work))
    }

    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(observed(NAME, Operation::Authorize, self.act(charge, Act::Authorize)))
    }

    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>> {
        let act = Act::Capture { amount, in_vain: charge.in_vain };
        Box::pin(observed(NAME, Operation::Capture, self.act(charge, act)))
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        let act = Act::Void { in_vain: charge.in_vain };
        Box::pin(observed(NAME, Operation::Void, self.act(charge, act)))
    }

    fn refund<'a>(
        &'a self,
        charge: Charge<'a>,
        refund: RefundOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteRefund>> {
        let RefundOrder { refund_id: id, number, amount, .. } = refund;
        let work = async move {
            let reply = self.send(charge, Act::Refund { id, number, amount }).await;
            let Reply { outcome, exchange, rtt } = reply;
            let outcome = match outcome {
                Outcome::Done(Said::Refund(refund)) => Outcome::Done(refund),
                Outcome::Done(_) => Outcome::Lost(Reason::new(code::UNKNOWN, "not a refund")),
                Outcome::Refused(reason) => Outcome::Refused(reason),
                Outcome::Busy { reason, retry_in } => Outcome::Busy { reason, retry_in },
                Outcome::Lost(reason) => Outcome::Lost(reason),
            };
            Reply { outcome, exchange, rtt }
        };
        Box::pin(observed(NAME, Operation::Refund, work))
    }

    fn status<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(observed(NAME, Operation::Status, self.look(charge)))
    }

    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        let work = async move {
            if self.unopened(charge) {
                let voided = Remote { state: RemoteState::Voided, ..Remote::not_found() };
                return unasked(Outcome::Done(voided));
            }
            self.scene.log.count(Tally::Fenced);
            self.act(charge, Act::Fence).await
        };
        Box::pin(observed(NAME, Operation::Fence, work))
    }

    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>> {
        Box::pin(observed(NAME, Operation::List, self.page(from, until, after)))
    }

    fn open_checkout<'a>(
        &'a self,
        order: CheckoutOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        let CheckoutOrder { payment_id, reservation_id: reservation, amount, expires_at, .. } =
            order;
        let act = Act::Open { reservation, expires_at };
        let work = async move { page(self.request(payment_id, amount, act).await) };
        Box::pin(observed(NAME, Operation::OpenCheckout, work))
    }

    fn checkout<'a>(&'a self, session: SessionRef<'a>) -> BoxFuture<'a, Reply<RemoteSession>> {
        Box::pin(observed(NAME, Operation::Checkout, self.look_at_page(session.payment_id)))
    }

    fn expire_checkout<'a>(
        &'a self,
        session: SessionRef<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        let work = async move {
            let id = session.payment_id;
            let amount = self.scene.world().account(id).amount;
            page(self.request(id, amount, Act::Close).await)
        };
        Box::pin(observed(NAME, Operation::ExpireCheckout, work))
    }
}
