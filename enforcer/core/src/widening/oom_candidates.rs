//! Processes that a widening puts in reach of the OOM killer.
//!
//! When the nodes of an allocation are full the kernel chooses among all processes that may use any of these
//! nodes, by their total memory on any node (`oom_evaluate_task` asks `cpuset_mems_allowed_intersects`,
//! `mm/oom_kill.c`). A widening therefore exposes two sorts of processes: those of the widened workload, when
//! an added node is full for another workload; and those that may use an added node and no node of the
//! widened workload before, when all nodes of that workload are full.
//!
//! Invariant: a workload with unknown memory nodes, or one that was in reach before, is not reported.
//!
//! Cost: one pass over the workloads for each widened one, and one over the tasks if any is exposed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    sample::Sample,
    turn::Widened,
    words,
    workload::{CgroupPath, Workload},
};
use numa_topology::set::NodeSet;

/// Limit of the processes listed for a workload.
const NAMED: usize = 8;

/// A workload with processes that the OOM killer may choose because of a widening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OomCandidates {
    /// Cgroup of the exposed processes.
    pub cgroup: CgroupPath,
    /// The widened workload: the same cgroup or a neighbour.
    pub because_of: CgroupPath,
    /// Nodes that were added to the widened workload.
    pub nodes: NodeSet,
    /// Number of exposed processes.
    pub processes: usize,
    /// Pids of the first of them.
    pub pids: Vec<u32>,
}

impl OomCandidates {
    /// The exposure as one sentence.
    pub fn sentence(&self) -> String {
        let Self { cgroup, because_of, nodes, processes, .. } = self;
        let count = if *processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") };
        let nodes = words::nodes(nodes);
        if cgroup == because_of {
            format!(
                "with {nodes} added {count} of it can be chosen by the OOM killer when {nodes} ran full for others"
            )
        } else {
            format!(
                "with {nodes} added to {because_of}, {count} of it can be chosen by the OOM killer when all nodes of {because_of} are full"
            )
        }
    }
}

/// All workloads that the added nodes expose, in ascending order of the widened workload.
pub fn oom_candidates(widened: &Widened, workloads: &[Workload], sample: &Sample) -> Vec<OomCandidates> {
    let mems = |cgroup: &CgroupPath| sample.cgroups.get(cgroup)?.mems_effective.as_ref();
    let mut found = Vec::new();
    for (because_of, added) in widened {
        let Some(has) = mems(because_of) else { continue };
        let (nodes, home) = (added.intersection(has), has.difference(added));
        if nodes.is_empty() {
            continue;
        }
        let in_reach = |cgroup: &CgroupPath| {
            cgroup == because_of
                || mems(cgroup).is_some_and(|mems| !mems.is_disjoint(&nodes) && mems.is_disjoint(&home))
        };
        // A workload that may use all nodes was in reach before.
        for workload in workloads.iter().filter(|one| !one.cgroup.is_root() && in_reach(&one.cgroup)) {
            found.push(OomCandidates {
                cgroup: workload.cgroup.clone(),
                because_of: because_of.clone(),
                nodes: nodes.clone(),
                processes: 0,
                pids: Vec::new(),
            });
        }
    }
    if found.is_empty() {
        return found;
    }
    let mut processes: BTreeMap<CgroupPath, BTreeSet<u32>> = BTreeMap::new();
    for task in &sample.tasks {
        let Some(path) = &task.cgroup else { continue };
        for one in &found {
            if path.is_within(&one.cgroup) {
                processes.entry(one.cgroup.clone()).or_default().insert(task.pid);
            }
        }
    }
    for one in &mut found {
        if let Some(pids) = processes.get(&one.cgroup) {
            one.processes = pids.len();
            one.pids = pids.iter().copied().take(NAMED).collect();
        }
    }
    found.retain(|one| one.processes > 0);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scene::Scene;
    use numa_topology::{set::NodeSet, synth::Machine};

    /// `cgroup because-of nodes: pids` of each.
    fn said(scene: &Scene, widened: &[(&str, &str)]) -> Vec<String> {
        let added = |(path, nodes): &(&str, &str)| (CgroupPath::new(path), nodes.parse().unwrap());
        let widened = widened.iter().map(added).collect();
        let found = oom_candidates(&widened, &scene.workloads, &scene.now);
        let one =
            |one: &OomCandidates| format!("{} {} {}: {:?}", one.cgroup, one.because_of, one.nodes, one.pids);
        found.iter().map(one).collect()
    }

    fn host() -> Scene {
        let mut scene = Scene::new(Machine::new().sockets(4).threads(1).build());
        for (path, mems, tids) in [
            ("/a", "0-1", vec![10, 11]),
            ("/beside", "1", vec![20]),
            ("/home", "0", vec![30]),
            ("/wide", "0-2", vec![40]),
            ("/else", "2", vec![50]),
            ("/empty", "1", vec![]),
        ] {
            scene = scene.workload(path, "0", mems);
            for tid in tids {
                scene = scene.thread(path, tid, "0", 0, (0, 0));
            }
        }
        scene
    }

    #[test]
    fn widened_workload_and_workloads_on_the_added_node_alone_are_exposed() {
        let scene = host();
        assert_eq!(said(&scene, &[("/a", "1")]), ["/a /a 1: [10, 11]", "/beside /a 1: [20]"]);
        assert_eq!(said(&scene, &[]), [""; 0]);
        // It has not been written, or has ended.
        assert_eq!(said(&scene, &[("/a", "3"), ("/gone", "1")]), [""; 0]);
        let one = &oom_candidates(
            &[(CgroupPath::new("/a"), "1".parse().unwrap())].into(),
            &scene.workloads,
            &scene.now,
        );
        assert!(one[0].sentence().contains("2 processes of it can be chosen"), "{}", one[0].sentence());
        assert!(one[1].sentence().contains("added to /a, 1 process of it"), "{}", one[1].sentence());
    }

    proptest! {
        #[test]
        fn workloads_that_are_on_no_added_node_are_not_exposed(added in 1u32..16) {
            let of = |bits: u32| (0..4).filter(|id| bits & (1 << id) != 0).map(numa_topology::id::NodeId).collect::<NodeSet>();
            let (scene, added) = (host(), of(added));
            let widened = [(CgroupPath::new("/a"), added.clone())].into();
            for one in oom_candidates(&widened, &scene.workloads, &scene.now) {
                let mems = scene.now.cgroups[&one.cgroup].mems_effective.clone().unwrap();
                prop_assert!(!mems.is_disjoint(&added) && one.processes > 0);
            }
        }
    }
}
