//! Connections of the control socket, and what one connection may take, there and on a TCP port.
//!
//! A peer may be hostile: slow, silent, sending without end, reading nothing, a thousand at a time. So a
//! connection has one request and [`WHOLE`] from beginning to end, and its buffers are small. On the control
//! socket there are so many at most; peers that may change something have places of their own, which the
//! others cannot take. What is too much is closed, not queued. Places of a TCP port are [`super::places`].
//! Nothing here runs on the threads that turn the engine or answer a runtime.

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

/// A connection, from its acceptance to its end.
pub(super) const WHOLE: Duration = Duration::from_secs(10);
/// Wait after a connection could not be accepted: no file descriptors are left, mostly.
pub(super) const RETRY: Duration = Duration::from_millis(100);
/// Connections at a time of those who may change something.
const PRIVILEGED: usize = 8;
/// Connections at a time of all others together.
const OTHERS: usize = 8;
/// Bytes of the head of a request, and of what waits to be sent.
const BUFFER: usize = 16 << 10;
/// Headers of a request.
const HEADERS: usize = 32;

/// What the process at the other end may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing.
    None,
    /// Ask.
    Read,
    /// Ask, and change how the daemon works.
    Change,
}

/// Answers whoever connects, until the process ends.
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
        let places = if access == Access::Change { &privileged } else { &others };
        // Without a place it is closed.
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            let router = router.clone().layer(Extension(access));
            tokio::spawn(async move {
                connection(stream, TowerToHyperService::new(router)).await;
                drop(place);
            });
        }
    }
}

/// Root and our own user may do everything, members of the socket's group may ask.
fn access(stream: &UnixStream, group: u32) -> Access {
    let Ok(peer) = stream.peer_cred() else { return Access::None };
    let also = || peer::groups(stream.as_fd()).is_ok_and(|groups| groups.contains(&group));
    allowed(peer.uid(), geteuid().as_raw(), || peer.gid() == group || also())
}

fn allowed(uid: u32, own: u32, is_member: impl FnOnce() -> bool) -> Access {
    if uid == 0 || uid == own {
        Access::Change
    } else if is_member() {
        Access::Read
    } else {
        Access::None
    }
}

/// Serves one request of a connection.
pub(super) async fn connection<S>(stream: impl AsyncRead + AsyncWrite + Unpin, service: S)
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible>,
{
    let mut http = http1::Builder::new();
    // Who has said everything may close its side and wait for the answer.
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
            (0, 0, false, Access::Change),
            (0, 999, false, Access::Change),
            (999, 999, false, Access::Change),
            (1000, 0, true, Access::Read),
            (1000, 999, true, Access::Read),
            (1000, 0, false, Access::None),
            (65534, 0, false, Access::None),
        ] {
            assert_eq!(allowed(uid, own, || member), access, "{uid} {own} {member}");
        }
    }
}
