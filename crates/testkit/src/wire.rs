//! HTTP on a bare socket, for servers that misbehave on purpose.
//!
//! The scripted broker and the scripted gateway do what no HTTP library allows: hang up after executing, stay silent for good.
//! So they read requests and write replies themselves. Only what their clients send is understood: bodies with a length, no
//! chunks, no pipelining.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One request as it arrived.
#[derive(Debug)]
pub(crate) struct Heard {
    pub method: String,
    /// With the query, percent-encoded.
    pub path: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads one request with its body; `None` when the client hangs up first, or speaks no HTTP.
pub(crate) async fn read(stream: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ').map(ToOwned::to_owned);
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut heard = Heard { method: first.next()?, path: first.next()?, headers, body: Vec::new() };
    let length: usize = heard.header("content-length").unwrap_or("0").parse().ok()?;
    // Some clients send the body only when they are asked to.
    if bytes.len() < end + length && heard.header("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
    }
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    heard.body = bytes[end..end + length].to_vec();
    Some(heard)
}

/// Says nothing, and waits until the client gives up.
pub(crate) async fn hold(stream: &mut TcpStream) {
    let mut ignored = [0; 1024];
    while matches!(stream.read(&mut ignored).await, Ok(count) if count > 0) {}
}

/// A complete reply; `extra` are header lines, each with its line end.
pub(crate) fn reply(status: u16, extra: &str, body: &Value) -> Vec<u8> {
    let body = if status == 204 { String::new() } else { body.to_string() };
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{extra}\r\n{body}").into_bytes()
}

/// Undoes percent-encoding.
pub(crate) fn decoded(segment: &str) -> String {
    let mut parts = segment.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        match u8::from_str_radix(code, 16) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend(code.bytes()),
        }
        bytes.extend(rest.bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[test]
    fn ids_come_back_from_paths() {
        assert_eq!(decoded("key-0001"), "key-0001");
        assert_eq!(decoded("a%2Fb%7Cc%25d%20e"), "a/b|c%d e");
    }

    #[tokio::test]
    async fn a_client_that_asks_first_is_told_to_go_on() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let reading = tokio::spawn(async move { read(&mut server).await });
        let head = "POST /x HTTP/1.1\r\nExpect:100-continue\r\nContent-Length: 2\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let mut said = [0; 25];
        client.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(b"ok").await.unwrap();
        assert_eq!(reading.await.unwrap().unwrap().body, b"ok");
    }
}
