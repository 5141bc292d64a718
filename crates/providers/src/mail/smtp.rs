//! Mail over SMTP: our own client, small enough to know at each moment what the server has got.
//!
//! What matters here is what is known when something goes wrong, and that is decided by how far the
//! conversation had come ([`Stage`]). The stage moves to `AfterData` before the first byte of the
//! final dot is written, so whatever happens later, a timeout too, is *possibly sent*; whatever
//! happened before is *not sent*.
//!
//! A connection is used again only after a mail for which the server said 250 to the final dot, with
//! nothing left unread. Any other end, a timeout and a cancelled call included, drops it together
//! with the future that owns it: no later mail can take an answer that was meant for an earlier one.
//! A connection that turns out to be closed when it is used again, before the server has accepted
//! anything of the mail, is replaced once by a new one.

mod line;
pub mod reply;
pub mod url;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret as _;
use tashika_domain::mail::{MailResult, Stage, classify};
use tashika_domain::outcome::Exchange;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::mime::Message;
use super::{Parcel, Posted, Postman, observed, told, unsent};
use crate::reply::BoxFuture;
use crate::tls::{self, TlsError};
use line::{Line, Trouble, Wire};
use reply::Reply;
pub use url::{Encryption, Login, SmtpUrl, SmtpUrlError};

/// How long a connection may lie idle and still be used. Servers close them after longer than this.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Mails over one connection. SES cuts connections that live long, so ours do not.
const MAILS_PER_CONNECTION: u32 = 100;

/// Why there can be no postman.
#[derive(Debug, thiserror::Error)]
pub enum SmtpError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the host of SMTP_URL is no name that a certificate could be for")]
    Host,
}

/// Sends over one mail server.
pub struct SmtpPostman {
    url: SmtpUrl,
    server_name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    /// Bounds each attempt as a whole: lookup, connection, TLS, login and mail.
    timeout: Duration,
    idle: Mutex<Vec<(Line, Instant)>>,
}

/// What ended a conversation: an answer, or none and what is known about why.
struct Failed {
    code: Option<u16>,
    text: String,
}

impl Failed {
    fn silent(text: impl Into<String>) -> Self {
        Self { code: None, text: text.into() }
    }

    /// The server ended the conversation: nothing about this mail.
    const fn is_hang_up(&self) -> bool {
        matches!(self.code, None | Some(421))
    }
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::silent(trouble.to_string())
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::silent(error.to_string())
    }
}

impl From<Reply> for Failed {
    fn from(reply: Reply) -> Self {
        Self { code: Some(reply.code), text: reply.text() }
    }
}

/// The reply, if it is one of the expected.
fn expect(reply: Reply, codes: &[u16]) -> Result<Reply, Failed> {
    if codes.contains(&reply.code) { Ok(reply) } else { Err(reply.into()) }
}

impl SmtpPostman {
    pub const NAME: &'static str = "smtp";

