//! Everything that outlives a process: the stage, the gateway, the studio, and what customers remember.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use super::book::Book;
use super::invariants::Memory;
use super::payments;
use super::stage::{Stage, lock};
use super::studio::Works;
use super::swarm::Swarm;
use super::{Options, Planted};

pub(crate) struct Scene {
    pub stage: Arc<Stage>,
    pub swarm: Swarm,
    pub planted: Option<Planted>,
    /// The gateway, with its network and its webhooks.
    pub bank: Arc<payments::Scene>,
    works: Mutex<Works>,
    book: Mutex<Book>,
    memory: Mutex<Memory>,
}

/// A scene is a stage with a world on it.
impl Deref for Scene {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl Scene {
    pub fn new(options: &Options) -> Self {
        let Options { seed, planted, .. } = *options;
        let mut swarm = Swarm::draw(seed);
        if let Some(planted) = planted {
            swarm.arrange(planted);
        }
        options.mix.take_away(|fault| swarm.without(fault));
        swarm.bank.process.restrict(&options.mix);
        let stage = Arc::new(Stage::new(options, swarm.bank.process.clone()));
        let bank = payments::Scene::on(Arc::clone(&stage), swarm.bank.clone(), planted);
        Self {
            works: Mutex::new(Works::new(seed, swarm.studio.clone(), &swarm.rules.render)),
            stage,
            planted,
            bank: Arc::new(bank),
            book: Mutex::default(),
            memory: Mutex::default(),
            swarm,
        }
    }

    pub fn works(&self) -> MutexGuard<'_, Works> {
        lock(&self.works)
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}
