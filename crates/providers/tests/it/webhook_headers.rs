//! No request, however made, makes the verification of webhooks panic, or is taken unsigned.
//!
//! The requests come from a fixed seed, so a failure comes again. They are put together from what the
//! parsers look for, in any order and number, between bytes that nobody would expect.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_providers::webhook::{
    Algorithm, Encoding, GenericHmac, ID_MAX, RefusedKind, Scheme, SecretEncoding, Source,
    TOLERANCE, TYPE_MAX, standard_headers, standard_key, stripe_header,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const NAMES: [&str; 20] = [
    "stripe-signature",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "svix-id",
    "svix-timestamp",
    "svix-signature",
    "x-hub-signature-256",
    "x-github-delivery",
    "x-github-event",
    "x-shopify-hmac-sha256",
    "x-shopify-webhook-id",
    "x-shopify-event-id",
    "x-shopify-topic",
    "x-shopify-triggered-at",
    "x-slack-signature",
    "x-slack-request-timestamp",
    "x-signature",
    "x-id",
    "x-time",
];

fn run<S: Strategy>(
    cases: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config, rng)
        .run(strategy, test)
        .unwrap_or_else(|error| panic!("{error}"));
}

fn sources() -> Vec<Source> {
    let secrets = || vec![SecretString::from(SECRET), SecretString::from("c2VjcmV0")];
    let tolerance = TOLERANCE;
    let generic = |algorithm, encoding, prefix: &str, template: &str| {
        let timed = template.contains("{timestamp}");
        let mut settings = GenericHmac::new("x-signature", secrets());
        settings.secret_encoding = SecretEncoding::Text;
        settings.algorithm = algorithm;
        settings.encoding = encoding;
        prefix.clone_into(&mut settings.prefix);
        template.clone_into(&mut settings.template);
        settings.timestamp_header = timed.then(|| "x-time".to_owned());
        settings.id_header = timed.then(|| "x-id".to_owned());
        Scheme::GenericHmac(settings)
    };
    [
        Scheme::Stripe { secrets: secrets(), tolerance },
        Scheme::StandardWebhooks { secrets: secrets(), tolerance },
        Scheme::Github { secrets: secrets() },
        Scheme::Shopify { secrets: secrets() },
        Scheme::Slack { secrets: secrets(), tolerance },
        Scheme::Shotstack,
        generic(Algorithm::Sha256, Encoding::Hex, "", "{body}"),
        generic(Algorithm::Sha512, Encoding::Base64, "v1,", "{id}.{timestamp}.{body}"),
    ]
    .into_iter()
    .map(|scheme| Source::new("source", scheme).unwrap())
    .collect()
}

/// Something that a parser may trip over.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = proptest::sample::select(vec![
        "t=",
        "v1=",
        "v0=",
        "v1,",
        "v1a,",
        "v0:",
        "sha256=",
        ",",
        "=",
        " ",
        ".",
        ":",
        "-",
        "+",
        "{body}",
        "1614265330",
        "1614265330000",
        "9223372036854775807",
        "99999999999999999999",
        "2021-02-25T15:02:10Z",
        "-009999-01-02T01:59:59Z",
        "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "確",
        "é",
        "\u{e9}\u{301}",
    ]);
    prop_oneof![
        6 => known.prop_map(|text| text.as_bytes().to_vec()),
        2 => vec(any::<u8>(), 0..8),
        1 => "[0-9a-fA-F]{0,130}".prop_map(String::into_bytes),
        1 => "[0-9]{0,25}".prop_map(String::into_bytes),
    ]
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    vec(piece(), 0..10).prop_map(|pieces| pieces.concat())
}

/// What a sender could have sent in the header `name`, but for the secret.
fn plausible(name: &str) -> BoxedStrategy<String> {
    if name.ends_with("time") || name.ends_with("timestamp") {
        "1[0-9]{9}".boxed()
    } else if name.contains("signature") || name.contains("hmac") {
        prop_oneof![
            "t=1[0-9]{9}(,v1=[0-9a-f]{64}){1,3}(,v0=[0-9a-f]{64})?",
            "v1,[0-9A-Za-z+/]{43}=( v1,[0-9A-Za-z+/]{43}=){0,3}",
            "v1,[0-9A-Za-z+/]{85}[AQgw]==",
            "(sha256=|v0=)?[0-9a-f]{64}",
            "[0-9A-Za-z+/]{42}[AEIMQUYcgkosw048]=",
        ]
        .boxed()
    } else {
        "[a-z]{1,8}[./_][a-z]{1,8}".boxed()
    }
}

/// No value of the header, one, or two.
fn values(name: &str) -> impl Strategy<Value = Vec<Vec<u8>>> + use<> {
    let value =
        prop_oneof![2 => plausible(name).prop_map(String::into_bytes), 1 => pieces()].boxed();
    prop_oneof![1 => vec(value.clone(), 0), 6 => vec(value.clone(), 1), 1 => vec(value, 2)]
}

