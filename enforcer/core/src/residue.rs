//! Pages that stayed on the nodes that pages were moved away from, with the reason.
//!
//! A lack of faults on far pages does not show that there are none: the kernel does not scan a workload that
//! is bound to one node. So the success of a move is read from the places of the pages: mapping by mapping
//! (`numa_maps`), and for unmapped pages from the account of the cgroup (`memory.numa_stat`).
//!
//! The reason is the first property of a mapping, in the order of [`ResidueReason`], that keeps pages in
//! place. A charge does not follow a process that changes its cgroup, so unmapped bytes are those of the
//! account beyond the mappings that were seen, and at least 0.

use std::collections::BTreeMap;

use crate::{
    parse::numa_maps::Mapping,
    sample::{Count as _, NodeBytes},
};
use numa_topology::{id::NodeId, set::NodeSet};

/// Reason why pages stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResidueReason {
    /// Huge pages of hugetlbfs, which need a free one on the other node.
    Hugetlb,
    /// Mapped by several processes, of which none may move them.
    Shared,
    /// Mapped by several processes from a file on a disk, as programs and libraries are: shared by nature.
    SharedFile,
    /// Pages of tmpfs or shared memory.
    Tmpfs,
    /// Pages of a file.
    PageCache,
    /// Under a memory policy that names nodes.
    Policy,
    /// Anonymous pages that are busy, pinned for a device, or came after the move.
    Anonymous,
    /// Pages of files that no process maps, tmpfs among them.
    Unmapped,
}

impl ResidueReason {
    /// Text for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Hugetlb => "huge pages",
            Self::Shared => "mapped by several processes",
            Self::SharedFile => "files that several processes map",
            Self::Tmpfs => "tmpfs or shared memory",
            Self::PageCache => "page cache",
            Self::Policy => "under a memory policy",
            Self::Anonymous => "busy, pinned or new",
            Self::Unmapped => "files that no process maps",
        }
    }

    fn of(mapping: &Mapping) -> Self {
        match mapping {
            _ if mapping.is_hugetlb() => Self::Hugetlb,
            _ if mapping.sharers > 1 && !mapping.is_anonymous() && !mapping.is_shmem() => Self::SharedFile,
            _ if mapping.sharers > 1 => Self::Shared,
            _ if mapping.is_shmem() => Self::Tmpfs,
            _ if !mapping.is_anonymous() => Self::PageCache,
            _ if mapping.names_nodes => Self::Policy,
            _ => Self::Anonymous,
        }
    }
}

/// Bytes that stayed, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Residue {
    by_reason: BTreeMap<ResidueReason, u64>,
    /// Mapped bytes of files.
    mapped: u64,
}

impl Residue {
    /// Adds a mapping of a process: its bytes on these nodes.
    pub fn add(&mut self, mapping: &Mapping, from: &NodeSet) {
        let bytes = mapping.pages_on(from).saturating_mul(mapping.page_bytes);
        if bytes == 0 {
            return;
        }
        let reason = ResidueReason::of(mapping);
        self.by_reason.entry(reason).or_default().add(&bytes);
        if !mapping.is_anonymous() && reason != ResidueReason::Hugetlb {
            self.mapped = self.mapped.saturating_add(bytes);
        }
    }

    /// Adds the bytes of the cgroup's account on these nodes that no mapping showed; call it after all
    /// mappings.
    pub fn add_account(&mut self, account: &BTreeMap<NodeId, NodeBytes>, from: &NodeSet) {
        let files = account.iter().filter(|(node, _)| from.contains(**node));
        let files = files.fold(0u64, |sum, (_, bytes)| sum.saturating_add(bytes.file));
        let unmapped = files.saturating_sub(self.mapped);
        if unmapped > 0 {
            self.by_reason.insert(ResidueReason::Unmapped, unmapped);
        }
    }

    /// Are there shared mappings, and are all of them of files on disks?
    pub fn shares_files_alone(&self) -> bool {
        self.by_reason.contains_key(&ResidueReason::SharedFile)
            && !self.by_reason.contains_key(&ResidueReason::Shared)
    }

