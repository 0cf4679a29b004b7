//! Memory of a process by node and mapping, and the nodes that a mapping is bound to.
//!
//! From `/proc/PID/numa_maps` (`show_numa_map`, `fs/proc/task_mmu.c`), line by line. A line has the start of
//! a mapping and not its end. A range therefore reaches to the start of the next mapping, and holds the pages
//! of one mapping alone.
//!
//! Pages that `move_pages(2)` does not move for another process are left out: pages of hugetlbfs, and
//! mappings with a page that several processes map. A line that does not parse is no mapping: the process is
//! alive and changes the file all the time.
//!
//! Cost: memory for [`MOST`] mappings; further ones are left out.

use crate::{demotion::AddressRange, memory_policy::MemoryPolicy, parse::numa_maps::Mapping};
use numa_topology::{id::NodeId, set::NodeSet};

/// Limit of the mappings of a process: the kernel's own default (`vm.max_map_count`).
const MOST: usize = 65_536;

/// A process and its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Process id.
    pub pid: u32,
    /// Mappings in the order of their addresses.
    pub(super) mappings: Vec<MovableMapping>,
    /// True while the end of the latest mapping is unknown.
    open: bool,
}

/// A mapping with pages that can be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MovableMapping {
    pub(super) range: AddressRange,
    /// Bytes on each node.
    pub(super) bytes: Vec<(NodeId, u64)>,
    /// The only nodes that its pages may come from (`MPOL_BIND`).
    pub(super) bound: Option<NodeSet>,
}

impl ProcessMemory {
    /// A process without any known mapping.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }

    /// Adds a line of its `numa_maps`. Lines come in the order of addresses.
    pub fn add_line(&mut self, line: &str) {
        let Ok(mapping) = Mapping::parse(line) else { return };
        if let Some(last) = self.mappings.last_mut().filter(|_| self.open) {
            last.range.end = mapping.start;
        }
        self.open = false;
        if mapping.pages.is_empty()
            || mapping.sharers > 1
            || mapping.is_hugetlb()
            || self.mappings.len() >= MOST
        {
            return;
        }
        let policy = line.split_once(' ').and_then(|(_, rest)| MemoryPolicy::parse_start(rest).ok());
        let bytes = |(node, pages): &(NodeId, u64)| (*node, pages.saturating_mul(mapping.page_bytes));
        self.mappings.push(MovableMapping {
            range: AddressRange { start: mapping.start, end: u64::MAX },
            bytes: mapping.pages.iter().map(bytes).collect(),
            bound: policy.and_then(|policy| policy.bound_to().cloned()),
        });
        self.open = true;
    }

    /// Bytes that are bound to nodes.
    pub fn bound_bytes(&self) -> u64 {
        let bound = self.mappings.iter().filter(|held| held.bound.is_some());
        bound.flat_map(|held| &held.bytes).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

impl MovableMapping {
    /// Bytes on a node.
    pub(super) fn on(&self, node: NodeId) -> u64 {
        let on = self.bytes.iter().filter(|(of, _)| *of == node);
        on.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> ProcessMemory {
        let mut tenant = ProcessMemory::new(7);
        text.lines().for_each(|line| tenant.add_line(line));
        tenant
    }

    #[test]
    fn what_can_be_moved_is_kept_and_reaches_to_the_next_mapping() {
        let tenant = read(
            "\
1000 default file=/usr/bin/x mapped=2 mapmax=3 N0=2 kernelpagesize_kB=4
4000 bind:0 anon=4 N0=3 N1=1 kernelpagesize_kB=4
9000 bind=static:0-1 anon=1 N0=1 kernelpagesize_kB=4
zz what
200000 default file=/anon_hugepage huge anon=1 N0=1 kernelpagesize_kB=2048
600000 default
700000 prefer:0 anon=2 N0=2 kernelpagesize_kB=4
",
        );
        let seen: Vec<_> = tenant
            .mappings
            .iter()
            .map(|held| {
                let bound = held.bound.as_ref().map(ToString::to_string);
                (held.range.start, held.range.end, held.on(NodeId(0)), bound)
            })
            .collect();
        let bound = |text: &str| Some(text.to_owned());
        let expected = [
            (0x4000, 0x9000, 3 << 12, bound("0")),
            (0x9000, 0x20_0000, 1 << 12, bound("0-1")),
            (0x70_0000, u64::MAX, 2 << 12, None),
        ];
        assert_eq!(seen, expected);
        assert_eq!(tenant.bound_bytes(), 5 << 12);
    }

    proptest! {
        #[test]
        fn any_lines_are_mappings_or_none(
            lines in proptest::collection::vec(any::<String>(), 0..8), at in "[0-9a-f]{1,18}", rest in "[ =:a-zN0-9,-]{0,24}",
        ) {
            let mut tenant = ProcessMemory::new(1);
            for line in &lines {
                tenant.add_line(line);
            }
            tenant.add_line(&format!("{at} bind:0 {rest} N0=18446744073709551615"));
            let _ = tenant.bound_bytes();
        }
    }
}
