//! Who is asking: API tokens.
//!
//! A layer on the protected routes, put there by the shell. Whoever has logged in to the console is known by a session (`console::session`), with a role.
//! With tokens configured, a request needs
//! `Authorization: Bearer <token>`, or under `/v2` the same token as `?qstash_token=`; without any (loopback addresses only) everybody is `anonymous`.
//! It guarantees that tokens are compared in constant time, are never logged, and that wrong ones are
//! limited per address (`throttle`). A token may do everything; only sessions have roles.

pub(super) mod throttle;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tashika_domain::message::address::split_query;

use super::console::session::Sessions;
use super::problem::{Code, Problem};
use super::qstash;
use throttle::{Throttle, Verdict};

/// Who is asking, as rate limits and logs know them; a request extension on protected routes.
///
/// A short hash of the token, which says nothing about the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client(pub String);

impl Client {
    #[must_use]
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }
}

/// The other end of the connection; a request extension set by the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The tokens that may use the API.
#[derive(Clone)]
pub struct Auth(Arc<Inner>);

struct Inner {
    /// Digests, so that comparing takes the same time for every token and no token stays in memory.
    tokens: Vec<(Digest, Client)>,
    throttle: Throttle,
    /// Who has logged in to the console; `None` where there is none.
    sessions: Option<Arc<Sessions>>,
}

type Digest = [u8; 32];

impl Auth {
    #[must_use]
    pub fn new(tokens: &[SecretString]) -> Self {
        Self::with_sessions(tokens, None)
    }

    /// The same, and those who have logged in to the console.
    #[must_use]
    pub fn with_sessions(tokens: &[SecretString], sessions: Option<Arc<Sessions>>) -> Self {
        let tokens = tokens.iter().map(|token| {
            let digest = digest(token.expose_secret().as_bytes());
            (digest, Client(short(&digest)))
        });
        Self(Arc::new(Inner { tokens: tokens.collect(), throttle: Throttle::default(), sessions }))
    }

    #[must_use]
    pub fn sessions(&self) -> Option<&Arc<Sessions>> {
        self.0.sessions.as_ref()
    }

    /// The client that a token stands for.
    #[must_use]
    pub fn client(&self, token: &str) -> Option<Client> {
        let index = self.find(&digest(token.as_bytes()))?;
        self.0.tokens.get(index).map(|(_, client)| client.clone())
    }

    /// Is a token needed at all?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.tokens.is_empty()
    }

    /// Decides about one request, and counts those that are refused.
    pub(super) fn admit(&self, request: &Request) -> Result<Client, Problem> {
        self.check(request).inspect_err(|_| metrics::counter!("auth_failures_total").increment(1))
    }

    fn check(&self, request: &Request) -> Result<Client, Problem> {
        let (in_header, in_query) = (bearer(request), in_query(request));
        if in_header.is_none()
            && in_query.is_none()
            && let Some(sessions) = &self.0.sessions
            && let Some(session) = sessions.of(request.headers())
        {
            let path = request.uri().path();
            sessions.permits(&session, request.method(), path, request.headers())?;
            return Ok(session.client());
        }
        if self.is_open() {
            return loopback_name(request)
                .then(Client::anonymous)
                .ok_or(Problem::new(Code::MisdirectedRequest));
        }
        let peer = request.extensions().get::<Peer>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
        let known = |token: &str| self.find(&digest(token.as_bytes()));
        // A webhook's sender may have a token of its own in the header, which is not ours.
        let known = in_header.and_then(known).or(in_query.as_deref().and_then(known));
        // Whoever presents nothing guesses nothing.
        let Some(presented) = in_header.or(in_query.as_deref()) else {
            return Err(Problem::new(Code::Unauthorized).detail(
                "The request has no API token.",
                "リクエストに API トークンがありません。",
            ));
        };
        match self.0.throttle.judge(peer, known.ok_or(digest(presented.as_bytes()))) {
            Verdict::Pass => {}
            Verdict::Fail => {
                return Err(Problem::new(Code::Unauthorized)
                    .detail("The API token is not known.", "API トークンが正しくありません。"));
            }
            Verdict::Wait(wait) => {
                return Err(Problem::new(Code::RateLimited).retry_after(wait).detail(
                    "Too many wrong API tokens came from this address.",
                    "このアドレスから誤った API トークンが多数送られました。",
                ));
            }
        }
        let client = known.and_then(|index| self.0.tokens.get(index));
        client.map(|(_, client)| client.clone()).ok_or(Problem::new(Code::Unauthorized))
    }

    /// Looks at every token, whichever matches, so that time tells nothing.
    fn find(&self, presented: &Digest) -> Option<usize> {
        let mut found = None;
        for (index, (digest, _)) in self.0.tokens.iter().enumerate() {
            let pairs = digest.iter().zip(presented);
            let difference = pairs.fold(0, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                found = Some(index);
            }
        }
        found
    }
}

