//! Partitions that begin, follow their workloads, end, and are refused.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    partition::PartitionState,
    plan::{Outcome, OutcomeResult, Plan},
    sample::CgroupSample,
    scene::Scene,
    turn::History,
};
use numa_placement::Allocations;
use numa_topology::synth::Machine;

/// Four CPUs on each of two nodes, `/pods` above, of which everything of partitions is looked at.
fn host(workloads: &[(&str, &str, u32)]) -> Scene {
    let mut scene = Scene::new(Machine::new().sockets(2).threads(1).build());
    for (path, cpus, count) in workloads {
        scene = scene
            .workload(path, cpus, "0")
            .declares(&format!("cgroup = '{path}'\ncpus = {count}\npartition = 'isolated'"));
    }
    let above: Vec<CgroupPath> =
        workloads.iter().flat_map(|(path, ..)| ancestors(&CgroupPath::new(path))).collect();
    for path in above {
        let all = scene.now.cgroups[&CgroupPath::root()].clone();
        scene.now.cgroups.insert(path, all);
    }
    for (path, seen) in scene.now.cgroups.iter_mut().filter(|(path, _)| !path.is_root()) {
        seen.cpus_exclusive = Some(CpuSet::new());
        seen.partition = Some(PartitionState::default());
        assert!(!path.as_str().is_empty());
    }
    scene
}

fn short(plan: &Plan) -> Vec<String> {
    let step = |step: &Step| match &step.action {
        Action::SetCpus { cgroup, cpus } => format!("{cgroup} cpus {cpus}"),
        Action::SetMems { cgroup, mems } => format!("{cgroup} mems {mems}"),
        Action::SetExclusive { cgroup, cpus } => format!("{cgroup} exclusive {cpus}"),
        Action::SetPartition { cgroup, kind } => format!("{cgroup} {kind}"),
        Action::MovePages { cgroup, .. } => format!("{cgroup} pages"),
    };
    plan.steps.iter().map(step).collect()
}

/// A kernel that takes the CPUs of partitions from all other cgroups, and the daemon's record.
struct Host {
    scene: Scene,
    /// Cpusets without partitions.
    set: BTreeMap<CgroupPath, CpuSet>,
}

impl Host {
    fn new(scene: Scene) -> Self {
        let set =
            |(path, seen): (&CgroupPath, &CgroupSample)| Some((path.clone(), seen.cpus_effective.clone()?));
        let set = scene.now.cgroups.iter().filter_map(set).collect();
        Self { scene, set }
    }

    fn lives(&self, path: &CgroupPath) -> bool {
        self.scene.now.cgroups[path].partition.as_ref().is_some_and(|state| state.kind != Partition::Member)
    }

    /// Does what it is told. An error for what would lose CPUs.
    fn carry_out(&mut self, plan: &Plan) -> Result<(), String> {
        for step in &plan.steps {
            let one = Plan { steps: vec![step.clone()], ..Plan::default() };
            self.scene.carry_out(&one);
            let path = step.action.cgroup();
            match &step.action {
                Action::SetExclusive { cpus, .. } => {
                    let lost = |(below, set): (&CgroupPath, &CpuSet)| {
                        below != path && below.is_within(path) && self.lives(below) && !set.is_subset(cpus)
                    };
                    if self.set.iter().any(lost) {
                        return Err(format!("taken from one that lives: {step:?}"));
                    }
                    self.scene.partitioned.exclusive.insert(path.clone());
                }
                Action::SetPartition { .. } => {
                    self.scene.partitioned.begun.insert(path.clone());
                }
                Action::SetCpus { cpus, .. } => {
                    if self.lives(path) {
                        return Err(format!("changed while it lives: {step:?}"));
                    }
                    self.set.insert(path.clone(), cpus.clone());
                }
                _ => {}
            }
            self.settle();
        }
        Ok(())
    }

    fn settle(&mut self) {
        let living: Vec<CgroupPath> = self.set.keys().filter(|path| self.lives(path)).cloned().collect();
        for (path, set) in &self.set {
            let others = living.iter().filter(|one| *one != path);
            let left = others.fold(set.clone(), |left, one| left.difference(&self.set[one]));
            let seen = self.scene.now.cgroups.get_mut(path).unwrap();
            (seen.cpus, seen.cpus_effective) = (Some(set.clone()), Some(left));
        }
        let seen = &self.scene.now.cgroups;
        let set = |path: &CgroupPath| seen[path].cpus_exclusive.as_ref().is_some_and(|cpus| !cpus.is_empty());
        let begun: BTreeSet<CgroupPath> =
            self.scene.partitioned.begun.iter().filter(|path| self.lives(path)).cloned().collect();
        self.scene.partitioned.exclusive.retain(set);
        self.scene.partitioned.begun = begun;
    }

