//! A stand-in for an API server, in memory: objects of any kind, and failures on request.
//!
//! It serves lists, watches (resource versions, bookmarks, 410), creation, replacement, deletion, merge
//! patches, lists of operations (RFC 6902) and server-side apply. Apply is a plain merge: it has no field
//! managers, so conflicts are asked for ([`Fault`]). It checks no schema. A path of no kind is answered
//! with 404 and a `Status`.

mod answer;
mod binding;
mod fault;
mod json_patch;
mod request;
mod store;
mod watch;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch::Sender};

pub(crate) use self::answer::{answer, status_object};
pub use self::{fault::Fault, request::StubKind};
use self::{fault::FaultQueue, store::Store};

/// Time until the next try after a connection could not be accepted.
const LOOK: Duration = Duration::from_millis(10);

/// What all connections share.
#[derive(Debug)]
struct StubState {
    store: Store,
    faults: FaultQueue,
    /// When requests that would change something arrived, refused ones included.
    attempts: Vec<Instant>,
    /// Values of the header `Authorization`, in order of arrival; `None` for a request without.
    authorizations: Vec<Option<String>>,
    /// Verb, path and query of each request, and when it arrived.
    requests: Vec<(Instant, String)>,
    /// How often all watches were ended, and how often all were silenced.
    ended_watches: u64,
    silenced_watches: u64,
    /// `nodes/NAME/proxy/configz` and the like: answers to `GET` by path.
    pages: Vec<(String, Value)>,
    bindings: Vec<StubBinding>,
}

/// A binding that the stub has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubBinding {
    /// Name of the pod.
    pub pod: String,
    /// Its node.
    pub node: String,
}

impl StubState {
    /// How often all watches were ended, and how often all were silenced.
    fn watch_orders(&self) -> (u64, u64) {
        (self.ended_watches, self.silenced_watches)
    }
}

/// State, and a counter that changes with it.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    state: Arc<Mutex<StubState>>,
    changed: Sender<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, StubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn page(&self, path: &str, value: Value) {
        self.state().pages.push((path.to_owned(), value));
    }

    /// Whether this path is of a kind that the stub serves, or of a page.
    pub(crate) fn serves(&self, path: &str) -> bool {
        let state = self.state();
        state.store.target(path).is_some() || state.pages.iter().any(|(of, _)| of == path)
    }
}

