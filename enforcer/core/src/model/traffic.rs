//! Share of a workload's accesses that go to another node.
//!
//! Problem: without hardware support no counter has it for a cgroup. Idea: a thread that runs on node n
//! touches its workload's memory in proportion to its place, so the remote ratio is the sum over n of
//! `run_share[n] * (1 - share of memory local to n)`. It needs run time per node and residency, which are
//! cheap and always there.
//!
//! Two sources see real accesses and replace the estimate, the better one first:
//!
//! - hardware counters of accesses to DRAM, if the CPU has them and they can be opened;
//! - NUMA hinting faults, if automatic balancing is on (bit 0 of `kernel.numa_balancing`). Few or no faults
//!   mean nothing: from 6.17 on the kernel does not scan a task with a single node in `cpuset.mems`, and it
//!   never scans memory bound with `MPOL_BIND`. For memory on nodes without CPUs the kernel defines remote
//!   differently, so they are not used.
//!
//! A silent source gives its reason, and the figure that replaces it repeats the reason: silence is not "all
//! accesses are local".
//!
//! Limits of the estimate: threads that each keep to their own memory make it too high, and page cache that
//! is never read again counts in full.

use std::collections::BTreeMap;

use super::{
    Silent, Traffic, TrafficSource, accessed_bytes,
    rates::{advance, ratio},
    residency,
    run_time::MeasuredRunTime,
};
use crate::sample::{CgroupSample, Count as _, HardwareAccesses, HintFaults, NodeBytes, Sample};
use numa_topology::{Locality, degraded::source, id::NodeId, set::NodeSet};

/// Least faulted pages for a figure from hinting faults: at 100, one standard deviation of the ratio is at
/// most 0.05.
const MIN_FAULTED_PAGES: u64 = 100;
/// Least overflows for a figure from hardware counters. An overflow charges a whole period to the running
/// task, so each is one draw as a faulted page is: the same number for the same deviation.
const MIN_OVERFLOWS: u64 = 100;

/// Share of memory on nodes without CPUs above which hinting faults are not used. The kernel compares the
/// node of the page with that of the CPU, so it calls such memory remote even if no CPU is nearer to it.
const MOST_WITHOUT_CPUS: f64 = 0.05;

/// Figures of one workload.
pub(super) struct TrafficInput<'a> {
    pub(super) now: &'a Sample,
    /// Its counters in both samples; a process in a shared cgroup has none of its own.
    pub(super) counters: Option<(&'a CgroupSample, &'a CgroupSample)>,
    pub(super) locality: &'a Locality,
    pub(super) run_time: Option<&'a MeasuredRunTime>,
    pub(super) bytes: Option<&'a BTreeMap<NodeId, NodeBytes>>,
}