    /// By reason, in order, without empty ones.
    pub fn by_reason(&self) -> impl Iterator<Item = (ResidueReason, u64)> + '_ {
        self.by_reason.iter().map(|(reason, bytes)| (*reason, *bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn residue(lines: &str) -> Residue {
        let mut residue = Residue::default();
        let from = "0".parse().unwrap();
        lines.lines().for_each(|line| residue.add(&Mapping::parse(line).unwrap(), &from));
        residue
    }

    #[test]
    fn each_mapping_has_its_reason() {
        for (line, expected) in [
            ("1000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4", (ResidueReason::Anonymous, 3)),
            ("1000 default anon=3 mapmax=4 N0=3 kernelpagesize_kB=4", (ResidueReason::Shared, 3)),
            ("1000 bind:0 anon=3 N0=2 N1=1 kernelpagesize_kB=4", (ResidueReason::Policy, 2)),
            ("1000 default file=/bin/x mapped=9 N0=9 kernelpagesize_kB=4", (ResidueReason::PageCache, 9)),
            (
                "1000 default file=/bin/x mapped=9 mapmax=2 N0=9 kernelpagesize_kB=4",
                (ResidueReason::SharedFile, 9),
            ),
            ("1000 default file=/bin/x anon=9 mapmax=2 N0=9 kernelpagesize_kB=4", (ResidueReason::Shared, 9)),
            (
                "1000 default file=/dev/shm/x dirty=9 mapmax=2 N0=9 kernelpagesize_kB=4",
                (ResidueReason::Shared, 9),
            ),
            ("1000 default file=/dev/shm/x dirty=9 N0=9 kernelpagesize_kB=4", (ResidueReason::Tmpfs, 9)),
            (
                "1000 default file=/x huge dirty=1 mapmax=2 N0=1 kernelpagesize_kB=2048",
                (ResidueReason::Hugetlb, 512),
            ),
        ] {
            let (reason, pages) = expected;
            assert_eq!(residue(line).by_reason().collect::<Vec<_>>(), [(reason, pages * 4096)], "{line}");
        }
        assert_eq!(residue("1000 default anon=3 N1=3 kernelpagesize_kB=4").by_reason().count(), 0);
    }

    #[test]
    fn libraries_alone_are_told_from_memory_that_processes_share() {
        let library = "1000 default file=/lib/c.so mapped=9 mapmax=30 N0=9 kernelpagesize_kB=4\n";
        let forked = "2000 default anon=3 mapmax=4 N0=3 kernelpagesize_kB=4\n";
        let own = "3000 default anon=3 N0=3 kernelpagesize_kB=4\n";
        for (lines, alone) in [
            (library.to_owned(), true),
            (format!("{library}{own}"), true),
            (format!("{library}{forked}"), false),
            (forked.to_owned(), false),
            (own.to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(residue(&lines).shares_files_alone(), alone, "{lines}");
        }
    }

    #[test]
    fn unmapped_bytes_are_those_of_the_account_beyond_the_mappings() {
        let mut residue = residue(
            "1000 default anon=3 N0=3 kernelpagesize_kB=4\n2000 default file=/x N0=10 kernelpagesize_kB=4\n",
        );
        let bytes = NodeBytes { anon: 4096, file: 60 << 20, ..NodeBytes::default() };
        residue.add_account(&[(NodeId(0), bytes), (NodeId(1), bytes)].into(), &"0".parse().unwrap());
        let unmapped = residue.by_reason().find(|(reason, _)| *reason == ResidueReason::Unmapped);
        assert_eq!(unmapped, Some((ResidueReason::Unmapped, (60 << 20) - 40_960)));
    }

    proptest! {
        #[test]
        fn an_account_below_the_mappings_adds_nothing(pages in 0u64..1 << 40, account in any::<u64>()) {
            let mut residue = residue(&format!("1000 default file=/x N0={pages} kernelpagesize_kB=4"));
            let bytes = NodeBytes { file: account, ..NodeBytes::default() };
            residue.add_account(&[(NodeId(0), bytes)].into(), &"0".parse().unwrap());
            let unmapped = residue.by_reason().find(|(reason, _)| *reason == ResidueReason::Unmapped);
            prop_assert_eq!(unmapped.map_or(0, |(_, bytes)| bytes), account.saturating_sub(pages * 4096));
        }
    }
}
