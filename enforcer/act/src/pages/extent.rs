//! Which address ranges of a process have pages on given nodes.
//!
//! `numa_maps` says which mappings have pages there, and how many; `maps` says how far they reach, and of
//! which file they are. Only mappings with such pages are kept in memory. A line that makes no sense is no
//! mapping: the process is alive and changes both files all the time.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader},
};

use enforcer_core::parse::numa_maps::Mapping;
use enforcer_host::HostPath;
use numa_topology::set::NodeSet;

/// A mapping with pages on the nodes that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Address of its first byte.
    pub(super) start: usize,
    /// Address behind its last byte.
    pub(super) end: usize,
    /// Size of its pages.
    pub(super) page_bytes: usize,
    /// Pages on the nodes, as `numa_maps` counts them.
    pub(super) pages: u64,
    /// Most processes that map one of its pages, where that is shared memory; 1 of other mappings.
    pub(super) sharers: u64,
    /// What it is of, where that is shared memory that several processes map.
    pub(super) file: Option<FileId>,
}

/// A file, as `maps` tells it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    device: (u32, u32),
    inode: u64,
    /// A segment of System V: its inode has the number of the segment (`newseg`, ipc/shm.c), which a file of
    /// the same device may have as well.
    is_segment: bool,
}

/// The mappings of a process (its directory below `/proc`) with pages on these nodes, in order.
pub(super) fn read_extents(process: &HostPath, nodes: &NodeSet) -> io::Result<Vec<Extent>> {
    let mut extents: BTreeMap<usize, Extent> = BTreeMap::new();
    for line in BufReader::new(File::open(process.join("numa_maps").as_path())?).split(b'\n') {
        if let Some(extent) = extent_of(&String::from_utf8_lossy(&line?), nodes) {
            extents.insert(extent.start, extent);
        }
    }
    for line in BufReader::new(File::open(process.join("maps").as_path())?).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some((start, end)) = range_of(&line)
            && let Some(extent) = extents.get_mut(&start)
        {
            extent.end = end;
            extent.file = if extent.sharers > 1 { file_of(&line) } else { None };
        }
    }
    Ok(extents.into_values().collect())
}

/// A line of `numa_maps`, its end not known yet; `None` without pages on the nodes.
fn extent_of(line: &str, nodes: &NodeSet) -> Option<Extent> {
    let mapping = Mapping::parse(line).ok()?;
    let start = usize::try_from(mapping.start).ok()?;
    let page_bytes = usize::try_from(mapping.page_bytes).ok().filter(|bytes| *bytes > 0)?;
    let pages = mapping.pages_on(nodes);
    let sharers = if mapping.is_shmem() && !mapping.is_hugetlb() { mapping.sharers } else { 1 };
    (pages > 0).then_some(Extent { start, end: start, page_bytes, pages, sharers, file: None })
}

/// `start-end perms offset dev inode path` (`/proc/PID/maps`, Documentation/filesystems/proc.rst).
fn range_of(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

/// The file of a line of `maps`: `start-end perms offset dev inode path`.
fn file_of(line: &str) -> Option<FileId> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = words.next()?.parse().ok()?;
    Some(FileId { device, inode, is_segment: words.next().is_some_and(|path| path.starts_with("/SYSV")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_in_numa_maps_is_no_mapping() {
        let nodes: NodeSet = "0".parse().unwrap();
        for line in [
            "",
            "zz default N0=1",
            "1000 default N0=x",
            "1000 default N1=5",
            "1000 default N0=1 kernelpagesize_kB=0",
        ] {
            assert_eq!(extent_of(line, &nodes), None, "{line}");
        }
        assert_eq!(range_of("1000"), None);
        for line in ["", "1000-2000 rw-s 0", "1000-2000 rw-s 0 0:x 7", "1000-2000 rw-s 0 0:1", "1 r 0 01 7"] {
            assert_eq!(file_of(line), None, "{line}");
        }
    }

    #[test]
    fn files_are_told_apart_by_device_inode_and_kind() {
        let file = |rest: &str| file_of(&format!("7f00-7f10 rw-s 00000000 {rest}")).unwrap();
        let one = file("00:01 1026  /dev/zero (deleted)");
        assert_eq!(one, file("00:01 1026  /dev/zero (deleted)"));
        for other in [
            "00:01 1027  /dev/zero (deleted)",
            "00:1a 1026  /dev/shm/x",
            "00:01 1026  /SYSV00000000 (deleted)",
        ] {
            assert_ne!(one, file(other), "{other}");
        }
    }
}
