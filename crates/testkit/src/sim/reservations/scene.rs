//! The scene, with the gateway that it shares with payments.

use std::ops::Deref;
use std::sync::{Arc, MutexGuard};

use super::studio::Works;
use super::swarm::Swarm;
use super::{Options, payments, scenery};

pub(crate) struct Scene {
    scene: scenery::Scene<Swarm>,
    /// The gateway, with its network and its webhooks.
    pub bank: Arc<payments::Scene>,
}

impl Deref for Scene {
    type Target = scenery::Scene<Swarm>;

    fn deref(&self) -> &Self::Target {
        &self.scene
    }
}

impl Scene {
    pub fn new(options: &Options) -> Self {
        let scene = scenery::Scene::<Swarm>::new(options);
        let stage = Arc::clone(&scene.stage);
        let bank = payments::Scene::on(stage, scene.swarm.bank.clone(), scene.planted);
        Self { scene, bank: Arc::new(bank) }
    }

    /// The studio's.
    pub fn works(&self) -> MutexGuard<'_, Works> {
        self.world()
    }
}
