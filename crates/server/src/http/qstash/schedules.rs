//! `/v2/schedules`

use axum::response::Response;
use http::Method;
use serde_json::{Value, json};
use tashika_domain::message::names;
use tashika_engine::commands::message::Messages;
use tashika_engine::commands::schedule::NewSchedule;

use super::call::Call;
use super::fault::Fault;
use super::{done, ok, view};

pub(super) async fn answer(
    queue: &Messages,
    call: &Call,
    rest: Option<&str>,
) -> Result<Response, Fault> {
    let Some(rest) = rest else {
        call.only(&Method::GET, "GET")?;
        return list(queue).await;
    };
    // A name has no slash in it and a destination with one has a scheme: the two do not meet.
    if let Some((name, action @ ("pause" | "resume"))) = rest.split_once('/')
        && names::is_name(name)
    {
        return match call.method {
            Method::PATCH | Method::POST => {
                queue.pause_schedule(name, action == "pause").await?;
                done()
            }
            _ => Err(Fault::Method("PATCH, POST")),
        };
    }
    match call.method {
        Method::POST => create(queue, call, rest).await,
        Method::GET => {
            let schedule = queue.schedule(rest).await?;
            let states = queue.last_states(&schedule).await?;
            ok(&view::schedule(&schedule, &states))
        }
        Method::DELETE => {
            queue.delete_schedule(rest).await?;
            done()
        }
        _ => Err(Fault::Method("GET, POST, DELETE")),
    }
}

async fn list(queue: &Messages) -> Result<Response, Fault> {
    let mut shown = Vec::new();
    for schedule in queue.schedules().await? {
        let states = queue.last_states(&schedule).await?;
        shown.push(view::schedule(&schedule, &states));
    }
    ok(&Value::Array(shown))
}

async fn create(queue: &Messages, call: &Call, rest: &str) -> Result<Response, Fault> {
    let name = queue.set_schedule(NewSchedule {
        destination: call.destination(rest)?,
        spec: call.spec()?,
        body: call.body(),
        caller_ip: call.caller_ip.clone(),
    });
    ok(&json!({ "scheduleId": name.await? }))
}
