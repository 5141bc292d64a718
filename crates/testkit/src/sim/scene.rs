//! Everything that outlives a process, in every kind of run: the stage, what the run is like, the world, and what is
//! remembered.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use super::mix::Fault;
use super::stage::{Stage, lock};
use super::trouble::Process;
use super::{Options, Planted};

/// What runs of one kind are like, and what there is in them.
pub(crate) trait Scenario {
    /// Everybody outside.
    type World;
    /// What clients remember.
    type Book;
    /// What the invariants have seen before.
    type Memory: Default;

    /// Every probability, limit and size, from the seed.
    fn draw(seed: u64) -> Self;

    /// Makes a mistake possible: one in a world in which it cannot show proves nothing.
    fn arrange(&mut self, planted: Planted);

    /// Takes a kind of trouble away.
    fn without(&mut self, fault: Fault);

    fn process(&mut self) -> &mut Process;

    fn world(&self, seed: u64) -> Self::World;

    fn book(planted: Option<Planted>) -> Self::Book;
}

pub(crate) struct Scene<S: Scenario> {
    pub stage: Arc<Stage>,
    pub swarm: S,
    pub planted: Option<Planted>,
    world: Mutex<S::World>,
    book: Mutex<S::Book>,
    memory: Mutex<S::Memory>,
}

/// A scene is a stage with a world on it.
impl<S: Scenario> Deref for Scene<S> {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl<S: Scenario> Scene<S> {
    pub fn new(options: &Options) -> Self {
        let mut swarm = S::draw(options.seed);
        if let Some(planted) = options.planted {
            swarm.arrange(planted);
        }
        options.mix.take_away(|fault| swarm.without(fault));
        swarm.process().restrict(&options.mix);
        let stage = Arc::new(Stage::new(options, swarm.process().clone()));
        Self::on(stage, swarm, options.planted)
    }

    /// On a stage that is there already, as a part of another scene.
    pub fn on(stage: Arc<Stage>, swarm: S, planted: Option<Planted>) -> Self {
        Self {
            world: Mutex::new(swarm.world(stage.seed)),
            book: Mutex::new(S::book(planted)),
            memory: Mutex::default(),
            stage,
            swarm,
            planted,
        }
    }

    pub fn world(&self) -> MutexGuard<'_, S::World> {
        lock(&self.world)
    }

    pub fn book(&self) -> MutexGuard<'_, S::Book> {
        lock(&self.book)
    }

    pub fn memory(&self) -> MutexGuard<'_, S::Memory> {
        lock(&self.memory)
    }
}
