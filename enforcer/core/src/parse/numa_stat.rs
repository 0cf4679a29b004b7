//! `memory.numa_stat`: memory of a cgroup by node.
//!
//! v2 counts bytes of the cgroup and its descendants (Documentation/admin-guide/cgroup-v2.rst). v1 counts
//! pages of the LRU lists, of the cgroup alone or, in the `hierarchical_` lines, with its descendants
//! (Documentation/admin-guide/cgroup-v1/memory.rst, section 5.6). The v1 lists keep tmpfs with anonymous
//! memory and have an own list for mlocked pages of either kind; both count as anonymous here. v1 counts
//! neither kernel memory nor mapped files per node.

use std::collections::BTreeMap;

use super::ParseError;
use crate::{
    page_size::PageSize,
    sample::{Count as _, NodeBytes},
};
use numa_topology::id::NodeId;

/// Memory on each node.
pub type ByNode = BTreeMap<NodeId, NodeBytes>;

/// Parses the v2 form.
pub fn parse_numa_stat_v2(text: &str) -> Result<ByNode, ParseError> {
    let mut by_node = ByNode::new();
    for line in text.lines() {
        let Some((name, counts)) = line.split_once(' ') else { continue };
        let add: fn(&mut NodeBytes, u64) = match name {
            "anon" => |bytes, count| bytes.anon = bytes.anon.saturating_add(count),
            "file" => |bytes, count| bytes.file = bytes.file.saturating_add(count),
            "file_mapped" => |bytes, count| add_known(&mut bytes.file_mapped, count),
            "shmem" => |bytes, count| add_known(&mut bytes.shmem, count),
            "kernel_stack" | "pagetables" | "sec_pagetables" | "slab_reclaimable" | "slab_unreclaimable" => {
                |bytes, count| add_known(&mut bytes.kernel, count)
            }
            _ => continue,
        };
        for count in counts.split_ascii_whitespace() {
            let (node, count) = node_count(count)?;
            add(by_node.entry(node).or_default(), count);
        }
    }
    Ok(by_node)
}

/// Parses the v1 form: of the cgroup alone, or with `below` also of its descendants (if the kernel has those
/// lines).
pub fn parse_numa_stat_v1(text: &str, page: PageSize, below: bool) -> Result<ByNode, ParseError> {
    let hierarchical = below && text.lines().any(|line| line.starts_with("hierarchical_"));
    let mut by_node = ByNode::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some((name, _)) = words.next().and_then(|total| total.split_once('=')) else { continue };
        let name = match (name.strip_prefix("hierarchical_"), hierarchical) {
            (Some(name), true) => name,
            (None, false) => name,
            _ => continue,
        };
        for count in words {
            let (node, pages) = node_count(count)?;
            let bytes = by_node.entry(node).or_default();
            let count = page.bytes(pages);
            match name {
                "file" => bytes.file = bytes.file.saturating_add(count),
                "anon" | "unevictable" => bytes.anon = bytes.anon.saturating_add(count),
                _ => {}
            }
        }
    }
    Ok(by_node)
}

/// Name of the file with a cgroup's huge pages of this size in bytes by node (`hugetlb_cgroup_file_pre_init`,
/// with `mem_fmt`).
pub fn hugetlb_file(size_bytes: u64) -> String {
    match size_bytes >> 10 {
        kib @ ..1_024 => format!("hugetlb.{kib}KB.numa_stat"),
        kib @ 1_024..1_048_576 => format!("hugetlb.{}MB.numa_stat", kib >> 10),
        kib => format!("hugetlb.{}GB.numa_stat", kib >> 20),
    }
}

/// Parses `hugetlb.SIZE.numa_stat` of v2 (Linux 5.17 and later): bytes of huge pages in use by node, of the
/// cgroup and its descendants (`hugetlb_cgroup_read_numa_stat`). `memory.numa_stat` does not include them.
pub fn parse_hugetlb_numa_stat(text: &str) -> Result<BTreeMap<NodeId, u64>, ParseError> {
    let mut by_node = BTreeMap::<NodeId, u64>::new();
    let mut words =
        text.lines().find(|line| line.starts_with("total=")).unwrap_or(text).split_ascii_whitespace();
    if !words.next().is_some_and(|word| word.starts_with("total=")) {
        return Err(ParseError::new("a total of huge pages", text));
    }
    for word in words {
        let (node, bytes) = node_count(word)?;
        by_node.entry(node).or_default().add(&bytes);
    }
    Ok(by_node)
}

fn add_known(sum: &mut Option<u64>, count: u64) {
    *sum = Some(sum.unwrap_or(0).saturating_add(count));
}

