//! A turn that is replayed is the turn that was taken; another policy, another plan.

use super::*;
use crate::{
    plan::{Action, Step},
    scene::Scene,
};
use numa_topology::synth::Machine;

/// `/a` is declared and runs on node 1 with its memory on node 0.
fn scene() -> Scene {
    Scene::new(Machine::new().sockets(2).threads(1).build())
        .workload("/a", "4-7", "0-1")
        .memory("/a", &[(0, 300, 0), (1, 100, 0)])
        .declared("/a", 2, Some("512MiB"))
}

fn situation(scene: &Scene) -> TurnInput {
    TurnInput {
        machine: scene.machine.clone(),
        policy: scene.policy.clone(),
        facts: scene.facts.clone(),
        workloads: scene.workloads.clone(),
        before: Some(scene.before.clone()),
        sample: scene.now.clone(),
        written: scene.written.clone(),
        partitioned: scene.partitioned.clone(),
        widened: scene.widened.clone(),
        now_ns: scene.now.monotonic_ns,
        ..TurnInput::default()
    }
}

fn made(decision: Decision) -> RecordedOutput {
    RecordedOutput { decision, rebalanced: None }
}

#[test]
fn the_same_situation_gives_the_same_decision() {
    let scene = scene();
    let situation = situation(&scene);
    situation.check().unwrap();
    let (taken, effect) = situation.replay(&scene.policy);
    assert!(!taken.decision.plan.steps.is_empty());
    assert_eq!(taken.decision, scene.decide());
    assert_eq!(differences(&made(scene.decide()), &taken.into()), None);
    assert_eq!((effect.placed, effect.misplaced_bytes_then), (1, 0));
    assert_eq!(effect.bytes, effect.misplaced_bytes);
    assert!(effect.bytes >= 100 << 20, "{effect:?}");
}

#[test]
fn another_policy_is_told_by_its_steps_and_goals() {
    let scene = scene();
    let mut replay = Replay::new(Some(&scene.policy));
    let undeclared = Policy::default();
    let mut other = Replay::new(Some(&undeclared));
    let recorded = made(scene.decide());
    for replay in [&mut replay, &mut other] {
        replay.begins("1.2.3");
        replay.turn(&situation(&scene), &recorded, &[], 2);
    }
    let same = replay.end(None);
    assert_eq!((same.different, same.recording.turns, same.recording.dropped), (0, 1, 2));
    assert_eq!(same.recorded, same.now);

    let report = other.end(Some("somewhere".into()));
    let [turn] = &report.turns[..] else { panic!("{report:?}") };
    assert_eq!(turn.difference.gone.len(), recorded.decision.plan.steps.len());
    assert_eq!(turn.difference.goals[&CgroupPath::new("/a")].now, None);
    assert!(turn.difference.new.is_empty() && turn.now.steps == 0);
    assert_eq!(report.now.turns_with_steps, 0);
}

#[test]
fn words_do_not_count_and_order_does() {
    let step = |cpus: &str, reason: &str| Step {
        action: Action::SetCpus { cgroup: CgroupPath::new("/a"), cpus: cpus.parse().unwrap() },
        reason: reason.into(),
    };
    let plan = |steps: &[Step]| {
        let mut decision = Decision::default();
        decision.plan.steps = steps.to_vec();
        made(decision)
    };
    let then = plan(&[step("0", "a"), step("1", "b")]);
    assert_eq!(differences(&then, &plan(&[step("0", "x"), step("1", "y")])), None);
    let other = differences(&then, &plan(&[step("1", "b"), step("0", "a")])).unwrap();
    assert!(other.reordered && other.gone.is_empty() && other.new.is_empty());
    let twice = differences(&then, &plan(&[step("0", "a"), step("1", "b"), step("1", "b")])).unwrap();
    assert_eq!((twice.new.len(), twice.gone.len(), twice.reordered), (1, 0, false));
}
