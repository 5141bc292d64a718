//! Whoever sends jobs through the queue, and whoever writes to many people at once.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::Scene;
use crate::run::demo::chance::{Chance, pass};

/// Between two batches of mail.
const BATCH_EVERY: Duration = Duration::from_secs(25);
const RECIPIENTS: u64 = 40;

/// Jobs for the worker. One in eight makes no sense to it, and becomes a dead letter.
pub(super) async fn send_jobs(scene: Scene, mut chance: Chance) {
    let path = format!("/v2/publish/{}/jobs", scene.world.worker.base_url());
    let headers = [("upstash-retries", "2"), ("upstash-retry-delay", "1000")];
    let mut number = 0_u64;
    while pass(chance.millis(700, 2000), &scene.over).await {
        number += 1;
        let broken = number == 2 || chance.in_hundred(12);
        let body = json!({"job": number, "broken": broken}).to_string();
        let taken = scene.caller.call(Method::POST, &path, &headers, body).await;
        if taken.is_some_and(|answer| answer.status == 200) && !broken {
            scene.world.job_was_taken(number);
        }
    }
}

/// A letter to everybody, now and then: some addresses do not exist, some servers are in no hurry.
pub(super) async fn write(scene: Scene, mut chance: Chance) {
    let mut number = 0_u64;
    let mut wait = Duration::from_secs(1);
    while pass(wait, &scene.over).await {
        number += 1;
        let recipients: Vec<Value> =
            (1..=RECIPIENTS).map(|each| recipient(number, each, &mut chance)).collect();
        let body = json!({
            "template": "deadline-alert", "locale": "en", "recipients": recipients,
        });
        scene.caller.post("/mail/batches", &format!("{}-batch-{number}", scene.name), &body).await;
        wait = BATCH_EVERY;
    }
}

fn recipient(batch: u64, number: u64, chance: &mut Chance) -> Value {
    // What happens to mail for these is in the sandbox's own table (docs/mail.md).
    let name = match chance.between(1, 100) {
        1..=6 => "refused",
        7..=14 => "greylist",
        15..=16 => "lost",
        _ => "staff",
    };
    let japanese = chance.in_hundred(50);
    let (staff, office, client) = if japanese {
        ("佐藤", "中央事務所", "田中 花子")
    } else {
        ("Ms Sato", "the central office", "Hanako Tanaka")
    };
    json!({
        "to": format!("{name}+{batch}-{number}@shop.example"),
        "locale": if japanese { "ja" } else { "en" },
        "data": {
            "staffName": staff, "officeName": office,
            "renewalAlerts": [{"name": client, "daysLeft": chance.between(1, 30)}],
            "assessmentAlerts": [], "dashboardUrl": "https://shop.example/deadlines",
        },
    })
}
