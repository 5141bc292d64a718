//! Everything that outlives a process: the stage, the world, and what clients remember.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use super::book::Book;
use super::invariants::Memory;
use super::office;
use super::stage::{Stage, lock};
use super::swarm::Swarm;
use super::world::World;
use super::{Options, Planted};

pub(crate) struct Scene {
    pub stage: Arc<Stage>,
    pub swarm: Swarm,
    pub planted: Option<Planted>,
    world: Mutex<World>,
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
        swarm.process.restrict(&options.mix);
        let stage = Arc::new(Stage::new(options, swarm.process.clone()));
        let scene = Self::on(stage, swarm, planted);
        scene.world().offices = office::draw(seed);
        scene
    }

    /// A gateway and its customers, as a part of another world.
    pub fn on(stage: Arc<Stage>, swarm: Swarm, planted: Option<Planted>) -> Self {
        Self {
            world: Mutex::new(World::new(stage.seed, swarm.clone())),
            stage,
            planted,
            book: Mutex::default(),
            memory: Mutex::default(),
            swarm,
        }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}
