//! Every two things that can happen to a paid reservation, in both orders, one in the middle of the other,
//! and with a crash in between.
//!
//! Nothing here runs by itself: an effect is claimed, attempted, decided about and written by hand, so that
//! something else can come in between any two of these. In the end a process with all lanes finishes what is
//! left, and the gateway's true ledger says whether it was fair.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::changes::{Lease, Settle};
use tashika_domain::effect::{Effect, Verdict, settle};
use tashika_domain::payment::checkout::Going;
use tashika_domain::reservation::decide::{At, happen};
use tashika_domain::reservation::status::Event;
use tashika_domain::reservation::{LatePayment, Status};
use tashika_domain::{Changes, Lane, Timestamp, Write};
use tashika_engine::commands::reservation::ReservationError;
use tashika_engine::{
    Clock, Ending, Handler, HoldHandler, Job, PaymentHandler, Tried, WebhookHandler,
};
use tashika_store::{Claim, CommitError};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::payments_support::forsake;
use crate::reservations_support::{HOLD, Hall};
use crate::support::policy;

on_both!(
    any_two_things_in_time_end_fairly,
    any_two_things_too_late_end_fairly,
    any_two_things_end_fairly_when_slots_may_be_reclaimed,
);

const DEAD: &str = "host:9:dead";

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// The hold's timer rings.
    Timer,
    /// The gateway tells that the page is complete.
    Completed,
    /// The gateway tells that the intent has succeeded: the same money, another event.
    Succeeded,
    /// The effect that closes the page has its turn.
    Close,
    /// The owner cancels.
    Cancel,
}

/// How the first of two is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Not at all: one after the other.
    None,
    /// The second happens between the first one's decision and its commit.
    BeforeCommit,
    /// The first dies after the gateway has answered it; the second happens; somebody takes it up again.
    Crash,
}

/// An effect in somebody's hands.
struct Doing {
    effect: Effect,
    handler: Arc<dyn Handler>,
    tried: Tried,
    now: Timestamp,
}

struct Stage<'a> {
    hall: &'a Hall,
    id: Uuid,
    now: Timestamp,
}