impl TrafficInput<'_> {
    /// The figure of the most trusted source that has one.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        let mut silent = Vec::new();
        for (source, measure) in [
            (TrafficSource::Hardware, Self::hardware as fn(&Self) -> Result<Traffic, String>),
            (TrafficSource::HintFaults, Self::hint_faults),
        ] {
            match measure(self) {
                Ok(traffic) => return Some(Traffic { silent, ..traffic }),
                Err(reason) => silent.push(Silent { source, reason }),
            }
        }
        let estimate = from_placement(self.locality, self.run_time?, self.bytes?)?;
        Some(Traffic { silent, ..estimate })
    }

    fn hardware(&self) -> Result<Traffic, String> {
        let (now, before) = self.each(|cgroup| cgroup.hardware.as_ref(), source::HARDWARE)?;
        let each = |all: &BTreeMap<NodeId, HardwareAccesses>, field: fn(&HardwareAccesses) -> u64| {
            all.iter().map(|(node, accesses)| (*node, field(accesses))).collect::<BTreeMap<_, _>>()
        };
        // One counter counts remote accesses, and overflows only add up, so these show a reset. Local ones
        // may be a difference.
        for field in [|one: &HardwareAccesses| one.remote, |one: &HardwareAccesses| one.samples] {
            advance(&each(now, field), &each(before, field)).ok_or(RESET)?;
        }
        let sum = now.minus(before).values().fold(HardwareAccesses::default(), |sum, one| sum.plus(one));
        enough(sum.samples, MIN_OVERFLOWS, "samples")?;
        let all = sum.local.saturating_add(sum.remote);
        let remote_ratio = ratio(sum.remote, all).ok_or("its counters did not advance")?;
        Ok(Traffic::new(remote_ratio, TrafficSource::Hardware, sum.samples))
    }

    fn hint_faults(&self) -> Result<Traffic, String> {
        let settings = &self.now.settings;
        if settings.takes_hinting_faults() == Some(false)
            && let Some(silent) = settings.silent_faults()
        {
            return Err(silent.reason);
        }
        let (now, before) = self.each(|cgroup| cgroup.hint_faults.as_ref(), source::HINT_FAULTS)?;
        if let Some(share) = self.share_without_cpus().filter(|share| *share > MOST_WITHOUT_CPUS) {
            let percent = (share * 100.0).round();
            return Err(format!(
                "{percent} % of its memory is on nodes without CPUs, which the kernel calls remote to every CPU"
            ));
        }
        let pages = advance(&faulted_pages(now), &faulted_pages(before)).ok_or(RESET)?;
        let sum = |wanted: AccessTarget| {
            pages
                .iter()
                .filter(|((_, place), _)| *place == wanted)
                .fold(0u64, |sum, (_, n)| sum.saturating_add(*n))
        };
        let (local, remote) = (sum(AccessTarget::Local), sum(AccessTarget::Remote));
        let samples = local.saturating_add(remote);
        enough(samples, MIN_FAULTED_PAGES, "pages")
            .map_err(|reason| self.unscanned().map_or(reason.clone(), |why| format!("{reason}; {why}")))?;
        let remote_ratio = ratio(remote, samples).ok_or("no page faulted")?;
        Ok(Traffic::new(remote_ratio, TrafficSource::HintFaults, samples))
    }

    /// Share of its memory on nodes without CPUs; `None` if unknown.
    fn share_without_cpus(&self) -> Option<f64> {
        let bytes = self.bytes?;
        let there = bytes
            .iter()
            .filter(|(node, _)| !self.locality.near_cpu_nodes(**node).contains(**node))
            .fold(0u64, |sum, (_, bytes)| sum.saturating_add(accessed_bytes(bytes)));
        ratio(there, residency::total(bytes))
    }

    /// Reason if the kernel has skipped it since the last sample: without a scan there are no faults.
    fn unscanned(&self) -> Option<String> {
        let (now, before) = self.counters?;
        let (now, before) = (now.scan_skips?, before.scan_skips?);
        let times = now.one_node?.checked_sub(before.one_node?).filter(|times| *times > 0)?;
        Some(format!(
            "the kernel does not scan it, because cpuset.mems has one node ({times} times since the sample before)"
        ))
    }

    /// A kind of counter in both samples, else the reason why it is missing.
    fn each<V>(&self, counter: impl Fn(&CgroupSample) -> Option<&V>, hook: &str) -> Result<(&V, &V), String> {
        let (now, before) = self.counters.ok_or("counted by cgroup, and this is not the whole of one")?;
        if let (Some(now), Some(before)) = (counter(now), counter(before)) {
            return Ok((now, before));
        }
        let missing = self.now.degraded.iter().find(|entry| entry.source == hook);
        let missing = missing.or_else(|| self.now.degraded.iter().find(|entry| entry.source == source::BPF));
        Err(missing.map_or_else(|| "not counted in both samples".to_owned(), |entry| entry.reason.clone()))
    }
}

/// Reason for counters that went backwards or vanished.
const RESET: &str = "its counters were reset between the samples";

fn enough(samples: u64, needed: u64, what: &str) -> Result<(), String> {
    if samples >= needed { Ok(()) } else { Err(format!("{samples} {what}, {needed} are needed")) }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AccessTarget {
    Local,
    Remote,
}

fn faulted_pages(by_node: &BTreeMap<NodeId, HintFaults>) -> BTreeMap<(NodeId, AccessTarget), u64> {
    let both = |(node, faults): (&NodeId, &HintFaults)| {
        [((*node, AccessTarget::Local), faults.local), ((*node, AccessTarget::Remote), faults.remote)]
    };
    by_node.iter().flat_map(both).collect()
}

fn from_placement(
    locality: &Locality,
    run_time: &MeasuredRunTime,
    bytes: &BTreeMap<NodeId, NodeBytes>,
) -> Option<Traffic> {
    let mut remote_ratio = 0.0;
    for (node, share) in run_time.shares()? {
        remote_ratio += share * residency::remote_share(locality, bytes, &NodeSet::from_iter([node]))?;
    }
    // Rounding of the shares may leave the sum a hair outside.
    let remote_ratio = remote_ratio.clamp(0.0, 1.0);
    Some(Traffic::new(remote_ratio, TrafficSource::Placement, run_time.samples))
}
