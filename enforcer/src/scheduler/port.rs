//! A port of the extender: on loopback, or with TLS for clients with a certificate of the authority for them.
//!
//! Invariants: a client without a certificate costs a handshake and no more. Handshakes are bounded in time
//! and number: where there are too many, the oldest one ends, so that clients that say nothing keep none out.
//! Connections are bounded in number, and idle ones end; on the port of the probes the oldest one makes room.
//! When this replica leads no more, or the certificates change, every handshake ends, and every connection
//! after the answer that it waits for: the next one is to a replica that leads, by the certificates of now.

use std::{collections::VecDeque, convert::Infallible, pin::pin, time::Duration};

use axum::Router;
use enforcer_cluster::{Leadership, ServerTls, send_if_different};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use numa_topology::degraded::Degraded;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch::{self, Receiver, Sender},
    task::{AbortHandle, JoinSet},
    time::{interval, sleep, timeout},
};

use crate::serve::BoxedStream;

/// Most handshakes at a time.
const HANDSHAKES: usize = 64;
/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Most connections: kube-scheduler has one for each binding at a time.
const CONNECTIONS: usize = 256;
/// Longest wait for the head of a request: longer than kube-scheduler keeps an idle connection, 90 s.
const IDLE: Duration = Duration::from_secs(150);
/// Longest wait for an answer on a connection that has to end.
const ENDING: Duration = Duration::from_secs(5);
/// Most bytes of a request's head, and of unsent output.
const BUFFER: usize = 64 << 10;
/// Most headers of a request.
const HEADERS: usize = 32;
/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(2);
/// Wait after a failed accept, mostly for lack of file descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// A port, and what its connections depend on.
pub(super) struct Port {
    pub(super) listener: TcpListener,
    pub(super) router: Router,
    /// `None` on loopback, and for probes.
    pub(super) tls: Option<ServerTls>,
    /// `None` where every replica answers.
    pub(super) leadership: Option<Receiver<Leadership>>,
    /// Set while the certificates of now cannot be used.
    pub(super) unusable: Sender<Option<Degraded>>,
    /// Whether the oldest connection ends where there are too many, and not the newest one: an answer of the
    /// probes takes so little that the oldest one is of a client that says nothing.
    pub(super) oldest_makes_room: bool,
}

impl Port {
    /// A port without TLS that answers in every replica, for probes and metrics.
    pub(super) fn plain(listener: TcpListener, router: Router) -> Self {
        let unusable = watch::Sender::new(None);
        Self { listener, router, tls: None, leadership: None, unusable, oldest_makes_room: true }
    }

    /// Serves until the future is dropped.
    pub(super) async fn serve(mut self) -> Infallible {
        let (mut handshakes, mut connections) = (Tasks::default(), Tasks::default());
        let (ending, mut looks) = (watch::Sender::new(()), interval(LOOK));
        let mut led = false;
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => match (accepted, &self.tls) {
                    (Ok((stream, _peer)), Some(tls)) => {
                        handshakes.make_room(HANDSHAKES);
                        begin_handshake(&mut handshakes, tls, stream);
                        None
                    }
                    (Ok((stream, _peer)), None) => Some(Box::new(stream) as BoxedStream),
                    (Err(error), _) => {
                        tracing::warn!("accepting a connection: {error}");
                        sleep(RETRY).await;
                        None
                    }
                },
                Some(ended) = handshakes.running.join_next() => ended.unwrap_or_else(|_aborted| {
                    tracing::debug!("{HANDSHAKES} handshakes, and one more");
                    None
                }),
                Some(_ended) = connections.running.join_next() => None,
                _ = looks.tick(), if self.tls.is_some() => {
                    if self.look_at_files() {
                        handshakes = Tasks::default();
                        ending.send_replace(());
                    }
                    None
                }
                leads = changed(&mut self.leadership) => {
                    if led && !leads {
                        handshakes = Tasks::default();
                        ending.send_replace(());
                    }
                    led = leads;
                    None
                }
            };
            if let Some(stream) = stream {
                if self.oldest_makes_room {
                    connections.make_room(CONNECTIONS);
                }
                if connections.count() < CONNECTIONS {
                    let service = TowerToHyperService::new(self.router.clone());
                    let ending = ending.subscribe();
                    connections.begin(async {
                        connection(stream, service, ending).await;
                        None
                    });
                } else {
                    tracing::debug!("{CONNECTIONS} connections, and one more");
                }
            }
        }
    }

    /// Whether there are other certificates now.
    fn look_at_files(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return false };
        let looked = tls.reload();
        let renewed = looked == Ok(true);
        if renewed {
            tracing::info!("uses renewed certificates");
        }
        send_if_different(&self.unusable, looked.err().map(|error| error.degraded()));
        renewed
    }
}

/// Handshakes, with the stream of each that succeeds, or connections. All of them end with it.
#[derive(Default)]
struct Tasks {
    running: JoinSet<Option<BoxedStream>>,
    /// From the oldest one on.
    order: VecDeque<AbortHandle>,
}

impl Tasks {
    fn begin(&mut self, task: impl Future<Output = Option<BoxedStream>> + Send + 'static) {
        self.order.push_back(self.running.spawn(task));
    }

    /// How many have not ended.
    fn count(&mut self) -> usize {
        self.order.retain(|task| !task.is_finished());
        self.order.len()
    }

    /// Ends the oldest one where there are so many.
    fn make_room(&mut self, most: usize) {
        if self.count() >= most
            && let Some(oldest) = self.order.pop_front()
        {
            oldest.abort();
        }
    }
}

fn begin_handshake(handshakes: &mut Tasks, tls: &ServerTls, stream: TcpStream) {
    let handshake = timeout(HANDSHAKE, tls.accept(stream));
    handshakes.begin(async {
        match handshake.await {
            Ok(Ok(stream)) => Some(Box::new(stream) as BoxedStream),
            Ok(Err(error)) => {
                tracing::debug!("a handshake failed: {error}");
                None
            }
            Err(_elapsed) => {
                tracing::debug!("a handshake took longer than {HANDSHAKE:?}");
                None
            }
        }
    });
}

/// Whether this replica leads, at the next change.
async fn changed(leadership: &mut Option<Receiver<Leadership>>) -> bool {
    if let Some(leadership) = leadership
        && leadership.changed().await.is_ok()
    {
        return leadership.borrow_and_update().leads();
    }
    std::future::pending().await
}

async fn connection(stream: BoxedStream, service: TowerToHyperService<Router>, mut ending: Receiver<()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(BUFFER).max_headers(HEADERS);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = ending.changed() => {
            connection.as_mut().graceful_shutdown();
            timeout(ENDING, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
