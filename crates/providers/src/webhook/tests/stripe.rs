use super::*;

const SECRET: &str = "whsec_test_secret";
const BODY: &[u8] =
    br#"{"id":"evt_1","type":"invoice.paid","created":1614265329,"object":"event"}"#;

fn source(texts: &[&str]) -> Source {
    Source::new("stripe", Scheme::Stripe { secrets: secrets(texts), tolerance: TOLERANCE }).unwrap()
}

fn signed_by(secret: &str, body: &[u8]) -> String {
    stripe_header(&SecretString::from(secret), body, now())
}

/// The `v1` of a header.
fn v1(header: &str) -> &str {
    header.split_once(",v1=").expect("a header with v1").1
}

fn verify(source: &Source, header: &str) -> Result<(), Refused> {
    source.verify(&headers([("Stripe-Signature", header)]), BODY, now())
}

#[test]
fn agrees_with_another_implementation() {
    // printf '1614265330.{}' | openssl dgst -sha256 -hmac whsec_test_secret
    assert_eq!(
        signed_by(SECRET, b"{}"),
        "t=1614265330,v1=8c1a00c47d6b9f72cbeb1c009e324419d877cb08edb0805dd9fde8dddc59848c"
    );
}

#[test]
fn every_bit_of_the_body_counts() {
    let headers = headers([("stripe-signature", &*signed_by(SECRET, BODY))]);
    every_bit_counts(&source(&[SECRET]), &headers, BODY);
}

#[test]
fn an_empty_body_can_be_signed_but_is_no_event() {
    let headers = headers([("stripe-signature", &*signed_by(SECRET, b""))]);
    assert_eq!(source(&[SECRET]).verify(&headers, b"", now()), Ok(()));
    assert_eq!(source(&[SECRET]).read(&headers, b""), Err(payload("not JSON")));
}

#[test]
fn either_secret_will_do_during_a_rotation() {
    let (old, new) = (signed_by("whsec_old", BODY), signed_by("whsec_new", BODY));
    for header in [&old, &new] {
        assert_eq!(verify(&source(&["whsec_old", "whsec_new"]), header), Ok(()));
        assert_eq!(verify(&source(&["whsec_other"]), header), signature(NO_MATCH));
    }
    // Stripe signs with both for a while; whoever knows one of them accepts.
    let both = format!("{old},v1={}", v1(&new));
    for known in ["whsec_old", "whsec_new"] {
        assert_eq!(verify(&source(&[known]), &both), Ok(()));
    }
}

#[test]
fn only_v1_and_one_time_count() {
    let source = source(&[SECRET]);
    let header = signed_by(SECRET, BODY);
    let v1 = v1(&header);
    let upper = v1.to_uppercase();
    for (header, expected) in [
        (header.clone(), Ok(())),
        (format!("t={SIGNED_AT},v1={upper}"), Ok(())),
        (format!("v1={v1},t={SIGNED_AT}"), Ok(())),
        (format!("t={SIGNED_AT},v0=ab,v1=00,v1=確,v1={v1},x=y=z,,"), signature(MALFORMED)),
        (format!("t={SIGNED_AT},v0=ab,v1=00,v1=zz,v1={v1},x=y=z,,"), Ok(())),
        (format!("t={SIGNED_AT},v0={v1}"), signature(NO_MATCH)),
        (format!("t={SIGNED_AT},v2={v1}"), signature(NO_MATCH)),
        (format!("t={SIGNED_AT}, v1={v1}"), signature(NO_MATCH)),
        (format!("t={SIGNED_AT},v1="), signature(NO_MATCH)),
        (format!("t={SIGNED_AT},v1={}", &v1[..62]), signature(NO_MATCH)),
        (format!("t={SIGNED_AT},v1={v1}00"), signature(NO_MATCH)),
        (format!("t={},v1={v1}", SIGNED_AT + 1), signature(NO_MATCH)),
        (format!("t=0{SIGNED_AT},v1={v1}"), signature(NO_MATCH)),
        (format!("v1={v1}"), signature(MALFORMED)),
        (format!("t=,v1={v1}"), signature(MALFORMED)),
        (format!("t=now,v1={v1}"), signature(MALFORMED)),
        (format!("t=+{SIGNED_AT},v1={v1}"), signature(MALFORMED)),
        (format!("t=-{SIGNED_AT},v1={v1}"), signature(MALFORMED)),
        (format!("t={SIGNED_AT}.0,v1={v1}"), signature(MALFORMED)),
        (format!("t=99999999999999999999,v1={v1}"), signature(MALFORMED)),
        (format!("t={SIGNED_AT},t={SIGNED_AT},v1={v1}"), signature(MALFORMED)),
        (v1.to_owned(), signature(MALFORMED)),
        (String::new(), signature(MISSING)),
    ] {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(header.as_bytes()).expect("a header's value");
        headers.insert("stripe-signature", value);
        assert_eq!(source.verify(&headers, BODY, now()), expected, "{header}");
    }
    assert_eq!(source.verify(&HeaderMap::new(), BODY, now()), signature(MISSING));
    let again = twice(&headers([("stripe-signature", &*header)]), "stripe-signature");
    assert_eq!(source.verify(&again, BODY, now()), signature(TWICE));
}

