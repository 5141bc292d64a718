//! Sessions: who has logged in to the console, told by a signed cookie.
//!
//! A session is not stored. The cookie says who, what they may do and until when, and a MAC under a key
//! that is derived from the configured users and tokens proves that this server, or another one with
//! the same configuration, has written it. So several processes share sessions without asking each
//! other, and a changed password or token ends them. A logout is remembered by the process that heard
//! it; elsewhere a copied cookie is good until its time is over.
//!
//! Requests that change something need the session's CSRF token in a header besides: another site can
//! make a browser send the cookie, but it cannot read the token.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::COOKIE;
use http::{HeaderMap, Method};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tashika_domain::Timestamp;
use tashika_engine::Clock;

use crate::config::{Config, Role, User};
use crate::http::auth::Client;
use crate::http::problem::{Code, Problem};
use crate::password::same;

/// The cookie over plain HTTP, which is good for this machine only, and over TLS. The prefix makes
/// browsers refuse one that a neighbouring host name has set.
const COOKIE_LOCAL: &str = "tashika_session";
const COOKIE_TLS: &str = "__Host-tashika_session";

/// The header that a page of ours sends with every request that changes something.
pub const CSRF_HEADER: &str = "x-csrf-token";

/// The one read that hands out secrets.
const KEYS: &str = "/v2/keys";

/// Logouts that are remembered; beyond it those that end soonest are forgotten.
const LOGOUTS_MAX: usize = 10_000;

/// Somebody who has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub expires_at: Timestamp,
}

impl Session {
    /// The name in audit lines and limits.
    #[must_use]
    pub fn client(&self) -> Client {
        Client(format!("console:{}", self.name))
    }
}

/// Makes sessions, and recognises them.
pub struct Sessions {
    key: [u8; 32],
    life: Duration,
    pub users: Vec<User>,
    clock: Clock,
    /// Sessions that were ended early, and when they would have ended anyhow.
    ended: Mutex<HashMap<String, Timestamp>>,
}

impl Sessions {
    #[must_use]
    pub fn new(config: &Config, clock: Clock) -> Self {
        Self {
            key: derived(&config.tokens, &config.console.users),
            life: config.console.session,
            users: config.console.users.clone(),
            clock,
            ended: Mutex::default(),
        }
    }

    /// A new session, and its cookie's value. `None` without randomness.
    #[must_use]
    pub fn begin(&self, name: &str, role: Role) -> Option<(Session, String)> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).ok()?;
        let session = Session {
            id: BASE64.encode(id),
            name: name.to_owned(),
            role,
            expires_at: self.clock.now().plus(self.life),
        };
        let value = self.write(&session);
        Some((session, value))
    }

    fn write(&self, session: &Session) -> String {
        let Session { id, name, role, expires_at } = session;
        let role = role.as_str();
        let said = BASE64.encode(format!("{id}\n{role}\n{}\n{name}", expires_at.as_micros()));
        let proof = BASE64.encode(self.mac("session", said.as_bytes()));
        format!("{said}.{proof}")
    }

    /// The session that a cookie's value proves.
    #[must_use]
    pub fn read(&self, value: &str) -> Option<Session> {
        let (said, proof) = value.split_once('.')?;
        let proof = BASE64.decode(proof).ok()?;
        if !same(&self.mac("session", said.as_bytes()), &proof) {
            return None;
        }
        let said = String::from_utf8(BASE64.decode(said).ok()?).ok()?;
        let mut parts = said.splitn(4, '\n');
        let session = Session {
            id: parts.next()?.to_owned(),
            role: Role::parse(parts.next()?)?,
            expires_at: Timestamp::from_micros(parts.next()?.parse().ok()?),
            name: parts.next()?.to_owned(),
        };
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = session.expires_at > self.clock.now() && !ended.contains_key(&session.id);
        alive.then_some(session)
    }

    /// The session of a request, if its cookie proves one.
    #[must_use]
    pub fn of(&self, headers: &HeaderMap) -> Option<Session> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs =
            cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
        let mut values = pairs
            .filter(|(name, _)| [COOKIE_LOCAL, COOKIE_TLS].contains(&name.trim()))
            .map(|(_, value)| value.trim());
        values.find_map(|value| self.read(value))
    }

    /// What a session must send along with requests that change something.
    #[must_use]
    pub fn csrf(&self, session: &Session) -> String {
        BASE64.encode(self.mac("csrf", session.id.as_bytes()))
    }

    /// Whether a session may make a request.
    pub fn permits(
        &self,
        session: &Session,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        // Whoever has the signing keys can speak in our name: that is more than looking.
        if session.role != Role::Operator && path.starts_with(KEYS) {
            return Err(Problem::new(Code::RoleNotAllowed));
        }
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(());
        }
        if session.role != Role::Operator {
            return Err(Problem::new(Code::RoleNotAllowed));
        }
        let sent = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        let sent = sent.unwrap_or_default();
        if same(sent.as_bytes(), self.csrf(session).as_bytes()) {
            Ok(())
        } else {
            Err(Problem::new(Code::CsrfTokenInvalid))
        }
    }

    /// Ends a session before its time.
    pub fn end(&self, session: &Session) {
        let now = self.clock.now();
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|_, until| *until > now);
        if ended.len() >= LOGOUTS_MAX {
            let soonest = ended.iter().min_by_key(|(_, until)| **until).map(|(id, _)| id.clone());
            if let Some(soonest) = soonest {
                ended.remove(&soonest);
            }
        }
        ended.insert(session.id.clone(), session.expires_at);
    }

    /// `Set-Cookie` for a session. Over TLS, which is everywhere but on this machine, it never
    /// travels readable.
    #[must_use]
    pub fn cookie(&self, value: &str, secure: bool) -> String {
        set_cookie(value, self.life, secure)
    }

    fn mac(&self, purpose: &str, text: &[u8]) -> [u8; 32] {
        let mut mac = keyed(&self.key);
        mac.update(purpose.as_bytes());
        mac.update(b"\0");
        mac.update(text);
        mac.finalize().into_bytes().into()
    }
}

