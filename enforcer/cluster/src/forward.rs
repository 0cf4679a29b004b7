//! `kubectl port-forward`: a port of this machine that leads to the loopback addresses of a pod.
//!
//! kubectl chooses the port and prints it; the way is open until the value is dropped. While it is open,
//! every user of this machine can connect: a daemon with a token asks for it here, too.

use std::{
    io::{self, Read},
    net::{Ipv4Addr, SocketAddr},
    process::ChildStdout,
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

use crate::{child::RunningChild, error::KubectlError};

/// Longest wait for the port.
const LIMIT: Duration = Duration::from_secs(15);
/// Longest line that is read.
const LONGEST_LINE: usize = 1024;
/// Time for the last words of a run that has failed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// An open way to a daemon.
#[derive(Debug)]
pub struct PortForward {
    child: RunningChild,
    address: SocketAddr,
}

impl PortForward {
    /// Waits for the port.
    pub(crate) fn open(
        operation: String,
        child: RunningChild,
        stdout: ChildStdout,
    ) -> Result<Self, KubectlError> {
        let (send, receive) = mpsc::channel();
        let reading = move || watch(stdout, &send);
        if let Err(cause) = thread::Builder::new().name("forward".into()).spawn(reading) {
            return Err(KubectlError::Failed { operation, said: cause.to_string() });
        }
        match receive.recv_timeout(LIMIT) {
            Ok(port) => Ok(Self { child, address: (Ipv4Addr::LOCALHOST, port).into() }),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(KubectlError::Late { operation, limit: LIMIT }),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let said = child.said(Instant::now() + LAST_WORDS);
                let said = if said.is_empty() { "kubectl named no port".to_owned() } else { said };
                Err(KubectlError::Failed { operation, said })
            }
        }
    }

    /// Where the daemon answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What kubectl complains of, after a request has failed; empty for nothing.
    pub fn complaint(&self) -> String {
        self.child.said(Instant::now() + LAST_WORDS)
    }
}

/// Sends the port, and reads on to the end: a full pipe would stop kubectl.
fn watch(mut stdout: impl Read, port: &Sender<u16>) {
    let mut read = [0; 1024];
    let mut line = Vec::new();
    loop {
        let length = match stdout.read(&mut read) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        for byte in &read[..length] {
            match byte {
                b'\n' => {
                    if let Some(found) = str::from_utf8(&line).ok().and_then(forwarded_port) {
                        // The receiver takes the first one only.
                        let _ = port.send(found);
                    }
                    line.clear();
                }
                byte if line.len() < LONGEST_LINE => line.push(*byte),
                _ => {}
            }
        }
    }
}

/// The port in `Forwarding from 127.0.0.1:40123 -> 9479`.
fn forwarded_port(line: &str) -> Option<u16> {
    let (port, _) = line.strip_prefix("Forwarding from 127.0.0.1:")?.split_once(" -> ")?;
    port.parse().ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_port_of_this_machine_is_believed() {
        for (line, port) in [
            ("Forwarding from 127.0.0.1:40123 -> 9479", Some(40_123)),
            ("Forwarding from [::1]:40123 -> 9479", None),
            ("Forwarding from 10.0.0.7:40123 -> 9479", None),
            ("Forwarding from 127.0.0.1:0 -> 9479", None),
            ("Forwarding from 127.0.0.1:99999 -> 9479", None),
            ("Handling connection for 40123", None),
            ("", None),
        ] {
            assert_eq!(forwarded_port(line), port, "{line}");
        }
    }

    #[test]
    fn output_is_read_to_its_end_whatever_it_is() {
        let (send, receive) = mpsc::channel();
        let mut text = vec![b'x'; 10 * LONGEST_LINE];
        text.extend_from_slice(
            b"\n\xff\xfe\nForwarding from 127.0.0.1:7 -> 9479\nHandling connection for 7\n",
        );
        watch(text.as_slice(), &send);
        drop(send);
        assert_eq!(receive.iter().collect::<Vec<_>>(), [7]);
    }
}
