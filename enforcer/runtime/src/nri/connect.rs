//! Keeps a link to the runtime up.
//!
//! The socket may be absent, come later, vanish with the runtime and return. The receiver is told each new
//! reason once. The wait between attempts doubles up to [`LONGEST`]: a runtime accepts plugins one at a time,
//! so frequent attempts would delay others.
//!
//! A runtime lists its containers when a plugin connects, and cannot be asked later. To get the list again
//! the link is dropped, without a report to the receiver.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    net::UnixStream,
    sync::{Notify, mpsc},
    time::{Instant, sleep},
};

use super::{
    call::NriCall,
    link::{LinkError, PluginName, serve},
};

/// Shortest time between two attempts.
const SHORTEST: Duration = Duration::from_millis(500);
/// Longest time between two attempts.
const LONGEST: Duration = Duration::from_secs(10);
/// A link that lasted so long was a good one: the next attempt comes soon.
const GOOD: Duration = Duration::from_secs(30);

/// Connects to the socket again and again, until the receiver of calls is gone. `again` drops a link that is
/// up, so that the runtime lists its containers once more.
pub async fn keep_up(socket: PathBuf, plugin: PluginName, calls: mpsc::Sender<NriCall>, again: Arc<Notify>) {
    let mut pause = SHORTEST;
    let mut said: Option<String> = None;
    loop {
        // A new link brings the list anyway.
        tokio::select! {
            biased;
            () = again.notified() => {}
            () = std::future::ready(()) => {}
        }
        let (reason, lasted) = match UnixStream::connect(&socket).await {
            Ok(stream) => {
                said = None;
                let begun = Instant::now();
                let ended = tokio::select! {
                    ended = serve(stream, &plugin, &calls) => ended,
                    () = again.notified() => {
                        sleep(SHORTEST).await;
                        continue;
                    }
                };
                if matches!(ended, LinkError::Unheard) {
                    return;
                }
                (ended.to_string(), begun.elapsed())
            }
            Err(cause) => (format!("connecting to {}: {cause}", socket.display()), Duration::ZERO),
        };
        // The same reason again is no news.
        if said.as_ref() != Some(&reason) {
            if calls.send(NriCall::Down(reason.clone())).await.is_err() {
                return;
            }
            said = Some(reason);
        } else if calls.is_closed() {
            return;
        }
        if lasted >= GOOD {
            pause = SHORTEST;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio::net::UnixListener;

    use super::*;

    fn plugin() -> PluginName {
        PluginName { name: "p".into(), index: 1 }
    }

    async fn down(calls: &mut mpsc::Receiver<NriCall>) -> String {
        match calls.recv().await.unwrap() {
            NriCall::Down(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_socket_may_come_later_vanish_and_return() {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("nri.sock");
        let (sender, mut calls) = mpsc::channel(4);
        tokio::spawn(keep_up(socket.clone(), plugin(), sender, Arc::default()));
        let reason = down(&mut calls).await;
        assert!(reason.starts_with("connecting to ") && reason.contains("nri.sock"), "{reason}");
        for _ in 0..2 {
            let listener = UnixListener::bind(&socket).unwrap();
            let (link, _) = listener.accept().await.unwrap();
            drop((link, listener));
            std::fs::remove_file(&socket).unwrap();
            // First that the link ended, then that there is none; the second may be skipped by a quick bind.
            let reason = down(&mut calls).await;
            assert!(reason.contains("NRI link") || reason.contains("nri.sock"), "{reason}");
        }
    }

    #[tokio::test]
    async fn requested_reconnect_is_not_reported() {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("nri.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (sender, mut calls) = mpsc::channel(4);
        let again = Arc::new(Notify::new());
        tokio::spawn(keep_up(socket, plugin(), sender, Arc::clone(&again)));
        let mut links = Vec::new();
        for _ in 0..2 {
            let (link, _) = listener.accept().await.unwrap();
            // It registers, so it listens.
            link.readable().await.unwrap();
            // The runtime does not close it.
            links.push(link);
            again.notify_one();
        }
        listener.accept().await.unwrap();
        assert!(calls.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_reason_is_reported_once_and_a_gone_receiver_ends_it() {
        let dir = TempDir::new().unwrap();
        let (sender, mut calls) = mpsc::channel(4);
        let kept = tokio::spawn(keep_up(dir.path().join("absent.sock"), plugin(), sender, Arc::default()));
        down(&mut calls).await;
        sleep(Duration::from_mins(5)).await;
        assert!(calls.try_recv().is_err());
        drop(calls);
        kept.await.unwrap();
    }
}
