//! A TCP port: metrics and reports, or the probes alone.
//!
//! If the port is in use, the daemon runs without it and reports it as degraded. Binding is separate from
//! answering, because it needs privileges that are dropped before the thread starts.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
};

use axum::{
    Router,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::{
    Request,
    body::Incoming,
    service::{Service as _, service_fn},
};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::{
    connections::{RETRY, connection},
    places::{ConnectionPlace, ConnectionPlaces},
    token::is_probe,
};

/// Why a port is not served.
#[derive(Debug, Error)]
#[error("listening on {place}: {cause}")]
pub struct ServeError {
    /// The address or thread.
    pub place: String,
    /// Cause of the failure.
    #[source]
    pub cause: io::Error,
}

/// A bound address without answers yet.
#[derive(Debug)]
pub(super) struct PortServer {
    listener: StdListener,
    address: SocketAddr,
}

impl PortServer {
    /// Binds `address`.
    pub(super) fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let failed = |cause| ServeError { place: address.to_string(), cause };
        let listener = StdListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The bound address, with port 0 resolved.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether only this host can connect.
    pub(super) fn is_on_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// Answers until the process ends.
    pub(super) async fn answer(self, router: Router) {
        let Self { listener, address } = self;
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!("serving on {address} ended: {error}");
                return;
            }
        };
        let places = ConnectionPlaces::default();
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let place = Arc::new(places.enter(peer.ip()));
                    tokio::spawn(answer_one(stream, router.clone(), place));
                }
                Err(error) => {
                    tracing::warn!("accepting on {address}: {error}");
                    sleep(RETRY).await;
                }
            }
        }
    }
}

async fn answer_one(stream: TcpStream, router: Router, place: Arc<ConnectionPlace>) {
    let router = TowerToHyperService::new(router);
    let own = Arc::clone(&place);
    let service = service_fn(move |request: Request<Incoming>| {
        let may = is_probe(request.uri().path()) || own.begin_reading();
        let answer = may.then(|| router.call(request));
        async move {
            match answer {
                Some(answer) => answer.await,
                None => Ok(too_many()),
            }
        }
    });
    tokio::select! {
        () = connection(Box::new(stream), service) => {}
        () = place.taken() => tracing::debug!("a connection made room for another one"),
    }
}

fn too_many() -> Response {
    let again = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
    (StatusCode::SERVICE_UNAVAILABLE, again, "too many readers at a time\n").into_response()
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::mpsc, time::Duration};

    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        task::spawn_blocking,
        time::advance,
    };

    use super::{
        super::places::{LONG, PER_PEER, READERS, WAITING},
        *,
    };

    /// More than a connection's buffers hold.
    const MUCH: usize = 16 << 20;

    fn port() -> SocketAddr {
        let server = PortServer::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = server.address();
        let router = Router::new()
            .route("/report.json", get(async || "x".repeat(MUCH)))
            .route("/live", get(async || "alive\n"));
        tokio::spawn(server.answer(router));
        address
    }

    /// A connection from that address of this host, with `request` sent.
    async fn ask(port: SocketAddr, from: u8, request: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, from), 0).into()).unwrap();
        let mut stream = socket.connect(port).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    fn request(path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
    }

    async fn status(mut stream: TcpStream) -> String {
        let mut head = [0; 12];
        match stream.read_exact(&mut head).await {
            Ok(_) => String::from_utf8_lossy(&head[9..]).into_owned(),
            Err(_) => "closed".to_owned(),
        }
    }

    /// A busy thread keeps the paused clock from running ahead.
    fn stopped_clock() -> mpsc::Sender<()> {
        let (over, wait) = mpsc::channel::<()>();
        spawn_blocking(move || wait.recv());
        over
    }

    #[tokio::test(start_paused = true)]
    async fn sixteen_slow_readers_renewed_each_900_ms_do_not_fail_the_probe() {
        let _clock = stopped_clock();
        let port = port();
        for same_peer in [true, false] {
            let mut slow: Vec<TcpStream> = Vec::new();
            for round in 0..5 {
                let mut renewed = Vec::new();
                for reader in 0..16 {
                    let from = if same_peer { 1 } else { 2 + reader };
                    renewed.push(ask(port, from, &request("/report.json")).await);
                }
                slow = renewed;
                for reader in &slow {
                    reader.readable().await.unwrap();
                }
                let live = status(ask(port, 1, &request("/live")).await).await;
                assert_eq!(live, "200", "round {round}, same peer: {same_peer}");
                advance(Duration::from_millis(900)).await;
            }
            drop(slow);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_peer_of_slow_readers_leaves_places_for_another() {
        let _clock = stopped_clock();
        let port = port();
        let mut slow = Vec::new();
        for _ in 0..READERS {
            let reader = ask(port, 1, &request("/report.json")).await;
            reader.readable().await.unwrap();
            slow.push(reader);
        }
        assert_eq!(status(ask(port, 2, &request("/report.json")).await).await, "200");
        let mut refused = 0;
        for reader in slow.drain(PER_PEER..) {
            refused += usize::from(status(reader).await == "503");
        }
        assert_eq!(refused, READERS - PER_PEER);
        advance(LONG).await;
        assert_eq!(status(ask(port, 1, &request("/report.json")).await).await, "200", "a slow one made room");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_make_room_for_one_that_asks() {
        let _clock = stopped_clock();
        let port = port();
        let mut silent = Vec::new();
        for _ in 0..2 * WAITING {
            silent.push(ask(port, 1, "").await);
        }
        let half = ask(port, 1, "GET /live HTTP/1.1\r\nHost:").await;
        assert_eq!(status(ask(port, 1, &request("/live")).await).await, "200");
        assert_eq!(status(silent.remove(0)).await, "closed");
        drop(half);
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_that_names_it() {
        let taken = StdListener::bind(("127.0.0.1", 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let message = PortServer::bind(address).unwrap_err().to_string();
        assert!(message.starts_with(&format!("listening on {address}: ")), "{message}");
    }
}
