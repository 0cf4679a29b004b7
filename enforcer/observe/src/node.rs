//! Counters of each NUMA node: `/sys/devices/system/node/nodeN/{meminfo,vmstat,numastat}`.

use std::collections::BTreeMap;

use enforcer_core::{
    page_size::PageSize,
    parse::{
        ParseError,
        keyed::parse_keyed,
        meminfo::meminfo,
        zoneinfo::{ZonePages, zone_pages},
    },
    sample::NodeSample,
};
use numa_topology::{
    degraded::{Degraded, DegradedTally},
    id::NodeId,
};

use enforcer_host::{HostPath, HostRoot};

const EFFECT: &str = "counters of the node are missing";

/// Reads the nodes; unreadable ones are left out.
///
/// `low_watermarks`: bytes by node, where known ([`Watermarks`]).
pub(super) fn read_nodes(
    host: &HostRoot,
    nodes: &[NodeId],
    low_watermarks: &BTreeMap<NodeId, u64>,
    degraded: &mut DegradedTally,
) -> BTreeMap<NodeId, NodeSample> {
    let top = host.sys.join("devices/system/node");
    if !top.is_dir() {
        let reason = format!("{} does not exist: the kernel was built without NUMA", top.display());
        degraded.push(Degraded::new("node", reason, EFFECT));
        return BTreeMap::new();
    }
    let mut samples = BTreeMap::new();
    for &node in nodes {
        let dir = top.join(format!("node{node}"));
        let mut missing = 0;
        let mut read = |file: &str| {
            let path = dir.join(file);
            let text = path.read_optional().unwrap_or_else(|error| {
                degraded.add("node", node, error, EFFECT);
                None
            });
            missing += usize::from(text.is_none());
            text.map(|text| (path, text))
        };
        let files = [read("meminfo"), read("vmstat"), read("numastat")];
        if missing == files.len() {
            continue;
        }
        let low_watermark_bytes = low_watermarks.get(&node).copied();
        let mut sample = NodeSample { low_watermark_bytes, ..NodeSample::default() };
        let [sizes, counters @ ..] = files;
        let mut malformed = |path: HostPath, error: ParseError| {
            degraded.add("node", node, format_args!("{}: {error}", path.display()), EFFECT);
        };
        if let Some((path, text)) = sizes {
            match meminfo(&text) {
                Ok(sizes) => {
                    sample.mem_total_bytes = sizes.total_bytes;
                    sample.mem_free_bytes = sizes.free_bytes;
                    sample.file_bytes = sizes.file_bytes;
                    sample.anon_bytes = sizes.anon_bytes;
                    sample.lru_file_bytes = sizes.lru_file_bytes;
                    sample.slab_reclaimable_bytes = sizes.slab_reclaimable_bytes;
                }
                Err(error) => malformed(path, error),
            }
        }
        for (path, text) in counters.into_iter().flatten() {
            match parse_keyed(&text) {
                Ok(values) => sample.counters.extend(values),
                Err(error) => malformed(path, error),
            }
        }
        samples.insert(node, sample);
    }
    samples
}

/// Low watermarks of the nodes, from `/proc/zoneinfo`. The file is expensive and changes only with a setting
/// or with memory hotplug, so it is read every [`REFRESH_NS`].
#[derive(Debug, Default)]
pub(super) struct Watermarks {
    low: BTreeMap<NodeId, u64>,
    read_ns: Option<u64>,
}

/// Nanoseconds between two readings of the watermarks.
const REFRESH_NS: u64 = 60_000_000_000;

