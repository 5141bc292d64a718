//! A client that sends exactly the bytes it is told to: half of what is tested here is what no
//! well-behaved client would send.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tashika_testkit::gate::soon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A request as it goes over the wire.
#[derive(Clone, Debug)]
pub struct Request {
    line: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Self {
        Self { line: format!("{method} {path} HTTP/1.1"), headers: Vec::new(), body: Vec::new() }
    }

    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// An order under a key in the header, whatever the body says.
    pub fn post(key: impl AsRef<[u8]>, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", "/do/order")
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body)
    }

    /// An order under the key that it has.
    pub fn order(body: &Value) -> Self {
        Self::post(body["idempotency_key"].as_str().unwrap(), body.to_string())
    }

    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| header != name);
        self
    }

    pub fn token(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub fn head(&self, address: SocketAddr) -> Vec<u8> {
        let mut bytes =
            format!("{}\r\nhost: {address}\r\nconnection: close\r\n", self.line).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        if !self.body.is_empty() || self.line.starts_with("POST") {
            bytes.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// Sends it on a connection of its own and waits for the answer. An error is a connection that
    /// broke before there was one.
    pub async fn send(&self, address: SocketAddr) -> io::Result<Answer> {
        let exchange = async {
            let mut stream = TcpStream::connect(address).await?;
            let mut bytes = self.head(address);
            bytes.extend_from_slice(&self.body);
            // A server may answer and hang up before it has read everything: the answer counts.
            let sent = stream.write_all(&bytes).await;
            answer(&mut stream).await.or_else(|error| sent.and(Err(error)))
        };
        soon("an answer", exchange).await
    }

    /// Sends the head, and returns when the server is waiting for the body: the request is open then.
    pub async fn open(&self, address: SocketAddr) -> Open {
        let begin = async {
            let mut stream = TcpStream::connect(address).await?;
            let request = self.clone().header("expect", "100-continue");
            stream.write_all(&request.head(address)).await?;
            let mut heard = [0; 25];
            stream.read_exact(&mut heard).await?;
            assert_eq!(&heard, b"HTTP/1.1 100 Continue\r\n\r\n");
            io::Result::Ok(stream)
        };
        let stream = soon("the server to ask for the body", begin).await.unwrap();
        Open { stream, body: self.body.clone() }
    }
}

/// A request whose body goes out piece by piece, without an announced length. Dropped, it breaks off.
pub struct Streamed(TcpStream);

impl Request {
    pub async fn begin(&self, address: SocketAddr) -> Streamed {
        let head = self.clone().header("transfer-encoding", "chunked").head(address);
        let head = String::from_utf8(head).unwrap().replace("content-length: 0\r\n", "");
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        Streamed(stream)
    }
}

impl Streamed {
    pub async fn write(&mut self, piece: &str) {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        self.0.write_all(chunk.as_bytes()).await.unwrap();
    }

    pub async fn finish(mut self) -> Answer {
        self.0.write_all(b"0\r\n\r\n").await.unwrap();
        soon("an answer", answer(&mut self.0)).await.unwrap()
    }
}

/// A request that the server is working on.
pub struct Open {
    stream: TcpStream,
    body: Vec<u8>,
}

impl Open {
    pub async fn finish(mut self) -> Answer {
        self.stream.write_all(&self.body).await.unwrap();
        soon("an answer", answer(&mut self.stream)).await.unwrap()
    }
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Whether it says so in the form that every error of ours has.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!((self.status, document["code"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(document["status"], status, "{self:?}");
        for field in ["type", "title", "detail"] {
            assert!(document[field].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        }
        assert_eq!(document["request_id"].as_str(), self.header("x-request-id"), "{self:?}");
        assert!(!self.replayed(), "{self:?}");
    }

    /// Seconds after which to come back.
    #[track_caller]
    pub fn retry_after(&self) -> u64 {
        let value = self.header("retry-after");
        value.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// Reads an answer to its announced end, or to the end of the connection.
async fn answer(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    loop {
        if let Some(answer) = parse(&bytes) {
            return Ok(answer);
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// `None` while something is missing.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let body = bytes.get(end + 4..end + 4 + length)?;
    Some(Answer { status, headers, body: String::from_utf8(body.to_vec()).unwrap() })
}
