//! One API behind one address: custom resources at Kubernetes' own server, all other kinds at the stub.
//!
//! Problem: a daemon in a pod knows one server, by TLS and the token of its account. The server for custom
//! resources has neither pods nor accounts, the stub has no schemas and field managers.
//!
//! Idea: requests at the *secure* address need the token, and go to the stub where it knows the kind, else
//! to the server. The *open* address is for the test: the same without TLS and token, and below `/rig/` what
//! a test does to the API (`POST kill`, `POST resume`) and asks of it (`GET account`, `GET requests`), and
//! pages of the stub (`PUT pages/PATH`).
//!
//! Invariants: both addresses are on loopback. While the server is killed, nothing listens at the secure
//! address and all its connections are closed, as if both servers were one process.

use std::{
    convert::Infallible,
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch::Sender,
    task::{JoinSet, spawn_blocking},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    certificates::{AUTHORITY, SERVER},
    server::ApiServer,
    stub::{self, ApiStub, status_object},
};

/// The token of the one account.
const TOKEN: &str = "token-of-the-account-of-the-daemon";
/// Beginning of the paths that are the test's own.
const RIG: &str = "/rig/";
/// Time until the next try after a connection could not be accepted.
const LOOK: Duration = Duration::from_millis(10);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type FrontBody = UnsyncBoxBody<Bytes, Failure>;

/// An API on two loopback ports; it and its servers end on drop.
#[derive(Debug)]
pub struct ApiFront {
    secure: SocketAddr,
    open: SocketAddr,
    end: Sender<bool>,
    thread: Option<JoinHandle<()>>,
    _stub: ApiStub,
}

/// What all connections share.
struct FrontState {
    server: Mutex<ApiServer>,
    client: Client,
    stub: stub::Shared,
    acceptor: TlsAcceptor,
    /// Certificates of the authority, as PEM.
    authority: String,
    /// Whether the secure address is to listen, and whether it does.
    up: Sender<bool>,
    listening: Sender<bool>,
    /// Method, path and status of each request at the secure address, in order of the answers.
    requests: Mutex<Vec<Value>>,
}

impl ApiFront {
    /// An API that is ready, with a certificate for this machine and these names and addresses. `None` where
    /// the server has no programs.
    ///
    /// # Panics
    ///
    /// If it does not become ready, and without programs of the server in CI.
    pub fn start(names: &[String]) -> Option<Self> {
        let server = ApiServer::start_as(names)?;
        let stub = ApiStub::start(&[]);
        let [secure, open] = [(); 2].map(|()| {
            let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a port");
            listener.set_nonblocking(true).expect("a listener that does not block");
            listener
        });
        let [secure_at, open_at] = [&secure, &open].map(|one| one.local_addr().expect("the port's number"));
        let end = Sender::new(false);
        let (shared, ends) = (stub.shared().clone(), end.clone());
        let serve = move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let state = Arc::new(FrontState::new(server, shared).await.expect("an API"));
                let mut ends = ends.subscribe();
                tokio::select! {
                    () = serve_secure(Arc::clone(&state), secure, secure_at) => {}
                    () = serve_open(state, open) => {}
                    _ = ends.wait_for(|&ends| ends) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("api-front".into()).spawn(serve).expect("a thread");
        Some(Self { secure: secure_at, open: open_at, end, thread: Some(thread), _stub: stub })
    }

    /// Port of the address with TLS, which asks for the token.
    pub fn secure_port(&self) -> u16 {
        self.secure.port()
    }

    /// Port of the address without.
    pub fn open_port(&self) -> u16 {
        self.open.port()
    }
}

impl Drop for ApiFront {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

impl FrontState {
    async fn new(server: ApiServer, stub: stub::Shared) -> Result<Self> {
        let read = |name: &str| {
            let path = server.folder().join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let (authority, certificate, key) = (read(AUTHORITY)?, read(SERVER[0])?, read(SERVER[1])?);
        let certificates = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("read the key")?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
        let config = config.with_single_cert(certificates.context("read the certificate")?, key)?;
        let client = server.client().await;
        Ok(Self {
            server: Mutex::new(server),
            client,
            stub,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            authority,
            up: Sender::new(true),
            listening: Sender::new(true),
            requests: Mutex::default(),
        })
    }

    /// Lets the secure address listen or not, and waits until it is so.
    async fn listen(&self, up: bool) {
        let mut listening = self.listening.subscribe();
        self.up.send_replace(up);
        // The sender is here.
        let _ = listening.wait_for(|&listening| listening == up).await;
    }

    fn requests(&self) -> MutexGuard<'_, Vec<Value>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the secure address whenever it is up.
async fn serve_secure(state: Arc<FrontState>, first: StdListener, address: SocketAddr) {
    let mut up = state.up.subscribe();
    let mut first = Some(first);
    while up.wait_for(|&up| up).await.is_ok() {
        let listener = match first.take() {
            Some(listener) => TcpListener::from_std(listener),
            None => TcpListener::bind(address).await,
        };
        let Ok(listener) = listener else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        state.listening.send_replace(true);
        // They end with this round.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        connections.spawn(serve_secure_connection(Arc::clone(&state), stream));
                    }
                }
                _ = connections.join_next(), if !connections.is_empty() => {}
                _ = up.wait_for(|&up| !up) => break,
            }
        }
        connections.shutdown().await;
        drop(listener);
        state.listening.send_replace(false);
    }
}

