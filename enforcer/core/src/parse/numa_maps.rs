//! `/proc/PID/numa_maps`: pages of each mapping of a process by node (Documentation/filesystems/proc.rst;
//! `show_numa_map` of `fs/proc/task_mmu.c`).
//!
//! The file of a large process has hundreds of thousands of lines, so it is read line by line: each line is a
//! [`Mapping`], and [`NumaMaps`] adds them up. A line has the number of anonymous pages but not their nodes:
//! a private file mapping counts as anonymous only if all of its pages are.

use std::collections::BTreeMap;

use super::{ParseError, numa_stat::node_count};
use crate::sample::{Count as _, NodeBytes};
use numa_topology::{id::NodeId, set::NodeSet};

/// Page size of mappings without a stated size (kernels before 3.13).
const SMALL_PAGE_BYTES: u64 = 4_096;

/// Path prefixes of shared memory.
const SHMEM: [&str; 4] = ["/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"];

/// One mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Address of its first byte. The file does not have the end.
    pub start: u64,
    /// Size of its pages.
    pub page_bytes: u64,
    /// Pages on each node, in the order of the line.
    pub pages: Vec<(NodeId, u64)>,
    /// Maximum number of processes that map one of its pages; 1 if the line does not say.
    pub sharers: u64,
    /// Whether it has a memory policy that names nodes.
    pub names_nodes: bool,
    anon_pages: u64,
    hugetlb: bool,
    file: Option<File>,
}

/// File type of a file mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    /// Shared memory.
    Shmem,
    /// Anything else.
    Other,
}

impl Mapping {
    /// Parses a line: `ADDRESS POLICY [file=PATH|heap|stack|huge] [anon=N] .. N0=5 kernelpagesize_kB=4`.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(policy)) = (words.next(), words.next()) else {
            return Err(ParseError::new("a line of numa_maps", line));
        };
        let Ok(start) = u64::from_str_radix(address, 16) else {
            return Err(ParseError::new("an address of numa_maps", line));
        };
        let mut mapping = Self {
            start,
            page_bytes: SMALL_PAGE_BYTES,
            pages: Vec::new(),
            sharers: 1,
            // `bind:0-1`, `prefer=static:1`; `default` and `local` name no node.
            names_nodes: policy.contains(':'),
            anon_pages: 0,
            hugetlb: false,
            file: None,
        };
        words.try_for_each(|word| mapping.add_word(word)).map(|()| mapping)
    }

    fn add_word(&mut self, word: &str) -> Result<(), ParseError> {
        let number = |text: &str| {
            text.parse::<u64>().ok().ok_or_else(|| ParseError::new("a number of numa_maps", word))
        };
        match word.split_once('=') {
            Some(("file", path)) => {
                let shmem = SHMEM.iter().any(|prefix| path.starts_with(prefix));
                self.file = Some(if shmem { File::Shmem } else { File::Other });
            }
            Some(("anon", pages)) => self.anon_pages = number(pages)?,
            Some(("kernelpagesize_kB", size)) => self.page_bytes = number(size)?.saturating_mul(1024),
            Some(("mapmax", processes)) => self.sharers = number(processes)?,
            None if word == "huge" => self.hugetlb = true,
            Some((name, _)) if is_node(name) => self.pages.push(node_count(word)?),
            _ => {}
        }
        Ok(())
    }

    /// Pages on these nodes.
    pub fn pages_on(&self, nodes: &NodeSet) -> u64 {
        let on = self.pages.iter().filter(|(node, _)| nodes.contains(*node));
        on.fold(0, |sum, (_, pages)| sum.saturating_add(*pages))
    }

    /// Is it shared memory, or a tmpfs file that its path identifies as one?
    pub fn is_shmem(&self) -> bool {
        self.file == Some(File::Shmem)
    }

    /// Does it use huge pages of hugetlbfs?
    pub fn is_hugetlb(&self) -> bool {
        self.hugetlb
    }

    /// Are all of its pages anonymous?
    pub fn is_anonymous(&self) -> bool {
        let all = self.pages.iter().fold(0u64, |sum, (_, pages)| sum.saturating_add(*pages));
        self.file.is_none() || self.anon_pages == all
    }
}

/// `N0`, `N12`.
fn is_node(name: &str) -> bool {
    name.strip_prefix('N').is_some_and(|id| id.starts_with(|c: char| c.is_ascii_digit()))
}

/// Sum over the mappings of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaMaps {
    /// Bytes on each node.
    pub by_node: BTreeMap<NodeId, NodeBytes>,
}

