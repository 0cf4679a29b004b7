//! `/proc/PID/numa_maps`: where each mapping of a process has its pages
//! (Documentation/filesystems/proc.rst; `show_numa_map` of `fs/proc/task_mmu.c`).
//!
//! The file of a large process has hundreds of thousands of lines, so it is added up line by line.
//! A mapping says how many of its pages are anonymous, but not on which node these are: a private file
//! mapping counts as anonymous only when all of its pages are.

use std::collections::BTreeMap;

use super::{ParseError, numa_stat::node_count};
use crate::{id::NodeId, sample::NodeBytes};

/// Sum over the mappings of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaMaps {
    /// Bytes on each node.
    pub by_node: BTreeMap<NodeId, NodeBytes>,
}

impl NumaMaps {
    /// Adds one line: `ADDRESS POLICY [file=PATH|heap|stack|huge] [anon=N] .. N0=5 kernelpagesize_kB=4`.
    pub fn add_line(&mut self, line: &str, page_bytes: u64) -> Result<(), ParseError> {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(_policy)) = (words.next(), words.next()) else {
            return Err(ParseError::new("a line of numa_maps", line));
        };
        if u64::from_str_radix(address, 16).is_err() {
            return Err(ParseError::new("an address of numa_maps", line));
        }
        let mapping = Mapping::of(words, page_bytes)?;
        for (node, pages) in &mapping.pages {
            let bytes = pages.saturating_mul(mapping.page_bytes);
            let sum = self.by_node.entry(*node).or_default();
            if mapping.anonymous() {
                sum.anon = sum.anon.saturating_add(bytes);
            } else {
                sum.file = sum.file.saturating_add(bytes);
            }
            let shmem = if mapping.shmem { bytes } else { 0 };
            sum.shmem = Some(sum.shmem.unwrap_or(0).saturating_add(shmem));
        }
        Ok(())
    }
}

/// One mapping.
struct Mapping {
    page_bytes: u64,
    pages: Vec<(NodeId, u64)>,
    anon_pages: u64,
    file: bool,
    shmem: bool,
}

impl Mapping {
    fn of<'a>(words: impl Iterator<Item = &'a str>, page_bytes: u64) -> Result<Self, ParseError> {
        let mut mapping = Self { page_bytes, pages: Vec::new(), anon_pages: 0, file: false, shmem: false };
        for word in words {
            let number = |text: &str| {
                text.parse::<u64>().ok().ok_or_else(|| ParseError::new("a number of numa_maps", word))
            };
            match word.split_once('=') {
                Some(("file", path)) => {
                    mapping.file = true;
                    mapping.shmem =
                        ["/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"].iter().any(|p| path.starts_with(p));
                }
                Some(("anon", pages)) => mapping.anon_pages = number(pages)?,
                Some(("kernelpagesize_kB", size)) => mapping.page_bytes = number(size)?.saturating_mul(1024),
                Some((name, _))
                    if name
                        .strip_prefix('N')
                        .is_some_and(|id| id.starts_with(|c: char| c.is_ascii_digit())) =>
                {
                    mapping.pages.push(node_count(word)?);
                }
                _ => {}
            }
        }
        Ok(mapping)
    }

    fn anonymous(&self) -> bool {
        !self.file
            || self.anon_pages == self.pages.iter().fold(0, |sum: u64, (_, pages)| sum.saturating_add(*pages))
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
        text.lines().try_for_each(|line| maps.add_line(line, 4096)).map(|()| maps)
    }

    #[test]
    fn adds_up_a_real_process() {
        let node = |anon, file, shmem| NodeBytes { anon, file, shmem: Some(shmem), kernel: None };
        let huge = 2 << 20;
        let expected = [
            (NodeId(0), node((1 + 3 + 3) * 4096 + huge, (2 + 32) * 4096, 0)),
            (NodeId(1), node(4096 + huge, 10 * 4096, 10 * 4096)),
        ];
        assert_eq!(sum(HEAD).unwrap().by_node, expected.into());
    }

    #[test]
    fn names_the_line_that_is_none() {
        for line in
            ["", "56526928b000", "xyz default", "5652 default N0=x", "5652 default N0=1 kernelpagesize_kB=x"]
        {
            assert!(NumaMaps::default().add_line(line, 4096).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_added_or_an_error(line in any::<String>(), noise in "[0-9a-f]{1,4} default( (N[0-9]{1,3}|anon|kernelpagesize_kB|file)=[0-9]{0,20}){0,6}") {
            let mut maps = NumaMaps::default();
            let _ = maps.add_line(&line, 4096);
            let _ = maps.add_line(&noise, u64::MAX);
        }
    }
}
