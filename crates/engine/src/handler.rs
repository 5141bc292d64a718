//! How an effect of some kind is performed.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tashika_domain::effect::{self, Effect, Verdict};
use tashika_domain::outcome::{Exchange, Outcome, Reason};
use tashika_domain::{Changes, Timestamp};
use tashika_store::StoreError;
use uuid::Uuid;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whatever a handler remembers from an attempt until it concludes; only it knows the type.
pub type Note = Arc<dyn Any + Send + Sync>;

/// Performs the effects of one kind.
///
/// A trait, because applications that embed the engine bring kinds of their own. `attempt` talks to
/// the outside and decides nothing; `settle` decides and talks to nobody.
pub trait Handler: Send + Sync {
    /// Performs the effect once. If `job.effect.in_doubt`, an earlier attempt may have taken effect:
    /// unless a repeat is harmless, ask before performing.
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried>;

    /// What to write together with the effect's settlement.
    fn settle(&self, _ending: &Ending<'_>) -> Changes {
        Changes::new()
    }

    /// What the attempt means for the effect, and what to write with that.
    ///
    /// For handlers whose decision needs rows as they are now. It is asked again if what it read has
    /// moved on before it was written. All others leave it alone: the lane's policy decides about
    /// the effect, and `settle` says what to write.
    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(async move { Ok(Settled::new(ending.verdict.clone(), self.settle(ending))) })
    }

    /// Who performs it, for the log: the broker, the gateway.
    fn adapter(&self) -> Option<&str> {
        None
    }

    /// The digest under which the ledger must know the request. `None`: no ledger is asked.
    fn request_digest(&self, effect: &Effect) -> Option<String> {
        effect.digest.clone()
    }
}

/// An effect in the hands of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub effect: &'a Effect,
    pub now: Timestamp,
}

/// What came of an attempt.
#[derive(Clone, Debug)]
pub struct Tried {
    /// `Done` carries what `settle` needs to know.
    pub outcome: Outcome<Value>,
    /// What was said and heard; recorded with the attempt.
    pub exchange: Option<Exchange>,
    /// How long the other side took.
    pub rtt: Duration,
    /// The other side has said that no earlier attempt took effect.
    pub doubt_cleared: bool,
    /// What else the handler wants to remember until it concludes.
    pub note: Option<Note>,
    /// It was not attempted, and is not to be before this moment. That is no failure.
    pub put_off: Option<Timestamp>,
}

impl Tried {
    #[must_use]
    pub fn new(outcome: Outcome<Value>) -> Self {
        Self {
            outcome,
            exchange: None,
            rtt: Duration::ZERO,
            doubt_cleared: false,
            note: None,
            put_off: None,
        }
    }

    /// Not now: nothing was attempted.
    #[must_use]
    pub fn later(at: Timestamp) -> Self {
        Self { put_off: Some(at), ..Self::done(Value::Null) }
    }

    #[must_use]
    pub fn done(result: Value) -> Self {
        Self::new(Outcome::Done(result))
    }

    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self::new(Outcome::Refused(Reason::new(code, message)))
    }
}

/// The end of an attempt, or of an effect whose worker is gone.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    pub effect: &'a Effect,
    /// What the lane's policy makes of it.
    pub verdict: &'a Verdict,
    /// How it ended; `Lost` if the worker is gone.
    pub outcome: &'a Outcome<Value>,
    pub exchange: Option<&'a Exchange>,
    pub note: Option<&'a Note>,
    /// The worker is gone: nobody knows what it did.
    pub lapsed: bool,
    /// When the attempt began.
    pub started_at: Timestamp,
    pub rtt: Duration,
    pub now: Timestamp,
    /// Names whatever has to be created.
    pub id: Uuid,
}

impl<'a> Ending<'a> {
    /// What the attempt has noted, if it was an attempt of this process.
    #[must_use]
    pub fn noted<T: 'static>(&self) -> Option<&'a T> {
        self.note.and_then(|note| note.downcast_ref())
    }

    /// What `Done` carried.
    #[must_use]
    pub const fn result(&self) -> Option<&'a Value> {
        match self.outcome {
            Outcome::Done(value) => Some(value),
            _ => None,
        }
    }
}

/// What becomes of an effect, and what is written with that.
pub struct Settled {
    pub verdict: Verdict,
    pub changes: Changes,
    /// An effect that `changes` creates in the hands of this worker: it goes on with it at once.
    pub next: Option<Effect>,
    /// For logs and metrics, once everything is written.
    pub after: Option<Box<dyn FnOnce() + Send>>,
    /// `changes` tell how the attempt went; there is no need for a second record.
    pub recorded: bool,
    pub standing: Standing,
}

/// Whether an effect is still for the one who concludes to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It ends as the verdict says.
    Ours,
    /// What it is about has ended meanwhile, and it has no row: only the changes are written.
    Over,
    /// Somebody else has it: nothing is written.
    Taken,
}

impl Settled {
    #[must_use]
    pub fn new(verdict: Verdict, changes: Changes) -> Self {
        Self {
            verdict,
            changes,
            next: None,
            after: None,
            recorded: false,
            standing: Standing::Ours,
        }
    }

    /// By the verdict alone, for an effect whose handler cannot be asked.
    #[must_use]
    pub fn plain(effect: &Effect, verdict: Verdict, unheard_since: Option<Timestamp>) -> Self {
        Self::new(verdict, effect::let_go(effect, unheard_since))
    }
}

/// An effect that is nothing but a function.
pub struct Simple<F>(pub F);

impl<F> Handler for Simple<F>
where
    F: Fn(&Effect) -> Outcome<Value> + Send + Sync,
{
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(async move { Tried::new((self.0)(job.effect)) })
    }
}
