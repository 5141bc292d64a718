//! What a caller asks of the queue: where a message goes, how, how often, and who is told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Header names, spelled `Content-Type`, and their values.
pub type Headers = BTreeMap<String, Vec<String>>;

/// The methods that a delivery may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Reads a method, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Retries of a message that does not say.
pub const RETRIES: u32 = 3;

/// What was asked for. It does not change in the life of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The destination, exactly as it was given. Kept in a column of its own.
    #[serde(skip)]
    pub url: String,
    #[serde(default)]
    pub method: Method,
    /// What the destination gets: forwarded headers and `Content-Type`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: Headers,
    /// Attempts after the first.
    pub retries: u32,
    /// An expression for the waits between attempts, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_delay: Option<String>,
    /// For one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Told after every attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// Told when the message is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_callback: Option<Callback>,
    /// The group of URLs that it was sent to, and the name of the URL in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_ip: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
    #[serde(default, skip_serializing_if = "Redact::is_nothing")]
    pub redact: Redact,
}

/// What the URL of a message begins with that goes to a worker the operator has named. No caller can
/// ask for one.
pub const WORKER: &str = "worker:";

/// The host and port of a URL, without credentials, in lower case.
#[must_use]
pub fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.to_ascii_lowercase()
}

/// The path of a URL, without its query.
#[must_use]
pub fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    rest[..end].find('/').map_or("", |at| &rest[at..end])
}

/// Somebody who is told how an attempt went. The telling is a message of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Callback {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// As many as the original has, if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_delay: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: Headers,
}

/// Limits that all messages of a key share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    pub key: String,
    /// Attempts at the same moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// Attempts in a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    pub period: Duration,
}

/// What is not shown in any answer. Deliveries are not affected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redact {
    #[serde(default)]
    pub body: bool,
    /// All headers.
    #[serde(default)]
    pub headers: bool,
    /// These headers, by their spelled names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
}

impl Redact {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
