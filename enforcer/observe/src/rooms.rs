//! Free memory of the NUMA nodes, read many times a second.
//!
//! `nodeN/meminfo` is held open and read at each look; its `vmstat` has the same figures and takes twice as
//! long. Watermarks come from `/proc/zoneinfo`, which is ten times as expensive and changes only with a
//! setting or with memory hotplug: it is read every [`REFRESH`]. A look allocates nothing.
//!
//! An unreadable node is left out: unknown is not zero.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use enforcer_core::{
    page_size::PageSize,
    parse::{
        meminfo::{Meminfo, meminfo},
        zoneinfo::{ZonePages, zone_pages},
    },
    widening::NodeRoom,
};
use numa_topology::id::NodeId;

use enforcer_host::{HostPath, HostRoot, ReadError, repeated::RepeatedFile};

/// Time between two readings of the watermarks and of the list of nodes.
const REFRESH: Duration = Duration::from_secs(30);
/// Longest file of a node: one page (`sysfs_emit`).
const LONGEST: usize = 4_096;

/// The open files of all nodes.
#[derive(Debug)]
pub struct HeadroomReader {
    nodes_dir: HostPath,
    zoneinfo: HostPath,
    page: PageSize,
    files: Vec<(NodeId, RepeatedFile)>,
    zones: BTreeMap<NodeId, ZonePages>,
    seen: Vec<(NodeId, NodeRoom)>,
    refreshed: Option<Instant>,
}

impl HeadroomReader {
    /// Reader for this host with this page size.
    pub fn new(host: &HostRoot, page: PageSize) -> Self {
        Self {
            nodes_dir: host.sys.join("devices/system/node"),
            zoneinfo: host.proc.join("zoneinfo"),
            page,
            files: Vec::new(),
            zones: BTreeMap::new(),
            seen: Vec::new(),
            refreshed: None,
        }
    }

    /// Free memory of each node. An error names the unreadable source.
    pub fn read(&mut self, now: Instant) -> Result<&[(NodeId, NodeRoom)], ReadError> {
        if self.refreshed.is_none_or(|at| now.saturating_duration_since(at) >= REFRESH) {
            self.refresh()?;
            self.refreshed = Some(now);
        }
        self.seen.clear();
        for (node, file) in &mut self.files {
            let Some(zones) = self.zones.get(node) else { continue };
            // The node has just been removed.
            let Some(left) = file.text().ok().and_then(|text| meminfo(text).ok()) else { continue };
            self.seen.extend(room_of(&left, zones, self.page).map(|room| (*node, room)));
        }
        Ok(&self.seen)
    }

    fn refresh(&mut self) -> Result<(), ReadError> {
        let text = self.zoneinfo.read_text()?;
        self.zones = zone_pages(&text).map_err(|error| ReadError {
            path: self.zoneinfo.as_path().to_owned(),
            cause: std::io::Error::new(std::io::ErrorKind::InvalidData, error),
        })?;
        let names = self.nodes_dir.list_dir()?.unwrap_or_default();
        let ids = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok().map(NodeId));
        let ids: Vec<NodeId> = ids.collect();
        self.files.retain(|(node, _)| ids.contains(node));
        for node in ids {
            if !self.files.iter().any(|(known, _)| *known == node) {
                let path = self.nodes_dir.join(format!("node{node}/meminfo"));
                self.files.push((node, RepeatedFile::open(path, LONGEST)?));
            }
        }
        self.seen.reserve(self.files.len());
        Ok(())
    }
}

/// A node's memory from its two files; `None` if its free memory is unknown.
pub(super) fn room_of(left: &Meminfo, zones: &ZonePages, page: PageSize) -> Option<NodeRoom> {
    Some(NodeRoom {
        free: left.free_bytes?,
        low: page.bytes(zones.low),
        managed: page.bytes(zones.managed),
        file: left.lru_file_bytes.unwrap_or(0),
        slab: left.slab_reclaimable_bytes.unwrap_or(0),
    })
}

/// Free bytes of all nodes of this host together, by sysinfo(2): it formats no text, which is most of the
/// cost of a look.
pub fn free_on_all_nodes() -> u64 {
    let told = rustix::system::sysinfo();
    told.freeram.saturating_mul(u64::from(told.mem_unit))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reads_nodes_anew_and_watermarks_seldom() {
        let dir = tempfile::TempDir::new().unwrap();
        let put = |file: &str, text: &str| {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/zoneinfo",
            "Node 0, zone Normal\n low 5\n managed 100\nNode 7, zone Normal\n low 1\n managed 10\n",
        );
        put(
            "sys/devices/system/node/node0/meminfo",
            "Node 0 MemFree: 200 kB\nNode 0 Inactive(file): 16 kB\n",
        );
        put("sys/devices/system/node/node7/meminfo", "Node 7 MemFree: 36 kB\n");
        put("sys/devices/system/node/node9/meminfo", "Node 9 MemFree: 36 kB\n");
        let mut rooms = HeadroomReader::new(&HostRoot::captured(dir.path()), PageSize::SMALLEST);
        let now = Instant::now();
        let seen = rooms.read(now).unwrap().to_vec();
        let nodes: Vec<u32> = seen.iter().map(|(node, _)| node.0).collect();
        assert_eq!(nodes, [0, 7], "of node 9 no watermark is known");
        let expected =
            NodeRoom { free: 50 * 4096, low: 5 * 4096, managed: 100 * 4096, file: 4 * 4096, slab: 0 };
        assert_eq!(seen[0].1, expected);

        put("sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 160 kB\n");
        put("proc/zoneinfo", "Node 0, zone Normal\n low 6\n managed 100\n");
        let later = rooms.read(now + Duration::from_secs(29)).unwrap();
        assert_eq!((later[0].1.free, later[0].1.low), (40 * 4096, 5 * 4096));
        let later = rooms.read(now + Duration::from_secs(30)).unwrap();
        assert_eq!((later[0].1.low, later.len()), (6 * 4096, 1));
    }

    #[test]
    fn without_watermarks_nothing_is_known() {
        let nowhere = HostRoot::captured(std::path::Path::new("/nonexistent"));
        let error = HeadroomReader::new(&nowhere, PageSize::SMALLEST).read(Instant::now()).unwrap_err();
        assert!(error.to_string().contains("zoneinfo"), "{error}");
    }
}
