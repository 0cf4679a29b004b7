//! The checksum of the kubelet's state files: FNV-1a over a text that its Go types print.
//!
//! The kubelet hashes the output of `spew` for the struct that it writes, with names and types of Go and with
//! the checksum as 0 (`pkg/kubelet/checkpointmanager/checksum`, `k8s.io/utils/dump`). A file that is read
//! back gives the same text, so it can be computed from the file.
//!
//! A checksum of 0 means none: old backends wrote none. The kubelet accepts it where a file has no entries of
//! whole pods (`VerifyChecksum` of version 2 of the CPU manager and of version 1 of the memory manager), and
//! so do the readers here ([`NONE`]). It does not for devices.

use std::fmt::{self, Write as _};

/// Checksum of a file that has none.
pub(super) const NONE: u64 = 0;

/// FNV-1a with 32 bits (`hash/fnv.New32a` of Go) of the text written to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fnv32a(u32);

impl Fnv32a {
    /// The hash of nothing.
    pub(super) const fn new() -> Self {
        Self(0x811c_9dc5)
    }

    /// The hash of what was written.
    pub(super) const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Write for Fnv32a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = text.bytes().fold(self.0, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Ok(())
    }
}

/// Hash of a text.
pub(super) fn fnv32a(text: &str) -> u32 {
    let mut hash = Fnv32a::new();
    // Writing to a hash cannot fail.
    let _ = hash.write_str(text);
    hash.value()
}

/// Output of `spew` for a map with these printed values, without its type: `map[a:1 b:2]`, keys in order.
pub(super) fn map<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut text = String::from("map[");
    for (index, (key, value)) in entries.into_iter().enumerate() {
        let blank = if index > 0 { " " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{blank}{key}:{value}");
    }
    text.push(']');
    text
}

/// Whether `checksum` belongs to a struct that prints as `fields` between its braces. Its type was called
/// `stem` while it was the newest version, and has its version appended afterwards.
pub(super) fn matches(checksum: u64, stem: &str, fields: &str) -> bool {
    ["", "V1", "V2", "V3"].iter().any(|version| {
        let text = format!("(*state.{stem}{version}){{{fields} Checksum:(checksum.Checksum)0}}");
        u64::from(fnv32a(&text)) == checksum
    })
}

/// Whether it belongs to a document that is a string in the file.
pub(super) fn matches_text(checksum: u64, text: &str) -> bool {
    u64::from(fnv32a(&format!("(string){text}"))) == checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Vectors of the FNV reference.
        assert_eq!([fnv32a(""), fnv32a("a"), fnv32a("foobar")], [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }

    #[test]
    fn maps_are_printed_in_order() {
        assert_eq!(map([]), "map[]");
        assert_eq!(map([("a", "1".to_owned()), ("b", "2".to_owned())]), "map[a:1 b:2]");
    }
}
