use super::*;

const BODY: &[u8] = br#"{"id":1,"data":{"kind":"a.b"}}"#;

fn plain() -> GenericHmac {
    GenericHmac::new("X-Signature", secrets(&["old", "s3cret"]))
}

fn source(settings: GenericHmac) -> Source {
    Source::new("generic", Scheme::GenericHmac(settings)).unwrap()
}

fn signed(parts: &[&[u8]]) -> String {
    hex(&key::sign(b"s3cret", parts))
}

#[test]
fn the_body_alone_by_default() {
    let source = source(plain());
    let good = headers([("x-signature", &*signed(&[BODY]))]);
    every_bit_counts(&source, &good, BODY);
    let upper = signed(&[BODY]).to_uppercase();
    assert_eq!(source.verify(&with(&good, "x-signature", Some(&upper)), BODY, now()), Ok(()));
    for (value, expected) in [(None, MISSING), (Some("xyz"), MALFORMED), (Some("00"), NO_MATCH)] {
        let changed = with(&good, "x-signature", value);
        assert_eq!(source.verify(&changed, BODY, now()), signature(expected));
    }
    assert_eq!(source.verify(&twice(&good, "x-signature"), BODY, now()), signature(TWICE));
    let event = source.read(&good, BODY).unwrap();
    assert_eq!((&*event.id, &*event.kind, event.occurred_at), ("1", TYPE_UNKNOWN, None));
    assert_eq!(source.kind(), "generic-hmac");
}

#[test]
fn other_hashes_and_spellings() {
    let settings = GenericHmac {
        secrets: secrets(&["00ff10"]),
        secret_encoding: SecretEncoding::Hex,
        algorithm: Algorithm::Sha512,
        encoding: Encoding::Base64,
        type_field: "data.kind".to_owned(),
        id_field: "data.kind".to_owned(),
        ..plain()
    };
    // printf '{"id":1}' | openssl dgst -sha512 -mac hmac -macopt hexkey:00ff10 -binary | base64
    let hash =
        "QCf1iAAu2QxhWP1kGRBP6j8u9rK+JqFqkhWsEjmBz0/pJwvSyUERK8fmQ+Bmgb5K6gfhjxuFSsJl2z+tUGtUvw==";
    let good = headers([("x-signature", hash)]);
    let based = GenericHmac {
        secrets: secrets(&["AP8Q"]),
        secret_encoding: SecretEncoding::Base64,
        ..settings.clone()
    };
    for settings in [&settings, &based] {
        every_bit_counts(&source(settings.clone()), &good, br#"{"id":1}"#);
    }
    let event = source(settings.clone()).read(&good, BODY).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("a.b", "a.b"));
    for secret_encoding in [SecretEncoding::Hex, SecretEncoding::Base64] {
        let bad = GenericHmac { secrets: secrets(&["%"]), secret_encoding, ..plain() };
        assert_eq!(refused(Scheme::GenericHmac(bad)), SourceError::SecretEncoding);
    }
}

