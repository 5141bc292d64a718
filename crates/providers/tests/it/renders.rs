//! Providers of renders: what they are sent, what is made of every reply, and copies of outputs.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::Outcome;
use tashika_domain::render::conclude::{RemoteRender, RemoteState};
use tashika_providers::guard::Guard;
use tashika_providers::http::{ClientConfig, Vetting};
use tashika_providers::render::fetch::Fetcher;
use tashika_providers::render::http::HttpRenderer;
use tashika_providers::render::shotstack::ShotstackRenderer;
use tashika_providers::render::template::Template;
use tashika_providers::render::{RenderJob, Renderer as _, Submitted};
use tashika_providers::shotstack::Shotstack;
use tashika_testkit::shotstack::{ShotstackServer, Slip, Trouble};
use uuid::Uuid;

use crate::gateway::{NOW, TRACE, answering, client, lines, told};
use crate::server::{Act, Server};

const RENDER: Uuid = Uuid::from_u128(7);

fn job(callback: Option<&'static str>) -> RenderJob<'static> {
    RenderJob {
        render_id: RENDER,
        attempt: 2,
        reservation_id: Uuid::from_u128(8),
        video_id: 42,
        callback,
        asked_at: NOW,
        now: NOW,
        traceparent: Some(TRACE),
    }
}

fn submitted(provider_id: &str) -> Submitted<'_> {
    Submitted { render_id: RENDER, attempt: 2, provider_id, now: NOW }
}

fn state(remote: &RemoteRender) -> String {
    match &remote.state {
        RemoteState::Working => format!("{} working", remote.id),
        RemoteState::Done { url, .. } => format!("{} done {url}", remote.id),
        RemoteState::Failed(reason) => format!("{} failed {}", remote.id, reason.message),
    }
}

#[expect(clippy::ref_option, reason = "the form in which `told` hands it over")]
fn maybe(remote: &Option<RemoteRender>) -> String {
    remote.as_ref().map_or("unknown".to_owned(), state)
}

fn shotstack(server: &ShotstackServer) -> ShotstackRenderer {
    let text = json!({"timeline": {"src": "https://a/{{videoId}}"}, "output": {}}).to_string();
    let shotstack = Arc::new(Shotstack::new(&server.config()).unwrap());
    ShotstackRenderer::new(shotstack, Template::parse(&text).unwrap())
}

#[tokio::test]
async fn shotstack_takes_a_description_and_says_what_became_of_it() {
    let server = ShotstackServer::start().await;
    let renderer = shotstack(&server);
    assert!(!renderer.knows_keys());
    let reply = renderer.submit(job(Some("https://us/cb"))).await;
    assert_eq!(told(&reply.outcome, state), "render-0001 working");
    let taken = server.submissions();
    assert_eq!(taken[0].edit["timeline"]["src"], "https://a/42");
    assert_eq!(taken[0].edit["callback"], "https://us/cb");
    let look = async || told(&renderer.look(submitted("render-0001")).await.outcome, maybe);
    assert_eq!(look().await, "render-0001 working");
    server.render("render-0001", "saving");
    assert_eq!(look().await, "render-0001 working");
    server.render("render-0001", "done");
    assert_eq!(look().await, "render-0001 done https://cdn.shotstack.example/render-0001.mp4");
    server.render("render-0001", "failed");
    assert_eq!(look().await, "render-0001 failed no reason given");
    server.render("render-0001", "dreaming");
    assert_eq!(look().await, "Busy SHOTSTACK_UNREADABLE");
    server.trouble([Trouble::HangUp, Trouble::Status(500)]);
    assert_eq!(look().await, "Busy SHOTSTACK_TIMEOUT");
    assert_eq!(look().await, "Busy SHOTSTACK_BUSY");
    let nobody = renderer.look(submitted("nobody")).await;
    assert_eq!(told(&nobody.outcome, maybe), "unknown");
}

