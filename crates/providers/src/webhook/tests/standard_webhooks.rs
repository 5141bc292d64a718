use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn source(texts: &[&str]) -> Source {
    let scheme = Scheme::StandardWebhooks { secrets: secrets(texts), tolerance: TOLERANCE };
    Source::new("standard", scheme).unwrap()
}

fn signed_with(secret: &str, body: &[u8]) -> HeaderMap {
    let key = standard::key(secret).expect("a secret");
    let pairs = standard_headers(&key, ID, body, now());
    headers(pairs.iter().map(|(name, value)| (*name, &**value)))
}

/// The example of the specification.
#[test]
fn the_signature_is_the_specifications() {
    let key = standard::key(SECRET).expect("a secret");
    let signed = standard_headers(&key, ID, BODY, now());
    assert_eq!(signed[0], ("webhook-id", ID.to_owned()));
    assert_eq!(signed[1], ("webhook-timestamp", "1614265330".to_owned()));
    assert_eq!(signed[2], ("webhook-signature", SIGNATURE.to_owned()));
}

#[test]
fn every_part_counts() {
    let source = source(&[SECRET]);
    let good = signed_with(SECRET, BODY);
    every_bit_counts(&source, &good, BODY);
    for (name, value, expected) in [
        ("webhook-id", Some("msg_other"), NO_MATCH),
        ("webhook-id", None, MISSING),
        ("webhook-id", Some(""), MISSING),
        ("webhook-timestamp", Some("1614265331"), NO_MATCH),
        ("webhook-timestamp", Some("1614265330.0"), MALFORMED),
        ("webhook-timestamp", Some("now"), MALFORMED),
        ("webhook-timestamp", None, MISSING),
        ("webhook-signature", None, MISSING),
        ("webhook-signature", Some("g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="), NO_MATCH),
        ("webhook-signature", Some("v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="), NO_MATCH),
        ("webhook-signature", Some("v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="), NO_MATCH),
        ("webhook-signature", Some("v1,G0HM9SSE+OTPJTGT/TMIKTSYZLE3UFJELVLNIOLJ1OE="), NO_MATCH),
        ("webhook-signature", Some("v1,"), NO_MATCH),
        ("webhook-signature", Some("v1,%%%"), NO_MATCH),
        ("webhook-signature", Some(" "), NO_MATCH),
    ] {
        let changed = with(&good, name, value);
        assert_eq!(source.verify(&changed, BODY, now()), signature(expected), "{name}: {value:?}");
    }
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        assert_eq!(source.verify(&twice(&good, name), BODY, now()), signature(TWICE), "{name}");
    }
}

#[test]
fn any_v1_of_the_list_will_do() {
    let good = signed_with(SECRET, BODY);
    for list in [
        format!("v1,AAAA {SIGNATURE}"),
        format!("{SIGNATURE} v1a,AAAA"),
        format!("v1a,AAAA  v1,%% x {SIGNATURE}"),
        SIGNATURE.trim_end_matches('=').to_owned(),
    ] {
        let headers = with(&good, "webhook-signature", Some(&list));
        assert_eq!(source(&[SECRET]).verify(&headers, BODY, now()), Ok(()), "{list}");
        assert_eq!(source(&[OTHER, SECRET]).verify(&headers, BODY, now()), Ok(()), "{list}");
        assert_eq!(source(&[OTHER]).verify(&headers, BODY, now()), signature(NO_MATCH), "{list}");
    }
}

#[test]
fn the_headers_of_svix_are_the_same() {
    let svix = [("svix-id", ID), ("svix-timestamp", "1614265330"), ("svix-signature", SIGNATURE)];
    let svix = headers(svix);
    let source = source(&[SECRET]);
    every_bit_counts(&source, &svix, BODY);
    assert_eq!(source.read(&svix, BODY).unwrap().id, ID);
    assert_eq!(source.verify(&twice(&svix, "svix-id"), BODY, now()), signature(TWICE));
    // An id that was not signed does not come in beside those that were.
    let mixed = with(&svix, "webhook-id", Some("msg_forged"));
    assert_eq!(source.verify(&mixed, BODY, now()), Ok(()));
    assert_eq!(source.read(&mixed, BODY).unwrap().id, ID);
    let mixed = with(&mixed, "webhook-signature", Some(SIGNATURE));
    assert_eq!(source.verify(&mixed, BODY, now()), signature(MISSING));
}

#[test]
fn neither_old_nor_new_ones_are_taken() {
    let (source, headers) = (source(&[SECRET]), signed_with(SECRET, BODY));
    for (after, expected) in
        [(299, Ok(())), (301, signature(TOO_OLD)), (-299, Ok(())), (-301, signature(TOO_NEW))]
    {
        assert_eq!(source.verify(&headers, BODY, at(SIGNED_AT + after)), expected, "{after}");
    }
}

#[test]
fn secrets_are_base64() {
    for bad in ["whsec_!", "whsec_MfKQ9", "hunter two", "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
        let scheme = Scheme::StandardWebhooks { secrets: secrets(&[bad]), tolerance: TOLERANCE };
        let refused = refused(scheme);
        let expected =
            if bad.contains(' ') { SourceError::WhiteSpace } else { SourceError::NotWhsec };
        assert_eq!(refused, expected, "{bad}");
    }
    let empty = Scheme::StandardWebhooks { secrets: secrets(&["whsec_"]), tolerance: TOLERANCE };
    assert_eq!(refused(empty), SourceError::EmptySecret);
    // The reference libraries take it without the prefix too.
    let bare = SECRET.trim_start_matches("whsec_");
    assert_eq!(source(&[bare]).verify(&signed_with(SECRET, BODY), BODY, now()), Ok(()));
}

#[test]
fn events_are_read() {
    let source = source(&[SECRET]);
    let body = br#"{"type":"invoice.paid","timestamp":"2020-01-01T00:00:00Z","id":"other"}"#;
    let event = source.read(&signed_with(SECRET, body), body).unwrap();
    assert_eq!((&*event.id, &*event.kind), (ID, "invoice.paid"));
    let occurred_at = event.occurred_at.map(|at| at.to_string());
    assert_eq!(occurred_at.as_deref(), Some("2020-01-01T00:00:00.000000Z"));
    // Without a time of the event there is that of the attempt.
    let event = source.read(&signed_with(SECRET, BODY), BODY).unwrap();
    assert_eq!(event.occurred_at, Some(now()));
    // A type is recommended, not required.
    assert_eq!(event.kind, TYPE_UNKNOWN);
    assert_eq!(source.read(&HeaderMap::new(), body).unwrap_err(), payload("no event id"));
    assert_eq!(source.kind(), "standard-webhooks");
}
