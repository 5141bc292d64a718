//! A real mail server with a script: aiosmtpd, STARTTLS, AUTH, and faults by recipient.
//!
//! `smtp/server.py` has the list of recipients and what happens to their mail. It keeps every mail that it took, so a test can
//! compare what the sender believes with what the server has. It ends with this value, and when the process that started it
//! ends in whatever way, because its input ends then.
//!
//! `smtp/` holds a root and a certificate for `localhost` and 127.0.0.1 that it signed, both made for these tests and valid for
//! a hundred years; the root's key was thrown away.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::gate::until;
use crate::packages;

/// Who signed the server's certificate, as `SMTP_CA_FILE` has it.
pub const ROOT_PEM: &[u8] = include_bytes!("smtp/root.pem");
/// The login that the server takes.
pub const USER: &str = "tashika";
pub const PASSWORD: &str = "s3cret/with:odd@characters";

/// What has happened so far, by the server's own count.
#[derive(Clone, Debug, Deserialize)]
pub struct Stats {
    /// Mails taken, repeats included.
    pub accepted: usize,
    /// How often each code was said.
    pub answers: std::collections::BTreeMap<String, u64>,
    /// Open now, opened at all, and most at once.
    pub connections: usize,
    pub connections_total: usize,
    pub connections_max: usize,
    /// Mails between `MAIL` and their end, now and most at once.
    pub sending: usize,
    pub sending_max: usize,
    /// Clients that are waiting for an answer that does not come.
    pub hanging: usize,
    /// How often a login was tried.
    pub logins: usize,
    /// Most mails that were taken in any window of one second.
    pub busiest_second: usize,
}

/// A mail that was taken.
#[derive(Clone, Debug, Deserialize)]
pub struct Accepted {
    /// The Message-ID, without angle brackets.
    pub id: String,
    pub to: String,
    /// In seconds, by the server's own clock.
    pub at: f64,
}

/// A mail as Python's `email` reads it.
#[derive(Clone, Debug, Deserialize)]
pub struct Mail {
    pub from: String,
    pub to: String,
    /// Unfolded and decoded.
    pub headers: Vec<(String, String)>,
    pub text: Option<String>,
    pub html: Option<String>,
    /// What Python objects to.
    pub defects: Vec<String>,
    pub raw: String,
}

impl Mail {
    /// The values of the headers of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }
}

struct Channel {
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The running server.
pub struct SmtpServer {
    port: u16,
    tls: &'static str,
    channel: Mutex<Channel>,
    /// Killed when dropped.
    _child: Child,
}

impl SmtpServer {
    /// With STARTTLS and a login.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start() -> Self {
        Self::with("starttls", json!({})).await
    }

    /// `tls` is `starttls`, `tls` or `none`; `settings` are those at the top of `server.py`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn with(tls: &'static str, settings: Value) -> Self {
        let folder = tokio::task::spawn_blocking(packages::smtp).await.expect("the packages");
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/smtp");
        let mut all = json!({
            "tls": tls,
            "certificate": here.join("localhost.pem"),
            "key": here.join("localhost.key.pem"),
            "user": USER,
            "password": PASSWORD,
        });
        let given = settings.as_object().expect("settings are an object").clone();
        all.as_object_mut().expect("an object").extend(given);
        let mut child = Command::new(folder.join("venv/bin/python"))
            .arg(here.join("server.py"))
            .arg(all.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python starts");
        let commands = child.stdin.take().expect("it has an input");
        let answers = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        let mut channel = Channel { commands, answers };
        let first = channel.hear().await;
        let port = first["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let port = port.unwrap_or_else(|| panic!("the mail server says {first}"));
        Self { port, tls, channel: Mutex::new(channel), _child: child }
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `SMTP_URL` for it, with its login.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(USER, PASSWORD)
    }

    /// `SMTP_URL` for it, with another login.
    #[must_use]
    pub fn url_with(&self, user: &str, password: &str) -> String {
        let encoded = |text: &str| {
            text.bytes().fold(String::new(), |mut url, byte| {
                write!(url, "%{byte:02X}").expect("a string takes what is written to it");
                url
            })
        };
        let (user, password) = (encoded(user), encoded(password));
        format!("smtp://{user}:{password}@localhost:{}?tls={}", self.port, self.tls)
    }

    /// Changes settings, for everything that comes from now on.
    pub async fn set(&self, settings: Value) {
        self.ask(json!({ "set": settings })).await;
    }

    /// Lets everybody go who waits for an answer.
    pub async fn release(&self) {
        self.ask(json!({"release": true})).await;
    }

    /// Closes all connections, as servers do with idle ones.
    pub async fn close_idle(&self) {
        self.ask(json!({"close_idle": true})).await;
    }

    /// # Panics
    ///
    /// When the server is gone.
    pub async fn stats(&self) -> Stats {
        let said = self.ask(json!({"get": "stats"})).await;
        serde_json::from_value(said).expect("statistics")
    }

    /// Waits until its statistics are so.
    ///
    /// # Panics
    ///
    /// When they never are.
    pub async fn until(&self, what: &str, so: impl Fn(&Stats) -> bool) -> Stats {
        until(what, async || Some(self.stats().await).filter(&so)).await
    }

    /// Every mail that was taken, in order.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub async fn accepted(&self) -> Vec<Accepted> {
        let said = self.ask(json!({"get": "accepted"})).await;
        serde_json::from_value(said).expect("a list of mails")
    }

    /// The copies that were taken of this mail.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub async fn mails(&self, message_id: &str) -> Vec<Mail> {
        let said = self.ask(json!({"get": "mail", "id": message_id})).await;
        serde_json::from_value(said).expect("mails")
    }

    async fn ask(&self, command: Value) -> Value {
        let mut channel = self.channel.lock().await;
        let line = format!("{command}\n");
        channel.commands.write_all(line.as_bytes()).await.expect("the mail server listens");
        channel.commands.flush().await.expect("the mail server listens");
        channel.hear().await
    }
}

impl Channel {
    async fn hear(&mut self) -> Value {
        let line = self.answers.next_line().await.expect("the mail server speaks UTF-8");
        let line = line.expect("the mail server ended; its standard error says why");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}
