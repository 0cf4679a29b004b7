//! Requests and limits of a container, computed from its kernel settings.
//!
//! A runtime has no requests; it has the kernel settings that the kubelet made of them. CPU time is read back
//! from `cpu.shares` (exactly: the kubelet's rounding loses nothing below 256 CPUs), its limit from the
//! quota, memory from the limit.
//!
//! Sources: `MilliCPUToShares`, `MilliCPUToQuota` in `pkg/kubelet/cm/helpers_linux.go` of Kubernetes. All
//! input comes from outside: amounts that make no sense are treated as absent.

use std::collections::BTreeMap;

use numa_placement::Resources;

use super::api::LinuxResources;

/// Sizes of huge pages that a container is asked about; architectures have no more than half as many.
const MOST_PAGE_SIZES: usize = 16;

/// `cpu.shares` of one CPU.
const SHARES_PER_CPU: u64 = 1024;
/// `cpu.shares` of a container without a request: the least that the kernel takes.
pub(super) const SHARES_OF_NOTHING: u64 = 2;
/// The most that the kernel takes: the request may have been larger.
pub(super) const MOST_SHARES: u64 = 1 << 18;

/// Thousandths of a CPU that were requested, computed from the kubelet's settings.
pub(super) fn milli_cpus(resources: Option<&LinuxResources>) -> Option<u64> {
    amounts(resources?).0.milli_cpus
}

/// Requests and limits, computed from the kubelet's settings.
pub(super) fn amounts(resources: &LinuxResources) -> (Resources, Resources) {
    let cpu = resources.cpu.as_ref();
    let limit = cpu.and_then(|cpu| {
        let quota = u64::try_from(cpu.quota?.value).ok().filter(|quota| *quota > 0)?;
        let period = cpu.period?.value;
        u64::try_from(u128::from(quota) * 1000 / u128::from(period.max(1))).ok().filter(|_| period > 0)
    });
    let shares = cpu.and_then(|cpu| cpu.shares).map(|shares| shares.value);
    let request = match shares {
        Some(MOST_SHARES..) => limit.or(Some(milli_of(MOST_SHARES))),
        Some(0..=SHARES_OF_NOTHING) | None => None,
        Some(shares) => Some(milli_of(shares)),
    };
    let memory = resources.memory.as_ref().and_then(|memory| memory.limit);
    let memory = memory.and_then(|limit| u64::try_from(limit.value).ok()).filter(|bytes| *bytes > 0);
    let hugepages: BTreeMap<u64, u64> = resources
        .hugepage_limits
        .iter()
        .filter(|one| one.limit > 0)
        .filter_map(|one| Some((page_bytes(&one.page_size)?, one.limit)))
        .take(MOST_PAGE_SIZES)
        .collect();
    let requests = Resources { milli_cpus: request, memory_bytes: None, hugepages: hugepages.clone() };
    let limits = Resources { milli_cpus: limit, memory_bytes: memory, hugepages };
    (requests, limits)
}

/// The only amount that the kubelet converts to this many shares (`milli * 1024 / 1000`, rounded down).
const fn milli_of(shares: u64) -> u64 {
    (shares.saturating_mul(1000)).div_ceil(SHARES_PER_CPU)
}

/// `64KB`, `2MB`, `1GB`: a page's size, in powers of 1024 (libcontainer's names of hugetlb files).
fn page_bytes(text: &str) -> Option<u64> {
    let (number, shift) = [("KB", 10), ("MB", 20), ("GB", 30)]
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
