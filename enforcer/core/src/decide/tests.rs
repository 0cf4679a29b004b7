use std::collections::{BTreeMap, BTreeSet};

use insta::assert_json_snapshot;
use proptest::prelude::*;

use super::{grants::NO_CPUS, *};
use crate::{
    hosted::{Announced, Containers, Cpuset, PlacementNode},
    owner::KnownContainer,
    plan::{Action, Outcome, OutcomeResult},
    policy::{DeclaredClass, HumanDuration},
    sample::CgroupSample,
    scene::Scene,
    turn::History,
    workload::QosClass,
};
use numa_placement::{Allocations, ContainerRequest, PodName, PodRequest, Resources};
use numa_topology::{MemoryKind, id::NodeId, synth::Machine};

/// CPUs 0-3 on node 0 and 4-7 on node 1.
fn host() -> Scene {
    Scene::new(Machine::new().sockets(2).threads(1).build())
}

/// Each action in short: `mems 0-1`, `cpus 0-1`, `move 0>1`.
fn short(decision: &Decision) -> Vec<String> {
    let steps = decision.plan.steps.iter();
    steps
        .map(|step| match &step.action {
            Action::SetCpus { cpus, .. } => format!("cpus {cpus}"),
            Action::SetMems { mems, .. } => format!("mems {mems}"),
            Action::SetExclusive { cpus, .. } => format!("exclusive {cpus}"),
            Action::SetPartition { kind, .. } => format!("{kind}"),
            Action::MovePages { from, to, .. } => format!("move {from}>{to}"),
        })
        .collect()
}

#[test]
fn cpus_go_where_the_memory_is() {
    let decision = host()
        .workload("/a", "4-5", "0")
        .memory("/a", &[(0, 300, 10)])
        .declared("/a", 2, Some("512M"))
        .decide();
    assert_eq!(short(&decision), ["cpus 0-1"]);
}

#[test]
fn memory_nodes_are_widened_before_and_narrowed_after() {
    let mut scene =
        host().workload("/a", "0-1", "0").memory("/a", &[(0, 300, 10)]).declared("/a", 2, Some("512M"));
    scene.policy.workloads[0].numa_nodes = Some("1".parse().unwrap());
    let decision = scene.decide();
    assert_eq!(short(&decision), ["mems 0-1", "cpus 4-5", "move 0>1", "mems 1"]);
    assert_json_snapshot!(decision);
}

#[test]
fn a_move_that_was_interrupted_is_planned_again_by_a_daemon_that_remembers_nothing() {
    let scene = |mems: &str, on_0, on_1| {
        let scene = host().workload("/a", "4-5", mems).memory("/a", &[(0, on_0, 0), (1, on_1, 0)]);
        let mut scene = scene.declared("/a", 2, Some("512M"));
        scene.policy.workloads[0].numa_nodes = Some("1".parse().unwrap());
        short(&scene.decide())
    };
    // Widened and half of it moved; all of it moved but not narrowed yet; done.
    assert_eq!(scene("0-1", 150, 150), ["move 0>1", "mems 1"]);
    assert_eq!(scene("0-1", 0, 300), ["mems 1"]);
    assert_eq!(scene("1", 0, 300), [""; 0]);
}

#[test]
fn a_wide_memory_set_needs_no_widening() {
    let decision = host()
        .workload("/a", "0-7", "0-1")
        .memory("/a", &[(0, 300, 0), (1, 100, 0)])
        .declared("/a", 3, None)
        .decide();
    assert_eq!(short(&decision), ["cpus 0-2", "move 1>0", "mems 0"]);
}

#[test]
fn what_is_in_place_is_left_alone() {
    let scene = host().workload("/a", "6-7", "1").memory("/a", &[(1, 300, 0)]).declared("/a", 2, Some("1G"));
    let decision = scene.decide();
    assert_eq!(short(&decision), [""; 0]);
    assert_eq!(decision.in_place, [CgroupPath::new("/a")]);
}