fn header_map() -> impl Strategy<Value = HeaderMap> {
    Vec::from(NAMES.map(values)).prop_map(|all| {
        let mut headers = HeaderMap::new();
        for (name, values) in NAMES.into_iter().zip(all) {
            // What cannot be a header's value does not get as far as us.
            for value in values.iter().filter_map(|value| HeaderValue::from_bytes(value).ok()) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    })
}

const FIELDS: [&str; 10] = [
    "id",
    "type",
    "created",
    "event",
    "event_id",
    "status",
    "action",
    "event_time",
    "completed",
    "challenge",
];

fn body() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        4 => "[a-z]{1,8}".prop_map(Value::from),
        1 => "[ -~é確\\n]{0,20}".prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => Just(json!("x".repeat(300))),
        1 => Just(json!("event_callback")),
        1 => Just(json!({"type": "a"})),
        1 => Just(json!([[{"id": null}]])),
    ];
    let object = vec(proptest::option::weighted(0.8, value), FIELDS.len()).prop_map(|values| {
        let pairs = FIELDS.into_iter().zip(values);
        let fields: BTreeMap<_, _> =
            pairs.filter_map(|(field, value)| Some((field, value?))).collect();
        json!(fields).to_string().into_bytes()
    });
    prop_oneof![4 => object, 1 => pieces(), 1 => vec(any::<u8>(), 0..64)]
}

#[test]
fn nothing_panics_and_nothing_unsigned_is_taken() {
    let sources = sources();
    let reached = RefCell::new(BTreeSet::new());
    let now =
        prop_oneof![Just(1_614_265_330_000_000), any::<i64>()].prop_map(Timestamp::from_micros);
    run(512, &(header_map(), body(), now), |(headers, body, now)| {
        for source in &sources {
            let verified = source.verify(&headers, &body, now);
            if source.kind() == "shotstack" {
                prop_assert_eq!(verified, Ok(()));
            } else {
                let refused = verified.expect_err("nobody knows the secrets");
                prop_assert_eq!(refused.what, RefusedKind::Signature);
                reached.borrow_mut().insert((source.kind(), refused.reason));
            }
            match source.read(&headers, &body) {
                Ok(event) => {
                    prop_assert!((1..=ID_MAX).contains(&event.id.len()));
                    prop_assert!((1..=TYPE_MAX).contains(&event.kind.len()));
                    prop_assert!(HeaderValue::from_str(&event.id).is_ok());
                    prop_assert!(HeaderValue::from_str(&event.kind).is_ok());
                    prop_assert!(event.payload.value(&body).is_object());
                    reached.borrow_mut().insert((source.kind(), "read"));
                }
                Err(refused) => prop_assert_eq!(refused.what, RefusedKind::Payload),
            }
        }
        Ok(())
    });
    // Otherwise the requests would be too wild to get past the first line.
    let reached = reached.into_inner();
    for source in &sources {
        let signed =
            ["missing header", "header sent twice", "malformed header", "no matching signature"];
        let signed = signed.iter().filter(|_| source.kind() != "shotstack");
        for what in signed.chain(&["read"]) {
            assert!(reached.contains(&(source.kind(), what)), "{}: {what}", source.kind());
        }
    }
}

/// Whatever is signed is taken, and not when a bit of it is changed.
#[test]
fn what_is_signed_is_taken_and_nothing_else() {
    let [stripe, standard, ..] = &sources()[..] else { unreachable!("there are more") };
    let secret = SecretString::from(SECRET);
    let key = standard_key(SECRET).expect("a secret");
    // Seconds before 1970 have a sign, and are no timestamps.
    let moment = (0..=i64::MAX).prop_map(Timestamp::from_micros);
    let input = (vec(any::<u8>(), 0..200), "[!-~]{1,40}", moment, any::<prop::sample::Index>());
    run(512, &input, |(body, id, at, bit)| {
        let mut signed = HeaderMap::new();
        let value = HeaderValue::from_str(&stripe_header(&secret, &body, at)).expect("ASCII");
        signed.insert("stripe-signature", value);
        for (name, value) in standard_headers(&key, &id, &body, at) {
            signed.insert(name, HeaderValue::from_str(&value).expect("ASCII"));
        }
        for source in [stripe, standard] {
            prop_assert_eq!(source.verify(&signed, &body, at), Ok(()));
            let mut changed = body.clone();
            if changed.is_empty() {
                changed.push(0);
            } else {
                let bit = bit.index(changed.len() * 8);
                changed[bit / 8] ^= 1 << (bit % 8);
            }
            prop_assert!(source.verify(&signed, &changed, at).is_err());
        }
        Ok(())
    });
}
