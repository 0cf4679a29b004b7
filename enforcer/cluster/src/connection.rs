//! A connection to the API server as the daemon's own account.
//!
//! kube reads the token file again once a minute. A token that was revoked before that is answered with 401:
//! then the client is made anew, which reads it at once. kube's own retries are off, because writes are paced
//! and counted here.

use std::{
    error::Error,
    fs,
    path::Path,
    sync::{Mutex, PoisonError, RwLock},
    time::{Duration, Instant, UNIX_EPOCH},
};

use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, DATE, HeaderValue, RETRY_AFTER},
};
use hyper_util::client::legacy;
use kube::{
    Client, Config,
    client::Body,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use numa_topology::text::with_causes;
use serde_json::Value;
use thiserror::Error;

use crate::{
    api_error::{ApiError, judge},
    publish::Recovery,
};

/// Media type of questions.
pub(crate) const JSON: &str = "application/json";
/// Media type of server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

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
    /// Time of the server at its latest answer, in seconds since 1970, and when that was; before the first
    /// one there is none.
    server_time: Mutex<Option<(i64, Instant)>>,
    recovery: Recovery,
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
    /// No connection was made.
    Unreachable(String),
    /// The connection broke before the whole answer.
    Broken(String),
}

impl ApiConnection {
    /// As the service account of the pod that this process runs in.
    pub fn in_cluster() -> Result<Self, ConnectError> {
        let config = Config::incluster_env().map_err(|error| ConnectError(no_account(&error)))?;
        Ok(Self { is_of_pod: true, ..Self::new(config)? })
    }

    /// As the account of a kubeconfig if there is one, else as the service account of the pod.
    ///
    /// # Errors
    /// As [`Self::of_kubeconfig`] and [`Self::in_cluster`].
    pub async fn of_account(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        match kubeconfig {
            Some(path) => Self::of_kubeconfig(path).await,
            None => Self::in_cluster(),
        }
    }

    /// The account of the pod, read now, because tokens are renewed; `None` where it is another one or cannot
    /// be read.
    pub fn pod_account(&self) -> Option<PodAccount> {
        let read = |file: &str| fs::read(Path::new(ACCOUNT).join(file)).ok();
        let (token, authority) = (read("token")?, read("ca.crt")?);
        let token = String::from_utf8(token).ok()?;
        self.is_of_pod.then_some(PodAccount { token, authority })
    }

    /// Namespace of the pod, or of the current context.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// The server's time by its latest answer, in seconds since 1970; `None` if it tells none.
    pub(crate) fn server_time(&self) -> Option<i64> {
        let (at, told) = (*self.server_time.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(at.saturating_add(i64::try_from(told.elapsed().as_secs()).ok()?))
    }

    /// What is known of failures of the server.
    pub(crate) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// As the account of a kubeconfig, whose server is named by a number: the static binary resolves no name.
    /// Called within a runtime.
    pub async fn of_kubeconfig(path: &Path) -> Result<Self, ConnectError> {
        let failed =
            |error: KubeconfigError| ConnectError(format!("{}: {}", path.display(), with_causes(&error)));
        let file = Kubeconfig::read_from(path).map_err(failed)?;
        let config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?;
        Self::new(config)
    }

    /// With these settings. Called within a runtime, which serves the connection.
    pub fn new(mut config: Config) -> Result<Self, ConnectError> {
        config.default_retry = false;
        let client = client(&config)?;
        let (client, server_time) = (RwLock::new(client), Mutex::default());
        Ok(Self { config, client, is_of_pod: false, server_time, recovery: Recovery::default() })
    }

    /// Sends a request and reads its answer.
    async fn send(
        &self,
        method: &Method,
        path: &str,
        media: &'static str,
        body: &[u8],
    ) -> Result<ApiAnswer, NoAnswer> {
        within(LIMIT, async { whole(self.begin(method, path, media, body).await?).await }).await
    }

    /// Sends a request; after a 401 once more with the token of now.
    async fn begin(
        &self,
        method: &Method,
        path: &str,
        media: &'static str,
        body: &[u8],
    ) -> Result<Response<Body>, NoAnswer> {
        let answer = self.begin_once(method, path, media, body).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        match client(&self.config) {
            Ok(client) => *self.client.write().unwrap_or_else(PoisonError::into_inner) = client,
            Err(error) => return Err(NoAnswer::Broken(error.to_string())),
        }
        self.begin_once(method, path, media, body).await
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
        let ended = match self.send(&method, path, media, body).await {
            Ok(answer) if answer.status.is_success() => Ok(answer),
            Ok(answer) => Err(judge(operation, verb, shown, &answer)),
            Err(none) => Err(none.of(operation, LIMIT)),
        };
        self.recovery.note(&ended);
        ended
    }

    /// Begins a request whose answer is read in parts; every answer but success is an error.
    pub(crate) async fn open(&self, verb: &'static str, path: &str) -> Result<Body, ApiError> {
        self.open_within(LIMIT, verb, path).await
    }

    async fn open_within(&self, limit: Duration, verb: &'static str, path: &str) -> Result<Body, ApiError> {
        let shown = path.split('?').next().unwrap_or(path);
        let operation = format!("{verb} {shown}");
        let begun = async {
            let answer = self.begin(&Method::GET, path, JSON, b"").await?;
            if answer.status().is_success() {
                Ok(Ok(answer.into_body()))
            } else {
                whole(answer).await.map(Err)
            }
        };
        let ended = match within(limit, begun).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(answer)) => Err(judge(operation, verb, shown, &answer)),
            Err(none) => Err(none.of(operation, limit)),
        };
        self.recovery.note(&ended);
        ended
    }

    /// The answer to a question as text, if it has at most so many bytes; every answer but success is an
    /// error.
    pub(crate) async fn read_whole(
        &self,
        verb: &'static str,
        path: &str,
        largest: usize,
    ) -> Result<Vec<u8>, ApiError> {
        let operation = format!("{verb} {}", path.split('?').next().unwrap_or(path));
        let exchange = async {
            let body = Limited::new(self.open_within(LIST_LIMIT, verb, path).await?, largest).collect();
            let broken = |cause| ApiError::Broken { operation: operation.clone(), cause };
            Ok(body.await.map_err(|error| broken(error.to_string()))?.to_bytes().into())
        };
        let late = |_elapsed| ApiError::Late { operation: operation.clone(), limit: LIST_LIMIT };
        tokio::time::timeout(LIST_LIMIT, exchange).await.map_err(late)?
    }

    async fn begin_once(
        &self,
        method: &Method,
        path: &str,
        media: &'static str,
        body: &[u8],
    ) -> Result<Response<Body>, NoAnswer> {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, media);
        let request = request.body(Body::from(body.to_vec()));
        let request = request.map_err(|error| NoAnswer::Broken(error.to_string()))?;
        let answer = client.send(request).await;
        let answer = answer.map_err(|error| NoAnswer::of_client(&error, &self.config.cluster_url))?;
        if let Some(at) = answer.headers().get(DATE).and_then(seconds_of) {
            *self.server_time.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, Instant::now()));
        }
        Ok(answer)
    }
}