    fn turn(&mut self, allocations: &mut Allocations) -> Vec<String> {
        let decision = self.scene.decide_with(&History::default(), allocations);
        self.carry_out(&decision.plan).unwrap();
        short(&decision.plan)
    }
}

#[test]
fn it_begins_when_the_cpus_are_set_and_those_above_allow_it() {
    let mut host = Host::new(host(&[("/pods/p/a", "0-3", 2)]));
    let mut allocations = Allocations::default();
    assert_eq!(
        host.turn(&mut allocations),
        ["/pods/p/a cpus 0-1", "/pods exclusive 0-1", "/pods/p exclusive 0-1"]
    );
    assert_eq!(host.turn(&mut allocations), ["/pods/p/a isolated"]);
    // The cgroups above lack these CPUs now, and still they are its own.
    assert_eq!(host.turn(&mut allocations), [""; 0]);
    assert_eq!(host.turn(&mut Allocations::default()), [""; 0], "nor after a restart");
}

#[test]
fn nothing_begins_without_a_sample_or_without_a_wish() {
    let mut scene = host(&[("/pods/a", "0-1", 2)]);
    for seen in scene.now.cgroups.values_mut() {
        (seen.partition, seen.cpus_exclusive) = (None, None);
    }
    let decision = scene.decide();
    assert_eq!(short(&decision.plan), [""; 0]);
    assert_eq!(decision.partitions.len(), 1, "so that it is looked at");
    let mut shared = host(&[("/pods/a", "0-3", 2)]);
    shared.policy.workloads[0].class = Some(crate::policy::DeclaredClass::Shared);
    assert!(shared.decide().partitions.is_empty());
}

#[test]
fn partition_with_changed_cpus_ends_before_and_begins_again_after() {
    let mut host = Host::new(host(&[("/pods/a", "0-1", 2), ("/pods/b", "2-3", 2)]));
    let mut allocations = Allocations::default();
    while !host.turn(&mut allocations).is_empty() {}
    host.scene.policy.workloads[0].cpus = std::num::NonZeroU32::new(1);
    assert_eq!(host.turn(&mut allocations), ["/pods/a member", "/pods/a cpus 0"]);
    assert_eq!(host.turn(&mut allocations), ["/pods exclusive 0,2-3", "/pods/a isolated"]);
    assert_eq!(host.turn(&mut allocations), [""; 0]);
}

#[test]
fn partition_ends_with_its_wish_and_the_cgroups_above_are_as_before() {
    let mut host = Host::new(host(&[("/pods/a", "0-1", 2), ("/pods/q/b", "2-3", 2)]));
    let mut allocations = Allocations::default();
    while !host.turn(&mut allocations).is_empty() {}
    host.scene.policy.workloads[1].partition = None;
    assert_eq!(host.turn(&mut allocations), ["/pods/q/b member"]);
    assert_eq!(host.turn(&mut allocations), ["/pods/q exclusive ", "/pods exclusive 0-1"]);
    host.scene.policy.workloads.clear();
    while !host.turn(&mut allocations).is_empty() {}
    assert_eq!(host.scene.partitioned, Partitioned::default());
}

#[test]
fn foreign_setting_above_is_named_and_left() {
    let mut scene = host(&[("/pods/a", "0-1", 2)]);
    scene.now.cgroups.get_mut(&CgroupPath::new("/pods")).unwrap().cpus_exclusive = "1-2".parse().ok();
    let decision = scene.decide();
    assert_eq!(short(&decision.plan), [""; 0]);
    let reason = &decision.without_partition[&CgroupPath::new("/pods/a")];
    assert!(reason.contains("/pods to 1-2"), "{reason}");
    // Enough is enough.
    scene.now.cgroups.get_mut(&CgroupPath::new("/pods")).unwrap().cpus_exclusive = "0-3".parse().ok();
    assert_eq!(short(&scene.decide().plan), ["/pods/a isolated"]);
}

#[test]
fn foreign_setting_of_the_workload_is_left() {
    let mut host = Host::new(host(&[("/pods/a", "0-1", 2)]));
    let own = CgroupPath::new("/pods/a");
    host.scene.now.cgroups.get_mut(&own).unwrap().cpus_exclusive = "0-1".parse().ok();
    let mut allocations = Allocations::default();
    assert_eq!(host.turn(&mut allocations), ["/pods exclusive 0-1"]);
    assert_eq!(host.turn(&mut allocations), ["/pods/a isolated"]);
    assert_eq!(host.turn(&mut allocations), [""; 0]);
}