impl NumaMaps {
    /// Adds one line.
    pub fn add_line(&mut self, line: &str) -> Result<(), ParseError> {
        let mapping = Mapping::parse(line)?;
        for (node, pages) in &mapping.pages {
            let bytes = pages.saturating_mul(mapping.page_bytes);
            // A private copy of shared memory is anonymous, and nothing else.
            let (anon, file) = if mapping.is_anonymous() { (bytes, 0) } else { (0, bytes) };
            let shmem = if mapping.is_shmem() { file } else { 0 };
            // All that is in this file is mapped; huge pages are none of ordinary memory.
            let mapped = if mapping.is_hugetlb() { 0 } else { file };
            let (shmem, file_mapped) = (Some(shmem), Some(mapped));
            let more = NodeBytes { anon, file, shmem, file_mapped, kernel: None };
            self.by_node.entry(*node).or_default().add(&more);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "\
56526928b000 default file=/usr/bin/head mapped=2 N0=2 kernelpagesize_kB=4
565269296000 default file=/usr/bin/head anon=1 dirty=1 active=0 N0=1 kernelpagesize_kB=4
56528911d000 default heap anon=4 dirty=4 active=0 N0=3 N1=1 kernelpagesize_kB=4
7f86b7daf000 bind:0 file=/usr/lib/locale/C.utf8/LC_CTYPE mapped=32 mapmax=11 N0=32 kernelpagesize_kB=4
7f86b8000000 prefer=static:1 file=/dev/shm/a\\040b dirty=10 N1=10 kernelpagesize_kB=4
7f86c0000000 interleave:0-1 file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N0=1 N1=1 kernelpagesize_kB=2048
7f86d0000000 default
7ffd3a9ce000 default stack anon=3 dirty=3 N0=3
";

    fn sum(text: &str) -> Result<NumaMaps, ParseError> {
        let mut maps = NumaMaps::default();
        text.lines().try_for_each(|line| maps.add_line(line)).map(|()| maps)
    }

    #[test]
    fn adds_up_a_real_process() {
        let node = |anon, file, shmem| NodeBytes {
            anon,
            file,
            shmem: Some(shmem),
            file_mapped: Some(file),
            kernel: None,
        };
        let huge = 2 << 20;
        let expected = [
            (NodeId(0), node((1 + 3 + 3) * 4096 + huge, (2 + 32) * 4096, 0)),
            (NodeId(1), node(4096 + huge, 10 * 4096, 10 * 4096)),
        ];
        assert_eq!(sum(HEAD).unwrap().by_node, expected.into());
    }

    #[test]
    fn private_copies_of_shared_memory_count_once() {
        for (file, rest, expected) in [
            ("/memfd:x\\040(deleted)", "anon=5 dirty=5", (5, 0, 0)),
            ("/dev/shm/x", "anon=5 dirty=5", (5, 0, 0)),
            ("/dev/shm/x", "dirty=5 mapmax=2", (0, 5, 5)),
            ("/srv/x", "mapped=5", (0, 5, 0)),
        ] {
            let line = format!("7f86b8000000 default file={file} {rest} N1=5 kernelpagesize_kB=4\n");
            let bytes = sum(&line).unwrap().by_node[&NodeId(1)];
            let found = (bytes.anon / 4096, bytes.file / 4096, bytes.shmem.unwrap() / 4096);
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn a_mapping_has_its_start_and_its_pages_by_node() {
        let mapping =
            Mapping::parse("7f86c0000000 default huge anon=5 N0=1 N3=4 kernelpagesize_kB=2048").unwrap();
        assert_eq!((mapping.start, mapping.page_bytes), (0x7f86_c000_0000, 2 << 20));
        for (nodes, pages) in [("0", 1), ("0,3", 5), ("1-2", 0), ("", 0)] {
            assert_eq!(mapping.pages_on(&nodes.parse().unwrap()), pages, "{nodes}");
        }
        assert_eq!(Mapping::parse("1000 default").unwrap().page_bytes, 4096);
    }

    #[test]
    fn names_the_line_that_is_none() {
        for line in
            ["", "56526928b000", "xyz default", "5652 default N0=x", "5652 default N0=1 kernelpagesize_kB=x"]
        {
            assert!(NumaMaps::default().add_line(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_added_or_an_error(line in any::<String>(), noise in "[0-9a-f]{1,4} default( (N[0-9]{1,3}|anon|kernelpagesize_kB|file)=[0-9]{0,20}){0,6}") {
            let mut maps = NumaMaps::default();
            let _ = maps.add_line(&line);
            let _ = maps.add_line(&noise);
        }
    }
}
