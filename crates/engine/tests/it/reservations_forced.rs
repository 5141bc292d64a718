//! What meets at a reservation besides its money: a video that is done while its owner cancels, a person who
//! helps while the deadline runs out, a page that is asked for while the hold ends, and a message that never
//! came.
//!
//! As in `reservations_races`, each is decided and written by hand: one before the other, one in the middle
//! of the other, and with a crash in between.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::audit::Actor;
use tashika_domain::case::CaseStatus;
use tashika_domain::changes::{Lease, Settle};
use tashika_domain::effect::{Effect, settle};
use tashika_domain::render::conclude::{At as Moment, RemoteRender, RemoteState, hear};
use tashika_domain::render::person::{self, Resolution};
use tashika_domain::render::{GIVE_UP_KIND, KIND, Render, State};
use tashika_domain::reservation::decide::{At, check_out};
use tashika_domain::reservation::{HOLD_KIND, Reservation, Status};
use tashika_domain::{Changes, Lane, Timestamp, Write};
use tashika_engine::{
    Clock, Ending, GiveUpHandler, Handler, HoldHandler, Job, RECONCILE_KIND, ReconcileHandler,
    Window,
};
use tashika_store::Claim;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::payments_support::forsake;
use crate::reservations_renders::{
    DAY_AFTER, FAILING, confirmed, hall, quick, render_of, rendered,
};
use crate::reservations_support::{HOLD, Hall, equip};
use crate::support::{engine, policy, stop};

on_both!(
    a_video_and_a_cancellation_at_once,
    a_persons_help_and_the_deadline_at_once,
    a_page_and_the_end_of_the_hold_at_once,
    a_page_that_was_written_and_never_opened,
    a_message_that_never_came_is_found_when_the_books_are_compared,
    a_late_message_changes_nothing_that_the_books_have_told,
);

const DEAD: &str = "host:9:dead";

/// How two things meet. The first is decided first; what is written first differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// The first is written, then the second happens.
    FirstWins,
    /// The second happens between the first one's decision and its commit.
    SecondWins,
    /// The first dies with its decision in its hands, the second happens, and the first is told again.
    Crash,
}

const MEETINGS: [Meeting; 3] = [Meeting::FirstWins, Meeting::SecondWins, Meeting::Crash];

/// A timer in somebody's hands.
struct Timer {
    handler: Arc<dyn Handler>,
    effect: Effect,
    now: Timestamp,
}

impl Timer {
    async fn claim(hall: &Hall, kind: &str, ahead: Duration) -> Self {
        let now = Clock::System.now().plus(ahead);
        let claim = Claim { lane: &Lane::TIMERS, worker: DEAD, now, limit: 99 };
        let claimed = hall.store.claim(claim).await.unwrap();
        let effect = claimed.into_iter().find(|effect| effect.kind == kind).expect("it is due");
        let till = hall.till(Clock::System);
        let handler: Arc<dyn Handler> = match kind {
            HOLD_KIND => Arc::new(HoldHandler::new(till)),
            _ => Arc::new(GiveUpHandler::new(till)),
        };
        Self { handler, effect, now }
    }

    async fn decide(&self) -> Changes {
        let Self { handler, effect, now } = self;
        let tried = handler.attempt(Job { effect, now: *now }).await;
        let verdict = settle(effect, &tried.outcome, &policy(), *now);
        let ending = Ending {
            effect,
            verdict: &verdict,
            outcome: &tried.outcome,
            exchange: None,
            note: None,
            lapsed: false,
            started_at: *now,
            rtt: Duration::ZERO,
            now: *now,
            id: Uuid::from_u128(7),
        };
        let settled = handler.conclude(&ending).await.unwrap();
        let mut changes = settled.changes;
        changes.push(Write::Settle(Settle {
            lease: Lease { id: effect.id, fence: effect.fence },
            verdict: settled.verdict,
            now: *now,
            expires_at: now.plus(DAY_AFTER),
            unheard_since: None,
        }));
        changes
    }
}

/// What a callback that says done leads to.
fn done(render: &Render) -> Changes {
    let url = "https://videos.example/7.mp4".to_owned();
    let state = RemoteState::Done { url, expires_at: None };
    let remote = RemoteRender { id: "video-1".into(), state };
    let at = Moment { now: Clock::System.now(), rules: &quick(), via: "callback" };
    hear(render, &remote, Some(render.attempts), at)
}

