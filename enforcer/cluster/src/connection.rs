//! A connection to the API server as the daemon's own account.
//!
//! kube reads the token file again once a minute. A token that was revoked before that is answered with 401:
//! then the client is made anew, which reads it at once. kube's own retries are off, because writes are paced
//! and counted here.

use std::{
    fs,
    path::Path,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Method, Request, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::Value;
use thiserror::Error;

use crate::api_error::{ApiError, judge};

/// Media type of questions.
pub(crate) const JSON: &str = "application/json";

/// Where the kubelet puts the account of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for a whole list.
const LIST_LIMIT: Duration = Duration::from_mins(2);
/// Longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// Bytes of an answer that are read: an object of etcd has 1.5 MiB at most.
const LARGEST: usize = 4 << 20;

/// Why there is no connection.
#[derive(Debug, Error)]
#[error("connecting to the API server: {0}")]
pub struct ConnectError(String);

/// A client that is made again when its token is refused.
pub struct ApiConnection {
    config: Config,
    client: RwLock<Client>,
    is_of_pod: bool,
}

/// The account of a pod, for a server beside the API server.
#[derive(Clone)]
pub struct PodAccount {
    /// Its token.
    pub token: String,
    /// Certificates of the cluster's authority, as PEM.
    pub authority: Vec<u8>,
}

/// An answer of the server, whatever its status.
#[derive(Debug)]
pub(crate) struct ApiAnswer {
    pub(crate) status: StatusCode,
    /// `Null` if it is no JSON.
    pub(crate) body: Value,
    pub(crate) retry_after: Option<Duration>,
}

/// Why a request has no answer.
enum NoAnswer {
    /// The time is over: the server may have done what was asked.
    Late,
    /// No connection, or one that broke.
    Broken(String),
}

impl ApiConnection {
    /// As the service account of the pod that this process runs in.
    pub fn in_cluster() -> Result<Self, ConnectError> {
        let config = Config::incluster_env().map_err(|error| ConnectError(error.to_string()))?;
        Ok(Self { is_of_pod: true, ..Self::new(config)? })
    }

    /// The account of the pod, read now, because tokens are renewed; `None` where it is another one or cannot
    /// be read.
    pub fn pod_account(&self) -> Option<PodAccount> {
        let read = |file: &str| fs::read(Path::new(ACCOUNT).join(file)).ok();
        let (token, authority) = (read("token")?, read("ca.crt")?);
        let token = String::from_utf8(token).ok()?;
        self.is_of_pod.then_some(PodAccount { token, authority })
    }

    /// As the account of a kubeconfig, whose server is named by a number: the static binary resolves no name.
    /// Called within a runtime.
    pub async fn of_kubeconfig(path: &Path) -> Result<Self, ConnectError> {
        let failed = |error: KubeconfigError| ConnectError(format!("{}: {}", path.display(), causes(&error)));
        let file = Kubeconfig::read_from(path).map_err(failed)?;
        let config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?;
        Self::new(config)
    }

    /// With these settings. Called within a runtime, which serves the connection.
    pub fn new(mut config: Config) -> Result<Self, ConnectError> {
        config.default_retry = false;
        let client = client(&config)?;
        Ok(Self { config, client: RwLock::new(client), is_of_pod: false })
    }

    /// Sends a request; after a 401 once more with the token of now. An error is a request without an answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        media: &'static str,
        body: &[u8],
    ) -> Result<ApiAnswer, NoAnswer> {
        let answer = self.send_once(&method, path, media, body).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        match client(&self.config) {
            Ok(client) => *self.client.write().unwrap_or_else(PoisonError::into_inner) = client,
            Err(error) => return Err(NoAnswer::Broken(error.to_string())),
        }
        self.send_once(&method, path, media, body).await
    }

    /// Sends a request; every answer but success is an error.
    pub(crate) async fn request(
        &self,
        verb: &'static str,
        method: Method,
        path: &str,
        media: &'static str,
        body: &[u8],
    ) -> Result<ApiAnswer, ApiError> {
        let shown = path.split('?').next().unwrap_or(path);
        let operation = format!("{verb} {shown}");
        match self.send(method, path, media, body).await {
            Ok(answer) if answer.status.is_success() => Ok(answer),
            Ok(answer) => Err(judge(operation, verb, shown, &answer)),
            Err(NoAnswer::Late) => Err(ApiError::Late { operation, limit: LIMIT }),
            Err(NoAnswer::Broken(cause)) => Err(ApiError::Unreachable { operation, cause }),
        }
    }

    /// The answer to a question as text, if it has at most so many bytes; every answer but success is an
    /// error.
    pub(crate) async fn read_whole(
        &self,
        verb: &'static str,
        path: &str,
        largest: usize,
    ) -> Result<Vec<u8>, ApiError> {
        let shown = path.split('?').next().unwrap_or(path);
        let operation = format!("{verb} {shown}");
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let broken = |cause: String| ApiError::Unreachable { operation: operation.clone(), cause };
        let request = Request::builder().uri(path).header(CONTENT_TYPE, JSON).body(Body::empty());
        let request = request.map_err(|error| broken(error.to_string()))?;
        let exchange = async {
            let answer = client.send(request).await.map_err(|error| broken(causes(&error)))?;
            let (status, after) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
            let body = Limited::new(answer.into_body(), largest).collect();
            let body = body.await.map_err(|error| broken(error.to_string()))?.to_bytes();
            if status.is_success() {
                return Ok(body.into());
            }
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let retry_after = after.as_ref().and_then(retry_after);
            Err(judge(operation.clone(), verb, shown, &ApiAnswer { status, body, retry_after }))
        };
        let late = |_elapsed| ApiError::Late { operation: operation.clone(), limit: LIST_LIMIT };
        tokio::time::timeout(LIST_LIMIT, exchange).await.map_err(late)?
    }

    async fn send_once(
        &self,
        method: &Method,
        path: &str,
        media: &'static str,
        body: &[u8],
    ) -> Result<ApiAnswer, NoAnswer> {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, media);
        let request = request.body(Body::from(body.to_vec()));
        let request = request.map_err(|error| NoAnswer::Broken(error.to_string()))?;
        let exchange = async {
            let answer = client.send(request).await.map_err(|error| causes(&error))?;
            let (status, after) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
            let retry_after = after.as_ref().and_then(retry_after);
            let body = Limited::new(answer.into_body(), LARGEST).collect();
            let body = body.await.map_err(|error| error.to_string())?;
            let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
            Ok::<_, String>(ApiAnswer { status, body, retry_after })
        };
        match tokio::time::timeout(LIMIT, exchange).await {
            Ok(answer) => answer.map_err(NoAnswer::Broken),
            Err(_elapsed) => Err(NoAnswer::Late),
        }
    }
}

/// What a server asks for, within [`LONGEST_WAIT`]: any number may stand there.
fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let seconds = value.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

fn client(config: &Config) -> Result<Client, ConnectError> {
    Client::try_from(config.clone()).map_err(|error| ConnectError(causes(&error)))
}

/// An error and what caused it: the outermost one says `client error` alone.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_that_a_server_asks_for_is_bounded() {
        for (text, wait) in [
            ("3", Some(3)),
            ("86400", Some(300)),
            ("18446744073709551615", Some(300)),
            ("18446744073709551616", None),
            ("-1", None),
            ("Fri, 31 Dec 1999 23:59:59 GMT", None),
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(retry_after(&value), wait.map(Duration::from_secs), "{text}");
        }
    }
}