/// `N3=4096`.
pub(super) fn node_count(word: &str) -> Result<(NodeId, u64), ParseError> {
    let pair = || {
        let (node, count) = word.strip_prefix('N')?.split_once('=')?;
        Some((NodeId(node.parse().ok()?), count.parse().ok()?))
    };
    pair().ok_or_else(|| ParseError::new("the count of a node, N0=1,", word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V2: &str = "\
anon N0=1568768 N1=4096
file N0=4898816 N1=0
kernel_stack N0=32768 N1=16384
pagetables N0=151552 N1=0
sec_pagetables N0=0 N1=0
shmem N0=8192 N1=0
file_mapped N0=3375104 N1=0
anon_thp N0=0 N1=0
inactive_anon N0=1564672 N1=0
slab_reclaimable N0=201264 N1=1000
slab_unreclaimable N0=100000 N1=0
workingset_refault_anon N0=0 N1=0
";

    const V1: &str = "\
total=5307 N0=5300 N33=7
file=150 N0=150 N33=0
anon=374 N0=370 N33=4
unevictable=4783 N0=4780 N33=3
hierarchical_total=581740 N0=581740 N33=0
hierarchical_file=574261 N0=574261 N33=0
hierarchical_anon=2696 N0=2696 N33=0
hierarchical_unevictable=4783 N0=4783 N33=0
";

    fn bytes(anon: u64, file: u64, shmem: Option<u64>, kernel: Option<u64>) -> NodeBytes {
        NodeBytes { anon, file, shmem, file_mapped: None, kernel }
    }

    #[test]
    fn v2_counts_bytes_and_kernel_memory() {
        let kernel = 32768 + 151_552 + 201_264 + 100_000;
        let first = bytes(1_568_768, 4_898_816, Some(8192), Some(kernel));
        let expected = [
            (NodeId(0), NodeBytes { file_mapped: Some(3_375_104), ..first }),
            (NodeId(1), NodeBytes { file_mapped: Some(0), ..bytes(4096, 0, Some(0), Some(17384)) }),
        ];
        assert_eq!(parse_numa_stat_v2(V2).unwrap(), expected.into());
        let old = parse_numa_stat_v2("anon N0=1\nfile N0=2\n").unwrap();
        assert_eq!(old[&NodeId(0)], bytes(1, 2, None, None));
    }

    #[test]
    fn v1_counts_pages_of_the_cgroup_or_of_the_tree() {
        let own = parse_numa_stat_v1(V1, PageSize::SMALLEST, false).unwrap();
        let expected = [
            (NodeId(0), bytes(5150 * 4096, 150 * 4096, None, None)),
            (NodeId(33), bytes(7 * 4096, 0, None, None)),
        ];
        assert_eq!(own, expected.into());
        let tree = parse_numa_stat_v1(V1, PageSize::SMALLEST, true).unwrap();
        assert_eq!(tree[&NodeId(0)], bytes(7479 * 4096, 574_261 * 4096, None, None));
        let flat: String = V1.lines().take(4).map(|line| line.to_owned() + "\n").collect();
        assert_eq!(parse_numa_stat_v1(&flat, PageSize::SMALLEST, true).unwrap(), own);
    }

    #[test]
    fn huge_pages_are_bytes_by_node() {
        let read = parse_hugetlb_numa_stat("total=6291456 N0=2097152 N33=4194304\n").unwrap();
        assert_eq!(read, [(NodeId(0), 2 << 20), (NodeId(33), 4 << 20)].into());
        assert_eq!(parse_hugetlb_numa_stat("total=0 N0=0\n").unwrap(), [(NodeId(0), 0)].into());
        for text in ["", "total", "N0=1\n", "hierarchical_total=1 N0=1\n"] {
            assert!(parse_hugetlb_numa_stat(text).is_err(), "{text}");
        }
        assert_eq!(parse_hugetlb_numa_stat("total=1 N0=x\n").unwrap_err().found, "N0=x");
    }

    #[test]
    fn a_count_that_is_none_is_named() {
        for word in ["N0", "N0=", "Nx=1", "0=1", "N0=-1", "N99999999999=1", "N0=1,N1=2"] {
            assert_eq!(parse_numa_stat_v2(&format!("anon N1=1 {word}\n")).unwrap_err().found, word);
            assert_eq!(
                parse_numa_stat_v1(&format!("anon=1 {word}\n"), PageSize::SMALLEST, false).unwrap_err().found,
                word
            );
        }
    }

    #[test]
    fn sums_do_not_overflow() {
        let text = format!("anon=1 N0={0} N0={0}\n", u64::MAX);
        assert_eq!(parse_numa_stat_v1(&text, PageSize::SMALLEST, false).unwrap()[&NodeId(0)].anon, u64::MAX);
    }

    proptest! {
        #[test]
        fn any_text_is_counts_or_an_error(text in any::<String>(), noise in "((anon|file|hierarchical_anon)(=1)? N[0-9]{0,3}=?[0-9]{0,3}\n?){0,5}") {
            for text in [text, noise] {
                let _ = parse_numa_stat_v2(&text);
                let _ = parse_numa_stat_v1(&text, PageSize::SMALLEST, true);
                let _ = parse_hugetlb_numa_stat(&text);
            }
        }

        #[test]
        fn every_node_is_kept(counts in proptest::collection::btree_map(0u32..1024, any::<u64>(), 1..20)) {
            let words: Vec<String> = counts.iter().map(|(node, count)| format!("N{node}={count}")).collect();
            let read = parse_numa_stat_v2(&format!("anon {}\n", words.join(" "))).unwrap();
            prop_assert_eq!(read.into_iter().map(|(node, bytes)| (node.0, bytes.anon)).collect::<BTreeMap<_, _>>(), counts);
        }
    }
}