async fn a_video_and_a_cancellation_at_once(db: TestDb) {
    let hall = hall(db).await;
    for (slot, meeting) in (3..).zip(MEETINGS) {
        let reservation = confirmed(&hall, 7, slot).await;
        let render = render_of(&hall, reservation.id).await;
        let decided = done(&render);
        let desk = hall.desk();
        if meeting == Meeting::FirstWins {
            hall.store.commit(decided).await.unwrap();
            desk.cancel(reservation.id).await.unwrap();
            assert_eq!(render_of(&hall, reservation.id).await.state(), State::Done, "{meeting:?}");
        } else {
            desk.cancel(reservation.id).await.unwrap();
            if meeting == Meeting::SecondWins {
                assert!(hall.store.commit(decided).await.is_err(), "somebody was faster");
            }
            // Told again, with the render as it is: written down, and no more.
            let over = render_of(&hall, reservation.id).await;
            hall.store.commit(done(&over)).await.unwrap();
            let after = render_of(&hall, reservation.id).await;
            assert_eq!((after.state(), after.version), (State::Closed, over.version));
        }
        desk.stop().await;
        hall.settle().await;
        assert_eq!(hall.fair(reservation.id).await, Status::Cancelled, "{meeting:?}");
        assert_eq!(hall.payment_of(reservation.id).await.refunds.len(), 1, "{meeting:?}");
        assert!(hall.letters(reservation.id).await.is_empty(), "who cancels knows it");
    }
}

fn helped(render: &Render) -> Changes {
    let resolution = Resolution { note: "made by hand".into(), output_url: None };
    let (who, now) = (Actor::operator("somebody"), Clock::System.now());
    person::resolve(render, &resolution, who, &quick(), now).unwrap()
}

/// Of a person and the deadline one counts, and the other sees it.
async fn a_persons_help_and_the_deadline_at_once(db: TestDb) {
    let hall = hall(db).await;
    for (slot, meeting) in (3..).zip(MEETINGS) {
        let reservation = confirmed(&hall, FAILING, slot).await;
        let render =
            rendered(&hall, reservation.id, tashika_domain::render::RenderStatus::Failed).await;
        let deadline = Timer::claim(&hall, GIVE_UP_KIND, DAY_AFTER).await;
        let decided = deadline.decide().await;
        let helps = meeting != Meeting::FirstWins;
        if helps {
            hall.store.commit(helped(&render)).await.unwrap();
            if meeting == Meeting::SecondWins {
                assert!(hall.store.commit(decided).await.is_err(), "somebody was faster");
                hall.store.commit(deadline.decide().await).await.unwrap();
            }
        } else {
            hall.store.commit(decided).await.unwrap();
            let over = render_of(&hall, reservation.id).await;
            let resolution = Resolution { note: "late".into(), output_url: None };
            let late =
                person::resolve(&over, &resolution, Actor::SYSTEM, &quick(), Clock::System.now());
            assert!(late.is_err(), "it was given up: {late:?}");
            assert!(hall.store.commit(helped(&render)).await.is_err(), "decided before that");
        }
        forsake(&hall.db).await;
        hall.settle_after(DAY_AFTER).await;
        let expected = if helps { Status::Confirmed } else { Status::Cancelled };
        assert_eq!(hall.fair(reservation.id).await, expected, "{meeting:?}");
        let letters = hall.letters(reservation.id).await;
        assert_eq!(letters.len(), usize::from(!helps), "{meeting:?} {letters:?}");
        let races = hall.scenarios(reservation.id).await;
        assert_eq!(races.len(), usize::from(!helps), "{meeting:?} {races:?}");
        let cases = hall.store.cases_of(KIND, &render.id.to_string()).await.unwrap();
        assert!(cases.iter().all(|case| case.status == CaseStatus::Resolved), "{cases:?}");
    }
}

/// A checkout as the command writes it, without the call to the gateway that follows.
fn asked_for_a_page(hall: &Hall, held: &Reservation, payment: u128) -> Changes {
    let at = At {
        now: Clock::System.now(),
        rules: &hall.rules,
        payments: &hall.payments,
        slot_taken: false,
    };
    check_out(held, Uuid::from_u128(payment), "stripe", Some(DEAD), at).0.changes
}

