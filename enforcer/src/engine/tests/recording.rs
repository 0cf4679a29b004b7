//! What the engine records can be taken again, and comes out the same.

use std::fs;

use enforcer_core::replay::{Replay, ReplayReport};

use super::*;
use crate::record::{Reader, Recorded as FromFile, Recorder, Target};

fn replayed(bytes: &[u8], policy: Option<&Policy>) -> ReplayReport {
    let mut reader = Reader::new(bytes).unwrap();
    let mut replay = Replay::new(policy);
    while let FromFile::Turn(turn) = reader.turn().unwrap() {
        replay.turn(turn.situation, &turn.made, &turn.outcomes, turn.dropped);
    }
    replay.end(None)
}

#[test]
fn a_recorded_engine_decides_the_same_again_and_another_policy_something_else() {
    for mode in [Mode::Observe, Mode::Enforce] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turns.rec");
        let mut rig = rig(mode);
        rig.engine.set_recorder(Recorder::start(Target::open(&path, 1 << 20).unwrap()).unwrap());
        let mut reports = Vec::new();
        for turn in 1..=4 {
            *rig.broken.borrow_mut() = (turn == 3).then_some("workloads");
            reports.extend(rig.engine.tick(turn * 10 * SECOND));
        }
        let policy = rig.engine.policy().clone();
        drop(rig);
        let bytes = fs::read(&path).unwrap();

        let report = replayed(&bytes, None);
        assert_eq!((report.recording.turns, report.different), (3, 0), "{report:#?}");
        let steps: usize = reports.iter().map(|report| report.decision.plan.steps.len()).sum();
        assert!(steps > 0);
        assert_eq!(report.recorded.steps, steps as u64);
        let result = if mode == Mode::Enforce { "applied" } else { "dry-run" };
        assert!(report.recording.outcomes.contains_key(result), "{:?}", report.recording.outcomes);
        assert_eq!(replayed(&bytes, Some(&policy)).different, 0);

        let other = replayed(&bytes, Some(&Policy::default()));
        assert_eq!((other.different, other.now.steps), (3, 0), "nobody is declared: {other:#?}");
    }
}
