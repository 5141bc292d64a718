//! Signatures of webhooks against the official packages of Stripe and Standard Webhooks.
//!
//! What the packages sign is taken, what we sign is taken by them, and of whatever lies between they
//! and we say the same. Where we differ on purpose, a test says so. The packages come from Python's
//! and Node's registries, through `scripts/stripe-packages`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_providers::webhook::{
    Scheme, Source, TOLERANCE, standard_headers, standard_key, stripe_header,
};
use tashika_testkit::packages;

const STRIPE_SECRET: &str = "whsec_test_9f8b2c";
const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const SIGNED_AT: i64 = 1_700_000_000;

/// Bodies as they come, and as they do not.
const BODIES: [&str; 6] = [
    r#"{"id":"evt_1","object":"event","type":"invoice.paid","created":1699999999}"#,
    "{\n  \"id\": \"evt_2\",\r\n  \"type\": \"a\"\n}\n",
    r#"{"id":"evt_3","type":"確か.🦀","note":"\u0000 \" | . ,t=1,v1="}"#,
    "1700000000.{}",
    "not JSON at all",
    " ",
];

#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    Node,
}

const LANGUAGES: [Language; 2] = [Language::Python, Language::Node];

/// The packages of one language.
struct Official {
    language: Language,
    folder: PathBuf,
}

impl Official {
    fn both() -> [Self; 2] {
        let folder = packages::stripe();
        LANGUAGES.map(|language| Self { language, folder: folder.clone() })
    }

    /// Runs the script that stands in front of them.
    fn ask(&self, request: &Value) -> Value {
        let mut command = match self.language {
            Language::Python => {
                let mut command = Command::new(self.folder.join("venv/bin/python"));
                command.args(["-c", include_str!("data/webhooks.py")]);
                command
            }
            Language::Node => {
                let mut command = Command::new("node");
                command.args(["-e", include_str!("data/webhooks.js")]);
                command.env("NODE_PATH", self.folder.join("node_modules"));
                command
            }
        };
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it was piped");
        stdin.write_all(request.to_string().as_bytes()).expect("it reads");
        drop(stdin);
        let output = child.wait_with_output().expect("our own child");
        assert!(output.status.success(), "{:?} failed", self.language);
        serde_json::from_slice(&output.stdout).expect("an answer in JSON")
    }

    /// The time by its own clock, which its checks of age go by.
    fn now(&self) -> i64 {
        self.ask(&json!({"do": "now"})).as_i64().expect("a number")
    }
}

