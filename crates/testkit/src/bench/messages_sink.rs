//! The destination of measured messages: answers 204 and counts, and does nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) struct Sink {
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
    /// When each message came, while somebody measures single ones.
    pub arrivals: mpsc::UnboundedReceiver<Instant>,
    _serving: JoinSet<()>,
}

/// What the destination knows of messages.
pub(crate) struct Counts {
    pub received: AtomicU64,
    /// One more for every message that has come: whoever publishes no faster than that waits here.
    pub room: Semaphore,
    /// Whether arrivals are told.
    pub told: AtomicBool,
}

impl Sink {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts {
            received: AtomicU64::new(0),
            room: Semaphore::new(0),
            told: AtomicBool::new(false),
        });
        let (told, arrivals) = mpsc::unbounded_channel();
        let mut serving = JoinSet::new();
        let counter = Arc::clone(&counts);
        serving.spawn(async move {
            let mut lines = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                lines.spawn(answer(stream, Arc::clone(&counter), told.clone()));
            }
        });
        Ok(Self { address, counts, arrivals, _serving: serving })
    }
}

async fn answer(mut stream: TcpStream, counts: Arc<Counts>, told: mpsc::UnboundedSender<Instant>) {
    stream.set_nodelay(true).ok();
    let mut buffer: Vec<u8> = Vec::with_capacity(16 * 1024);
    loop {
        let Some(length) = request(&buffer) else {
            match stream.read_buf(&mut buffer).await {
                Ok(read) if read > 0 => continue,
                _ => return,
            }
        };
        buffer.drain(..length);
        counts.received.fetch_add(1, Ordering::Relaxed);
        counts.room.add_permits(1);
        if counts.told.load(Ordering::Relaxed) {
            told.send(Instant::now()).ok();
        }
        if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.is_err() {
            return;
        }
    }
}

/// The length of the first whole request, or answer, in the buffer. Looks at each line once: what measures should cost little.
pub(crate) fn request(buffer: &[u8]) -> Option<usize> {
    const LENGTH: &[u8] = b"content-length: ";
    let (mut at, mut body) = (0, 0);
    loop {
        let line = &buffer[at..];
        let end = line.iter().position(|byte| *byte == b'\n')?;
        let line = &line[..end];
        at += end + 1;
        if line == b"\r" {
            break;
        }
        if line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)) {
            let digits = line[LENGTH.len()..].iter().take_while(|byte| byte.is_ascii_digit());
            body = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
        }
    }
    (buffer.len() >= at + body).then_some(at + body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_end_where_their_length_says() {
        let whole = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET";
        assert_eq!(request(whole), Some(whole.len() - 3));
        assert_eq!(request(&whole[..whole.len() - 4]), None);
        assert_eq!(request(b"GET / HTTP/1.1\r\n\r\n"), Some(18));
        assert_eq!(request(b"GET / HTTP/1.1\r\n"), None);
    }
}
