//! From a transport error to what it proves.
//!
//! The proof is *where* the error arose, not what it is called: a connection reset while connecting
//! means that nothing was sent, the same reset after that means nothing at all.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::{Known, NoAnswer, NotSent};

/// What a call that ended before the head of a reply proves.
pub(super) fn failure(error: &reqwest::Error, connect_timeout: Duration) -> Known {
    // `is_connect` holds exactly for errors of the connector and of the wait for a connection: name
    // lookup, TCP, proxy tunnel, TLS handshake. hyper takes the request up only after these.
    if error.is_connect() {
        Known::NotSent(no_connection(error, connect_timeout))
    } else if error.is_builder() {
        Known::NotSent(NotSent::Unsendable(innermost(error)))
    } else {
        Known::NoAnswer(NoAnswer::Broken(innermost(error)))
    }
}

fn no_connection(error: &reqwest::Error, connect_timeout: Duration) -> NotSent {
    if error.is_timeout() {
        return NotSent::ConnectTimeout(connect_timeout);
    }
    if error.is_dns() {
        return NotSent::Dns(innermost(error));
    }
    for cause in chain(error) {
        if let Some(tls) = tls_error(cause) {
            return NotSent::Tls(tls.to_string());
        }
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            return NotSent::Refused;
        }
    }
    NotSent::Unreachable(innermost(error))
}

/// The TLS library reports through `io::Error`s, one inside the other, whose `source` skips the error
/// that they wrap.
pub(crate) fn tls_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    match cause.downcast_ref::<io::Error>() {
        Some(io) => tls_error(io.get_ref()?),
        None => cause.downcast_ref::<rustls::Error>(),
    }
}

/// The text of the first cause: the outer layers repeat the URL, which may hold a client's key.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    match chain(error).last() {
        Some(cause) => cause.to_string(),
        None => "the connection failed".to_owned(),
    }
}

/// The causes below `error`, without itself.
pub(crate) fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}
