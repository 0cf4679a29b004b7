//! Running one vector so that nothing it does ends the run.
//!
//! A vector has a thread of its own: a panic ends that thread, and an answer that does not come is
//! waited for only so long.

use std::{any::Any, sync::mpsc, thread, time::Duration};

/// Far above what any vector takes; what is not there by then does not come.
const PATIENCE: Duration = Duration::from_mins(2);

/// The outcome of the check; a panic and a hang are failures.
pub(crate) fn guarded(check: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    let (send, receive) = mpsc::channel();
    let worker = thread::spawn(move || {
        // Fails only if nobody waits any more.
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

/// What a panic said.
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
