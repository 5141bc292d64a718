//! A failed handshake is before the first byte of the request; a good one works.
//!
//! `data/` holds a root and a certificate for `localhost` that it signed, both made for these tests
//! and valid for a hundred years; the root's key was thrown away.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tashika_providers::http::{Client, ClientConfig, ClientError, Known, NotSent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::post;
use crate::server::reply;

pub const ROOT: &[u8] = include_bytes!("data/root.pem");
pub const CERTIFICATE: &[u8] = include_bytes!("data/localhost.pem");
const KEY: &[u8] = include_bytes!("data/localhost.key.pem");

fn config() -> ClientConfig {
    ClientConfig {
        connect_timeout: Duration::from_millis(300),
        roots_pem: Some(ROOT.to_vec()),
        ..ClientConfig::with_timeout(Duration::from_secs(5))
    }
}

/// Answers one TLS connection with `bytes` (or not at all) and returns where.
pub async fn after_client_hello(bytes: Option<&'static [u8]>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 4096];
        let _read = stream.read(&mut hello).await.unwrap();
        match bytes {
            Some(bytes) => stream.write_all(bytes).await.unwrap(),
            None => std::future::pending().await,
        }
    });
    format!("https://localhost:{port}/")
}

/// A TLS server for one connection; returns where, and what it decrypted.
pub fn tls_server() -> (String, std::thread::JoinHandle<Vec<u8>>) {
    let certificates =
        CertificateDer::pem_slice_iter(CERTIFICATE).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, stream);
        let mut plain = vec![0; 4096];
        // An error is the client's alert: it decrypted to nothing.
        let length = tls.read(&mut plain).unwrap_or(0);
        plain.truncate(length);
        if length > 0 {
            tls.write_all(&reply(200, "", "")).unwrap();
            tls.flush().unwrap();
        }
        plain
    });
    (format!("https://localhost:{port}/"), thread)
}

#[tokio::test]
async fn a_trusted_certificate_works() {
    let (url, server) = tls_server();
    let call = Client::new(&config()).unwrap().call(post(&url)).await;
    assert!(matches!(call.known, Known::Answered(_)), "{call:?}");
    assert!(server.join().unwrap().starts_with(b"POST / HTTP/1.1"));
}

#[tokio::test]
async fn an_untrusted_certificate_gets_no_request() {
    let (url, server) = tls_server();
    let distrustful = ClientConfig {
        // Trusts the leaf as a root, which is not who signed it.
        roots_pem: Some(CERTIFICATE.to_vec()),
        ..config()
    };
    let call = Client::new(&distrustful).unwrap().call(post(&url)).await;
    assert!(matches!(call.known, Known::NotSent(NotSent::Tls(_))), "{call:?}");
    assert!(server.join().unwrap().is_empty());
}

#[tokio::test]
async fn a_refused_handshake_was_not_sent() {
    // A fatal alert (handshake_failure), and a server that speaks plain HTTP.
    for bytes in [
        &b"\x15\x03\x03\x00\x02\x02\x28"[..],
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    ] {
        let url = after_client_hello(Some(bytes)).await;
        let call = Client::new(&config()).unwrap().call(post(&url)).await;
        assert!(matches!(call.known, Known::NotSent(NotSent::Tls(_))), "{call:?}");
    }
    // Closed in the middle: no TLS error, but no connection either.
    let url = after_client_hello(Some(b"")).await;
    let call = Client::new(&config()).unwrap().call(post(&url)).await;
    assert!(matches!(call.known, Known::NotSent(_)), "{call:?}");
}

#[tokio::test]
async fn a_handshake_that_never_ends_was_not_sent() {
    let url = after_client_hello(None).await;
    let call = Client::new(&config()).unwrap().call(post(&url)).await;
    let Known::NotSent(NotSent::ConnectTimeout(after)) = call.known else {
        panic!("{call:?}");
    };
    assert_eq!(after, Duration::from_millis(300));
}

#[tokio::test]
async fn connecting_never_takes_the_whole_time() {
    // With equal timeouts nobody could say which one struck.
    let url = after_client_hello(None).await;
    let greedy = ClientConfig {
        timeout: Duration::from_millis(400),
        connect_timeout: Duration::from_millis(400),
        ..config()
    };
    let call = Client::new(&greedy).unwrap().call(post(&url)).await;
    let half = Duration::from_millis(200);
    assert!(
        matches!(call.known, Known::NotSent(NotSent::ConnectTimeout(after)) if after == half),
        "{call:?}"
    );
}

#[test]
fn unreadable_settings_are_refused() {
    let roots = ClientConfig {
        roots_pem: Some(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----".to_vec()),
        ..config()
    };
    assert!(matches!(Client::new(&roots), Err(ClientError::Roots(_))));
    let proxy = ClientConfig { proxy: Some("http://user:hunter2@[".into()), ..config() };
    let Err(error) = Client::new(&proxy) else {
        panic!("taken");
    };
    assert!(matches!(error, ClientError::Proxy(_)));
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
