//! A line between a client and PostgreSQL that can be slow, lossy, cut, or partitioned.
//!
//! It carries bytes and knows nothing of what they mean. A partition is what it is in a network: connections stay open on
//! both sides, nothing arrives, and when it is over everything arrives that was sent meanwhile, in order and late. That is
//! the dangerous part: a commit that its sender has given up long ago.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tashika_engine::Dice;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the line does to what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Good,
    /// Everything takes so much longer, in each direction.
    Slow(Duration),
    /// So many of a hundred pieces are lost, and arrive when they are sent again.
    Lossy {
        percent: u64,
        resent_after: Duration,
    },
    /// Nothing arrives until the line is another one; then it does.
    Partitioned,
    /// Connections are reset, and new ones are refused.
    Cut,
}

struct Shared {
    upstream: SocketAddr,
    line: watch::Sender<Line>,
    dice: Mutex<Dice>,
    held_back: AtomicUsize,
}

/// A proxy on a free loopback port. It ends with this value.
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// In front of the server at `postgres://user:password@host:port/…`.
    ///
    /// # Panics
    ///
    /// When that is no such address, or there is no free port.
    pub async fn to(url: &str, seed: u64) -> Self {
        let (before, rest) = url.rsplit_once('@').expect("an address with a user");
        let (host, after) = rest.split_once('/').expect("an address with a database");
        let upstream = host.parse().expect("an IP address and a port");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            upstream,
            line: watch::Sender::new(Line::Good),
            dice: Mutex::new(Dice::new(seed)),
            held_back: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { url: format!("{before}@{address}/{after}"), shared, task }
    }

    /// The same database, by way of this line.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// What the line is like from now on.
    pub fn set(&self, line: Line) {
        self.shared.line.send_replace(line);
    }

    /// How many bytes a partition has held back.
    #[must_use]
    pub fn held_back(&self) -> usize {
        self.shared.held_back.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.line.send_replace(Line::Cut);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { shared.carry(client).await });
    }
}

impl Shared {
    /// One connection, until either side closes it or the line is cut.
    async fn carry(&self, client: TcpStream) {
        let mut line = self.line.subscribe();
        // Whoever dials into a partition waits for it.
        let opened = line.wait_for(|line| *line != Line::Partitioned).await.map(|line| *line);
        if !opened.is_ok_and(|line| line != Line::Cut) {
            return;
        }
        let Ok(server) = TcpStream::connect(self.upstream).await else { return };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let mut line = self.line.subscribe();
        tokio::select! {
            () = self.forward(from_client, to_server) => {}
            () = self.forward(from_server, to_client) => {}
            _ = line.wait_for(|line| *line == Line::Cut) => {}
        }
    }

    async fn forward(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut line = self.line.subscribe();
        let mut piece = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let now = *line.borrow_and_update();
            match now {
                Line::Good | Line::Cut => {}
                Line::Slow(delay) => tokio::time::sleep(delay).await,
                Line::Lossy { percent, resent_after } => {
                    let lost = {
                        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
                        dice.chance(percent)
                    };
                    if lost {
                        tokio::time::sleep(resent_after).await;
                    }
                }
                Line::Partitioned => {
                    self.held_back.fetch_add(length, Ordering::Relaxed);
                    if line.wait_for(|line| *line != Line::Partitioned).await.is_err() {
                        return;
                    }
                }
            }
            if to.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::soon;

    /// Somebody who repeats what is said.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                });
            }
        });
        address
    }

    async fn dial(proxy: &Proxy) -> TcpStream {
        let url = proxy.url();
        let host = url.split(['@', '/']).find(|part| part.starts_with("127.")).unwrap().to_owned();
        TcpStream::connect(host).await.unwrap()
    }

    async fn say(stream: &mut TcpStream, word: &[u8; 4]) -> [u8; 4] {
        stream.write_all(word).await.unwrap();
        let mut heard = [0; 4];
        soon("an echo", stream.read_exact(&mut heard)).await.unwrap();
        heard
    }

    #[tokio::test]
    async fn what_is_sent_into_a_partition_arrives_when_it_is_over() {
        let proxy = Proxy::to(&format!("postgres://u:p@{}/db", echo().await), 1).await;
        let mut stream = dial(&proxy).await;
        assert_eq!(&say(&mut stream, b"good").await, b"good");
        proxy.set(Line::Slow(Duration::from_millis(1)));
        assert_eq!(&say(&mut stream, b"slow").await, b"slow");
        proxy.set(Line::Lossy { percent: 100, resent_after: Duration::from_millis(1) });
        assert_eq!(&say(&mut stream, b"lost").await, b"lost");

        proxy.set(Line::Partitioned);
        stream.write_all(b"held").await.unwrap();
        let shared = Arc::clone(&proxy.shared);
        soon("the bytes", async {
            while shared.held_back.load(Ordering::Relaxed) < 4 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        proxy.set(Line::Good);
        let mut heard = [0; 4];
        soon("what was held back", stream.read_exact(&mut heard)).await.unwrap();
        assert_eq!((&heard, proxy.held_back()), (b"held", 4));

        proxy.set(Line::Cut);
        assert_eq!(soon("the end", stream.read(&mut heard)).await.unwrap_or_default(), 0);
    }
}
