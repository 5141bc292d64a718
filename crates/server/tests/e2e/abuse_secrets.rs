//! Secrets show up nowhere.
//!
//! A server gets recognisable secrets wherever it takes one, and lives through a story in which much
//! goes wrong, at the most talkative log level. Then everything that it has produced is searched for
//! them, in the spellings in which they could have slipped through.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::order::broker_code;
use tashika_providers::webhook::stripe_header;
use tashika_server::password::PasswordHash;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::support::mail::{Post, letter};
use crate::support::payments::{Gateway, STRIPE_KEY, payment};
use crate::support::{Answer, Broker, Request, Server, Setup, order};
use crate::traces::Sink;
use crate::webhooks::{event, now, to};

on_both!(planted_secrets_show_up_nowhere);

const TOKEN: &str = "planted-api-token-e1f2a3";
const WRONG_TOKEN: &str = "planted-wrong-token-b4c5";
const PASSWORD: &str = "planted console password 77";
const WRONG_PASSWORD: &str = "planted wrong password 78";
const STRIPE_SECRET: &str = "whsec_plantedstripe91";
const GITHUB_SECRET: &str = "plantedgithubsecret92";
const SHOTSTACK_KEY: &str = "planted-shotstack-key-93";
const SMTP_PASSWORD: &str = "planted/smtp:password@94";
const SINK_PATH: &str = "planted-sink-path-95";
const ALERT_PATH: &str = "planted-alert-path-96";
const QSTASH_TOKEN: &str = "planted-qstash-token-97";
const FORWARDED: &str = "planted-forwarded-authorization-98";
const CARD: &str = "4242424242424242";
const CVC_FIELD: &str = "4000 0566 5566 5556";

/// What nobody may be shown, not even whoever has a token.
fn secrets() -> Vec<(&'static str, String)> {
    let whsec = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    vec![
        ("an API token", TOKEN.into()),
        ("a wrong API token", WRONG_TOKEN.into()),
        ("a password of the console", PASSWORD.into()),
        ("a wrong password", WRONG_PASSWORD.into()),
        ("the gateway's key", STRIPE_KEY.into()),
        ("the secret of Stripe's webhooks", STRIPE_SECRET.into()),
        ("the secret of another sender", GITHUB_SECRET.into()),
        ("the key for asking Shotstack", SHOTSTACK_KEY.into()),
        ("the broker's secret", Broker::secret()),
        ("the mail server's password", SMTP_PASSWORD.into()),
        ("a sink's address", SINK_PATH.into()),
        ("the secret of sinks", whsec(SINK_KEY)),
        ("the address of alerts", ALERT_PATH.into()),
        ("the secret of alerts", whsec(ALERT_KEY)),
        ("the secret of forwarded events", whsec(FORWARD_KEY)),
        ("the token for QStash", QSTASH_TOKEN.into()),
        ("a card number", CARD.into()),
        ("a card number with blanks", CVC_FIELD.into()),
    ]
}

const SINK_KEY: &[u8] = b"planted sink signing key";
const ALERT_KEY: &[u8] = b"planted alert signing key";
const FORWARD_KEY: &[u8] = b"planted forward signing key";

/// What callers may read through the API, and logs, metrics and traces must not repeat.
const PRIVATE: [(&str, &str); 5] = [
    ("a mail address", "planted.reader"),
    ("a mail address of a customer", "planted@example.com"),
    ("a client secret in an event", "s3cr3t"),
    ("a header for a destination", FORWARDED),
    ("an idempotency key", "planted-key-4711"),
];

/// The spellings of a secret.
fn spellings(secret: &str) -> Vec<String> {
    let (mut hex, mut percent) = (String::new(), String::new());
    for byte in secret.bytes() {
        write!(hex, "{byte:02x}").unwrap();
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            percent.push(char::from(byte));
        } else {
            write!(percent, "%{byte:02X}").unwrap();
        }
    }
    let everything = secret.bytes().fold(String::new(), |mut all, byte| {
        write!(all, "%{byte:02X}").unwrap();
        all
    });
    let encoded = BASE64_STANDARD_NO_PAD.encode(secret);
    vec![secret.to_owned(), encoded, hex, percent, everything]
}

