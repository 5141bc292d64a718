//! `/v2/queues`

use axum::response::Response;
use http::Method;
use serde_json::Value;
use tashika_domain::message::names;
use tashika_engine::commands::message::Messages;

use super::call::Call;
use super::fault::Fault;
use super::{done, ok, view};

pub(super) async fn answer(
    queue: &Messages,
    call: &Call,
    rest: Option<&str>,
) -> Result<Response, Fault> {
    let Some(rest) = rest else {
        return match call.method {
            Method::GET => ok(&queue.queues().await?.iter().map(view::queue).collect()),
            Method::POST => set(queue, call).await,
            _ => Err(Fault::Method("GET, POST")),
        };
    };
    match rest.split_once('/') {
        None => match call.method {
            Method::GET => ok(&view::queue(&queue.queue(rest).await?)),
            Method::DELETE => {
                queue.delete_queue(rest).await?;
                done()
            }
            _ => Err(Fault::Method("GET, DELETE")),
        },
        Some((name, action @ ("pause" | "resume"))) => {
            call.only(&Method::POST, "POST")?;
            queue.pause_queue(name, action == "pause").await?;
            done()
        }
        Some(_) => Err(Fault::nowhere()),
    }
}

async fn set(queue: &Messages, call: &Call) -> Result<Response, Fault> {
    let body = call.json()?;
    let name = body["queueName"].as_str().unwrap_or_default();
    names::check(name).map_err(|why| Fault::bad(format!("invalid queue name: {why}")))?;
    let parallelism = match &body["parallelism"] {
        Value::Null => None,
        given => {
            let number = whole(given).and_then(|number| u32::try_from(number).ok());
            let number = number.filter(|number| *number > 0);
            let wrong = || Fault::bad("parallelism is not a whole number of at least 1");
            Some(number.ok_or_else(wrong)?)
        }
    };
    let paused = match &body["paused"] {
        Value::Null => None,
        Value::Bool(paused) => Some(*paused),
        _ => return Err(Fault::bad("paused is neither true nor false")),
    };
    queue.set_queue(name, parallelism, paused).await?;
    done()
}

/// `1.0` is a whole number, too.
fn whole(given: &Value) -> Option<u64> {
    let written_as_fraction = || {
        let number = given.as_f64()?;
        let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it fits")]
        fits.then_some(number as u64)
    };
    given.as_u64().or_else(written_as_fraction)
}
