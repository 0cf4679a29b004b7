//! A channel that holds the newest value wakes its receivers for values that differ alone.

use tokio::sync::watch::Sender;

/// Sends a value unless the last one was equal; whether it was sent.
pub fn send_if_different<T: PartialEq>(sender: &Sender<T>, value: T) -> bool {
    sender.send_if_modified(|last| {
        let differs = *last != value;
        *last = value;
        differs
    })
}
