//! Limits of a connection, on the control socket and on a TCP port.
//!
//! A peer may be hostile: slow, silent, sending without end, reading nothing, a thousand at a time. So a
//! connection has one request, ends after [`WHOLE`], and has small buffers. The control socket has a fixed
//! number of connections. Privileged peers have places of their own, which others cannot take. Excess
//! connections are closed, not queued. Places of a TCP port are in [`super::places`]. Nothing here runs on
//! the threads that run turns or answer a runtime.

use std::{
    convert::Infallible,
    io,
    os::{fd::AsFd, unix::net::UnixListener as StdListener},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::HttpService};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rustix::process::geteuid;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use enforcer_kernel::peer;

/// Time limit of a connection.
pub(super) const WHOLE: Duration = Duration::from_secs(10);
/// Wait after a failed accept, mostly for lack of file descriptors.
pub(super) const RETRY: Duration = Duration::from_millis(100);
/// Most connections of privileged peers.
const PRIVILEGED: usize = 8;
/// Most connections of all other peers.
const OTHERS: usize = 8;
/// Most bytes of a request's head, and of unsent output.
const BUFFER: usize = 16 << 10;
/// Most headers of a request.
const HEADERS: usize = 32;

/// A stream of bytes to and from a peer. Boxed, so that HTTP is in the program once for all kinds of them.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// A stream of any kind.
pub(crate) type BoxedStream = Box<dyn ByteStream>;

/// Rights of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerRights {
    /// Nothing.
    None,
    /// May read.
    Read,
    /// May read and change how the daemon works.
    Change,
}

/// Accepts and answers connections until the process ends.
pub(super) async fn answer(listener: StdListener, group: u32, router: Router) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let (privileged, others) = (Arc::new(Semaphore::new(PRIVILEGED)), Arc::new(Semaphore::new(OTHERS)));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _unnamed)) => stream,
            Err(error) => {
                tracing::warn!("accepting on the control socket: {error}");
                sleep(RETRY).await;
                continue;
            }
        };
        let access = access(&stream, group);
        let places = if access == PeerRights::Change { &privileged } else { &others };
        // Without a free place it is closed.
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            let router = router.clone().layer(Extension(access));
            tokio::spawn(async move {
                connection(Box::new(stream), TowerToHyperService::new(router)).await;
                drop(place);
            });
        }
    }
}

/// Root and our own user may do everything; members of the socket's group may read.
fn access(stream: &UnixStream, group: u32) -> PeerRights {
    let Ok(peer) = stream.peer_cred() else { return PeerRights::None };
    let also = || peer::groups(stream.as_fd()).is_ok_and(|groups| groups.contains(&group));
    allowed(peer.uid(), geteuid().as_raw(), || peer.gid() == group || also())
}

fn allowed(uid: u32, own: u32, is_member: impl FnOnce() -> bool) -> PeerRights {
    if uid == 0 || uid == own {
        PeerRights::Change
    } else if is_member() {
        PeerRights::Read
    } else {
        PeerRights::None
    }
}

/// Serves one request of a connection.
pub(super) async fn connection<S>(stream: BoxedStream, service: S)
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible>,
{
    let mut http = http1::Builder::new();
    // A client may close its sending side and wait for the answer.
    http.keep_alive(false).half_close(true).max_buf_size(BUFFER).max_headers(HEADERS);
    match timeout(WHOLE, http.serve_connection(TokioIo::new(stream), service)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection ended: {error}"),
        Err(_elapsed) => tracing::debug!("a connection took longer than {WHOLE:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_our_user_change_members_ask_and_others_may_nothing() {
        for (uid, own, member, access) in [
            (0, 0, false, PeerRights::Change),
            (0, 999, false, PeerRights::Change),
            (999, 999, false, PeerRights::Change),
            (1000, 0, true, PeerRights::Read),
            (1000, 999, true, PeerRights::Read),
            (1000, 0, false, PeerRights::None),
            (65534, 0, false, PeerRights::None),
        ] {
            assert_eq!(allowed(uid, own, || member), access, "{uid} {own} {member}");
        }
    }
}
