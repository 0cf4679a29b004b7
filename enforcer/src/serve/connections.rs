//! Connections of the control socket and of the port: who is at the other end, and how much of us they may
//! take.
//!
//! Whoever can connect may be hostile: slow, silent, sending without end, reading nothing, a thousand at a
//! time. So a connection has one request and [`WHOLE`] from beginning to end, its buffers are small, and
//! there are so many at most; those who may change something have places of their own, which the others
//! cannot take, and so has the port. What is too much is closed, not queued. On the port, where a probe
//! decides whether the daemon lives, the oldest goes that has asked nothing yet, and then who has been there
//! for [`LONG`]. Nothing here runs on the threads that turn the engine or answer a runtime.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::fd::AsFd,
    os::unix::net::UnixListener as StdListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router};
use hyper::{server::conn::http1, service::Service as _, service::service_fn};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rustix::process::geteuid;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener, UnixStream},
    sync::Semaphore,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::kernel::peer;

/// A connection, from its acceptance to its end.
const WHOLE: Duration = Duration::from_secs(10);
/// A connection of the port that others may have the place of: an answer takes less.
const LONG: Duration = Duration::from_secs(1);
/// Wait after a connection could not be accepted: no file descriptors are left, mostly.
const RETRY: Duration = Duration::from_millis(100);
/// Connections at a time of those who may change something.
const PRIVILEGED: usize = 8;
/// Connections at a time of all others together.
const OTHERS: usize = 8;
/// Connections at a time of the port.
const READERS: usize = 16;
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
                connection(stream, router, Arc::default()).await;
                drop(place);
            });
        }
    }
}

/// The same on the port, where all who connect are alike.
pub(super) async fn answer_port(
    listener: StdTcpListener,
    address: SocketAddr,
    router: Router,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut readers = Readers::default();
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => {
                if readers.make_room() {
                    let has_asked = Arc::new(AtomicBool::new(false));
                    let task = tokio::spawn(connection(stream, router.clone(), Arc::clone(&has_asked)));
                    let (task, since) = (task.abort_handle(), Instant::now());
                    readers.0.push(Reader { task, since, has_asked });
                }
            }
            Err(error) => {
                tracing::warn!("accepting on {address}: {error}");
                sleep(RETRY).await;
            }
        }
    }
}

/// Connections of the port, the oldest first.
#[derive(Debug, Default)]
struct Readers(Vec<Reader>);

#[derive(Debug)]
struct Reader {
    task: AbortHandle,
    since: Instant,
    has_asked: Arc<AtomicBool>,
}

impl Readers {
    /// Is there a place, or one that can be taken?
    fn make_room(&mut self) -> bool {
        self.0.retain(|reader| !reader.task.is_finished());
        if self.0.len() < READERS {
            return true;
        }
        let silent = self.0.iter().position(|reader| !reader.has_asked.load(Ordering::Relaxed));
        let Some(at) = silent.or_else(|| self.0.iter().position(|reader| reader.since.elapsed() >= LONG))
        else {
            return false;
        };
        self.0.remove(at).task.abort();
        true
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

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, has_asked: Arc<AtomicBool>) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        has_asked.store(true, Ordering::Relaxed);
        router.call(request)
    });
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
    use std::{
        future::pending,
        sync::{atomic::AtomicUsize, mpsc},
    };

    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        task::{spawn_blocking, yield_now},
        time::advance,
    };

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

    #[tokio::test(start_paused = true)]
    async fn the_silent_have_so_many_places_of_the_port_and_so_much_time_and_the_oldest_makes_room() {
        let listener = StdTcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(answer_port(listener, address, Router::new()));
        // As long as a thread is busy the clock stands still.
        let (over, wait) = mpsc::channel::<()>();
        let busy = spawn_blocking(move || wait.recv());
        let mut silent = Vec::new();
        for _place in 0..READERS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        silent.push(TcpStream::connect(address).await.unwrap());
        assert!(is_closed(&mut silent.remove(0)).await);
        for stream in &silent {
            let nothing = stream.try_read(&mut [0]).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        }
        drop(over);
        busy.await.unwrap().unwrap_err();
        for stream in &mut silent {
            assert!(is_closed(stream).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_has_a_second_for_itself_and_then_the_oldest_makes_room() {
        let listener = StdTcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // The answer is never made.
        let never = move || {
            count.fetch_add(1, Ordering::Relaxed);
            pending::<()>()
        };
        let router = Router::new().route("/", get(never));
        tokio::spawn(answer_port(listener, address, router));
        let (over, wait) = mpsc::channel::<()>();
        let busy = spawn_blocking(move || wait.recv());
        let mut asking = Vec::new();
        for _place in 0..READERS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            asking.push(stream);
        }
        while asked.load(Ordering::Relaxed) < READERS {
            yield_now().await;
        }
        assert!(is_closed(&mut TcpStream::connect(address).await.unwrap()).await);
        drop(over);
        busy.await.unwrap().unwrap_err();
        advance(LONG).await;
        let one_more = TcpStream::connect(address).await.unwrap();
        assert!(is_closed(&mut asking[0]).await);
        for stream in asking[1..].iter().chain([&one_more]) {
            assert_eq!(stream.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    async fn is_closed(stream: &mut TcpStream) -> bool {
        matches!(stream.read(&mut [0]).await, Ok(0) | Err(_))
    }
}
