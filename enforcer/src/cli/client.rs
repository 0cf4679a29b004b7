//! One request to a running daemon, over its control socket, or over a port that leads to another node's.
//!
//! HTTP by hyper, JSON both ways, bounded in time and size. A refusal is an error with the daemon's own
//! words. A socket without a listener is [`NoDaemon`], which has an exit code of its own. An answer of
//! another schema version is rejected before it is parsed.

use std::{
    fmt::Display,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    runtime::Builder,
    time::timeout,
};

use crate::{
    serve::api::{Problem, SocketAnswer},
    version,
};

/// Longest wait for an answer: more than the daemon needs.
const LIMIT: Duration = Duration::from_secs(15);
/// The same for a caller that can go on without an answer: a healthy daemon needs some milliseconds.
const GLANCE: Duration = Duration::from_secs(3);

/// Largest answer that is read: a thousand decisions with all details.
const LARGEST: usize = 64 << 20;
/// The same from another node, of which several are read at a time.
const LARGEST_OF_A_NODE: usize = 16 << 20;

/// Bytes that are quoted of an answer that is no JSON.
const QUOTED: usize = 200;

/// No daemon listens.
#[derive(Debug, Error)]
#[error("no daemon runs here (--socket PATH names another place): {path}: {cause}", path = path.display())]
pub(super) struct NoDaemon {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// No daemon of the cluster could be meant, or the node has none.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct NoNodeDaemon(pub(super) String);

/// The daemon refuses the request, in its own words.
#[derive(Debug, Error)]
#[error("{message}{}", listed(candidates))]
pub(super) struct Refused {
    pub(super) message: String,
    /// Workloads that may have been meant.
    candidates: Vec<String>,
}

fn listed(candidates: &[String]) -> String {
    if candidates.is_empty() { String::new() } else { format!("; there are: {}", candidates.join(", ")) }
}

/// A port of this machine that leads to the daemon of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodePort<'a> {
    pub(super) address: SocketAddr,
    /// Token of `metrics.token_file`.
    pub(super) token: Option<&'a str>,
}

/// The answer of a node's daemon to a request that only reads.
pub(super) fn get_from_node<T: SocketAnswer>(port: NodePort<'_>, path: &str) -> anyhow::Result<T> {
    let request = request(Method::GET, path, Vec::new(), port.token)?;
    let asked = async {
        let stream = TcpStream::connect(port.address).await?;
        exchange(stream, request, LARGEST_OF_A_NODE).await
    };
    let answer = within(LIMIT, asked)?;
    if let Some(line) = line_of_refusal(&answer) {
        bail!(Refused { message: format!("the daemon answers: {line}"), candidates: Vec::new() });
    }
    understood(answer, &"the daemon")
}

/// The daemon's answer to a request without a body.
pub(super) fn get<T: SocketAnswer>(socket: &Path, path: &str) -> anyhow::Result<T> {
    ask(socket, LIMIT, Method::GET, path, Vec::new())
}

/// The same for a caller that can go on without an answer; waits a few seconds only.
pub(super) fn glance<T: SocketAnswer>(socket: &Path, path: &str) -> anyhow::Result<T> {
    ask(socket, GLANCE, Method::GET, path, Vec::new())
}

