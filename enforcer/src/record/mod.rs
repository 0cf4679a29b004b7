//! Recordings: every turn of a daemon in a file, from which each can be taken again.
//!
//! A recording is append-only and made of frames ([`frame`]), one for each turn, each a gzip member of its
//! own: a crash in the middle of one spoils none before it. In a frame are lines of JSON, one for each
//! part (`part.rs`): what the turn decided from, what it decided, and what became of that. A part that lasts
//! (the machine, the policy, what is given away) is in a frame only if it is not as in the frame before; the
//! first frame of a daemon, and the one after a frame that was dropped, are *key frames*, which have all of
//! them.
//!
//! The turn must never wait for the disk ([`Recorder`]): it writes its parts into memory and hands them to a
//! thread (`writer.rs`), which compresses and writes them. When that is not done with the frames before, the
//! frame is dropped, and the next one says how many were.
//!
//! Reading ([`RecordingReader`]) believes nothing: a file that was cut, changed or made up gives what is
//! before the damage, and an error with the offset. Memory is bounded: a frame's text by [`PLAIN_LIMIT`], and
//! what it becomes by `room.rs`.

pub mod frame;
mod part;
mod reader;
mod recorder;
mod room;
mod writer;

pub(crate) use self::part::PartRef;
pub use self::{
    frame::{FrameReader, PLAIN_LIMIT, RecordingError, RecordingProblem},
    reader::{RecordedTurn, RecordingItem, RecordingReader},
    recorder::Recorder,
    writer::{OpenError, RecordingFile},
};

#[cfg(test)]
mod tests;
