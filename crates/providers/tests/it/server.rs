//! A server that does what a script says, also what no decent server does.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What the server does with the next request, or with the next connection.
#[derive(Clone, Debug)]
pub enum Act {
    /// Answers and waits for the next request on the same connection.
    Say(Vec<u8>),
    /// Answers and closes.
    SayAndClose(Vec<u8>),
    /// Answers (or not, if empty) and then neither speaks nor closes.
    SayAndHold(Vec<u8>),
    /// Closes the connection as soon as it is accepted.
    Slam,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Heard {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

pub struct Server {
    pub addr: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Plays the acts in order, across connections; after the last it holds its tongue.
    pub async fn playing(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let acts = Arc::new(Mutex::new(acts.into_iter().collect::<VecDeque<_>>()));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let slam = {
                    let mut acts = acts.lock().unwrap();
                    let slam = matches!(acts.front(), Some(Act::Slam));
                    slam.then(|| acts.pop_front()).is_some()
                };
                if !slam {
                    connections.spawn(play(stream, Arc::clone(&acts), Arc::clone(&log)));
                }
            }
        });
        Self { addr, heard, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play(mut stream: TcpStream, acts: Arc<Mutex<VecDeque<Act>>>, log: Arc<Mutex<Vec<Heard>>>) {
    while let Some(request) = read_request(&mut stream).await {
        log.lock().unwrap().push(request);
        let act = acts.lock().unwrap().pop_front();
        // A client that has hung up does not hear the rest; that is its affair.
        match act {
            Some(Act::Say(bytes)) => drop(stream.write_all(&bytes).await),
            Some(Act::SayAndClose(bytes)) => {
                drop(stream.write_all(&bytes).await);
                return;
            }
            Some(Act::SayAndHold(bytes)) => {
                drop(stream.write_all(&bytes).await);
                std::future::pending::<()>().await;
            }
            Some(Act::Slam) | None => std::future::pending().await,
        }
    }
}

/// Reads one request with its body; `None` when the client closes first.
pub async fn read_request(stream: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ');
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut heard = Heard {
        method: first.next()?.to_owned(),
        target: first.next()?.to_owned(),
        headers,
        body: String::new(),
    };
    let length: usize = heard.header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    heard.body = String::from_utf8(bytes[end..end + length].to_vec()).unwrap();
    Some(heard)
}

/// A complete reply; `extra` are header lines, each with its line end.
pub fn reply(status: u16, extra: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{extra}\r\n{body}").into_bytes()
}
