//! The gateway, asked over its socket as any client would.

mod checkout;
mod faults;
mod keys;
mod money;
mod reading;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::server::GatewayServer;
use super::{Fault, Operation, World};

/// A served world.
struct Scene {
    world: World,
    server: GatewayServer,
}

/// A reply.
#[derive(Debug)]
struct Said {
    status: u16,
    head: String,
    body: Value,
}

impl Said {
    fn id(&self) -> String {
        self.body["id"].as_str().expect("an object").to_owned()
    }

    fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    fn has(&self, header: &str) -> bool {
        self.head.contains(header)
    }
}

impl Scene {
    async fn new() -> Self {
        let world = World::new();
        let server = GatewayServer::start(&world).await;
        Self { world, server }
    }

    /// Sends a request and leaves its connection open.
    async fn send(&self, first_line: &str, body: &str, key: Option<&str>) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
        let length = body.len();
        let request = format!(
            "{first_line} HTTP/1.1\r\nAuthorization: Bearer sk_test_x\r\nConnection: close\r\n{key}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// One request; `None` if the connection was closed without a reply.
    async fn ask(&self, first_line: &str, body: &str, key: Option<&str>) -> Option<Said> {
        heard(self.send(first_line, body, key).await).await
    }

    async fn post(&self, path: &str, body: &str) -> Said {
        self.ask(&format!("POST /v1/{path}"), body, None).await.expect("a reply")
    }

    async fn post_with(&self, key: &str, path: &str, body: &str) -> Said {
        self.ask(&format!("POST /v1/{path}"), body, Some(key)).await.expect("a reply")
    }

    async fn get(&self, path: &str) -> Said {
        self.ask(&format!("GET /v1/{path}"), "", None).await.expect("a reply")
    }

    /// An intent of 5000 that is to be captured by hand.
    async fn intent(&self, payment_id: &str, method: &str) -> String {
        let body = format!(
            "amount=5000&currency=JPY&capture_method=manual&payment_method={method}&metadata[payment_id]={payment_id}"
        );
        self.post("payment_intents", &body).await.id()
    }

    /// An authorized one.
    async fn authorized(&self, payment_id: &str) -> String {
        let id = self.intent(payment_id, "pm_card_visa").await;
        let said = self.post(&format!("payment_intents/{id}/confirm"), "").await;
        assert_eq!(said.body["status"], "requires_capture");
        id
    }

    /// A captured one.
    async fn captured(&self, payment_id: &str) -> String {
        let id = self.authorized(payment_id).await;
        let said = self.post(&format!("payment_intents/{id}/capture"), "").await;
        assert_eq!(said.body["status"], "succeeded");
        id
    }

    async fn status(&self, id: &str) -> String {
        let said = self.get(&format!("payment_intents/{id}")).await;
        said.body["status"].as_str().expect("an intent").to_owned()
    }
}

async fn heard(mut stream: TcpStream) -> Option<Said> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let said = String::from_utf8(bytes).unwrap();
    let (head, body) = said.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().unwrap();
    Some(Said { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap() })
}
