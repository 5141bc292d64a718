//! Every kind of sender, with the headers that it really sends.

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tashika_providers::webhook::{standard_headers, standard_key};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tashika_testkit::shotstack::{KEY, ShotstackServer};

use crate::support::Setup;
use crate::webhooks::{items, now, refused, taken, to};

on_both!(every_kind_of_sender_is_taken);

/// HMAC-SHA256, by the book.
fn hmac(key: &str, message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key.as_bytes());
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner.finalize());
    outer.finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut number = 0;
        for n in 0..3 {
            number = number << 8 | usize::from(three.get(n).copied().unwrap_or(0));
        }
        for n in 0..4 {
            let letter = char::from(LETTERS[number >> (18 - 6 * n) & 63]);
            text.push(if n > three.len() { '=' } else { letter });
        }
    }
    text
}

async fn every_kind_of_sender_is_taken(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render("r-1", "done");
    let standard = "whsec_dGFzaGlrYSB0ZXN0cyB0aGlz";
    let secrets = format!("hub=h-1,hub=h-2,shop=s-1,slack=l-1,partner=p-1,std={standard}");
    let sources =
        "hub:github,shop:shopify,slack,partner:generic-hmac,std:standard-webhooks,shotstack";
    let generic = json!({"partner": {"header": "X-Sig", "prefix": "sha256=",
        "timestampHeader": "X-Time", "template": "{timestamp}:{body}",
        "idField": "data.id", "typeField": "kind"}});
    let setup = Setup::of(&db)
        .set("WEBHOOK_SOURCES", sources)
        .set("SHOTSTACK_API_BASE", shotstack.base_url())
        .set("SHOTSTACK_API_KEY", KEY)
        .set("WEBHOOK_SECRETS", secrets)
        .set("WEBHOOK_GENERIC", generic);
    let server = setup.start().await;
    let body = r#"{"ref":"refs/heads/main"}"#;
    for (delivery, secret) in [("d-1", "h-1"), ("d-2", "h-2")] {
        let signature = format!("sha256={}", hex(&hmac(secret, body.as_bytes())));
        let request = to("/webhooks/hub", body)
            .header("x-github-event", "push")
            .header("x-github-delivery", delivery)
            .header("x-hub-signature-256", signature);
        taken(&server.ask(request).await, delivery);
    }
    let shop = to("/webhooks/shop", body)
        .header("x-shopify-topic", "orders/create")
        .header("x-shopify-webhook-id", "w-0")
        .header("x-shopify-event-id", "w-1");
    let signature = base64(&hmac("s-1", body.as_bytes()));
    let answer = server.ask(shop.clone().header("x-shopify-hmac-sha256", signature)).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let answer = server.ask(shop.header("x-shopify-hmac-sha256", base64(&[0; 32]))).await;
    refused(&answer, "INVALID_SIGNATURE", "Invalid signature");

    let stamp = now().as_micros() / 1_000_000;
    let slack = |body: &str| {
        let signature = hex(&hmac("l-1", format!("v0:{stamp}:{body}").as_bytes()));
        to("/webhooks/slack", body)
            .header("x-slack-request-timestamp", stamp.to_string())
            .header("x-slack-signature", format!("v0={signature}"))
    };
    let challenge = r#"{"type":"url_verification","challenge":"3eZbrw1a","token":"t"}"#;
    let answer = server.ask(slack(challenge)).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "3eZbrw1a"), "{answer:?}");
    let forged = server.ask(slack(challenge).body(challenge.replace("3e", "4e"))).await;
    refused(&forged, "INVALID_SIGNATURE", "Invalid signature");
    let message = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
    taken(&server.ask(slack(message)).await, "Ev1");

    let partner = r#"{"kind":"thing.done","data":{"id":42}}"#;
    let signature = hex(&hmac("p-1", format!("{stamp}:{partner}").as_bytes()));
    let request = to("/webhooks/partner", partner)
        .header("x-time", stamp.to_string())
        .header("x-sig", format!("sha256={signature}"));
    taken(&server.ask(request).await, "42");

    let mut request = to("/webhooks/std", r#"{"type":"a.b"}"#);
    let key = standard_key(standard).unwrap();
    for (name, value) in standard_headers(&key, "msg_1", br#"{"type":"a.b"}"#, now()) {
        request = request.header(name, value);
    }
    taken(&server.ask(request).await, "msg_1");
    let render = r#"{"type":"edit","action":"render","id":"r-1","status":"done"}"#;
    taken(&server.ask(to("/webhooks/shotstack", render)).await, "r-1:edit:done");

    until("all to end", async || {
        let open = items(&server, "/webhook-events?status=pending").await;
        open.is_empty().then_some(())
    })
    .await;
    let all = items(&server, "/webhook-events").await;
    let mut seen: Vec<_> = all
        .iter()
        .map(|e| format!("{} {}", e["source"], e["eventType"]).replace('"', ""))
        .collect();
    seen.sort();
    let expected = [
        "hub push",
        "hub push",
        "partner thing.done",
        "shop orders/create",
        "shotstack render.done",
        "slack message",
        "std a.b",
    ];
    assert_eq!(seen, expected);
    assert!(all.iter().all(|event| event["status"] == "skipped"), "{all:?}");
    server.stop().await;
}
