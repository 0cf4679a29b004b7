//! The mappings of a process (`struct vm_area_struct`), as far as placement needs them.
//!
//! From a BPF iterator, or from `/proc/PID/maps` and `/proc/PID/numa_maps`, which have the same between them.
//! A line that does not parse is no mapping: the process is alive and changes both files all the time.

use std::collections::BTreeMap;

use crate::{memory_policy::MemoryPolicy, sample::PolicyExtent};

/// One mapping; a value that its source lacks is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vma {
    /// Address of its first byte.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// True for a mapping of a file, shared memory included.
    pub file: bool,
    /// True if writes are shared with other processes.
    pub shared: Option<bool>,
    /// True for huge pages of hugetlbfs.
    pub huge: Option<bool>,
    /// Its effective policy: its own, else that of the process's first thread.
    pub policy: Option<MemoryPolicy>,
}

/// Collects mappings from the lines of both files.
#[derive(Debug, Default)]
pub struct VmaFiles {
    mappings: BTreeMap<u64, Vma>,
}

impl VmaFiles {
    /// Adds a line of `maps`: `START-END PERMS OFFSET DEVICE INODE [PATH]`. These come first.
    pub fn add_map(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let Some((start, end)) = range.and_then(|(start, end)| Some((address(start)?, address(end)?))) else {
            return;
        };
        let shared = words.next().map(|permissions| permissions.ends_with('s'));
        self.mappings.insert(start, Vma { start, end, file: false, shared, huge: None, policy: None });
    }

    /// Adds a line of `numa_maps`: `START POLICY [file=PATH] [huge] ..`.
    pub fn add_numa_map(&mut self, line: &str) {
        let Some((start, rest)) = line.split_once(' ') else { return };
        let Some(vma) = address(start).and_then(|start| self.mappings.get_mut(&start)) else { return };
        let Ok(policy) = MemoryPolicy::parse_start(rest) else { return };
        vma.policy = Some(policy);
        vma.file = rest.split_ascii_whitespace().any(|word| word.starts_with("file="));
        vma.huge = Some(rest.split_ascii_whitespace().any(|word| word == "huge"));
    }

    /// Mappings in both files, in the order of their addresses: `maps` also lists mappings without memory.
    pub fn into_mappings(self) -> Vec<Vma> {
        self.mappings.into_values().filter(|vma| vma.policy.is_some()).collect()
    }
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Memory of a process by policy; memory under no policy is left out.
pub fn extents(mappings: &[Vma]) -> Vec<PolicyExtent> {
    let mut extents: BTreeMap<&MemoryPolicy, PolicyExtent> = BTreeMap::new();
    let none = MemoryPolicy::none();
    for vma in mappings {
        let Some(policy) = vma.policy.as_ref().filter(|policy| **policy != none) else { continue };
        let bytes = vma.end.saturating_sub(vma.start);
        let extent = extents.entry(policy).or_insert_with(|| PolicyExtent {
            policy: policy.clone(),
            mappings: 0,
            bytes: 0,
            shared_bytes: 0,
            huge_bytes: 0,
        });
        extent.mappings += 1;
        extent.bytes = extent.bytes.saturating_add(bytes);
        if vma.shared == Some(true) {
            extent.shared_bytes = extent.shared_bytes.saturating_add(bytes);
        }
        if vma.huge == Some(true) {
            extent.huge_bytes = extent.huge_bytes.saturating_add(bytes);
        }
    }
    extents.into_values().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(maps: &str, numa_maps: &str) -> Vec<Vma> {
        let mut files = VmaFiles::default();
        maps.lines().for_each(|line| files.add_map(line));
        numa_maps.lines().for_each(|line| files.add_numa_map(line));
        files.into_mappings()
    }

    const MAPS: &str = "\
1000-3000 r--p 00000000 08:01 12 /usr/bin/x file=y huge
4000-8000 rw-p 00000000 00:00 0
10000-30000 rw-s 00000000 00:01 5 /dev/zero (deleted)
200000-600000 rw-p 00000000 00:0f 7 /anon_hugepage (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";
    const NUMA_MAPS: &str = "\
1000 default file=/usr/bin/x\\040huge mapped=2 N0=2 kernelpagesize_kB=4
4000 bind:1 anon=4 N1=4 kernelpagesize_kB=4
10000 bind:1 file=/dev/zero\\040(deleted) dirty=1 N1=1 kernelpagesize_kB=4
200000 prefer (many):0-1 file=/anon_hugepage\\040(deleted) huge anon=1 N0=1 kernelpagesize_kB=2048
";

    #[test]
    fn both_files_make_a_mapping() {
        let seen: Vec<_> = read(MAPS, NUMA_MAPS)
            .into_iter()
            .map(|vma| (vma.start, vma.end, vma.file, vma.shared, vma.huge, vma.policy.unwrap().to_string()))
            .collect();
        let (yes, no) = (Some(true), Some(false));
        let expected = [
            (0x1000, 0x3000, true, no, no, "default".into()),
            (0x4000, 0x8000, false, no, no, "bind:1".into()),
            (0x10000, 0x30000, true, yes, no, "bind:1".into()),
            (0x20_0000, 0x60_0000, true, no, yes, "prefer (many):0-1".into()),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn extents_are_by_policy_without_those_that_have_none() {
        let seen: Vec<_> = extents(&read(MAPS, NUMA_MAPS))
            .into_iter()
            .map(|e| (e.policy.to_string(), e.mappings, e.bytes, e.shared_bytes, e.huge_bytes))
            .collect();
        let expected = [
            ("bind:1".into(), 2, 0x24000, 0x20000, 0),
            ("prefer (many):0-1".into(), 1, 0x40_0000, 0, 0x40_0000),
        ];
        assert_eq!(seen, expected);
    }

    proptest! {
        #[test]
        fn any_files_make_mappings_or_none(maps in any::<String>(), numa_maps in any::<String>(), at in "[0-9a-f]{1,18}", end in "[0-9a-f]{1,18}") {
            let _ = extents(&read(&maps, &numa_maps));
            let _ = extents(&read(&format!("{at}-{end} rw-s"), &format!("{at} bind:0 huge")));
        }
    }
}
