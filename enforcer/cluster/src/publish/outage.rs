//! Notices that a server that failed has come back.
//!
//! Problem: after a failure a write waits up to half a minute, and a lease for its next renewal. In that
//! time readers believe an old state, although the server is back. Idea: while requests fail, one small
//! question is asked again and again, and its first answer ends all waits ([`Recovery`]).
//!
//! Invariants: only one question is under way, and none while nothing fails. A server that asks to come back
//! later is not asked before that. Waits end early only after the question itself has failed: where questions
//! are answered and writes fail, the waits of the writes stand, so a server with too much to do is not
//! written to more often.
//!
//! Cost: of N nodes, at most N questions in [`EARLY`], in an outage of more than a minute in [`LATE`]. A
//! question is one read of the node's own object, in the same queue of the server as its writes.

use std::{convert::Infallible, time::Duration};

use hyper::Method;
use tokio::{
    sync::watch::{Receiver, Sender},
    time::{Instant, sleep, timeout},
};

use crate::{
    api_error::ApiError,
    connection::{ApiConnection, JSON},
};

/// Time between two questions in the first minute of an outage.
const EARLY: Duration = Duration::from_secs(1);
/// The same after that.
const LATE: Duration = Duration::from_secs(2);
/// End of the first minute.
const FIRST: Duration = Duration::from_mins(1);
/// Longest wait for an answer: a silent server is asked anew.
const ANSWER: Duration = Duration::from_secs(2);

/// What is known of failures of a server: requests say that they failed, and waits end when it is back.
#[derive(Debug)]
pub(crate) struct Recovery {
    fails: Sender<bool>,
    /// Number of times that it came back.
    returns: Sender<u64>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self { fails: Sender::new(false), returns: Sender::new(0) }
    }
}

impl Recovery {
    /// Notes how a request ended.
    pub(crate) fn note<T>(&self, ended: &Result<T, ApiError>) {
        if ended.as_ref().is_err_and(is_outage) {
            self.fails.send_if_modified(|fails| !std::mem::replace(fails, true));
        }
    }
}

/// Whether the server is away, silent or has too much to do.
fn is_outage(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Unreachable { .. }
            | ApiError::Broken { .. }
            | ApiError::Late { .. }
            | ApiError::Busy { .. }
    )
}

/// When a server comes back after an outage.
#[derive(Debug)]
pub(crate) struct Returns(Receiver<u64>);

impl Returns {
    /// Returns from now on.
    pub(crate) fn of(connection: &ApiConnection) -> Self {
        Self(connection.recovery().returns.subscribe())
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Those up to now have been seen.
    pub(super) fn forget(&mut self) {
        self.0.mark_unchanged();
    }
}

/// Asks for the object at this path while requests of the connection fail, and ends their waits once it is
/// answered.
pub async fn notice_returns(connection: &ApiConnection, path: &str) -> Infallible {
    let recovery = connection.recovery();
    let mut fails = recovery.fails.subscribe();
    loop {
        // The sender lives as long as the connection.
        if fails.wait_for(|fails| *fails).await.is_err() {
            std::future::pending::<()>().await;
        }
        let (start, mut wait, mut has_failed) = (Instant::now(), EARLY, false);
        loop {
            sleep(wait).await;
            let question = connection.request("get", Method::GET, path, JSON, b"");
            let answered = timeout(ANSWER, question).await;
            let regular = if start.elapsed() < FIRST { EARLY } else { LATE };
            wait = match answered {
                Ok(Err(ApiError::Busy { retry_after, .. })) => retry_after.unwrap_or_default().max(regular),
                Ok(Err(error)) if is_outage(&error) => regular,
                Ok(_) => break,
                Err(_silent) => regular,
            };
            has_failed = true;
        }
        recovery.fails.send_replace(false);
        if has_failed {
            recovery.returns.send_modify(|count| *count += 1);
        }
    }
}
