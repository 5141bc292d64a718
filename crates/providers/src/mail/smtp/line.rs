//! A connection to a mail server: commands go out, replies come in, one for one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::reply::{self, NoReply, Reply};

/// Anything that bytes go over, encrypted or not.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server closed the connection")]
    Closed,
    #[error(transparent)]
    NoReply(#[from] NoReply),
}

/// One connection. Whoever does not hear the answer to what was said must drop it.
pub(super) struct Line {
    wire: Box<dyn Wire>,
    /// What has come and was not read yet.
    unread: Vec<u8>,
    /// Largest mail the server takes, in bytes, if it said so.
    pub(super) size_max: Option<u64>,
    /// Mails that went over it.
    pub(super) carried: u32,
}

impl Line {
    pub(super) fn new(wire: Box<dyn Wire>) -> Self {
        Self { wire, unread: Vec::new(), size_max: None, carried: 0 }
    }

    pub(super) fn into_wire(self) -> Box<dyn Wire> {
        self.wire
    }

    /// Waits for a complete reply.
    pub(super) async fn hear(&mut self) -> Result<Reply, Trouble> {
        loop {
            if let Some((reply, length)) = reply::parse(&self.unread)? {
                self.unread.drain(..length);
                return Ok(reply);
            }
            if self.wire.read_buf(&mut self.unread).await? == 0 {
                return Err(Trouble::Closed);
            }
        }
    }

    /// Says a command and waits for the reply. The command has no line end in it: what goes into it
    /// is checked before (`Address`) or encoded.
    pub(super) async fn ask(&mut self, command: &str) -> Result<Reply, Trouble> {
        self.write(format!("{command}\r\n").as_bytes()).await?;
        self.hear().await
    }

    /// All of the bytes, on their way.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes).await?;
        self.wire.flush().await
    }

    /// Says something that need not be heard, if it can be said at once: what is known about the mail
    /// must not wait for it.
    pub(super) fn wave(&mut self, bytes: &[u8]) {
        let mut context = Context::from_waker(Waker::noop());
        if Pin::new(&mut self.wire).poll_write(&mut context, bytes).is_ready() {
            let _flushed = Pin::new(&mut self.wire).poll_flush(&mut context).is_ready();
        }
    }

    /// Whether nothing has come that nobody asked for, not even the end.
    pub(super) fn is_silent(&mut self) -> bool {
        if !self.unread.is_empty() {
            return false;
        }
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        // A look, not a wait: nobody is to be woken.
        let mut context = Context::from_waker(Waker::noop());
        matches!(Pin::new(&mut self.wire).poll_read(&mut context, &mut buffer), Poll::Pending)
    }
}