/// A request, with what it is meant to be.
#[derive(Clone, Debug)]
struct Sent {
    what: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Sent {
    fn new(what: &str, headers: &[(&str, String)], body: &str) -> Self {
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Self { what: what.to_owned(), headers, body: body.to_owned() }
    }

    /// Another request with `name` set, or taken away.
    fn with(&self, what: &str, name: &str, value: Option<String>) -> Self {
        let mut sent = Self { what: what.to_owned(), ..self.clone() };
        match value {
            Some(value) => sent.headers.insert(name.to_owned(), value),
            None => sent.headers.remove(name),
        };
        sent
    }

    /// Others with one character of the body changed, added or taken away.
    fn other_bodies(&self) -> Vec<Self> {
        let changes = [
            format!("{} ", self.body),
            format!("{}x", self.body),
            self.body.replacen(['"', ' ', '.'], "'", 1),
            self.body[1..].to_owned(),
        ];
        changes
            .into_iter()
            .map(|body| Self { what: format!("body {body:?}"), body, ..self.clone() })
            .collect()
    }

    fn header_map(&self) -> HeaderMap {
        let header = |(name, value): (&String, &String)| {
            let name: HeaderName = name.parse().expect("a header's name");
            (name, HeaderValue::from_str(value).expect("a header's value"))
        };
        self.headers.iter().map(header).collect()
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn stripe(secrets: &[&str]) -> Source {
    let secrets = secrets.iter().map(|secret| SecretString::from(*secret)).collect();
    Source::new("stripe", Scheme::Stripe { secrets, tolerance: TOLERANCE }).unwrap()
}

fn standard(secrets: &[&str]) -> Source {
    let secrets = secrets.iter().map(|secret| SecretString::from(*secret)).collect();
    Source::new("standard", Scheme::StandardWebhooks { secrets, tolerance: TOLERANCE }).unwrap()
}

fn taken(source: &Source, sent: &Sent, now: i64) -> bool {
    source.verify(&sent.header_map(), sent.body.as_bytes(), at(now)).is_ok()
}

/// What the package signs, for every body.
fn signed_by(official: &Official, what: &str, secret: &str) -> Vec<String> {
    let ask = |body| json!({"body": body, "secret": secret, "at": SIGNED_AT, "id": ID});
    let list: Vec<_> = BODIES.into_iter().map(ask).collect();
    let signed = official.ask(&json!({"do": what, "list": list}));
    serde_json::from_value(signed).expect("a list of texts")
}

#[test]
fn what_stripes_packages_sign_is_taken() {
    for official in Official::both() {
        let old = signed_by(&official, "sign_stripe", "whsec_old");
        let new = signed_by(&official, "sign_stripe", STRIPE_SECRET);
        for ((old, new), body) in old.into_iter().zip(new).zip(BODIES) {
            let secret = SecretString::from(STRIPE_SECRET);
            assert_eq!(new, stripe_header(&secret, body.as_bytes(), at(SIGNED_AT)));
            let sent = Sent::new("as signed", &[("stripe-signature", new.clone())], body);
            let rotating = stripe(&["whsec_old", STRIPE_SECRET]);
            assert!(taken(&stripe(&[STRIPE_SECRET]), &sent, SIGNED_AT + 299), "{sent:?}");
            assert!(taken(&rotating, &sent, SIGNED_AT), "{sent:?}");
            assert!(taken(&rotating, &sent.with("", "stripe-signature", Some(old)), SIGNED_AT));
            assert!(!taken(&stripe(&["whsec_other"]), &sent, SIGNED_AT), "{sent:?}");
            assert!(!taken(&rotating, &sent, SIGNED_AT + 301), "{sent:?}");
            for other in sent.other_bodies() {
                assert!(!taken(&rotating, &other, SIGNED_AT), "{other:?}");
            }
            for (what, header) in [
                ("wrong scheme", new.replace("v1=", "v0=")),
                ("missing time", new.split_once(',').expect("two parts").1.to_owned()),
                ("another time", new.replace("t=17", "t=18")),
                ("unreadable time", new.replace("t=", "t=x")),
                ("cut short", new[..new.len() - 2].to_owned()),
            ] {
                let other = sent.with(what, "stripe-signature", Some(header));
                assert!(!taken(&rotating, &other, SIGNED_AT), "{other:?}");
            }
        }
    }
}

#[test]
fn what_the_standards_packages_sign_is_taken() {
    let key = standard_key(STANDARD_SECRET).expect("a secret");
    for official in Official::both() {
        let signed = signed_by(&official, "sign_standard", STANDARD_SECRET);
        for (signature, body) in signed.into_iter().zip(BODIES) {
            let ours = standard_headers(&key, ID, body.as_bytes(), at(SIGNED_AT));
            assert_eq!(signature, ours[2].1);
            let sent = Sent::new("as signed", &ours, body);
            let source = standard(&["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", STANDARD_SECRET]);
            for seconds in [-299, 0, 299] {
                assert!(taken(&source, &sent, SIGNED_AT + seconds), "{seconds}: {sent:?}");
            }
            for seconds in [-301, 301] {
                assert!(!taken(&source, &sent, SIGNED_AT + seconds), "{seconds}: {sent:?}");
            }
            for other in sent.other_bodies() {
                assert!(!taken(&source, &other, SIGNED_AT), "{other:?}");
            }
            for (name, value) in [
                ("webhook-id", "msg_other"),
                ("webhook-timestamp", "1700000001"),
                ("webhook-signature", &signature.replace("v1,", "v2,")),
                ("webhook-signature", &signature.replace("v1,", "v1a,")),
            ] {
                let other = sent.with("changed", name, Some(value.to_owned()));
                assert!(!taken(&source, &other, SIGNED_AT), "{other:?}");
            }
        }
    }
}

/// Asks both, the package and `source`, about every request, and returns how many were taken.
fn agreed(official: &Official, what: &str, secret: &str, source: &Source, sent: &[Sent]) -> usize {
    let list: Vec<_> = sent
        .iter()
        .map(|sent| json!({"body": sent.body, "headers": sent.headers, "secret": secret}))
        .collect();
    let theirs = official.ask(&json!({"do": what, "list": list}));
    let theirs: Vec<bool> = serde_json::from_value(theirs).expect("a list of verdicts");
    assert_eq!(theirs.len(), sent.len());
    let now = official.now();
    for (theirs, sent) in theirs.iter().zip(sent) {
        let what = (official.language, &sent.what, &sent.headers, &sent.body);
        assert_eq!(taken(source, sent, now), *theirs, "{what:?}");
    }
    theirs.into_iter().filter(|taken| *taken).count()
}

#[test]
fn stripes_packages_and_we_agree() {
    const NAME: &str = "stripe-signature";
    let secret = SecretString::from(STRIPE_SECRET);
    for official in Official::both() {
        let now = official.now();
        let mut all = Vec::new();
        for body in BODIES {
            let signed = |seconds: i64| stripe_header(&secret, body.as_bytes(), at(now + seconds));
            let header = signed(0);
            let (time, v1) = header.split_once(',').expect("two parts");
            let sent = Sent::new("as signed", &[(NAME, header.clone())], body);
            all.extend(sent.other_bodies());
            all.extend(
                [
                    // Ten seconds either way, for the time that all this takes.
                    ("fresh", signed(-290)),
                    ("future", signed(10_000)),
                    ("two signatures", format!("{time},v1={},{v1}", "0".repeat(64))),
                    ("a decoy", format!("{header},v0={}", "0".repeat(64))),
                    ("another order", format!("{v1},{time}")),
                    ("strangers", format!("{header},x=y,,z")),
                    ("too old", signed(-310)),
                    ("only v0", header.replace("v1=", "v0=")),
                    ("no signature", time.to_owned()),
                    ("no time", v1.to_owned()),
                    ("no number", format!("t=now,{v1}")),
                    ("another time", format!("t={},{v1}", now - 1)),
                    ("a space", format!("{time}, {v1}")),
                    ("cut short", header[..header.len() - 2].to_owned()),
                    ("too long", format!("{header}00")),
                    ("not hexadecimal", header.replace("v1=", "v1=zz")),
                    ("nothing in it", format!("{time},v1=")),
                    ("empty", String::new()),
                ]
                .map(|(what, value)| sent.with(what, NAME, Some(value))),
            );
            all.push(sent.with("no header", NAME, None));
            all.push(sent);
        }
        let ours = stripe(&[STRIPE_SECRET]);
        let taken = agreed(&official, "verify_stripe", STRIPE_SECRET, &ours, &all);
        assert_eq!(taken, 7 * BODIES.len(), "as signed, and the first six");
    }
}

#[test]
fn the_standards_packages_and_we_agree() {
    const NAME: &str = "webhook-signature";
    let key = standard_key(STANDARD_SECRET).expect("a secret");
    for official in Official::both() {
        let now = official.now();
        let mut all = Vec::new();
        for body in BODIES {
            let signed = |what, seconds: i64| {
                Sent::new(
                    what,
                    &standard_headers(&key, ID, body.as_bytes(), at(now + seconds)),
                    body,
                )
            };
            let sent = signed("as signed", 0);
            let v1 = sent.headers[NAME].clone();
            all.extend(sent.other_bodies());
            all.extend([
                // Ten seconds either way, for the time that all this takes.
                signed("old", -290),
                signed("new", 290),
                sent.with("two signatures", NAME, Some(format!("v1,AAAA {v1}"))),
                sent.with("another version", NAME, Some(format!("v1a,AAAA {v1}"))),
                signed("too old", -310),
                signed("too new", 310),
                sent.with("another version only", NAME, Some(v1.replace("v1,", "v2,"))),
                sent.with("no version", NAME, Some(v1.replace("v1,", ""))),
                sent.with("nothing in it", NAME, Some("v1,".to_owned())),
                sent.with("empty", NAME, Some(String::new())),
                sent.with("another id", "webhook-id", Some("msg_other".to_owned())),
                sent.with("empty id", "webhook-id", Some(String::new())),
                sent.with("another time", "webhook-timestamp", Some((now - 1).to_string())),
                sent.with("no number", "webhook-timestamp", Some("now".to_owned())),
            ]);
            for name in ["webhook-id", "webhook-timestamp", NAME] {
                all.push(sent.with("missing", name, None));
            }
            all.push(sent);
        }
        let ours = standard(&[STANDARD_SECRET]);
        let taken = agreed(&official, "verify_standard", STANDARD_SECRET, &ours, &all);
        assert_eq!(taken, 5 * BODIES.len(), "as signed, and the first four");
    }
}

/// Where we differ: both packages compare the text, we compare what it means.
#[test]
fn upper_case_is_the_same_number_to_us() {
    let secret = SecretString::from(STRIPE_SECRET);
    let [body, ..] = BODIES;
    for official in Official::both() {
        let now = official.now();
        let header = stripe_header(&secret, body.as_bytes(), at(now));
        let (time, v1) = header.split_once(",v1=").expect("two parts");
        let upper = format!("{time},v1={}", v1.to_uppercase());
        let sent = Sent::new("upper case", &[("stripe-signature", upper)], body);
        assert!(taken(&stripe(&[STRIPE_SECRET]), &sent, now));
        let list = json!([{"body": body, "headers": sent.headers, "secret": STRIPE_SECRET}]);
        let theirs = official.ask(&json!({"do": "verify_stripe", "list": list}));
        assert_eq!(theirs, json!([false]), "{:?} has changed its mind", official.language);
    }
}
