//! Report of a replay: the turns with a different decision, and totals of all turns.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, RecordedOutput, TurnDifference, TurnInput, differences};
use crate::named::Named as _;
use crate::{plan::Outcome, policy::Policy};

/// Version of the serde form of [`ReplayReport`].
pub const REPLAY_SCHEMA_VERSION: u32 = 1;

/// Limit of listed turns; all are counted.
const LISTED: usize = 1000;

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// [`REPLAY_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The recording.
    pub recording: RecordingSummary,
    /// True if another policy than the recorded one was asked.
    pub other_policy: bool,
    /// Number of turns with differences.
    pub different: u64,
    /// The first of them.
    pub turns: Vec<ReplayedTurn>,
    /// Number of different turns that are not listed.
    pub unlisted: u64,
    /// Totals of all turns, as recorded.
    pub recorded: ReplayTotals,
    /// Totals of all turns, as decided now.
    pub now: ReplayTotals,
}

/// The recording that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Recording")]
pub struct RecordingSummary {
    /// Versions of the daemons that wrote it, in order.
    pub versions: Vec<String>,
    /// Number of turns.
    pub turns: u64,
    /// Turns that the daemon could not write in time.
    pub dropped: u64,
    /// Recorded steps by result: `applied`, `failed`, `dry-run`.
    pub outcomes: BTreeMap<String, u64>,
    /// Where and why it ends early.
    pub ends: Option<String>,
}

/// One turn with differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayedTurn {
    /// Its number in the recording, from 1.
    pub turn: u64,
    /// Seconds since the first turn of its daemon.
    pub at_seconds: f64,
    /// The differences.
    #[serde(flatten)]
    pub difference: TurnDifference,
    /// Figures of the recorded plan.
    pub recorded: Effect,
    /// Figures of the plan now.
    pub now: Effect,
}

/// Figures of all turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Totals")]
pub struct ReplayTotals {
    /// Turns with a plan that has steps.
    pub turns_with_steps: u64,
    /// Steps of all plans. A step that is not carried out is planned again in the next turn.
    pub steps: u64,
    /// Most bytes that one plan moves.
    pub most_bytes: u64,
    /// Most misplaced bytes in one turn.
    pub most_misplaced_bytes: u64,
    /// Figures of the last turn.
    pub last: Effect,
}

impl ReplayTotals {
    fn add(&mut self, effect: Effect) {
        self.turns_with_steps += u64::from(effect.steps > 0);
        self.steps = self.steps.saturating_add(effect.steps);
        self.most_bytes = self.most_bytes.max(effect.bytes);
        self.most_misplaced_bytes = self.most_misplaced_bytes.max(effect.misplaced_bytes);
        self.last = effect;
    }
}

/// A replay in progress.
#[derive(Debug)]
pub struct Replay<'a> {
    policy: Option<&'a Policy>,
    first_ns: Option<u64>,
    report: ReplayReport,
}

impl<'a> Replay<'a> {
    /// Replays by another policy, or each turn by its own.
    pub fn new(policy: Option<&'a Policy>) -> Self {
        let other_policy = policy.is_some();
        let report =
            ReplayReport { schema_version: REPLAY_SCHEMA_VERSION, other_policy, ..ReplayReport::default() };
        Self { policy, first_ns: None, report }
    }

    /// Begins the turns of another daemon.
    pub fn begins(&mut self, version: &str) {
        self.report.recording.versions.push(version.to_owned());
        self.first_ns = None;
    }

    /// Adds the next turn: its input, its recorded output, the outcomes of its steps, and the number of
    /// missing turns before it.
    pub fn turn(
        &mut self,
        situation: &TurnInput,
        recorded: &RecordedOutput,
        outcomes: &[Outcome],
        dropped: u64,
    ) {
        let report = &mut self.report;
        report.recording.turns += 1;
        report.recording.dropped = report.recording.dropped.saturating_add(dropped);
        for outcome in outcomes {
            *report.recording.outcomes.entry(outcome.result.name().to_owned()).or_default() += 1;
        }
        let (taken, now) = situation.replay(self.policy.unwrap_or(&situation.policy));
        let made = RecordedOutput::from(taken);
        let then = situation.effect(&recorded.decision);
        report.recorded.add(then);
        report.now.add(now);
        let first_ns = *self.first_ns.get_or_insert(situation.now_ns);
        let Some(difference) = differences(recorded, &made) else { return };
        report.different += 1;
        if report.turns.len() >= LISTED {
            report.unlisted += 1;
            return;
        }
        let at = std::time::Duration::from_nanos(situation.now_ns.saturating_sub(first_ns));
        report.turns.push(ReplayedTurn {
            turn: report.recording.turns,
            at_seconds: at.as_secs_f64(),
            difference,
            recorded: then,
            now,
        });
    }

    /// The report; `ends` says where and why the recording ends early.
    pub fn end(self, ends: Option<String>) -> ReplayReport {
        let mut report = self.report;
        report.recording.ends = ends;
        report
    }
}