#[test]
fn it_does_not_begin_with_cpus_that_its_cpuset_names_and_another_partition_has() {
    let mut host = Host::new(host(&[("/pods/a", "0-1", 2), ("/pods/b", "1-2", 1)]));
    let pods = CgroupPath::new("/pods");
    host.scene.now.cgroups.get_mut(&pods).unwrap().cpus_exclusive = "0-1".parse().ok();
    host.scene.partitioned.exclusive.insert(pods);
    let a = CgroupPath::new("/pods/a");
    host.scene.now.cgroups.get_mut(&a).unwrap().partition =
        Some(PartitionState { kind: Partition::Isolated, invalid: None });
    host.scene.partitioned.begun.insert(a);
    host.settle();
    let mut allocations = Allocations::default();
    assert_eq!(host.turn(&mut allocations), ["/pods/b cpus 2", "/pods exclusive 0-2"]);
    assert_eq!(host.turn(&mut allocations), ["/pods/b isolated"]);
    assert_eq!(host.turn(&mut allocations), [""; 0]);
}

#[test]
fn what_the_kernel_refuses_is_not_tried_again_before_something_changes() {
    let mut scene = host(&[("/pods/a", "0-1", 2)]);
    let path = CgroupPath::new("/pods");
    scene.now.cgroups.get_mut(&path).unwrap().cpus_exclusive = "0-1".parse().ok();
    scene.partitioned.exclusive.insert(path);
    let decision = scene.decide();
    assert_eq!(short(&decision.plan), ["/pods/a isolated"]);
    let read_back = "isolated invalid (Parent is not a partition root)".to_owned();
    let refused = OutcomeResult::Differs { wanted: "isolated".into(), read_back };
    let outcomes = [Outcome { step: decision.plan.steps[0].clone(), result: refused }];
    let mut history = History::default();
    history.partitions.note(&decision.partitions, &decision.added_above, &outcomes);
    let again = scene.decide_with(&history, &mut Allocations::default());
    assert_eq!(short(&again.plan), ["/pods exclusive "], "what was for it alone is taken back");
    assert!(again.without_partition[&CgroupPath::new("/pods/a")].contains("not a partition root"));
    history.partitions.forgive();
    assert_eq!(short(&scene.decide_with(&history, &mut Allocations::default()).plan), ["/pods/a isolated"]);
}

#[test]
fn what_cannot_be_had_because_of_a_neighbour_is_not_tried_again() {
    let scene = host(&[("/pods/a", "0-1", 2)]);
    let decision = scene.decide();
    assert_eq!(short(&decision.plan), ["/pods exclusive 0-1"]);
    let result = OutcomeResult::Failed { error: "writing \"0-1\" to cpuset.cpus.exclusive: EINVAL".into() };
    let mut history = History::default();
    history.partitions.note(
        &decision.partitions,
        &decision.added_above,
        &[Outcome { step: decision.plan.steps[0].clone(), result }],
    );
    let again = scene.decide_with(&history, &mut Allocations::default());
    assert_eq!(short(&again.plan), [""; 0]);
    assert!(again.without_partition[&CgroupPath::new("/pods/a")].contains("EINVAL"));
}

#[test]
fn a_refusal_is_of_the_one_that_needs_what_was_refused() {
    let mut scene = host(&[("/pods/a", "0-1", 2), ("/pods/b", "2", 1), ("/pods/c", "3", 1)]);
    let pods = CgroupPath::new("/pods");
    // The first has what it needs above, and has not begun yet.
    scene.now.cgroups.get_mut(&pods).unwrap().cpus_exclusive = "0-1".parse().ok();
    scene.partitioned.exclusive.insert(pods);
    let decision = scene.decide();
    assert_eq!(short(&decision.plan), ["/pods exclusive 0-2", "/pods exclusive 0-3", "/pods/a isolated"]);
    let refused = |cpus: &str| OutcomeResult::Failed { error: format!("writing {cpus}: EINVAL") };
    let because = "step failed".to_owned();
    for (results, without, plan) in [
        (
            [refused("0-2"), OutcomeResult::Skipped { because: because.clone() }],
            "/pods/b",
            ["/pods exclusive 0-1,3", "/pods/a isolated"],
        ),
        (
            [OutcomeResult::RolledBack { because, error: None }, refused("0-3")],
            "/pods/c",
            ["/pods exclusive 0-2", "/pods/a isolated"],
        ),
    ] {
        let outcomes = decision.plan.steps.iter().cloned().zip(results);
        let outcomes: Vec<Outcome> = outcomes.map(|(step, result)| Outcome { step, result }).collect();
        let mut history = History::default();
        history.partitions.note(&decision.partitions, &decision.added_above, &outcomes);
        let again = scene.decide_with(&history, &mut Allocations::default());
        assert_eq!(short(&again.plan), plan);
        let reasons: Vec<(&str, bool)> = again
            .without_partition
            .iter()
            .map(|(path, why)| (path.as_str(), why.contains("EINVAL")))
            .collect();
        assert_eq!(reasons, [(without, true)]);
    }
}

