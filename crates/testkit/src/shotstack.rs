//! Shotstack as far as Tashika asks it: renders by their id, behind a real socket.
//!
//! It keeps what is true about renders; a test says what that is, and sends callbacks that agree with it or do not.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_providers::http::ClientConfig;
use tashika_providers::shotstack::ShotstackConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::wire::{Heard, read, reply};

const BASE: &str = "/edit/stage";
pub const KEY: &str = "the key to Shotstack";

/// What goes wrong with a question.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    Status(u16),
    HangUp,
}

#[derive(Default)]
struct State {
    renders: BTreeMap<String, Value>,
    troubles: VecDeque<Trouble>,
    /// The ids that were asked for with the right key, troubles included.
    asked: Vec<String>,
    strangers: usize,
}

/// A server on a free loopback port. It ends with this value.
pub struct ShotstackServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl ShotstackServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state: Arc<Mutex<State>> = Arc::default();
        let task = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, task }
    }

    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}{BASE}", self.address)
    }

    /// How to ask it.
    #[must_use]
    pub fn config(&self) -> ShotstackConfig {
        ShotstackConfig {
            api_base: self.base_url(),
            api_key: SecretString::from(KEY),
            client: ClientConfig::with_timeout(Duration::from_secs(5)),
        }
    }

    /// From now on, this is the render's status.
    pub fn render(&self, id: &str, status: &str) {
        let url = (status == "done").then(|| format!("https://cdn.shotstack.example/{id}.mp4"));
        let render = json!({"id": id, "owner": "us", "status": status, "url": url, "error": ""});
        lock(&self.state).renders.insert(id.to_owned(), render);
    }

    /// The next questions end like this, in this order.
    pub fn trouble(&self, troubles: impl IntoIterator<Item = Trouble>) {
        lock(&self.state).troubles.extend(troubles);
    }

    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        lock(&self.state).asked.clone()
    }

    /// How often somebody asked without the key.
    #[must_use]
    pub fn strangers(&self) -> usize {
        lock(&self.state).strangers
    }
}

impl Drop for ShotstackServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&state)));
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    while let Some(heard) = read(&mut stream).await {
        let Some(bytes) = respond(&mut lock(&state), &heard) else { return };
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// The bytes of the reply; `None` hangs up.
fn respond(state: &mut State, heard: &Heard) -> Option<Vec<u8>> {
    let said = |success: bool, response: &Value| {
        json!({"success": success, "message": if success { "OK" } else { "Error" },
            "response": response})
    };
    if heard.header("x-api-key") != Some(KEY) {
        state.strangers += 1;
        return Some(reply(403, "", &json!({"message": "Forbidden"})));
    }
    let id = heard.path.strip_prefix(BASE).and_then(|path| path.strip_prefix("/render/"));
    let (Some(id), "GET") = (id, heard.method.as_str()) else {
        return Some(reply(405, "", &said(false, &Value::Null)));
    };
    state.asked.push(id.to_owned());
    match state.troubles.pop_front() {
        Some(Trouble::HangUp) => return None,
        Some(Trouble::Status(status)) => {
            return Some(reply(status, "", &said(false, &Value::Null)));
        }
        None => {}
    }
    Some(match state.renders.get(id) {
        Some(render) => reply(200, "", &said(true, render)),
        None => reply(404, "", &said(false, &Value::Null)),
    })
}
