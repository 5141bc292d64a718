//! Those who open and close queues and flow controls, and those who want something every minute.

use std::sync::Arc;

use tashika_domain::message::address::Destination;
use tashika_domain::message::cron::Cron;
use tashika_domain::message::group::Endpoint;
use tashika_domain::message::spec::Spec;
use tashika_engine::commands::message::QueueError;
use tashika_engine::commands::schedule::NewSchedule;
use tashika_store::StoreError;

use super::dice::Stream;
use super::process::Process;
use super::swarm::{GROUP, LINES, MORTAL, WIDE, WIDE_PARALLELISM};
use super::tally::Tally;

const SCHEDULES: [&str; 2] = ["tick", "tock"];

/// What is there from the beginning.
pub(crate) async fn set_up(process: &Process) -> Result<(), QueueError> {
    process.messages.set_queue(WIDE, Some(WIDE_PARALLELISM), None).await?;
    let endpoints: Vec<Endpoint> = ["prompt", "flaky", "moody"]
        .iter()
        .map(|name| Endpoint { url: format!("https://{name}.sim/group"), name: None })
        .collect();
    process.messages.add_endpoints(GROUP, &endpoints).await
}

/// Pauses a queue or a flow control, or lets it go on.
pub(crate) fn turn(process: &Arc<Process>, dice: &mut Stream) {
    let flows = &process.scene.swarm.flows;
    let (which, paused) = (dice.below(10), dice.below(3) == 0);
    let (gate, is_flow) = match which {
        0..6 => ((*dice.pick(&LINES)).to_owned(), false),
        6..8 => (WIDE.to_owned(), false),
        _ => (dice.pick(flows).key.clone(), true),
    };
    turn_to(process, gate, is_flow, paused);
}

/// Whatever is still paused may go on.
pub(crate) async fn open_all(process: &Arc<Process>) -> Result<(), StoreError> {
    for queue in process.store.queues().await?.into_iter().filter(|queue| queue.paused) {
        turn_to(process, queue.name, false, false);
    }
    for flow in process.store.flow_controls().await?.into_iter().filter(|flow| flow.paused) {
        turn_to(process, flow.key, true, false);
    }
    Ok(())
}

fn turn_to(process: &Arc<Process>, gate: String, is_flow: bool, paused: bool) {
    if !process.scene.book().turns(&gate) {
        return;
    }
    let process = Arc::clone(process);
    process.scene.book().act(true);
    tokio::spawn(async move {
        process.fate.alive().await;
        let turned = if is_flow {
            process.elsewhere.pause_flow(&gate, paused).await
        } else {
            process.elsewhere.pause_queue(&gate, paused).await
        };
        process.fate.alive().await;
        let (scene, now) = (&process.scene, process.clock.now());
        scene.log.note(now, &format!("{gate} is paused: {paused}, {turned:?}"));
        scene.book().act(false);
        match turned {
            Ok(()) => {
                scene.log.count(if paused { Tally::Paused } else { Tally::Resumed });
                scene.book().turned(&gate, paused, now);
            }
            // Gates exist from their first message on.
            Err(QueueError::NotFound(_)) => scene.book().turned(&gate, false, now),
            Err(error) => {
                // Nobody knows how it stands.
                scene.book().turned(&gate, false, now);
                process.broken("answers as agreed", &gate, &error.to_string());
            }
        }
    });
}

/// Removes a queue, and cancels what waits in it.
pub(crate) fn delete(process: &Arc<Process>) {
    let queue = MORTAL;
    if !process.scene.book().turns(queue) {
        return;
    }
    let process = Arc::clone(process);
    process.scene.book().act(true);
    process.scene.book().asks_to_delete(queue);
    tokio::spawn(async move {
        process.fate.alive().await;
        let deleted = process.elsewhere.delete_queue(queue).await;
        process.fate.alive().await;
        let (scene, now) = (&process.scene, process.clock.now());
        scene.log.note(now, &format!("{queue} is deleted: {deleted:?}"));
        scene.book().act(false);
        scene.book().turned(queue, false, now);
        match deleted {
            Ok(()) => scene.log.count(Tally::QueueDeleted),
            Err(error) => process.broken("answers as agreed", queue, &error.to_string()),
        }
    });
}

/// Wants something every minute, or not any more.
pub(crate) fn schedule(process: &Arc<Process>, dice: &mut Stream) {
    if !process.scene.swarm.clients.schedules {
        return;
    }
    let name = *dice.pick(&SCHEDULES);
    // A firing may be what makes the queue.
    let queue = (name == "tock").then(|| MORTAL.to_owned());
    let what = dice.below(10);
    let process = Arc::clone(process);
    process.scene.book().act(true);
    tokio::spawn(async move {
        process.fate.alive().await;
        let done = match what {
            0..7 => set(&process, name, queue).await,
            7 => process.messages.pause_schedule(name, true).await,
            8 => process.messages.pause_schedule(name, false).await,
            _ => process.messages.delete_schedule(name).await,
        };
        process.fate.alive().await;
        process.scene.book().act(false);
        if let Err(error) = done
            && !matches!(error, QueueError::NotFound(_))
        {
            process.broken("answers as agreed", name, &error.to_string());
        }
    });
}

async fn set(process: &Process, name: &str, queue: Option<String>) -> Result<(), QueueError> {
    let spec = Spec {
        cron: Cron::parse("* * * * *").ok(),
        schedule_id: Some(name.to_owned()),
        retries: Some(1),
        retry_delay: Some("1000".to_owned()),
        queue,
        ..Spec::default()
    };
    let new = NewSchedule {
        destination: Destination::Url("https://prompt.sim/tick".to_owned()),
        spec,
        body: Arc::from(name.as_bytes()),
        caller_ip: None,
    };
    process.messages.set_schedule(new).await.map(drop)
}

/// Nobody wants anything every minute any more.
pub(crate) async fn end_schedules(process: &Process) {
    for name in SCHEDULES {
        match process.messages.delete_schedule(name).await {
            Ok(()) | Err(QueueError::NotFound(_)) => {}
            Err(error) => process.broken("answers as agreed", name, &error.to_string()),
        }
    }
}