fn setup(db: &TestDb, broker: &Broker, gateway: &Gateway, post: &Post) -> Setup {
    let hash = PasswordHash::make(PASSWORD).unwrap().text();
    let whsec = |bytes: &[u8]| format!("whsec_{}", BASE64_STANDARD.encode(bytes));
    let nobody = "http://127.0.0.1:9";
    let setup = Setup::of(db).broker(broker).stripe(gateway);
    post.setup(setup)
        .set("SMTP_URL", post.server.url_with("tashika", SMTP_PASSWORD))
        .set("TASHIKA_LOG", "trace")
        .set("TASHIKA_API_TOKENS", TOKEN)
        .set("CONSOLE_USERS", format!("aiko:operator:{hash}"))
        .set("STRIPE_WEBHOOK_SECRET", STRIPE_SECRET)
        .set("WEBHOOK_SOURCES", "github,render:shotstack")
        .set("WEBHOOK_SECRETS", format!("github={GITHUB_SECRET}"))
        .set("SHOTSTACK_API_KEY", SHOTSTACK_KEY)
        .set("SHOTSTACK_API_BASE", nobody)
        .set("EVENT_SINK_URLS", format!("{nobody}/{SINK_PATH}"))
        .set("EVENT_SINK_SECRET", whsec(SINK_KEY))
        .set("ALERT_WEBHOOK_URL", format!("{nobody}/{ALERT_PATH}"))
        .set("ALERT_WEBHOOK_SECRET", whsec(ALERT_KEY))
        .set("ALERT_INTERVAL_SEC", "0.2")
        .set("WEBHOOK_FORWARD", json!([{"name": "billing", "url": format!("{nobody}/in")}]))
        .set("WEBHOOK_FORWARD_SECRET", whsec(FORWARD_KEY))
        .set("QUEUE_PROVIDER", "qstash")
        .set("QSTASH_URL", nobody)
        .set("QSTASH_TOKEN", QSTASH_TOKEN)
        .set("PAYMENT_VERIFY_MAX_ATTEMPTS", 2)
        .set("OUTBOX_WEBHOOKS_BACKOFF_SEC", "0.01")
        .set("OUTBOX_EVENTS_BACKOFF_SEC", "0.01")
}

/// Whatever the server has produced, piece by piece, with its name.
#[derive(Default)]
struct Produced(Vec<(String, String)>);

impl Produced {
    fn add(&mut self, what: impl Into<String>, text: impl Into<String>) {
        self.0.push((what.into(), text.into()));
    }

    /// Asks, and keeps the answer with its headers.
    async fn ask(&mut self, server: &Server, what: &str, request: Request) -> Answer {
        let answer = server.ask(request).await;
        self.add(what, format!("{answer:?}"));
        answer
    }

