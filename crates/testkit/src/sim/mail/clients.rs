//! The clients: they send mails and batches, click twice, break off, cancel and retry; and the person
//! who opens the lane and has dead letters tried again.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::Status as EffectStatus;
use tashika_domain::mail::{KIND, Status};
use tashika_engine::commands::mail::{MailError, SendMail};
use tashika_store::{EffectFilter, MailFilter};
use uuid::Uuid;

use super::Planted;
use super::book::{Heard, What, Wish};
use super::dice::{Odds, Stream};
use super::process::Process;
use super::tally::Tally;
use super::trouble::is_of_the_disk;

const TEMPLATE: &str = "reservation-expired-refunded";
/// How keys of single mails begin.
const MAIL_KEY: &str = "mail";
/// The longest an impatient client waits: about as long as a commit takes here.
const PATIENCE_MS: u64 = 8;
/// Batches that somebody may want to change: the newest.
const RECENT: usize = 6;
/// Whoever regrets a batch looks at it so often, and so far apart.
const PAGE: i64 = 50;
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// One thing that a client does.
pub(crate) fn act(process: &Arc<Process>, dice: &mut Stream) {
    let keys = process.scene.book().keys();
    let earlier = (!keys.is_empty()).then(|| dice.pick(&keys).clone());
    match (dice.below(100), earlier) {
        (0..40, _) | (_, None) => {
            let wish = fresh(process, dice);
            send(process, dice, &wish, 1);
        }
        (40..50, _) => {
            let wish = fresh(process, dice);
            send(process, dice, &wish, 3);
        }
        (50..58, Some(key)) => {
            let known = process.scene.book().first(&key);
            if let Some(wish) = known {
                send(process, dice, &wish, 1);
            }
        }
        // Mails and batches have keys of their own.
        (58..62, Some(key)) if key.starts_with(MAIL_KEY) => {
            let wish = Wish { key: Some(key), what: new_mail(process, dice) };
            send(process, dice, &wish, 1);
        }
        (62..80, _) => {
            let wish = new_batch(process, dice);
            send(process, dice, &wish, 1);
        }
        (80..84, _) => {
            let wish = deadlines(process, dice);
            send(process, dice, &wish, 1);
        }
        (84..92, _) => change_batch(process, dice, true),
        _ => change_batch(process, dice, false),
    }
}

fn address(process: &Process) -> String {
    format!("r{}@example.com", process.scene.book().number())
}

fn data() -> Value {
    json!({"reservationId": "r-1", "refundAmount": 3000, "currency": "JPY"})
}

fn new_mail(process: &Process, dice: &mut Stream) -> What {
    let locale = *dice.pick(&["en", "ja"]);
    let to = address(process);
    What::Mail(json!({"to": to, "template": TEMPLATE, "locale": locale, "data": data()}))
}

fn new_key(process: &Process, dice: &mut Stream, prefix: &str) -> Option<String> {
    let key = format!("{prefix}-{:05}", process.scene.book().number());
    dice.hit(Odds::percent(85)).then_some(key)
}

fn fresh(process: &Process, dice: &mut Stream) -> Wish {
    Wish { key: new_key(process, dice, MAIL_KEY), what: new_mail(process, dice) }
}

fn new_batch(process: &Process, dice: &mut Stream) -> Wish {
    let count = dice.between(1, process.scene.swarm.clients.batch_max);
    let to = (0..count).map(|_| address(process)).collect();
    Wish { key: new_key(process, dice, "batch"), what: What::Batch(to) }
}

/// Notifications for one member of staff, now or in a while.
fn deadlines(process: &Process, dice: &mut Stream) -> Wish {
    let email = address(process);
    let mut body = json!({
        "dashboardUrl": "https://app.example.com/dashboard",
        "offices": [{
            "id": "office-1", "name": "ひまわり",
            "staff": [{"id": "s1", "email": email, "lastName": "山田", "firstName": "太郎",
                "emailThresholdDays": 30}],
            "renewalAlerts": [{"name": "利用者A", "daysLeft": 20}],
            "assessmentAlerts": [],
        }],
    });
    if dice.hit(Odds::percent(75)) {
        body["runAt"] = json!(process.clock.now().plus(dice.millis(5_000, 60_000)));
    }
    Wish { key: new_key(process, dice, "batch"), what: What::Deadlines(body) }
}

