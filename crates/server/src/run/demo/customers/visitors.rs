//! Visitors: reserve a slot of a day, and pay on the gateway's page at once, too late or never.

use std::time::Duration;

use jiff::civil::Date;
use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_engine::Clock;
use tokio::task::JoinSet;

use super::Scene;
use crate::run::demo::chance::{Chance, pass};
use crate::run::demo::settings::SLOTS_PER_DAY;

const AMOUNT: u64 = 3000;
/// The gateway may lose its answer when the page is opened: the visitor presses the button again.
const PRESSES: u32 = 8;
/// How long before the end of the hold the slow ones pay: the news comes after the end.
const LAST_MOMENT: Duration = Duration::from_millis(250);

/// What a visitor is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Pays,
    PaysAtTheLastMoment,
    Leaves,
    PaysAndCancels,
}

pub(super) async fn visit(scene: Scene, mut chance: Chance) {
    let mut under_way = JoinSet::new();
    let mut number = 0_u64;
    while pass(chance.millis(1300, 3200), &scene.over).await {
        number += 1;
        // The first few show in a short demonstration what there is to see.
        let habit = match (number, chance.between(1, 100)) {
            (1, _) => Habit::PaysAtTheLastMoment,
            (2, _) => Habit::Pays,
            (3, _) | (_, 86..) => Habit::PaysAndCancels,
            (_, 1..=50) => Habit::Pays,
            (_, 51..=72) => Habit::PaysAtTheLastMoment,
            _ => Habit::Leaves,
        };
        let video = match (number, chance.between(1, 100)) {
            (2, _) | (_, 1..=8) => 9001,
            (_, 9..=16) => 9002,
            (_, 17..=20) => 9004,
            _ => chance.between(1, 500),
        };
        under_way.spawn(stay(scene.clone(), number, habit, video, chance.branch()));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn stay(scene: Scene, number: u64, habit: Habit, video: u64, mut chance: Chance) {
    // A day fills up; then people look at the day after.
    let days_ahead = number / SLOTS_PER_DAY + u64::from(chance.in_hundred(25));
    let Some(day) = day_after(Clock::System.now(), days_ahead) else { return };
    let user = format!("visitor-{number}");
    let body = json!({
        "videoId": video, "projectionDate": day.to_string(),
        "slotNumber": chance.between(1, SLOTS_PER_DAY), "userId": user,
        "userEmail": format!("{user}@shop.example"),
        "locale": if chance.in_hundred(50) { "ja" } else { "en" },
        "amount": AMOUNT, "currency": "JPY",
    });
    let key = format!("{}-reservation-{number}", scene.name);
    let Some(held) = scene.click("/reservations", &key, &body, chance.in_hundred(15)).await else {
        return;
    };
    // Somebody else has the slot: the visitor is told so, and goes.
    let Some(reservation) = held.text("reservationId") else { return };
    if habit == Habit::Leaves {
        return;
    }
    let Some(session) = page(&scene, &reservation).await else { return };
    let wait = match habit {
        Habit::PaysAtTheLastMoment => until_the_last_moment(&held.body),
        _ => chance.millis(600, 4000),
    };
    if !pass(wait, &scene.over).await || !scene.world.gateway.customer_pays(&session) {
        return;
    }
    if habit == Habit::PaysAndCancels && pass(chance.millis(2500, 6000), &scene.over).await {
        let path = format!("/reservations/{reservation}/cancel");
        scene.click(&path, &format!("{key}-cancel"), &json!({}), true).await;
    }
}

/// The gateway's page for a reservation.
async fn page(scene: &Scene, reservation: &str) -> Option<String> {
    let path = format!("/reservations/{reservation}/checkout");
    for _ in 0..PRESSES {
        let answer = scene.caller.post(&path, &format!("{reservation}-page"), &json!({})).await?;
        match answer.status {
            200 | 201 => return answer.text("sessionId"),
            202 if pass(Duration::from_secs(1), &scene.over).await => {}
            _ => return None,
        }
    }
    None
}

fn until_the_last_moment(held: &Value) -> Duration {
    let end = held["expiresAt"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let left = end.map_or(Duration::ZERO, |end| end.since(Clock::System.now()));
    left.saturating_sub(LAST_MOMENT)
}

fn day_after(now: Timestamp, days: u64) -> Option<Date> {
    let today: Date = now.to_string().get(..10)?.parse().ok()?;
    today.checked_add(jiff::Span::new().days(i64::try_from(days).ok()?)).ok()
}
