//! What is counted, so that a run that proves nothing can be told from one that does.

use std::fmt;

/// One thing that may happen in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tally {
    CrashBeforeCommit,
    CrashAfterCommit,
    CrashAtUpkeep,
    CrashInCall,
    GracefulStop,
    Stall,
    /// A node that died alone.
    NodeDied,
    /// A worker whose lease was lost wrote what it had done, and was refused.
    ZombieRefused,
    DiskFull,
    /// Nobody heard whether a write was made: it was not; it was.
    WriteUnknownAndLost,
    WriteUnknownAndKept,
    Accepted,
    Replayed,
    Conflict,
    Invalid,
    RateLimited,
    /// A client that never heard the answer.
    Unheard,
    Found,
    RequestSent,
    RequestLost,
    ReplyLost,
    ReplyLate,
    ServerErrorAfterEffect,
    Unreachable,
    Busy,
    Refused,
    Working,
    Duplicated,
    Executed,
    /// Executed when the caller had given up or died.
    ExecutedLate,
    RepeatRecognised,
    StatusAsked,
    StatusLost,
    StatusSaysExecuted,
    StatusSaysNotFound,
    /// Not found or rejected, although it was executed or under way.
    StatusLied,
    Retry,
    Lapse,
    /// A lease that ran out although its process lived.
    LapseOfTheLiving,
    CaseOpened,
    CaseResolved,
    Requeued,
    EndedSucceeded,
    EndedAborted,
    /// The same key is being worked on: by us, and at the gateway.
    InProgress,
    InFlight,
    /// What was asked for is not possible in the payment's state.
    WishRefused,
    VerifiedByHand,
    ServerErrorBeforeEffect,
    StatusSaysPending,
    Fenced,
    /// The gateway said that it had fenced, and had not.
    FenceLied,
    /// Webhooks: taken and heard to be taken; taken, and the answer was lost.
    WebhookTaken,
    WebhookTakenUnheard,
    WebhookDuplicate,
    /// No answer in time.
    WebhookUnheard,
    WebhookTooOld,
    WebhookForged,
    WebhookReplayed,
    WebhookPending,
    WebhookSucceeded,
    WebhookSkipped,
    /// A dead letter at the end.
    WebhookFailed,
    /// Of subscriptions; and what came after younger news.
    News,
    OldNews,
    RefundBounced,
    DifferenceFound,
    /// Money moved after a payment had failed, and was given back.
    Race,
    TookAuthorize,
    TookFail,
    TookCapture,
    TookVoid,
    TookRefundPart,
    TookRefundRest,
    EndedPending,
    EndedAuthorized,
    EndedCaptured,
    EndedRefunded,
    EndedFailed,
    /// A message whose key was taken.
    Deduplicated,
    Cancelled,
    /// It had ended already.
    CancelledTooLate,
    /// Begun although it was cancelled: somebody had it in hand already.
    AttemptedAfterCancel,
    /// An attempt under way whose worker has lost its lease to another.
    Zombie,
    /// 200, and nothing was done.
    Lied,
    Paused,
    Resumed,
    QueueDeleted,
    Resent,
    Buried,
    /// A message of a schedule.
    Fired,
    CallbackMade,
    EndedDelivered,
    EndedDead,
    /// Given up before it was attempted: workers that had it in hand disappeared, again and again.
    DeadUnattempted,
    /// A dead letter that was sent again or buried.
    EndedDisposed,
    EndedCancelled,
    /// Reservations: what customers hear and do.
    SlotTaken,
    CheckoutOpened,
    CheckoutOpening,
    CheckoutRefused,
    CancelRefused,
    CustomerPaid,
    CustomerPaidLater,
    MoneyNeverCame,
    /// The customer came too late: the page was closed.
    PageClosed,
    TurnedBack,
    /// Races, as they are written down.
    RaceExpired,
    RaceSlot,
    RaceRender,
    RaceCancel,
    Letter,
    /// The money is still with us, and a person knows.
    LeftToAPerson,
    /// Transitions of reservations.
    TookPaid,
    TookReclaimed,
    TookDeadline,
    TookCancelOfHold,
    TookCancelOfConfirmed,
    TookGiveUp,
    TookPaidWhenExpired,
    TookPaidWhenCancelled,
    /// Transitions of renders, and videos that came too late.
    RenderSubmitted,
    RenderDoubted,
    RenderFinished,
    RenderTriedAgain,
    RenderExhausted,
    RenderRetried,
    RenderResolved,
    RenderGivenUp,
    RenderCancelled,
    RenderLate,
    Callback,
    EndedHold,
    EndedConfirmed,
    EndedExpired,
    EndedCancelledReservation,
    /// Of mails: what the server said, and how they ended.
    Throttled,
    QuotaUsedUp,
    LoginRefused,
    EndedSent,
    EndedPossiblySent,
    PossiblyDuplicate,
}

impl Tally {
    /// How payments end.
    pub const ENDED: [Self; 5] = [
        Self::EndedPending,
        Self::EndedAuthorized,
        Self::EndedCaptured,
        Self::EndedRefunded,
        Self::EndedFailed,
    ];

    /// How messages end.
    pub const ENDED_MESSAGES: [Self; 4] =
        [Self::EndedDelivered, Self::EndedDead, Self::EndedDisposed, Self::EndedCancelled];

    /// How reservations end.
    pub const ENDED_RESERVATIONS: [Self; 4] = [
        Self::EndedHold,
        Self::EndedConfirmed,
        Self::EndedExpired,
        Self::EndedCancelledReservation,
    ];

    /// The name in reports: `CrashBeforeCommit` is "crash before commit".
    #[must_use]
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push(' ');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