/// Asks again for what was not heard of.
pub(crate) fn try_again(process: &Arc<Process>, dice: &mut Stream, wish: &Wish) {
    send(process, dice, wish, 1);
}

/// Sends a wish, so many times at the same moment, each in a task of its own, as a server would.
fn send(process: &Arc<Process>, dice: &mut Stream, wish: &Wish, times: u32) {
    for _ in 0..times {
        let (process, wish) = (Arc::clone(process), wish.clone());
        let impatient = dice.hit(process.scene.swarm.clients.impatient);
        let (patience, delay) = (dice.millis(0, PATIENCE_MS), dice.millis(0, 5));
        let breaks_off = dice.hit(Odds::percent(8)) && !process.scene.is_calm();
        let regrets = !matches!(wish.what, What::Mail(_))
            && dice.hit(process.scene.swarm.clients.regrets)
            && !process.scene.is_calm();
        let number = process.scene.book().begin(&wish);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            process.fate.alive().await;
            let asking = ask(&process, &wish, breaks_off);
            let heard = if impatient && !process.scene.is_calm() {
                tokio::time::timeout(patience, asking).await.unwrap_or(Ok(Heard::Nothing))
            } else {
                asking.await
            };
            // An answer that nobody sent was not heard.
            process.fate.alive().await;
            let taken = conclude(&process, &wish, number, heard);
            if let Some(id) = taken.filter(|_| regrets) {
                regret(&process, id).await;
            }
        });
    }
}

async fn ask(process: &Process, wish: &Wish, breaks_off: bool) -> Result<Heard, MailError> {
    let key = wish.key.as_deref();
    let key = if process.scene.planted == Some(Planted::ForgetsMailKeys) { None } else { key };
    match &wish.what {
        What::Mail(body) => {
            let request = SendMail { header_key: key, body, traceparent: None };
            let taken = process.mails.send(request).await?;
            Ok(Heard::Taken { id: taken.row.id, replayed: taken.replayed })
        }
        What::Deadlines(body) => {
            let taken = process.mails.notify(key, body, "client").await?;
            Ok(Heard::Taken { id: taken.batch.id, replayed: taken.replayed })
        }
        What::Batch(recipients) => {
            let head = json!({"template": TEMPLATE, "locale": "en"});
            let mut receiving = process.mails.receive(&head, key, "client").await?;
            for to in recipients {
                receiving.add(&json!({"to": to, "data": data()})).await?;
            }
            if breaks_off {
                receiving.abort().await;
                return Ok(Heard::Nothing);
            }
            let taken = receiving.finish().await?;
            Ok(Heard::Taken { id: taken.row.id, replayed: taken.replayed })
        }
    }
}

/// Writes down what a client heard; returns what was taken.
fn conclude(
    process: &Process,
    wish: &Wish,
    number: u64,
    heard: Result<Heard, MailError>,
) -> Option<Uuid> {
    let (scene, now) = (&process.scene, process.clock.now());
    let heard = match heard {
        Ok(heard) => heard,
        Err(MailError::Conflict) => Heard::Conflict,
        Err(MailError::InProgress) => Heard::InProgress,
        // 503: nothing was promised.
        Err(error) if is_of_the_disk(&error.to_string()) => Heard::Nothing,
        Err(error) => {
            process.broken("answers as agreed", "", &format!("{wish:?}: {error}"));
            Heard::Nothing
        }
    };
    scene.log.count(match heard {
        Heard::Taken { replayed: false, .. } => Tally::Accepted,
        Heard::Taken { replayed: true, .. } => Tally::Replayed,
        Heard::Conflict => Tally::Conflict,
        Heard::InProgress => Tally::InProgress,
        Heard::Nothing => Tally::Unheard,
    });
    let key = wish.key.as_deref().unwrap_or("no key");
    scene.log.note(now, &format!("client of {key} hears: {heard:?}"));
    let ended = scene.book().end(number, heard);
    if let Err(detail) = ended {
        process.broken("one per key", key, &detail);
    }
    if let Heard::Taken { id, .. } = heard { Some(id) } else { None }
}

