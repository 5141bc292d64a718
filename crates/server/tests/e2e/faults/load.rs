//! The load: clients of every kind against one or more servers, whatever happens to the servers meanwhile.
//!
//! A client asks for one thing after the other. What was not answered, or answered 503, is asked again under the same
//! key, at the next server if there are several: that is all a caller has to do. What was acknowledged is noted, and
//! must be accounted for in the end (`books.rs`).
//!
//! It lives beside the tests because it is made of what they have: their requests, their server processes, their
//! setups. Longer runs are the same tests with other numbers in the environment (`TASHIKA_KILL_ROUNDS`,
//! `TASHIKA_SOAK_SEC`), so that there is nothing in a night's run that does not run every day.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tashika_engine::Dice;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::town::Town;
use super::{mails, messages, orders, payments, reservations, webhooks};
use crate::support::{Answer, Request, Server};

/// After so long a client believes that there will be no answer.
const NO_ANSWER: Duration = Duration::from_secs(8);
/// Before a client asks again.
const BREATH: Duration = Duration::from_millis(25);
/// Nobody may be kept waiting for longer, whatever happens.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the clients were told, all together.
#[derive(Default)]
pub struct Tally {
    /// Acknowledgements, by kind.
    pub acknowledged: BTreeMap<&'static str, usize>,
    /// Answers 503, by code.
    pub refused: BTreeMap<String, usize>,
    /// Connections that broke, or that nobody answered on.
    pub unanswered: usize,
    /// When something was acknowledged, in seconds since the beginning, and after how many milliseconds.
    pub latencies: Vec<(f64, f64)>,
}

impl Tally {
    pub fn total(&self) -> usize {
        self.acknowledged.values().sum()
    }
}

pub struct Load {
    pub town: Town,
    seed: u64,
    /// Between two things that one client wants.
    pace: Duration,
    /// What is over may be forgotten soon: a client looks at what it asked for so many wishes ago.
    pub lag: usize,
    /// Whether the clock goes forward only, so that the order of a queue can be told from it.
    pub in_order: bool,
    began: Instant,
    servers: Mutex<Vec<SocketAddr>>,
    over: CancellationToken,
    pub tally: Mutex<Tally>,
    pub orders: orders::Notes,
    pub payments: payments::Notes,
    pub reservations: reservations::Notes,
    pub messages: messages::Notes,
    pub webhooks: webhooks::Notes,
    pub mails: mails::Notes,
}

/// The clients, while they are at it.
pub struct Clients {
    load: Arc<Load>,
    tasks: JoinSet<()>,
}

impl Load {
    pub fn new(town: Town, seed: u64) -> Self {
        Self {
            town,
            seed,
            pace: Duration::from_millis(60),
            lag: usize::MAX,
            in_order: true,
            began: Instant::now(),
            servers: Mutex::default(),
            over: CancellationToken::new(),
            tally: Mutex::default(),
            orders: orders::Notes::default(),
            payments: payments::Notes::default(),
            reservations: reservations::Notes::default(),
            messages: messages::Notes::default(),
            webhooks: webhooks::Notes::default(),
            mails: mails::Notes::default(),
        }
    }

    /// Clients look after what they wanted while the load goes on, because it is forgotten soon.
    pub fn looking_back(mut self, lag: usize) -> Self {
        self.lag = lag;
        self
    }

    /// Clients take their time between two wishes, so that what they want can be done as fast as they want it.
    pub fn at_pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// The clock is put back while messages wait: those that come after that are not in order with them.
    pub fn out_of_order(mut self) -> Self {
        self.in_order = false;
        self
    }

    /// What is over is forgotten soon.
    pub fn forgets(&self) -> bool {
        self.lag < usize::MAX
    }

    /// Dice of one client's own: what it does depends on the seed, not on what others do.
    pub fn dice(&self, kind: u64, number: usize) -> Dice {
        Dice::new(self.seed.wrapping_mul(1000).wrapping_add(kind * 100 + number as u64))
    }

