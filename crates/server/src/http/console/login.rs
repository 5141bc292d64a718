//! Logging in and out.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tashika_domain::audit::{Actor, NewAudit, line_id};
use tashika_domain::{Changes, Write};
use tashika_store::CommitError;

use super::session::{CSRF_HEADER, Session, Sessions, no_cookie};
use super::{Face, unkept};
use crate::config::Role;
use crate::http::auth::{Peer, is_loopback_name};
use crate::http::json::JsonBody;
use crate::http::problem::{Code, Problem};
use crate::http::unavailable;
use crate::password::same;

/// Longest name, password or token that is looked at.
const LONGEST: usize = 1024;

/// Who is asking, and whether they must log in first.
pub(super) async fn session(State(face): State<Arc<Face>>, headers: HeaderMap) -> Response {
    let known = face.auth.sessions().and_then(|all| all.of(&headers).map(|one| (all, one)));
    let body = match known {
        Some((all, session)) => about(all, &session),
        None if face.needs_login() => json!({
            "authenticated": false,
            "open": false,
            "users": face.auth.sessions().is_some_and(|sessions| !sessions.users.is_empty()),
            "tokens": !face.auth.is_open(),
        }),
        // Everybody who reaches a server without tokens may do everything, here as in the API.
        None => json!({
            "authenticated": true,
            "open": true,
            "name": "anonymous",
            "role": Role::Operator.as_str(),
        }),
    };
    (unkept(), Json(body)).into_response()
}

fn about(sessions: &Sessions, session: &Session) -> Value {
    json!({
        "authenticated": true,
        "open": false,
        "name": session.name,
        "role": session.role.as_str(),
        "expiresAt": session.expires_at,
        "csrf": sessions.csrf(session),
    })
}

/// `{"name", "password"}` or `{"token"}`.
pub(super) async fn login(
    State(face): State<Arc<Face>>,
    parts: Parts,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let sessions = face.auth.sessions().ok_or(Problem::new(Code::NotFound))?;
    let peer = parts.extensions.get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
    let asked = Credentials::read(&body)?;
    // Checking a password is slow on purpose: a few at a time, and whoever fails often waits.
    let place = face.logins.acquire().await.map_err(|_| Problem::new(Code::ServerBusy))?;
    if let Some(wait) = face.throttle.wait(peer) {
        return Err(Problem::new(Code::RateLimited).retry_after(wait).detail(
            "Too many failed logins came from this address.",
            "このアドレスから失敗したログインが多数ありました。",
        ));
    }
    let found = check(&face, sessions, asked).await;
    drop(place);
    let Some((name, role)) = found else {
        face.throttle.failed(peer);
        metrics::counter!("auth_failures_total").increment(1);
        tracing::warn!(%peer, "a login to the console failed");
        return Err(Problem::new(Code::LoginFailed));
    };
    let (session, value) = sessions.begin(&name, role).ok_or(Problem::new(Code::InternalError))?;
    note(&face, &session, "console.logged_in").await?;
    tracing::info!(%peer, who = session.client().0, role = role.as_str(), "somebody logged in to the console");
    let secure = !is_loopback_name(&parts.uri, &parts.headers);
    let cookie = sessions.cookie(&value, secure);
    Ok((unkept(), [(SET_COOKIE, header(&cookie)?)], Json(about(sessions, &session)))
        .into_response())
}

/// Ends the session of the request, if it has one.
pub(super) async fn logout(
    State(face): State<Arc<Face>>,
    parts: Parts,
) -> Result<Response, Problem> {
    if let Some(sessions) = face.auth.sessions()
        && let Some(session) = sessions.of(&parts.headers)
    {
        // A viewer may leave, too; nobody may be made to.
        let sent = parts.headers.get(CSRF_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        if !same(sent, sessions.csrf(&session).as_bytes()) {
            return Err(Problem::new(Code::CsrfTokenInvalid));
        }
        sessions.end(&session);
        note(&face, &session, "console.logged_out").await?;
    }
    let secure = !is_loopback_name(&parts.uri, &parts.headers);
    let cookie = header(&no_cookie(secure))?;
    Ok((StatusCode::NO_CONTENT, unkept(), [(SET_COOKIE, cookie)]).into_response())
}

fn header(text: &str) -> Result<HeaderValue, Problem> {
    text.parse().map_err(|_| Problem::new(Code::InternalError))
}

enum Credentials {
    Password { name: String, password: String },
    Token(String),
}

impl Credentials {
    fn read(body: &Value) -> Result<Self, Problem> {
        let text = |name: &str| {
            let text = body[name].as_str().filter(|text| (1..=LONGEST).contains(&text.len()));
            text.map(str::to_owned)
        };
        let fields = body.as_object().map_or(0, serde_json::Map::len);
        match (text("name"), text("password"), text("token")) {
            (Some(name), Some(password), None) if fields == 2 => {
                Ok(Self::Password { name, password })
            }
            (None, None, Some(token)) if fields == 1 => Ok(Self::Token(token)),
            _ => Err(Problem::new(Code::BadRequest).detail(
                "The body is neither {\"name\", \"password\"} nor {\"token\"}.",
                "本文は {\"name\", \"password\"} または {\"token\"} である必要があります。",
            )),
        }
    }
}

async fn check(face: &Face, sessions: &Sessions, asked: Credentials) -> Option<(String, Role)> {
    match asked {
        Credentials::Token(token) => {
            let client = face.auth.client(&token)?;
            Some((client.0, Role::Operator))
        }
        Credentials::Password { name, password } => {
            let known = sessions.users.iter().find(|user| user.name == name).cloned();
            // For a name that nobody has, somebody else's password is checked: the time tells nothing.
            let user = known.clone().or_else(|| sessions.users.first().cloned())?;
            let fits = tokio::task::spawn_blocking(move || user.password.fits(&password));
            let fits = fits.await.unwrap_or(false);
            known.filter(|_| fits).map(|user| (user.name, user.role))
        }
    }
}

/// Who came and went stands in the audit log. A login that cannot be written there does not happen.
async fn note(face: &Face, session: &Session, action: &str) -> Result<(), Problem> {
    let now = face.clock.now();
    let line = NewAudit {
        id: line_id(now, &session.id, action, face.ids.number()),
        actor: Actor { id: Some(session.client().0), role: session.role.as_str() },
        action: action.to_owned(),
        target_type: "console",
        target_id: session.name.clone(),
        office_id: None,
        details: json!({"role": session.role.as_str()}).to_string(),
        now,
    };
    match face.store.commit(Changes::from(Write::Audit(Box::new(line)))).await {
        Ok(()) => Ok(()),
        Err(CommitError::Store(error)) => Err(unavailable(&error)),
        Err(error) => {
            tracing::error!(%error, "a login could not be written down");
            Err(Problem::new(Code::InternalError))
        }
    }
}
