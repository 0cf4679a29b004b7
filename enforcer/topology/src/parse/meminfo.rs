//! `/proc/meminfo` and `/sys/devices/system/node/nodeN/meminfo`: the same fields, the latter with
//! `Node N` in front (`node_read_meminfo` in `drivers/base/node.c`). Sizes are kB of 1,024 bytes.

use super::{ParseError, scalar::unsigned};

/// The sizes in use, in bytes; `None` for a missing field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Meminfo {
    /// `MemTotal`.
    pub total_bytes: Option<u64>,
    /// `MemFree`.
    pub free_bytes: Option<u64>,
    /// `FilePages`: page cache, tmpfs included.
    pub file_bytes: Option<u64>,
    /// `AnonPages`.
    pub anon_bytes: Option<u64>,
    /// `Active(file)` and `Inactive(file)`: page cache that reclaim scans.
    pub lru_file_bytes: Option<u64>,
    /// `SReclaimable`.
    pub slab_reclaimable_bytes: Option<u64>,
}

/// Parses both forms. A malformed value is an error, an unknown line is not. Valid text causes no allocation:
/// the daemon reads it up to 200 times a second.
///
/// # Errors
/// If a known line has a malformed value.
pub fn meminfo(text: &str) -> Result<Meminfo, ParseError> {
    let mut sizes = Meminfo::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name.split_ascii_whitespace().next_back() {
            Some("MemTotal") => sizes.total_bytes = Some(bytes(value, line)?),
            Some("MemFree") => sizes.free_bytes = Some(bytes(value, line)?),
            Some("FilePages") => sizes.file_bytes = Some(bytes(value, line)?),
            Some("AnonPages") => sizes.anon_bytes = Some(bytes(value, line)?),
            Some("Active(file)" | "Inactive(file)") => {
                let other = sizes.lru_file_bytes.unwrap_or(0);
                sizes.lru_file_bytes = Some(other.saturating_add(bytes(value, line)?));
            }
            Some("SReclaimable") => sizes.slab_reclaimable_bytes = Some(bytes(value, line)?),
            _ => {}
        }
    }
    Ok(sizes)
}

fn bytes(value: &str, line: &str) -> Result<u64, ParseError> {
    let kib = value.trim().strip_suffix("kB").and_then(|number| unsigned(number).ok());
    kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(|| ParseError::new("a size in kB", line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_both_forms() {
        let sizes = Meminfo {
            total_bytes: Some(3_005_392 << 10),
            free_bytes: Some(2_814_956 << 10),
            ..Meminfo::default()
        };
        let node =
            "\nNode 0 MemTotal:        3005392 kB\nNode 0 MemFree:  2814956 kB\nNode 0 HugePages_Total: 0\n";
        assert_eq!(meminfo(node), Ok(sizes));
        let usage = "Node 0 FilePages:  12 kB\nNode 0 AnonPages:  34 kB\n";
        let pages = meminfo(usage).unwrap();
        assert_eq!((pages.file_bytes, pages.anon_bytes), (Some(12 << 10), Some(34 << 10)));
        let reclaimable = "Node 0 Active: 9 kB\nNode 0 Active(file): 5 kB\nNode 0 Inactive(anon): 9 kB\n\
                           Node 0 Inactive(file): 6 kB\nNode 0 KReclaimable: 9 kB\nNode 0 SReclaimable: 7 kB\n";
        let pages = meminfo(reclaimable).unwrap();
        assert_eq!((pages.lru_file_bytes, pages.slab_reclaimable_bytes), (Some(11 << 10), Some(7 << 10)));
        assert_eq!(meminfo("MemTotal:  3005392 kB\nMemFree: 2814956 kB\n"), Ok(sizes));
    }

    #[test]
    fn a_missing_field_is_not_zero() {
        assert_eq!(meminfo(""), Ok(Meminfo::default()));
        assert_eq!(meminfo("Node 1 MemTotal: 0 kB\n").unwrap().total_bytes, Some(0));
        assert_eq!(meminfo("Node 1 SwapTotal: 7 kB\n"), Ok(Meminfo::default()));
    }

    #[test]
    fn names_the_line_with_nonsense() {
        for line in [
            "Node 0 MemTotal: lots kB",
            "MemFree: 12",
            "MemTotal: 18446744073709551615 kB",
            "MemTotal: -4 kB",
        ] {
            assert_eq!(meminfo(line).unwrap_err().found, line);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_sizes_or_an_error(text in "(Node [0-9]|MemTotal|MemFree|:| |[0-9]|kB|\n){0,30}|\\PC*") {
            let _ = meminfo(&text);
        }
    }
}