async fn a_page_and_the_end_of_the_hold_at_once(db: TestDb) {
    let hall = hall(db).await;
    for (slot, meeting) in (3..).zip(MEETINGS) {
        let desk = hall.desk();
        let held = desk.held("u-1", slot).await;
        desk.stop().await;
        let payment = u128::try_from(slot).unwrap();
        let page = asked_for_a_page(&hall, &held, payment);
        let timer = Timer::claim(&hall, HOLD_KIND, HOLD).await;
        let decided = timer.decide().await;
        match meeting {
            Meeting::FirstWins => {
                hall.store.commit(page).await.unwrap();
                assert!(hall.store.commit(decided).await.is_err(), "the hold has another version");
                hall.store.commit(timer.decide().await).await.unwrap();
            }
            Meeting::SecondWins => {
                hall.store.commit(decided).await.unwrap();
                assert!(hall.store.commit(page).await.is_err(), "there is no hold any more");
            }
            // The timer's process dies; the page is written; somebody takes the timer up again.
            Meeting::Crash => hall.store.commit(page).await.unwrap(),
        }
        forsake(&hall.db).await;
        hall.settle().await;
        assert_eq!(hall.fair(held.id).await, Status::Expired, "{meeting:?}");
        let pages = hall.world.sessions_of(&Uuid::from_u128(payment).to_string());
        let open = pages.iter().any(|page| page["status"] == "open");
        assert!(!open, "nobody can pay for what has expired: {pages:?}");
    }
}

/// Dead between the checkout's commit and its call: somebody else opens the page, in time; or does not.
async fn a_page_that_was_written_and_never_opened(db: TestDb) {
    let hall = hall(db).await;
    for (slot, late) in [(3, false), (4, true)] {
        let desk = hall.desk();
        let held = desk.held("u-1", slot).await;
        let payment = u128::try_from(slot).unwrap();
        hall.store.commit(asked_for_a_page(&hall, &held, payment)).await.unwrap();
        forsake(&hall.db).await;
        let id = Uuid::from_u128(payment).to_string();
        if late {
            hall.settle().await;
            assert!(hall.world.sessions_of(&id).iter().all(|page| page["status"] != "open"));
            assert_eq!(hall.fair(held.id).await, Status::Expired);
        } else {
            let workers = hall.process(Duration::ZERO, &[Lane::PAYMENTS]);
            until("the page", async || (hall.world.sessions_of(&id).len() == 1).then_some(()))
                .await;
            until("our knowing it", async || {
                hall.payment_of(held.id).await.checkout.and_then(|page| page.session)
            })
            .await;
            workers.stop().await;
            // The customer asks again, and gets that page.
            let opened = desk.check_out(held.id).await;
            assert_eq!(opened.id, Uuid::from_u128(payment));
            hall.customer_pays(held.id).await;
            hall.settle().await;
            assert_eq!(hall.fair(held.id).await, Status::Expired, "found when it was closed");
        }
        desk.stop().await;
    }
}

/// Compares the books of two minutes, two minutes later.
async fn compare_books(hall: &Hall) {
    const WINDOW: Duration = Duration::from_secs(120);
    let now = Clock::System.now();
    let clock = Clock::simulated(now.plus(WINDOW));
    let window = Window { from: now.minus(WINDOW / 2), until: now.plus(WINDOW / 2) };
    hall.store.commit(Changes::from(Write::Enqueue(window.effect(now, DAY_AFTER)))).await.unwrap();
    let till = hall.till(clock);
    let worker = "host:1:books";
    let running = equip(engine(&hall.store, clock, worker), &till, worker)
        .effect(RECONCILE_KIND, ReconcileHandler::new(Arc::clone(&till), WINDOW, DAY_AFTER))
        .lane(Lane::TIMERS, policy())
        .lane(Lane::PAYMENTS, policy())
        .start();
    until("the comparison", async || {
        let all = hall.effects().await;
        all.iter().any(|row| row.kind == RECONCILE_KIND && row.status.is_settled()).then_some(())
    })
    .await;
    stop(running).await;
}

async fn a_message_that_never_came_is_found_when_the_books_are_compared(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    desk.stop().await;
    hall.customer_pays(held.id).await;
    // The hold has thirteen minutes left then.
    compare_books(&hall).await;
    assert_eq!(hall.reservation(held.id).await.status, Status::Confirmed);
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Confirmed);
    assert!(hall.races(held.id).await.is_empty());
}

async fn a_late_message_changes_nothing_that_the_books_have_told(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    desk.stop().await;
    hall.customer_pays(held.id).await;
    compare_books(&hall).await;
    let confirmed = hall.reservation(held.id).await;
    hall.deliver(&["checkout.session.completed", "payment_intent.succeeded"], 3).await;
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Confirmed);
    assert_eq!(hall.reservation(held.id).await.version, confirmed.version);
    assert_eq!(hall.store.renders_of(held.id).await.unwrap().len(), 1, "made once");
}