    /// `roots_pem`: trust these certificates instead of the machine's. `timeout` bounds each attempt.
    pub fn new(
        url: SmtpUrl,
        roots_pem: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<Self, SmtpError> {
        let server_name = ServerName::try_from(url.host.clone()).map_err(|_| SmtpError::Host)?;
        let tls = Arc::new(tls::client(roots_pem)?);
        Ok(Self { url, server_name, tls, timeout, idle: Mutex::new(Vec::new()) })
    }

    async fn post(&self, parcel: &Parcel) -> Posted {
        let message = match Message::of(parcel) {
            Ok(message) => message,
            Err(unfit) => return unsent(format!("SMTP {}", self.url), unfit.class, unfit.why),
        };
        let started = Instant::now();
        let mut stage = Stage::Connect;
        let ended = timeout(self.timeout, self.attempt(&message, &mut stage)).await;
        let ended = ended.unwrap_or_else(|_| {
            let waited = self.timeout.as_millis();
            Err(Failed::silent(format!("no answer within {waited} ms")))
        });
        let (result, said) = concluded(ended, stage, &message);
        let exchange = Exchange {
            request: format!(
                "SMTP {} RCPT TO:<{}> {} bytes, Message-ID {}",
                self.url,
                message.to.masked(),
                message.bytes.len(),
                parcel.message_id
            ),
            reply: said,
            reference: match &result {
                MailResult::Sent { response } => queued_as(response),
                MailResult::Refused { .. } => None,
            },
            sent: stage >= Stage::Data,
        };
        Posted { result, exchange, rtt: started.elapsed() }
    }

    async fn attempt(&self, message: &Message, stage: &mut Stage) -> Result<Reply, Failed> {
        if let Some(line) = self.take_idle() {
            match self.converse(line, message, stage).await {
                // It was closed while it lay there. Nothing of the mail was accepted.
                Err(failed) if *stage == Stage::MailFrom && failed.is_hang_up() => {}
                ended => return ended,
            }
        }
        let line = self.connect(stage).await?;
        self.converse(line, message, stage).await
    }

    /// One mail, over a connection that nobody else has. It is kept only if all went well.
    async fn converse(
        &self,
        mut line: Line,
        message: &Message,
        stage: &mut Stage,
    ) -> Result<Reply, Failed> {
        *stage = Stage::MailFrom;
        let ended = deliver(&mut line, message, stage).await;
        match &ended {
            Ok(_) => self.keep(line),
            // Good manners, while the server listens; whether it hears them does not matter.
            Err(failed) if !failed.is_hang_up() => line.wave(b"QUIT\r\n"),
            Err(_) => {}
        }
        ended
    }

    fn take_idle(&self) -> Option<Line> {
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since)| now.duration_since(*since) < IDLE_MAX);
        while let Some((mut line, _)) = idle.pop() {
            if line.is_silent() {
                return Some(line);
            }
        }
        None
    }

    fn keep(&self, mut line: Line) {
        line.carried += 1;
        if line.carried < MAILS_PER_CONNECTION && line.is_silent() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((line, Instant::now()));
        }
    }

    /// A connection on which a mail can begin.
    async fn connect(&self, stage: &mut Stage) -> Result<Line, Failed> {
        *stage = Stage::Connect;
        let tcp = self.dial().await?;
        let me = literal(tcp.local_addr()?);
        let mut line = match self.url.encryption {
            Encryption::Tls => {
                *stage = Stage::Tls;
                let mut line = self.encrypt(Box::new(tcp)).await?;
                *stage = Stage::Greeting;
                expect(line.hear().await?, &[220])?;
                line
            }
            Encryption::None | Encryption::StartTls => {
                let mut line = Line::new(Box::new(tcp));
                *stage = Stage::Greeting;
                expect(line.hear().await?, &[220])?;
                line
            }
        };
        *stage = Stage::Ehlo;
        let mut offers = greet(&mut line, &me).await?;
        if self.url.encryption == Encryption::StartTls {
            *stage = Stage::Tls;
            if !offers.has("STARTTLS") {
                return Err(Failed::silent("the server does not offer STARTTLS"));
            }
            expect(line.ask("STARTTLS").await?, &[220])?;
            // Whatever is here already was not encrypted: somebody in between put it there.
            if !line.is_silent() {
                return Err(Failed::silent("the server spoke before TLS began"));
            }
            line = self.encrypt(line.into_wire()).await?;
            // What was offered before counts no longer (RFC 3207 §4.2).
            *stage = Stage::Ehlo;
            offers = greet(&mut line, &me).await?;
        }
        line.size_max = offers.size_max();
        if let Some(login) = &self.url.login {
            *stage = Stage::Auth;
            authenticate(&mut line, login, &offers).await.map_err(|failed| {
                // No server should repeat it; what is written down must not.
                let text = failed.text.replace(login.password.expose_secret(), "***");
                Failed { text, ..failed }
            })?;
        }
        Ok(line)
    }

    /// Tries the addresses of the name one after the other, each with its share of half of the time.
    async fn dial(&self) -> Result<TcpStream, Failed> {
        let found = tokio::net::lookup_host((self.url.host.as_str(), self.url.port)).await;
        let found = found.map_err(|error| Failed::silent(format!("name lookup: {error}")))?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        if self.url.encryption == Encryption::None {
            // The URL says so, but names resolve to what others say.
            addresses.retain(|address| address.ip().is_loopback());
        }
        let share = self.timeout / u32::try_from(addresses.len() * 2).unwrap_or(u32::MAX).max(1);
        let mut failed = Failed::silent("the name has no address");
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => {
                    tcp.set_nodelay(true)?;
                    return Ok(tcp);
                }
                Ok(Err(error)) => failed = error.into(),
                Err(_) => failed = Failed::silent("no connection in time"),
            }
        }
        Err(failed)
    }

    async fn encrypt(&self, wire: Box<dyn Wire>) -> Result<Line, Failed> {
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let encrypted = connector.connect(self.server_name.clone(), wire).await?;
        Ok(Line::new(Box::new(encrypted)))
    }

    async fn try_out(&self) -> Result<(), String> {
        let mut stage = Stage::Connect;
        let work = async {
            let mut line = self.connect(&mut stage).await?;
            expect(line.ask("NOOP").await?, &[250])?;
            // The connection has shown what it should.
            line.ask("QUIT").await.ok();
            Ok::<(), Failed>(())
        };
        let ended = timeout(self.timeout, work).await.unwrap_or_else(|_| {
            let waited = self.timeout.as_millis();
            Err(Failed::silent(format!("no answer within {waited} ms")))
        });
        ended.map_err(|failed| format!("{}, {}", self.url, described(&failed, stage)))
    }
}

