//! Turns of a daemon that rebalances: begun, judged, reverted, given up.

use std::collections::{BTreeMap, BTreeSet};

use super::{MoveHistory, MoveVerdict, NextTurn, RebalanceTurn, turn};
use crate::{
    hosted::Containers,
    plan::{Action, Outcome, OutcomeResult},
    sample::RunTime,
    scene::{SECOND, Scene},
    turn::{Decision, History, Inputs},
    workload::CgroupPath,
};
use numa_placement::{Allocations, CpuClass, Grant, Holder};
use numa_topology::{id::NodeId, set::NodeSet, synth::Machine};

/// A turn that may begin moves.
fn turn_of(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    past: &mut MoveHistory,
    decision: &Decision,
) -> (RebalanceTurn, NextTurn) {
    turn(inputs, allocations, past, decision, 4 << 30, true)
}

/// A daemon that enforces, and a kernel that does everything it is asked.
struct Host {
    scene: Scene,
    history: History,
    allocations: Allocations,
    next: NextTurn,
}

impl Host {
    /// `name`, its CPU, the node of its memory, keys of its entry.
    fn new(workloads: &[(&str, &str, u32)], keys: &str) -> Self {
        let machine: Machine = "sockets:2 cores:2 memory:8GiB".parse().unwrap();
        let mut scene = Scene::new(machine.build());
        for (name, cpus, memory) in workloads {
            scene = scene.workload(name, cpus, &memory.to_string()).memory(name, &[(*memory, 64, 0)]);
        }
        let mut scene = scene.declares(&format!("cgroup = '/*'\n{keys}"));
        scene.policy.rebalance.enabled = true;
        // As they were placed once: a workload adopted under the policy `none` gets memory of the first node.
        let mut allocations = Allocations::default();
        for (name, cpus, memory) in workloads {
            let grant = Grant {
                engine: "hints",
                policy: "none",
                class: CpuClass::Exclusive,
                exclusive: cpus.parse().unwrap(),
                mems: NodeSet::from_iter([NodeId(*memory)]),
                pin_cpus: true,
                pin_mems: true,
                ..Grant::default()
            };
            allocations.give(Holder::cgroup(&CgroupPath::new(name)), grant);
        }
        let mut host = Self { scene, history: History::default(), allocations, next: NextTurn::default() };
        host.pass();
        host
    }

    /// Ten seconds in which every workload runs on all its CPUs.
    fn pass(&mut self) {
        let scene = &mut self.scene;
        scene.before = scene.now.clone();
        scene.now.monotonic_ns += 10 * SECOND;
        for workload in &scene.workloads {
            let cgroup = scene.now.cgroups.get_mut(&workload.cgroup).unwrap();
            let cpus = cgroup.cpus_effective.clone().unwrap();
            let run_time = cgroup.run_time.get_or_insert_default();
            for node in scene.machine.nodes_of(&cpus).iter() {
                let ran = run_time.entry(node).or_insert(RunTime { ns: 0, misplaced_ns: 0, samples: 0 });
                ran.ns += 10 * SECOND;
                ran.samples += 1000;
            }
        }
    }

    /// One turn: decide, plan further moves, carry out.
    fn turn(&mut self) -> (Decision, RebalanceTurn) {
        let Self { scene, history, allocations, next } = self;
        let mut past = history.rebalance.clone();
        let (decision, turn) = scene.with_inputs(&Containers::default(), history, |inputs| {
            let decision = crate::decide::decide(inputs, allocations);
            let turn;
            (turn, *next) = turn_of(inputs, allocations, &mut past, &decision);
            (decision, turn)
        });
        history.rebalance = past;
        scene.carry_out(&decision.plan);
        let now_ns = scene.now.monotonic_ns;
        history.note(&decision.plan, &decision.targets, now_ns);
        let outcomes: Vec<Outcome> = decision
            .plan
            .steps
            .iter()
            .map(|step| Outcome {
                step: step.clone(),
                result: OutcomeResult::Applied { read_back: String::new() },
            })
            .collect();
        history.drift.note(&decision.targets, &outcomes, &BTreeSet::new(), now_ns);
        self.pass();
        (decision, turn)
    }

    fn cpus(&self) -> String {
        let of = |workload: &crate::workload::Workload| {
            self.scene.now.cgroups[&workload.cgroup].cpus_effective.clone().unwrap().to_string()
        };
        self.scene.workloads.iter().map(of).collect::<Vec<_>>().join(" ")
    }

    /// What it faulted on in the last ten seconds was remote, whatever its place lets one expect.
    fn faults(&mut self, name: &str, node: u32) {
        let path = CgroupPath::new(name);
        let before = self.scene.before.cgroups.get_mut(&path).unwrap().hint_faults.get_or_insert_default();
        let mut faults = before.clone();
        faults.entry(NodeId(node)).or_default().remote += 1000;
        self.scene.now_mut(name).hint_faults = Some(faults);
    }
}

const FOUR: [(&str, &str, u32); 4] = [("/a", "0", 1), ("/b", "1", 1), ("/c", "2", 0), ("/d", "3", 0)];

#[test]
fn next_turn_comes_early_for_undecided_workloads_and_for_moves_that_begin() {
    let mut host = Host::new(&FOUR, "cpus = 1\npolicy = 'none'");
    // What the daemon sees right after its start: residency, and no run time yet.
    let run_times: Vec<_> =
        host.scene.now.cgroups.values_mut().map(|cgroup| cgroup.run_time.take()).collect();
    host.turn();
    assert_eq!((host.next.undecided.len(), host.next.carries_out), (4, false));
    for (cgroup, run_time) in host.scene.now.cgroups.values_mut().zip(run_times) {
        cgroup.run_time = run_time;
    }
    host.pass();
    let (_, turn) = host.turn();
    assert!(!turn.report.moves.is_empty());
    assert_eq!(host.next, NextTurn { carries_out: true, ..NextTurn::default() });
    host.turn();
    assert_eq!(host.next, NextTurn::default());
}

