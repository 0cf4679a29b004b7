//! Bounds the memory of a frame's parts from their text, before any value is created.
//!
//! Problem: a few bytes of JSON can become a kilobyte: `"8191"` is a set of CPUs, `{}` a cgroup without
//! facts, and a glob, which is compiled, takes more. So the limit of a frame's text does not bound its
//! values. Idea: each item of the text counts as the largest value it can be, in any part. That is more than
//! a daemon's recording takes, and about what a forged one takes. It is no exact account: a map filled in
//! order is half empty, and the decision itself needs memory, too.
//!
//! Invariant: nothing that is read is kept.

use std::fmt;

use enforcer_core::sample::CgroupSample;
use numa_topology::id::{CpuId, Id};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor},
};

use super::PLAIN_LIMIT;

/// Limit for the parts of a frame: 16 bytes for each byte of its text. A daemon's parts take at most 13,
/// mostly unused, except for the globs of its policy: there is room for thousands of entries.
pub(super) const ROOM: u64 = 16 * PLAIN_LIMIT as u64;

/// An object or a list that may be a row of a part, such as one cgroup of a sample, or contains rows.
const ROW: u64 = 1_024;
/// Depth of rows in a line: `{"sample":{"cgroups":{"/a":{...}}}}` is the deepest.
const DEPTH: u32 = 4;
/// An object or a list in a row.
const HOLDER: u64 = 256;
/// A text: its pointer, and the smallest heap block.
const TEXT: u64 = 64;
/// A key of a map. An object's own keys are part of its count.
const KEY: u64 = 32;
/// A number, or nothing.
const SCALAR: u64 = 16;
/// A text that may be a glob, and each of its bytes: 13 kB and 270 bytes were measured.
const GLOB: u64 = 16_384;
const GLOB_BYTE: u64 = 320;
/// The part with globs, and the key with those of grants.
const GLOBS: [&str; 2] = ["policy", "patterns"];

const _: () = assert!(size_of::<CgroupSample>() as u64 <= ROW, "the largest row that says nothing of itself");

/// Memory left for the parts of a frame.
#[derive(Debug)]
pub(super) struct FrameBudget(u64);

impl FrameBudget {
    /// The full limit.
    pub(super) const fn of_frame() -> Self {
        Self(ROOM)
    }

    /// Counts what a line can become; an error if that exceeds the rest, or if it is no JSON.
    pub(super) fn take(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        let mut text = serde_json::Deserializer::from_slice(line);
        CountedValue { room: self, depth: 1, globs: false }.deserialize(&mut text)?;
        text.end()
    }

    fn less<E: de::Error>(&mut self, by: u64) -> Result<(), E> {
        let left = self.0.checked_sub(by);
        self.0 = left
            .ok_or_else(|| E::custom(format_args!("it could take more than {} MiB of memory", ROOM >> 20)))?;
        Ok(())
    }
}

/// Bytes of the set for a list of ids.
fn of_set(text: &str) -> u64 {
    let of_list =
        |byte: u8| byte.is_ascii_digit() || byte.is_ascii_whitespace() || matches!(byte, b',' | b'-');
    if !text.bytes().all(of_list) {
        return 0;
    }
    let ids = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    // The reader refuses numbers that are too large.
    let greatest = ids.map(|digits| digits.parse().unwrap_or(u32::MAX)).max();
    greatest.map_or(0, |id| u64::from(id.min(CpuId::GREATEST)) / 8 + 8)
}

/// A value with its heap memory. The holder counts the value's own bytes.
struct CountedValue<'a> {
    room: &'a mut FrameBudget,
    depth: u32,
    /// Texts in it may be globs.
    globs: bool,
}

impl CountedValue<'_> {
    /// A value inside this one.
    fn inner(&mut self, globs: bool) -> CountedValue<'_> {
        CountedValue { room: self.room, depth: self.depth + 1, globs: self.globs || globs }
    }

    /// Own bytes: enough for as many entries as a struct of that size has.
    fn held(&self) -> u64 {
        if self.depth <= DEPTH { ROW } else { HOLDER }
    }

    /// Counts an entry, from the spare bytes first.
    fn entry<E: de::Error>(&mut self, spare: &mut u64, bytes: u64) -> Result<(), E> {
        let more = bytes.saturating_sub(*spare);
        *spare = spare.saturating_sub(bytes);
        self.room.less(more)
    }
}

