//! Renders against a scripted Shotstack. The oracle is its ledger of what it has taken.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::json;
use tashika_domain::audit::Actor;
use tashika_domain::case::CaseStatus;
use tashika_domain::render::conclude::{At, Learned, conclude};
use tashika_domain::render::{
    CASE_FAILED, COPY_KIND, GIVE_UP_KIND, GiveUpPayload, KIND, Render, RenderOrder, RenderRules,
    RenderStatus, State, person, start,
};
use tashika_domain::webhook::{KIND as WEBHOOK, Status};
use tashika_domain::{Lane, Write};
use tashika_engine::commands::render::{RenderError, Renders};
use tashika_engine::commands::webhook::{Received, Taken, Webhooks};
use tashika_engine::{
    Clock, Confirmers, CopyHandler, Engine, Ids, RenderHandler, Running, StoredBook, Studio, Till,
    WebhookHandler,
};
use tashika_providers::gateway::sandbox::SandboxGateway;
use tashika_providers::http::ClientConfig;
use tashika_providers::render::Renderer;
use tashika_providers::render::fetch::Fetcher;
use tashika_providers::render::sandbox::SandboxRenderer;
use tashika_providers::render::shotstack::ShotstackRenderer;
use tashika_providers::render::template::Template;
use tashika_providers::shotstack::Shotstack;
use tashika_providers::webhook::{Scheme, Source};
use tashika_store::{AlertFilter, AuditFilter, Claim, EffectFilter, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tashika_testkit::shotstack::{ShotstackServer, Slip};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::support::{HOUR, REMEMBER, engine, patience, policy, stop};

on_both!(
    a_render_is_submitted_once_and_followed_by_questions,
    a_callback_is_quicker_than_questions,
    three_failures_are_a_case_and_people_help,
    the_callback_of_a_lost_submission_names_it,
    a_lost_submission_that_nobody_tells_of_is_made_again,
    a_worker_that_dies_while_submitting_leaves_a_doubt,
    a_video_that_comes_too_late_revives_nothing,
    callbacks_questions_and_people_race_and_one_wins,
    outputs_are_copied_and_failures_are_told,
    the_sandbox_shows_every_way,
);

const SOURCE: &str = "renders";

struct Rig {
    db: TestDb,
    store: Store,
    studio: Arc<Studio>,
    webhooks: Webhooks,
    shotstack: ShotstackServer,
    asker: Arc<Shotstack>,
}

/// Short waits; callbacks are waited for for an hour.
fn rules() -> RenderRules {
    RenderRules {
        provider: "shotstack".into(),
        pause: Duration::ZERO,
        poll: Duration::from_millis(5),
        doubt: HOUR,
        ..RenderRules::default()
    }
}

impl Rig {
    async fn new(db: TestDb, rules: RenderRules) -> Self {
        Self::with(db, rules, None, None).await
    }

    async fn with(
        db: TestDb,
        rules: RenderRules,
        renderer: Option<Arc<dyn Renderer>>,
        fetcher: Option<Fetcher>,
    ) -> Self {
        let (store, clock) = (db.open().await, Clock::System);
        let shotstack = ShotstackServer::start().await;
        let asker = Arc::new(Shotstack::new(&shotstack.config()).unwrap());
        let template = Template::parse(r#"{"timeline": {"v": "{{videoId}}"}, "output": {}}"#);
        let usual = ShotstackRenderer::new(Arc::clone(&asker), template.unwrap());
        let studio = Studio {
            store: store.clone(),
            clock,
            renderer: renderer.unwrap_or_else(|| Arc::new(usual)),
            rules,
            callbacks: Some(format!("https://us.example/webhooks/{SOURCE}/renders")),
            fetcher,
        };
        let source = Source::new(SOURCE, Scheme::Shotstack).unwrap();
        let ids = Ids::random(clock);
        let webhooks = Webhooks::new(store.clone(), clock, ids, vec![source], REMEMBER);
        Self { db, studio: Arc::new(studio), webhooks, shotstack, asker, store }
    }

    fn engine(&self, worker: &str) -> Engine {
        let book = Arc::new(StoredBook(self.store.clone()));
        let gateway = Arc::new(SandboxGateway::new(book, Duration::from_secs(5)));
        let till = Arc::new(Till {
            store: self.store.clone(),
            clock: Clock::System,
            gateway,
            rules: tashika_domain::payment::PaymentRules::default(),
            reservations: tashika_domain::reservation::ReservationRules::default(),
        });
        let confirmers = Confirmers { shotstack: Some(Arc::clone(&self.asker)) };
        let webhooks = WebhookHandler::new(till, Vec::new(), worker, &policy())
            .confirming(confirmers)
            .rendering(Arc::clone(&self.studio));
        engine(&self.store, Clock::System, worker)
            .lane(Lane::RENDERS, patience(2))
            .lane(Lane::WEBHOOKS, patience(4))
            .effect(KIND, RenderHandler(Arc::clone(&self.studio)))
            .effect(COPY_KIND, CopyHandler(Arc::clone(&self.studio)))
            .effect(WEBHOOK, webhooks)
    }

    fn start(&self) -> Running {
        self.engine("host:1:a").start()
    }

    async fn begin(&self, number: u128) -> Uuid {
        self.begin_video(number, 42).await
    }

    async fn begin_video(&self, number: u128, video_id: i64) -> Uuid {
        let id = Uuid::from_u128(number);
        let reservation_id = Uuid::from_u128(number + 1000);
        let rules = &self.studio.rules;
        let order = RenderOrder { id, reservation_id, video_id, traceparent: None, rules };
        self.store.commit(start(order, Clock::System.now())).await.unwrap();
        id
    }

    async fn render(&self, id: Uuid) -> Render {
        self.store.render(id).await.unwrap().expect("the render is kept")
    }

    async fn when(&self, id: Uuid, what: &str, enough: impl Fn(&Render) -> bool) -> Render {
        until(what, async || Some(self.render(id).await).filter(&enough)).await
    }

    async fn ended(&self, id: Uuid, status: RenderStatus) -> Render {
        self.when(id, status.as_str(), |render| render.status == status).await
    }

    /// A callback as Shotstack makes it, to the address that it was given with the attempt.
    async fn call_back(&self, provider_id: &str, status: &str, reference: &str) -> Uuid {
        self.shotstack.render(provider_id, status);
        let body = json!({"type": "edit", "action": "render", "id": provider_id, "owner": "us",
            "status": status, "url": "https://evil.example/x.mp4", "error": null});
        let (body, headers) = (body.to_string(), HeaderMap::new());
        let (body, source) = (body.as_bytes(), SOURCE);
        let received = Received { source, headers: &headers, body, traceparent: None };
        match self.webhooks.receive_about(received, Some(reference)).await.unwrap() {
            Taken::Accepted(accepted) => accepted.message_id,
            Taken::Challenged(text) => panic!("a challenge: {text}"),
        }
    }

    async fn processed(&self, event: Uuid) {
        until("the event's end", async || {
            let event = self.store.webhook_event(event).await.unwrap().unwrap();
            (event.status == Status::Success).then_some(())
        })
        .await;
    }

    async fn lines(&self, id: Uuid) -> Vec<String> {
        let all = self.store.audit_logs(&AuditFilter::default(), 1000).await.unwrap();
        let of = all.into_iter().rev().filter(|line| line.target_id == id.to_string());
        of.map(|line| line.action).collect()
    }

    async fn count(&self, id: Uuid, action: &str) -> usize {
        self.lines(id).await.iter().filter(|line| *line == action).count()
    }
}

async fn a_render_is_submitted_once_and_followed_by_questions(db: TestDb) {
    let rig = Rig::new(db, rules()).await;
    let running = rig.start();
    let id = rig.begin(1).await;
    let taken = rig.ended(id, RenderStatus::Processing).await;
    assert_eq!(taken.provider_id.as_deref(), Some("render-0001"));
    until("a question", async || (!rig.shotstack.asked().is_empty()).then_some(())).await;
    rig.shotstack.render("render-0001", "done");
    let done = rig.ended(id, RenderStatus::Done).await;
    stop(running).await;
    let url = "https://cdn.shotstack.example/render-0001.mp4";
    assert_eq!((done.output_url.as_deref(), done.attempts), (Some(url), 1));
    assert!(done.output_expires_at.is_some());
    let submissions = rig.shotstack.submissions();
    assert_eq!(submissions.len(), 1);
    let callback = format!("https://us.example/webhooks/{SOURCE}/renders/{id}/1");
    assert_eq!(submissions[0].edit["callback"], callback);
    assert_eq!(submissions[0].edit["timeline"]["v"], "42");
    assert_eq!(rig.lines(id).await, ["render.submitted", "render.done"]);
}

async fn a_callback_is_quicker_than_questions(db: TestDb) {
    let rig = Rig::new(db, RenderRules { poll: HOUR, ..rules() }).await;
    let running = rig.start();
    let id = rig.begin(1).await;
    rig.ended(id, RenderStatus::Processing).await;
    for _ in 0..3 {
        let event = rig.call_back("render-0001", "done", &format!("{id}/1")).await;
        rig.processed(event).await;
    }
    let done = rig.ended(id, RenderStatus::Done).await;
    stop(running).await;
    assert!(done.output_url.unwrap().starts_with("https://cdn.shotstack.example/"));
    assert_eq!(rig.count(id, "render.done").await, 1);
    assert_eq!(rig.shotstack.submissions().len(), 1);
}

async fn three_failures_are_a_case_and_people_help(db: TestDb) {
    let rig = Rig::new(db, rules()).await;
    rig.shotstack.begin_as("failed");
    // One of the three is refused at the door: that counts, too.
    rig.shotstack.slip([Slip::Status(400)]);
    let running = rig.start();
    let id = rig.begin(1).await;
    let failed = rig.ended(id, RenderStatus::Failed).await;
    assert_eq!((failed.state(), failed.attempts), (State::Failed, 3));
    assert_eq!(rig.shotstack.submissions().len(), 2);
    let renders = Renders(Arc::clone(&rig.studio));
    let view = renders.find(id).await.unwrap();
    let case = view.case.unwrap();
    assert_eq!(
        (case.kind.as_str(), case.actions),
        (CASE_FAILED, vec!["retry".into(), "resolve".into()])
    );
    let timers = EffectFilter { kind: Some(GIVE_UP_KIND.into()), ..EffectFilter::default() };
    let timers = rig.store.effects(&timers, 10).await.unwrap();
    assert_eq!((timers.len(), &timers[0].lane), (1, &Lane::TIMERS));

    rig.shotstack.begin_as("done");
    renders.retry(id, "operator").await.unwrap();
    renders.retry(id, "operator").await.ok();
    let done = rig.ended(id, RenderStatus::Done).await;
    stop(running).await;
    assert_eq!(done.attempts, 4);
    assert_eq!(rig.shotstack.submissions().len(), 3, "tried again once");
    let cases = rig.store.cases_of(KIND, &id.to_string()).await.unwrap();
    assert!(cases.iter().all(|case| case.status == CaseStatus::Resolved));
    let again = renders.retry(id, "operator").await;
    assert!(matches!(again, Err(RenderError::State(_))), "{again:?}");
    let body = json!({"note": "x"});
    assert_eq!(renders.resolve(id, "o", &body).await.unwrap().render, rig.render(id).await);
}

async fn the_callback_of_a_lost_submission_names_it(db: TestDb) {
    let rig = Rig::new(db, rules()).await;
    rig.shotstack.slip([Slip::LostAfter]);
    let running = rig.start();
    let id = rig.begin(1).await;
    let doubtful = rig.ended(id, RenderStatus::Processing).await;
    assert!(doubtful.is_in_doubt());
    // Somebody else's number does not make it this one.
    let other = rig.call_back("render-0001", "failed", &format!("{id}/9")).await;
    rig.processed(other).await;
    assert_eq!(rig.render(id).await, doubtful);
    let event = rig.call_back("render-0001", "done", &format!("{id}/1")).await;
    rig.processed(event).await;
    let done = rig.ended(id, RenderStatus::Done).await;
    stop(running).await;
    assert_eq!((done.provider_id.as_deref(), done.attempts), (Some("render-0001"), 1));
    assert_eq!(rig.shotstack.submissions().len(), 1, "nothing was submitted again");
}

async fn a_lost_submission_that_nobody_tells_of_is_made_again(db: TestDb) {
    let rig = Rig::new(db, RenderRules { doubt: Duration::ZERO, ..rules() }).await;
    rig.shotstack.slip([Slip::LostAfter, Slip::LostBefore]);
    rig.shotstack.begin_as("done");
    let running = rig.start();
    let id = rig.begin(1).await;
    let done = rig.ended(id, RenderStatus::Done).await;
    stop(running).await;
    assert_eq!(done.attempts, 3, "each of them counts");
    assert_eq!(rig.shotstack.submissions().len(), 2);
    assert_eq!(rig.count(id, "render.unanswered").await, 2);
}

async fn a_worker_that_dies_while_submitting_leaves_a_doubt(db: TestDb) {
    let rig = Rig::new(db, rules()).await;
    let id = rig.begin(1).await;
    let now = Clock::System.now();
    let lane = &Lane::RENDERS;
    let claim = Claim { lane, worker: "host:9:dead", now, limit: 9 };
    let held = rig.store.claim(claim).await.unwrap();
    // It had submitted when it died.
    let edit = json!({"timeline": {}, "output": {}});
    rig.asker.submit(&edit, now).await;
    rig.db.last_heard(held[0].id, now.minus(HOUR)).await;
    let running = rig.start();
    let doubtful = rig.ended(id, RenderStatus::Processing).await;
    assert!(doubtful.is_in_doubt(), "nobody knows, so nothing is submitted again yet");
    assert_eq!(rig.shotstack.submissions().len(), 1);
    let event = rig.call_back("render-0001", "done", &format!("{id}/1")).await;
    rig.processed(event).await;
    rig.ended(id, RenderStatus::Done).await;
    stop(running).await;
    assert_eq!(rig.shotstack.submissions().len(), 1);
}

async fn a_video_that_comes_too_late_revives_nothing(db: TestDb) {
    let rig = Rig::new(db, RenderRules { poll: HOUR, ..rules() }).await;
    let running = rig.start();
    let (given_up, cancelled) = (rig.begin(1).await, rig.begin(2).await);
    for id in [given_up, cancelled] {
        rig.ended(id, RenderStatus::Processing).await;
    }
    let now = Clock::System.now();
    let at = At { now, rules: &rig.studio.rules, via: "test" };
    let mut render = rig.render(given_up).await;
    render.attempts = render.allowed;
    let reason = tashika_domain::outcome::Reason::new("X", "x");
    rig.store.commit(conclude(&render, &Learned::Failed(reason), at)).await.unwrap();
    let failed = rig.render(given_up).await;
    let (render_id, reservation_id) = (failed.id, failed.reservation_id);
    let clock = GiveUpPayload { render_id, reservation_id, attempts: failed.attempts };
    assert!(person::may_give_up(&failed, &clock));
    rig.store.commit(person::given_up(&failed, now)).await.unwrap();
    rig.store.commit(person::cancelled(&rig.render(cancelled).await, now)).await.unwrap();
    for id in [given_up, cancelled] {
        let before = rig.render(id).await;
        assert_eq!(before.state(), State::Closed);
        let provider_id = before.provider_id.clone().unwrap();
        let event = rig.call_back(&provider_id, "done", &format!("{id}/1")).await;
        rig.processed(event).await;
        assert_eq!(rig.render(id).await, before, "it is over");
        assert_eq!(rig.count(id, "render.late").await, 1);
        let renders = Renders(Arc::clone(&rig.studio));
        assert!(matches!(renders.retry(id, "o").await, Err(RenderError::State(_))));
    }
    stop(running).await;
    let cases = rig.store.cases_of(KIND, &given_up.to_string()).await.unwrap();
    assert!(cases.iter().all(|case| case.status == CaseStatus::Resolved));
}

/// Many at once: whoever learns of the end first writes it, and it is written once.
async fn callbacks_questions_and_people_race_and_one_wins(db: TestDb) {
    let rig = Rig::new(db, RenderRules { attempts: 1, ..rules() }).await;
    let (one, two) = (rig.start(), rig.engine("host:2:b").start());
    let renders = Renders(Arc::clone(&rig.studio));
    let mut ids = Vec::new();
    for number in 1..=10 {
        let id = rig.begin(number).await;
        rig.when(id, "an id", |render| render.provider_id.is_some()).await;
        ids.push(id);
    }
    let racing = ids.iter().map(|id| {
        let (rig, renders) = (&rig, &renders);
        async move {
            let provider_id = rig.render(*id).await.provider_id.unwrap();
            let reference = format!("{id}/1");
            let called = rig.call_back(&provider_id, "done", &reference);
            let (event, retried) =
                futures_util::future::join(called, renders.retry(*id, "o")).await;
            // Too early or too late, and either way without an effect.
            drop(retried);
            rig.processed(event).await;
        }
    });
    futures_util::future::join_all(racing).await;
    for id in &ids {
        let done = rig.ended(*id, RenderStatus::Done).await;
        assert_eq!(done.attempts, 1);
        assert_eq!(rig.count(*id, "render.done").await, 1);
    }
    stop(one).await;
    stop(two).await;
    assert_eq!(rig.shotstack.submissions().len(), 10);
}

/// Serves one body, then only 404.
async fn outputs(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut first = true;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            if stream.read(&mut request).await.is_err() {
                continue;
            }
            let (status, body) = if first { ("200 OK", body) } else { ("404 Not Found", "") };
            first = false;
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close");
            // A client that is gone hears nothing.
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.ok();
        }
    });
    format!("http://{address}/video.mp4")
}

