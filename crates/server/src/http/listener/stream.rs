//! A connection's bytes, with a clock on them.
//!
//! [`Timed`] sits between hyper and the socket, [`Activity`] knows what the connection is doing: it is
//! told by the bodies ([`RequestBody`], [`ResponseBody`]) when requests begin and end. Together they
//! tell "waiting for a head" from "idle between requests" from "busy", which neither hyper nor the
//! socket can do alone, and end the connection when its time for that is over.
//!
//! ```text
//! Head ──request──► Busy ──last answer sent──► Idle ──first byte (HTTP/1)──► Head
//! ```

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Version;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// After an answer to a request whose body was not read: how long, and how much of it, is read and
/// thrown away. Closing earlier would reset the connection and could lose the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 4 * 1_048_576;

#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the first moment to the first request, and from the first byte of each later one.
    pub head: Duration,
    /// Between requests.
    pub idle: Duration,
    /// Without any progress in writing.
    pub write: Duration,
}

/// What a connection is doing.
pub struct Activity {
    timeouts: Timeouts,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// Frames other than requests arrive on HTTP/2 at any time, so bytes do not mean a head.
    multiplexed: bool,
    /// A request was answered without its body having been read.
    unread: bool,
    /// Whoever waits for bytes, to be told when the phase changes.
    reader: Option<Waker>,
}

#[derive(Clone, Copy)]
enum Phase {
    Head { until: Instant },
    Busy { requests: usize },
    Idle { until: Instant },
}

impl Activity {
    pub fn new(timeouts: Timeouts) -> Arc<Self> {
        let until = Instant::now() + timeouts.head;
        Arc::new(Self {
            timeouts,
            state: Mutex::new(State {
                phase: Phase::Head { until },
                multiplexed: false,
                unread: false,
                reader: None,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Valid at every step, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has arrived; it is being answered until the result is dropped.
    pub fn begin(this: &Arc<Self>, version: Version) -> Busy {
        let mut state = this.state();
        state.multiplexed |= version == Version::HTTP_2;
        state.phase = match state.phase {
            Phase::Busy { requests } => Phase::Busy { requests: requests + 1 },
            Phase::Head { .. } | Phase::Idle { .. } => Phase::Busy { requests: 1 },
        };
        Busy(Arc::clone(this))
    }

    fn end(&self) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Busy { requests } if requests > 1 => Phase::Busy { requests: requests - 1 },
            _ => Phase::Idle { until: Instant::now() + self.timeouts.idle },
        };
        let reader = state.reader.take();
        drop(state);
        // On HTTP/2 the answer may end in another task: the reader must learn of its new deadline.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Bytes have arrived.
    fn arrived(&self) {
        let mut state = self.state();
        if !state.multiplexed && matches!(state.phase, Phase::Idle { .. }) {
            state.phase = Phase::Head { until: Instant::now() + self.timeouts.head };
        }
    }
}

/// A request that is being answered.
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The socket.
pub struct Timed {
    stream: TcpStream,
    activity: Arc<Activity>,
    /// One timer, moved only when it fires too early: requests come far more often than timeouts.
    read_timer: Pin<Box<Sleep>>,
    /// Made when a write first has to wait, which most connections never do.
    write_timer: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

struct Linger {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl Timed {
    pub fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        let read_timer = Box::pin(tokio::time::sleep(activity.timeouts.head));
        Self { stream, activity, read_timer, write_timer: None, linger: None }
    }

    /// Ready when the time for what the connection is doing is over.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let phase = {
            let mut state = self.activity.state();
            let same = |waker: &Waker| waker.will_wake(cx.waker());
            if !state.reader.as_ref().is_some_and(same) {
                state.reader = Some(cx.waker().clone());
            }
            state.phase
        };
        let (Phase::Head { until } | Phase::Idle { until }) = phase else {
            return Poll::Pending;
        };
        loop {
            let armed = self.read_timer.deadline();
            if armed > until || self.read_timer.is_elapsed() {
                if self.read_timer.is_elapsed() && armed >= until {
                    return Poll::Ready(phase);
                }
                self.read_timer.as_mut().reset(until);
            }
            ready!(self.read_timer.as_mut().poll(cx));
        }
    }

    /// Progress stops the clock; its absence starts it.
    fn watch_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.write_timer = None;
            return result;
        }
        let limit = self.activity.timeouts.write;
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read its answer",
        )))
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_ready() {
            if buffer.filled().len() > before {
                this.activity.arrived();
            }
            return read;
        }
        match ready!(this.poll_expired(cx)) {
            // To hyper it looks as if the client had closed: nothing is open, so nothing is wrong.
            Phase::Idle { .. } => Poll::Ready(Ok(())),
            Phase::Head { .. } | Phase::Busy { .. } => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no complete request head in time",
            ))),
        }
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.watch_write(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.watch_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.activity.state().unread {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = this.linger.get_or_insert_with(|| Linger {
            until: Box::pin(tokio::time::sleep(LINGER)),
            bytes_left: LINGER_BYTES,
        });
        loop {
            if linger.bytes_left == 0 || linger.until.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut ignored = [0; 8192];
            let mut buffer = ReadBuf::new(&mut ignored);
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                return Poll::Ready(Ok(()));
            }
            linger.bytes_left = linger.bytes_left.saturating_sub(count);
        }
    }
}

/// A request's body, which notes whether it was read to its end.
pub struct RequestBody {
    inner: Incoming,
    activity: Arc<Activity>,
    ended: bool,
}

impl RequestBody {
    pub fn new(inner: Incoming, activity: &Arc<Activity>) -> Self {
        Self { inner, activity: Arc::clone(activity), ended: false }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        self.ended |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.ended && !self.inner.is_end_stream() {
            self.activity.state().unread = true;
        }
    }
}

/// An answer's body, which keeps its request open until it is sent.
pub struct ResponseBody {
    inner: Body,
    _busy: Busy,
}

impl ResponseBody {
    pub const fn new(inner: Body, busy: Busy) -> Self {
        Self { inner, _busy: busy }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