impl NoAnswer {
    fn of_client(error: &kube::Error, server: &Uri) -> Self {
        let text = with_causes(error);
        let mut cause: Option<&dyn Error> = Some(error);
        while let Some(error) = cause {
            if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
                return Self::Unreachable(format!("{server}: {text}"));
            }
            cause = error.source();
        }
        Self::Broken(text)
    }

    fn of(self, operation: String, limit: Duration) -> ApiError {
        match self {
            Self::Late => ApiError::Late { operation, limit },
            Self::Unreachable(cause) => ApiError::Unreachable { operation, cause },
            Self::Broken(cause) => ApiError::Broken { operation, cause },
        }
    }
}

async fn within<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, NoAnswer>>,
) -> Result<T, NoAnswer> {
    tokio::time::timeout(limit, exchange).await.unwrap_or(Err(NoAnswer::Late))
}

/// Reads the rest of an answer.
async fn whole(answer: Response<Body>) -> Result<ApiAnswer, NoAnswer> {
    let (status, after) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
    let retry_after = after.as_ref().and_then(retry_after);
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| NoAnswer::Broken(error.to_string()))?;
    let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
    Ok(ApiAnswer { status, body, retry_after })
}

/// A date of HTTP, in seconds since 1970.
fn seconds_of(date: &HeaderValue) -> Option<i64> {
    let date = httpdate::parse_http_date(date.to_str().ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok()?.as_secs().try_into().ok()
}

/// What a server asks for, within [`LONGEST_WAIT`]: any number may stand there.
fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let seconds = value.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// Why the account of the pod cannot be used: kube names neither the file nor the variable.
fn no_account(error: &InClusterError) -> String {
    let place = match error {
        InClusterError::ReadCertificateBundle(_) | InClusterError::ParseCertificates(_) => {
            format!("{ACCOUNT}/ca.crt")
        }
        InClusterError::ReadDefaultNamespace(_) => format!("{ACCOUNT}/namespace"),
        _ => {
            return format!(
                "no API server is named: in a pod KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do, elsewhere a \
                 kubeconfig ({error})"
            );
        }
    };
    format!("{place}: {error}")
}

fn client(config: &Config) -> Result<Client, ConnectError> {
    Client::try_from(config.clone()).map_err(|error| ConnectError(with_causes(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_of_an_answer_is_the_time_of_the_server() {
        let at = |text| seconds_of(&HeaderValue::from_static(text));
        assert_eq!(at("Sat, 28 Nov 2026 07:00:00 GMT"), Some(1_795_849_200));
        assert_eq!(at("Fri, 31 Dec 1999 23:59:59 GMT"), Some(946_684_799));
        assert_eq!(at("yesterday"), None);
    }

    #[test]
    fn missing_account_of_the_pod_is_named_by_its_file() {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        for (error, place) in [
            (InClusterError::ReadCertificateBundle(missing()), "serviceaccount/ca.crt: "),
            (InClusterError::ReadDefaultNamespace(missing()), "serviceaccount/namespace: "),
            (
                InClusterError::ReadEnvironmentVariable(std::env::VarError::NotPresent),
                "KUBERNETES_SERVICE_HOST",
            ),
        ] {
            let told = no_account(&error);
            assert!(told.contains(place), "{told}");
        }
    }

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