    /// From now on clients ask these servers.
    pub fn served_by<'a>(&self, servers: impl IntoIterator<Item = &'a Server>) {
        *self.servers.lock().unwrap() = servers.into_iter().map(|server| server.address).collect();
    }

    /// Sets up what the load needs, at a server that is well.
    pub async fn prepare(server: &Server) {
        webhooks::prepare(server).await;
    }

    pub fn begin(self: &Arc<Self>) -> Clients {
        let mut tasks = JoinSet::new();
        for number in 0..orders::CLIENTS {
            tasks.spawn(orders::client(Arc::clone(self), number));
        }
        for number in 0..payments::CLIENTS {
            tasks.spawn(payments::client(Arc::clone(self), number));
        }
        for number in 0..reservations::CLIENTS {
            tasks.spawn(reservations::client(Arc::clone(self), number));
        }
        tasks.spawn(reservations::messenger(Arc::clone(self)));
        for number in 0..messages::PUBLISHERS {
            tasks.spawn(messages::client(Arc::clone(self), number));
        }
        for number in 0..webhooks::SENDERS {
            tasks.spawn(webhooks::client(Arc::clone(self), number));
        }
        for number in 0..mails::CLIENTS {
            tasks.spawn(mails::client(Arc::clone(self), number));
        }
        Clients { load: Arc::clone(self), tasks }
    }

    /// Waits for the next turn of a client. False when the load is over.
    pub async fn goes_on(&self) -> bool {
        self.over.run_until_cancelled(tokio::time::sleep(self.pace)).await.is_some()
    }

    pub async fn breathe(&self) {
        tokio::time::sleep(BREATH).await;
    }

    pub fn acknowledged(&self, kind: &'static str) {
        *self.tally.lock().unwrap().acknowledged.entry(kind).or_default() += 1;
    }

    pub fn acknowledgements(&self) -> usize {
        self.tally.lock().unwrap().total()
    }

    /// Waits until so many more were acknowledged.
    async fn until_more(&self, more: usize) {
        let (enough, since) = (self.acknowledgements() + more, Instant::now());
        while self.acknowledgements() < enough {
            assert!(since.elapsed() < PATIENCE, "waited in vain: {more} acknowledgements");
            self.breathe().await;
        }
    }

    fn server(&self, number: usize) -> Option<SocketAddr> {
        let servers = self.servers.lock().unwrap();
        (!servers.is_empty()).then(|| servers[number % servers.len()])
    }

    /// Asks until there is an answer that is not 503.
    pub async fn ask(&self, client: usize, request: &Request) -> Answer {
        let since = Instant::now();
        for attempt in 0.. {
            assert!(since.elapsed() < PATIENCE, "never answered: {request:?}");
            if attempt > 0 {
                self.breathe().await;
            }
            let Some(server) = self.server(client + attempt) else { continue };
            let began = Instant::now();
            match tokio::time::timeout(NO_ANSWER, request.send(server)).await {
                Ok(Ok(answer)) if answer.status == 503 => self.was_refused(&answer),
                Ok(Ok(answer)) => {
                    let at = (began - self.began).as_secs_f64();
                    let took = began.elapsed().as_secs_f64() * 1000.0;
                    self.tally.lock().unwrap().latencies.push((at, took));
                    return answer;
                }
                Ok(Err(_)) | Err(_) => self.tally.lock().unwrap().unanswered += 1,
            }
        }
        unreachable!("there is always another attempt");
    }

    /// Looks until what was acknowledged is as wanted. It must never be gone.
    pub async fn look(&self, path: &str, wanted: fn(&Value) -> bool) -> Value {
        let (request, since) = (Request::get(path), Instant::now());
        loop {
            let answer = self.ask(0, &request).await;
            assert_eq!(answer.status, 200, "acknowledged and gone: {path}: {answer:?}");
            let found = answer.json();
            if wanted(&found) {
                return found;
            }
            assert!(since.elapsed() < PATIENCE, "it never ends: {path}: {found}");
            self.breathe().await;
        }
    }

    /// A refusal says why, and when to come back.
    fn was_refused(&self, answer: &Answer) {
        let told = answer.json();
        let code = match told["code"].as_str() {
            Some(code) => {
                answer.is_problem(503, code);
                code.to_owned()
            }
            // The queue's API speaks as QStash does.
            None => told["error"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned(),
        };
        assert!(answer.retry_after() >= 1, "{answer:?}");
        *self.tally.lock().unwrap().refused.entry(code).or_default() += 1;
    }
}

impl Clients {
    /// Fails if a client has failed.
    pub fn are_well(&mut self) {
        if let Some(Err(failure)) = self.tasks.try_join_next() {
            std::panic::resume_unwind(failure.into_panic());
        }
    }

    /// Waits for so many more acknowledgements, as long as nobody fails.
    pub async fn until_more(&mut self, more: usize) {
        let load = Arc::clone(&self.load);
        tokio::select! {
            () = load.until_more(more) => {}
            ended = self.tasks.join_next() => {
                ended.expect("there are clients").unwrap();
                panic!("a client ended before the load did");
            }
        }
    }

    /// Lets every client finish what it is at, and no more.
    pub async fn finish(self) {
        self.load.over.cancel();
        self.tasks.join_all().await;
    }
}
