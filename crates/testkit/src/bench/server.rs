//! This very binary as a server, for as long as a measurement takes.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::World;

pub(crate) const PORT: u16 = 18_099;

/// Starts it, and waits for its first answer; returns how long that took.
pub(crate) async fn start(
    world: &World,
    args: &[&str],
    settings: &[(&str, &str)],
) -> anyhow::Result<(Child, Duration)> {
    // Once before, so that the schema is there: a start is not an installation.
    drop(world.store().await?);
    anyhow::ensure!(!healthy().await, "another server listens on port {PORT}");
    let began = Instant::now();
    let server = Command::new(std::env::current_exe()?)
        .args(args)
        .env("TASHIKA_LISTEN", format!("127.0.0.1:{PORT}"))
        .env("TASHIKA_DATABASE_URL", &world.url)
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    while !healthy().await {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(20), "the server does not start");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok((server, began.elapsed()))
}

async fn healthy() -> bool {
    let ask = async {
        let mut socket = TcpStream::connect(("127.0.0.1", PORT)).await?;
        socket
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}