impl<'de> DeserializeSeed<'de> for CountedValue<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CountedValue<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<u64, E> {
        Ok(SCALAR)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<u64, E> {
        Ok(SCALAR)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<u64, E> {
        Ok(SCALAR)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<u64, E> {
        Ok(SCALAR)
    }

    fn visit_unit<E: de::Error>(self) -> Result<u64, E> {
        Ok(SCALAR)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        let length = text.len() as u64;
        let of_glob = if self.globs { GLOB + GLOB_BYTE * length } else { 0 };
        self.room.less(TEXT + length + of_set(text) + of_glob).map(|()| 0)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<u64, A::Error> {
        let mut spare = self.held();
        self.room.less(spare)?;
        while let Some(bytes) = elements.next_element_seed(self.inner(false))? {
            self.entry(&mut spare, bytes)?;
        }
        Ok(0)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<u64, A::Error> {
        let mut spare = self.held();
        self.room.less(spare)?;
        while let Some(GlobKey(globs)) = entries.next_key()? {
            // Other parts have a `policy` that is a word.
            let bytes =
                entries.next_value_seed(self.inner(globs.is_some_and(|at| at > 0 || self.depth == 1)))?;
            self.entry(&mut spare, KEY + bytes)?;
        }
        Ok(0)
    }
}

/// A key, as its index in [`GLOBS`].
struct GlobKey(Option<usize>);

impl<'de> Deserialize<'de> for GlobKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyText)
    }
}

struct KeyText;

impl Visitor<'_> for KeyText {
    type Value = GlobKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GlobKey, E> {
        Ok(GlobKey(GLOBS.iter().position(|globs| *globs == text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> u64 {
        let mut room = FrameBudget::of_frame();
        room.take(line.as_bytes()).unwrap();
        ROOM - room.0
    }

    #[test]
    fn each_thing_counts_as_the_largest_that_it_can_be() {
        let numbers = format!("[{}]", vec!["1"; 100].join(","));
        let nulls: Vec<String> = (0..100).map(|number| format!("\"{number}\":null")).collect();
        for (line, bytes) in [
            ("\"ab\"", TEXT + 2),
            ("{}", ROW),
            ("[[],[1,2]]", 3 * ROW),
            ("[[[[[{\"a\":-1.5}]]]]]", 4 * ROW + 2 * HOLDER),
            (numbers.as_str(), 100 * SCALAR),
            (&format!("{{{}}}", nulls.join(",")), 100 * (KEY + SCALAR)),
            ("\"8191\"", TEXT + 4 + 1_031),
            ("\" 0, 63-64\\n\"", TEXT + 10 + 16),
            ("\"0-99999999999999999999\"", TEXT + 22 + 1_031),
            ("\"worker-8191\"", TEXT + 11),
            ("{\"policy\":{\"a\":[\"/*\"]}}", 3 * ROW + TEXT + 2 + GLOB + 2 * GLOB_BYTE),
            ("{\"a\":{\"policy\":\"none\"}}", 2 * ROW + TEXT + 4),
            ("[[{\"patterns\":[\"*\"]},\"*\"]]", 4 * ROW + 2 * (TEXT + 1) + GLOB + GLOB_BYTE),
            ("\"\\u00381\\u00391\"", TEXT + 4 + 1_031),
        ] {
            assert_eq!(taken(line), bytes, "{line}");
        }
    }

    #[test]
    fn all_lines_of_a_frame_share_the_room() {
        let line = format!("[{}]", vec!["{}"; 1_023].join(","));
        let mut room = FrameBudget::of_frame();
        for _ in 0..ROOM / (1_024 * ROW) {
            room.take(line.as_bytes()).unwrap();
        }
        let error = room.take(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("it could take more than 512 MiB of memory"), "{error}");
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for line in ["", "{", "{}{}", "[1,]", &"[".repeat(1_000)] {
            assert!(FrameBudget::of_frame().take(line.as_bytes()).is_err(), "{line}");
        }
    }
}
