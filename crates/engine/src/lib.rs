//! What Tashika runs.
//!
//! The [`Engine`] owns the agents (dispatcher, renewer, rescuer, pruner, watchman) and the handlers
//! of the effect kinds; [`commands`] is what callers may ask for, the same for HTTP, the command
//! line and embedding programs. Guarantees: effects run only under a lease, every outcome goes
//! through `domain`, and what is written about it goes through one commit. It never keeps a promise
//! in memory: whatever must happen later is an effect.

mod clock;
pub mod commands;
mod delivery;
mod dispatcher;
mod engine;
mod event;
mod expiry;
mod handler;
mod order;
mod pace;
mod payment;
mod pruner;
mod reconcile;
mod renewer;
mod rescuer;
mod sandbox;
pub mod sealer;
mod watchman;
mod webhook;
mod worker;

pub use clock::{Clock, Dice, Ids};
pub use delivery::DeliveryHandler;
pub use dispatcher::Dispatcher;
pub use engine::{Engine, Running, Settings};
pub use event::EventHandler;
pub use expiry::ExpiryHandler;
pub use handler::{BoxFuture, Ending, Handler, Job, Settled, Simple, Tried};
pub use order::OrderHandler;
pub use pace::Pace;
pub use payment::{PaymentHandler, Till};
pub use pruner::Pruner;
pub use reconcile::{RECONCILE_KIND, ReconcileHandler, Window};
pub use rescuer::Rescuer;
pub use sandbox::StoredBook;
pub use webhook::WebhookHandler;
