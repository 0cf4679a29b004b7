//! Counters of the kernel side: of each workload, and of all together since the daemon started.
//!
//! The counters of a workload end with it. A host-wide rate must not lose what ended workloads counted, nor
//! see a recreated cgroup at the same path as a counter that runs backwards. So the sum over all workloads is
//! kept here, and each turn adds to it.

use std::collections::BTreeMap;

use enforcer_core::{
    sample::{
        BalancerSteps, CgroupSample, Count as _, CpusetWriteCounts, HardwareAccesses, HintFaults,
        PageMovesByReason, Placements, Policies, RunTime, Sample, ScanSkips,
    },
    workload::CgroupPath,
};
use numa_topology::id::NodeId;
use serde::Serialize;

/// Counters of the kernel side; `None` for those without a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Time on CPUs of each node.
    pub run_time: Option<BTreeMap<NodeId, RunTime>>,
    /// Tasks put on a CPU.
    pub placements: Option<Vec<Placements>>,
    /// NUMA hinting faults.
    pub hint_faults: Option<BTreeMap<NodeId, HintFaults>>,
    /// Accesses to DRAM.
    pub hardware: Option<BTreeMap<NodeId, HardwareAccesses>>,
    /// Pages that its threads moved.
    pub page_moves: Option<PageMovesByReason>,
    /// Decisions of the kernel's balancer about its tasks.
    pub balancer: Option<BalancerSteps>,
    /// Mappings and tasks that the kernel's balancer skipped.
    pub scan_skips: Option<ScanSkips>,
    /// Writes of others to its cpuset.
    pub cpuset_writes: Option<CpusetWriteCounts>,
    /// Memory policies that its threads set.
    pub policies: Option<Policies>,
}

impl Counters {
    /// Counters of every cgroup of a sample that has any.
    pub fn of(sample: &Sample) -> BTreeMap<CgroupPath, Self> {
        let counters = sample.cgroups.iter().map(|(path, cgroup)| {
            let counters = Self {
                run_time: cgroup.run_time.clone(),
                placements: cgroup.placements.clone(),
                hint_faults: cgroup.hint_faults.clone(),
                hardware: cgroup.hardware.clone(),
                page_moves: cgroup.page_moves.clone(),
                balancer: cgroup.balancer,
                scan_skips: cgroup.scan_skips,
                cpuset_writes: cgroup.cpuset_writes.clone(),
                policies: cgroup.policies.clone(),
            };
            (path.clone(), counters)
        });
        counters.filter(|(_, counters)| *counters != Self::default()).collect()
    }

    /// Adds the growth of all cgroups between two samples; the whole count of a new cgroup.
    pub fn grow(&mut self, before: Option<&Sample>, now: &Sample) {
        for (path, cgroup) in &now.cgroups {
            let same = |earlier: &&CgroupSample| earlier.id == cgroup.id;
            let earlier = before.and_then(|sample| sample.cgroups.get(path)).filter(same);
            self.grow_by(cgroup, earlier);
        }
    }

    fn grow_by(&mut self, now: &CgroupSample, before: Option<&CgroupSample>) {
        let nothing = CgroupSample::default();
        let before = before.unwrap_or(&nothing);
        macro_rules! grow {
            ($($field:ident),+) => {
                $(self.$field.add(&now.$field.minus(&before.$field));)+
            };
        }
        grow!(run_time, placements, hint_faults, hardware, page_moves, balancer, scan_skips);
        grow!(cpuset_writes, policies);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ran(id: u64, ns: u64) -> CgroupSample {
        let run_time = RunTime { ns, ..RunTime::default() };
        let moved = Placements {
            src_numa: NodeId(0),
            dst_numa: NodeId(1),
            migrated: ns,
            started: 0,
            misplaced: ns / 2,
        };
        CgroupSample {
            id: Some(id),
            run_time: Some([(NodeId(0), run_time)].into()),
            placements: Some(vec![moved]),
            balancer: Some(BalancerSteps { moved: ns, ..BalancerSteps::default() }),
            scan_skips: Some(ScanSkips { passed: Some(ns), ..ScanSkips::default() }),
            ..CgroupSample::default()
        }
    }

    fn sample(cgroups: &[(&str, u64, u64)]) -> Sample {
        let cgroups = cgroups.iter().map(|(path, id, ns)| (CgroupPath::new(path), ran(*id, *ns)));
        Sample { cgroups: cgroups.collect(), ..Sample::default() }
    }

    fn ns(sum: &Counters) -> u64 {
        sum.run_time.as_ref().unwrap()[&NodeId(0)].ns
    }

    #[test]
    fn what_was_counted_in_those_that_are_gone_stays_in_the_sum() {
        let turns = [sample(&[("/a", 1, 5), ("/b", 2, 7)]), sample(&[("/a", 1, 6)]), sample(&[("/a", 9, 4)])];
        let mut sum = Counters::default();
        sum.grow(None, &turns[0]);
        assert_eq!(ns(&sum), 12, "all of it where nothing was before");
        sum.grow(Some(&turns[0]), &turns[1]);
        assert_eq!(ns(&sum), 13, "/b is gone, and /a ran on");
        sum.grow(Some(&turns[1]), &turns[2]);
        assert_eq!(ns(&sum), 17, "another cgroup at the path of /a counts from 0");
        let moved = sum.placements.as_ref().unwrap();
        assert_eq!((moved.len(), moved[0].migrated), (1, 17));
        assert_eq!((sum.balancer.unwrap().moved, sum.scan_skips.unwrap().passed), (17, Some(17)));
        assert_eq!(sum.scan_skips.unwrap().one_node, None, "what is not told is not 0");
        assert_eq!(sum.page_moves, None);
    }

    proptest! {
        /// Whatever comes, goes and comes again: the sum never falls, and is what was counted in each life.
        #[test]
        fn the_sum_is_that_of_all_lives(
            turns in prop::collection::vec(prop::collection::btree_map(0_u64..4, 0_u64..9, 0..4), 1..9)
        ) {
            let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
            let (mut sum, mut before, mut expected, mut latest) = (Counters::default(), None, 0, 0);
            for turn in turns {
                let gone: Vec<u64> = counted.keys().filter(|id| !turn.contains_key(id)).copied().collect();
                for id in gone {
                    counted.remove(&id);
                }
                for (id, more) in &turn {
                    *counted.entry(*id).or_default() += more;
                    expected += more;
                }
                let paths: Vec<_> = counted.iter().map(|(id, ns)| (format!("/{id}"), *id, *ns)).collect();
                let paths: Vec<_> = paths.iter().map(|(path, id, ns)| (path.as_str(), *id, *ns)).collect();
                let now = sample(&paths);
                sum.grow(before.as_ref(), &now);
                let told = sum.run_time.as_ref().map_or(0, |times| times.values().map(|time| time.ns).sum());
                prop_assert!(told >= latest);
                prop_assert_eq!(told, expected);
                (latest, before) = (told, Some(now));
            }
        }
    }
}
