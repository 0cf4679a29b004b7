//! The port for a kube-scheduler in another pod: only clients with a certificate of the authority for them.
//!
//! Invariants: a client without one costs a handshake and no more. Handshakes are bounded in time and number:
//! where there are too many, the oldest one ends, so that clients that say nothing keep none out. Connections
//! are bounded in number, and idle ones end. When this replica leads no more, or the certificates change,
//! every connection ends after the answer that it waits for: the next one is to a replica that leads, by the
//! certificates of now.

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
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch::{self, Receiver, Sender},
    task::{AbortHandle, JoinSet},
    time::{interval, sleep, timeout},
};

/// Most handshakes at a time.
const HANDSHAKES: usize = 64;
/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Most connections of clients with a certificate.
const CONNECTIONS: usize = 64;
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

/// Serves until the future is dropped. `unusable` is set while the files of now cannot be used.
pub(super) async fn serve(
    listener: TcpListener,
    mut tls: ServerTls,
    router: Router,
    mut leadership: Option<Receiver<Leadership>>,
    unusable: &Sender<Option<Degraded>>,
) -> Infallible {
    let (mut handshakes, mut connections) = (JoinSet::new(), JoinSet::new());
    let mut waiting: VecDeque<AbortHandle> = VecDeque::new();
    let (ending, mut looks) = (watch::Sender::new(()), interval(LOOK));
    let mut led = false;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => {
                    waiting.retain(|handshake| !handshake.is_finished());
                    if waiting.len() >= HANDSHAKES && let Some(oldest) = waiting.pop_front() {
                        oldest.abort();
                    }
                    waiting.push_back(handshakes.spawn(timeout(HANDSHAKE, tls.accept(stream))));
                }
                Err(error) => {
                    tracing::warn!("accepting a connection: {error}");
                    sleep(RETRY).await;
                }
            },
            Some(ended) = handshakes.join_next() => match ended {
                Ok(Ok(Ok(stream))) if connections.len() < CONNECTIONS => {
                    let service = TowerToHyperService::new(router.clone());
                    connections.spawn(connection(stream, service, ending.subscribe()));
                }
                Ok(Ok(Ok(_too_many))) => tracing::debug!("{CONNECTIONS} connections, and one more"),
                Ok(Ok(Err(error))) => tracing::debug!("a handshake failed: {error}"),
                Ok(Err(_elapsed)) => tracing::debug!("a handshake took longer than {HANDSHAKE:?}"),
                Err(_aborted) => tracing::debug!("{HANDSHAKES} handshakes, and one more"),
            },
            Some(_ended) = connections.join_next() => {}
            _ = looks.tick() => {
                let looked = tls.reload();
                if looked == Ok(true) {
                    tracing::info!("uses renewed certificates");
                    ending.send_replace(());
                }
                send_if_different(unusable, looked.err().map(|error| error.degraded()));
            }
            leads = changed(&mut leadership) => {
                if led && !leads {
                    ending.send_replace(());
                }
                led = leads;
            }
        }
    }
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

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: TowerToHyperService<Router>,
    mut ending: Receiver<()>,
) {
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
