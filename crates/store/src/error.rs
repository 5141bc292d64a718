//! What can go wrong when remembering, and what is known afterwards.

use tashika_domain::effect::EffectId;

/// The store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database did not answer, refused, or is full. Trying later may help.
    #[error("the database is not available ({detail}); {written}")]
    Unavailable { detail: String, written: Written },
    /// A row does not mean anything to this version.
    #[error("{table}.{column} of row {row} cannot be read: {cause}")]
    Corrupt { table: &'static str, column: &'static str, row: String, cause: String },
    /// The database was migrated by a newer Tashika.
    #[error(
        "the database is at schema version {found}, this binary knows versions up to {known}: \
         run the newer Tashika, or restore the database from before its migration"
    )]
    TooNew { found: i64, known: i64 },
    /// The database URL cannot be used.
    #[error("TASHIKA_DATABASE_URL: {0}")]
    BadUrl(String),
    /// A statement was refused by the schema: a defect in Tashika.
    #[error("the database refused a statement: {0}")]
    Rejected(String),
}

/// Whether a write that failed can nevertheless have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    No,
    /// The connection broke while the commit was under way.
    Unknown,
}

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::No => "nothing was written",
            Self::Unknown => "it is not known whether the last write was kept",
        })
    }
}

impl StoreError {
    pub(crate) fn unavailable(cause: impl std::fmt::Display) -> Self {
        Self::Unavailable { detail: cause.to_string(), written: Written::No }
    }

    pub(crate) fn unknown(cause: impl std::fmt::Display) -> Self {
        Self::Unavailable { detail: cause.to_string(), written: Written::Unknown }
    }
}

impl CommitError {
    /// A statement was refused. An update that wants a slot loses it to an index, and that is a race like
    /// any other; everything else is a defect.
    pub(crate) fn refused(error: StoreError) -> Self {
        // SQLite names the columns of an index, PostgreSQL the index.
        const SLOT: [&str; 2] =
            ["reservations_slot_unique", "reservations.projection_date, reservations.slot_number"];
        match error {
            StoreError::Rejected(detail) if SLOT.iter().any(|name| detail.contains(name)) => {
                Self::Taken(Key::Slot)
            }
            other => Self::Store(other),
        }
    }
}

/// A `Changes` was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Somebody else has the key.
    #[error("the {0} key is taken")]
    Taken(Key),
    /// The row is not as the write expected it: the lease is lost, or the state has moved on.
    #[error("effect {0} has moved on")]
    Stale(EffectId),
    /// A row of this table was changed by somebody else since it was read: read it again.
    #[error("row {id} of {table} has moved on")]
    Outdated { table: &'static str, id: uuid::Uuid },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which unique key was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Ledger,
    Effect,
    /// The sender's id of an event.
    Event,
    /// The office or the customer of a billing.
    Billing,
    /// The key that keeps duplicates of a message out.
    Message,
    /// The rule and subject of a firing alert.
    Alert,
    /// The key of a mail or of a batch of mails.
    Mail,
    /// The name of a queue, a flow control, a group of URLs, a schedule.
    Name,
    /// The key or the slot of a new reservation.
    Reservation,
    /// The slot that a reservation wanted back.
    Slot,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ledger => "ledger",
            Self::Effect => "effect",
            Self::Event => "event",
            Self::Billing => "billing",
            Self::Message => "message",
            Self::Alert => "alert",
            Self::Mail => "mail",
            Self::Name => "name",
            Self::Reservation => "reservation",
            Self::Slot => "slot",
        })
    }
}
