//! What hostile clients put into their requests, against the real process: bombs, documents without a
//! bottom, and addresses in our own network.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use tashika_testkit::database::TestDb;
use tokio::task::JoinSet;

use crate::abuse::MEBIBYTE;
use crate::support::{KEY, Request, Setup, order, rows};

const TOKEN: &str = "the-token-of-this-test";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_do_not_go_off_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db).start().await;
    let encoded = |encoding: &str, body: Vec<u8>| {
        Request::post(KEY, body).header("content-encoding", encoding)
    };
    // Thirty-two times what a body may have, in a thousandth of that.
    let bomb = gzip(&vec![b' '; 32 << 20]);
    assert!(bomb.len() < 64 << 10, "{}", bomb.len());
    let before = server.memory_peak();
    let mut bombs = JoinSet::new();
    for _ in 0..20 {
        let (bomb, address) = (encoded("gzip", bomb.clone()), server.address);
        bombs.spawn(async move { bomb.send(address).await.unwrap() });
    }
    while let Some(answer) = bombs.join_next().await {
        answer.unwrap().is_problem(413, "PAYLOAD_TOO_LARGE");
    }
    let grown = server.memory_peak().saturating_sub(before);
    assert!(grown < 128 * MEBIBYTE, "{} MiB", grown / MEBIBYTE);

    let good = order(KEY).to_string().into_bytes();
    let nested = gzip(&bomb);
    for (encoding, body) in [
        ("deflate", zlib(&good)),
        ("br", good.clone()),
        ("zstd", good.clone()),
        ("gzip, gzip", nested.clone()),
        ("identity, gzip", gzip(&good)),
    ] {
        server.ask(encoded(encoding, body)).await.is_problem(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    server.ask(encoded("gzip", nested)).await.is_problem(400, "INVALID_JSON");
    server.ask(encoded("gzip", good.clone())).await.is_problem(400, "BAD_REQUEST");
    let mut cut = gzip(&good);
    cut.truncate(cut.len() - 9);
    server.ask(encoded("gzip", cut)).await.is_problem(400, "BAD_REQUEST");
    // Two readers may differ about what stands behind the end.
    for behind in [b"more".to_vec(), gzip(b"{}")] {
        let long = [gzip(&good), behind].concat();
        server.ask(encoded("gzip", long)).await.is_problem(400, "BAD_REQUEST");
    }
    assert_eq!(server.ask(encoded("gzip", gzip(&good))).await.status, 201);
    server.stop().await;
}

#[tokio::test]
async fn documents_without_a_bottom_are_refused_everywhere_sqlite() {
    let server = Setup::of(&TestDb::sqlite())
        .set("TASHIKA_API_TOKENS", TOKEN)
        .set("STRIPE_WEBHOOK_SECRET", "whsec_planted")
        .set("TASHIKA_BODY_LIMIT_BYTES", 4 * MEBIBYTE)
        .start()
        .await;
    let deep = |open: &str, close: &str, levels| open.repeat(levels) + "1" + &close.repeat(levels);
    let bodies = [
        deep("[", "]", 100_000),
        deep("{\"a\":", "}", 100_000),
        "[".repeat(1_000_000),
        "{\"a\":[".repeat(300_000),
        format!("{{\"recipients\":[{}]}}", deep("[", "]", 40_000)),
    ];
    for path in [
        "/do/order",
        "/payments",
        "/reservations",
        "/mail",
        "/mail/batches",
        "/console/api/login",
        "/webhooks/stripe",
        "/v2/batch",
    ] {
        for body in &bodies {
            let request = Request::new("POST", path)
                .token(TOKEN)
                .header("content-type", "application/json")
                .header("idempotency-key", KEY)
                .body(body.clone());
            let answer = server.ask(request).await;
            assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
            assert!(answer.body.len() < 2000, "{path}: it repeats what it was sent");
        }
    }
    server.is_healthy().await;
    server.stop().await;
}

#[tokio::test]
async fn the_queue_cannot_be_sent_into_our_own_network_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db)
        .set("TASHIKA_API_TOKENS", TOKEN)
        .set("TASHIKA_SSRF_GUARD", "on")
        .start()
        .await;
    let port = server.address.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.0.1.",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "0",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "user:pw@127.0.0.1",
        "example.com@127.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "100.100.100.200",
    ] {
        let inside = format!("http://{host}:{port}/metrics");
        let publish = Request::new("POST", &format!("/v2/publish/{inside}")).token(TOKEN).body("x");
        let answer = server.ask(publish).await;
        assert!((400..500).contains(&answer.status), "{inside}: {answer:?}");
        // Nor as somebody who is called back, or as one of a group.
        let callback = Request::new("POST", "/v2/publish/https://example.com/")
            .token(TOKEN)
            .header("upstash-callback", &inside)
            .header("upstash-delay", "1h")
            .body("x");
        let answer = server.ask(callback).await;
        assert!((400..500).contains(&answer.status), "callback {inside}: {answer:?}");
    }
    assert_eq!(rows(&db.url(), "select count(*) from messages").await, [["0"]]);
    server.stop().await;
}

/// Time must not tell how much of a secret was right. That cannot be measured reliably, so what is called is
/// looked at: wherever a secret is taken out of its wrapping, nothing beside it compares with `==`.
#[test]
fn no_secret_is_compared_byte_by_byte() {
    fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for name in ["domain", "engine", "providers", "server", "store"] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    let mut exposed = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        for (number, line) in text.lines().enumerate() {
            exposed += usize::from(line.contains("expose_secret()"));
            let compares = line.contains(" == ") || line.contains(" != ");
            let bad = line.contains("expose_secret()") && compares;
            assert!(!bad, "{}:{}: {line}", file.display(), number + 1);
        }
    }
    assert!(exposed > 20, "the search is blind: {exposed}");
}
