//! Fetches the configuration of the kubelet that runs on this node from its own server: `/configz`.
//!
//! The answer has the flags and drop-ins merged, which no file of the node has. It takes the right `get` on
//! `nodes/configz` (Kubernetes 1.33 and newer) or on `nodes/proxy`. What the answer means is for its reader.
//!
//! Invariants: the token is sent to the kubelet alone ([`trust`]), after the handshake. No proxy is used and
//! no redirection is followed. Time and size of an answer are bounded, and a failure is an error by its
//! cause, so that the caller can go on with the files.

#[cfg(test)]
mod tests;
mod trust;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{AUTHORIZATION, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

/// Longest time for connection, handshake and answer together.
const LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of an answer; one has some KiB.
const LARGEST: usize = 1 << 20;

/// A kubelet's server, and what may be trusted and told to it.
#[derive(Clone, Copy)]
pub struct KubeletServer<'a> {
    /// Its address; the port is 10250 unless the kubelet is configured otherwise.
    pub address: SocketAddr,
    /// Name of the node, which a certificate of the cluster's authority has to be issued for.
    pub node: &'a str,
    /// Certificates of the kubelet's own file, as PEM; empty if it cannot be read.
    pub own_certificates: &'a [u8],
    /// Certificates of the cluster's authority, as PEM; empty if they are not known.
    pub cluster_authority: &'a [u8],
    /// Token of the daemon's account.
    pub token: &'a str,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ConfigzError {
    /// No certificate can be trusted, or one cannot be read.
    #[error("certificates for the kubelet: {0}")]
    Certificate(String),
    /// The node's name or the token cannot be used.
    #[error("{0} has another form")]
    Form(&'static str),
    /// Nothing listens.
    #[error("connecting to the kubelet at {0}: {1}")]
    Connect(SocketAddr, std::io::Error),
    /// The server at the port is not the kubelet, or does not speak TLS. It was sent no token.
    #[error("the server at {0} does not prove to be the kubelet: {1}; no token was sent")]
    Untrusted(SocketAddr, std::io::Error),
    /// The kubelet does not know the account.
    #[error("the kubelet refused the token (401)")]
    Token,
    /// The account has no right.
    #[error("the kubelet refused (403): the account needs `get` on nodes/configz")]
    Right,
    /// Another answer.
    #[error("the kubelet answered with status {0}")]
    Status(StatusCode),
    /// The connection broke, or the answer is too long.
    #[error("reading the kubelet's answer: {0}")]
    Exchange(String),
    /// The time is over.
    #[error("no answer of the kubelet within {} s", .0.as_secs())]
    Late(Duration),
}

/// Fetches the body of `/configz`, of at most 1 MiB, within 10 s. Called within a runtime.
///
/// # Errors
/// Each of [`ConfigzError`]; the configuration is not known then.
pub async fn fetch_configz(server: &KubeletServer<'_>) -> Result<Vec<u8>, ConfigzError> {
    fetch_within(LIMIT, server).await
}

async fn fetch_within(limit: Duration, server: &KubeletServer<'_>) -> Result<Vec<u8>, ConfigzError> {
    tokio::time::timeout(limit, fetch(server)).await.unwrap_or(Err(ConfigzError::Late(limit)))
}

async fn fetch(server: &KubeletServer<'_>) -> Result<Vec<u8>, ConfigzError> {
    let config = trust::client_config(server.own_certificates, server.cluster_authority)?;
    let name = ServerName::try_from(server.node.to_owned());
    let name = name.map_err(|_other_form| ConfigzError::Form("the name of the node"))?;
    let request = request(server)?;
    let stream = TcpStream::connect(server.address).await;
    let stream = stream.map_err(|error| ConfigzError::Connect(server.address, error))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| ConfigzError::Untrusted(server.address, error))?;
    let broken = |error: hyper::Error| ConfigzError::Exchange(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Ends with this set, whatever the outcome.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let answer = sender.send_request(request).await.map_err(broken)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => return Err(ConfigzError::Token),
        StatusCode::FORBIDDEN => return Err(ConfigzError::Right),
        other => return Err(ConfigzError::Status(other)),
    }
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| ConfigzError::Exchange(error.to_string()))?;
    Ok(body.to_bytes().to_vec())
}

fn request(server: &KubeletServer<'_>) -> Result<Request<Empty<Bytes>>, ConfigzError> {
    let token = HeaderValue::try_from(format!("Bearer {}", server.token.trim()));
    let mut token = token.map_err(|_other_form| ConfigzError::Form("the token"))?;
    token.set_sensitive(true);
    let request =
        Request::get("/configz").header(HOST, server.address.to_string()).header(AUTHORIZATION, token);
    request.body(Empty::new()).map_err(|_other_form| ConfigzError::Form("the request"))
}
