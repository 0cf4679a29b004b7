//! Size of a page of a host: asked of the kernel, or told by a copy of its files.

use enforcer_core::{
    page_size::PageSize,
    parse::{meminfo::meminfo, zoneinfo::zone_pages},
};
use enforcer_host::HostRoot;

/// That of this machine.
pub fn of_this_machine() -> PageSize {
    PageSize::new(rustix::param::page_size() as u64)
}

/// That of a host. A copy that does not tell it has pages of 4 KiB.
pub(super) fn of(host: &HostRoot) -> PageSize {
    if host.captured { of_copy(host).unwrap_or_default() } else { of_this_machine() }
}

/// All that the kernel manages, in pages and in bytes.
fn of_copy(host: &HostRoot) -> Option<PageSize> {
    let read = |name: &str| host.proc.join(name).read_text().ok();
    let zones = zone_pages(&read("zoneinfo")?).ok()?;
    let total = meminfo(&read("meminfo")?).ok()?.total_bytes?;
    let pages = zones.values().map(|zones| zones.managed).fold(0, u64::saturating_add);
    PageSize::of_memory(pages, total)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_copy_tells_its_page_size_by_what_the_kernel_manages() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let host = HostRoot::captured(root.path());
        assert_eq!(of(&host), PageSize::SMALLEST, "without the files");
        let put = |name: &str, text: &str| fs::write(root.path().join("proc").join(name), text).unwrap();
        put("meminfo", "MemTotal:       16777216 kB\nMemFree:        1 kB\n");
        for (managed, bytes) in [(2_097_152, 4 << 10), (524_288, 16 << 10), (131_072, 64 << 10)] {
            let node =
                |id| format!("Node {id}, zone   Normal\n        low      20\n        managed  {managed}\n");
            put("zoneinfo", &(node(0) + &node(1)));
            assert_eq!(of(&host), PageSize::new(bytes), "{managed} pages a node");
        }
        put("zoneinfo", "Node 0, zone   Normal\n        managed  none\n");
        assert_eq!(of(&host), PageSize::SMALLEST, "with a garbled one");
    }
}