#[test]
fn a_flood_of_signatures_is_not_searched() {
    let header = signed_by(SECRET, BODY);
    let flood = |wrong: usize| {
        let wrong = format!("v1={},", "0".repeat(64)).repeat(wrong);
        format!("t={SIGNED_AT},{wrong}v1={}", v1(&header))
    };
    assert_eq!(verify(&source(&[SECRET]), &flood(15)), Ok(()));
    assert_eq!(verify(&source(&[SECRET]), &flood(16)), signature(NO_MATCH));
}

#[test]
fn what_is_too_old_is_refused_and_the_future_is_not() {
    let source = source(&[SECRET]);
    let headers = headers([("stripe-signature", &*signed_by(SECRET, BODY))]);
    let after = |seconds| source.verify(&headers, BODY, at(SIGNED_AT + seconds));
    assert_eq!(after(299), Ok(()));
    assert_eq!(after(300), Ok(()));
    assert_eq!(after(301), signature(TOO_OLD));
    assert_eq!(after(-10_000), Ok(()));
    let just = Timestamp::from_micros((SIGNED_AT + 300) * 1_000_000 + 1);
    assert_eq!(source.verify(&headers, BODY, just), signature(TOO_OLD));
    // Only what is Stripe's is said to be old.
    let late = at(SIGNED_AT + 301);
    assert_eq!(source.verify(&headers, b"{}", late), signature(NO_MATCH));

    let scheme = Scheme::Stripe { secrets: secrets(&[SECRET]), tolerance: Duration::ZERO };
    let patient = Source::new("stripe", scheme).unwrap();
    assert_eq!(patient.verify(&headers, BODY, at(SIGNED_AT + 1_000_000)), Ok(()));
}

#[test]
fn events_are_read() {
    let source = source(&[SECRET]);
    let none = HeaderMap::new();
    let event = source.read(&none, BODY).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("evt_1", "invoice.paid"));
    assert_eq!(event.occurred_at, Some(at(SIGNED_AT - 1)));
    assert_eq!(event.payload.value(BODY)["object"], "event");
    assert_eq!(source.kind(), "stripe");
    // Thin events write the time as text; an unreadable one is no reason to refuse.
    let created = |created: &str| {
        let body = format!(r#"{{"id":"evt_1","type":"a","created":{created}}}"#);
        source.read(&none, body.as_bytes()).unwrap().occurred_at
    };
    assert_eq!(created("\"2021-02-25T15:02:10Z\""), Some(now()));
    for unreadable in ["null", "1.5", "{}", "\"soon\"", "9223372036854775807"] {
        assert_eq!(created(unreadable), None, "{unreadable}");
    }
    let refused = source.read(&none, br#"{"id":"evt_1"}"#).unwrap_err();
    assert_eq!(refused, payload("no event type"));
    assert_eq!(source.read(&none, br#"{"type":"a"}"#).unwrap_err(), payload("no event id"));
}
