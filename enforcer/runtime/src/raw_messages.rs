//! Messages of gRPC as they are on the wire, so that their fields are counted before they are decoded, and
//! one client and one server are compiled for all of them.

use prost::bytes::{Buf as _, BufMut as _};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// The codec of messages that stay bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMessages;

impl Codec for RawMessages {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawMessages {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl Decoder for RawMessages {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; message.remaining()];
        message.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}
