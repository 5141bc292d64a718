//! Deliberate mistakes, to see that the checker can fail.
//!
//! Each is made outside of the product: a broker, a gateway, a carrier or a handler that misbehaves, or a
//! promise that is given too early. A checker that lets them pass proves nothing about the rest.

use super::Profile;

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The adapter reports a lost answer as a refusal: "it was not executed".
    LostIsRefused,
    /// The handler sends again without asking, to a broker that does not recognise repeats.
    NeverAsks,
    /// Every attempt has a client order id of its own.
    FreshKeyPerAttempt,
    /// Clients are told that an order is taken before it is written down.
    AckBeforeCommit,
    /// The adapter reports a lost authorization as a decline.
    LostIsDeclined,
    /// An authorization in doubt is sent again instead of asked about.
    ReplayInsteadOfAsk,
    /// A payment is declared failed without having been fenced off.
    NoFence,
    /// Refunds are made of what is left when they are asked for, and nothing is reserved.
    NoReservation,
    /// Every attempt at a refund has a key of its own.
    FreshRefundKey,
    /// What an attempt has brought is written over whatever has happened meanwhile.
    IgnoresVersion,
    /// A success that turns up after a payment has failed is not undone.
    KeepsLateMoney,
    /// Somebody writes a billing back as it was at first.
    RestoresBilling,
    /// Clients are told that a message is taken, and it is not written down.
    AcksUnwritten,
    /// The carrier reports silence as 200.
    SilenceIsFine,
    /// Somebody lets the last of a queue through, although the first is not done.
    JumpsTheQueue,
    /// Somebody lets messages through a flow control without counting them.
    IgnoresFlow,
    /// What an attempt has brought is written over a cancellation.
    OverwritesCancel,
    /// An attempt is settled, and its callback is not sent.
    SkipsCallbacks,
    /// Keys get lost on the way to the queue.
    DropsKeys,
    /// A page that will not be closed is taken for one that nobody has paid.
    ClosesUnasked,
    /// A page that is finished is taken for one that is paid.
    CompleteIsPaid,
    /// Whoever cancels gives the money back, without looking whether that has been done.
    RefundsAgain,
    /// Whoever hears of money confirms, without looking whether the hold is over.
    ConfirmsExpired,
    /// A video that comes too late makes its render done.
    RevivesRender,
    /// The postman reports a lost answer as a refusal for good; or as sent.
    SilenceIsRefused,
    SilenceIsSent,
    /// The product is told a higher pace than the server allows.
    SendsTooFast,
    /// Keys of mails get lost on the way.
    ForgetsMailKeys,
}

impl Planted {
    pub const ALL: [Self; 28] = [
        Self::LostIsRefused,
        Self::NeverAsks,
        Self::FreshKeyPerAttempt,
        Self::AckBeforeCommit,
        Self::LostIsDeclined,
        Self::ReplayInsteadOfAsk,
        Self::NoFence,
        Self::NoReservation,
        Self::FreshRefundKey,
        Self::IgnoresVersion,
        Self::KeepsLateMoney,
        Self::RestoresBilling,
        Self::AcksUnwritten,
        Self::SilenceIsFine,
        Self::JumpsTheQueue,
        Self::IgnoresFlow,
        Self::OverwritesCancel,
        Self::SkipsCallbacks,
        Self::DropsKeys,
        Self::ClosesUnasked,
        Self::CompleteIsPaid,
        Self::RefundsAgain,
        Self::ConfirmsExpired,
        Self::RevivesRender,
        Self::SilenceIsRefused,
        Self::SilenceIsSent,
        Self::SendsTooFast,
        Self::ForgetsMailKeys,
    ];

    /// Where the mistake is made.
    #[must_use]
    pub const fn profile(self) -> Profile {
        match self {
            Self::LostIsRefused
            | Self::NeverAsks
            | Self::FreshKeyPerAttempt
            | Self::AckBeforeCommit => Profile::Orders,
            Self::LostIsDeclined
            | Self::ReplayInsteadOfAsk
            | Self::NoFence
            | Self::NoReservation
            | Self::FreshRefundKey
            | Self::IgnoresVersion
            | Self::KeepsLateMoney
            | Self::RestoresBilling => Profile::Payments,
            Self::AcksUnwritten
            | Self::SilenceIsFine
            | Self::JumpsTheQueue
            | Self::IgnoresFlow
            | Self::OverwritesCancel
            | Self::SkipsCallbacks
            | Self::DropsKeys => Profile::Messages,
            Self::ClosesUnasked
            | Self::CompleteIsPaid
            | Self::RefundsAgain
            | Self::ConfirmsExpired
            | Self::RevivesRender => Profile::Reservations,
            Self::SilenceIsRefused
            | Self::SilenceIsSent
            | Self::SendsTooFast
            | Self::ForgetsMailKeys => Profile::Mail,
        }
    }
}
