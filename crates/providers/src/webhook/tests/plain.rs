//! GitHub, Shopify, Slack and Shotstack.

use super::*;

#[test]
fn github() {
    // The example of GitHub's documentation.
    let documented = Scheme::Github { secrets: secrets(&["other", "It's a Secret to Everybody"]) };
    let source = Source::new("github", documented).unwrap();
    let body = b"Hello, World!";
    let hash = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let header = |value: &str| headers([("X-Hub-Signature-256", value)]);
    let good = header(&format!("sha256={hash}"));
    every_bit_counts(&source, &good, body);
    for (value, expected) in [
        (format!("sha256={}", hash.to_uppercase()), Ok(())),
        (format!("sha1={hash}"), signature(MALFORMED)),
        (format!("SHA256={hash}"), signature(MALFORMED)),
        (hash.to_owned(), signature(MALFORMED)),
        ("sha256=".to_owned(), signature(NO_MATCH)),
        ("sha256=xyz".to_owned(), signature(MALFORMED)),
        (format!("sha256={}", &hash[2..]), signature(NO_MATCH)),
    ] {
        assert_eq!(source.verify(&header(&value), body, now()), expected, "{value}");
    }
    assert_eq!(source.verify(&HeaderMap::new(), body, now()), signature(MISSING));
    let again = twice(&good, "x-hub-signature-256");
    assert_eq!(source.verify(&again, body, now()), signature(TWICE));
    assert_eq!(source.read(&good, body).unwrap_err(), payload("not JSON"));

    let told = headers([
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        ("x-github-event", "issues"),
    ]);
    let event = source.read(&told, br#"{"action":"opened"}"#).unwrap();
    assert_eq!(&*event.id, "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    assert_eq!((&*event.kind, event.occurred_at), ("issues.opened", None));
    assert_eq!(source.read(&told, b"{}").unwrap().kind, "issues");
    for (headers, reason) in [
        (with(&told, "x-github-delivery", None), "no event id"),
        (with(&told, "x-github-event", None), "no event type"),
        (twice(&told, "x-github-delivery"), TWICE),
        (twice(&told, "x-github-event"), TWICE),
    ] {
        assert_eq!(source.read(&headers, b"{}").unwrap_err(), payload(reason));
    }
    assert_eq!(source.kind(), "github");
}

#[test]
fn shopify() {
    let scheme = Scheme::Shopify { secrets: secrets(&["other", "hush"]) };
    let source = Source::new("shopify", scheme).unwrap();
    let body = br#"{"id":1}"#;
    // printf '{"id":1}' | openssl dgst -sha256 -hmac hush -binary | base64
    let hash = "VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY=";
    let header = |value: &str| headers([("X-Shopify-Hmac-SHA256", value)]);
    every_bit_counts(&source, &header(hash), body);
    for (value, expected) in [("%", MALFORMED), ("AAAA", NO_MATCH), ("", MISSING)] {
        assert_eq!(source.verify(&header(value), body, now()), signature(expected), "{value}");
    }
    let again = twice(&header(hash), "x-shopify-hmac-sha256");
    assert_eq!(source.verify(&again, body, now()), signature(TWICE));

    let told = headers([
        ("x-shopify-webhook-id", "b54557e4"),
        ("x-shopify-event-id", "98880550"),
        ("x-shopify-topic", "orders/create"),
        ("x-shopify-triggered-at", "2021-02-25T15:02:10.000000000Z"),
    ]);
    let event = source.read(&told, body).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("b54557e4", "orders/create"));
    assert_eq!(event.occurred_at, Some(now()));
    let event = source.read(&with(&told, "x-shopify-webhook-id", None), body).unwrap();
    assert_eq!(event.id, "98880550");
    let topicless = with(&told, "x-shopify-topic", None);
    assert_eq!(source.read(&topicless, body).unwrap_err(), payload("no event type"));
    assert_eq!(source.read(&HeaderMap::new(), body).unwrap_err(), payload("no event id"));
    assert_eq!(source.kind(), "shopify");
}

fn slack(secret: &str) -> Source {
    let scheme = Scheme::Slack { secrets: secrets(&[secret]), tolerance: TOLERANCE };
    Source::new("slack", scheme).unwrap()
}

/// The example of Slack's documentation.
#[test]
fn the_signature_is_slacks() {
    let source = slack("8f742231b10e8888abcd99yyyzzz85a5");
    let body = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
        &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner\
        &command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2F\
        T1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.\
        803a0bc887a14d10d2c447fce8b6703c";
    let hash = "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    let good = headers([
        ("X-Slack-Signature", &*format!("v0={hash}")),
        ("X-Slack-Request-Timestamp", "1531420618"),
    ]);
    let after = |seconds: i64| source.verify(&good, body, at(1_531_420_618 + seconds));
    for (seconds, expected) in [
        (0, Ok(())),
        (299, Ok(())),
        (301, signature(TOO_OLD)),
        (-299, Ok(())),
        (-301, signature(TOO_NEW)),
    ] {
        assert_eq!(after(seconds), expected, "{seconds}");
    }
    let then = at(1_531_420_618);
    for (name, value, expected) in [
        ("x-slack-signature", Some(format!("v1={hash}")), MALFORMED),
        ("x-slack-signature", Some(hash.to_owned()), MALFORMED),
        ("x-slack-signature", Some("v0=".to_owned()), NO_MATCH),
        ("x-slack-signature", None, MISSING),
        ("x-slack-request-timestamp", Some("1531420619".to_owned()), NO_MATCH),
        ("x-slack-request-timestamp", Some("1531420618 ".to_owned()), MALFORMED),
        ("x-slack-request-timestamp", None, MISSING),
    ] {
        let changed = with(&good, name, value.as_deref());
        assert_eq!(source.verify(&changed, body, then), signature(expected), "{name}: {value:?}");
    }
    for name in ["x-slack-signature", "x-slack-request-timestamp"] {
        assert_eq!(source.verify(&twice(&good, name), body, then), signature(TWICE));
    }
    assert_eq!(source.verify(&good, &body[1..], then), signature(NO_MATCH));
    assert_eq!(source.read(&good, body).unwrap_err(), payload("not JSON"));
}

