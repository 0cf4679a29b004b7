//! The start beside a daemon that still runs: the new one waits for its end.
//!
//! Problem: an update that stops the old daemon first leaves the node without one while the new one is
//! pulled and started. Two daemons that write are worse: each has its own journal and ledger of claims.
//! Idea: the new one waits until the journal of the old one is free, and answers probes meanwhile. So its
//! pod is ready, and a rollout with `maxSurge` ends the old pod then. The new daemon goes on within
//! [`LOOK`].
//!
//! Invariants: nothing is opened, bound or written before the old daemon has ended, but the address of the
//! probes. A daemon that does not end in time is the same error as without a wait. Claims, sockets of the
//! kubelet and the link to the container runtime are taken over as by any restart.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use enforcer_act::{
    journal::{Journal, JournalError},
    pages::Stop,
};
use enforcer_core::policy::Policy;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Longest time that a probe may take to send its request.
const PROBE: Duration = Duration::from_millis(200);
/// Most bytes of a probe's request that are read.
const MOST_BYTES: usize = 1_024;
/// Most probes that are answered between two looks.
const MOST_PROBES: usize = 8;
/// Answer to each probe.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\nwaiting\n";

/// Waits so long for the end of another daemon that writes.
///
/// # Errors
/// If it does not end in time, or the lock cannot be read.
pub(super) fn wait_for_end(policy: &Policy, limit: Duration, stop: &Stop) -> Result<(), JournalError> {
    let until = Instant::now() + limit;
    let mut probes = None;
    loop {
        let held = match Journal::check_free(&policy.state_dir) {
            Err(held @ JournalError::Held { .. }) => held,
            ended => return ended,
        };
        if stop.is_requested() || Instant::now() >= until {
            return Err(held);
        }
        let probes = probes.get_or_insert_with(|| {
            tracing::info!("{held}; waiting {} s for its end", limit.as_secs());
            policy.metrics.probes.and_then(listen)
        });
        probes.iter().for_each(answer);
        thread::sleep(LOOK);
    }
}

fn listen(address: SocketAddr) -> Option<TcpListener> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.inspect_err(|error| tracing::warn!("no probes are answered meanwhile: {address}: {error}")).ok()
}

/// Answers the probes that have come. One that sends nothing is left.
fn answer(listener: &TcpListener) {
    for _ in 0..MOST_PROBES {
        let Ok((mut probe, _)) = listener.accept() else { return };
        let bounded = probe.set_nonblocking(false).and_then(|()| {
            probe.set_read_timeout(Some(PROBE))?;
            probe.set_write_timeout(Some(PROBE))
        });
        let mut request = [0; MOST_BYTES];
        if bounded.is_ok() && probe.read(&mut request).is_ok_and(|length| length > 0) {
            // A probe that does not read its answer asks again.
            let _unread = probe.write_all(ANSWER);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn policy(state: &std::path::Path, probes: Option<SocketAddr>) -> Policy {
        let mut policy = Policy { state_dir: state.to_owned(), ..Policy::default() };
        policy.metrics.probes = probes;
        policy
    }

    #[test]
    fn next_daemon_answers_probes_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let policy = policy(dir.path(), Some(free));
        let first = Journal::open(dir.path()).unwrap();
        let waiting = {
            let policy = policy.clone();
            thread::spawn(move || wait_for_end(&policy, Duration::from_hours(1), &Stop::default()))
        };
        let probe = || -> Option<String> {
            let mut stream = TcpStream::connect(free).ok()?;
            stream.write_all(b"GET /ready HTTP/1.1\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            Some(answer)
        };
        let answer = loop {
            if let Some(answer) = probe().filter(|answer| !answer.is_empty()) {
                break answer;
            }
            thread::sleep(LOOK);
        };
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\nwaiting\n"), "{answer}");
        assert!(!waiting.is_finished());
        drop(first);
        waiting.join().unwrap().unwrap();
        // The address is free again for the daemon itself, and so is the journal.
        TcpListener::bind(free).unwrap();
        Journal::open(dir.path()).unwrap();
    }

    #[test]
    fn daemon_that_does_not_end_is_an_error_and_an_order_to_end_is_obeyed() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Journal::open(dir.path()).unwrap();
        let policy = policy(dir.path(), None);
        let held = wait_for_end(&policy, Duration::ZERO, &Stop::default()).unwrap_err().to_string();
        assert!(held.contains("is held by another numa-enforcer"), "{held}");
        let stop = Stop::default();
        stop.request();
        assert!(wait_for_end(&policy, Duration::from_hours(1), &stop).is_err());
    }
}
