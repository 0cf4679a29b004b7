//! What of a decision is about somebody else's writes: whom to watch for them, and who is left to them.
//!
//! The rule is in the core; nothing is decided here.

use std::collections::BTreeMap;

use enforcer_core::{
    decide::{Decision, Drift, DriftFate, RefusalCause, Standing},
    degraded::Degraded,
    place::Cpuset,
    workload::CgroupPath,
};

use crate::observe::KeptCgroups;

/// Whose cpuset is ours to keep. Who is left alone is not watched: there would be a turn for each write.
pub(super) fn kept(decision: &Decision) -> KeptCgroups {
    let targets = decision.targets.iter().filter(|(_, target)| target.standing != Standing::LeftAlone);
    targets.map(|(cgroup, target)| (cgroup.clone(), target.cgroup_id)).collect()
}

/// Who is left to whoever writes it again and again, and what it was to be.
pub(super) fn given_up(decision: &Decision) -> BTreeMap<CgroupPath, Cpuset> {
    let targets = decision.targets.iter().filter(|(_, target)| target.standing == Standing::LeftAlone);
    targets.map(|(cgroup, target)| (cgroup.clone(), target.cpuset.clone())).collect()
}

/// Logs what became of what somebody else had written.
pub(super) fn tell(cgroup: &CgroupPath, fate: DriftFate) {
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

/// Logs who was given up before the daemon was started.
pub(super) fn tell_given_up(left: &Drift, now_ns: u64) {
    for (cgroup, _) in left.given_up(now_ns) {
        tracing::warn!(
            "{cgroup}: still left as another program set it, again and again, before the daemon was started"
        );
    }
}

/// Who is not kept where it should be.
pub(super) fn left_alone(decision: &Decision) -> impl Iterator<Item = Degraded> {
    let refused = decision.refused.iter().filter(|refusal| refusal.cause == RefusalCause::Drift);
    refused.map(|refusal| {
        let effect = "its CPUs and memory nodes are as another program has set them";
        Degraded::new(format!("drift:{}", refusal.workload), refusal.reason.clone(), effect)
    })
}

/// Whose exclusive CPUs should be a partition and are none.
pub(super) fn without_partition(decision: &Decision) -> impl Iterator<Item = Degraded> {
    decision.without_partition.iter().map(|(cgroup, reason)| {
        let effect = "its exclusive CPUs are not kept from processes that no cpuset confines";
        Degraded::new(format!("partition:{cgroup}"), reason.clone(), effect)
    })
}

#[cfg(test)]
mod tests;
