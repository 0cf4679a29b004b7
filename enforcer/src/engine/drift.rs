//! The part of a decision about foreign writes: cgroups to watch for them, and cgroups left to the other
//! writer.
//!
//! The core has the rule; nothing is decided here.

use std::collections::BTreeMap;

use enforcer_core::{
    hosted::Cpuset,
    turn::{Decision, Drift, DriftFate, DriftStatus, RefusalCause},
    workload::CgroupPath,
};
use numa_topology::degraded::Degraded;

use enforcer_observe::KeptCgroups;

/// Cgroups with cpusets that are ours. Those left alone are not watched: each write would cause a turn.
pub(super) fn kept(decision: &Decision) -> KeptCgroups {
    let targets = decision.targets.iter().filter(|(_, target)| target.standing != DriftStatus::LeftAlone);
    targets.map(|(cgroup, target)| (cgroup.clone(), target.cgroup_id)).collect()
}

/// Cgroups left to another writer that sets them repeatedly, with our goals.
pub(super) fn given_up(decision: &Decision) -> BTreeMap<CgroupPath, Cpuset> {
    let targets = decision.targets.iter().filter(|(_, target)| target.standing == DriftStatus::LeftAlone);
    targets.map(|(cgroup, target)| (cgroup.clone(), target.cpuset.clone())).collect()
}

/// Logs the outcome of a foreign write.
pub(super) fn log_fate(cgroup: &CgroupPath, fate: DriftFate) {
    match fate {
        DriftFate::Repaired => tracing::info!("{cgroup}: another program had written its cpuset; put back"),
        DriftFate::Failed => {
            tracing::warn!("{cgroup}: another program had written its cpuset, and it could not be put back");
        }
        DriftFate::LeftAlone => {
            tracing::warn!(
                "{cgroup}: another program writes its cpuset again and again; left as that program set it"
            );
        }
    }
}

/// Logs the cgroups that were given up before this daemon started.
pub(super) fn log_given_up(left: &Drift, now_ns: u64) {
    for (cgroup, _) in left.given_up(now_ns) {
        tracing::warn!(
            "{cgroup}: still left as another program set it, again and again, before the daemon was started"
        );
    }
}

/// Cgroups that are left with a foreign cpuset.
pub(super) fn left_alone(decision: &Decision) -> impl Iterator<Item = Degraded> {
    let refused = decision.refused.iter().filter(|refusal| refusal.cause == RefusalCause::Drift);
    refused.map(|refusal| {
        let effect = "its CPUs and memory nodes are as another program has set them";
        Degraded::new(format!("drift:{}", refusal.workload), refusal.reason.clone(), effect)
    })
}

/// Cgroups with exclusive CPUs that should be a partition and are not.
pub(super) fn without_partition(decision: &Decision) -> impl Iterator<Item = Degraded> {
    decision.without_partition.iter().map(|(cgroup, reason)| {
        let effect = "its exclusive CPUs are not kept from processes that no cpuset confines";
        Degraded::new(format!("partition:{cgroup}"), reason.clone(), effect)
    })
}

#[cfg(test)]
mod tests;
