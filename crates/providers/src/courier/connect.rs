//! Connecting: name lookup, the guard, TCP and TLS, within one time limit.
//!
//! The guard is asked about the very addresses that are dialled. A name is resolved once per
//! connection, all its addresses are vetted, and one that may not be reached refuses the name: a
//! resolver that answers differently the next time ("rebinding") is not asked a next time. Literal
//! addresses never get to a resolver, so they are vetted before.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tashika_domain::mutant::{self, Mutant};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::guard::{Guard, Refusal};
use crate::reply::BoxFuture;
use crate::tls::TlsError;

use super::CourierError;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync {
    fn resolve(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The machine's own resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|addr| addr.ip()).collect())
        })
    }
}

/// Why there is no connection, where the causes below do not say.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the name could not be resolved")]
    Lookup(#[source] io::Error),
    #[error("the name has no address")]
    NoAddress,
    #[error("no connection in time")]
    Timeout,
}

/// A resolver that gives out only what the guard lets pass.
#[derive(Clone)]
pub(super) struct Vetted {
    guard: Arc<Guard>,
    resolver: Arc<dyn Resolve>,
}

impl Service<Name> for Vetted {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.resolver.resolve(name.as_str().to_owned());
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let addrs = found.await.map_err(ConnectError::Lookup)?;
            if addrs.is_empty() {
                return Err(ConnectError::NoAddress);
            }
            for addr in addrs.iter().filter(|_| !mutant::on(Mutant::NamesNotVetted)) {
                guard.check(*addr)?;
            }
            // The connector puts the port in.
            let addrs: Vec<_> = addrs.into_iter().map(|addr| SocketAddr::new(addr, 0)).collect();
            Ok(addrs.into_iter())
        })
    }
}

/// Makes connections for the pool.
#[derive(Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<HttpConnector<Vetted>>,
    guard: Arc<Guard>,
    timeout: Duration,
}

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Connector {
    pub(super) fn new(
        guard: Guard,
        resolver: Arc<dyn Resolve>,
        timeout: Duration,
        tls: ClientConfig,
    ) -> Self {
        let guard = Arc::new(guard);
        let vetted = Vetted { guard: Arc::clone(&guard), resolver };
        let mut tcp = HttpConnector::new_with_resolver(vetted);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Shared out among the addresses of a name, so that one that swallows packets does not use
        // up the time of the others.
        tcp.set_connect_timeout(Some(timeout));
        let inner = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Self { inner, guard, timeout }
    }

    fn literal(&self, uri: &Uri) -> Result<(), Refusal> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        host.parse().map_or(Ok(()), |addr| self.guard.check(addr))
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if let Err(refusal) = self.literal(&uri) {
            return Box::pin(async { Err(ConnectError::Refused(refusal).into()) });
        }
        let connecting = tokio::time::timeout(self.timeout, self.inner.call(uri));
        Box::pin(async move { connecting.await.unwrap_or(Err(ConnectError::Timeout.into())) })
    }
}

/// Whom to believe: the given certificates, or else the machine's.
pub(super) fn tls(roots_pem: Option<&[u8]>) -> Result<ClientConfig, CourierError> {
    crate::tls::client(roots_pem).map_err(|error| match error {
        TlsError::Roots(why) => CourierError::Roots(why),
        TlsError::Setup(error) => CourierError::Tls(error),
    })
}
