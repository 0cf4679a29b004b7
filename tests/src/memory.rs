//! Where the pages of a process are, by `/proc/PID/numa_maps` (`fs/proc/task_mmu.c`).

use std::{collections::BTreeMap, fs};

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
