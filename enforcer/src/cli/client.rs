//! One request to a running daemon, over its control socket.
//!
//! HTTP by hyper, JSON both ways, bounded in time and size. A refusal is an error with the daemon's own
//! words. A socket without a listener is [`NoDaemon`], which has an exit code of its own. An answer of
//! another schema version is rejected before it is parsed.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{net::UnixStream, runtime::Builder, time::timeout};

use crate::serve::api::{ApiAnswer, Problem};

/// Longest wait for an answer: more than the daemon needs.
const LIMIT: Duration = Duration::from_secs(15);
/// The same for a caller that can go on without an answer: a healthy daemon needs some milliseconds.
const GLANCE: Duration = Duration::from_secs(3);

/// Largest answer that is read: a thousand decisions with all details.
const LARGEST: usize = 64 << 20;

/// No daemon listens.
#[derive(Debug, Error)]
#[error("no daemon runs here (--socket PATH names another place): {path}: {cause}", path = path.display())]
pub(super) struct NoDaemon {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// The daemon's answer to a request without a body.
pub(super) fn get<T: ApiAnswer>(socket: &Path, path: &str) -> anyhow::Result<T> {
    ask(socket, LIMIT, Method::GET, path, Vec::new())
}

/// The same for a caller that can go on without an answer; waits a few seconds only.
pub(super) fn glance<T: ApiAnswer>(socket: &Path, path: &str) -> anyhow::Result<T> {
    ask(socket, GLANCE, Method::GET, path, Vec::new())
}

/// The daemon's answer to `body`.
pub(super) fn send<T: ApiAnswer>(
    socket: &Path,
    method: Method,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<T> {
    ask(socket, LIMIT, method, path, serde_json::to_vec(body)?)
}

fn ask<T: ApiAnswer>(
    socket: &Path,
    limit: Duration,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let asked = async { timeout(limit, exchange(socket, method, path, body)).await };
    let (good, text) = runtime
        .block_on(asked)
        .map_err(|_elapsed| anyhow!("{}: the daemon does not answer within {limit:?}", socket.display()))??;
    let answer = || format!("{}: an answer that is not understood", socket.display());
    if good {
        check_version::<T>(&text).with_context(|| socket.display().to_string())?;
        return serde_json::from_slice(&text).with_context(answer);
    }
    let Problem { message, candidates, .. } = serde_json::from_slice(&text).with_context(answer)?;
    match candidates.as_slice() {
        [] => bail!("{message}"),
        some => bail!("{message}; there are: {}", some.join(", ")),
    }
}

/// An answer of another version could be misread. One without a version is accepted.
fn check_version<T: ApiAnswer>(text: &[u8]) -> anyhow::Result<()> {
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
    let we = env!("CARGO_PKG_VERSION");
    bail!(
        "{daemon} answers in schema version {theirs}, and this numa-enforcer, {we}, knows {ours}: use the one that the daemon runs"
    )
}

/// Whether the request succeeded, and the answer's text.
async fn exchange(socket: &Path, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<(bool, Bytes)> {
    let stream = UnixStream::connect(socket).await.map_err(|cause| unreachable(socket, cause))?;
    let failed = || format!("asking the daemon at {}", socket.display());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.with_context(failed)?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "numa-enforcer")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let driving = tokio::spawn(connection);
    let response: Response<Incoming> = sender.send_request(request).await.with_context(|| {
        format!("{}: the daemon ended the connection; others may use all that it takes", socket.display())
    })?;
    let good = response.status().is_success();
    let text = Limited::new(response.into_body(), LARGEST).collect().await;
    driving.abort();
    match text {
        Ok(text) => Ok((good, text.to_bytes())),
        Err(error) => Err(anyhow!("{}: {error}", failed())),
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
