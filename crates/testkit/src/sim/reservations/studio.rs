//! Whoever makes the videos, and the line to them.
//!
//! The works outlive the processes. A submission may be lost on its way, or its answer on the way back; a
//! video takes its time, fails, or takes far too long and comes when nobody waits any more. Callbacks come
//! late, twice, or never, and are repeated until somebody has taken them; some tell only that it has begun.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::render::RenderRules;
use tashika_domain::render::conclude::{At, RemoteRender, RemoteState, hear};
use tashika_domain::{Outcome, Timestamp, Write};
use tashika_engine::Clock;
use tashika_providers::render::{RenderJob, Renderer, Submitted};
use tashika_providers::reply::{BoxFuture, Reply};
use tashika_store::{CommitError, StoreError};
use uuid::Uuid;

use super::Planted;
use super::dice::Stream;
use super::fate::Fate;
use super::process::Process;
use super::scene::Scene;
use super::swarm;
use super::tally::Tally;
use super::trouble::is_of_the_disk;

/// Names the studio in rows.
pub(crate) const NAME: &str = "sim-studio";
/// How long our side waits for an answer.
const TIMEOUT: Duration = Duration::from_millis(2500);
/// The word that a video is begun comes after at most so long: before its order was answered, or when
/// nobody waits for that any more.
const ANNOUNCED_WITHIN_MS: u64 = 10_000;
/// A copy of a callback that is being read comes so much later.
const AGAIN: Duration = Duration::from_secs(1);

/// A video that is being made.
#[derive(Clone, Debug)]
struct Video {
    render: Uuid,
    ready_at: Timestamp,
    fails: bool,
    forgotten: bool,
}

/// A callback that will come.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub id: String,
    pub render: Uuid,
    pub attempt: u32,
    pub remote: RemoteRender,
}

pub(crate) struct Works {
    seed: u64,
    odds: swarm::Studio,
    /// How long a video may take.
    limit: Duration,
    videos: BTreeMap<String, Video>,
    keys: BTreeMap<(Uuid, u32), String>,
    calls: BTreeMap<(Timestamp, u64), Call>,
    /// Callbacks that somebody reads.
    taken: BTreeMap<(Timestamp, u64), Call>,
    numbers: u64,
    calm: bool,
}

impl Works {
    pub const fn new(seed: u64, odds: swarm::Studio, rules: &RenderRules) -> Self {
        Self {
            seed,
            odds,
            limit: rules.attempt_limit,
            videos: BTreeMap::new(),
            keys: BTreeMap::new(),
            calls: BTreeMap::new(),
            taken: BTreeMap::new(),
            numbers: 0,
            calm: false,
        }
    }

