//! What Tashika runs.
//!
//! The [`Engine`] owns the agents (dispatcher, renewer, rescuer, pruner, watchman) and the handlers
//! of the effect kinds; [`commands`] is what callers may ask for, the same for HTTP, the command
//! line and embedding programs. Guarantees: effects run only under a lease, every outcome goes
//! through `domain`, and what is written about it goes through one commit. It never keeps a promise
//! in memory: whatever must happen later is an effect.

mod alert;
mod case;
mod checkout;
mod clock;
pub mod commands;
mod confirm;
mod dispatcher;
mod engine;
mod event;
mod expiry;
mod gatekeeper;
mod give_up;
mod hand;
mod handler;
mod keyring;
mod mail;
mod mail_batch;
mod mail_office;
mod message;
mod meter;
mod order;
mod pace;
mod payment;
mod pruner;
mod pulse;
mod recent;
mod reconcile;
mod render;
mod renewer;
mod rescuer;
mod reservation;
mod sandbox;
mod schedule;
pub mod sealer;
mod traffic;
mod valve;
mod watchman;
mod webhook;
mod worker;

pub use alert::AlertHandler;
pub use clock::{Clock, Dice, Ids};
pub use confirm::Confirmers;
pub use dispatcher::Dispatcher;
pub use engine::{AlertSettings, Engine, Running, Settings};
pub use event::EventHandler;
pub use expiry::ExpiryHandler;
pub use gatekeeper::{Gate, Gatekeeper, Gates};
pub use give_up::GiveUpHandler;
pub use hand::{Hand, Place};
pub use handler::{BoxFuture, Ending, Handler, Job, Settled, Simple, Tried};
pub use keyring::{KeyRing, RotateError};
pub use mail::MailHandler;
pub use mail_batch::{DeadlineHandler, MailBatchHandler};
pub use mail_office::{MailRules, PostOffice};
pub use message::{Carrier, MessageHandler};
pub use meter::{Buckets, Meter};
pub use order::OrderHandler;
pub use pace::Pace;
pub use payment::{PaymentHandler, Till};
pub use pruner::Pruner;
pub use pulse::{Pulse, Step, Tally};
pub use recent::Recent;
pub use reconcile::{RECONCILE_KIND, ReconcileHandler, Window};
pub use render::{CopyHandler, REFERENCE as RENDER_REFERENCE, RenderHandler, Studio};
pub use rescuer::{Rescuer, Swept};
pub use reservation::HoldHandler;
pub use sandbox::StoredBook;
pub use schedule::ScheduleHandler;
pub use traffic::Traffic;
pub use valve::Valve;
pub use watchman::Watchman;
pub use webhook::{SANDBOX as SANDBOX_SOURCE, WebhookHandler};