    #[track_caller]
    fn holds_none_of(&self, secrets: &[(&str, String)], where_: impl Fn(&str) -> bool) {
        let mut found = Vec::new();
        for (name, text) in self.0.iter().filter(|(name, _)| where_(name)) {
            for (what, secret) in secrets {
                for spelling in spellings(secret) {
                    if let Some(at) = text.find(&spelling) {
                        let from = text.floor_char_boundary(at.saturating_sub(200));
                        let to = text.ceil_char_boundary((at + 200).min(text.len()));
                        found.push(format!("{what} in {name}: …{}…", &text[from..to]));
                    }
                }
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

fn tokened(request: Request) -> Request {
    request.token(TOKEN)
}

async fn orders(server: &Server, produced: &mut Produced) {
    for key in ["planted-key-4711-a", "planted-key-4711-b"] {
        let place = tokened(Request::order(&order(key)));
        assert_eq!(produced.ask(server, "an order", place.clone()).await.status, 201);
        until("the order's end", async || {
            let asked = tokened(Request::get(&format!("/do/order/{key}")));
            (server.ask(asked).await.json()["status"] != "accepted").then_some(())
        })
        .await;
        produced.ask(server, "the order again", place).await;
        let stranger = Request::order(&order(key)).token(WRONG_TOKEN);
        produced.ask(server, "a stranger", stranger).await.is_problem(401, "UNAUTHORIZED");
        let cut = tokened(Request::post(key, format!("{{\"instrument\": \"{CARD}\"")));
        produced.ask(server, "half an order", cut).await.is_problem(400, "INVALID_JSON");
    }
}

async fn payments(server: &Server, gateway: &Gateway, produced: &mut Produced) {
    for (field, value) in [("paymentMethod", CARD), ("description", CVC_FIELD)] {
        let mut body = payment("pm_card_visa");
        body[field] = json!(value);
        let pay = tokened(Request::pay("planted-key-4711-c", &body));
        let answer = produced.ask(server, "a payment with a card number", pay).await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenSilence]);
    for operation in [Operation::Retrieve, Operation::List, Operation::Search] {
        gateway.world.usually(operation, Fault::DropBefore);
    }
    let pay = tokened(Request::pay("planted-key-4711-d", &payment("pm_card_visa")));
    assert_eq!(produced.ask(server, "a payment without an answer", pay).await.status, 202);
    until("a case", async || {
        let cases = server.ask(tokened(Request::get("/cases?status=open"))).await.json();
        let items = cases["items"].as_array().unwrap();
        items.iter().any(|case| case["subjectType"] == "payment").then_some(())
    })
    .await;
}

async fn webhooks(server: &Server, produced: &mut Produced) {
    let body = event("evt_planted", "invoice.payment_succeeded", "cus_nobody");
    let sign = |secret: &str| stripe_header(&SecretString::from(secret), body.as_bytes(), now());
    let sent =
        |signature: String| to("/webhooks/stripe", &body).header("stripe-signature", signature);
    assert_eq!(produced.ask(server, "an event", sent(sign(STRIPE_SECRET))).await.status, 204);
    let forged = sent(sign("whsec_another"));
    produced.ask(server, "a forged event", forged).await.is_problem(400, "INVALID_SIGNATURE");
    let github = to("/webhooks/github", "{}").header("x-hub-signature-256", "sha256=00");
    produced.ask(server, "another forged event", github).await;
    let unsigned = json!({"id": "r-1", "type": "edit", "action": "render", "status": "done",
        "url": "https://example.com/planted@example.com"});
    produced.ask(server, "a callback", to("/webhooks/render", &unsigned.to_string())).await;
    server
        .log
        .until("the failed event", |event| event["message"] == "a webhook could not be processed")
        .await;
}

async fn mail_and_messages(server: &Server, produced: &mut Produced) {
    let mail = tokened(Request::json("/mail", &letter("planted.reader@example.com")));
    assert_eq!(produced.ask(server, "a mail", mail).await.status, 202);
    server
        .log
        .until("an attempt at the mail", |event| event["message"] == "a mail was attempted")
        .await;
    let publish = Request::new("POST", "/v2/publish/http://127.0.0.1:9/?a=b")
        .header("upstash-forward-authorization", format!("Bearer {FORWARDED}"))
        .header("upstash-retries", "0")
        .body("x");
    let answer = server.ask(tokened(publish)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let in_query =
        Request::new("POST", &format!("/v2/publish/http://127.0.0.1:9/?qstash_token={TOKEN}"));
    produced.ask(server, "a token in the query", in_query.header("upstash-retries", "0")).await;
    let wrong = Request::get(&format!("/v2/queues?qstash_token={WRONG_TOKEN}"));
    produced.ask(server, "a wrong token in the query", wrong).await;
}

/// Logs in and looks at everything that the console shows; returns the session, which is a secret, too.
async fn console(server: &Server, produced: &mut Produced) -> (String, String) {
    let login = |name: &str, password: &str| {
        Request::json("/console/api/login", &json!({"name": name, "password": password}))
    };
    for (name, password) in [("aiko", WRONG_PASSWORD), ("nobody", PASSWORD)] {
        let answer = produced.ask(server, "a failed login", login(name, password)).await;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    let answer = server.ask(login("aiko", PASSWORD)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let csrf = answer.json()["csrf"].as_str().unwrap().to_owned();
    let pages = ["/console", "/console/api/overview", "/console/api/settings"];
    for path in pages.into_iter().chain(["/console/api/messages", "/cases", "/alerts"]) {
        let shown = produced.ask(server, path, Request::get(path).header("cookie", &cookie)).await;
        assert_eq!(shown.status, 200, "{path}: {shown:?}");
    }
    let forged = Request::json("/outbox/release", &json!({})).header("cookie", &cookie);
    produced.ask(server, "without the token", forged).await.is_problem(403, "CSRF_TOKEN_INVALID");
    (cookie.split_once('=').unwrap().1.to_owned(), csrf)
}

async fn looks(server: &Server, produced: &mut Produced) {
    for path in [
        "/",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/outbox?limit=500",
        "/cases?limit=500",
        "/alerts?limit=500",
        "/alerts/rules",
        "/audit-logs?limit=500",
        "/webhook-events?limit=500",
        "/webhook-events/stats",
        "/payments?limit=500",
        "/mail/lane",
        "/mail/deliveries?limit=500",
        "/billings",
        "/races",
        "/renders",
        "/v2/queues",
        "/v2/dlq",
        "/nowhere",
    ] {
        let answer = produced.ask(server, path, tokened(Request::get(path))).await;
        assert!(matches!(answer.status, 200 | 404), "{path}: {answer:?}");
    }
}

async fn commands(setup: &Setup, produced: &mut Produced) {
    for arguments in [
        &["config"][..],
        &["doctor"],
        &["doctor", "--json"],
        &["outbox", "list", "--json"],
        &["outbox", "stats"],
        &["alerts", "list"],
        &["audit", "verify"],
    ] {
        let output = setup.run(arguments).await;
        produced.add(arguments.join(" "), String::from_utf8_lossy(&output.stdout));
        produced.add(arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{arguments:?}");
    }
    // What is wrong with a setting is said without it.
    for (name, value) in [
        ("SMTP_URL", format!("smtp://u:{SMTP_PASSWORD}@[")),
        ("STRIPE_WEBHOOK_SECRET", format!("{STRIPE_SECRET} {STRIPE_SECRET}")),
        ("EVENT_SINK_URLS", format!("ftp://x/{SINK_PATH}")),
        ("ALERT_WEBHOOK_URL", format!("//{ALERT_PATH}")),
        ("CONSOLE_USERS", format!("aiko:operator:{PASSWORD}")),
        ("TASHIKA_API_TOKENS", format!("{TOKEN}, short")),
        ("WEBHOOK_SECRETS", format!("{GITHUB_SECRET}=")),
        ("EVENT_SINK_SECRET", STRIPE_SECRET.to_owned()),
    ] {
        // Whoever wants to start with it is told what is wrong; whoever looks is shown the rest.
        for command in ["migrate", "config", "doctor"] {
            let output = setup.clone().set(name, &value).run(&[command]).await;
            let said = [output.stdout, output.stderr].concat();
            produced.add(format!("{command} with a wrong {name}"), String::from_utf8_lossy(&said));
        }
    }
}

async fn planted_secrets_show_up_nowhere(db: TestDb) {
    let (broker, gateway) = (Broker::with_keys().await, Gateway::start().await);
    let post = Post::start(json!({})).await;
    broker.scripted.script_for("planted-key-4711-a", [Act::ExecuteThenLose]);
    broker.scripted.script_for("planted-key-4711-b", [Act::refuse(broker_code::BAD_REQUEST)]);
    let traces = Sink::default();
    let setup = setup(&db, &broker, &gateway, &post)
        .set("OTEL_EXPORTER_OTLP_ENDPOINT", traces.start().await);
    let server = setup.start().await;
    let mut produced = Produced::default();
    orders(&server, &mut produced).await;
    payments(&server, &gateway, &mut produced).await;
    webhooks(&server, &mut produced).await;
    mail_and_messages(&server, &mut produced).await;
    let (session, csrf) = console(&server, &mut produced).await;
    // Sinks and alerts are away; their addresses must have been tried.
    for kind in ["event", "alert"] {
        until(kind, async || {
            let effects = server.ask(tokened(Request::get("/outbox?limit=500"))).await.json();
            let tried = |effect: &Value| {
                effect["kind"] == kind && effect["attempts"].as_u64().is_some_and(|count| count > 0)
            };
            effects["items"].as_array().unwrap().iter().any(tried).then_some(())
        })
        .await;
    }
    looks(&server, &mut produced).await;
    commands(&setup, &mut produced).await;
    let log = server.stop().await;
    produced.add("the log", log.text());
    let spans = traces.text();
    assert!(spans.contains("outbox.process") && spans.contains("POST /do/order"), "no traces");
    produced.add("the traces", spans);

    let mut hidden = secrets();
    hidden.push(("a session", session));
    hidden.push(("a session's token", csrf));
    produced.holds_none_of(&hidden, |_| true);
    let private: Vec<(&str, String)> =
        PRIVATE.iter().map(|(what, text)| (*what, (*text).to_owned())).collect();
    produced.holds_none_of(&private, |name| matches!(name, "the log" | "the traces" | "/metrics"));
    holds_no_secret(&db, &hidden);
    // The search finds what is there.
    let known = [("a word", "outbox.process".to_owned())];
    let sees = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        produced.holds_none_of(&known, |_| true);
    }));
    assert!(sees.is_err(), "the search is blind");
}

/// Nor in the files of the database, where there are any.
fn holds_no_secret(db: &TestDb, secrets: &[(&str, String)]) {
    let url = db.url();
    let Some(path) = url.strip_prefix("sqlite:") else { return };
    let path = Path::new(path.trim_start_matches("//"));
    let name = path.file_name().unwrap().to_str().unwrap();
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let file = file.unwrap();
        if !file.file_name().to_str().unwrap().starts_with(name) {
            continue;
        }
        let bytes = std::fs::read(file.path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for (what, secret) in secrets {
            assert!(!text.contains(secret.as_str()), "{what} is in {}", file.path().display());
        }
    }
}
