//! Recorded turns can be replayed with the same result.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use enforcer_core::replay::{Replay, ReplayReport};
use proptest::prelude::*;

use super::*;
use crate::record::{
    FrameReader, Recorder, RecordingError, RecordingFile, RecordingItem as FromFile, RecordingReader, frame,
};

fn try_replay(bytes: &[u8], policy: Option<&Policy>) -> Result<ReplayReport, RecordingError> {
    let mut reader = RecordingReader::new(bytes);
    let mut replay = Replay::new(policy);
    while let FromFile::Turn(turn) = reader.turn()? {
        replay.turn(turn.situation, &turn.made, &turn.outcomes, turn.dropped);
    }
    Ok(replay.end(None))
}

fn replayed(bytes: &[u8], policy: Option<&Policy>) -> ReplayReport {
    try_replay(bytes, policy).unwrap()
}

/// Runs a turn and waits until it is in the file: a turn is skipped while earlier ones are not written.
fn recorded<T, E>(path: &Path, turn: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let length = || fs::metadata(path).unwrap().len();
    let before = length();
    let report = turn()?;
    let until = Instant::now() + Duration::from_mins(1);
    while length() == before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(report)
}

#[test]
fn a_recorded_engine_decides_the_same_again_and_another_policy_something_else() {
    for mode in [Mode::Observe, Mode::Enforce] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turns.rec");
        let mut rig = rig(mode);
        rig.engine.set_recorder(Recorder::start(RecordingFile::open(&path, 1 << 20).unwrap()).unwrap());
        let mut reports = Vec::new();
        for turn in 1..=4 {
            *rig.broken.borrow_mut() = (turn == 3).then_some("workloads");
            reports.extend(recorded(&path, || rig.engine.turn(turn * 10 * SECOND)));
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
        assert_eq!((other.different, other.now.steps), (3, 0), "no workload is declared: {other:#?}");
    }
}

/// The lines of all frames, which are put into frames again.
fn lines() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.rec");
    let mut rig = rig(Mode::Enforce);
    let policy = Policy { mode: Mode::Enforce, ..rig.engine.policy().clone() };
    let rebalance = enforcer_core::policy::RebalanceSettings { enabled: true, ..policy.rebalance.clone() };
    rig.engine.set_policy(Policy { rebalance, ..policy });
    rig.engine.set_recorder(Recorder::start(RecordingFile::open(&path, 1 << 20).unwrap()).unwrap());
    for turn in 1..=2 {
        recorded(&path, || rig.engine.turn(turn * 10 * SECOND)).unwrap();
    }
    drop(rig);
    let bytes = fs::read(&path).unwrap();
    let (mut frames, mut all) = (FrameReader::at(0, &bytes[..]), Vec::new());
    while let frame::FrameStep::Frame(plain) = frames.read().unwrap() {
        all.push(String::from_utf8(plain).unwrap());
    }
    assert_eq!(all.len(), 2);
    all
}

/// `text` with one number replaced.
fn with_number(text: &str, which: usize, number: &str) -> String {
    let starts: Vec<usize> = text
        .char_indices()
        .zip(std::iter::once(' ').chain(text.chars()))
        .filter(|((_, c), before)| c.is_ascii_digit() && !before.is_ascii_digit())
        .map(|((at, _), _)| at)
        .collect();
    let at = starts[which % starts.len()];
    let end = text[at..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |length| at + length);
    format!("{}{number}{}", &text[..at], &text[end..])
}

#[test]
fn a_recording_that_was_made_up_is_refused_or_decided_and_nothing_worse() {
    let lines = lines();
    let numbers = [
        "0",
        "1",
        "63",
        "1023",
        "8191",
        "65535",
        "4294967295",
        "9223372036854775807",
        "18446744073709551615",
    ];
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(changes in prop::collection::vec((0usize..100_000, 0..numbers.len()), 1..4))| {
        let mut file = Vec::new();
        for frame in &lines {
            let text = changes.iter().fold(frame.clone(), |text, (which, number)| {
                with_number(&text, *which, numbers[*number])
            });
            file.extend(frame::encode(text.as_bytes()).unwrap());
        }
        let _ = try_replay(&file, None);
    });
}