#[test]
fn pages_left_behind_follow_but_page_cache_does_not() {
    for (memory, steps) in [
        ([(0, 100, 0), (1, 300, 0)], vec!["move 0>1"]),
        ([(0, 3, 0), (1, 300, 0)], vec![]),
        ([(0, 0, 900), (1, 300, 0)], vec![]),
    ] {
        let scene = host().workload("/a", "6-7", "1").memory("/a", &memory).declared("/a", 2, Some("1G"));
        assert_eq!(short(&scene.decide()), steps, "{memory:?}");
    }
    // Shared memory is in files of tmpfs.
    let mut scene = host().workload("/a", "6-7", "1").memory("/a", &[(0, 0, 900), (1, 300, 0)]);
    let bytes = scene.now_mut("/a").memory_by_node.as_mut().unwrap();
    bytes.get_mut(&NodeId(0)).unwrap().shmem = Some(900 << 20);
    assert_eq!(short(&scene.declared("/a", 2, Some("1G")).decide()), ["move 0>1"]);
}

#[test]
fn workload_pinned_to_isolated_cpus_is_left_there_and_told_why() {
    let scene = |cpus: &str| {
        let machine = Machine::new().sockets(2).threads(1).isolated("2-3").build();
        let scene = Scene::new(machine).workload("/a", cpus, "0-1").memory("/a", &[(1, 300, 0)]);
        scene.declared("/a", 2, Some("1G"))
    };
    let decision = scene("2-3").decide();
    assert_eq!(short(&decision), [""; 0]);
    let [refusal] = decision.refused.as_slice() else { panic!("{:?}", decision.refused) };
    assert_eq!(refusal.cause, RefusalCause::PinnedToIsolated);
    assert!(refusal.reason.contains("CPUs 2-3, of which isolcpus= isolates 2-3"), "{}", refusal.reason);
    // One that may run on others, too, was not put there on purpose.
    assert_eq!(scene("2-5").decide().refused, []);
    let mut asks = scene("2-3");
    asks.policy.workloads[0].class = Some(DeclaredClass::Isolated);
    let decision = asks.decide();
    assert_eq!((decision.refused, decision.aims.len()), (vec![], 1));
}

#[test]
fn on_one_numa_node_a_declared_workload_is_refused_and_told_why() {
    let machine = Machine::new().sockets(1).threads(1).build();
    let scene = Scene::new(machine).workload("/a", "0-1", "0").memory("/a", &[(0, 300, 0)]);
    assert_eq!(scene.decide().refused, [], "it is not declared");
    let decision = scene.declared("/a", 2, Some("1G")).decide();
    assert_eq!(short(&decision), [""; 0]);
    let refused = decision.refused.iter().map(|one| (one.workload.as_str(), one.cause, one.reason.as_str()));
    let expected = ("/a", RefusalCause::OneNode, "one NUMA node: nothing to align");
    assert_eq!(refused.collect::<Vec<_>>(), [expected]);
    let three = Machine::new().sockets(3).threads(1).offline("4-11").build();
    let scene = Scene::new(three).workload("/a", "0-1", "0").memory("/a", &[(0, 300, 0)]);
    let decision = scene.declared("/a", 2, Some("1G")).decide();
    assert_eq!(decision.refused[0].reason, "of nodes 0-2 only node 0 has CPUs: nothing to align");
}

#[test]
fn undeclared_and_opted_out_workloads_are_left_alone() {
    let scene = host().workload("/a", "0-7", "0-1").workload("/b", "0-7", "0-1").declared("/b", 2, None);
    let mut opted_out = scene.clone();
    opted_out.policy.workloads[0].enforce = false;
    assert_eq!(
        opted_out.decide(),
        Decision { plan: Plan { schema_version: 1, ..Plan::default() }, ..Decision::default() }
    );
    let touched = scene.decide().plan.steps;
    assert!(
        !touched.is_empty() && touched.iter().all(|step| step.action.cgroup().as_str() == "/b"),
        "{touched:?}"
    );
}

/// CPUs 0-3 on node 0 and 4-7 on node 1, and memory of a GPU beside node 1 on node 2.
fn with_gpu() -> Scene {
    let machine = Machine::new().sockets(2).threads(1);
    Scene::new(machine.memory_only(NodeId(2), 96, MemoryKind::Gpu, NodeId(1)).build())
}