async fn serve_secure_connection(state: Arc<FrontState>, stream: TcpStream) {
    let Ok(stream) = state.acceptor.accept(stream).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let state = Arc::clone(&state);
        async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let answer = if is_of_account(&request) {
                serve(&state, request).await
            } else {
                Ok(refused(StatusCode::UNAUTHORIZED, "Unauthorized"))
            };
            let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            let told = json!({"method": method.as_str(), "path": uri.to_string(), "status": status});
            state.requests().push(told);
            answer
        }
    });
    // An error is a connection that was dropped, by either side.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn is_of_account(request: &Request<Incoming>) -> bool {
    let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    sent.and_then(|sent| sent.strip_prefix("Bearer ")) == Some(TOKEN)
}

/// Serves the open address.
async fn serve_open(state: Arc<FrontState>, listener: StdListener) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let state = Arc::clone(&state);
        let service = service_fn(move |request: Request<Incoming>| {
            let state = Arc::clone(&state);
            async move {
                match request.uri().path().strip_prefix(RIG).map(str::to_owned) {
                    Some(verb) => Ok(serve_rig(&state, &verb, request).await),
                    None => serve(&state, request).await,
                }
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Answers at the server that has the kind.
async fn serve(state: &FrontState, request: Request<Incoming>) -> io::Result<Response<FrontBody>> {
    if state.stub.serves(request.uri().path()) {
        let answer = stub::answer(state.stub.clone(), request).await?;
        return Ok(answer.map(|body| body.map_err(|never: Infallible| match never {}).boxed_unsync()));
    }
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut passed = Request::builder().method(parts.method).uri(path);
    for name in [ACCEPT, CONTENT_TYPE] {
        if let Some(value) = parts.headers.get(&name) {
            passed = passed.header(name, value);
        }
    }
    let passed = passed.body(Body::from(bytes)).map_err(io::Error::other)?;
    let (parts, body) = state.client.send(passed).await.map_err(io::Error::other)?.into_parts();
    let mut answer = Response::builder().status(parts.status);
    if let Some(value) = parts.headers.get(CONTENT_TYPE) {
        answer = answer.header(CONTENT_TYPE, value);
    }
    answer.body(body.map_err(Failure::from).boxed_unsync()).map_err(io::Error::other)
}

/// What the test does to the API, or asks of it.
async fn serve_rig(state: &Arc<FrontState>, verb: &str, request: Request<Incoming>) -> Response<FrontBody> {
    let done = match (request.method(), verb) {
        (&Method::GET, "account") => Ok(json!({"token": TOKEN, "authority": state.authority})),
        (&Method::GET, "requests") => Ok(Value::Array(state.requests().clone())),
        (&Method::POST, "kill") => {
            state.listen(false).await;
            on_server(state, ApiServer::kill).await
        }
        (&Method::POST, "resume") => {
            let done = on_server(state, ApiServer::resume).await;
            state.listen(true).await;
            done
        }
        (&Method::PUT, page) if page.starts_with("pages/") => {
            let path = page.trim_start_matches("pages").to_owned();
            let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
            let value = body.map_err(anyhow::Error::from).and_then(|body| Ok(serde_json::from_slice(&body)?));
            value.map(|value| {
                state.stub.page(&path, value);
                Value::Null
            })
        }
        _ => return refused(StatusCode::NOT_FOUND, "NotFound"),
    };
    match done {
        Ok(value) => body_of(StatusCode::OK, &value),
        Err(error) => body_of(StatusCode::INTERNAL_SERVER_ERROR, &json!({"message": format!("{error:#}")})),
    }
}

/// Does something that takes time to the server.
async fn on_server(state: &Arc<FrontState>, what: fn(&mut ApiServer)) -> Result<Value> {
    let state = Arc::clone(state);
    let done = spawn_blocking(move || what(&mut state.server.lock().unwrap_or_else(PoisonError::into_inner)));
    done.await.map(|()| Value::Null).map_err(|panicked| anyhow!("the API server: {panicked}"))
}

fn refused(status: StatusCode, reason: &str) -> Response<FrontBody> {
    body_of(status, &status_object(status.as_u16(), reason, reason, &[]))
}

fn body_of(status: StatusCode, value: &Value) -> Response<FrontBody> {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {}).boxed_unsync();
    let answer = Response::builder().status(status).header(CONTENT_TYPE, "application/json").body(body);
    answer.expect("a status and a header that are valid")
}