/// The daemon's answer to `body`.
pub(super) fn send<T: SocketAnswer>(
    socket: &Path,
    method: Method,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<T> {
    ask(socket, LIMIT, method, path, serde_json::to_vec(body)?)
}

fn ask<T: SocketAnswer>(
    socket: &Path,
    limit: Duration,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<T> {
    let place = socket.display();
    let request = request(method, path, body, None)?;
    let asked = async {
        let stream = UnixStream::connect(socket).await.map_err(|cause| unreachable(socket, cause))?;
        exchange(stream, request, LARGEST).await.with_context(|| place.to_string())
    };
    let answer = within(limit, asked).map_err(|error| match error.downcast::<Elapsed>() {
        Ok(elapsed) => anyhow!("{place}: {elapsed}"),
        Err(error) => error,
    })?;
    understood(answer, &place)
}

/// The daemon took too long.
#[derive(Debug, Error)]
#[error("the daemon does not answer within {0:?}")]
struct Elapsed(Duration);

fn within<T>(limit: Duration, asked: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { timeout(limit, asked).await }).map_err(|_elapsed| Elapsed(limit))?
}

fn understood<T: SocketAnswer>(
    (status, text): (StatusCode, Bytes),
    place: &dyn Display,
) -> anyhow::Result<T> {
    let answer = || format!("{place}: an answer that is not understood");
    if status.is_success() {
        check_version::<T>(&text).with_context(|| place.to_string())?;
        return serde_json::from_slice(&text).with_context(answer);
    }
    let Problem { message, candidates, .. } = serde_json::from_slice(&text).with_context(answer)?;
    bail!(Refused { message, candidates })
}

/// A refusal on a port, which is a line of text: no token, no turn yet.
fn line_of_refusal((status, text): &(StatusCode, Bytes)) -> Option<&str> {
    let line = str::from_utf8(text).ok()?.strip_suffix('\n')?;
    let is_line = !line.is_empty() && line.len() <= QUOTED && !line.contains('\n') && !line.starts_with('{');
    (!status.is_success() && is_line).then_some(line)
}

/// An answer of another version could be misread. One without a version is accepted.
fn check_version<T: SocketAnswer>(text: &[u8]) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct AnswerVersion {
        schema_version: u32,
        version: Option<String>,
    }

    let Some(ours) = T::SCHEMA_VERSION else { return Ok(()) };
    let Ok(AnswerVersion { schema_version: theirs, version }) = serde_json::from_slice(text) else {
        return Ok(());
    };
    if theirs == ours {
        return Ok(());
    }
    let daemon = version.map_or_else(|| "the daemon".to_owned(), |version| format!("the daemon, {version},"));
    let we = version::VERSION;
    bail!(
        "{daemon} answers in schema version {theirs}, and this numa-enforcer, {we}, knows {ours}: use the one that the daemon runs"
    )
}

fn request(
    method: Method,
    path: &str,
    body: Vec<u8>,
    token: Option<&str>,
) -> anyhow::Result<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    Ok(request.body(Full::new(Bytes::from(body)))?)
}

/// The status of the answer, and its text.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    largest: usize,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("asking the daemon")?;
    let driving = tokio::spawn(connection);
    let response: Response<Incoming> = sender
        .send_request(request)
        .await
        .context("the daemon ended the connection; others may use all that it takes")?;
    let status = response.status();
    let text = Limited::new(response.into_body(), largest).collect().await;
    driving.abort();
    match text {
        Ok(text) => Ok((status, text.to_bytes())),
        Err(error) => Err(anyhow!("asking the daemon: {error}")),
    }
}

fn unreachable(socket: &Path, cause: io::Error) -> anyhow::Error {
    let path = socket.to_owned();
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => NoDaemon { path, cause }.into(),
        io::ErrorKind::PermissionDenied => anyhow::Error::new(cause)
            .context(format!("{}: only root and members of its group may ask the daemon", path.display())),
        _ => anyhow::Error::new(cause).context(format!("connecting to {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_report::{status::StatusReport, top::TopReport};

    #[test]
    fn an_answer_of_another_schema_version_is_refused_in_words() {
        let top = |text: &str| check_version::<TopReport>(text.as_bytes()).map_err(|error| error.to_string());
        let refused =
            top(r#"{"schemaVersion": 99, "version": "7.0", "nodes": "of another kind"}"#).unwrap_err();
        assert!(refused.starts_with("the daemon, 7.0, answers in schema version 99, and this "), "{refused}");
        let ours = TopReport::SCHEMA_VERSION.unwrap();
        assert_eq!(top(&format!(r#"{{"schemaVersion": {ours}}}"#)), Ok(()));
        assert_eq!(top("{}"), Ok(()));
        assert!(check_version::<StatusReport>(br#"{"schemaVersion": 99}"#).is_err());
    }
}