    pub const fn calm_down(&mut self) {
        self.calm = true;
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn stream(&mut self, what: &str) -> Stream {
        let number = self.number();
        Stream::new(self.seed, &format!("studio/{what}/{number}"))
    }

    /// A submission arrives.
    fn take(&mut self, render: Uuid, attempt: u32, now: Timestamp, dice: &mut Stream) -> String {
        if let Some(known) = self.keys.get(&(render, attempt)).filter(|_| self.odds.knows_keys) {
            return known.clone();
        }
        let odds = self.odds.clone();
        let (fails, hangs) = (dice.hit(odds.fails), dice.hit(odds.hangs) && !self.calm);
        let limit = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        let (low, high) = if hangs { (limit, limit * 12) } else { (100, limit / 2) };
        let ready_at = now.plus(dice.millis(low, high));
        let forgotten = dice.hit(odds.forgets) && !self.calm;
        let id = format!("video-{}", self.number());
        let video = Video { render, ready_at, fails, forgotten };
        let (silent, twice) = (dice.hit(odds.silent), dice.hit(odds.twice));
        let calls = match (silent || forgotten, twice) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        let mut calls: Vec<(Timestamp, RemoteRender)> = (0..calls)
            .map(|_| ready_at.plus(dice.millis(1, 20_000)))
            .map(|at| (at, remote(&id, &video, ready_at)))
            .collect();
        if dice.hit(odds.announces) && !forgotten {
            // It is confirmed by asking: by then the video may be done.
            let at = now.plus(dice.millis(1, ANNOUNCED_WITHIN_MS));
            calls.push((at, remote(&id, &video, at)));
        }
        for (at, remote) in calls {
            let call = Call { id: id.clone(), render, attempt, remote };
            let number = self.number();
            self.calls.insert((at, number), call);
        }
        self.keys.insert((render, attempt), id.clone());
        self.videos.insert(id.clone(), video);
        id
    }

    fn look(&self, id: &str, now: Timestamp) -> Option<RemoteRender> {
        let video = self.videos.get(id).filter(|video| !video.forgotten)?;
        Some(remote(id, video, now))
    }

    /// Callbacks that come by now; they are in somebody's hands until they are taken. Copies of one event
    /// are never processed at the same moment: the table of webhooks sees to that.
    fn due(&mut self, now: Timestamp) -> Vec<((Timestamp, u64), Call)> {
        let later = self.calls.split_off(&(now, u64::MAX));
        let mut due = Vec::new();
        for (number, call) in std::mem::replace(&mut self.calls, later) {
            if self.taken.values().any(|taken| taken.id == call.id) {
                self.calls.insert((now.plus(AGAIN), number.1), call);
            } else {
                self.taken.insert(number, call.clone());
                due.push((number, call));
            }
        }
        due
    }

    /// Whoever was reading is gone: what was not taken comes again.
    pub fn process_ended(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.calls.extend(taken);
    }

    pub fn is_quiet(&self) -> bool {
        self.calls.is_empty() && self.taken.is_empty()
    }

    pub fn is_being_read(&self) -> bool {
        !self.taken.is_empty()
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.calls.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether a video was made here, for this render.
    pub fn knows(&self, id: &str, render: Uuid) -> bool {
        self.videos.get(id).is_some_and(|video| video.render == render && !video.fails)
    }
}

fn remote(id: &str, video: &Video, now: Timestamp) -> RemoteRender {
    let state = if now < video.ready_at {
        RemoteState::Working
    } else if video.fails {
        RemoteState::Failed(Reason::new("STUDIO_FAILED", "it could not be made"))
    } else {
        RemoteState::Done { url: format!("sim://{id}"), expires_at: None }
    };
    RemoteRender { id: id.to_owned(), state }
}

/// The line from a process to the studio.
pub(crate) struct Line {
    pub scene: Arc<Scene>,
    pub fate: Arc<Fate>,
    pub clock: Clock,
}

impl Line {
    async fn send(&self, job: RenderJob<'_>) -> Reply<RemoteRender> {
        let Self { scene, fate, clock } = self;
        fate.linger(scene.small_delay()).await;
        let (left, calm) = (clock.now(), scene.is_calm());
        let (mut dice, odds) = (scene.works().stream("submit"), scene.swarm.studio.clone());
        let hit = |dice: &mut Stream, odds| dice.hit(odds) && !calm;
        let unreachable = hit(&mut dice, odds.unreachable);
        let (lost, reply_lost) = (hit(&mut dice, odds.lost), hit(&mut dice, odds.reply_lost));
        let refused = hit(&mut dice, odds.refused);
        fate.in_call("a video was ordered").await;
        tokio::time::sleep(dice.millis(1, 200)).await;
        fate.alive().await;
        let reason = |text: &str| Reason::new("STUDIO", text);
        let outcome = if unreachable {
            Outcome::Busy { reason: reason("nobody there"), retry_in: None }
        } else if refused {
            Outcome::Refused(reason("not like this"))
        } else {
            let id = (!lost)
                .then(|| scene.works().take(job.render_id, job.attempt, clock.now(), &mut dice));
            if let Some(id) = id.filter(|_| !reply_lost) {
                Outcome::Done(RemoteRender { id, state: RemoteState::Working })
            } else {
                tokio::time::sleep(TIMEOUT).await;
                Outcome::Lost(reason("no answer in time"))
            }
        };
        self.heard("submit", job.render_id, outcome, left).await
    }

    async fn ask(&self, asked: Submitted<'_>) -> Reply<Option<RemoteRender>> {
        let Self { scene, fate, clock } = self;
        let (left, calm) = (clock.now(), scene.is_calm());
        let mut dice = scene.works().stream("look");
        let lost = dice.hit(scene.swarm.studio.look_lost) && !calm;
        fate.in_call("the studio is asked").await;
        tokio::time::sleep(dice.millis(1, 200)).await;
        fate.alive().await;
        let outcome = if lost {
            tokio::time::sleep(TIMEOUT).await;
            Outcome::Lost(Reason::new("STUDIO", "no answer in time"))
        } else {
            Outcome::Done(scene.works().look(asked.provider_id, clock.now()))
        };
        self.heard("look", asked.render_id, outcome, left).await
    }

    async fn heard<T>(
        &self,
        what: &str,
        render: Uuid,
        outcome: Outcome<T>,
        left: Timestamp,
    ) -> Reply<T> {
        self.fate.alive().await;
        let word = match &outcome {
            Outcome::Done(_) => "done",
            Outcome::Refused(_) => "refused",
            Outcome::Busy { .. } => "busy",
            Outcome::Lost(_) => "lost",
        };
        self.scene.log.note(self.clock.now(), &format!("studio, {what} {render}: {word}"));
        self.fate.in_call("the studio has answered").await;
        let exchange =
            Exchange { request: what.into(), reply: word.into(), reference: None, sent: true };
        Reply { outcome, exchange, rtt: self.clock.now().since(left) }
    }
}

impl Renderer for Line {
    fn name(&self) -> &str {
        NAME
    }

    fn knows_keys(&self) -> bool {
        self.scene.swarm.studio.knows_keys
    }

    fn submit<'a>(&'a self, job: RenderJob<'a>) -> BoxFuture<'a, Reply<RemoteRender>> {
        Box::pin(self.send(job))
    }

    fn look<'a>(&'a self, submitted: Submitted<'a>) -> BoxFuture<'a, Reply<Option<RemoteRender>>> {
        Box::pin(self.ask(submitted))
    }
}

/// Takes the callbacks that have come.
pub(crate) fn deliver(process: &Arc<Process>) {
    let due = process.scene.works().due(process.clock.now());
    for (number, call) in due {
        let process = Arc::clone(process);
        tokio::spawn(async move {
            process.fate.alive().await;
            let taken = listen(&process, &call).await;
            process.fate.alive().await;
            process.scene.works().taken.remove(&number);
            process.scene.log.count(Tally::Callback);
            let text = format!("callback of {} about {}", call.id, call.render);
            process.scene.log.note(process.clock.now(), &text);
            // Lost with the disk: whoever asks the studio finds out all the same.
            if let Err(error) = taken
                && !is_of_the_disk(&error.to_string())
            {
                process.broken("the store answers", "", &error.to_string());
            }
        });
    }
}

/// What the webhooks' handler does with a callback that was confirmed.
async fn listen(process: &Process, call: &Call) -> Result<(), StoreError> {
    let store = &process.store;
    let rules = &process.scene.swarm.rules.render;
    loop {
        let (mut found, mut attempt) = (store.render_of_provider(NAME, &call.id).await?, None);
        if found.is_none() {
            found = store.render(call.render).await?;
            attempt = Some(call.attempt);
        }
        let Some(render) = found else { return Ok(()) };
        let at = At { now: process.clock.now(), rules, via: "callback" };
        let mut changes = hear(&render, &call.remote, attempt, at);
        if process.scene.planted == Some(Planted::RevivesRender)
            && let Some(revived) = super::planted::revived(&render, &call.remote, at.now)
        {
            changes = Write::RenderUpdate(Box::new(revived)).into();
        }
        match store.commit(changes).await {
            Ok(()) => return Ok(()),
            Err(CommitError::Store(error)) => return Err(error),
            // Somebody was faster: decided again with the render as it is now.
            Err(_) => {}
        }
    }
}