/// Waits until the first mail of a batch is on its way, and cancels the batch at that moment.
async fn regret(process: &Arc<Process>, batch: Uuid) {
    let filter = MailFilter { batch: Some(batch), ..MailFilter::default() };
    process.scene.book().act(true);
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK_EVERY).await;
        process.fate.alive().await;
        let mails = process.store.mails(&filter, PAGE).await;
        if mails.is_ok_and(|mails| mails.iter().any(|mail| mail.sending.is_some())) {
            cancel_or_retry(process, batch, None);
            break;
        }
    }
    process.fate.alive().await;
    process.scene.book().act(false);
}

/// Cancels a batch, or has what went wrong in it tried again.
fn change_batch(process: &Arc<Process>, dice: &mut Stream, cancels: bool) {
    let chosen = {
        let book = process.scene.book();
        let batches = book.batches();
        let recent = &batches[batches.len().saturating_sub(RECENT)..];
        (!recent.is_empty()).then(|| *dice.pick(recent))
    };
    let Some(id) = chosen else { return };
    let statuses = match dice.below(3) {
        0 => vec![Status::Failed],
        1 => vec![Status::Cancelled],
        _ => vec![Status::Failed, Status::PossiblySent, Status::Cancelled],
    };
    cancel_or_retry(process, id, (!cancels).then_some(statuses));
}

/// Has mails in these statuses tried again; without any, cancels the batch.
fn cancel_or_retry(process: &Arc<Process>, id: Uuid, statuses: Option<Vec<Status>>) {
    let process = Arc::clone(process);
    process.scene.book().act(true);
    tokio::spawn(async move {
        process.fate.alive().await;
        let cancels = statuses.is_none();
        let done = match statuses {
            None => process.mails.cancel(id, "client").await,
            Some(statuses) => process.mails.retry(id, &statuses, "client").await,
        };
        process.fate.alive().await;
        let (scene, now) = (&process.scene, process.clock.now());
        scene.book().act(false);
        let word = if cancels { "cancels" } else { "retries" };
        scene.log.note(now, &format!("client {word} batch {id}: {}", done.is_ok()));
        match done {
            Ok(_) => scene.log.count(if cancels { Tally::Cancelled } else { Tally::Resent }),
            Err(MailError::WrongState(_)) => scene.log.count(Tally::WishRefused),
            Err(error) => process.broken("nothing is lost", &id.to_string(), &error.to_string()),
        }
    });
}

/// A person opens the lane, or has a dead letter tried again.
pub(crate) fn look(process: &Arc<Process>, dice: &mut Stream) {
    let process = Arc::clone(process);
    let (opens, which) = (dice.hit(Odds::percent(50)), dice.roll());
    process.scene.book().act(true);
    tokio::spawn(async move {
        process.fate.alive().await;
        let done = if opens {
            process.mails.resume("sim").await.map(|_| ()).map_err(anyhow::Error::from)
        } else {
            requeue(&process, which).await
        };
        process.fate.alive().await;
        process.scene.book().act(false);
        if let Err(error) = done {
            process.broken("answers as agreed", "", &format!("a person was told: {error:#}"));
        }
    });
}

async fn requeue(process: &Process, which: u64) -> anyhow::Result<()> {
    use tashika_engine::commands::outbox::RequeueError;
    let status = Some(EffectStatus::Aborted);
    let filter = EffectFilter { status, ..EffectFilter::default() };
    let dead = process.store.effects(&filter, 20).await?;
    let dead: Vec<_> = dead.into_iter().filter(|effect| effect.kind == KIND).collect();
    let Some(nth) = which.checked_rem(dead.len() as u64) else { return Ok(()) };
    let id = dead[usize::try_from(nth)?].id;
    process.scene.book().requeues(id.0);
    match process.outbox.requeue(id).await {
        Ok(()) => {
            process.scene.log.count(Tally::Requeued);
            process.scene.log.note(process.clock.now(), &format!("person requeues {id}"));
            Ok(())
        }
        // Another person was faster.
        Err(
            RequeueError::NotAborted(_)
            | RequeueError::Commit(tashika_store::CommitError::Stale(_)),
        ) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How long clients think before the next one acts; now and then everybody is away.
pub(crate) fn think(dice: &mut Stream, max_ms: u64) -> Duration {
    if dice.hit(Odds::percent(2)) { dice.millis(1000, 240_000) } else { dice.millis(0, max_ms) }
}
