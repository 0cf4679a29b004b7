//! A call of kube-scheduler as it comes: when, and its body.
//!
//! Invariants: kube-scheduler's time runs from the head of a request on, so that is when a call arrives. A
//! body ends within [`READING`]: a client that sends one byte after another holds its connection no longer. A
//! fixed number of bodies is in memory at a time; the others wait.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::service::Unanswered;

/// Longest time that a body takes: kube-scheduler gives up after 5 s unless it is told otherwise.
pub(super) const READING: Duration = Duration::from_secs(15);

/// Bodies that are read at a time. Each is bounded, and all of them together are far below the memory of the
/// pod.
static READERS: Semaphore = Semaphore::const_new(48);

/// A call, or why it cannot be read.
pub(super) struct IncomingCall {
    pub(super) arrived: Instant,
    pub(super) body: Result<Bytes, Unanswered>,
}

impl<S: Send + Sync> FromRequest<S> for IncomingCall {
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let arrived = Instant::now();
        let read = async {
            let _place = READERS.acquire().await;
            Bytes::from_request(request, state).await
        };
        let body = match timeout(READING, read).await {
            Ok(read) => read.map_err(Unanswered::Unread),
            Err(_elapsed) => Err(Unanswered::TooSlow),
        };
        Ok(Self { arrived, body })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll, ready},
    };

    use axum::{
        Router,
        body::Body,
        http::StatusCode,
        response::{IntoResponse as _, Response},
        routing::post,
    };
    use http_body_util::BodyExt as _;
    use hyper::{body::Frame, service::Service as _};
    use hyper_util::service::TowerToHyperService;
    use tokio::time::{Sleep, sleep};

    use super::*;

    const EACH: Duration = Duration::from_secs(1);

    /// A body of single bytes, one each second.
    struct SlowBody {
        left: usize,
        next: Pin<Box<Sleep>>,
    }

    impl hyper::body::Body for SlowBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            ready!(self.next.as_mut().poll(context));
            self.left -= 1;
            self.next = Box::pin(sleep(EACH));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    /// The length of a body, where it could be read.
    async fn length(call: IncomingCall) -> Response {
        match call.body {
            Ok(body) => format!("{} after {:?}", body.len(), call.arrived.elapsed()).into_response(),
            Err(why) => why.into_response(),
        }
    }

    /// Sends a byte each second, `bytes` of them; returns the status and the text of the answer.
    async fn send(bytes: usize) -> (StatusCode, String) {
        let body = Body::new(SlowBody { left: bytes, next: Box::pin(sleep(EACH)) });
        let router = TowerToHyperService::new(Router::new().route("/", post(length)));
        let answer = router.call(Request::post("/").body(body).unwrap()).await.unwrap();
        let status = answer.status();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_takes_too_long_ends_its_call() {
        assert_eq!(send(3).await, (StatusCode::OK, "3 after 3s".to_owned()));
        let (status, text) = send(1_000).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        assert!(text.contains("15s"), "{text}");
    }
}
