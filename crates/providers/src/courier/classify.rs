//! From an error of the HTTP client to what it proves, as in `http::classify`.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::http::classify::{chain, innermost, tls_error};
use crate::http::{NoAnswer, NotSent};

use super::Known;
use super::connect::ConnectError;
use super::pool::Broken;

/// What a request that ended before the head of an answer proves.
pub(super) fn failure(broken: &Broken, connect_timeout: Duration) -> Known {
    match broken {
        Broken::NotConnected(error) => no_connection(error, connect_timeout),
        Broken::NotWritten(error) => Known::NotSent(NotSent::Unreachable(text(error)).to_string()),
        Broken::Lost(error) => Known::NoAnswer(NoAnswer::Broken(text(error)).to_string()),
    }
}

/// The innermost cause, or the error itself if there is none: hyper's name no URL.
pub(super) fn text(error: &hyper::Error) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

fn no_connection(error: &(dyn Error + 'static), connect_timeout: Duration) -> Known {
    for cause in chain(error) {
        let why = match cause.downcast_ref::<ConnectError>() {
            Some(ConnectError::Refused(refusal)) => return Known::Blocked(refusal.to_string()),
            Some(ConnectError::Lookup(cause)) => NotSent::Dns(cause.to_string()),
            Some(none @ ConnectError::NoAddress) => NotSent::Dns(none.to_string()),
            Some(ConnectError::Timeout) => NotSent::ConnectTimeout(connect_timeout),
            None => match (tls_error(cause), cause.downcast_ref::<io::Error>()) {
                (Some(tls), _) => NotSent::Tls(tls.to_string()),
                (_, Some(io)) => match io.kind() {
                    io::ErrorKind::ConnectionRefused => NotSent::Refused,
                    // The share of one address.
                    io::ErrorKind::TimedOut => NotSent::ConnectTimeout(connect_timeout),
                    _ => continue,
                },
                _ => continue,
            },
        };
        return Known::NotSent(why.to_string());
    }
    Known::NotSent(NotSent::Unreachable(innermost(error)).to_string())
}