impl Stage<'_> {
    /// Claims and attempts; `None` if there is nothing to do any more.
    async fn begin(&self, act: Act) -> Option<Doing> {
        let (lane, kind) = match act {
            Act::Timer => (Lane::TIMERS, tashika_domain::reservation::HOLD_KIND),
            Act::Close => (Lane::PAYMENTS, tashika_domain::payment::KIND),
            Act::Completed | Act::Succeeded => (Lane::WEBHOOKS, tashika_domain::webhook::KIND),
            Act::Cancel => return None,
        };
        match act {
            Act::Completed => self.hall.deliver(&["checkout.session.completed"], 1).await,
            Act::Succeeded => self.hall.deliver(&["payment_intent.succeeded"], 1).await,
            _ => {}
        }
        let claim = Claim { lane: &lane, worker: DEAD, now: self.now, limit: 1 };
        let effect = self.hall.store.claim(claim).await.unwrap().pop()?;
        assert_eq!(effect.kind, kind);
        let till = self.hall.till(Clock::System);
        let handler: Arc<dyn Handler> = match act {
            Act::Timer => Arc::new(HoldHandler::new(till)),
            Act::Close => Arc::new(PaymentHandler::new(till, DEAD)),
            _ => Arc::new(WebhookHandler::new(till, Vec::new(), DEAD, &policy())),
        };
        let tried = handler.attempt(Job { effect: &effect, now: self.now }).await;
        Some(Doing { effect, handler, tried, now: self.now })
    }

    /// Decides, with everything as it is now.
    async fn decide(&self, doing: &Doing) -> Changes {
        let Doing { effect, handler, tried, now } = doing;
        let verdict = settle(effect, &tried.outcome, &policy(), *now);
        let ending = Ending {
            effect,
            verdict: &verdict,
            outcome: &tried.outcome,
            exchange: tried.exchange.as_ref(),
            note: tried.note.as_ref(),
            lapsed: false,
            started_at: *now,
            rtt: Duration::ZERO,
            now: *now,
            id: Uuid::from_u128(7),
        };
        let mut settled = handler.conclude(&ending).await.unwrap();
        assert!(!matches!(settled.verdict, Verdict::Aborted { .. }), "{:?}", settled.verdict);
        settled.changes.push(Write::Settle(Settle {
            lease: Lease { id: effect.id, fence: effect.fence },
            verdict: settled.verdict,
            now: *now,
            expires_at: now.plus(HOLD),
            unheard_since: None,
        }));
        settled.changes
    }

    /// Writes a decision, or takes it again.
    async fn finish(&self, doing: &Doing, mut decided: Changes) {
        for _ in 0..8 {
            match self.hall.store.commit(decided).await {
                Ok(()) => return,
                Err(CommitError::Outdated { .. } | CommitError::Taken(_)) => {
                    decided = self.decide(doing).await;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("no end of deciding");
    }

    /// The owner's wish, as the command decides it.
    async fn wish(&self) -> Option<Changes> {
        let reservation = self.hall.reservation(self.id).await;
        let payment = self.hall.payment_of(self.id).await;
        let at = At {
            now: self.now,
            rules: &self.hall.rules,
            payments: &self.hall.payments,
            slot_taken: false,
        };
        let going = Some(Going::of(&payment));
        happen(&reservation, Event::Cancel, going, at).ok().map(|decided| decided.changes)
    }

    /// The command itself, by a process whose clock shows this moment.
    async fn cancel(&self) {
        let ahead = self.now.since(Clock::System.now());
        let desk = self.hall.process(ahead, &[]);
        match desk.cancel(self.id).await {
            Ok(view) => assert_eq!(view.reservation.status, Status::Cancelled),
            Err(ReservationError::CannotCancel) => {
                assert_eq!(self.hall.reservation(self.id).await.status, Status::Expired);
            }
            Err(error) => panic!("{error:?}"),
        }
        desk.stop().await;
    }

    async fn whole(&self, act: Act) {
        match self.begin(act).await {
            Some(doing) => {
                let decided = self.decide(&doing).await;
                self.finish(&doing, decided).await;
            }
            None if act == Act::Cancel => self.cancel().await,
            None => {}
        }
    }

    async fn play(&self, first: Act, second: Act, cut: Cut) {
        if cut == Cut::None {
            self.whole(first).await;
            self.whole(second).await;
            return;
        }
        let doing = self.begin(first).await;
        let decided = match &doing {
            Some(doing) => Some(self.decide(doing).await),
            None => self.wish().await,
        };
        self.whole(second).await;
        match (doing, cut) {
            (Some(doing), Cut::BeforeCommit) => {
                if let Some(decided) = decided {
                    self.finish(&doing, decided).await;
                }
            }
            // Dead with the answer in its hands: the rescuer finds it.
            (Some(_), _) => forsake(&self.hall.db).await,
            (None, _) => {
                let written = match decided {
                    Some(decided) if cut == Cut::BeforeCommit => {
                        self.hall.store.commit(decided).await.is_ok()
                    }
                    // The customer's browser tries again.
                    _ => false,
                };
                if !written {
                    self.cancel().await;
                }
            }
        }
    }
}

/// Plays every pair with every cut, each with a reservation of its own.
async fn play_all(
    db: TestDb,
    acts: &[Act],
    late: bool,
    policy: LatePayment,
    fair: impl Fn(&[Act], Status),
) {
    let mut hall = Hall::new(db).await;
    hall.rules.late_payment = policy;
    let mut slot = 0;
    hall.rules.slots_per_day = 1000;
    for first in acts.iter().copied() {
        for second in acts.iter().copied() {
            for cut in [Cut::None, Cut::BeforeCommit, Cut::Crash] {
                slot += 1;
                let desk = hall.desk();
                let held = desk.paying(&format!("u-{slot}"), slot).await;
                hall.customer_pays(held.id).await;
                desk.stop().await;
                let after = if late { HOLD } else { Duration::from_secs(60) };
                let now = Clock::System.now().plus(after);
                let stage = Stage { hall: &hall, id: held.id, now };
                stage.play(first, second, cut).await;
                if !late {
                    // Whoever takes up what a dead process has left does so in time.
                    let rescuers = hall.process(after, &[Lane::WEBHOOKS]);
                    hall.until_settled(&Lane::WEBHOOKS).await;
                    rescuers.stop().await;
                }
                hall.settle().await;
                let status = hall.fair(held.id).await;
                let told = format!("{first:?} {second:?} {cut:?}: {status:?}");
                fair(&[first, second], status);
                let letters = hall.letters(held.id).await;
                let races = hall.scenarios(held.id).await;
                let refunded = |s: &&(String, String)| s.0 == "EXPIRED_AFTER_PAYMENT";
                let expected = usize::from(status == Status::Expired);
                assert_eq!(letters.len(), expected, "{told} {letters:?}");
                assert_eq!(races.iter().filter(refunded).count(), expected, "{told} {races:?}");
            }
        }
    }
    println!("{slot} interleavings, all fair");
}

async fn any_two_things_in_time_end_fairly(db: TestDb) {
    let acts = [Act::Completed, Act::Succeeded, Act::Cancel];
    play_all(db, &acts, false, LatePayment::Refund, |acts, status| {
        let cancelled = acts.contains(&Act::Cancel);
        let expected = if cancelled { Status::Cancelled } else { Status::Confirmed };
        assert_eq!(status, expected, "{acts:?}");
    })
    .await;
}

async fn any_two_things_too_late_end_fairly(db: TestDb) {
    let acts = [Act::Timer, Act::Completed, Act::Succeeded, Act::Close, Act::Cancel];
    play_all(db, &acts, true, LatePayment::Refund, |acts, status| {
        assert_eq!(status, Status::Expired, "{acts:?}");
    })
    .await;
}

async fn any_two_things_end_fairly_when_slots_may_be_reclaimed(db: TestDb) {
    let acts = [Act::Timer, Act::Completed, Act::Close];
    play_all(db, &acts, true, LatePayment::Reclaim, |acts, status| {
        assert_eq!(status, Status::Confirmed, "{acts:?}");
    })
    .await;
}
