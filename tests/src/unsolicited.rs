//! A plugin of the container runtime that does what ours must not do: it sends the runtime updates all the
//! time, without a request.
//!
//! Scenarios that show that nothing hangs use it as their control: with it, runtimes before NRI 0.12.1 hang
//! for good, because telling takes the locks of a request in the other order. The changes are empty; it is
//! the telling that hurts. It speaks the wire protocol by itself, as everything here is written without the
//! product (`pkg/net/multiplex` of containerd/nri, `PROTOCOL.md` of containerd/ttrpc).

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use prost::Message;

/// The runtime asks on this connection.
const PLUGIN: u32 = 1;
/// It is asked on this one.
const RUNTIME: u32 = 2;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
/// Length, stream, kind and flags of a message.
const HEADER: usize = 10;
/// Every event of a pod and of a container.
const EVENTS: i32 = 0x7ff;
/// Longest wait until the runtime has taken it in.
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    method: String,
    #[prost(bytes = "vec", tag = "3")]
    payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(bytes = "vec", tag = "2")]
    payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RegisterPluginRequest {
    #[prost(string, tag = "1")]
    plugin_name: String,
    #[prost(string, tag = "2")]
    plugin_idx: String,
}

#[derive(Clone, PartialEq, Message)]
struct ConfigureResponse {
    #[prost(int32, tag = "2")]
    events: i32,
}

/// The plugin, which ends when this is dropped.
#[derive(Debug)]
pub struct Unsolicited {
    socket: UnixStream,
}

impl Unsolicited {
    /// Connects it; it tells the runtime of changes from the moment on at which it is taken in.
    pub fn start(socket: &str) -> Result<Self> {
        let link = UnixStream::connect(socket).with_context(|| format!("connect to {socket}"))?;
        let (answers, answered) = channel();
        let (ready, is_ready) = channel();
        let (reading, answering) = (link.try_clone()?, link.try_clone()?);
        thread::spawn(move || serve(reading, answering, &ready, &answers));
        let mut asking = link.try_clone()?;
        let name = RegisterPluginRequest { plugin_name: "unsolicited".into(), plugin_idx: "90".into() };
        asking.write_all(&ask(1, "RegisterPlugin", &name)).context("register the plugin")?;
        is_ready.recv_timeout(LIMIT).context("the runtime does not take the plugin in")?;
        thread::spawn(move || tell(asking, &answered));
        Ok(Self { socket: link })
    }
}

impl Drop for Unsolicited {
    fn drop(&mut self) {
        // The runtime may have closed it.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// One change after another, each when the one before it was answered. Ends with the link.
fn tell(mut link: UnixStream, answered: &Receiver<u32>) {
    for stream in (3..).step_by(2) {
        // No container is in it.
        if link.write_all(&ask(stream, "UpdateContainers", &())).is_err() || answered.recv().is_err() {
            return;
        }
    }
}

/// Answers whatever the runtime asks, and passes on the streams of its answers. Ends with the link.
fn serve(mut link: UnixStream, mut answering: UnixStream, ready: &Sender<()>, answers: &Sender<u32>) {
    let mut parts: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    while let Ok((connection, bytes)) = frame(&mut link) {
        let received = parts.entry(connection).or_default();
        received.extend(bytes);
        while let Some((stream, kind, body)) = message(received) {
            if (connection, kind) == (RUNTIME, RESPONSE) {
                // The first answer is about the registration, and no thread waits for it.
                if stream > 1 && answers.send(stream).is_err() {
                    return;
                }
            } else if (connection, kind) == (PLUGIN, REQUEST) {
                let Ok(request) = Request::decode(body.as_slice()) else { return };
                let payload = match request.method.as_str() {
                    "Configure" => ConfigureResponse { events: EVENTS }.encode_to_vec(),
                    _ => Vec::new(),
                };
                let answer = encode(PLUGIN, stream, RESPONSE, &Response { payload });
                let synchronized = request.method == "Synchronize";
                if answering.write_all(&answer).is_err() || (synchronized && ready.send(()).is_err()) {
                    return;
                }
            }
        }
    }
}

/// The next piece, and the connection that it belongs to.
fn frame(link: &mut UnixStream) -> io::Result<(u32, Vec<u8>)> {
    let (mut connection, mut length) = ([0; 4], [0; 4]);
    link.read_exact(&mut connection)?;
    link.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    link.read_exact(&mut bytes)?;
    Ok((u32::from_be_bytes(connection), bytes))
}

/// Stream, kind and body of the first message, if all of it is there.
fn message(received: &mut Vec<u8>) -> Option<(u32, u8, Vec<u8>)> {
    let (length, rest) = received.split_first_chunk::<4>()?;
    let (stream, rest) = rest.split_first_chunk::<4>()?;
    let (stream, kind) = (u32::from_be_bytes(*stream), *rest.first()?);
    let end = HEADER + u32::from_be_bytes(*length) as usize;
    let body = received.get(HEADER..end)?.to_vec();
    received.drain(..end);
    Some((stream, kind, body))
}

fn ask(stream: u32, method: &str, payload: &impl Message) -> Vec<u8> {
    let request = Request {
        service: "nri.pkg.api.v1alpha1.Runtime".into(),
        method: method.into(),
        payload: payload.encode_to_vec(),
    };
    encode(RUNTIME, stream, REQUEST, &request)
}

/// In one frame: nothing here is long.
fn encode(connection: u32, stream: u32, kind: u8, body: &impl Message) -> Vec<u8> {
    let body = body.encode_to_vec();
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = Vec::new();
    bytes.extend(connection.to_be_bytes());
    bytes.extend(length(HEADER + body.len()));
    bytes.extend(length(body.len()));
    bytes.extend(stream.to_be_bytes());
    bytes.extend([kind, 0]);
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_whatever_the_pieces() {
        let bytes = ask(7, "UpdateContainers", &());
        assert_eq!(bytes[..4], RUNTIME.to_be_bytes());
        let mut received = Vec::new();
        for byte in &bytes[8..bytes.len() - 1] {
            received.push(*byte);
            assert!(message(&mut received).is_none());
        }
        received.extend([bytes[bytes.len() - 1], 1, 2]);
        let Some((7, REQUEST, body)) = message(&mut received) else { panic!("{received:?}") };
        assert_eq!(
            Request::decode(body.as_slice()).map(|request| request.method),
            Ok("UpdateContainers".into())
        );
        assert_eq!(received, [1, 2]);
    }
}