/// A stub on a loopback port; it ends on drop.
#[derive(Debug)]
pub struct ApiStub {
    shared: Shared,
    address: SocketAddr,
    end: Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ApiStub {
    /// Serves pods, nodes, events and leases, and these kinds.
    ///
    /// # Panics
    ///
    /// If no port can be bound.
    pub fn start(kinds: &[StubKind]) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a port");
        let address = listener.local_addr().expect("the port's number");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let state = StubState {
            store: Store::new(request::WITHOUT_ASKING.iter().chain(kinds).copied().collect()),
            faults: FaultQueue::default(),
            attempts: Vec::new(),
            authorizations: Vec::new(),
            requests: Vec::new(),
            ended_watches: 0,
            silenced_watches: 0,
            pages: Vec::new(),
            bindings: Vec::new(),
        };
        let (changed, end) = (Sender::new(0), Sender::new(false));
        let shared = Shared { state: Arc::new(Mutex::new(state)), changed };
        let (served, ends) = (shared.clone(), end.clone());
        let serve = move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(serve(listener, served, ends));
        };
        let thread = thread::Builder::new().name("api-stub".into()).spawn(serve).expect("a thread");
        Self { shared, address, end, thread: Some(thread) }
    }

    /// What its connections share, for a server in front of it.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Its address, for a kubeconfig or an in-cluster client.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Settings of a client of it that repeats no request.
    ///
    /// # Panics
    ///
    /// If the settings cannot be made.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.url().parse().expect("an address"));
        config.default_retry = false;
        config
    }

    /// A client of it that repeats no request.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("make a client")
    }

    /// Creates or replaces an object, beside all clients; `path` is that of the object.
    ///
    /// # Panics
    ///
    /// If the path is of no kind.
    pub fn put(&self, path: &str, object: Value) {
        let target = self.shared.state().store.target(path).expect(path);
        self.shared.state().store.put(&target, object);
        self.shared.notify();
    }

    /// The object at this path.
    pub fn object(&self, path: &str) -> Option<Value> {
        let state = self.shared.state();
        state.store.get(&state.store.target(path)?).cloned()
    }

    /// All objects of the collection at this path.
    pub fn objects(&self, path: &str) -> Vec<Value> {
        let state = self.shared.state();
        state.store.target(path).map(|target| state.store.list(&target)).unwrap_or_default()
    }

    /// Removes an object, beside all clients; whether it was there.
    pub fn remove(&self, path: &str) -> bool {
        let target = self.shared.state().store.target(path);
        let removed = target.is_some_and(|target| self.shared.state().store.remove(&target).is_some());
        self.shared.notify();
        removed
    }

    /// Accepted bindings in their order, from this position on: a kubelet admits its pods in that order.
    pub fn bindings_from(&self, position: usize) -> Vec<StubBinding> {
        self.shared.state().bindings.get(position..).unwrap_or_default().to_vec()
    }

    /// Answers `GET` of exactly this path with a value, such as `/api/v1/nodes/a/proxy/configz`.
    pub fn page(&self, path: &str, value: Value) {
        self.shared.page(path, value);
    }

    /// Lets the next requests that would change something fail, one each, before or instead of later ones.
    pub fn fail_writes(&self, faults: impl IntoIterator<Item = Fault>) {
        self.shared.state().faults.writes.extend(faults);
    }

    /// Lets the next other requests fail, one each.
    pub fn fail_reads(&self, faults: impl IntoIterator<Item = Fault>) {
        self.shared.state().faults.reads.extend(faults);
    }

    /// Lets every request fail that no single fault is meant for, until told otherwise.
    pub fn fail_always(&self, fault: Option<Fault>) {
        self.shared.state().faults.always = fault;
    }

    /// Forgets all changes: watches end with 410, and those from an earlier version are refused.
    pub fn compact(&self) {
        self.shared.state().store.compact();
        self.shared.notify();
    }

    /// Ends the answers of all watches that run.
    pub fn end_watches(&self) {
        self.shared.state().ended_watches += 1;
        self.shared.notify();
    }

    /// Lets all watches that run say nothing more, without an end.
    pub fn silence_watches(&self) {
        self.shared.state().silenced_watches += 1;
        self.shared.notify();
    }

    /// Sends a bookmark to every watch that allows them.
    pub fn bookmark(&self) {
        self.shared.state().store.bookmark();
        self.shared.notify();
    }

    /// Changes that clients have made.
    pub fn writes(&self) -> u64 {
        self.shared.state().store.writes()
    }

    /// When requests that would change something arrived, those that were refused included.
    pub fn attempts(&self) -> Vec<Instant> {
        self.shared.state().attempts.clone()
    }

    /// Method, path and query of each request in order of arrival, and when it arrived.
    pub fn requests(&self) -> Vec<(Instant, String)> {
        self.shared.state().requests.clone()
    }

    /// What clients sent to say who they are, in order of arrival.
    pub fn authorizations(&self) -> Vec<Option<String>> {
        self.shared.state().authorizations.clone()
    }
}

impl Drop for ApiStub {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

/// Serves connections, each in a task, until the end; with the runtime, all of them end.
async fn serve(listener: StdListener, shared: Shared, end: Sender<bool>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    let mut ends = end.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ends.wait_for(|&ends| ends) => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let shared = shared.clone();
        let service = service_fn(move |request| answer(shared.clone(), request));
        // An error is a connection that was dropped, by either side.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
