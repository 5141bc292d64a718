//! Shotstack as far as Tashika asks it: submissions, and renders by their id, behind a real socket.
//!
//! It keeps what is true about renders; a test says what that is, and sends callbacks that agree with it or do not. What was
//! submitted is in its ledger whatever was answered: as with the real one there is no key, and each submission is a render.

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
const OUTPUTS: &str = "/outputs/";
pub const KEY: &str = "the key to Shotstack";

/// What goes wrong with a question.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    Status(u16),
    HangUp,
}

/// What goes wrong with a submission.
#[derive(Clone, Copy, Debug)]
pub enum Slip {
    /// Not taken, and answered so.
    Status(u16),
    /// Not taken, and no answer.
    LostBefore,
    /// Taken, and no answer.
    LostAfter,
}

/// A submission that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    pub id: String,
    /// The description of the video, with its callback.
    pub edit: Value,
}

#[derive(Default)]
struct State {
    renders: BTreeMap<String, Value>,
    troubles: VecDeque<Trouble>,
    slips: VecDeque<Slip>,
    /// What new renders are.
    begin_as: Option<&'static str>,
    /// Where outputs can be fetched; without, their addresses lead nowhere.
    outputs: Option<SocketAddr>,
    submissions: Vec<Submission>,
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
        let mut state = lock(&self.state);
        let render = shown(id, status, state.outputs);
        state.renders.insert(id.to_owned(), render);
    }

    /// From now on, finished videos can be fetched from this server.
    pub fn serve_outputs(&self) {
        lock(&self.state).outputs = Some(self.address);
    }

    /// The next questions end like this, in this order.
    pub fn trouble(&self, troubles: impl IntoIterator<Item = Trouble>) {
        lock(&self.state).troubles.extend(troubles);
    }

    /// The next submissions end like this, in this order.
    pub fn slip(&self, slips: impl IntoIterator<Item = Slip>) {
        lock(&self.state).slips.extend(slips);
    }

    /// New renders have this status from their beginning, instead of `queued`.
    pub fn begin_as(&self, status: &'static str) {
        lock(&self.state).begin_as = Some(status);
    }

    /// Everything that was taken, whatever was answered.
    #[must_use]
    pub fn submissions(&self) -> Vec<Submission> {
        lock(&self.state).submissions.clone()
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

/// A render as it is answered.
fn shown(id: &str, status: &str, outputs: Option<SocketAddr>) -> Value {
    let url = (status == "done").then(|| match outputs {
        Some(address) => format!("http://{address}{OUTPUTS}{id}.mp4"),
        None => format!("https://cdn.shotstack.example/{id}.mp4"),
    });
    json!({"id": id, "owner": "us", "status": status, "url": url, "error": ""})
}

/// Takes a submission, or does what the script says. `None` hangs up.
fn submit(state: &mut State, heard: &Heard) -> Option<Vec<u8>> {
    let slip = state.slips.pop_front();
    match slip {
        Some(Slip::LostBefore) => return None,
        Some(Slip::Status(status)) => {
            let body = json!({"success": false, "message": "Bad Request", "response": null});
            return Some(reply(status, "", &body));
        }
        Some(Slip::LostAfter) | None => {}
    }
    let edit: Value = serde_json::from_slice(&heard.body).unwrap_or_default();
    if edit.get("timeline").is_none() || edit.get("output").is_none() {
        let body = json!({"success": false, "message": "Validation failed", "response": null});
        return Some(reply(400, "", &body));
    }
    let id = format!("render-{:04}", state.submissions.len() + 1);
    state.submissions.push(Submission { id: id.clone(), edit });
    let status = state.begin_as.unwrap_or("queued");
    let render = shown(&id, status, state.outputs);
    state.renders.insert(id.clone(), render);
    if matches!(slip, Some(Slip::LostAfter)) {
        return None;
    }
    let response = json!({"message": "Render Successfully Queued", "id": id});
    let body = json!({"success": true, "message": "Created", "response": response});
    Some(reply(201, "", &body))
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
    if let Some(name) = heard.path.strip_prefix(OUTPUTS) {
        return Some(reply(200, "", &json!(format!("the video {name}"))));
    }
    if heard.header("x-api-key") != Some(KEY) {
        state.strangers += 1;
        return Some(reply(403, "", &json!({"message": "Forbidden"})));
    }
    if (heard.method.as_str(), heard.path.strip_prefix(BASE)) == ("POST", Some("/render")) {
        return submit(state, heard);
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