#[test]
fn memory_of_a_gpu_stays_allowed_and_where_it_is() {
    let scene = |cpus: &str, mems: &str, bytes: &[(u32, u64, u64)]| {
        let mut scene =
            with_gpu().workload("/a", cpus, mems).memory("/a", bytes).declared("/a", 2, Some("512M"));
        scene.policy.workloads[0].numa_nodes = Some("0".parse().unwrap());
        scene
    };
    for (cpus, mems, bytes, expected) in [
        ("0-7", "0-2", vec![(0, 300, 10), (2, 20_000, 0)], vec!["cpus 0-1", "mems 0,2"]),
        ("0-1", "0,2", vec![(0, 300, 10), (2, 20_000, 0)], vec![]),
        ("0-1", "0-2", vec![(1, 300, 10), (2, 20_000, 0)], vec!["move 1>0", "mems 0,2"]),
        // That node was not granted: its pages there are not taken away either.
        ("0-1", "0", vec![(0, 300, 10), (2, 20_000, 0)], vec![]),
        ("4-5", "1", vec![(1, 300, 10), (2, 20_000, 0)], vec!["mems 0-1", "cpus 0-1", "move 1>0", "mems 0"]),
    ] {
        let decision = scene(cpus, mems, &bytes).decide();
        assert_eq!(short(&decision), expected, "{cpus} {mems} {bytes:?}: {decision:?}");
        let guarded: Vec<_> = decision.guarded.iter().map(|one| (&one.home, &one.kept)).collect();
        assert!(guarded.iter().all(|(home, _)| home.to_string() == "0"), "{guarded:?}");
    }
    let guarded = scene("0-1", "0,2", &[(0, 300, 10)]).decide().guarded;
    let [one] = &guarded[..] else { panic!("{guarded:?}") };
    assert_eq!((one.mems.to_string(), one.kept.to_string()), ("0".into(), "2".into()));
    assert!(one.spares.iter().all(|spare| spare.node() == NodeId(1)), "{one:?}");
}

