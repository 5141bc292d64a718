//! What was bought is made, or the money goes back: reservations and their renders.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tashika_domain::audit::Actor;
use tashika_domain::case::CaseStatus;
use tashika_domain::changes::{Lease, Settle};
use tashika_domain::effect::{Effect, settle};
use tashika_domain::render::person::{self, Resolution};
use tashika_domain::render::{CASE_FAILED, GIVE_UP_KIND, KIND, Render, RenderRules, RenderStatus};
use tashika_domain::reservation::{Reservation, Status};
use tashika_domain::{Changes, Lane, Outcome, Timestamp, Write};
use tashika_engine::{Clock, Ending, GiveUpHandler, Handler, Job, RenderHandler, Studio};
use tashika_providers::render::sandbox::SandboxRenderer;
use tashika_store::Claim;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::payments_support::forsake;
use crate::reservations_support::{Hall, body};
use crate::support::{engine, policy, stop};

on_both!(
    a_confirmed_reservation_gets_its_video,
    a_render_that_fails_for_good_gives_the_money_back_in_the_end,
    a_render_that_a_person_resolves_in_time_costs_nothing,
    a_video_that_comes_after_the_refund_changes_nothing,
    a_cancelled_reservation_needs_no_video,
    giving_up_and_cancelling_at_once_give_back_once,
    a_crash_while_giving_up_gives_back_once,
);

/// The sandbox fails every attempt of this one.
pub const FAILING: i64 = 9001;
/// After the deadline of a failed render.
pub const DAY_AFTER: Duration = Duration::from_secs(25 * 3600);

pub fn quick() -> RenderRules {
    let soon = Duration::from_millis(1);
    RenderRules { pause: soon, poll: soon, ..RenderRules::default() }
}

pub async fn hall(db: TestDb) -> Hall {
    let mut hall = Hall::new(db).await;
    hall.rules.render = quick();
    hall
}

/// A reservation that is confirmed, of a video.
pub async fn confirmed(hall: &Hall, video: i64, slot: i64) -> Reservation {
    let desk = hall.desk();
    let mut asked = body("u-1", slot);
    asked["videoId"] = json!(video);
    let held = desk.hold(&format!("k-{slot}"), &asked).await.unwrap().reservation;
    desk.check_out(held.id).await;
    desk.stop().await;
    hall.customer_pays(held.id).await;
    hall.deliver(&["checkout.session.completed"], 1).await;
    let webhooks = hall.process(Duration::ZERO, &[Lane::WEBHOOKS]);
    until("the confirmation", async || {
        (hall.reservation(held.id).await.status == Status::Confirmed).then_some(())
    })
    .await;
    webhooks.stop().await;
    hall.reservation(held.id).await
}

pub async fn render_of(hall: &Hall, id: Uuid) -> Render {
    let mut renders = hall.store.renders_of(id).await.unwrap();
    assert_eq!(renders.len(), 1, "{renders:?}");
    renders.remove(0)
}

/// Renders until the render is as wanted.
pub async fn rendered(hall: &Hall, id: Uuid, status: RenderStatus) -> Render {
    let clock = Clock::System;
    let renderer = SandboxRenderer::new(Duration::from_millis(50)).taking(Duration::ZERO);
    let studio = Arc::new(Studio {
        store: hall.store.clone(),
        clock,
        renderer: Arc::new(renderer),
        rules: quick(),
        callbacks: None,
        fetcher: None,
    });
    let running = engine(&hall.store, clock, "host:1:studio")
        .lane(Lane::RENDERS, policy())
        .effect(KIND, RenderHandler(studio))
        .start();
    let render = until(status.as_str(), async || {
        Some(render_of(hall, id).await).filter(|render| render.status == status)
    })
    .await;
    stop(running).await;
    render
}

async fn a_confirmed_reservation_gets_its_video(db: TestDb) {
    let hall = hall(db).await;
    let reservation = confirmed(&hall, 7, 3).await;
    let render = rendered(&hall, reservation.id, RenderStatus::Done).await;
    assert_eq!((render.video_id, render.attempts), (7, 1));
    hall.settle_after(DAY_AFTER).await;
    assert_eq!(hall.fair(reservation.id).await, Status::Confirmed);
}

/// Scenario 3.
async fn a_render_that_fails_for_good_gives_the_money_back_in_the_end(db: TestDb) {
    let hall = hall(db).await;
    let reservation = confirmed(&hall, FAILING, 3).await;
    let render = rendered(&hall, reservation.id, RenderStatus::Failed).await;
    assert_eq!(render.attempts, 3);
    let cases = async || hall.store.cases_of(KIND, &render.id.to_string()).await.unwrap();
    assert_eq!((cases().await.len(), cases().await[0].kind.as_str()), (1, CASE_FAILED));
    assert_eq!(cases().await[0].status, CaseStatus::Open);
    // A person has a day.
    hall.settle_without_timers().await;
    assert_eq!(hall.fair(reservation.id).await, Status::Confirmed);

    hall.settle_after(DAY_AFTER).await;
    assert_eq!(hall.fair(reservation.id).await, Status::Cancelled);
    let payment = hall.payment_of(reservation.id).await;
    assert_eq!((payment.refunds.len(), payment.refunded_amount), (1, payment.captured_amount));
    assert_eq!(hall.letters(reservation.id).await, ["render-failed-refunded"]);
    let races = hall.scenarios(reservation.id).await;
    assert_eq!(races, [("RENDER_FAILURE".to_owned(), "REFUNDED".to_owned())]);
    assert_eq!(cases().await[0].status, CaseStatus::Resolved);
}

