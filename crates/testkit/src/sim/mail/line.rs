//! The line from a process to the mail server: the real port, with a scripted far end.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::mail::Status;
use tashika_domain::mail::batch::BatchStatus;
use tashika_domain::mail::control::LaneState;
use tashika_domain::outcome::Exchange;
use tashika_engine::Clock;
use tashika_providers::mail::{Parcel, Posted, Postman, observed};
use tashika_providers::reply::BoxFuture;
use tashika_store::{Store, StoreError};
use uuid::Uuid;

use super::Scene;
use super::fate::Fate;

const NAME: &str = "sim";
/// A permit ends by itself so long after the bound of its attempt.
const PERMIT_MARGIN: Duration = Duration::from_secs(15);
/// A cancellation may wait for the database for so long after its moment.
const LONGEST_STALL: Duration = Duration::from_secs(200);

pub(crate) struct Line {
    pub scene: Arc<Scene>,
    pub fate: Arc<Fate>,
    pub clock: Clock,
    pub store: Store,
}

impl Line {
    async fn post(&self, parcel: &Parcel) -> Posted {
        let Self { scene, fate, clock, .. } = self;
        fate.linger(scene.small_delay()).await;
        let left = clock.now();
        if let Err(error) = self.may_leave(parcel, left).await {
            scene.broken(left, "the store answers", "", &error.to_string());
        }
        let (nature, timeout) = (&scene.swarm.server, scene.swarm.rules.timeout);
        let id = &parcel.message_id;
        let plan = scene.world().leave(id, nature, timeout, left, &scene.log);
        let text = format!("node {} sends {id} to {}: {}", fate.node, parcel.to, plan.story());
        scene.log.note(left, &text);
        fate.in_call("a mail has left").await;
        tokio::time::sleep(plan.takes).await;
        fate.alive().await;
        scene.world().hear(id, &plan.result);
        fate.in_call("the mail server has answered").await;
        let exchange =
            Exchange { request: "mail".into(), reply: plan.story(), reference: None, sent: true };
        Posted { result: plan.result, exchange, rtt: clock.now().since(left) }
    }

    /// At this moment the mail must be marked as being sent, durably, and the lane must have been open
    /// when it got its permit.
    async fn may_leave(&self, parcel: &Parcel, now: Timestamp) -> Result<(), StoreError> {
        let id = delivery_of(&parcel.message_id);
        let Some(mail) = self.store.mail(id).await? else {
            self.broken("nothing is invented", parcel, "a mail that nobody asked for");
            return Ok(());
        };
        let Some(sending) = mail.sending else {
            // Its lease was lost, and somebody has ended or begun it anew meanwhile: the doubt is told.
            if !mail.possibly_duplicate {
                self.broken("marked before it is sent", parcel, "it is sent, and no mark says so");
            }
            return Ok(());
        };
        if !matches!(mail.status, Status::Queued | Status::Cancelled) && !mail.possibly_duplicate {
            let detail = format!("sent while {}", mail.status.as_str());
            self.broken("over is over", parcel, &detail);
        }
        // What a person has tried again is wanted, although its batch is not.
        let wanted = mail.effect_id.is_some_and(|effect| self.scene.book().was_requeued(effect));
        if let Some(id) = mail.batch_id.filter(|_| !wanted)
            && let Some(batch) = self.store.mail_batch(id).await?
            && batch.status == BatchStatus::Cancelled
            && batch.updated_at.plus(LONGEST_STALL) < sending.since
        {
            self.broken(
                "cancelled is cancelled",
                parcel,
                "it begins after its batch was cancelled",
            );
        }
        let control = self.store.mail_control().await?;
        let limits = self.scene.swarm.rules.limits;
        let permit = self.scene.swarm.rules.timeout + limits.rest() + PERMIT_MARGIN;
        // Whoever closes the lane, whoever opens it and whoever sends have clocks of their own.
        let error = self.scene.process.clock_error();
        let closed = control.state != LaneState::Open && !control.is_open(now.plus(error));
        if closed && control.updated_at.plus(permit + error * 2) < sending.since {
            let since = control.updated_at;
            let detail = format!("the lane is {} since {since:?}", control.state.as_str());
            self.broken("a closed lane sends nothing", parcel, &detail);
        }
        Ok(())
    }

    fn broken(&self, rule: &'static str, parcel: &Parcel, detail: &str) {
        self.scene.broken(self.clock.now(), rule, &parcel.message_id, detail);
    }
}

/// Which mail a Message-ID names.
pub(crate) fn delivery_of(message_id: &str) -> Uuid {
    message_id.split('@').next().and_then(|id| id.parse().ok()).unwrap_or_default()
}

impl Postman for Line {
    fn name(&self) -> &'static str {
        NAME
    }

    fn send<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Posted> {
        Box::pin(observed(NAME, self.post(parcel)))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let Self { scene, fate, clock, .. } = self;
            fate.linger(scene.small_delay()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            fate.alive().await;
            let away = scene.world().is_away(&scene.swarm.server, clock.now());
            scene
                .log
                .note(clock.now(), &format!("node {} asks, login works: {}", fate.node, !away));
            if away { Err("535 the login is refused".to_owned()) } else { Ok(()) }
        })
    }
}
