//! The bytes on an NRI link.
//!
//! One unix socket carries several logical connections in frames (`connection`, `length`, bytes; both numbers
//! big endian, 32 bits). Each connection is a stream of ttrpc messages, and frames may cut these anywhere:
//! `length`, `stream`, kind, flags, then the body. One connection is for calls of the runtime, another for
//! calls of the plugin.
//!
//! This module does no I/O: bytes go in and messages come out, or the other way round. Input is bounded by
//! [`LARGEST_MESSAGE`]. Output is cut into frames of at most [`LARGEST_FRAME`], because the runtime reads a
//! frame into a buffer of that size and hangs up on a longer one.
//!
//! Source: `pkg/net/multiplex` of containerd/nri and `PROTOCOL.md` of containerd/ttrpc.

use std::collections::BTreeMap;

use thiserror::Error;

/// Most bytes of a message in one frame.
pub(super) const LARGEST_FRAME: usize = 4096;

/// Longest message that is accepted. Runtimes before NRI 0.8 put all containers of a node into one message
/// and do not mind ttrpc's own limit of 4 MiB.
pub(super) const LARGEST_MESSAGE: usize = 16 << 20;

/// Bytes before the body of a message.
const HEADER: usize = 10;

/// A logical connection on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LogicalConnection {
    /// Calls of the runtime, answered by the plugin.
    Plugin,
    /// Calls of the plugin, answered by the runtime.
    Runtime,
}

impl LogicalConnection {
    const fn number(self) -> u32 {
        match self {
            Self::Plugin => 1,
            Self::Runtime => 2,
        }
    }

    const fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Plugin),
            2 => Some(Self::Runtime),
            _ => None,
        }
    }
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// A call.
    Request,
    /// An answer.
    Response,
}

impl MessageKind {
    const fn number(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Request),
            2 => Some(Self::Response),
            _ => None,
        }
    }
}

/// One ttrpc message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TtrpcMessage {
    /// Its logical connection.
    pub connection: LogicalConnection,
    /// Id of its exchange: odd numbers, ascending, chosen by the caller.
    pub stream: u32,
    /// Call or answer.
    pub kind: MessageKind,
    /// The protobuf message in it.
    pub body: Vec<u8>,
}

/// Why the link cannot go on.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum WireError {
    /// The message is longer than any valid one.
    #[error("a message of {length} bytes on the NRI link; the limit is {LARGEST_MESSAGE}")]
    TooLong {
        /// Its length in bytes.
        length: u32,
    },
}

impl TtrpcMessage {
    /// The bytes to write.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER + self.body.len());
        message.extend(length(&self.body));
        message.extend(self.stream.to_be_bytes());
        message.extend([self.kind.number(), 0]);
        message.extend(&self.body);
        let mut bytes = Vec::with_capacity(message.len() + 8 * message.len().div_ceil(LARGEST_FRAME));
        for part in message.chunks(LARGEST_FRAME) {
            bytes.extend(self.connection.number().to_be_bytes());
            bytes.extend(length(part));
            bytes.extend(part);
        }
        bytes
    }
}

/// A length that a 32-bit number holds: nothing that is sent is longer than [`u32::MAX`].
fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Assembles messages from the bytes read.
#[derive(Debug, Default)]
pub(super) struct MessageDecoder {
    /// Bytes of the current frame's header.
    header: Vec<u8>,
    /// Connection and missing bytes of the current frame; no connection if it is unknown.
    frame: Option<(Option<LogicalConnection>, usize)>,
    /// Bytes of each connection that are in no complete message yet.
    streams: BTreeMap<LogicalConnection, Vec<u8>>,
}

impl MessageDecoder {
    /// Takes bytes and returns the messages that are complete now, in the order of their last bytes. Messages
    /// of unknown kinds are skipped.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<TtrpcMessage>, WireError> {
        let mut complete = Vec::new();
        while !bytes.is_empty() {
            let Some((connection, left)) = self.frame else {
                bytes = self.push_header(bytes);
                continue;
            };
            let (part, rest) = bytes.split_at(left.min(bytes.len()));
            bytes = rest;
            let left = left - part.len();
            self.frame = (left > 0).then_some((connection, left));
            if let Some(connection) = connection {
                let stream = self.streams.entry(connection).or_default();
                stream.extend(part);
                take_messages(connection, stream, &mut complete)?;
            }
        }
        Ok(complete)
    }

    fn push_header<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (part, rest) = bytes.split_at((8 - self.header.len()).min(bytes.len()));
        self.header.extend(part);
        if let (Some(connection), Some(length)) = (number_at(&self.header, 0), number_at(&self.header, 4)) {
            self.header.clear();
            // An empty frame carries nothing; the next header follows.
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            self.frame = (length > 0).then(|| (LogicalConnection::of(connection), length));
        }
        rest
    }
}

