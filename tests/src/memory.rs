//! Where the pages of a process are, by `/proc/PID/numa_maps` (`fs/proc/task_mmu.c`).

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    ops::Range,
};

use anyhow::{Context, Result};

/// KiB of anonymous memory of a process on each node.
pub fn anonymous_by_node(pid: u32) -> Result<BTreeMap<u32, u64>> {
    let path = format!("/proc/{pid}/numa_maps");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    Ok(parse(&text))
}

/// Share of the anonymous memory of a process that is on one node, 0 to 1.
pub fn share_on(pid: u32, node: u32) -> Result<f64> {
    let by_node = anonymous_by_node(pid)?;
    let all: u64 = by_node.values().sum();
    let here = by_node.get(&node).copied().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "KiB of a guest fit in 53 bits")]
    Ok(if all == 0 { 0.0 } else { here as f64 / all as f64 })
}

/// Pages of 4 KiB of a range of addresses of a process, by the node that they are on: `/proc/PID/pagemap` has
/// the frame of each (Documentation/admin-guide/mm/pagemap.rst), and the blocks of memory of each node are
/// links in its directory.
pub fn pages_by_node(pid: u32, range: Range<u64>) -> Result<BTreeMap<u32, u32>> {
    const PAGE: u64 = 4096;
    const FRAME: u64 = (1 << 55) - 1;
    const PRESENT: u64 = 1 << 63;
    let size = "/sys/devices/system/memory/block_size_bytes";
    let size = fs::read_to_string(size).with_context(|| format!("read {size}"))?;
    let block = u64::from_str_radix(size.trim(), 16).with_context(|| format!("size of a block: {size:?}"))?;
    let blocks = node_of_block()?;
    let path = format!("/proc/{pid}/pagemap");
    let mut file = File::open(&path).with_context(|| format!("open {path}"))?;
    file.seek(SeekFrom::Start(range.start / PAGE * 8)).with_context(|| format!("seek in {path}"))?;
    let mut entries = vec![0; usize::try_from((range.end - range.start) / PAGE * 8)?];
    file.read_exact(&mut entries).with_context(|| format!("read {path}"))?;
    let mut by_node = BTreeMap::new();
    for entry in entries.chunks_exact(8) {
        let entry = u64::from_le_bytes(entry.try_into().context("eight bytes")?);
        let node = blocks.get(&((entry & FRAME) * PAGE / block));
        if let Some(node) = node.filter(|_| entry & PRESENT != 0) {
            *by_node.entry(*node).or_insert(0) += 1;
        }
    }
    Ok(by_node)
}

/// The node of each block of memory.
fn node_of_block() -> Result<BTreeMap<u64, u32>> {
    const NODES: &str = "/sys/devices/system/node";
    let mut blocks = BTreeMap::new();
    for node in fs::read_dir(NODES).with_context(|| format!("read {NODES}"))? {
        let path = node.context("read an entry")?.path();
        let number = |name: &str, of: &std::path::Path| {
            of.file_name()?.to_str()?.strip_prefix(name)?.parse::<u32>().ok()
        };
        let Some(node) = number("node", &path) else { continue };
        for block in fs::read_dir(&path).with_context(|| format!("read {}", path.display()))? {
            if let Some(block) = number("memory", &block.context("read an entry")?.path()) {
                blocks.insert(u64::from(block), node);
            }
        }
    }
    Ok(blocks)
}

/// Share of the anonymous memory of a process that is in huge pages, 0 to 1.
pub fn huge_share(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let kib = |name: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().trim_end_matches(" kB").parse().ok()
    };
    let both = kib("AnonHugePages:").zip(kib("Anonymous:"));
    let (huge, all) = both.with_context(|| format!("{path} without AnonHugePages or Anonymous"))?;
    #[expect(clippy::cast_precision_loss, reason = "KiB of a guest fit in 53 bits")]
    Ok(if all == 0 { 0.0 } else { huge as f64 / all as f64 })
}

fn parse(text: &str) -> BTreeMap<u32, u64> {
    let mut by_node = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains(" anon=")) {
        let fields = || line.split(' ').filter_map(|word| word.split_once('='));
        let size = fields().find(|(name, _)| *name == "kernelpagesize_kB");
        let Some(kib) = size.and_then(|(_, value)| value.parse::<u64>().ok()) else { continue };
        for (name, value) in fields() {
            let node = name.strip_prefix('N').and_then(|node| node.parse::<u32>().ok());
            if let (Some(node), Ok(pages)) = (node, value.parse::<u64>()) {
                *by_node.entry(node).or_insert(0) += pages * kib;
            }
        }
    }
    by_node
}

/// MiB of the whole machine.
pub fn total_mebibytes() -> Result<u64> {
    const PATH: &str = "/proc/meminfo";
    let text = fs::read_to_string(PATH).with_context(|| format!("read {PATH}"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = value.and_then(|value| value.trim().strip_suffix("kB")).map(str::trim);
    let kib: u64 = kib.with_context(|| format!("{PATH} has no MemTotal"))?.parse()?;
    Ok(kib / 1024)
}

/// Anonymous memory of a process.
pub fn anonymous_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "RssAnon:")
}

/// Memory of a process that is there, files among it.
pub fn resident_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmRSS:")
}

fn status_kib(pid: u32, key: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    let value = value.with_context(|| format!("{path} without {key}"))?.trim().trim_end_matches(" kB");
    value.parse().with_context(|| format!("{path}: {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anonymous_memory_counts() {
        let text = "00400000 default file=/inject/scenario mapped=10 N0=10 kernelpagesize_kB=4\n\
                    7f0000000000 default anon=300 dirty=300 active=0 N0=100 N1=200 kernelpagesize_kB=4\n\
                    7f1000000000 default anon=2 dirty=2 N1=2 kernelpagesize_kB=2048\n";
        assert_eq!(parse(text), BTreeMap::from([(0, 400), (1, 4896)]));
    }
}
