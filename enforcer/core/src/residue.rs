//! What is still on the nodes that pages were moved away from, and why.
//!
//! That nobody faults on far pages does not say that there are none: a workload that is bound to one node is
//! not scanned for such faults any more. So whether a move succeeded is read from where the pages are:
//! mapping by mapping (`numa_maps`), and for what nobody maps from the account of the cgroup
//! (`memory.numa_stat`).
//!
//! The reason is the first of a mapping's properties, in the order of [`Reason`], that keeps pages where they
//! are. A charge does not follow a process that changes its cgroup, so what is unmapped is what the account
//! has beyond the mappings that were seen, and never less than nothing.

use std::collections::BTreeMap;

use crate::{id::NodeId, parse::numa_maps::Mapping, sample::NodeBytes, set::NodeSet};

/// Why pages stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Huge pages of hugetlbfs, which need a free one on the other node.
    Hugetlb,
    /// Mapped by several processes, of which none may move them.
    Shared,
    /// The same of a file on a disk, as programs and libraries are: it is nobody's own memory.
    SharedFile,
    /// Of tmpfs, or shared memory.
    Tmpfs,
    /// Of a file.
    PageCache,
    /// Under a memory policy that names nodes.
    Policy,
    /// Anonymous, and busy, pinned for a device, or come after the move.
    Anonymous,
    /// In files that no process maps, tmpfs among them.
    Unmapped,
}

impl Reason {
    /// For people.
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
    by_reason: BTreeMap<Reason, u64>,
    /// Of files, as far as mapped.
    mapped: u64,
}

impl Residue {
    /// Adds a mapping of a process: what of it is on these nodes.
    pub fn add(&mut self, mapping: &Mapping, from: &NodeSet) {
        let bytes = mapping.pages_on(from).saturating_mul(mapping.page_bytes);
        if bytes == 0 {
            return;
        }
        let reason = Reason::of(mapping);
        let sum = self.by_reason.entry(reason).or_default();
        *sum = sum.saturating_add(bytes);
        if !mapping.is_anonymous() && reason != Reason::Hugetlb {
            self.mapped = self.mapped.saturating_add(bytes);
        }
    }

    /// Adds what the cgroup's account has on these nodes and no mapping showed; comes after all mappings.
    pub fn add_account(&mut self, account: &BTreeMap<NodeId, NodeBytes>, from: &NodeSet) {
        let files = account.iter().filter(|(node, _)| from.contains(**node));
        let files = files.fold(0u64, |sum, (_, bytes)| sum.saturating_add(bytes.file));
        let unmapped = files.saturating_sub(self.mapped);
        if unmapped > 0 {
            self.by_reason.insert(Reason::Unmapped, unmapped);
        }
    }

    /// Is all that several processes map of files on disks, and is there any?
    pub fn shares_files_alone(&self) -> bool {
        self.by_reason.contains_key(&Reason::SharedFile) && !self.by_reason.contains_key(&Reason::Shared)
    }

    /// By reason, in order; none with nothing.
    pub fn by_reason(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
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
            ("1000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4", (Reason::Anonymous, 3)),
            ("1000 default anon=3 mapmax=4 N0=3 kernelpagesize_kB=4", (Reason::Shared, 3)),
            ("1000 bind:0 anon=3 N0=2 N1=1 kernelpagesize_kB=4", (Reason::Policy, 2)),
            ("1000 default file=/bin/x mapped=9 N0=9 kernelpagesize_kB=4", (Reason::PageCache, 9)),
            ("1000 default file=/bin/x mapped=9 mapmax=2 N0=9 kernelpagesize_kB=4", (Reason::SharedFile, 9)),
            ("1000 default file=/bin/x anon=9 mapmax=2 N0=9 kernelpagesize_kB=4", (Reason::Shared, 9)),
            ("1000 default file=/dev/shm/x dirty=9 mapmax=2 N0=9 kernelpagesize_kB=4", (Reason::Shared, 9)),
            ("1000 default file=/dev/shm/x dirty=9 N0=9 kernelpagesize_kB=4", (Reason::Tmpfs, 9)),
            (
                "1000 default file=/x huge dirty=1 mapmax=2 N0=1 kernelpagesize_kB=2048",
                (Reason::Hugetlb, 512),
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
    fn what_nobody_maps_is_what_the_account_has_beyond_the_mappings() {
        let mut residue = residue(
            "1000 default anon=3 N0=3 kernelpagesize_kB=4\n2000 default file=/x N0=10 kernelpagesize_kB=4\n",
        );
        let bytes = NodeBytes { anon: 4096, file: 60 << 20, ..NodeBytes::default() };
        residue.add_account(&[(NodeId(0), bytes), (NodeId(1), bytes)].into(), &"0".parse().unwrap());
        let unmapped = residue.by_reason().find(|(reason, _)| *reason == Reason::Unmapped);
        assert_eq!(unmapped, Some((Reason::Unmapped, (60 << 20) - 40_960)));
    }

    proptest! {
        #[test]
        fn an_account_below_the_mappings_adds_nothing(pages in 0u64..1 << 40, account in any::<u64>()) {
            let mut residue = residue(&format!("1000 default file=/x N0={pages} kernelpagesize_kB=4"));
            let bytes = NodeBytes { file: account, ..NodeBytes::default() };
            residue.add_account(&[(NodeId(0), bytes)].into(), &"0".parse().unwrap());
            let unmapped = residue.by_reason().find(|(reason, _)| *reason == Reason::Unmapped);
            prop_assert_eq!(unmapped.map_or(0, |(_, bytes)| bytes), account.saturating_sub(pages * 4096));
        }
    }
}
