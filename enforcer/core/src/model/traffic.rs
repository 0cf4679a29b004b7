//! How much of what a workload accesses is on another node.
//!
//! Problem: no counter says it for a cgroup without hardware support. Idea: a thread that runs on
//! node n touches its workload's memory in proportion to where that memory is, so the remote ratio
//! is the sum over n of `run_share[n] * (1 - share of memory local to n)`. It needs run time per
//! node and residency, which are cheap and always there.
//!
//! NUMA hinting faults are real accesses and replace the estimate where they are alive: automatic
//! balancing is on (bit 0 of `kernel.numa_balancing`) and enough pages faulted. Few or no faults mean
//! nothing: from 6.17 on the kernel does not scan a task whose `cpuset.mems` is one node, and it
//! never scans memory bound with `MPOL_BIND`. Then the estimate is used, and its source says so.
//!
//! Limits of the estimate: it knows nothing of threads that each keep to their own memory (it then
//! says too much), and page cache that is never read again counts in full.

use std::collections::BTreeMap;

use super::{
    Locality, Traffic, TrafficSource, accessed_bytes,
    rates::{advance, ratio},
    residency,
    run_time::RunTime,
};
use crate::{
    id::NodeId,
    sample::{CgroupSample, HostSettings, NodeBytes},
    set::NodeSet,
};

/// Faulted pages below which hinting faults say nothing: at 100, one standard deviation of the
/// ratio is at most 0.05.
const MIN_FAULTED_PAGES: u64 = 100;

pub(super) fn from_hint_faults(
    settings: &HostSettings,
    counters: Option<(&CgroupSample, &CgroupSample)>,
) -> Option<Traffic> {
    if settings.takes_hinting_faults() == Some(false) {
        return None;
    }
    let (now, before) = counters?;
    let pages = advance(&faulted_pages(now)?, &faulted_pages(before)?)?;
    let sum = |wanted: Place| {
        pages
            .iter()
            .filter(|((_, place), _)| *place == wanted)
            .fold(0u64, |sum, (_, n)| sum.saturating_add(*n))
    };
    let (local, remote) = (sum(Place::Local), sum(Place::Remote));
    let samples = local.saturating_add(remote);
    if samples < MIN_FAULTED_PAGES {
        return None;
    }
    Some(Traffic { remote_ratio: ratio(remote, samples)?, source: TrafficSource::HintFaults, samples })
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Local,
    Remote,
}

fn faulted_pages(cgroup: &CgroupSample) -> Option<BTreeMap<(NodeId, Place), u64>> {
    let by_node = cgroup.hint_faults.as_ref()?;
    let both = |(node, faults): (&NodeId, &crate::sample::HintFaults)| {
        [((*node, Place::Local), faults.local), ((*node, Place::Remote), faults.remote)]
    };
    Some(by_node.iter().flat_map(both).collect())
}

pub(super) fn from_placement(
    locality: &Locality,
    run_time: &RunTime,
    bytes: &BTreeMap<NodeId, NodeBytes>,
) -> Option<Traffic> {
    let total = residency::total(bytes);
    let mut remote_ratio = 0.0;
    for (node, share) in run_time.shares()? {
        let here = NodeSet::from_iter([node]);
        let local = bytes
            .iter()
            .filter(|(memory, _)| locality.is_local(**memory, &here))
            .fold(0u64, |sum, (_, bytes)| sum.saturating_add(accessed_bytes(bytes)));
        remote_ratio += share * ratio(total.saturating_sub(local), total)?;
    }
    // Rounding of the shares may leave the sum a hair outside.
    let remote_ratio = remote_ratio.clamp(0.0, 1.0);
    Some(Traffic { remote_ratio, source: TrafficSource::Placement, samples: run_time.samples })
}
