//! `localstripe` as a second stand-in for Stripe.
//!
//! `localstripe` knows no keys and allows too large refunds, so it proves nothing about money. It is somebody else's reading of
//! the same wire format, and an adapter that works with it too has not merely been fitted to ours.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gate::until;
use crate::packages;

/// Its own command binds every interface and keeps its state in a file; so it is started like this.
const RUN: &str = "
import sys
from aiohttp import web
from localstripe import server
from localstripe.resources import store
store.dump_to_disk = lambda *a, **k: None
web.run_app(server.app, host='127.0.0.1', port=int(sys.argv[1]), access_log=None, print=None)
";

/// A running `localstripe` on a free loopback port. It ends with this value.
pub struct LocalStripe {
    port: u16,
    child: Child,
}

impl LocalStripe {
    /// Starts it, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start() -> Self {
        let folder = tokio::task::spawn_blocking(packages::stripe).await.expect("the packages");
        let port = free_port();
        let child = Command::new(folder.join("venv/bin/python"))
            .args(["-c", RUN, &port.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .expect("python starts");
        let mut started = Self { port, child };
        until("localstripe", async || {
            let over = started.child.try_wait().expect("our own child");
            assert!(over.is_none(), "localstripe ended: {over:?}");
            answers(port).await.then_some(())
        })
        .await;
        started
    }

    /// Without the `/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for LocalStripe {
    fn drop(&mut self) {
        // By its process id, so only this one. It may have ended by itself, which is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A port that was free a moment ago. Somebody may take it first; then the start fails with a sentence.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

async fn answers(port: u16) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET /v1/customers HTTP/1.0\r\n\r\n").await?;
        let mut said = [0; 5];
        stream.read_exact(&mut said).await?;
        std::io::Result::Ok(&said == b"HTTP/")
    };
    asked.await.unwrap_or(false)
}