#[tokio::test]
async fn a_submission_to_shotstack_is_refused_busy_or_lost() {
    let server = ShotstackServer::start().await;
    let renderer = shotstack(&server);
    for (slip, expected, taken) in [
        (Slip::Status(400), "Refused SHOTSTACK_REFUSED", 0),
        (Slip::Status(401), "Busy SHOTSTACK_UNAUTHORIZED", 0),
        (Slip::Status(429), "Busy SHOTSTACK_BUSY", 0),
        (Slip::Status(500), "Lost SHOTSTACK_UNKNOWN", 0),
        (Slip::LostBefore, "Lost SHOTSTACK_TIMEOUT", 0),
        (Slip::LostAfter, "Lost SHOTSTACK_TIMEOUT", 1),
    ] {
        server.slip([slip]);
        let reply = renderer.submit(job(None)).await;
        assert_eq!(told(&reply.outcome, state), expected, "{slip:?}");
        assert_eq!(server.submissions().len(), taken, "{slip:?}");
    }
    let gone = server.config();
    drop(server);
    let shotstack = Arc::new(Shotstack::new(&gone).unwrap());
    let template = Template::parse(r#"{"timeline": {}, "output": {}}"#).unwrap();
    let reply = ShotstackRenderer::new(shotstack, template).submit(job(None)).await;
    assert_eq!(told(&reply.outcome, state), "Busy SHOTSTACK_DOWN");
}

#[tokio::test]
async fn the_protocol_has_its_paths_keys_and_meanings() {
    let said = |status: &str, more: &str| format!(r#"{{"id":"V-1","status":"{status}"{more}}}"#);
    let done = said("done", r#","url":"https://a/b","expiresAt":"2026-11-15T10:00:00Z""#);
    let failed = said("failed", r#","error":"no font""#);
    let (queued, nowhere) = (said("queued", ""), said("done", ""));
    let missing = r#"{"code":"RENDER_NOT_FOUND"}"#.to_owned();
    let replies = [
        (201, &queued),
        (200, &nowhere),
        (422, &queued),
        (503, &queued),
        (401, &queued),
        (200, &done),
        (200, &failed),
        (404, &missing),
        (404, &queued),
    ];
    let server = answering(replies.map(|(status, body)| (status, "", body))).await;
    let token = SecretString::from("hunter2");
    let renderer = HttpRenderer::new(&server.url("/v1/"), Some(&token), &client()).unwrap();
    assert!(renderer.knows_keys());
    for expected in [
        "V-1 working",
        "Lost RENDERER_UNREADABLE",
        "Refused RENDERER_REFUSED",
        "Lost RENDERER_UNKNOWN",
        "Busy RENDERER_UNAUTHORIZED",
    ] {
        assert_eq!(told(&renderer.submit(job(None)).await.outcome, state), expected);
    }
    for expected in ["V-1 done https://a/b", "V-1 failed no font", "unknown", "Busy RENDERER_DOWN"]
    {
        assert_eq!(told(&renderer.look(submitted("V-1")).await.outcome, maybe), expected);
    }
    let sent = lines(&server);
    assert_eq!(sent[0], "POST /v1/renders");
    assert_eq!(sent[5], format!("GET /v1/renders/{RENDER}/2"));
    let heard = server.heard();
    assert_eq!(heard[0].header("idempotency-key"), Some(&*format!("{RENDER}:2")));
    assert_eq!(heard[0].header("authorization"), Some("Bearer hunter2"));
    let body: Value = serde_json::from_str(&heard[0].body).unwrap();
    assert_eq!((&body["videoId"], &body["attempt"]), (&json!(42), &json!(2)));
    for wrong in ["", "ftp://a", "https://a/?b", "https://u:p@a/"] {
        assert!(HttpRenderer::new(wrong, None, &client()).is_err(), "{wrong}");
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    let unique = format!("tashika-copies-{}-{name}", std::process::id());
    std::env::temp_dir().join(unique)
}

#[tokio::test]
async fn an_output_is_copied_whole_or_not_at_all() {
    let body = "v".repeat(100_000);
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nvideo";
    let server = Server::playing([
        Act::Say(crate::server::reply(200, "", &body)),
        Act::Say(crate::server::reply(404, "", "")),
        Act::Say(crate::server::reply(500, "", "")),
        Act::Say(crate::server::reply(200, "", &body)),
        Act::SayAndClose(short.into()),
    ])
    .await;
    let folder = folder("whole");
    let longest = Duration::from_secs(30);
    let fetcher = |max| Fetcher::new(&folder, max, longest, &client()).unwrap();
    let url = server.url("/out/video.MP4?signature=x");
    let copy = async |max: u64, turn: &str| fetcher(max).copy(RENDER, &url, turn).await.outcome;
    let Outcome::Done(copied) = copy(1_000_000, "1").await else { panic!("a copy") };
    assert_eq!(copied.path, folder.join(format!("{RENDER}.mp4")));
    assert_eq!(copied.bytes, 100_000);
    assert_eq!(std::fs::read_to_string(&copied.path).unwrap(), body);
    let said = |outcome: &Outcome<_>| told(outcome, |_| "copied".into());
    assert_eq!(said(&copy(1_000_000, "2").await), "Refused OUTPUT_GONE");
    assert_eq!(said(&copy(1_000_000, "3").await), "Busy OUTPUT_NOT_COPIED");
    assert_eq!(said(&copy(10, "4").await), "Refused OUTPUT_TOO_LARGE");
    assert_eq!(said(&copy(1_000_000, "5").await), "Busy OUTPUT_NOT_COPIED");
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left of those that failed: {left:?}");
    assert_eq!(std::fs::read_to_string(&copied.path).unwrap(), body, "and the copy is whole");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Where an output is, is the provider's word: it must not make us read what only we can reach.
#[tokio::test]
async fn an_output_in_our_own_network_is_not_read() {
    let server = Server::playing(vec![Act::Say(crate::server::reply(200, "", "secret")); 9]).await;
    let folder = folder("guarded");
    let port = server.addr.port();
    let fetcher = |trusted: Option<String>| {
        let guard = Some(Vetting::new(Guard::default(), trusted));
        let client = ClientConfig { guard, ..client() };
        Fetcher::new(&folder, 1_000_000, Duration::from_secs(30), &client).unwrap()
    };
    let strict = fetcher(None);
    let said = |outcome: &Outcome<_>| told(outcome, |_| "copied".into());
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "[::]",
        "localhost",
        "a.localhost",
        "169.254.169.254",
        "u:p@10.0.0.1",
    ] {
        let url = format!("http://{host}:{port}/latest/meta-data?key=s3cret");
        let reply = strict.copy(RENDER, &url, "1").await;
        assert_eq!(said(&reply.outcome), "Refused OUTPUT_FORBIDDEN", "{host}");
        assert!(!format!("{reply:?}").contains("s3cret"), "{reply:?}");
    }
    // A name that leads there is found out when it is resolved; this machine's own name is one.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let reply = strict.copy(RENDER, &format!("http://{}:{port}/", name.trim()), "2").await;
    assert_eq!(said(&reply.outcome), "Busy OUTPUT_NOT_COPIED");
    assert!(server.heard().is_empty() && !folder.join(format!("{RENDER}.bin")).exists());
    // Except where the operator's own service is.
    let trusting = fetcher(Some("LocalHost".to_owned()));
    let reply = trusting.copy(RENDER, &format!("http://localhost:{port}/v.mp4"), "3").await;
    assert_eq!(said(&reply.outcome), "copied");
    std::fs::remove_dir_all(&folder).unwrap();
}
