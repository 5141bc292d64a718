//! The scripted gateway behind a real socket, speaking Stripe's wire format.
//!
//! On the bare socket for the same reason as the broker's server: it must be able to hang up after executing, and to say
//! nothing for as long as somebody listens.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::World;
use super::books::Call;
use super::fault::Meanwhile;
use super::form::Form;
use super::refusal::{Answer, Refusal};
use super::state::Next;
use crate::wire::{self, decoded};

/// A server on a free loopback port. It ends with this value; the world goes on, and can be served again.
pub struct GatewayServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl GatewayServer {
    /// # Panics
    ///
    /// When there is no free port.
    pub async fn start(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let task = tokio::spawn(accept(listener, world.clone()));
        Self { address, task }
    }

    /// Where the API is, without its `/v1`: what the official packages call the base.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for GatewayServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the client sees.
enum Reaction {
    Say(Vec<u8>),
    Silence,
    Close,
}

async fn accept(listener: TcpListener, world: World) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, world.clone()));
        // Those that are over; under load they would pile up.
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection until the client hangs up, or until the script says that we do.
async fn serve(mut stream: TcpStream, world: World) {
    while let Some(heard) = wire::read(&mut stream).await {
        match respond(&world, &heard).await {
            Reaction::Say(bytes) => {
                // A client that has hung up does not hear the rest; that is its affair.
                let said = stream.write_all(&bytes).await;
                if said.is_err() || heard.header("connection") == Some("close") {
                    return;
                }
            }
            Reaction::Silence => return wire::hold(&mut stream).await,
            Reaction::Close => return,
        }
    }
}

async fn respond(world: &World, heard: &wire::Heard) -> Reaction {
    let secret = heard.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if !secret.is_some_and(|secret| secret.starts_with("sk_")) {
        return say(&world.next_request(), None, &Refusal::unauthorized().into());
    }
    let call = understood(heard);
    let (next, request_id) = world.receive(&call);
    let say = |answer: Answer| say(&request_id, call.key.as_deref(), &answer);
    match next {
        Next::Say(answer) => say(answer),
        Next::SayAfter(delay, answer) => {
            tokio::time::sleep(delay).await;
            say(answer)
        }
        Next::RunAt(gate) => {
            // A task of its own: what has begun goes on when the client, or this server, is gone.
            let (world, call, id) = (world.clone(), call.clone(), request_id.clone());
            let running = tokio::spawn(async move {
                gate.passed().await;
                world.finish(&call, &id)
            });
            running.await.map_or(Reaction::Close, say)
        }
        Next::Lost { client: Meanwhile::Silence, .. } => Reaction::Silence,
        Next::Lost { client: Meanwhile::Close, .. } => Reaction::Close,
    }
}

fn understood(heard: &wire::Heard) -> Call {
    let (path, query) = heard.path.split_once('?').unwrap_or((&heard.path, ""));
    let body = String::from_utf8_lossy(&heard.body);
    // Only a POST can be repeated in a way that matters; the real one ignores the keys of the others too.
    let key = heard.header("idempotency-key").filter(|_| heard.method == "POST");
    Call {
        method: heard.method.clone(),
        path: decoded(path),
        form: Form::parse(query, &body),
        key: key.map(ToOwned::to_owned),
    }
}

fn say(request_id: &str, key: Option<&str>, answer: &Answer) -> Reaction {
    let usual = [("Content-Type", "application/json"), ("Request-Id", request_id)];
    let echoed = key.map(|key| ("Idempotency-Key", key));
    let own = answer.headers.iter().map(|(name, value)| (*name, value.as_str()));
    let mut extra = String::new();
    for (name, value) in usual.into_iter().chain(echoed).chain(own) {
        extra.extend([name, ": ", value, "\r\n"]);
    }
    Reaction::Say(wire::reply(answer.status, &extra, &answer.body))
}
