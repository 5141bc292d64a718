//! Delivering messages.
//!
//! At least once: a delivery that was not answered is repeated, and its consumer tells by the message's
//! id. What an attempt means is decided with the message as it is when the attempt is over, so one that
//! was cancelled meanwhile stays cancelled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::{counter, histogram};
use serde_json::json;
use tashika_domain::case::{NewCase, dead_letter};
use tashika_domain::effect::{Verdict, let_go};
use tashika_domain::message::asked::{WORKER, host_of};
use tashika_domain::message::conclude::{Attempted, Came, Concluded, conclude};
use tashika_domain::message::{CANCELLED, KIND, Message, PARKED, Response, State, public_id};
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_providers::courier::{Courier, Delivered, Known, Parcel};
use tashika_providers::upstash;
use tashika_providers::workers::Workers;
use tashika_store::{Store, StoreError};
use uuid::Uuid;

use crate::clock::Ids;
use crate::gatekeeper::Gates;
use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Standing, Tried};
use crate::keyring::KeyRing;
use crate::recent::Recent;
use crate::traffic::Traffic;
use crate::worker::millis;

/// How much of an answer is kept in the log and with a dead letter.
const KEPT_OF_ANSWER: usize = 16 * 1024;

/// Carries messages to their destinations: over HTTP, or wherever a simulation wants them.
pub trait Carrier: Send + Sync {
    fn deliver<'a>(&'a self, parcel: Parcel<'a>, now: Timestamp) -> BoxFuture<'a, Delivered>;
}

impl Carrier for Courier {
    fn deliver<'a>(&'a self, parcel: Parcel<'a>, _: Timestamp) -> BoxFuture<'a, Delivered> {
        Box::pin(self.deliver(parcel))
    }
}

impl Carrier for Workers {
    fn deliver<'a>(&'a self, parcel: Parcel<'a>, now: Timestamp) -> BoxFuture<'a, Delivered> {
        Box::pin(self.deliver(parcel, now))
    }
}

/// What deliveries need.
pub struct MessageHandler {
    pub store: Store,
    pub ids: Ids,
    pub courier: Arc<dyn Carrier>,
    /// For messages of Tashika's own.
    pub workers: Arc<dyn Carrier>,
    pub keys: Arc<KeyRing>,
    pub traffic: Arc<Traffic>,
    pub gates: Arc<Gates>,
    pub recent: Arc<Recent>,
    /// How long effects are kept that are created here.
    pub keep: Duration,
    /// A failed message lets go of its deduplication key.
    pub reopen: bool,
}

/// What an attempt brought, until it is concluded.
#[derive(Clone)]
struct Note {
    came: Came,
    response: Response,
}

impl MessageHandler {
    /// The message, from memory if it is there.
    async fn load(&self, id: Uuid) -> Result<Option<Message>, StoreError> {
        match self.recent.take(id) {
            Some(message) => Ok(Some(message)),
            None => Box::pin(self.store.message(id)).await,
        }
    }

    async fn perform(&self, job: Job<'_>) -> Tried {
        let id = job.effect.id.0;
        let unavailable = |error: StoreError| {
            let reason = Reason::new("STORE_UNAVAILABLE", error.to_string());
            // Nothing was attempted, so this must not count as an attempt.
            tracing::warn!(reason = reason.message, "a message could not be read");
            Tried::later(job.now.plus(Duration::from_secs(1)))
        };
        // What is remembered is from before the first attempt. Whoever was claimed before may have
        // ended since, or been cancelled while it was put off.
        let found = if job.effect.fence > 1 {
            self.recent.take(id);
            Box::pin(self.store.message(id)).await
        } else {
            self.load(id).await
        };
        let message = match found {
            Ok(Some(message)) => message,
            Ok(None) => return Tried::refused("NO_MESSAGE", "the message is gone"),
            Err(error) => return unavailable(error),
        };
        match message.state {
            State::Ready => {}
            State::Cancelled if mutant::on(Mutant::CancelledIsSent) => {}
            // Let through by nobody: its gate gives it another time.
            State::Queued | State::Throttled => return Tried::later(PARKED),
            // Cancelled after it was claimed, or given up and requeued by hand.
            State::Delivered | State::Failed | State::Cancelled => {
                return Tried::refused(CANCELLED, "the message has ended");
            }
        }
        let (key, retried) = match self.prepare(&job).await {
            Ok(prepared) => prepared,
            Err(error) => return unavailable(error),
        };
        let host = host_of(&message.asked.url);
        if let Err(at) = self.traffic.enter(&host, job.now) {
            // Not remembered: it may be cancelled before its turn comes.
            return Tried::later(at);
        }
        let (known, rtt) = self.deliver(&message, job, &key, retried).await;
        // A destination that answers is alive, unless what it says is that it is not.
        let alive = matches!(&known, Known::Answered { status, .. } if *status < 500);
        self.traffic.leave(&host, alive, rtt, job.now.plus(rtt));
        self.recent.put(message);
        let mut tried = tried(known, job.now.plus(rtt));
        tried.rtt = rtt;
        tried
    }

