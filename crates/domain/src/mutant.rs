//! Deliberate bugs: what a mistake at the places where the promises are kept would look like.
//!
//! Compiled in only with the feature `mutants`, which nothing but the mutation check (`scripts/mutants`)
//! switches on; without it [`on`] is `false` at compile time, and the `tashika` binary does not build with it.
//! At run time at most one bug is alive: [`plant`] chooses it for the current thread (the simulator has one),
//! the environment variable [`VARIABLE`] for a whole process (a test of the suite). Each must be caught;
//! `crates/testkit/tests/mutants.rs` says by what.

use std::borrow::Cow;

/// Names the bug that is alive in a process.
pub const VARIABLE: &str = "TASHIKA_MUTANT";

/// Whether bugs are compiled in.
pub const COMPILED_IN: bool = cfg!(feature = "mutants");

/// Makes the enum, the list of all, and their names and descriptions.
macro_rules! mutants {
    ($($(#[doc = $line:literal])+ $name:ident,)+) => {
        /// One deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[doc = $line])+ $name,)+
        }

        impl Mutant {
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What the bug does.
            #[must_use]
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($line),+).trim_ascii(),)+
                }
            }
        }
    };
}

mutants! {
    /// A payment that the gateway does not show is declared failed without being fenced off.
    FenceSkipped,
    /// An operation in doubt is sent again instead of asked about.
    ReplayedInsteadOfAsked,
    /// An authorization without an answer counts as declined.
    LostIsDeclined,
    /// An order without an answer counts as refused.
    LostIsRefused,
    /// An order in doubt is sent again to a broker that does not recognise repeats.
    OrderSentWithoutAsking,
    /// What a worker left behind when it disappeared is not in doubt.
    LapseLeavesNoDoubt,
    /// Callers are told "done" before the commit is made.
    AckBeforeCommit,
    /// A settlement does not compare the lease's fence.
    FenceNotCompared,
    /// What waited for its turn for longer than its lease is sent all the same.
    ExpiredLeaseSends,
    /// The rescuer takes back what its worker has just shown a sign of life for.
    SignOfLifeIgnored,
    /// The outbox is settled in a commit of its own, before the ledger.
    OutboxBeforeLedger,
    /// The ledger is not asked whether an effect has been performed.
    LedgerNotAsked,
    /// Another body under the same key is answered as if it were a repeat.
    DigestNotCompared,
    /// Refunds under way are not counted when another is asked for.
    RefundNotReserved,
    /// The database does not compare refunds with what was captured.
    RefundsUnconstrained,
    /// Every attempt at a refund has a key of its own.
    RefundKeyPerAttempt,
    /// A success that turns up after a payment has failed is not undone.
    LateSuccessKept,
    /// An update does not compare the version that was read.
    VersionNotCompared,
    /// The gateway's id is not written down before money can move.
    MoneyBeforeId,
    /// A webhook's event id is not compared with those seen before.
    EventIdNotCompared,
    /// A webhook's signature is not compared.
    SignatureNotCompared,
    /// A callback that nobody signed is believed without asking.
    UnsignedBelieved,
    /// A deduplication key is looked up and not stored.
    DedupKeyNotStored,
    /// A queue lets everybody through who waits.
    QueueGateOpen,
    /// A flow control does not count whom it lets through.
    FlowNotCounted,
    /// An attempt that ends after its message was cancelled makes it delivered.
    CancelOverwritten,
    /// A message that was cancelled after it was claimed is sent.
    CancelledIsSent,
    /// An attempt is settled, and nobody is called back.
    CallbackForgotten,
    /// What fails is tried for ever.
    AttemptsUnlimited,
    /// What fails is tried again at once.
    BackoffIgnored,
    /// A schedule fires although it has gone on since the firing was planned.
    TickFiresAgain,
    /// A mail is sent without being marked first.
    MailNotMarked,
    /// A mail whose answer was lost counts as certainly not sent.
    MailDoubtForgotten,
    /// Every attempt at a mail has a Message-ID of its own.
    MessageIdPerAttempt,
    /// A permit to send a mail comes back as soon as the attempt is over.
    PermitNotRested,
    /// A hold past its time can still be paid for.
    DeadlineIgnored,
    /// A slot can have two owners.
    SlotNotUnique,
    /// Money that came too late is kept.
    LateMoneyKept,
    /// Audit lines are not written.
    AuditForgotten,
    /// Of two decisions about a case, both count.
    CaseDecidedTwice,
    /// The addresses of a name are not looked at before they are connected to.
    NamesNotVetted,
}

/// Whether this bug is alive.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn on(_: Mutant) -> bool {
    false
}

/// `text`, which the bug changes.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn instead<'a>(_: Mutant, text: &'a str, _: &str, _: &str) -> Cow<'a, str> {
    Cow::Borrowed(text)
}

#[cfg(feature = "mutants")]
mod alive {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use super::{Cow, Mutant, VARIABLE};

    thread_local! {
        static HERE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    static EVERYWHERE: LazyLock<Option<Mutant>> = LazyLock::new(|| {
        let wanted = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
        let found = Mutant::ALL.iter().find(|mutant| format!("{mutant:?}") == wanted);
        assert!(found.is_some(), "{VARIABLE} names no bug: {wanted}");
        found.copied()
    });

    /// Whether this bug is alive.
    #[must_use]
    pub fn on(mutant: Mutant) -> bool {
        HERE.get().or(*EVERYWHERE) == Some(mutant)
    }

    /// Chooses the bug that is alive on this thread, or none.
    pub fn plant(mutant: Option<Mutant>) {
        HERE.set(mutant);
    }

    /// `text`, with `from` replaced by `to` while the bug is alive.
    #[must_use]
    pub fn instead<'a>(mutant: Mutant, text: &'a str, from: &str, to: &str) -> Cow<'a, str> {
        if !on(mutant) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(text.replace(from, to))
    }
}

#[cfg(feature = "mutants")]
pub use alive::{instead, on, plant};
