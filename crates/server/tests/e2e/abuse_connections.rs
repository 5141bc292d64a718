//! Ten thousand connections at once, more than are allowed, and no descriptors left.

use std::net::SocketAddr;
use std::process::Stdio;

use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{soon, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::support::{KEY, Server, Setup, order};

const MANY: usize = 10_000;
const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Lets a process have so many open files; a new one inherits them. The program is everywhere where
/// `mount` is.
async fn open_files(pid: u32, count: usize) {
    let limit = format!("--nofile={count}:");
    let mut command = Command::new("prlimit");
    command.args(["--pid", &pid.to_string(), &limit]).stdin(Stdio::null());
    let output = command.output().await.expect("prlimit is installed");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{count} open files are not allowed here: {why}");
}

/// Connects, asks, and hears how it went: the status, with the connection still open.
async fn connected(address: SocketAddr) -> (u16, TcpStream) {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(ASK).await.unwrap_or_default();
        let mut heard = Vec::new();
        while !heard.windows(4).any(|four| four == b"\r\n\r\n") {
            if !matches!(stream.read_buf(&mut heard).await, Ok(1..)) {
                return (0, stream);
            }
        }
        let status = String::from_utf8_lossy(&heard[9..12]).parse().unwrap();
        (status, stream)
    };
    soon("an answer", exchange).await
}

/// Everybody connects and stays; returns the connections that were served, and how many were not.
async fn crowd(address: SocketAddr, count: usize) -> (Vec<TcpStream>, usize) {
    let mut everybody = JoinSet::new();
    let (mut served, mut refused) = (Vec::new(), 0);
    let mut started = 0;
    while started < count || !everybody.is_empty() {
        // Not all in the same instant: the backlog of a socket is shorter than that.
        while started < count && everybody.len() < 200 {
            everybody.spawn(connected(address));
            started += 1;
        }
        match everybody.join_next().await.unwrap().unwrap() {
            (200, stream) => served.push(stream),
            (0 | 503, _) => refused += 1,
            (status, _) => panic!("{status}"),
        }
    }
    (served, refused)
}

fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_are_served_at_once_sqlite() {
    open_files(std::process::id(), MANY + 2000).await;
    let db = TestDb::sqlite();
    let server = Setup::of(&db)
        .set("TASHIKA_MAX_CONNECTIONS", MANY + 100)
        .set("TASHIKA_KEEP_ALIVE_SEC", 600)
        .start()
        .await;
    let before = memory(&server);
    let (mut served, refused) = crowd(server.address, MANY).await;
    assert_eq!((served.len(), refused), (MANY, 0));
    let each = memory(&server).saturating_sub(before) / MANY as u64;
    assert!(each < 64 * 1024, "{each} bytes for each connection");
    // Among them work goes on, on a new connection and on each of the old ones.
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    for stream in served.iter_mut().step_by(100) {
        stream.write_all(ASK).await.unwrap();
        let mut heard = [0; 12];
        soon("an answer", stream.read_exact(&mut heard)).await.unwrap();
        assert_eq!(&heard, b"HTTP/1.1 200");
    }
    drop(served);
    until("everybody to be gone", async || {
        let metrics = server.get("/metrics").await.body;
        metrics.lines().any(|line| line == "http_connections 1").then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_are_allowed_are_sent_away_and_the_rest_is_served_sqlite() {
    const ALLOWED: usize = 500;
    open_files(std::process::id(), MANY + 2000).await;
    let db = TestDb::sqlite();
    let server = Setup::of(&db)
        .set("TASHIKA_MAX_CONNECTIONS", ALLOWED)
        .set("TASHIKA_KEEP_ALIVE_SEC", 600)
        .start()
        .await;
    let (served, refused) = crowd(server.address, MANY).await;
    assert_eq!((served.len(), refused), (ALLOWED, MANY - ALLOWED));
    drop(served);
    until("room", async || (connected(server.address).await.0 == 200).then_some(())).await;
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_descriptors_recovers_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db).start().await;
    open_files(server.pid(), 150).await;
    let mut waiting = Vec::new();
    let complaint = |event: &serde_json::Value| event["message"] == "cannot accept connections";
    for _ in 0..300 {
        waiting.push(TcpStream::connect(server.address).await.unwrap());
    }
    server.log.until("the complaint", complaint).await;
    drop(waiting);
    // Whoever waited in the backlog is served or gone; the next one is served.
    until("an answer", async || (connected(server.address).await.0 == 200).then_some(())).await;
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    server.stop().await;
}