/// The mail itself. An error leaves `stage` where it happened.
async fn deliver(line: &mut Line, message: &Message, stage: &mut Stage) -> Result<Reply, Failed> {
    let stuffed = message.stuffed();
    if let Some(max) = line.size_max.filter(|max| stuffed.len() as u64 > *max) {
        let text = format!("Message is too long: the server takes {max} bytes at most");
        return Err(Failed { code: Some(552), text });
    }
    expect(line.ask(&format!("MAIL FROM:<{}>", message.from)).await?, &[250])?;
    *stage = Stage::RcptTo;
    expect(line.ask(&format!("RCPT TO:<{}>", message.to)).await?, &[250, 251])?;
    *stage = Stage::Data;
    expect(line.ask("DATA").await?, &[354])?;
    line.write(&stuffed).await?;
    // From here on the server may have it.
    *stage = Stage::AfterData;
    line.write(b".\r\n").await?;
    expect(line.hear().await?, &[250])
}

/// What the server can do.
struct Offers(Vec<String>);

impl Offers {
    fn words<'a>(&'a self, keyword: &str) -> Option<impl Iterator<Item = &'a str>> {
        self.0.iter().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            words.next().filter(|first| first.eq_ignore_ascii_case(keyword)).map(|_| words)
        })
    }

    fn has(&self, keyword: &str) -> bool {
        self.words(keyword).is_some()
    }

    fn logs_in_with(&self, mechanism: &str) -> bool {
        let known = self.words("AUTH");
        known.is_some_and(|mut known| known.any(|word| word.eq_ignore_ascii_case(mechanism)))
    }

    /// RFC 1870: zero is no limit.
    fn size_max(&self) -> Option<u64> {
        self.words("SIZE")?.next()?.parse().ok().filter(|max| *max > 0)
    }
}

async fn greet(line: &mut Line, me: &str) -> Result<Offers, Failed> {
    let reply = expect(line.ask(&format!("EHLO {me}")).await?, &[250])?;
    Ok(Offers(reply.lines.into_iter().skip(1).collect()))
}

/// How we call ourselves: by our address, which is always true (RFC 5321 §4.1.3).
fn literal(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => format!("[{}]", address.ip()),
        SocketAddr::V6(address) => format!("[IPv6:{}]", address.ip()),
    }
}