impl Watermarks {
    /// Bytes by node. An unreadable file is a degraded entry, and its nodes are left out.
    pub(super) fn low(
        &mut self,
        host: &HostRoot,
        page: PageSize,
        now_ns: u64,
        degraded: &mut DegradedTally,
    ) -> &BTreeMap<NodeId, u64> {
        const EFFECT: &str = "memory below the low watermarks counts as available";
        let fresh = self.read_ns.is_some_and(|at| now_ns.saturating_sub(at) < REFRESH_NS);
        if fresh {
            return &self.low;
        }
        let path = host.proc.join("zoneinfo");
        // A kernel without the file has no watermarks, and a captured tree may lack it.
        let text = path.read_optional().unwrap_or_else(|error| {
            degraded.push(Degraded::new("zoneinfo", error.to_string(), EFFECT));
            None
        });
        self.low = match text.as_deref().map(zone_pages).transpose() {
            Ok(zones) => {
                let bytes = |pages: ZonePages| page.bytes(pages.low);
                zones.unwrap_or_default().into_iter().map(|(node, pages)| (node, bytes(pages))).collect()
            }
            Err(error) => {
                let reason = format!("{}: {error}", path.display());
                degraded.push(Degraded::new("zoneinfo", reason, EFFECT));
                BTreeMap::new()
            }
        };
        self.read_ns = Some(now_ns).filter(|_| !self.low.is_empty());
        &self.low
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::TempDir::new().unwrap();
        for (file, text) in files {
            let path = dir.path().join("sys/devices/system/node").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = HostRoot::captured(dir.path());
        (dir, host)
    }

    #[test]
    fn merges_the_files_of_a_node() {
        let (_dir, host) = tree(&[
            (
                "node0/meminfo",
                "Node 0 MemTotal: 8 kB\nNode 0 MemFree: 2 kB\nNode 0 FilePages: 1 kB\nNode 0 AnonPages: 3 kB\n\
                 Node 0 Active(file): 0 kB\nNode 0 Inactive(file): 0 kB\n",
            ),
            ("node0/vmstat", "nr_free_pages 12\nnuma_hit 5\n"),
            ("node0/numastat", "numa_hit 5\nother_node 7\n"),
            ("node33/vmstat", "nr_free_pages 1\n"),
        ]);
        let mut degraded = DegradedTally::default();
        let nodes =
            read_nodes(&host, &[NodeId(0), NodeId(1), NodeId(33)], &[(NodeId(0), 64)].into(), &mut degraded);
        assert_eq!(nodes.len(), 2);
        let node = &nodes[&NodeId(0)];
        assert_eq!((node.mem_total_bytes, node.mem_free_bytes), (Some(8192), Some(2048)));
        assert_eq!((node.file_bytes, node.anon_bytes), (Some(1024), Some(3072)));
        // The page cache is tmpfs: none of it is on the file lists.
        assert_eq!(node.available_bytes(), Some(2048 - 64));
        assert_eq!((node.counters["numa_hit"], node.counters["other_node"], node.counters.len()), (5, 7, 3));
        assert_eq!(nodes[&NodeId(33)].mem_total_bytes, None);
        assert!(degraded.into_entries().is_empty());
    }

    #[test]
    fn nonsense_in_one_file_costs_that_file_alone() {
        let (_dir, host) =
            tree(&[("node0/meminfo", "Node 0 MemTotal: 8 kB\n"), ("node0/vmstat", "nr_free_pages lots\n")]);
        let mut degraded = DegradedTally::default();
        let nodes = read_nodes(&host, &[NodeId(0)], &BTreeMap::new(), &mut degraded);
        assert_eq!(nodes[&NodeId(0)].mem_total_bytes, Some(8192));
        let entries = degraded.into_entries();
        assert_eq!((entries.len(), entries[0].source.as_str()), (1, "node:0"));
        assert!(
            entries[0].reason.contains("node0/vmstat") && entries[0].reason.contains("lots"),
            "{:?}",
            entries[0]
        );
    }

    #[test]
    fn a_kernel_without_numa_is_one_entry() {
        let mut degraded = DegradedTally::default();
        let nowhere = HostRoot::captured(Path::new("/nonexistent"));
        assert!(read_nodes(&nowhere, &[NodeId(0)], &BTreeMap::new(), &mut degraded).is_empty());
        assert_eq!(degraded.into_entries().len(), 1);
    }
}
