//! What an idle server costs: time to start, memory, processor.

use std::time::Duration;

use anyhow::Context as _;

use super::{Figure, World, server};

/// Long enough for every agent to have had its turns.
const IDLE: Duration = Duration::from_secs(15);

/// Starts this very binary as a server.
pub(crate) async fn measure(world: &World) -> anyhow::Result<Vec<Figure>> {
    let (mut server, start) = server::start(world, &["serve"], &[]).await?;
    let pid = server.id().context("the server has ended")?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = cpu_ticks(pid)?;
    tokio::time::sleep(IDLE).await;
    let used = cpu_ticks(pid)? - before;
    let memory = resident_kib(pid)? / 1024.0;
    server.kill().await?;
    let name = world.name();
    Ok(vec![
        Figure::plain(name, "start to first answer", "ms", start.as_secs_f64() * 1000.0, ""),
        Figure::plain(name, "idle memory (resident)", "MiB", memory, ""),
        // The kernel counts in hundredths of a second.
        Figure::plain(name, "idle processor", "%", used / IDLE.as_secs_f64(), "of one core"),
    ])
}

fn cpu_ticks(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain spaces; user and system time are fields 14 and 15.
    let (_, rest) = stat.rsplit_once(')').context("no process name")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    Ok(next() + next())
}

fn resident_kib(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN))
}