proptest! {
    /// Wherever it is and whatever it has: its nodes of GPU memory stay, and nothing is moved there or away.
    #[test]
    fn no_step_touches_memory_of_a_gpu(
        first in 0u32..8, mems in 1u64..8, on in proptest::array::uniform3(0u64..2000), node in 0u32..2,
    ) {
        let (last, has) = (first.max(1), NodeSet::from_words(&[mems]));
        let bytes: Vec<(u32, u64, u64)> = (0..).zip(on).map(|(node, mib)| (node, mib, mib / 2)).collect();
        let mut scene = with_gpu().workload("/a", &format!("0-{last}"), &has.to_string());
        scene = scene.memory("/a", &bytes).declared("/a", 2, Some("512M"));
        scene.policy.workloads[0].numa_nodes = Some(NodeSet::from_iter([NodeId(node)]));
        for step in scene.decide().plan.steps {
            match step.action {
                Action::SetMems { mems, .. } => {
                    prop_assert_eq!(mems.contains(NodeId(2)), has.contains(NodeId(2)), "{}", mems);
                }
                Action::MovePages { from, to, .. } => {
                    prop_assert!(!from.contains(NodeId(2)) && to != NodeId(2), "{}>{}", from, to);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn one_node_leaves_nothing_to_decide() {
    let scene = Scene::new(Machine::new().build()).workload("/a", "0-7", "0").declared("/a", 2, None);
    assert_eq!(short(&scene.decide()), [""; 0]);
}

#[test]
fn an_earlier_rule_does_not_push_out_what_is_placed() {
    let scene = host()
        .workload("/late", "0-3", "0")
        .workload("/early", "4-7", "0-1")
        .memory("/early", &[(0, 100, 0)])
        .declared("/early", 4, None)
        .declared("/late", 4, None);
    let decision = scene.decide();
    assert_eq!(decision.in_place, [CgroupPath::new("/late")]);
    assert_eq!(short(&decision), ["move 0>1", "mems 1"]);
}

#[test]
fn two_workloads_never_share_a_cpu() {
    let scene = host()
        .workload("/a", "0-7", "0-1")
        .workload("/b", "0-7", "0-1")
        .workload("/c", "0-7", "0-1")
        .declared("/*", 3, None);
    let mut allocations = Allocations::default();
    let decision = scene.decide_with(&History::default(), &mut allocations);
    let given: Vec<_> = allocations.iter().map(|(path, one)| format!("{path} {}", one.exclusive)).collect();
    assert_eq!(given, ["/a 0-2", "/b 4-6"]);
    let refusal = &decision.refused[0];
    assert_eq!((refusal.workload.as_str(), refusal.cause), ("/c", RefusalCause::NoPlace));
    assert!(refusal.reason.contains("1 of 3 cpu on node 0"), "{}", refusal.reason);
}

#[test]
fn the_cgroup_above_bounds_the_choice() {
    let mut scene =
        host().workload("/s/a", "4-7", "1").memory("/s/a", &[(1, 50, 0)]).declared("/s/a", 2, None);
    let above = |cpus: &str, mems: &str| CgroupSample {
        cpus_effective: Some(cpus.parse().unwrap()),
        mems_effective: Some(mems.parse().unwrap()),
        ..CgroupSample::default()
    };
    scene.now.cgroups.insert(CgroupPath::new("/s"), above("6-7", "1"));
    assert_eq!(short(&scene.decide()), ["cpus 6-7"]);

    scene.now.cgroups.insert(CgroupPath::new("/s"), above("4", "1"));
    let refused = scene.decide().refused.remove(0);
    assert!(refused.reason.contains("1 of 2 cpu on node 1"), "{}", refused.reason);

    scene.now.cgroups.insert(CgroupPath::new("/s"), above("0-3", "0"));
    scene.policy.workloads[0].numa_nodes = Some("1".parse().unwrap());
    let refused = scene.decide().refused.remove(0);
    assert_eq!(refused.cause, RefusalCause::NoPlace);
    assert!(refused.reason.contains("cpuset.mems.effective of /s is 0"), "{}", refused.reason);
}

#[test]
fn what_was_not_seen_is_refused() {
    let mut scene = host().workload("/a", "0-3", "0").declared("/a", 2, None);
    scene.now.cgroups.clear();
    let decision = scene.decide();
    assert_eq!(decision.refused[0].cause, RefusalCause::NotSeen);
    assert!(decision.plan.steps.is_empty());
}

#[test]
fn a_correction_that_did_not_take_waits_for_the_cool_down() {
    let mut scene = host().workload("/a", "0-7", "0-1").declared("/a", 2, None);
    scene.policy.cool_down = HumanDuration::from_secs(30);
    let (mut history, mut allocations) = (History::default(), Allocations::default());
    let mut corrections = Vec::new();
    for tick in 0..8u64 {
        scene.now.monotonic_ns = tick * 10_000_000_000;
        let decision = scene.decide_with(&history, &mut allocations);
        if decision.plan.steps.is_empty() {
            assert_eq!(decision.refused[0].cause, RefusalCause::CoolDown);
        } else {
            corrections.push(tick);
            history.note(&decision.plan, &decision.targets, scene.now.monotonic_ns);
        }
    }
    assert_eq!(corrections, [0, 3, 6]);
}

/// A turn of a daemon, on a host where everything is done as it is planned.
fn turn(scene: &mut Scene, history: &mut History, allocations: &mut Allocations) -> Decision {
    let now_ns = scene.now.monotonic_ns;
    let decision = scene.decide_with(history, allocations);
    let done = |step: &crate::plan::Step| Outcome {
        step: step.clone(),
        result: OutcomeResult::Applied { read_back: String::new() },
    };
    let outcomes: Vec<Outcome> = decision.plan.steps.iter().map(done).collect();
    scene.carry_out(&decision.plan);
    history.note(&decision.plan, &decision.targets, now_ns);
    history.drift.note(&decision.targets, &outcomes, &BTreeSet::new(), now_ns);
    scene.now.monotonic_ns += 10_000_000_000;
    decision
}

const SHARES: &str = "cgroup = '/s'\ncpus = 1\nclass = 'shared'\nnuma_nodes = '0'";

#[test]
fn sharing_workload_leaves_cpus_of_a_later_entry_in_the_same_turn() {
    let later = "cgroup = '/a'\ncpus = 2\nnuma_nodes = '0'";
    for entries in [[SHARES, later], [later, SHARES]] {
        let scene = host().workload("/s", "0-7", "0-1").workload("/a", "0-7", "0-1");
        let decision = entries.into_iter().fold(scene, Scene::declares).decide();
        let cpus = |path| decision.targets[&CgroupPath::new(path)].cpuset.cpus.clone().unwrap().to_string();
        assert_eq!((cpus("/a"), cpus("/s")), ("0-1".to_owned(), "2-3".to_owned()), "{entries:?}");
    }
}

#[test]
fn sharing_workload_leaves_newly_exclusive_cpus_also_shortly_after_it_left_others() {
    let mut scene = host().workload("/s", "0-7", "0-1").declares(SHARES);
    let (mut history, mut allocations) = (History::default(), Allocations::default());
    let cpus =
        |scene: &Scene, path| scene.now.cgroups[&CgroupPath::new(path)].cpus_effective.clone().unwrap();
    turn(&mut scene, &mut history, &mut allocations);
    assert_eq!(cpus(&scene, "/s").to_string(), "0-3");
    for (path, expected) in [("/a", "1-3"), ("/b", "2-3"), ("/c", "3")] {
        scene = scene
            .workload(path, "0-7", "0-1")
            .declares(&format!("cgroup = '{path}'\ncpus = 1\nnuma_nodes = '0'"));
        let decision = turn(&mut scene, &mut history, &mut allocations);
        assert_eq!(decision.refused, [], "{path}");
        assert_eq!(decision.plan.groups.len(), 1, "{path}: giver and receiver form one group");
        assert!(cpus(&scene, "/s").is_disjoint(&cpus(&scene, path)), "{path}");
        assert_eq!(cpus(&scene, "/s").to_string(), expected);
    }
}

#[test]
fn what_is_written_over_what_a_runtime_was_told_does_not_wait_for_a_correction_before_that() {
    let mut scene = host().workload("/s", "0-7", "0-1").declares(SHARES);
    let (mut history, mut allocations) = (History::default(), Allocations::default());
    let shares = CgroupPath::new("/s");
    assert!(short(&turn(&mut scene, &mut history, &mut allocations)).contains(&"cpus 0-3".to_owned()));
    // A container gets two CPUs, and its runtime has written what it was told.
    scene = scene.workload("/a", "0-1", "0").declared("/a", 2, None);
    scene.now_mut("/s").cpus_effective = "2-3".parse().ok();
    history.drift.expect([&shares]);
    assert_eq!(short(&turn(&mut scene, &mut history, &mut allocations)), [""; 0]);
    // Another program writes before the runtime's possible write is over.
    scene.now_mut("/s").cpus_effective = "0-3".parse().ok();
    history.drift.expect([&shares]);
    assert_eq!(short(&turn(&mut scene, &mut history, &mut allocations)), ["cpus 2-3"]);
}

#[test]
fn an_assignment_does_not_wander_and_drift_goes_back_to_it() {
    let mut scene = host().workload("/a", "0-7", "0-1").memory("/a", &[(1, 90, 0)]).declared("/a", 2, None);
    let mut allocations = Allocations::default();
    let first = scene.decide_with(&History::default(), &mut allocations);
    assert_eq!(short(&first), ["cpus 4-5", "mems 1"]);
    // Its memory is elsewhere for a moment, and another program reset its cpuset.
    scene = scene.memory("/a", &[(0, 90, 0), (1, 80, 0)]);
    let again = scene.decide_with(&History::default(), &mut allocations);
    assert_eq!(short(&again), ["cpus 4-5", "move 0>1", "mems 1"]);
    // Gone workloads give back what they had.
    scene.workloads.clear();
    scene.decide_with(&History::default(), &mut allocations);
    assert_eq!(allocations, Allocations::default());
}

#[test]
fn choice_of_another_program_is_not_kept_although_it_would_suffice() {
    let mut scene = host().workload("/a", "4-5", "1").memory("/a", &[(1, 90, 0)]).declared("/a", 2, None);
    let (mut allocations, mut history) = (Allocations::default(), History::default());
    let placed = scene.decide_with(&history, &mut allocations);
    assert_eq!(placed.in_place.len(), 1);
    history.drift.note(&placed.targets, &[], &BTreeSet::new(), 0);
    // Two CPUs of the same node are as good, and are kept unless another program chose them.
    scene.now_mut("/a").cpus_effective = Some("6-7".parse().unwrap());
    let decision = scene.decide_with(&history, &mut allocations);
    assert_eq!(short(&decision), ["cpus 4-5"]);
    assert_eq!(decision.targets[&CgroupPath::new("/a")].standing, DriftStatus::Drifted);
    assert_eq!(short(&scene.decide()), [""; 0]);
}

/// A machine and workloads with any cpusets, memory and declarations.
fn any_scene() -> impl Strategy<Value = Scene> {
    let machine = (1u32..=3, 1u32..=2, 1u32..=3, 1u32..=2);
    let workload = (any::<u16>(), any::<u8>(), prop::collection::vec(0u64..3000, 6), 1u32..=6, any::<bool>());
    (machine, prop::collection::vec(workload, 0..5)).prop_map(
        |((sockets, nodes, cores, threads), workloads)| {
            let machine = Machine::new()
                .sockets(sockets)
                .nodes_per_socket(nodes)
                .cores(cores)
                .threads(threads)
                .memory_gib(4)
                .build();
            let (cpus, mems) = (machine.online_cpus(), machine.memory_nodes());
            let mut scene = Scene::new(machine);
            for (number, (cpu_bits, mem_bits, memory, wanted, declared)) in workloads.into_iter().enumerate()
            {
                let path = format!("/w{number}");
                let subset = |bits: u32, position: usize| {
                    bits.checked_shr(u32::try_from(position).unwrap()).unwrap_or(0) & 1 == 1
                };
                let some_cpus: numa_topology::set::CpuSet = cpus
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| subset(cpu_bits.into(), *i))
                    .map(|(_, id)| id)
                    .collect();
                let some_mems: numa_topology::set::NodeSet = mems
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| subset(mem_bits.into(), *i))
                    .map(|(_, id)| id)
                    .collect();
                let or_all = |text: String, all: String| if text.is_empty() { all } else { text };
                let held: Vec<(u32, u64, u64)> =
                    mems.iter().zip(&memory).map(|(node, mib)| (node.0, *mib, mib / 3)).collect();
                scene = scene
                    .workload(
                        &path,
                        &or_all(some_cpus.to_string(), cpus.to_string()),
                        &or_all(some_mems.to_string(), mems.to_string()),
                    )
                    .memory(&path, &held);
                if declared {
                    scene = scene.declared(&path, wanted, None);
                }
            }
            scene
        },
    )
}

proptest! {
    #[test]
    fn the_same_question_has_the_same_answer(scene in any_scene()) {
        let mut shuffled = scene.clone();
        shuffled.workloads.reverse();
        let text = |scene: &Scene| serde_json::to_string(&scene.decide()).unwrap();
        prop_assert_eq!(text(&scene), text(&scene));
        prop_assert_eq!(text(&scene), text(&shuffled));
    }

    #[test]
    fn no_step_writes_an_empty_set_or_swaps_nodes(scene in any_scene()) {
        let model = scene.model();
        let mut mems: BTreeMap<_, _> =
            model.workloads.iter().map(|(path, one)| (path.clone(), one.mems.clone().unwrap())).collect();
        for step in scene.decide().plan.steps {
            prop_assert!(!step.reason.is_empty());
            let allowed = mems.get_mut(step.action.cgroup()).unwrap();
            match step.action {
                Action::SetMems { mems, .. } => {
                    prop_assert!(!mems.is_empty());
                    prop_assert!(mems != *allowed, "a write that changes nothing");
                    prop_assert!(mems.is_subset(allowed) || allowed.is_subset(&mems), "{allowed} to {mems}");
                    *allowed = mems;
                }
                Action::SetCpus { cpus, .. } => {
                    prop_assert!(!cpus.is_empty());
                    prop_assert!(scene.machine.nodes_of(&cpus).is_subset(allowed), "CPUs before their memory");
                }
                Action::SetExclusive { .. } | Action::SetPartition { .. } => {
                    prop_assert!(false, "no partition was declared");
                }
                Action::MovePages { from, to, .. } => {
                    prop_assert!(!from.is_empty() && !from.contains(to));
                    prop_assert!(allowed.contains(to), "the kernel would refuse");
                }
            }
        }
    }

    #[test]
    fn a_placed_system_has_an_empty_plan(scene in any_scene()) {
        let mut placed = scene;
        let first = placed.decide();
        placed.carry_out(&first.plan);
        let second = placed.decide();
        prop_assert_eq!(&second.plan.steps, &[], "after {:?}", first.plan.steps);
    }

    /// Goals do not go to and fro by themselves: only the first turn corrects what never takes.
    #[test]
    fn what_never_takes_is_corrected_once_in_a_cool_down(scene in any_scene()) {
        let mut scene = scene;
        let (mut history, mut allocations) = (History::default(), Allocations::default());
        for turn in 0..5u64 {
            scene.now.monotonic_ns = turn * 10_000_000_000;
            let decision = scene.decide_with(&history, &mut allocations);
            prop_assert!(turn == 0 || decision.plan.steps.is_empty(), "turn {turn}: {:?}", decision.plan);
            history.note(&decision.plan, &decision.targets, scene.now.monotonic_ns);
        }
    }

    #[test]
    fn what_is_given_fits_and_is_given_once(scene in any_scene()) {
        let mut allocations = Allocations::default();
        scene.decide_with(&History::default(), &mut allocations);
        let mut taken = numa_topology::set::CpuSet::new();
        for (holder, one) in allocations.iter() {
            let path = CgroupPath::new(&holder.pod().name);
            prop_assert!(taken.is_disjoint(&one.exclusive), "{path}");
            taken = taken.union(&one.exclusive);
            prop_assert_eq!(one.mems.len(), 1);
            prop_assert_eq!(scene.machine.nodes_of(&one.exclusive), one.mems.clone());
            prop_assert_eq!(one.exclusive.len(), scene.cpus_of(&path));
        }
    }

    #[test]
    fn a_decision_survives_serde(scene in any_scene()) {
        let mut decision = scene.decide();
        let text = serde_json::to_string(&decision).unwrap();
        decision.considered.clear();
        decision.guarded.clear();
        prop_assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
    }
}

/// One container of two exclusive CPUs, placed as its runtime announced it.
fn placed(scene: &Scene, cgroup: &str) -> (Containers, Allocations) {
    let (mut containers, mut allocations) = (Containers::default(), Allocations::default());
    let amounts = Resources { milli_cpus: Some(2000), memory_bytes: Some(64 << 20), ..Resources::default() };
    let container = ContainerRequest {
        name: "main".into(),
        requests: amounts.clone(),
        limits: amounts,
        ..ContainerRequest::default()
    };
    let pod = PodRequest {
        name: PodName::new("shop", "web"),
        qos: QosClass::Guaranteed,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        documents: BTreeMap::new(),
        containers: vec![container],
        previous: BTreeMap::new(),
        undescribed: None,
    };
    let cgroup = Some(CgroupPath::new(cgroup));
    let new = Announced {
        id: "id".into(),
        cgroup,
        pod,
        now: Cpuset::default(),
        shown: None,
        given: None,
        named_claims: BTreeSet::new(),
        claimed: None,
        opts_out: false,
    };
    let (inventory, settings) = (scene.inventory(), &scene.policy.placement);
    let mut node = PlacementNode { inventory: &inventory, settings, allocations: &mut allocations };
    let settled = containers.create(&mut node, &new);
    assert_eq!(settled.own.cpus.unwrap().to_string(), "0-1");
    (containers, allocations)
}

#[test]
fn a_container_that_its_runtime_announced_is_brought_back_to_its_grant() {
    let path = "/kubepods/podweb/id";
    // Another program has set it to CPUs of the other node; a rule for it would give it others.
    let mut scene = host().workload(path, "4-7", "0").memory(path, &[(0, 300, 0)]).declared(path, 4, None);
    let (containers, mut allocations) = placed(&scene, path);
    let before = allocations.clone();
    let decision = scene.decide_beside(&containers, &History::default(), &mut allocations);
    assert_eq!(short(&decision), ["cpus 0-1"]);
    assert_eq!(decision.aims[&CgroupPath::new(path)].to_string(), "0");
    assert_eq!(allocations, before);
    scene.carry_out(&decision.plan);
    let decision = scene.decide_beside(&containers, &History::default(), &mut allocations);
    assert_eq!((short(&decision), decision.in_place.len()), (vec![], 1));
}

#[test]
fn a_container_is_kept_where_it_was_placed_on_a_machine_of_one_node_too() {
    let path = "/kubepods/podweb/id";
    let machine = Machine::new().threads(1).build();
    let scene = Scene::new(machine).workload(path, "0-3", "0").workload("/a", "0-3", "0");
    let scene = scene.declared("/a", 2, None);
    let (containers, mut allocations) = placed(&scene, path);
    let decision = scene.decide_beside(&containers, &History::default(), &mut allocations);
    assert_eq!(short(&decision), ["cpus 0-1"]);
    let refused: Vec<_> = decision.refused.iter().map(|one| (one.workload.as_str(), one.cause)).collect();
    assert_eq!(refused, [("/a", RefusalCause::OneNode)], "a declared workload has no choice");
}

#[test]
fn what_a_container_has_for_itself_is_given_to_no_declared_workload() {
    let path = "/kubepods/podweb/id";
    let scene = host().workload(path, "0-1", "0").workload("/a", "0-7", "0-1").declared("/a", 2, None);
    let (containers, mut allocations) = placed(&scene, path);
    let decision = scene.decide_beside(&containers, &History::default(), &mut allocations);
    assert_eq!(short(&decision), ["cpus 2-3", "move 1>0", "mems 0"]);
    // Without the container its CPUs are the first that are given, but not while its cgroup is pinned there.
    assert_eq!(short(&scene.decide()), ["cpus 2-3", "move 1>0", "mems 0"]);
    let scene = host().workload("/a", "0-7", "0-1").declared("/a", 2, None);
    assert_eq!(short(&scene.decide()), ["cpus 0-1", "move 1>0", "mems 0"]);
}

#[test]
fn a_unit_and_a_command_are_declared_like_a_cgroup() {
    let scene = host()
        .workload("/system.slice/db.service", "0-7", "0-1")
        .workload("/jobs/a", "0-7", "0-1")
        .thread("/jobs/a", 10, "0-7", 0, (0, 1))
        .workload("/jobs/b", "0-7", "0-1")
        .declares("unit = 'db.service'\ncpus = 2")
        .declares("command = 'worker'\ncpus = 1\nnuma_nodes = '1'");
    let aims = scene.decide().aims;
    let aims: Vec<_> = aims.iter().map(|(path, nodes)| format!("{path} {nodes}")).collect();
    assert_eq!(aims, ["/jobs/a 1", "/system.slice/db.service 0"]);
}

#[test]
fn a_container_that_says_nothing_of_cpus_is_refused_with_the_reason() {
    let path = "/kubepods/podweb/id";
    let mut scene = host().workload(path, "0-7", "0-1").declares("namespace = 'shop'");
    scene.workloads[0].origin = crate::workload::identify(&CgroupPath::new(path)).origin;
    let known = KnownContainer { namespace: "shop".into(), ..KnownContainer::default() };
    scene.facts.containers.insert("id".into(), known);
    let decision = scene.decide();
    assert_eq!((short(&decision), decision.refused.len()), (vec![], 1));
    assert_eq!(decision.refused[0].reason, NO_CPUS);
    scene.policy.workloads[0].cpus = 2.try_into().ok();
    assert!(!short(&scene.decide()).is_empty());
    scene.policy.workloads[0].enforce = false;
    let decision = scene.decide();
    assert_eq!((short(&decision), decision.refused), (vec![], vec![]));
}

#[test]
fn what_an_engine_was_wished_to_give_is_left_alone_once_it_is_there() {
    let mut scene = host().workload("/a", "0-7", "0-1").declares("cpus = 6\nengine = 'pools'");
    let mut allocations = Allocations::default();
    let first = scene.decide_with(&History::default(), &mut allocations);
    assert!(short(&first).iter().any(|step| step.starts_with("cpus")), "{:?}", first.refused);
    scene.carry_out(&first.plan);
    let again = scene.decide_with(&History::default(), &mut allocations);
    assert_eq!((short(&again), again.in_place.len()), (vec![], 1));
    assert_eq!(again.considered[&CgroupPath::new("/a")].asked.rule.as_deref(), Some("rule0"));
}
