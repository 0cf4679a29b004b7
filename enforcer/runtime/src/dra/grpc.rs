//! gRPC over a unix socket for the few methods of a plugin: messages are bytes here, so there is one server
//! for all services.
//!
//! Invariants: connections, streams of each and sizes of messages are bounded. A connection that breaks ends
//! nothing else.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    os::unix::net::UnixListener as StdListener,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use enforcer_core::workload::printable_within;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io,
    net::{UnixListener, UnixStream},
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::sleep,
};
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{http, tokio_stream::Stream},
    server::{Grpc, ServerStreamingService, UnaryService},
};

use crate::raw_messages::RawMessages;

/// Most connections at a time: one kubelet has one or two.
const MOST_CONNECTIONS: usize = 16;
/// Most calls at a time of one connection: a call that gives a claim up must pass those that wait for it.
const MOST_STREAMS: u32 = 1_024;
/// Largest request in bytes.
const LARGEST: usize = 1 << 20;
/// Wait after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer of a method, later.
pub type BoxedCall<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Status>> + Send + 'a>>;

/// Methods of a service by their full paths.
pub trait GrpcMethods: Send + Sync + 'static {
    /// One answer to one request; `None` if there is no such method.
    fn unary(&self, path: &str, request: Vec<u8>) -> Option<BoxedCall<'_>>;

    /// Answers one after another; `None` if there is no such method.
    fn stream(&self, path: &str) -> Option<AnswerStream>;
}

/// Answers of a stream, as they come.
#[derive(Debug)]
pub struct AnswerStream(pub(super) mpsc::Receiver<Result<Vec<u8>, Status>>);

impl Stream for AnswerStream {
    type Item = Result<Vec<u8>, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// Serves the methods at a socket until the future is dropped, and its connections with it.
///
/// # Errors
/// If the runtime does not take the socket.
pub async fn serve(socket: StdListener, methods: Arc<dyn GrpcMethods>) -> io::Result<Infallible> {
    let listener = UnixListener::from_std(socket)?;
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => {
                let methods = Arc::clone(&methods);
                open.spawn(async move {
                    serve_connection(stream, methods).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!("accepting a connection of the kubelet: {error}");
                sleep(PAUSE).await;
            }
        }
        while open.try_join_next().is_some() {}
    }
}

async fn serve_connection(stream: UnixStream, methods: Arc<dyn GrpcMethods>) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let methods = Arc::clone(&methods);
        async move { Ok::<_, Infallible>(answer(methods, request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MOST_STREAMS)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("a connection of the kubelet broke: {error}");
    }
}

async fn answer(methods: Arc<dyn GrpcMethods>, request: http::Request<Incoming>) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let mut grpc = Grpc::new(RawMessages).max_decoding_message_size(LARGEST);
    match methods.stream(&path) {
        Some(stream) => grpc.server_streaming(StreamOf(Some(stream)), request).await,
        None => grpc.unary(Method { methods, path }, request).await,
    }
}

/// A method that is called with bytes.
struct Method {
    methods: Arc<dyn GrpcMethods>,
    path: String,
}

impl UnaryService<Vec<u8>> for Method {
    type Response = Vec<u8>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Vec<u8>>, Status>> + Send>>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let (methods, path) = (Arc::clone(&self.methods), self.path.clone());
        Box::pin(async move {
            let Some(call) = methods.unary(&path, request.into_inner()) else {
                return Err(Status::unimplemented(printable_within(&path, 200)));
            };
            call.await.map(Response::new)
        })
    }
}

/// A stream that is answered once.
struct StreamOf(Option<AnswerStream>);

impl ServerStreamingService<Vec<u8>> for StreamOf {
    type Response = Vec<u8>;
    type ResponseStream = AnswerStream;
    type Future = Ready<Result<Response<AnswerStream>, Status>>;

    fn call(&mut self, _: Request<Vec<u8>>) -> Self::Future {
        let stream = self.0.take().ok_or_else(|| Status::internal("the stream is taken"));
        ready(stream.map(Response::new))
    }
}

/// A message of a request.
pub(super) fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}