#[test]
fn events_of_slack_are_read() {
    let source = slack("s");
    let read =
        |body: &serde_json::Value| source.read(&HeaderMap::new(), body.to_string().as_bytes());
    let envelope = json!({
        "type": "event_callback", "event_id": "Ev08MFMKH6", "event_time": SIGNED_AT,
        "event": {"type": "app_mention"},
    });
    let event = read(&envelope).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("Ev08MFMKH6", "app_mention"));
    assert_eq!(event.occurred_at, Some(now()));
    let refused = read(&json!({"type": "event_callback", "event": {"type": "a"}})).unwrap_err();
    assert_eq!(refused, payload("no event id"));
    let refused = read(&json!({"type": "event_callback", "event_id": "a"})).unwrap_err();
    assert_eq!(refused, payload("no event type"));

    let challenge = |text: &str| {
        let body = json!({"type": "url_verification", "challenge": text});
        read(&body).unwrap()
    };
    assert_eq!(challenge("a").kind, "url_verification");
    assert_eq!(challenge("a").id.len(), "sha256:".len() + 64);
    assert_eq!(challenge("a"), challenge("a"));
    assert_ne!(challenge("a").id, challenge("b").id);
    assert_eq!(read(&json!({})).unwrap_err(), payload("no event type"));
    assert_eq!(source.kind(), "slack");
}

#[test]
fn shotstack() {
    let source = Source::new("shotstack", Scheme::Shotstack).unwrap();
    let none = HeaderMap::new();
    // The examples of Shotstack's documentation.
    let rendered = json!({
        "type": "edit", "action": "render", "id": "6d7acbe6", "owner": "5ca6hu7s9k",
        "status": "done", "url": "https://example.com/6d7acbe6.mp4", "error": null,
        "completed": "2021-02-25T15:02:10.000Z",
    });
    let body = rendered.to_string();
    assert_eq!(source.verify(&none, body.as_bytes(), now()), Ok(()));
    let event = source.read(&none, body.as_bytes()).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("6d7acbe6:edit:done", "render.done"));
    assert_eq!(event.occurred_at, Some(now()));
    assert_eq!(*event.payload.value(body.as_bytes()), rendered);
    let copied = br#"{"type":"serve","action":"copy","id":"e4433cbf","status":"ready"}"#;
    let event = source.read(&none, copied).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("e4433cbf:serve:ready", "copy.ready"));
    for (field, reason) in [
        ("id", "no event id"),
        ("type", "no event type"),
        ("status", "no event type"),
        ("action", "no event type"),
    ] {
        let mut less = rendered.clone();
        less.as_object_mut().unwrap().remove(field);
        let refused = source.read(&none, less.to_string().as_bytes()).unwrap_err();
        assert_eq!(refused, payload(reason), "{field}");
    }
}
