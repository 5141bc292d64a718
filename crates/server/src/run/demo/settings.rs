//! The demonstration's configuration: everything here, nothing from the environment but the log.
//!
//! Waits that are minutes and hours in earnest are seconds here, so that a newcomer sees in a minute
//! or two what otherwise takes a day. Nothing else is different: it is the same server.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;
use tashika_testkit::broker::server::BrokerServer;

use crate::config::{Config, ConfigError, Sources};

/// Where the values say they come from, in the console's settings.
const ORIGIN: &str = "tashika demo";

/// The gateway's key: of a gateway that moves no money, in a process of its own making.
const GATEWAY_KEY: &str = "sk_demo";
/// What the gateway signs its webhooks with.
pub(super) const WEBHOOK_SECRET: &str = "whsec_demo";
/// Where the watchman writes to.
const OPERATOR: &str = "operator@shop.example";

/// How long a slot is held.
pub(super) const HOLD_SEC: u64 = 12;
pub(super) const SLOTS_PER_DAY: u64 = 24;

const PACE: &str = r#"
TASHIKA_LOG_FORMAT = "text"
TASHIKA_SHUTDOWN_SEC = 5
RL_RATE_PER_MIN = 0
DAILY_QUOTA = 0
OUTBOX_POLL_INTERVAL_SEC = 0.2
OUTBOX_ORDERS_BACKOFF_SEC = [1, 2, 4]
OUTBOX_RENDERS_BACKOFF_SEC = [1, 2]
OUTBOX_EVENTS_BACKOFF_SEC = [1, 2, 4]
BROKER_ADAPTER = "http"
BROKER_KEY_ID = "demo"
BROKER_TIMEOUT_MS = 1000
BROKER_IDEMPOTENCY_KEYS = false
PAYMENT_GATEWAY = "stripe"
PAYMENT_GATEWAY_TIMEOUT_MS = 1500
PAYMENT_VERIFY_INTERVAL_SEC = 2
PAYMENT_VERIFY_MAX_ATTEMPTS = 3
PAYMENT_RETRY_BACKOFF_SEC = [0.5, 1, 2]
RENDER_TIMEOUT_MS = 800
RENDER_POLL_SEC = 1
RENDER_ATTEMPTS = 2
RENDER_RETRY_SEC = 1
RENDER_ATTEMPT_SEC = 6
RENDER_GIVE_UP_SEC = 30
MAIL_RATE_PER_SEC = 5
MAIL_TIMEOUT_MS = 1500
MAIL_BACKOFF_SEC = [1, 2]
ALERT_INTERVAL_SEC = 2
AUDIT_SEAL_INTERVAL_SEC = 2
QUEUE_MAX_TIMEOUT_SEC = 3
"#;

/// Where everybody is.
pub(super) struct Places<'a> {
    pub listen: SocketAddr,
    pub folder: &'a Path,
    pub gateway: &'a str,
    pub broker: &'a str,
    pub worker: &'a str,
}

pub(super) fn config(places: &Places<'_>) -> Result<Config, ConfigError> {
    let mut text = PACE.to_owned();
    let mut set = |name: &str, value: &str| {
        let value = toml::Value::String(value.to_owned());
        // Writing to a String cannot fail.
        writeln!(text, "{name} = {value}").unwrap_or_default();
    };
    set("TASHIKA_LISTEN", &places.listen.to_string());
    let database = places.folder.join("tashika.db");
    set("TASHIKA_DATABASE_URL", &format!("sqlite:{}", database.display()));
    // The terminal is for the story. Whoever wants the log as well says so.
    set("TASHIKA_LOG", &std::env::var("TASHIKA_LOG").unwrap_or_else(|_| "off".to_owned()));
    set("STRIPE_API_KEY", GATEWAY_KEY);
    set("STRIPE_API_BASE", places.gateway);
    set("STRIPE_WEBHOOK_SECRET", WEBHOOK_SECRET);
    set("BROKER_URL", places.broker);
    set("BROKER_SECRET", BrokerServer::secret().expose_secret());
    set("EVENT_SINK_URLS", &format!("{}/events", places.worker));
    set("ALERT_MAIL_TO", OPERATOR);
    set("RESERVATION_HOLD_SEC", &HOLD_SEC.to_string());
    set("RESERVATION_SLOTS_PER_DAY", &SLOTS_PER_DAY.to_string());
    let file = Some((PathBuf::from(ORIGIN), text));
    Config::from_sources(&Sources { file, environment: [].into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_can_be_used_and_reach_nobody_else() {
        let (folder, local) = (Path::new("/nowhere"), "http://127.0.0.1:9");
        let listen = SocketAddr::from(([127, 0, 0, 1], 8080));
        let places = Places { listen, folder, gateway: local, broker: local, worker: local };
        let config = config(&places).unwrap();
        // Open to everybody on this machine, and letters stay in the sandbox's inbox, as it should be.
        let [open, letters] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
        assert!(open.starts_with("TASHIKA_API_TOKENS is not set"), "{open}");
        assert!(
            letters.starts_with("ALERT_MAIL_TO is set, but MAIL_PROVIDER is sandbox"),
            "{letters}"
        );
        assert!(config.http.listen.ip().is_loopback());
        assert!(config.traces.is_none() && config.tokens.is_empty());
        for line in config.effective() {
            let elsewhere = line.value.contains("://") && !line.value.starts_with(local);
            // Defaults of what is not used here.
            let unused = ["SHOTSTACK_API_BASE", "QSTASH_URL"].contains(&line.name.as_str());
            assert!(!elsewhere || unused, "{}: {}", line.name, line.value);
        }
    }
}
