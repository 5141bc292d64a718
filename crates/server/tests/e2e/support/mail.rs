//! Mail over the wire: a mail server with a script, and what a caller asks for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use tashika_testkit::gate::until;
use tashika_testkit::smtp::{ROOT_PEM, SmtpServer};
use tempfile::TempDir;

use super::{Answer, Request, Server, Setup};

pub const TEMPLATE: &str = "reservation-expired-refunded";

pub fn data() -> Value {
    json!({"reservationId": "r-1", "refundAmount": 3000, "currency": "JPY"})
}

pub fn letter(to: &str) -> Value {
    json!({"to": to, "template": TEMPLATE, "locale": "en", "data": data()})
}

pub fn post(path: &str, body: &Value) -> Request {
    Request::new("POST", path).header("content-type", "application/json").body(body.to_string())
}

pub fn batch(to: &[String]) -> Value {
    let recipients: Vec<Value> = to.iter().map(|to| json!({"to": to, "data": data()})).collect();
    json!({"template": TEMPLATE, "locale": "en", "recipients": recipients})
}

/// A mail server, and the file with whom to trust about it.
pub struct Post {
    pub server: SmtpServer,
    folder: TempDir,
}

impl Post {
    pub async fn start(settings: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("root.pem"), ROOT_PEM).unwrap();
        Self { server: SmtpServer::with("starttls", settings).await, folder }
    }

    fn roots(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// The settings with which Tashika sends to it.
    pub fn setup(&self, setup: Setup) -> Setup {
        setup
            .set("MAIL_PROVIDER", "smtp")
            .set("SMTP_URL", self.server.url())
            .set("SMTP_CA_FILE", self.roots().display())
            .set("MAIL_FROM", "no-reply@mail.example.com")
            .set("MAIL_BACKOFF_SEC", "0.05")
            .set("MAIL_RATE_PER_SEC", "1000")
    }

    /// How many copies of a mail to each address the server has taken.
    pub async fn copies(&self) -> BTreeMap<String, usize> {
        let mut copies = BTreeMap::new();
        for mail in self.server.accepted().await {
            *copies.entry(mail.to).or_default() += 1;
        }
        copies
    }
}

impl Server {
    pub async fn send_mail(&self, body: &Value) -> Value {
        let answer = self.ask(post("/mail", body)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()
    }

    pub async fn send_batch(&self, body: &Value) -> String {
        let answer = self.ask(post("/mail/batches", body)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub async fn mail(&self, id: &str) -> Value {
        let answer = self.get(&format!("/mail/deliveries/{id}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Waits until a mail has ended.
    pub async fn mail_ended(&self, id: &Value) -> Value {
        let id = id.as_str().unwrap();
        until("the end of a mail", async || {
            Some(self.mail(id).await).filter(|mail| mail["status"] != "queued")
        })
        .await
    }

    pub async fn mail_batch(&self, id: &str) -> Value {
        let answer = self.get(&format!("/mail/batches/{id}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Waits until a batch is as it should be, for as long as anything moves.
    pub async fn until_batch(&self, id: &str, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let mut last = self.mail_batch(id).await;
        while !so(&last) {
            last = until(what, async || {
                let now = self.mail_batch(id).await;
                (so(&now) || now["queued"] != last["queued"]).then_some(now)
            })
            .await;
        }
        last
    }

    /// Every mail of a batch.
    pub async fn mails_of(&self, batch: &str) -> Vec<Value> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/mail/deliveries?batch={batch}&limit=500{cursor}");
            let answer: Answer = self.get(&path).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let page = answer.json();
            found.extend(page["items"].as_array().unwrap().iter().cloned());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    }
}