    /// The key to sign with, and how often the message was retried: our own crashes do not count.
    async fn prepare(&self, job: &Job<'_>) -> Result<(String, u32), StoreError> {
        let key = self.keys.current(job.now).await?;
        let failures = job.effect.attempts;
        let lapses =
            if failures > 0 { Box::pin(self.store.lapses(job.effect.id.0)).await? } else { 0 };
        Ok((key, failures.saturating_sub(lapses)))
    }

    async fn deliver(
        &self,
        message: &Message,
        job: Job<'_>,
        key: &str,
        retried: u32,
    ) -> (Known, Duration) {
        let asked = &message.asked;
        let id = public_id(message.id);
        let retried = retried.to_string();
        let jti = format!("jwt_{}", self.ids.uuid().simple());
        let signature = upstash::signature(key, &asked.url, &message.body, job.now, &jti);
        let mut own = vec![
            ("upstash-message-id", id.as_str()),
            ("upstash-retried", retried.as_str()),
            ("upstash-signature", signature.as_str()),
        ];
        let optional = [
            ("upstash-topic-name", asked.topic.as_deref()),
            ("upstash-schedule-id", asked.schedule.as_deref()),
            ("upstash-queue-name", asked.queue.as_deref()),
            ("upstash-caller-ip", asked.caller_ip.as_deref()),
            ("traceparent", job.effect.traceparent.as_deref()),
        ];
        own.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let parcel = Parcel {
            method: asked.method,
            url: &asked.url,
            headers: &asked.headers,
            own: &own,
            body: Bytes::from_owner(Arc::clone(&message.body)),
            timeout: asked.timeout,
        };
        let carrier = if is_own(message) { &self.workers } else { &self.courier };
        let delivered = carrier.deliver(parcel, job.now).await;
        (delivered.known, delivered.rtt)
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let id = ending.effect.id.0;
        let Some(message) = self.load(id).await? else {
            return Ok(Settled::new(ending.verdict.clone(), Changes::new()));
        };
        let standing = standing(&message, ending);
        let own = match standing {
            Standing::Over => let_go(ending.effect, ending.lapsed.then_some(ending.started_at)),
            Standing::Ours | Standing::Taken => Changes::new(),
        };
        let note = ending.noted::<Note>();
        if standing == Standing::Taken
            || (note.is_none() && message.state.is_over() && !ending.lapsed)
        {
            // Somebody else has it, or nothing was attempted: there is nothing to tell.
            return Ok(Settled { standing, ..Settled::new(ending.verdict.clone(), own) });
        }
        let Note { came, response } = note.cloned().unwrap_or_else(|| without_answer(ending));
        let came = if is_own(&message) { of_our_own(came, response.status, ending) } else { came };
        let failures = ending.effect.attempts;
        let lapses = if failures > 0 || came == Came::Lapsed {
            Box::pin(self.store.lapses(id)).await?
        } else {
            0
        };
        let attempt = Attempted {
            came,
            response,
            failures,
            lapses,
            reason: ending.verdict.reason().cloned(),
            in_doubt: matches!(ending.outcome, Outcome::Lost(_)),
            started_at: ending.started_at,
            now: ending.now,
            id: ending.id,
            expires_at: ending.now.plus(self.keep),
            reopen: self.reopen,
        };
        let Concluded { verdict, mut changes } = conclude(&message, &attempt);
        // Whatever changes the message ends the lease that it carries.
        if !changes.writes().iter().any(|write| matches!(write, Write::MessageUpdate(_))) {
            changes.extend(own);
        }
        // One that was cancelled meanwhile is given up, too, and is no dead letter.
        let is_dead = message.state == State::Ready && matches!(verdict, Verdict::Aborted { .. });
        if is_dead && is_own(&message) {
            changes.push(Write::OpenCase(own_letter(&message, &attempt)));
        }
        let mut settled = Settled::new(verdict, changes);
        settled.recorded = true;
        settled.standing = standing;
        let gates = Arc::clone(&self.gates);
        settled.after = Some(Box::new(move || {
            report(&message, &attempt);
            if is_dead {
                counter!("queue_dead_letters_total").increment(1);
            }
            gates.stir_for(&message);
        }));
        Ok(settled)
    }
}

