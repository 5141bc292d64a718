//! The scripted broker behind a real socket, speaking the wire protocol of `providers::broker::http`.
//!
//! Written on the bare socket, because a test wants it to do what no HTTP library allows: hang up after executing, stop in the
//! middle of a reply. It checks what an honest broker would check: the signature and that no nonce comes twice.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_domain::order::{Execution, OrderRequest, broker_code};
use tashika_domain::outcome::Reason;
use tashika_providers::broker::Whereabouts;
use tashika_providers::signature::{self, Signed};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::{Answer, Said, ScriptedBroker};
use crate::wire::{Heard, decoded, read, reply};

/// Where the protocol starts: below a path, as real brokers have it.
const BASE: &str = "/v1";
const SECRET: &str = "the broker's secret";

/// How the server answers a repeat that it recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// As it did the first time.
    Replay,
    /// 409 "already processed", with the execution.
    ConflictWithExecution,
    /// 409 "already processed", without it: the client has to ask.
    Conflict,
}

/// A server on a free loopback port. It ends with this value.
pub struct BrokerServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    broker: ScriptedBroker,
    repeats: Repeats,
    nonces: Mutex<BTreeSet<String>>,
    turned_away: Mutex<Vec<&'static str>>,
}

impl BrokerServer {
    /// Serves what the broker's script says.
    ///
    /// # Panics
    ///
    /// When there is no free port.
    pub async fn start(broker: &ScriptedBroker, repeats: Repeats) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            broker: broker.clone(),
            repeats,
            nonces: Mutex::default(),
            turned_away: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// What the profile of the broker must say.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}{BASE}", self.address)
    }

    #[must_use]
    pub fn secret() -> SecretString {
        SecretString::from(SECRET)
    }

    /// Why requests were not even looked at, in the order in which they came.
    #[must_use]
    pub fn turned_away(&self) -> Vec<&'static str> {
        self.shared.turned_away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for BrokerServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&shared)));
    }
}

