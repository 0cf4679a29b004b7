//! How much of the memory of a node's workloads is remote, in steps.
//!
//! Problem: the share changes with each turn of the daemon, and a published object that follows it is written
//! every few seconds by each node of a cluster. Idea: a few steps, and another one is published once the
//! share has been there for a while.
//!
//! Invariant: the published step changes at most once in [`LASTS`].

use std::time::Duration;

use crate::{audit::AuditedWorkload, cluster::state::MeasuredLocality, model::accessed_bytes};

/// Steps in percent, the lowest first.
const STEPS: [u8; 5] = [0, 10, 25, 50, 75];

/// Time for which the share has to stay at another step.
const LASTS: Duration = Duration::from_mins(1);

/// The published step, and the one that may follow it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalitySteps {
    published: Option<u8>,
    /// Whether a turn has found memory.
    has_begun: bool,
    /// Another step, and since when the share is there.
    next: Option<(Option<u8>, Duration)>,
}

impl LocalitySteps {
    /// Takes what a turn of the daemon found; `now` is the time since any fixed moment. Returns what to
    /// publish: nothing where no workload has memory.
    pub fn note(&mut self, workloads: &[AuditedWorkload], now: Duration) -> Option<MeasuredLocality> {
        let step = remote_share(workloads).map(step_of);
        let lasts = match self.next {
            Some((next, since)) if next == step => now.saturating_sub(since) >= LASTS,
            _ => false,
        };
        if lasts || (!self.has_begun && step.is_some()) {
            (self.published, self.has_begun) = (step, true);
        }
        if self.published == step {
            self.next = None;
        } else if self.next.is_none_or(|(next, _)| next != step) {
            self.next = Some((step, now));
        }
        self.published.map(|remote_percent| MeasuredLocality { remote_percent })
    }
}

/// Share of the workloads' memory that is remote to their CPUs, 0 to 1.
fn remote_share(workloads: &[AuditedWorkload]) -> Option<f64> {
    let figures = workloads.iter().filter_map(|workload| {
        let bytes = workload.bytes_by_numa.as_ref()?.values().map(accessed_bytes);
        Some((workload.remote_residency?, bytes.fold(0u64, u64::saturating_add)))
    });
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let (remote, all) = figures.fold((0.0, 0.0), |(remote, all), (share, bytes)| {
        (share.mul_add(bytes as f64, remote), all + bytes as f64)
    });
    (all > 0.0).then(|| remote / all)
}

fn step_of(share: f64) -> u8 {
    let reached = STEPS.into_iter().rev().find(|step| share * 100.0 >= f64::from(*step));
    reached.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use numa_topology::{id::NodeId, set::NodeSet};

    use super::*;
    use crate::{
        audit::AuditVerdict,
        sample::NodeBytes,
        workload::{CgroupPath, Origin},
    };

    fn workload(share: Option<f64>, mebibytes: u64) -> AuditedWorkload {
        let bytes = NodeBytes { anon: mebibytes << 20, ..NodeBytes::default() };
        AuditedWorkload {
            cgroup: CgroupPath::new("/w"),
            name: "w".into(),
            origin: Origin::Cgroup,
            owner: None,
            cpus: None,
            mems: None,
            numa_nodes: NodeSet::new(),
            tasks: None,
            bytes_by_numa: Some(BTreeMap::from([(NodeId(0), bytes)])),
            remote_residency: share,
            traffic: None,
            verdict: AuditVerdict::Aligned,
            findings: Vec::new(),
        }
    }

    #[test]
    fn share_is_weighted_by_memory_and_rounded_down() {
        for (workloads, expected) in [
            (vec![], None),
            (vec![workload(None, 100), workload(Some(1.0), 0)], None),
            (vec![workload(Some(0.0), 100)], Some(0)),
            (vec![workload(Some(1.0), 100), workload(Some(0.0), 1000)], Some(0)),
            (vec![workload(Some(1.0), 100), workload(Some(0.0), 900)], Some(10)),
            (vec![workload(Some(1.0), 500), workload(Some(0.5), 500)], Some(75)),
            (vec![workload(Some(1.0), 1), workload(None, 500)], Some(75)),
        ] {
            let published = LocalitySteps::default().note(&workloads, Duration::ZERO);
            assert_eq!(published.map(|measured| measured.remote_percent), expected, "{workloads:?}");
        }
    }

    #[test]
    fn another_step_is_published_once_it_has_lasted() {
        let mut steps = LocalitySteps::default();
        let mut at = |seconds, share| {
            let published = steps.note(&[workload(share, 100)], Duration::from_secs(seconds));
            published.map(|measured| measured.remote_percent)
        };
        for (seconds, share, expected) in [
            (0, Some(0.3), Some(25)),
            (10, Some(0.6), Some(25)),
            (69, Some(0.7), Some(25)),
            // It returns before the time is over.
            (70, Some(0.4), Some(25)),
            (80, Some(0.6), Some(25)),
            (100, Some(0.1), Some(25)),
            (139, Some(0.6), Some(25)),
            (199, Some(0.6), Some(50)),
            (200, Some(0.0), Some(50)),
            (260, Some(0.0), Some(0)),
            // The last workload has ended.
            (270, None, Some(0)),
            (329, None, Some(0)),
            (330, None, None),
            (340, Some(0.6), None),
            (400, Some(0.6), Some(50)),
        ] {
            assert_eq!(at(seconds, share), expected, "{seconds}");
        }
    }
}
