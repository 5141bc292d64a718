//! The binary as a process: started, watched through its log, stopped, killed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{soon, until};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Answer, Broker, Request};

/// How a process is started: its settings, and nothing from the environment of the tests.
#[derive(Clone, Debug)]
pub struct Setup {
    settings: BTreeMap<String, String>,
    role: Option<&'static str>,
    dev: bool,
}

impl Setup {
    /// On a database, without limits on clients, without reconciliation and with short waits between
    /// attempts.
    pub fn on(url: &str) -> Self {
        let settings = [
            ("TASHIKA_DATABASE_URL", url),
            ("TASHIKA_LISTEN", "127.0.0.1:0"),
            ("RL_RATE_PER_MIN", "0"),
            ("DAILY_QUOTA", "0"),
            ("OUTBOX_BACKOFF_SEC", "0.01"),
            // Its timers would be in everybody's way who counts effects.
            ("PAYMENT_RECONCILE_INTERVAL_SEC", "0"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { settings: settings.into(), role: None, dev: false }
    }

    pub fn of(db: &TestDb) -> Self {
        Self::on(&db.url())
    }

    pub fn set(mut self, name: &str, value: impl Display) -> Self {
        self.settings.insert(name.to_owned(), format!("{value}"));
        self
    }

    pub fn broker(mut self, broker: &Broker) -> Self {
        for (name, value) in broker.settings() {
            self = self.set(name, value);
        }
        self
    }

    pub fn role(mut self, role: &'static str) -> Self {
        self.role = Some(role);
        self
    }

    /// The profile for development.
    pub fn dev(mut self) -> Self {
        self.dev = true;
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tashika"));
        command.env_clear().envs(&self.settings).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, arguments: &[&str]) -> Output {
        let running = self.command().args(arguments).output();
        soon(&arguments.join(" "), running).await.expect("the binary runs")
    }

    /// Runs a command that must succeed; returns what it printed.
    pub async fn print(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaints}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must succeed and print JSON.
    pub async fn print_json(&self, arguments: &[&str]) -> Value {
        let printed = self.print(arguments).await;
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }

    /// Runs a command that must fail; returns its exit code and what it said.
    pub async fn fail(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments).await;
        let code = output.status.code().expect("it ended by itself");
        assert_ne!(code, 0, "{arguments:?} succeeded");
        (code, String::from_utf8(output.stderr).unwrap())
    }

    /// Starts `tashika serve` and waits until it takes requests.
    pub async fn start(&self) -> Server {
        let mut command = self.command();
        command.arg("serve").stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(role) = self.role {
            command.args(["--role", role]);
        }
        if self.dev {
            command.arg("--dev");
        }
        let mut child = command.spawn().expect("the binary runs");
        let log = Log::default();
        let mut reading = JoinSet::new();
        reading.spawn(log.clone().read(child.stdout.take().unwrap()));
        reading.spawn(log.clone().read(child.stderr.take().unwrap()));
        let ready = tokio::select! {
            ready = log.until("tashika is ready", |event| event["message"] == "tashika is ready") => ready,
            ended = child.wait() => panic!("it ended at once: {ended:?}\n{}", log.text()),
        };
        let address = ready["address"].as_str().unwrap().parse().unwrap();
        Server { address, log, child, reading }
    }
}

/// Everything a process has said, line by line. Clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<watch::Sender<Vec<String>>>);

impl Log {
    async fn read(self, stream: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            self.0.send_modify(|all| all.push(line));
        }
    }

    pub fn text(&self) -> String {
        self.0.borrow().join("\n")
    }

    /// Its lines as JSON; a line that is none is a failure.
    pub fn events(&self) -> Vec<Value> {
        let parse = |line: &String| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        self.0.borrow().iter().map(parse).collect()
    }

    /// Waits for a line.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let find = |lines: &Vec<String>| {
            let mut events = lines.iter().filter_map(|line| serde_json::from_str(line).ok());
            events.find(|event| wanted(event))
        };
        let mut changes = self.0.subscribe();
        let lines = soon(what, changes.wait_for(|lines| find(lines).is_some())).await;
        find(&lines.expect("the log outlives whoever waits for it")).unwrap()
    }

    #[track_caller]
    fn has_no_panic(&self) {
        let text = self.text();
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// A running `tashika serve`. Dropped, it is killed.
pub struct Server {
    pub address: SocketAddr,
    pub log: Log,
    child: Child,
    reading: JoinSet<()>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }

    pub async fn ask(&self, request: Request) -> Answer {
        let answer = request.send(self.address).await;
        answer.unwrap_or_else(|error| panic!("{error}\n{}", self.log.text()))
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path)).await
    }

    pub async fn place(&self, body: &Value) -> Answer {
        self.ask(Request::order(body)).await
    }

    /// Places an order that must be taken for a new one.
    pub async fn accepted(&self, body: &Value) -> Value {
        let answer = self.place(body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    /// What is known about an order.
    pub async fn find(&self, key: &str) -> Value {
        let answer = self.get(&format!("/do/order/{key}")).await;
        assert_eq!(answer.status, 200, "{key}: {answer:?}");
        answer.json()
    }

    /// Waits until an order has its result.
    pub async fn settled(&self, key: &str) -> Value {
        until(&format!("the end of {key}"), async || {
            Some(self.find(key).await).filter(|found| found["status"] != "accepted")
        })
        .await
    }

    /// Waits until an order was executed.
    pub async fn executed(&self, key: &str) -> Value {
        let result = self.settled(key).await;
        assert_eq!(result["status"], "ok", "{result}");
        result
    }

    /// Sends a signal. The shell does it: a signal needs no more of a program than its name.
    pub async fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.pid());
        let status = Command::new("sh").args(["-c", &line]).status().await.unwrap();
        assert!(status.success(), "{line}");
    }

    /// Waits until the process has ended by itself; returns its exit code.
    pub async fn ended(mut self) -> (Option<i32>, Log) {
        let status = soon("the end of the process", self.child.wait()).await.unwrap();
        let Self { log, mut reading, .. } = self;
        while reading.join_next().await.is_some() {}
        log.has_no_panic();
        (status.code(), log)
    }

    /// Asks the process to end, and waits until it has.
    pub async fn stop(self) -> Log {
        self.signal("TERM").await;
        let (code, log) = self.ended().await;
        assert_eq!(code, Some(0), "{}", log.text());
        log
    }

    /// `kill -9`.
    pub async fn kill(mut self) -> Log {
        let killed: io::Result<()> = soon("the end of the process", self.child.kill()).await;
        killed.unwrap();
        let (_, log) = self.ended().await;
        log
    }
}
