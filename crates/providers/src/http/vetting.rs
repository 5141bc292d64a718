//! A client for addresses that are somebody else's word: it connects to what the guard lets pass.
//!
//! Names are resolved here, once per connection, and all their addresses are vetted: what was vetted is
//! what is dialled. Literal addresses never get to a resolver; whoever uses such a client asks
//! [`Vetting::check_url`] first. Redirects are not followed by any client of ours.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

use crate::guard::{Guard, Refusal};

/// Who may be connected to.
#[derive(Clone, Debug)]
pub struct Vetting {
    guard: Arc<Guard>,
    /// Hosts that the operator has configured: they may be anywhere.
    trusted: Arc<[String]>,
}

impl Vetting {
    #[must_use]
    pub fn new(guard: Guard, trusted: impl IntoIterator<Item = String>) -> Self {
        let trusted = trusted.into_iter().map(|host| host.to_ascii_lowercase());
        Self { guard: Arc::new(guard), trusted: trusted.collect() }
    }

    fn trusts(&self, host: &str) -> bool {
        self.trusted.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Whether this address can be refused without asking a resolver.
    pub fn check_url(&self, url: &Url) -> Result<(), Refusal> {
        match url.host_str() {
            Some(host) if self.trusts(host) => Ok(()),
            _ => self.guard.check_url(url.as_str()),
        }
    }
}

impl Resolve for Vetting {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            if !this.trusts(name.as_str()) {
                for addr in &found {
                    this.guard.check(addr.ip())?;
                }
            }
            let addrs: Addrs = Box::new(found.into_iter());
            Ok(addrs)
        })
    }
}