async fn outputs_are_copied_and_failures_are_told(db: TestDb) {
    let name = format!("tashika-renders-{}-{:?}", std::process::id(), db.dialect());
    let folder = std::env::temp_dir().join(name);
    let client = ClientConfig::with_timeout(Duration::from_secs(5));
    let fetcher = Fetcher::new(&folder, 1_000_000, HOUR, &client).unwrap();
    let rules = RenderRules { copies: true, poll: HOUR, ..rules() };
    let rig = Rig::with(db, rules, None, Some(fetcher)).await;
    let running = rig.start();
    let url = outputs("the video").await;
    let renders = Renders(Arc::clone(&rig.studio));
    let mut paths = Vec::new();
    for number in 1..=2 {
        let id = rig.begin(number).await;
        let taken = rig.when(id, "an id", |render| render.provider_id.is_some()).await;
        let now = Clock::System.now();
        let mut exhausted = Render { allowed: taken.attempts, ..taken };
        let reason = tashika_domain::outcome::Reason::new("X", "x");
        let at = At { now, rules: &rig.studio.rules, via: "test" };
        let changes = conclude(&exhausted, &Learned::Failed(reason), at);
        rig.store.commit(changes).await.unwrap();
        // A person has found the video.
        let body = json!({"outputUrl": url, "note": "by hand"});
        exhausted = renders.resolve(id, "operator", &body).await.unwrap().render;
        assert_eq!(exhausted.status, RenderStatus::Done);
        paths.push(id);
    }
    let copied = until("a copy", async || {
        let mut found = Vec::new();
        for id in &paths {
            found.extend(rig.render(*id).await.output_path);
        }
        found.pop()
    })
    .await;
    assert_eq!(std::fs::read_to_string(&copied).unwrap(), "the video");
    // The other one finds nothing: somebody is told, and the render is done all the same.
    let alert = until("an alert", async || {
        let alerts = rig.store.alerts(&AlertFilter::default(), 10).await.unwrap();
        alerts.into_iter().find(|alert| alert.rule == "render_copy_failed")
    })
    .await;
    assert_eq!(alert.labels["code"], "OUTPUT_GONE");
    stop(running).await;
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

async fn the_sandbox_shows_every_way(db: TestDb) {
    let takes = Duration::from_millis(20);
    let sandbox = SandboxRenderer::new(Duration::from_millis(10)).taking(takes);
    let rules = RenderRules { provider: "sandbox".into(), attempt_limit: takes * 10, ..rules() };
    let rig = Rig::with(db, rules, Some(Arc::new(sandbox)), None).await;
    let running = rig.start();
    for (video, status, attempts, code) in [
        (42, RenderStatus::Done, 1, None),
        (9001, RenderStatus::Failed, 3, Some("SANDBOX_FAILED")),
        (9002, RenderStatus::Done, 3, None),
        (9003, RenderStatus::Failed, 3, Some("SANDBOX_REFUSED")),
        (9004, RenderStatus::Done, 1, None),
        (9005, RenderStatus::Failed, 3, Some("TIMEOUT")),
        (9006, RenderStatus::Failed, 3, Some("SANDBOX_DOWN")),
        (9007, RenderStatus::Failed, 3, Some("RENDER_OVERDUE")),
        (9008, RenderStatus::Failed, 3, Some("RENDER_GONE")),
    ] {
        let id = rig.begin_video(u128::try_from(video).unwrap(), video).await;
        let ended = rig.ended(id, status).await;
        assert_eq!(ended.attempts, attempts, "{video}");
        let said = ended.error.as_ref().map(|reason| reason.code.as_str());
        assert_eq!(said, code, "{video}");
    }
    // A person ends one of those by hand, and whoever asks sees who.
    let id = Uuid::from_u128(9001);
    let render = rig.render(id).await;
    let resolution = person::Resolution { output_url: None, note: "sent by post".into() };
    let actor = Actor::operator("somebody");
    let now = Clock::System.now();
    let changes = person::resolve(&render, &resolution, actor, &rig.studio.rules, now).unwrap();
    assert!(changes.writes().iter().any(|write| matches!(write, Write::Audit(_))));
    rig.store.commit(changes).await.unwrap();
    assert_eq!(rig.render(id).await.status, RenderStatus::Done);
    stop(running).await;
}