#[test]
fn four_are_exchanged_stay_and_are_left_in_peace() {
    let mut host = Host::new(&FOUR, "cpus = 1\npolicy = 'none'");
    let (decision, planned) = host.turn();
    assert_eq!(decision.plan.steps, [], "a correction has nothing to do here: {decision:?}");
    assert_eq!(planned.report.moves.len(), 4, "{:?}", planned.report);
    assert_eq!(planned.report.bytes, 0);

    let (decision, planned) = host.turn();
    assert!(
        decision.plan.steps.iter().all(|step| matches!(step.action, Action::SetCpus { .. })),
        "{decision:?}"
    );
    assert_eq!(decision.plan.groups.len(), 2, "those that exchange hang together");
    assert_eq!(host.cpus(), "2 3 0 1");
    assert_eq!(planned.report.moves, []);

    let mut verdicts = BTreeMap::new();
    for _ in 0..40 {
        let (decision, turn) = host.turn();
        assert_eq!(decision.plan.steps, []);
        assert_eq!(turn.report.moves, []);
        verdicts.extend(turn.verdicts);
    }
    assert_eq!(verdicts.len(), 4);
    assert!(verdicts.values().all(|verdict| *verdict == MoveVerdict::Held), "{verdicts:?}");
    assert_eq!(host.cpus(), "2 3 0 1");
}

#[test]
fn a_move_that_does_not_help_is_taken_back_and_not_tried_again_soon() {
    let mut host = Host::new(&FOUR[..2], "cpus = 1\npolicy = 'none'");
    host.turn();
    host.turn();
    assert_eq!(host.cpus(), "2 3");
    // One of them reads what another has allocated: where its own memory is says nothing.
    let mut verdicts = BTreeMap::new();
    for _ in 0..8 {
        host.faults("/a", 1);
        verdicts.extend(host.turn().1.verdicts);
    }
    assert_eq!(verdicts.get(&CgroupPath::new("/a")), Some(&MoveVerdict::Held), "it went back: {verdicts:?}");
    assert_eq!(host.cpus(), "0 3");
    let Host { scene, history, .. } = &host;
    let past = &history.rebalance;
    let cooling =
        |path| past.cooling(&CgroupPath::new(path), &scene.policy.rebalance, scene.now.monotonic_ns);
    assert!(cooling("/a").unwrap().contains("which had to be taken back"), "{:?}", cooling("/a"));
}

#[test]
fn nothing_begins_in_observe_mode_and_other_workloads_are_not_moved() {
    let host = Host::new(&FOUR, "cpus = 1\npolicy = 'none'\nenforce = false");
    let mut past = super::MoveHistory::default();
    let mut allocations = Allocations::default();
    let report = host.scene.with_inputs(&Containers::default(), &host.history, |inputs| {
        let decision = crate::decide::decide(inputs, &mut allocations);
        turn(inputs, &mut allocations, &mut past, &decision, 4 << 30, false).0.report
    });
    assert_eq!(report.moves, []);
    assert_eq!(report.left.len(), 4);
    assert!(
        report.left.iter().all(|left| left.reason == "it is declared to be left alone"),
        "{:?}",
        report.left
    );

    let mut host = Host::new(&FOUR, "cpus = 1\npolicy = 'none'");
    let report = host.scene.with_inputs(&Containers::default(), &host.history, |inputs| {
        let decision = crate::decide::decide(inputs, &mut host.allocations);
        turn(inputs, &mut host.allocations, &mut past, &decision, 4 << 30, false).0.report
    });
    assert_eq!(report.moves.len(), 4);
    assert!(!past.is_underway(&CgroupPath::new("/a")));
}

#[test]
fn a_reached_move_that_falls_idle_ends() {
    let mut host = Host::new(&FOUR[..2], "cpus = 1\npolicy = 'none'");
    host.turn();
    host.turn();
    assert_eq!(host.cpus(), "2 3");
    let mut verdicts = BTreeMap::new();
    for _ in 0..40 {
        // Nothing runs: what would count as its run time is taken back.
        for path in ["/a", "/b"] {
            let run_time = host.scene.before.cgroups[&CgroupPath::new(path)].run_time.clone();
            host.scene.now_mut(path).run_time = run_time;
        }
        verdicts.extend(host.turn().1.verdicts);
    }
    let path = CgroupPath::new("/a");
    assert_eq!(verdicts.get(&path), Some(&MoveVerdict::Idle), "{verdicts:?}");
    assert!(!host.history.rebalance.is_underway(&path));
    assert_eq!(host.cpus(), "2 3", "it stays");
}

#[test]
fn aim_is_given_up_when_its_cpus_were_given_away() {
    let mut host = Host::new(&FOUR[..1], "cpus = 1\npolicy = 'none'");
    host.turn();
    assert!(host.history.rebalance.is_underway(&CgroupPath::new("/a")));
    let aim = host.history.rebalance.aim(&CgroupPath::new("/a")).unwrap().exclusive.clone();
    // The kubelet hands the same CPU to a container.
    let grant = Grant { engine: "others", policy: "others", exclusive: aim, ..Grant::default() };
    host.allocations.give(Holder::new(numa_placement::PodName::new("shop", "web"), "main".into()), grant);
    let (decision, turn) = host.turn();
    assert_eq!(turn.verdicts.get(&CgroupPath::new("/a")), Some(&MoveVerdict::GivenUp), "{decision:?}");
    assert!(!host.history.rebalance.is_underway(&CgroupPath::new("/a")));
}
