//! Hands webhooks over to a process: signed, received as the HTTP API does it, answered or not.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use tashika_engine::commands::webhook::{Received, Taken, WebhookError};
use tashika_providers::webhook::{
    RefusedKind, Scheme, Source, SourceError, TOLERANCE, stripe_header,
};
use tashika_store::WebhookFilter;

use super::post::{About, Answer, Delivery, Number, Parcel};
use super::process::Process;
use super::tally::Tally;
use super::trouble::is_of_the_disk;

/// How long the gateway waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const SOURCE: &str = "stripe";
const SECRET: &str = "whsec_of_the_gateway";
const FORGERS_SECRET: &str = "whsec_of_somebody_else";

/// Whose webhooks a process takes.
pub(crate) fn source() -> Result<Source, SourceError> {
    let secrets = vec![SecretString::from(SECRET)];
    Source::new(SOURCE, Scheme::Stripe { secrets, tolerance: TOLERANCE })
}

/// Delivers what is due.
pub(crate) fn deliver(process: &Arc<Process>) {
    let now = process.clock.now();
    let due = {
        let mut world = process.scene.world();
        world.flush(now, &process.scene.log);
        world.post.due(now)
    };
    for (number, delivery) in due {
        let process = Arc::clone(process);
        tokio::spawn(async move { hand_over(&process, number, &delivery).await });
    }
}

async fn hand_over(process: &Arc<Process>, number: Number, delivery: &Delivery) {
    process.fate.alive().await;
    let (scene, clock) = (&process.scene, process.clock);
    let parcel = scene.world().post.parcel(delivery, clock.now());
    let mut receiving = {
        let process = Arc::clone(process);
        tokio::spawn(async move { receive(&process, &parcel).await })
    };
    let received = tokio::time::timeout(PATIENCE, &mut receiving).await;
    process.fate.alive().await;
    let answer = match received {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(panic.to_string()),
        Err(_) => {
            if delivery.hangs_up {
                receiving.abort();
            }
            Ok(Answer::Nothing)
        }
    };
    let now = clock.now();
    let told = answer
        .and_then(|answer| scene.world().post.answered(number, answer, now, &scene.swarm.post));
    match told {
        Ok(tally) => {
            scene.log.count(tally);
            let letter = delivery.letter;
            scene.log.note(now, &format!("webhook evt_{letter:06} arrives: {tally}"));
            let about = scene.world().post.about(letter);
            if let About::Payment(id) = about {
                scene.memory().touch(id);
            }
        }
        Err(detail) => {
            let key = format!("evt_{:06}", delivery.letter);
            process.broken("answers as agreed", &key, &detail);
        }
    }
}

/// What the HTTP API does with a request. An error is an answer that a sender must not get.
async fn receive(process: &Process, parcel: &Parcel) -> Result<Answer, String> {
    let secret = SecretString::from(if parcel.forged { FORGERS_SECRET } else { SECRET });
    let signature = stripe_header(&secret, &parcel.body, parcel.signed_at);
    let value = HeaderValue::from_str(&signature).map_err(|error| error.to_string())?;
    let headers = HeaderMap::from_iter([(HeaderName::from_static("stripe-signature"), value)]);
    let body = &*parcel.body;
    let received = Received { source: SOURCE, headers: &headers, body, traceparent: None };
    match process.webhooks.receive(received).await {
        Ok(Taken::Accepted(accepted)) => Ok(Answer::Taken(accepted)),
        Err(WebhookError::Refused(refused)) if refused.refused.what == RefusedKind::Signature => {
            Ok(Answer::Refused)
        }
        Ok(Taken::Challenged(_)) => Err("a challenge".to_owned()),
        // 503: the sender comes again.
        Err(error) if is_of_the_disk(&error.to_string()) => Ok(Answer::Nothing),
        Err(error) => Err(error.to_string()),
    }
}

/// A person has everything processed again that failed.
pub(crate) async fn replay(process: &Process) -> Result<u64, WebhookError> {
    let replayed = process.webhooks.replay_all(&WebhookFilter::default(), "sim").await?;
    (0..replayed).for_each(|_| process.scene.log.count(Tally::WebhookReplayed));
    Ok(replayed)
}
