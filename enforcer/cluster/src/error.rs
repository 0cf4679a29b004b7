//! Why a run of kubectl has no answer, in words for its user.

use std::{io, time::Duration};

use thiserror::Error;

/// Why kubectl did not answer.
#[derive(Debug, Error)]
pub enum KubectlError {
    /// It could not be started.
    #[error("running kubectl (--kubectl PROGRAM names another one): {program}: {cause}")]
    Start {
        /// The program.
        program: String,
        /// Cause of the failure.
        #[source]
        cause: io::Error,
    },
    /// It failed.
    #[error("{operation}: {said}")]
    Failed {
        /// The operation.
        operation: String,
        /// What kubectl said, in one line.
        said: String,
    },
    /// It did not end in time.
    #[error("{operation}: no answer within {} s", limit.as_secs())]
    Late {
        /// The operation.
        operation: String,
        /// The limit.
        limit: Duration,
    },
    /// It answered too much.
    #[error("{operation}: the answer has more than {most} bytes")]
    TooLong {
        /// The operation.
        operation: String,
        /// Bytes that are read at most.
        most: u64,
    },
    /// The answer is none of the API's.
    #[error("{operation}: an answer that is not understood: {cause}")]
    NotUnderstood {
        /// The operation.
        operation: String,
        /// What is wrong with it.
        cause: String,
    },
}