/// The same message under every hash, as OpenSSL has it.
#[test]
fn every_hash_is_the_one_of_openssl() {
    // printf '{"id":1}' | openssl dgst -sha1 -mac hmac -macopt key:s3cret
    for (algorithm, hash) in [
        (Algorithm::Sha1, "2f0ee5192ed120c9fc4d16555636ddb35811f47e"),
        (Algorithm::Sha256, "63ddab34da5838e383545e9c90b40f74a4e3daabc5dd9a8d49a51875ad4b2418"),
        (
            Algorithm::Sha512,
            "44bafa0a3af0f6ccfcff76c3b9e8f5b19cfea893e41f5965295f98701d00519c\
             aa67960b74d5c36f6f33cf4dd4dbbb93b1f1e4d37276d1f6f468c9069cb57d39",
        ),
    ] {
        let source = source(GenericHmac { algorithm, ..plain() });
        every_bit_counts(&source, &headers([("x-signature", hash)]), br#"{"id":1}"#);
        // A shorter hash under a longer name is none, nor the beginning of one.
        let half = &hash[..hash.len() / 2];
        let short = headers([("x-signature", half)]);
        assert_eq!(source.verify(&short, br#"{"id":1}"#, now()), signature(NO_MATCH));
    }
    // … -macopt hexkey:00ff10 -binary | base64
    let settings = GenericHmac {
        secrets: secrets(&["00ff10"]),
        secret_encoding: SecretEncoding::Hex,
        algorithm: Algorithm::Sha1,
        encoding: Encoding::Base64,
        ..plain()
    };
    let good = headers([("x-signature", "yy8hMK6tw8VpXl4iaSradMMR/v8=")]);
    every_bit_counts(&source(settings), &good, br#"{"id":1}"#);
    let named = |name: &str| serde_json::from_value::<Algorithm>(name.into()).ok();
    assert_eq!(named("sha1"), Some(Algorithm::Sha1));
    assert_eq!((named("md5"), named("SHA1")), (None, None));
}

/// As Twitch signs: id, time and body, and the time in words.
fn twitch() -> GenericHmac {
    GenericHmac {
        header: "Twitch-Eventsub-Message-Signature".to_owned(),
        prefix: "sha256=".to_owned(),
        timestamp_header: Some("Twitch-Eventsub-Message-Timestamp".to_owned()),
        id_header: Some("Twitch-Eventsub-Message-Id".to_owned()),
        template: "{id}{timestamp}{body}".to_owned(),
        type_field: "subscription.type".to_owned(),
        ..plain()
    }
}

#[test]
fn id_and_time_can_be_signed_too() {
    const ID: &str = "twitch-eventsub-message-id";
    const TIME: &str = "twitch-eventsub-message-timestamp";
    const SIGNATURE: &str = "twitch-eventsub-message-signature";
    let source = source(twitch());
    let body = br#"{"subscription":{"type":"channel.follow"}}"#;
    let sent = |time: &str| {
        let signature = signed(&[b"e76c6bd4", time.as_bytes(), body]);
        headers([(ID, "e76c6bd4"), (TIME, time), (SIGNATURE, &*format!("sha256={signature}"))])
    };
    let good = sent("2021-02-25T15:02:10.000000000Z");
    every_bit_counts(&source, &good, body);
    for name in [ID, TIME, SIGNATURE] {
        let less = with(&good, name, None);
        assert_eq!(source.verify(&less, body, now()), signature(MISSING), "{name}");
        assert_eq!(source.verify(&twice(&good, name), body, now()), signature(TWICE), "{name}");
    }
    let other = with(&good, ID, Some("e76c6bd5"));
    assert_eq!(source.verify(&other, body, now()), signature(NO_MATCH));
    let bare = good[SIGNATURE].to_str().unwrap().trim_start_matches("sha256=").to_owned();
    let unprefixed = with(&good, SIGNATURE, Some(&bare));
    assert_eq!(source.verify(&unprefixed, body, now()), signature(MALFORMED));
    let event = source.read(&good, body).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("e76c6bd4", "channel.follow"));
    assert_eq!(event.occurred_at, Some(now()));

    for time in
        ["2021-02-25T15:02:10Z", "2021-02-26T00:02:10.0+09:00", "1614265330", "1614265330000"]
    {
        let headers = sent(time);
        for (after, expected) in
            [(299, Ok(())), (301, signature(TOO_OLD)), (-299, Ok(())), (-301, signature(TOO_NEW))]
        {
            let then = at(SIGNED_AT + after);
            assert_eq!(source.verify(&headers, body, then), expected, "{time}, {after}");
        }
    }
    for time in [
        "+1614265330000",
        "+1614265330",
        "2021-02-25T15Z",
        "2021-02-25T15:02:10",
        "2021-02-25T15:02:10+00",
        "2021-02-25 15:02:10Z",
        "20210225T150210Z",
        "2021-02-25T15:02:10.Z",
        "soon",
        "-1614265330",
        "+1614265330",
        "1614265330.0",
        "9223372036854775807",
    ] {
        assert_eq!(source.verify(&sent(time), body, now()), signature(MALFORMED), "{time}");
    }
}

#[test]
fn contradictions_are_refused() {
    let templated = |template: &str| GenericHmac { template: template.to_owned(), ..twitch() };
    for template in
        ["{body", "body}", "{bo{dy}", "{}", "{body}}", "{{body}}", "{Body}", "{nonce}{body}"]
    {
        let refused = refused(Scheme::GenericHmac(templated(template)));
        assert_eq!(refused, SourceError::TemplateBraces, "{template}");
    }
    for template in ["", "{timestamp}{id}", "x", "{body}{body}{timestamp}"] {
        let refused = refused(Scheme::GenericHmac(templated(template)));
        assert_eq!(refused, SourceError::TemplateBody, "{template}");
    }
    let some = |text: &str| Some(text.to_owned());
    for (settings, expected) in [
        (templated("{id}{body}"), SourceError::UnsignedTimestamp),
        (GenericHmac { timestamp_header: None, ..twitch() }, SourceError::NoTimestampHeader),
        (GenericHmac { id_header: None, ..twitch() }, SourceError::NoIdHeader),
        (GenericHmac { header: String::new(), ..plain() }, SourceError::Header("header")),
        (GenericHmac { header: "a b".to_owned(), ..plain() }, SourceError::Header("header")),
        (GenericHmac { id_header: some("確"), ..plain() }, SourceError::Header("id_header")),
        (
            GenericHmac { timestamp_header: some(""), ..plain() },
            SourceError::Header("timestamp_header"),
        ),
        (GenericHmac { id_field: String::new(), ..plain() }, SourceError::Field("id_field")),
        (
            GenericHmac { type_field: "a..b".to_owned(), ..plain() },
            SourceError::Field("type_field"),
        ),
    ] {
        assert_eq!(refused(Scheme::GenericHmac(settings)), expected, "{expected}");
    }
    // An id that is not signed is worth as much as GitHub's.
    let unsigned = source(GenericHmac { id_header: some("x-id"), ..plain() });
    assert_eq!(unsigned.read(&headers([("x-id", "a")]), b"{}").unwrap().id, "a");
    assert_eq!(unsigned.read(&HeaderMap::new(), BODY).unwrap_err(), payload("no event id"));
}