/// `Set-Cookie` that removes it.
#[must_use]
pub fn no_cookie(secure: bool) -> String {
    set_cookie("", Duration::ZERO, secure)
}

fn set_cookie(value: &str, life: Duration, secure: bool) -> String {
    let (name, end) = if secure { (COOKIE_TLS, "; Secure") } else { (COOKIE_LOCAL, "") };
    let seconds = life.as_secs();
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{end}")
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of any length"),
    }
}

/// The key: from what the configuration keeps secret. The order in which it is written does not
/// matter. Without users and tokens there is nobody to have a session.
fn derived(tokens: &[SecretString], users: &[User]) -> [u8; 32] {
    let mut parts: Vec<String> = tokens
        .iter()
        .map(|token| format!("token {}", token.expose_secret()))
        .chain(users.iter().map(|user| {
            format!("user {} {} {}", user.name, user.role.as_str(), user.password.text())
        }))
        .collect();
    parts.sort();
    let mut hash = Sha256::new();
    hash.update(b"tashika console sessions");
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(tokens: &str) -> Config {
        let pairs = [("TASHIKA_API_TOKENS", tokens), ("CONSOLE_SESSION_SEC", "60")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Config::from_sources(&Sources { file: None, environment: pairs.into() }).unwrap()
    }

    fn sessions(tokens: &str) -> Sessions {
        Sessions::new(&config(tokens), Clock::simulated(Timestamp::from_micros(1_000_000)))
    }

    fn headers(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, cookie.parse().unwrap());
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_recognised_by_every_process_with_the_same_configuration() {
        let here = sessions("one-token,another-token");
        let (session, value) = here.begin("aiko", Role::Operator).unwrap();
        let there = sessions("another-token,one-token");
        assert_eq!(there.read(&value), Some(session.clone()), "the order does not matter");
        assert_eq!(there.csrf(&session), here.csrf(&session));
        assert_eq!(sessions("one-token").read(&value), None, "a removed token ends sessions");
        assert_eq!(
            here.of(&headers(&format!("a=b; tashika_session={value}"))),
            Some(session.clone())
        );
        assert_eq!(
            here.of(&headers(&format!("__Host-tashika_session={value}"))),
            Some(session.clone())
        );
        assert_eq!(here.of(&headers(&format!("other={value}"))), None);
        assert_eq!(session.client().0, "console:aiko");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(here.read(&value), None, "its time is over");
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_was_changed_is_not_a_session() {
        let here = sessions("one-token");
        let (session, value) = here.begin("ken", Role::Viewer).unwrap();
        let (said, proof) = value.split_once('.').unwrap();
        let other = Session { role: Role::Operator, ..session.clone() };
        let forged = here.write(&other);
        let forged = forged.split_once('.').unwrap().0;
        let csrf = here.csrf(&session);
        for bad in [
            "",
            ".",
            "x.y",
            said,
            &format!("{said}."),
            &format!("{said}.{}", &proof[1..]),
            &format!("{forged}.{proof}"),
            &format!("{said}.{csrf}"),
        ] {
            assert_eq!(here.read(bad), None, "{bad}");
        }
        here.end(&session);
        assert_eq!(here.read(&value), None, "logged out");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_need_the_role_and_the_token_of_the_session() {
        let here = sessions("one-token");
        let (viewer, _) = here.begin("ken", Role::Viewer).unwrap();
        let (operator, _) = here.begin("aiko", Role::Operator).unwrap();
        let with = |token: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CSRF_HEADER, token.parse().unwrap());
            headers
        };
        let refused = |session, method: Method, headers: &HeaderMap| {
            here.permits(session, &method, "/payments", headers).err().map(|problem| problem.code())
        };
        let none = HeaderMap::new();
        assert_eq!(refused(&viewer, Method::GET, &none), None);
        let keys = |session| here.permits(session, &Method::GET, "/v2/keys", &none).is_ok();
        assert_eq!((keys(&viewer), keys(&operator)), (false, true));
        let own = with(&here.csrf(&viewer));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(refused(&viewer, method.clone(), &own), Some(Code::RoleNotAllowed));
            let others = with(&here.csrf(&viewer));
            for headers in [&none, &with("x"), &others] {
                let problem = refused(&operator, method.clone(), headers);
                assert_eq!(problem, Some(Code::CsrfTokenInvalid), "{method}");
            }
            assert_eq!(refused(&operator, method, &with(&here.csrf(&operator))), None);
        }
    }

    #[test]
    fn cookies_are_for_this_site_only_and_not_for_scripts() {
        let cookie = no_cookie(true);
        assert!(cookie.starts_with("__Host-tashika_session=; Path=/;"), "{cookie}");
        for part in ["HttpOnly", "SameSite=Strict", "Max-Age=0", "Secure"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!no_cookie(false).contains("Secure"));
    }
}
