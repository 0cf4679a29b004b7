//! Recordings of turns: any bytes give turns, an end or an error, and turns that were read can be decided.
//! Half of the inputs are a file as it is, the other half a frame's JSON, because random bytes never pass the
//! checksums of a file.
#![cfg_attr(feature = "libfuzzer", no_main)]

use enforcer::record::{RecordingItem, RecordingReader, frame};
use enforcer_core::replay::Replay;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((way, bytes)) = bytes.split_first() else { return };
    let file = if way % 2 == 0 {
        bytes.to_vec()
    } else {
        let Some(framed) = frame::encode(bytes) else { return };
        framed
    };
    let mut reader = RecordingReader::new(&file[..]);
    let mut replay = Replay::new(None);
    while let Ok(RecordingItem::Turn(turn)) = reader.turn() {
        replay.turn(turn.situation, &turn.made, &turn.outcomes, turn.dropped);
    }
    let _ = replay.end(None);
});

/// libFuzzer brings its own. Without it, a build of the workspace compiles the target and links no fuzzer.
#[cfg(not(feature = "libfuzzer"))]
fn main() {}