/// Moves complete messages from the front of a stream to `complete`.
fn take_messages(
    connection: LogicalConnection,
    stream: &mut Vec<u8>,
    complete: &mut Vec<TtrpcMessage>,
) -> Result<(), WireError> {
    let mut taken = 0;
    while let Some(header) = stream.get(taken..taken + HEADER) {
        let (Some(length), Some(number)) = (number_at(header, 0), number_at(header, 4)) else { break };
        let size = usize::try_from(length).ok().filter(|size| *size <= LARGEST_MESSAGE);
        let size = size.ok_or(WireError::TooLong { length })?;
        let body = taken + HEADER;
        let kind = MessageKind::of(header[8]);
        let Some(bytes) = stream.get(body..body + size) else { break };
        if let Some(kind) = kind {
            complete.push(TtrpcMessage { connection, stream: number, kind, body: bytes.to_vec() });
        }
        taken = body + size;
    }
    stream.drain(..taken);
    Ok(())
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_message() -> impl Strategy<Value = TtrpcMessage> {
        let body = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(any::<u8>(), LARGEST_FRAME - 20..3 * LARGEST_FRAME),
        ];
        (any::<bool>(), any::<u32>(), any::<bool>(), body).prop_map(|(plugin, stream, request, body)| {
            TtrpcMessage {
                connection: if plugin { LogicalConnection::Plugin } else { LogicalConnection::Runtime },
                stream,
                kind: if request { MessageKind::Request } else { MessageKind::Response },
                body,
            }
        })
    }

    /// Lengths of the frames in it.
    fn frames(mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let Some(length) = number_at(bytes, 4) {
            lengths.push(length as usize);
            bytes = &bytes[8 + length as usize..];
        }
        lengths
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut_into_reads(
            messages in prop::collection::vec(any_message(), 0..5),
            cuts in prop::collection::vec(1usize..5000, 1..20),
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(TtrpcMessage::encode).collect();
            let mut decoder = MessageDecoder::default();
            let (mut rest, mut came) = (bytes.as_slice(), Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, more) = rest.split_at((*cut).min(rest.len()));
                came.extend(decoder.push(part).unwrap());
                rest = more;
            }
            prop_assert_eq!(came, messages);
        }

        #[test]
        fn no_frame_is_longer_than_a_runtime_reads(message in any_message()) {
            let lengths = frames(&message.encode());
            prop_assert!(lengths.iter().all(|length| (1..=LARGEST_FRAME).contains(length)));
            prop_assert_eq!(lengths.iter().sum::<usize>(), HEADER + message.body.len());
        }

        #[test]
        fn any_bytes_are_read_without_harm(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..20)) {
            let mut decoder = MessageDecoder::default();
            for part in parts {
                if decoder.push(&part).is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_message_is_laid_out_as_the_runtime_reads_it() {
        let message = TtrpcMessage {
            connection: LogicalConnection::Runtime,
            stream: 3,
            kind: MessageKind::Request,
            body: b"ab".to_vec(),
        };
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 2,  0, 0, 0, 12, // frame: connection, length
            0, 0, 0, 2,  0, 0, 0, 3,  1, 0,  b'a', b'b', // message: length, stream, kind, flags, body
        ];
        assert_eq!(message.encode(), expected);
    }

    #[test]
    fn frames_may_be_of_any_size_hold_several_messages_and_be_of_unknown_connections() {
        let one = TtrpcMessage {
            connection: LogicalConnection::Plugin,
            stream: 1,
            kind: MessageKind::Request,
            body: vec![7; 9000],
        };
        let other = TtrpcMessage {
            connection: LogicalConnection::Plugin,
            stream: 3,
            kind: MessageKind::Request,
            body: vec![],
        };
        // As one frame, which we would never send.
        let mut inside = Vec::new();
        for message in [&one, &other] {
            inside.extend(length(&message.body));
            inside.extend(message.stream.to_be_bytes());
            inside.extend([message.kind.number(), 0]);
            inside.extend(&message.body);
        }
        let frame = |connection: u32, bytes: &[u8]| {
            [&connection.to_be_bytes()[..], &length(bytes)[..], bytes].concat()
        };
        let bytes = [frame(9, b"unknown"), frame(1, b""), frame(1, &inside), frame(0, b"x")].concat();
        assert_eq!(MessageDecoder::default().push(&bytes).unwrap(), [one, other]);
    }

    #[test]
    fn an_unknown_kind_is_passed_over_and_what_follows_is_read() {
        let stray = [0u8, 0, 0, 1, 0, 0, 0, 5, 3, 0, b'!'];
        let asked = TtrpcMessage {
            connection: LogicalConnection::Plugin,
            stream: 7,
            kind: MessageKind::Request,
            body: vec![1],
        };
        let mut bytes = [&1u32.to_be_bytes()[..], &length(&stray)[..], &stray[..]].concat();
        bytes.extend(asked.encode());
        assert_eq!(MessageDecoder::default().push(&bytes).unwrap(), [asked]);
    }

    #[test]
    fn messages_of_more_than_ttrpc_allows_are_read_and_endless_ones_are_not() {
        let long = TtrpcMessage {
            connection: LogicalConnection::Plugin,
            stream: 1,
            kind: MessageKind::Request,
            body: vec![1; (4 << 20) + 1],
        };
        assert_eq!(MessageDecoder::default().push(&long.encode()).unwrap(), [long]);

        let announced = u32::try_from(LARGEST_MESSAGE).unwrap() + 1;
        let mut header = [1u32.to_be_bytes(), 10u32.to_be_bytes(), announced.to_be_bytes()].concat();
        header.extend([0, 0, 0, 1, 1, 0]);
        assert_eq!(MessageDecoder::default().push(&header), Err(WireError::TooLong { length: announced }));
    }
}
