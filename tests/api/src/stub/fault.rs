//! What a request meets instead of its answer.

use std::{collections::VecDeque, time::Duration};

/// A failure that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An answer with this status, and a `Status` object with this reason and message.
    Status {
        /// 401, 403, 409, 410, 422, 429, 500...
        code: u16,
        /// `Forbidden`, `Conflict`, `Expired`...
        reason: &'static str,
        /// What is told to people.
        message: String,
        /// Fields that another manager owns, as causes of a 409.
        causes: Vec<String>,
        /// Value of `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The request is served after this time.
    Slow(Duration),
    /// The connection is closed, and nothing is done.
    Drop,
    /// The request is served, and the connection closed before the answer.
    DropAnswer,
}

impl Fault {
    /// A refusal without details.
    pub fn status(code: u16, reason: &'static str) -> Self {
        let message = format!("{reason}, as the test asked for");
        Self::Status { code, reason, message, causes: Vec::new(), retry_after: None }
    }

    /// 429 with `Retry-After`.
    pub fn too_many(retry_after: Duration) -> Self {
        let message = "too many requests, please try again later".to_owned();
        let retry_after = Some(retry_after);
        Self::Status { code: 429, reason: "TooManyRequests", message, causes: Vec::new(), retry_after }
    }

    /// 409 as a server-side apply without force meets it.
    pub fn conflict(manager: &str, fields: &[&str]) -> Self {
        let message = format!("Apply failed with {} conflict: conflict with \"{manager}\"", fields.len());
        let causes = fields.iter().map(|&field| field.to_owned()).collect();
        Self::Status { code: 409, reason: "Conflict", message, causes, retry_after: None }
    }
}

/// Faults of requests to come.
#[derive(Debug, Default)]
pub(super) struct FaultQueue {
    pub(super) writes: VecDeque<Fault>,
    pub(super) reads: VecDeque<Fault>,
    pub(super) always: Option<Fault>,
}

impl FaultQueue {
    /// What the next request meets.
    pub(super) fn next(&mut self, is_write: bool) -> Option<Fault> {
        let queue = if is_write { &mut self.writes } else { &mut self.reads };
        queue.pop_front().or_else(|| self.always.clone())
    }
}
