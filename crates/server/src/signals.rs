//! Signals: the first asks for an orderly end, the second gets an immediate one.
//!
//! Used by `tashika serve` and `tashika demo`. SIGTERM comes from service managers, SIGINT from the keyboard; both mean
//! the same.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a shell reports for a process that a second signal ended.
const EXIT_FORCED: i32 = 130;

/// Cancels the returned token at the first SIGTERM or SIGINT; a second one ends the process at once.
///
/// What is cut off by the second is taken over by its lease, as after a crash.
pub fn watch() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        next(&mut terminate, &mut interrupt).await;
        tracing::info!("stopping: finishing what is open; a second signal stops at once");
        token.cancel();
        next(&mut terminate, &mut interrupt).await;
        tracing::warn!("stopped at once by a second signal");
        std::process::exit(EXIT_FORCED);
    });
    Ok(stop)
}

/// Counts them, for a process that has more to do at its end than to stop.
pub fn counted() -> io::Result<watch::Receiver<u32>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            next(&mut terminate, &mut interrupt).await;
            count.send_modify(|count| *count += 1);
        }
    });
    Ok(counted)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
