//! What every case stands on: the binary as a process, a client, a broker, and a look at the rows.

pub mod http;
pub mod mail;
pub mod payments;
pub mod process;
pub mod rows;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tashika_testkit::broker::ScriptedBroker;
use tashika_testkit::broker::server::{BrokerServer, Repeats};

pub use http::{Answer, Request};
pub use process::{Server, Setup};
pub use rows::rows;

pub const KEY: &str = "key-0001";

pub fn order(key: &str) -> Value {
    json!({
        "instrument": "USDJPY", "side": "BUY", "qty": 1000, "price": 150.25, "idempotency_key": key,
    })
}

/// A broker behind a socket. What it does is in its script, what it did in its ledger.
pub struct Broker {
    pub scripted: ScriptedBroker,
    pub server: BrokerServer,
    takes_keys: bool,
}

impl Broker {
    /// A broker that recognises a repeat under the same key.
    pub async fn with_keys() -> Self {
        Self::start(ScriptedBroker::with_keys(), true).await
    }

    /// A broker to which a repeat is one more order.
    pub async fn without_keys() -> Self {
        Self::start(ScriptedBroker::without_keys(), false).await
    }

    async fn start(scripted: ScriptedBroker, takes_keys: bool) -> Self {
        let server = BrokerServer::start(&scripted, Repeats::Replay).await;
        Self { scripted, server, takes_keys }
    }

    pub fn secret() -> String {
        BrokerServer::secret().expose_secret().to_owned()
    }

    /// The settings with which Tashika sends to it.
    fn settings(&self) -> [(&'static str, String); 5] {
        [
            ("BROKER_ADAPTER", "http".to_owned()),
            ("BROKER_URL", self.server.base_url()),
            ("BROKER_KEY_ID", "k-1".to_owned()),
            ("BROKER_SECRET", Self::secret()),
            ("BROKER_IDEMPOTENCY_KEYS", self.takes_keys.to_string()),
        ]
    }
}