async fn authenticate(line: &mut Line, login: &Login, offers: &Offers) -> Result<(), Failed> {
    let password = login.password.expose_secret();
    if offers.logs_in_with("PLAIN") {
        let both = STANDARD.encode(format!("\0{}\0{password}", login.user));
        expect(line.ask(&format!("AUTH PLAIN {both}")).await?, &[235])?;
    } else if offers.logs_in_with("LOGIN") {
        expect(line.ask("AUTH LOGIN").await?, &[334])?;
        expect(line.ask(&STANDARD.encode(&login.user)).await?, &[334])?;
        expect(line.ask(&STANDARD.encode(password)).await?, &[235])?;
    } else {
        return Err(Failed::silent("the server does not offer a login with PLAIN or LOGIN"));
    }
    Ok(())
}

/// The result, and the words for the evidence.
fn concluded(
    ended: Result<Reply, Failed>,
    stage: Stage,
    message: &Message,
) -> (MailResult, String) {
    match ended {
        Ok(reply) => {
            let text = reply.text();
            // Often an id with an @ in it, which masking would spoil; never the recipient.
            let names =
                text.to_ascii_lowercase().contains(&message.to.as_str().to_ascii_lowercase());
            let response = if names { told(&text) } else { text };
            let said = format!("{} {response}", reply.code);
            (MailResult::Sent { response }, said)
        }
        Err(failed) => {
            let class = classify(stage, failed.code, &failed.text);
            let said = described(&failed, stage);
            let text = told(&failed.text);
            (MailResult::Refused { class, code: failed.code, text }, said)
        }
    }
}

fn described(failed: &Failed, stage: Stage) -> String {
    let (at, text) = (stage.as_str(), told(&failed.text));
    match failed.code {
        Some(code) => format!("at {at}: {code} {text}"),
        None => format!("at {at}: {text}"),
    }
}

/// The server's id for the mail, in the ways of SES (`Ok 0100…`) and Postfix (`queued as 4F…`).
fn queued_as(response: &str) -> Option<String> {
    let words: Vec<&str> = response.split_ascii_whitespace().collect();
    let after = |first: &str, second: &str| {
        let at = words.windows(3).position(|three| three[0] == first && three[1] == second)?;
        words.get(at + 2)
    };
    let id = match words.as_slice() {
        ["Ok" | "OK", id] => Some(id),
        _ => after("queued", "as"),
    };
    id.map(|id| (*id).to_owned())
}

impl Postman for SmtpPostman {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn send<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Posted> {
        Box::pin(observed(Self::NAME, self.post(parcel)))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.try_out())
    }
}

impl std::fmt::Debug for SmtpPostman {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SmtpPostman").field(&self.url).finish()
    }
}

#[cfg(test)]
mod tests {
    use tashika_domain::mail::MailFault;

    use super::*;

    #[test]
    fn ids_are_found_in_what_servers_say() {
        for (said, id) in [
            ("Ok 010001-abc", Some("010001-abc")),
            ("2.0.0 Ok: queued as 4FZx12", Some("4FZx12")),
            ("OK", None),
            ("Message accepted", None),
        ] {
            assert_eq!(queued_as(said).as_deref(), id, "{said}");
        }
    }

    #[test]
    fn extensions_are_read_in_any_case() {
        let offers = Offers(vec!["size 100".into(), "Auth LOGIN plain".into(), "STARTTLS".into()]);
        assert!(offers.has("starttls") && offers.logs_in_with("PLAIN"));
        assert_eq!(offers.size_max(), Some(100));
        assert!(!offers.logs_in_with("XOAUTH2"));
        assert_eq!(Offers(vec!["SIZE 0".into()]).size_max(), None);
        assert_eq!(Offers(vec!["SIZE".into()]).size_max(), None);
    }

    #[test]
    fn a_hang_up_says_nothing_about_the_mail() {
        assert!(Failed::silent("closed").is_hang_up());
        assert!(Failed { code: Some(421), text: String::new() }.is_hang_up());
        assert!(!Failed { code: Some(450), text: String::new() }.is_hang_up());
    }

    #[test]
    fn evidence_names_the_step() {
        let failed = Failed { code: Some(550), text: "5.1.1 no taro@example.com here".into() };
        let said = described(&failed, Stage::RcptTo);
        assert_eq!(said, "at RCPT TO: 550 5.1.1 no t***@example.com here");
        assert_eq!(classify(Stage::RcptTo, Some(550), &failed.text), MailFault::Recipient);
    }
}