/// The layer: lets a request through with its [`Client`], or answers with a problem.
pub async fn require(State(auth): State<Auth>, mut request: Request, next: Next) -> Response {
    match auth.admit(&request) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The queue takes a token in its query too: those who can be told a URL and nothing else use it.
fn in_query(request: &Request) -> Option<String> {
    if !qstash::owns(request.uri().path()) {
        return None;
    }
    let (taken, _) = split_query(request.uri().query()?);
    taken.into_iter().find(|(name, _)| name == "qstash_token").map(|(_, token)| token)
}

/// Is the server addressed by a name of this machine?
///
/// Without tokens the address is the only protection, and a page in a local browser can point a name
/// of its own at a loopback address (DNS rebinding). Such a request carries that name.
fn loopback_name(request: &Request) -> bool {
    is_loopback_name(request.uri(), request.headers())
}

/// The same of the parts of a request.
pub(super) fn is_loopback_name(uri: &Uri, headers: &HeaderMap) -> bool {
    let header = headers.get(HOST).map(|value| value.to_str());
    let host = match (uri.host(), header) {
        (Some(host), _) | (None, Some(Ok(host))) => host,
        (None, Some(Err(_))) => return false,
        // HTTP/1.0; no browser leaves it out.
        (None, None) => return true,
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let local =
        name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    local || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

fn short(digest: &Digest) -> String {
    let number = digest[..6].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("c-{number:012x}")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const TOKEN: &str = "correct-horse-battery-staple";

    fn auth() -> Auth {
        Auth::new(&[SecretString::from("another-token-entirely"), SecretString::from(TOKEN)])
    }

    fn request(authorization: Option<&str>) -> Request {
        let mut request = Request::new(Body::empty());
        if let Some(value) = authorization {
            let value = value.parse().unwrap();
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        request
    }

    #[tokio::test]
    async fn a_known_token_is_a_client_and_anything_else_is_not() {
        let auth = auth();
        let client = auth.check(&request(Some(&format!("Bearer {TOKEN}")))).unwrap();
        assert!(client.0.starts_with("c-") && client.0.len() == 14);
        assert!(!TOKEN.contains(&client.0[2..]));
        let same = auth.check(&request(Some(&format!("bearer  {TOKEN} "))));
        assert_eq!(same.unwrap(), client, "the scheme's case does not matter");
        let other = auth.check(&request(Some("Bearer another-token-entirely"))).unwrap();
        assert_ne!(other, client);
        for bad in [
            None,
            Some("Bearer"),
            Some("Bearer "),
            Some("Bearer wrong"),
            Some("Basic correct-horse-battery-staple"),
            Some("Bearer correct-horse-battery-stapl"),
            Some("Bearer correct-horse-battery-staple2"),
        ] {
            let problem = auth.check(&request(bad)).unwrap_err();
            assert_eq!(problem.code(), Code::Unauthorized, "{bad:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_run_into_a_limit_that_proven_ones_do_not_feel() {
        let auth = auth();
        let right = format!("Bearer {TOKEN}");
        auth.check(&request(Some(&right))).unwrap();
        let mut limited = 0;
        for n in 0..30 {
            let problem = auth.check(&request(Some(&format!("Bearer wrong-{n}")))).unwrap_err();
            limited += usize::from(problem.code() == Code::RateLimited);
        }
        assert_eq!(limited, 20, "ten are answered, the rest must wait");
        auth.check(&request(Some(&right))).unwrap();
        let unproven = request(Some("Bearer another-token-entirely"));
        let problem = auth.check(&unproven).unwrap_err();
        assert_eq!(problem.code(), Code::RateLimited, "it might be a guess");
        let nothing = auth.check(&request(None)).unwrap_err();
        assert_eq!(nothing.code(), Code::Unauthorized, "it is no guess");
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        auth.check(&unproven).unwrap();
    }

    #[test]
    fn without_tokens_everybody_is_anonymous_under_a_loopback_name() {
        let auth = Auth::new(&[]);
        assert_eq!(auth.check(&request(None)).unwrap(), Client::anonymous());
        for (host, passes) in [
            ("localhost:8080", true),
            ("LOCALHOST", true),
            ("tashika.localhost", true),
            ("127.0.0.1:8080", true),
            ("127.9.9.9", true),
            ("[::1]:8080", true),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("10.0.0.1", false),
            ("", false),
        ] {
            let mut request = request(None);
            request.headers_mut().insert(HOST, host.parse().unwrap());
            assert_eq!(auth.check(&request).is_ok(), passes, "{host}");
        }
    }
}