/// Serves one connection until the client hangs up, or until the script says that we do.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    while let Some(heard) = read(&mut stream).await {
        let Some(bytes) = shared.respond(&heard).await else { return };
        // A client that has hung up does not hear the rest; that is its affair.
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// The bytes of the reply; `None` hangs up.
    async fn respond(&self, heard: &Heard) -> Option<Vec<u8>> {
        let at = match self.check(heard) {
            Ok(at) => at,
            Err(problem) => {
                self.turned_away.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
                return Some(reply(401, "", &json!({ "code": problem })));
            }
        };
        let path = heard.path.strip_prefix(BASE).unwrap_or_default();
        match (heard.method.as_str(), path, path.strip_prefix("/orders/").map(decoded)) {
            ("POST", "/orders", _) => self.place(heard, at).await,
            ("GET", _, Some(id)) => self.locate(&id),
            ("DELETE", _, Some(id)) if self.broker.withdraw(&id) => {
                Some(reply(204, "", &json!({})))
            }
            ("DELETE", _, Some(_)) => Some(reply(409, "", &json!({"code": "ALREADY_PROCESSED"}))),
            ("GET", "/health", _) => Some(reply(200, "", &json!({"status": "ok"}))),
            _ => Some(reply(404, "", &json!({"code": "NO_SUCH_ENDPOINT"}))),
        }
    }

    /// Whether the request comes from whom it says, and is none that was heard before.
    fn check(&self, heard: &Heard) -> Result<Timestamp, &'static str> {
        let header = |name: &str| heard.header(name).ok_or("HEADER_MISSING");
        let (path, query) = heard.path.split_once('?').unwrap_or((&heard.path, ""));
        let timestamp_ms = header("x-broker-timestamp")?.parse().map_err(|_| "BAD_TIMESTAMP")?;
        let nonce = header("x-broker-nonce")?;
        let method = &heard.method;
        let signed = Signed { method, path, query, body: &heard.body, timestamp_ms, nonce };
        if !signature::verify(&BrokerServer::secret(), &signed, header("x-broker-signature")?) {
            return Err("BAD_SIGNATURE");
        }
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        if !nonces.insert(nonce.to_owned()) {
            return Err("NONCE_REPEATED");
        }
        Ok(Timestamp::from_micros(timestamp_ms.saturating_mul(1000)))
    }

    async fn place(&self, heard: &Heard, now: Timestamp) -> Option<Vec<u8>> {
        let body = String::from_utf8_lossy(&heard.body);
        let Ok(order) = OrderRequest::from_stored(&body) else {
            return Some(reply(400, "", &json!({"code": "MALFORMED"})));
        };
        let id = order.idempotency_key.clone();
        if heard.header("x-client-order-id") != Some(&id) {
            return Some(reply(400, "", &json!({"code": "CLIENT_ORDER_ID"})));
        }
        // What the profile says and what the header says must agree, or nothing here means anything.
        let key = heard.header("idempotency-key");
        if self.broker.takes_keys != (key == Some(&id)) {
            return Some(reply(400, "", &json!({"code": "IDEMPOTENCY_KEY"})));
        }
        let known = key.is_some() && self.broker.executed(&id) > 0;
        Some(match self.broker.perform(&order, key, now).await {
            Said::Executed(execution) if known && self.repeats != Repeats::Replay => {
                let mut conflict = json!({"code": "ALREADY_PROCESSED"});
                if self.repeats == Repeats::ConflictWithExecution {
                    conflict["execution"] = report(&id, &execution);
                }
                reply(409, "", &conflict)
            }
            Said::Executed(execution) => reply(201, "", &report(&id, &execution)),
            Said::Nothing => return None,
            Said::Refused(reason) => refusal(&reason),
            Said::Busy(retry_after) => {
                let seconds =
                    retry_after.map(|span| format!("retry-after: {}\r\n", span.as_secs()));
                reply(429, &seconds.unwrap_or_default(), &json!({"code": "RATE_LIMITED"}))
            }
            Said::Failed => reply(500, "", &json!({"message": "something went wrong"})),
        })
    }

    fn locate(&self, id: &str) -> Option<Vec<u8>> {
        Some(match self.broker.answer(id) {
            Answer::Told(Whereabouts::Executed(execution)) => {
                reply(200, "", &report(id, &execution))
            }
            Answer::Told(Whereabouts::Working) => reply(200, "", &json!({"status": "working"})),
            Answer::Told(Whereabouts::NotFound) => {
                reply(404, "", &json!({"code": "ORDER_NOT_FOUND"}))
            }
            Answer::Told(Whereabouts::Rejected(reason)) => {
                let rejected =
                    json!({"status": "rejected", "code": reason.code, "message": reason.message});
                reply(200, "", &rejected)
            }
            Answer::Nothing => return None,
            Answer::Busy => reply(429, "", &json!({"code": "RATE_LIMITED"})),
        })
    }
}

fn report(id: &str, execution: &Execution) -> Value {
    let mut report = json!(execution);
    report["status"] = json!("executed");
    report["client_order_id"] = json!(id);
    report
}

fn refusal(reason: &Reason) -> Vec<u8> {
    let status = if reason.code == broker_code::UNAUTHORIZED { 403 } else { 422 };
    reply(status, "", &json!({"code": reason.code, "message": reason.message}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn what_is_not_signed_is_not_looked_at() {
        let broker = ScriptedBroker::with_keys();
        let server = BrokerServer::start(&broker, Repeats::Replay).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let unsigned = "POST /v1/orders HTTP/1.1\r\nx-broker-timestamp: 1\r\nx-broker-nonce: 1\r\n\
             x-broker-signature: 00\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(unsigned.as_bytes()).await.unwrap();
        let mut said = [0; 12];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"HTTP/1.1 401");
        assert_eq!(server.turned_away(), ["BAD_SIGNATURE"]);
        assert!(broker.seen().heard.is_empty());
    }
}