/// Whether a message is still for us to end.
fn standing(message: &Message, ending: &Ending<'_>) -> Standing {
    match &message.held {
        // The outbox knows.
        _ if ending.effect.has_row => Standing::Ours,
        // Heard of again, since it was found to have lapsed.
        Some(held) if ending.lapsed && held.at != ending.started_at => Standing::Taken,
        Some(_) if message.state.is_over() => Standing::Over,
        Some(_) => Standing::Ours,
        None => Standing::Taken,
    }
}

/// Whether a message is Tashika's own, to a worker that the operator has named.
fn is_own(message: &Message) -> bool {
    message.asked.url.starts_with(WORKER)
}

/// A worker that the operator has named does not take what it should: somebody must look.
fn own_letter(message: &Message, attempt: &Attempted) -> NewCase {
    let reason = attempt.reason.as_ref();
    let error = reason.map_or_else(String::new, |reason| reason.message.clone());
    let worker = message.asked.url.trim_start_matches(WORKER);
    let summary = format!("The worker {worker} did not take a message: {error}.");
    let details = json!({
        "worker": worker,
        "attempts": attempt.failures + 1,
        "code": reason.map(|reason| &reason.code),
        "error": error,
    });
    dead_letter(KIND, message.id.to_string(), summary, &details, attempt.now)
}

/// Messages of our own are tried as often, and as far apart, as the operator has set for their lane.
fn of_our_own(came: Came, status: u16, ending: &Ending<'_>) -> Came {
    match (came, ending.verdict) {
        // Standard Webhooks: whoever is gone wants nothing any more.
        (Came::Again { .. }, _) if status == 410 => Came::Never,
        (Came::Again { .. }, Verdict::Retry { run_at, .. }) => {
            Came::Again { retry_in: Some(run_at.since(ending.now)) }
        }
        (came, _) => came,
    }
}

fn report(message: &Message, attempt: &Attempted) {
    let outcome = match attempt.came {
        Came::Delivered => "delivered",
        Came::Again { .. } => "failed",
        Came::Never => "refused",
        Came::Lapsed => "lapsed",
    };
    counter!("queue_deliveries_total", "outcome" => outcome).increment(1);
    if attempt.failures > 0 {
        counter!("queue_retries_total").increment(1);
    }
    if attempt.came == Came::Delivered && message.state == State::Ready {
        let latency = attempt.now.since(message.not_before);
        histogram!("queue_end_to_end_ms").record(millis(latency));
    }
}

/// A worker that is gone, or a handler that failed, heard nothing.
fn without_answer(ending: &Ending<'_>) -> Note {
    let error = ending.verdict.reason().map(|reason| reason.message.clone());
    let came = match ending.outcome {
        _ if ending.lapsed => Came::Lapsed,
        Outcome::Refused(_) => Came::Never,
        _ => Came::Again { retry_in: None },
    };
    Note { came, response: Response { error, ..Response::default() } }
}

fn tried(known: Known, now: Timestamp) -> Tried {
    let reason = |code: &str, text: &str| Reason::new(code, text.to_owned());
    let (outcome, came, response) = match known {
        Known::Answered { status, headers, mut body, .. } => {
            let why =
                || reason("DESTINATION_REFUSED", &format!("the destination answered {status}"));
            let (outcome, came) = match status {
                200..=299 => (Outcome::Done(json!(null)), Came::Delivered),
                _ if upstash::is_final(status, &headers) => (Outcome::Refused(why()), Came::Never),
                _ => {
                    let retry_in = upstash::retry_in(&headers, now);
                    (Outcome::Busy { reason: why(), retry_in }, Came::Again { retry_in })
                }
            };
            body.truncate(KEPT_OF_ANSWER);
            (outcome, came, Response { status, headers, body: body.to_vec(), error: None })
        }
        Known::Blocked(text) => {
            let reason = reason("DESTINATION_BLOCKED", &text);
            (Outcome::Refused(reason), Came::Never, failed(text))
        }
        Known::NotSent(text) => {
            let reason = reason("DESTINATION_DOWN", &text);
            let outcome = Outcome::Busy { reason, retry_in: None };
            (outcome, Came::Again { retry_in: None }, failed(text))
        }
        Known::NoAnswer(text) => {
            let outcome = Outcome::Lost(reason("DESTINATION_TIMEOUT", &text));
            (outcome, Came::Again { retry_in: None }, failed(text))
        }
    };
    Tried { note: Some(Arc::new(Note { came, response })), ..Tried::new(outcome) }
}

fn failed(error: String) -> Response {
    Response { error: Some(error), ..Response::default() }
}

impl Handler for MessageHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }
}
