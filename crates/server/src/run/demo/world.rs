//! Everybody but Tashika: the gateway, the broker, the worker, each on a loopback port of its own.
//!
//! The gateway and the broker are the scripted ones of the tests: they do what a script says and keep
//! the true ledger of what they did, whatever they answered. The books are compared with that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_testkit::broker::server::{BrokerServer, Repeats};
use tashika_testkit::broker::{Act, ScriptedBroker};
use tashika_testkit::gateway::server::GatewayServer;
use tashika_testkit::gateway::{Fault, Mix, Operation, World as Gateway};

use super::chance::Chance;
use super::worker::Worker;

pub(super) struct World {
    pub gateway: Gateway,
    pub gateway_server: GatewayServer,
    pub broker: ScriptedBroker,
    pub broker_server: BrokerServer,
    pub worker: Worker,
    /// Whom the gateway does not tell anything about.
    hushed: Mutex<BTreeSet<String>>,
    /// The keys of all orders.
    orders: Mutex<Vec<String>>,
    /// The numbers of all jobs that were taken.
    jobs: Mutex<BTreeSet<u64>>,
}

impl World {
    pub async fn start(seed: u64) -> anyhow::Result<Arc<Self>> {
        let gateway = Gateway::new();
        // Money moves, and the answer says so, or does not.
        let moves = [
            Operation::Create,
            Operation::Confirm,
            Operation::Capture,
            Operation::Cancel,
            Operation::Refund,
            Operation::OpenCheckout,
        ];
        let faults = Mix::seeded(seed)
            .with(70, Fault::ExecuteThenSilence)
            .with(60, Fault::ExecuteThenClose)
            .with(40, Fault::DropBefore)
            .with(30, Fault::late_by(Duration::from_secs(3)))
            .with(20, Fault::Unavailable)
            .with(20, Fault::rate_limited())
            .only(moves);
        gateway.mix(faults);
        let broker = ScriptedBroker::without_keys();
        Ok(Arc::new(Self {
            gateway_server: GatewayServer::start(&gateway).await,
            broker_server: BrokerServer::start(&broker, Repeats::Replay).await,
            worker: Worker::start(seed).await?,
            gateway,
            broker,
            hushed: Mutex::default(),
            orders: Mutex::default(),
            jobs: Mutex::default(),
        }))
    }

    /// The gateway loses every question about a payment, and sends no webhook about it: sooner or
    /// later a person is asked.
    pub fn hush(&self, payment: &str) {
        let questions = std::iter::repeat_n(Fault::DropBefore, 50);
        self.gateway.script_for(payment, Operation::Retrieve, questions);
        lock(&self.hushed).insert(payment.to_owned());
    }

    /// Whether nobody has been hushed yet: the first one comes early.
    pub fn nobody_is_hushed(&self) -> bool {
        lock(&self.hushed).is_empty()
    }

    pub fn is_hushed(&self, payment: &str) -> bool {
        lock(&self.hushed).contains(payment)
    }

    /// An order is about to be placed: what its broker will do.
    pub fn order(&self, key: &str, chance: &mut Chance) {
        let act = match chance.between(1, 100) {
            1..=12 => Act::LoseBefore,
            13..=26 => Act::ExecuteThenLose,
            27..=31 => Act::Fail { executed: true },
            32..=36 => Act::Fail { executed: false },
            37..=40 => Act::busy(),
            41..=46 => Act::refuse("MARKET_CLOSED"),
            _ => Act::Execute,
        };
        self.broker.script_for(key, [act]);
        lock(&self.orders).push(key.to_owned());
    }

    pub fn orders(&self) -> Vec<String> {
        lock(&self.orders).clone()
    }

    pub fn job_was_taken(&self, job: u64) {
        lock(&self.jobs).insert(job);
    }

    pub fn jobs(&self) -> BTreeSet<u64> {
        lock(&self.jobs).clone()
    }

    /// From now on nothing goes wrong. What went wrong stays as it is.
    pub fn behave(&self) {
        self.gateway.behave();
        lock(&self.hushed).clear();
        self.worker.behave();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