#[test]
fn partition_that_another_program_ends_repeatedly_is_left_alone() {
    let mut host = Host::new(host(&[("/pods/a", "0-1", 2)]));
    let mut history = History::default();
    let mut begun = 0;
    for _ in 0..8 {
        let decision = host.scene.decide_with(&history, &mut Allocations::default());
        host.carry_out(&decision.plan).unwrap();
        begun += short(&decision.plan).iter().filter(|step| step.ends_with("isolated")).count();
        let done = |step: &Step| Outcome {
            step: step.clone(),
            result: OutcomeResult::Applied { read_back: String::new() },
        };
        let outcomes: Vec<Outcome> = decision.plan.steps.iter().map(done).collect();
        history.partitions.note(&decision.partitions, &decision.added_above, &outcomes);
        let seen = host.scene.now.cgroups.get_mut(&CgroupPath::new("/pods/a")).unwrap();
        seen.partition = Some(PartitionState::default());
        host.settle();
    }
    assert_eq!(begun, 3);
}

proptest! {
    /// Whatever is declared and taken back: no two cgroups side by side ever name the same CPU, nothing is
    /// taken from a partition that lives, partitions live where they are wanted, those above have exactly
    /// what is needed, and then there is nothing more to do.
    #[test]
    fn what_is_above_follows_what_is_below(
        turns in prop::collection::vec(prop::collection::vec((0u32..4, any::<bool>()), 4), 1..5),
    ) {
        let paths = ["/pods/p/a", "/pods/p/b", "/pods/q/c", "/other/d"];
        let mut host = Host::new(host(&paths.map(|path| (path, "0-7", 1))));
        for turn in turns {
            for (rule, (cpus, declared)) in host.scene.policy.workloads.iter_mut().zip(turn) {
                rule.cpus = std::num::NonZeroU32::new(cpus.max(1));
                rule.partition = declared.then_some(Partition::Isolated);
            }
            let mut allocations = Allocations::default();
            let (mut last, mut settled) = (None, 0);
            for _ in 0..10 {
                let decision = host.scene.decide_with(&History::default(), &mut allocations);
                for step in &decision.plan.steps {
                    let one = Plan { steps: vec![step.clone()], ..Plan::default() };
                    prop_assert_eq!(host.carry_out(&one), Ok(()));
                    let mut beside = BTreeMap::<Option<CgroupPath>, CpuSet>::new();
                    for (path, seen) in &host.scene.now.cgroups {
                        let Some(cpus) = &seen.cpus_exclusive else { continue };
                        let all = beside.entry(path.parent()).or_default();
                        prop_assert!(all.is_disjoint(cpus), "{}: {:?}", path, step);
                        all.extend(cpus);
                    }
                }
                settled = if decision.plan.steps.is_empty() { settled + 1 } else { 0 };
                last = Some(decision);
                if settled == 2 {
                    break;
                }
            }
            let decision = last.unwrap();
            prop_assert_eq!(short(&decision.plan), Vec::<String>::new());
            let mut needed = BTreeMap::<CgroupPath, CpuSet>::new();
            for (path, wanted) in &decision.partitions {
                let seen: &CgroupSample = &host.scene.now.cgroups[path];
                prop_assert!(seen.partition.as_ref().unwrap().is(wanted.kind), "{}", path);
                for above in ancestors(path) {
                    needed.entry(above).or_default().extend(&wanted.cpus);
                }
            }
            for (path, seen) in &host.scene.now.cgroups {
                let Some(cpus) = &seen.cpus_exclusive else { continue };
                prop_assert_eq!(cpus, &needed.get(path).cloned().unwrap_or_default(), "{}", path);
            }
        }
    }
}