async fn a_render_that_a_person_resolves_in_time_costs_nothing(db: TestDb) {
    let hall = hall(db).await;
    let reservation = confirmed(&hall, FAILING, 3).await;
    let render = rendered(&hall, reservation.id, RenderStatus::Failed).await;
    let resolution = Resolution { note: "made by hand".into(), output_url: None };
    let now = Clock::System.now();
    let rules = quick();
    let who = Actor::operator("somebody");
    let changes = person::resolve(&render, &resolution, who, &rules, now).unwrap();
    hall.store.commit(changes).await.unwrap();
    hall.settle_after(DAY_AFTER).await;
    assert_eq!(hall.fair(reservation.id).await, Status::Confirmed);
    assert!(hall.letters(reservation.id).await.is_empty());
    assert!(hall.races(reservation.id).await.is_empty());
}

async fn a_video_that_comes_after_the_refund_changes_nothing(db: TestDb) {
    let hall = hall(db).await;
    let reservation = confirmed(&hall, FAILING, 3).await;
    rendered(&hall, reservation.id, RenderStatus::Failed).await;
    hall.settle_after(DAY_AFTER).await;
    let over = render_of(&hall, reservation.id).await;
    assert!(over.closed.is_some());
    let resolution = Resolution { note: "late".into(), output_url: None };
    let now = Clock::System.now();
    let late = person::resolve(&over, &resolution, Actor::SYSTEM, &quick(), now);
    assert!(late.is_err(), "{late:?}");
    assert_eq!(hall.fair(reservation.id).await, Status::Cancelled);
}

async fn a_cancelled_reservation_needs_no_video(db: TestDb) {
    let hall = hall(db).await;
    let reservation = confirmed(&hall, 7, 3).await;
    let desk = hall.desk();
    desk.cancel(reservation.id).await.unwrap();
    assert!(render_of(&hall, reservation.id).await.closed.is_some());
    hall.settle().await;
    assert_eq!(hall.fair(reservation.id).await, Status::Cancelled);
    desk.stop().await;
}

/// The deadline in somebody's hands.
struct Deadline {
    handler: GiveUpHandler,
    effect: Effect,
    now: Timestamp,
}

impl Deadline {
    async fn claim(hall: &Hall) -> Self {
        let now = Clock::System.now().plus(DAY_AFTER);
        let claim = Claim { lane: &Lane::TIMERS, worker: "host:9:dead", now, limit: 9 };
        let claimed = hall.store.claim(claim).await.unwrap();
        let effect = claimed.into_iter().find(|effect| effect.kind == GIVE_UP_KIND);
        let handler = GiveUpHandler::new(hall.till(Clock::System));
        Self { handler, effect: effect.expect("it is due"), now }
    }

    async fn decide(&self) -> Changes {
        let Self { handler, effect, now } = self;
        let tried = handler.attempt(Job { effect, now: *now }).await;
        let outcome: Outcome<serde_json::Value> = tried.outcome;
        let verdict = settle(effect, &outcome, &policy(), *now);
        let ending = Ending {
            effect,
            verdict: &verdict,
            outcome: &outcome,
            exchange: None,
            note: tried.note.as_ref(),
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

async fn giving_up_and_cancelling_at_once_give_back_once(db: TestDb) {
    let hall = hall(db).await;
    // The owner comes between the decision and its commit; then the other way round.
    for (slot, owner_first) in [(3, true), (4, false)] {
        let reservation = confirmed(&hall, FAILING, slot).await;
        rendered(&hall, reservation.id, RenderStatus::Failed).await;
        let deadline = Deadline::claim(&hall).await;
        let decided = deadline.decide().await;
        let desk = hall.desk();
        if owner_first {
            desk.cancel(reservation.id).await.unwrap();
            assert!(hall.store.commit(decided).await.is_err(), "somebody was faster");
            hall.store.commit(deadline.decide().await).await.unwrap();
        } else {
            hall.store.commit(decided).await.unwrap();
            let view = desk.cancel(reservation.id).await.unwrap();
            assert_eq!(view.reservation.status, Status::Cancelled);
        }
        desk.stop().await;
        forsake(&hall.db).await;
        if owner_first {
            // A refund that nobody sends for a day is too old to be sent. The timers are in the hands of
            // somebody who is a day ahead.
            hall.settle_without_timers().await;
        }
        hall.settle_after(DAY_AFTER + DAY_AFTER / 24).await;
        assert_eq!(hall.fair(reservation.id).await, Status::Cancelled);
        assert_eq!(hall.payment_of(reservation.id).await.refunds.len(), 1);
    }
}

async fn a_crash_while_giving_up_gives_back_once(db: TestDb) {
    let hall = hall(db).await;
    let reservation = confirmed(&hall, FAILING, 3).await;
    rendered(&hall, reservation.id, RenderStatus::Failed).await;
    let deadline = Deadline::claim(&hall).await;
    // Dead with the decision in its hands.
    drop(deadline.decide().await);
    forsake(&hall.db).await;
    hall.settle_after(DAY_AFTER).await;
    assert_eq!(hall.fair(reservation.id).await, Status::Cancelled);
    assert_eq!(hall.payment_of(reservation.id).await.refunds.len(), 1);
    assert_eq!(hall.letters(reservation.id).await, ["render-failed-refunded"]);
}
