use super::*;
use proptest::prelude::*;

fn read(pairs: &[(&str, &str)]) -> Result<Spec, String> {
    Spec::read(pairs.iter().copied())
}

fn headers(pairs: &[(&str, &[&str])]) -> Headers {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    pairs.iter().map(|(name, values)| ((*name).to_owned(), owned(values))).collect()
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn no_header_asks_for_nothing() {
    assert_eq!(read(&[]), Ok(Spec::default()));
    let ignored = [
        ("Host", "queue.example"),
        ("Authorization", "Bearer secret"),
        ("User-Agent", "node"),
        ("Accept", "*/*"),
        ("Upstash-Telemetry-Sdk", "upstash-qstash-js@2.12.0"),
        ("Upstash-Workflow-RunId", "wfr_1"),
        ("Upstash-Callback-Workflow-Init", "false"),
        ("Upstash-Whatever", "1"),
        ("qstash_token", "secret"),
    ];
    assert_eq!(read(&ignored), Ok(Spec::default()));
    let empty = ["Method", "Delay", "Callback", "Cron", "Label", "Retries", "Flow-Control-Key"]
        .map(|name| format!("Upstash-{name}"));
    assert_eq!(Spec::read(empty.iter().map(|name| (name.as_str(), ""))), Ok(Spec::default()));
}

#[test]
fn reads_every_setting() {
    let spec = read(&[
        ("content-type", "application/json"),
        ("UPSTASH-METHOD", "put"),
        ("upstash-retries", "5"),
        ("Upstash-Retry-Delay", "pow(2, retried) * 1000"),
        ("Upstash-Delay", "1d10h30m"),
        ("Upstash-Not-Before", "1700000000"),
        ("Upstash-Timeout", "30s"),
        ("Upstash-Deduplication-Id", "order-7"),
        ("Upstash-Content-Based-Deduplication", "True"),
        ("Upstash-Cron", "CRON_TZ=Europe/Berlin 0 9 * * * "),
        ("Upstash-Schedule-Id", "scd_1"),
        ("Upstash-Queue-Name", "my-queue"),
        ("Upstash-Flow-Control-Key", "tenant"),
        ("Upstash-Flow-Control-Value", "parallelism=2, rate=1, period=60s"),
        ("Upstash-Label", "a, b,,a"),
        ("Upstash-Label", "c"),
        ("Upstash-Redact-Fields", "body,header[x-api-key],header[Authorization]"),
        ("upstash-forward-x-api-key", "k"),
    ])
    .unwrap();
    let expected = Spec {
        method: Some(Method::Put),
        headers: headers(&[("Content-Type", &["application/json"]), ("X-Api-Key", &["k"])]),
        retries: Some(5),
        retry_delay: Some("pow(2, retried) * 1000".to_owned()),
        delay: Some(secs(86_400 + 36_000 + 1_800)),
        not_before: Some(Timestamp::from_micros(1_700_000_000_000_000)),
        timeout: Some(secs(30)),
        dedup_id: Some("order-7".to_owned()),
        content_dedup: true,
        cron: Some(Cron::parse("CRON_TZ=Europe/Berlin 0 9 * * *").unwrap()),
        schedule_id: Some("scd_1".to_owned()),
        queue: Some("my-queue".to_owned()),
        flow: Some(Flow {
            key: "tenant".to_owned(),
            parallelism: Some(2),
            rate: Some(1),
            period: secs(60),
        }),
        labels: ["a", "b", "c"].map(str::to_owned).to_vec(),
        redact: Redact {
            body: true,
            headers: false,
            named: vec!["X-Api-Key".to_owned(), "Authorization".to_owned()],
        },
        ..Spec::default()
    };
    assert_eq!(spec, expected);
}

#[test]
fn the_first_of_two_counts() {
    let spec = read(&[("Upstash-Retries", "1"), ("upstash-retries", "2")]).unwrap();
    assert_eq!(spec.retries, Some(1));
    let python = [
        ("Upstash-Content-Based-Deduplication", "False"),
        ("Upstash-Content-Based-Deduplication", "true"),
    ];
    assert!(!read(&python).unwrap().content_dedup);
    assert_eq!(read(&[("Upstash-Timeout", "0s")]).unwrap().timeout, None);
    assert_eq!(read(&[("Upstash-Delay", "0s")]).unwrap().delay, Some(secs(0)));
    for fields in ["header", "headers", "Header, body"] {
        assert!(read(&[("Upstash-Redact-Fields", fields)]).unwrap().redact.headers);
    }
}

#[test]
fn callbacks_are_told_apart_by_their_prefix() {
    let spec = read(&[
        ("Upstash-Callback", "https://a.example/done"),
        ("Upstash-Callback-Method", "PUT"),
        ("Upstash-Callback-Retries", "1"),
        ("Upstash-Callback-Retry-Delay", "1000"),
        ("Upstash-Callback-Timeout", "5s"),
        ("Upstash-Callback-Delay", "0s"),
        ("Upstash-Callback-Forward-x-a", "1"),
        ("Upstash-Callback-Forward-Host", "evil.example"),
        ("Upstash-Failure-Callback-Forward-X-B", "2"),
        ("Upstash-Failure-Callback-Forward-X-B", "3"),
        ("Upstash-Failure-Callback", "http://b.example/failed"),
    ])
    .unwrap();
    let callback = Callback {
        url: "https://a.example/done".to_owned(),
        method: Some(Method::Put),
        retries: Some(1),
        retry_delay: Some("1000".to_owned()),
        timeout: Some(secs(5)),
        headers: headers(&[("X-A", &["1"])]),
    };
    assert_eq!(spec.callback, Some(callback));
    let failure = Callback {
        url: "http://b.example/failed".to_owned(),
        headers: headers(&[("X-B", &["2", "3"])]),
        ..Callback::default()
    };
    assert_eq!(spec.failure_callback, Some(failure));
    assert!(spec.headers.is_empty());
    // Settings alone do not make a callback.
    assert_eq!(read(&[("Upstash-Callback-Retries", "1")]).unwrap(), Spec::default());
}

#[test]
fn only_what_has_the_prefix_is_forwarded() {
    let spec = read(&[
        ("Content-Type", "text/plain"),
        ("X-Own", "no"),
        ("Upstash-Forward-AUTHORIZATION", "Bearer theirs"),
        ("Upstash-Forward-X-A", "1"),
        ("Upstash-Forward-x-a", "2"),
        ("Upstash-Forward-X-Empty", ""),
        ("Upstash-Forward-Content-Type", "application/xml"),
        ("Upstash-Forward-Content-Length", "5"),
        ("Upstash-Forward-Transfer-Encoding", "chunked"),
        ("Upstash-Forward-Upstash-Workflow-Sdk-Version", "1"),
    ])
    .unwrap();
    let expected = headers(&[
        ("Authorization", &["Bearer theirs"]),
        ("Content-Type", &["application/xml"]),
        ("Upstash-Workflow-Sdk-Version", &["1"]),
        ("X-A", &["1", "2"]),
        ("X-Empty", &[""]),
    ]);
    assert_eq!(spec.headers, expected);
}

#[test]
fn a_webhook_forwards_what_came() {
    let pairs = [
        ("upstash-header-forward", "TRUE"),
        ("qstash_token", "secret"),
        ("Host", "queue.example"),
        ("Content-Type", "application/json"),
        ("Content-Length", "2"),
        ("Accept-Encoding", "gzip"),
        ("Authorization", "Bearer secret"),
        ("Connection", "keep-alive, x-hop"),
        ("Keep-Alive", "1"),
        ("TE", "trailers"),
        ("X-Hop", "1"),
        ("User-Agent", "GitHub-Hookshot/1"),
        ("X-GitHub-Event", "push"),
        ("X-Twice", "1"),
        ("X-Twice", "2"),
        ("X-Own", "theirs"),
        ("Upstash-Forward-X-Own", "mine"),
        ("Upstash-Telemetry-Sdk", "x"),
    ];
    let expected = headers(&[
        ("Content-Type", &["application/json"]),
        ("User-Agent", &["GitHub-Hookshot/1"]),
        ("X-Github-Event", &["push"]),
        ("X-Own", &["mine"]),
        ("X-Twice", &["1", "2"]),
    ]);
    assert_eq!(read(&pairs).unwrap().headers, expected);
    let mut off = pairs;
    off[0].1 = "false";
    let expected = headers(&[("Content-Type", &["application/json"]), ("X-Own", &["mine"])]);
    assert_eq!(read(&off).unwrap().headers, expected);
}

/// A header, a value that it cannot have, and the reason.
const REFUSED: [(&str, &str, &str); 22] = [
    ("Method", "HEAD", "`HEAD` is not one of GET, POST, PUT, PATCH and DELETE"),
    ("Retries", "-1", "`-1` is not a whole number between 0 and 1000"),
    ("Retries", "1001", "`1001` is not a whole number between 0 and 1000"),
    ("Retries", "+1", "`+1` is not a whole number between 0 and 1000"),
    ("Retry-Delay", "pow(2", "the expression ends too early"),
    ("Delay", "soon", "`soon` is not a duration such as 30s, 10m or 1d10h30m"),
    ("Not-Before", "1700000000000", "`1700000000000` is not a time in seconds since 1970"),
    ("Not-Before", "-1", "`-1` is not a time in seconds since 1970"),
    ("Content-Based-Deduplication", "yes", "`yes` is neither true nor false"),
    ("Callback", "a.example", "endpoint has invalid scheme, add http:// or https://"),
    ("Failure-Callback", "https://", "endpoint has no host"),
    ("Callback-Delay", "10s", "a callback cannot be delayed"),
    ("Failure-Callback-Not-Before", "1", "a callback cannot be delayed"),
    ("Failure-Callback-Timeout", "x", "`x` is not a duration such as 30s, 10m or 1d10h30m"),
    ("Cron", "0 0 30 2 *", "`0 0 30 2 *` never fires, because no month has such a day"),
    ("Flow-Control-Value", "rate=1", "it comes without a key"),
    ("Redact-Fields", "url", "`url` is not one of body, header and header[Name]"),
    ("Redact-Fields", "header[]", "`header[]` is not one of body, header and header[Name]"),
    ("Forward-X-A", "1\r\nX-B: 2", "it contains a control character"),
    ("Callback-Forward-X-A", "1\0", "it contains a control character"),
    ("Label", "a\u{7}", "it contains a control character"),
    ("Forward-a b", "1", "`a b` is not the name of a header"),
];

#[test]
fn errors_name_the_header() {
    for (name, value, why) in REFUSED {
        let name = format!("Upstash-{name}");
        assert_eq!(read(&[(&name, value)]), Err(format!("{name} is invalid: {why}")));
    }
    let lower = read(&[("upstash-queue-name", "a b")]).unwrap_err();
    assert!(lower.starts_with("Upstash-Queue-Name is invalid: `a b` is not a name"), "{lower}");
    assert_eq!(
        read(&[("Content-Type", "a\nb")]).unwrap_err(),
        "Content-Type is invalid: it contains a control character"
    );
    assert_eq!(
        read(&[("Upstash-Flow-Control-Key", "k")]).unwrap_err(),
        "Upstash-Flow-Control-Value is invalid: at least one of parallelism and rate is needed"
    );
    // To the letter.
    let error = read(&[("upstash-deduplication-id", "a:b")]).unwrap_err();
    assert_eq!(error, "DeduplicationId cannot contain ':'");
}

#[test]
fn ids_and_labels_are_bounded() {
    let long = "x".repeat(LONGEST_ID + 1);
    for name in ["Upstash-Deduplication-Id", "Upstash-Label"] {
        assert!(read(&[(name, &long)]).unwrap_err().ends_with("it is longer than 512 bytes"));
    }
    let many: Vec<String> = (0..=MOST_LABELS).map(|n| n.to_string()).collect();
    let error = read(&[("Upstash-Label", &many.join(","))]).unwrap_err();
    assert_eq!(error, "Upstash-Label is invalid: there are more than 100 labels");
}

const SETTINGS: &str = "(upstash-)?((failure-)?callback-?)?(method|retries|retry-delay|delay|timeout|not-before|\
    cron|label|redact-fields|deduplication-id|forward-[a-z-]{0,5}|flow-control-(key|value)|connection)";

proptest! {
    #[test]
    fn never_panics(pairs in prop::collection::vec((SETTINGS, "\\PC{0,20}"), 0..8), name in "\\PC*") {
        let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        if let Ok(spec) = Spec::read(pairs.chain([(name.as_str(), name.as_str())])) {
            for (name, values) in &spec.headers {
                prop_assert!(names::is_header(name) && canonical(name) == *name && !values.is_empty());
            }
        }
    }

    #[test]
    fn what_is_written_is_read(
        retries in 0..=MOST_RETRIES, delay in 0_u64..1_000_000, at in 0_i64..10_000_000_000,
        labels in prop::collection::btree_set("[a-z0-9]{1,8}", 0..5),
        forwards in prop::collection::btree_map("x-[a-z]{1,8}", "[ -~&&[^ ]]{0,20}", 0..5),
    ) {
        let labels: Vec<String> = labels.into_iter().collect();
        let mut pairs = vec![
            ("Upstash-Retries".to_owned(), retries.to_string()),
            ("upstash-delay".to_owned(), span::text(secs(delay))),
            ("UPSTASH-NOT-BEFORE".to_owned(), at.to_string()),
            ("Upstash-Label".to_owned(), labels.join(",")),
        ];
        pairs.extend(forwards.iter().map(|(name, value)| (format!("Upstash-Forward-{name}"), value.clone())));
        let spec = Spec::read(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))).unwrap();
        prop_assert_eq!(spec.retries, Some(retries));
        prop_assert_eq!(spec.delay, Some(secs(delay)));
        prop_assert_eq!(spec.not_before, Some(Timestamp::from_micros(at * 1_000_000)));
        prop_assert_eq!(spec.labels, labels);
        let expected: Headers = forwards.into_iter().map(|(name, value)| (canonical(&name), vec![value])).collect();
        prop_assert_eq!(spec.headers, expected);
    }
}
