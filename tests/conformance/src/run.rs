//! Runs one vector in isolation, so that it cannot end the whole run.
//!
//! Each vector has its own thread: a panic ends only that thread, and the wait for a result is bounded.

use std::{any::Any, sync::mpsc, thread, time::Duration};

/// Timeout of one vector, far above the time that any vector takes.
const PATIENCE: Duration = Duration::from_mins(2);

/// The outcome of the check; a panic and a hang are failures.
pub(crate) fn guarded(check: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    let (send, receive) = mpsc::channel();
    let worker = thread::spawn(move || {
        // Fails only if the receiver has timed out.
        let _ = send.send(check());
    });
    match receive.recv_timeout(PATIENCE) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("no answer within {PATIENCE:?}")),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Ok(()) => Err("ended without an answer".to_owned()),
            Err(payload) => Err(format!("panicked: {}", text(payload.as_ref()))),
        },
    }
}

/// Message of a panic.
fn text(payload: &(dyn Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_text() {
        assert_eq!(guarded(|| Ok(())), Ok(()));
        assert_eq!(guarded(|| Err("no".to_owned())), Err("no".to_owned()));
        assert_eq!(guarded(|| panic!("at {}", 3)), Err("panicked: at 3".to_owned()));
    }
}
