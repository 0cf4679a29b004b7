//! What one workload's rounds leave for the next one: trust in the detector, bytes below, the backend.

use std::{
    collections::BTreeMap,
    mem::Discriminant,
    time::{Duration, Instant},
};

use enforcer_core::{
    demotion::{DemotionBackoff, DemotionInput, DemotionRound, PageFlow, backend::BackendObstacle},
    named::Named as _,
    policy::DemotionBackend,
    sample::Count as _,
};

use crate::engine::decisions::entry;
use enforcer_act::pages::{PageBudget, PageMoveReport, move_flow};
use enforcer_host::HostPath;
use enforcer_kernel::Kernel;
use enforcer_observe::cold::ColdLook;
use enforcer_report::{
    decision::{DecisionRecord, DecisionState},
    demotion::{LatestRound, TierMoves},
    units,
};

/// Most rounds skipped in a row because no cold page was left to move.
pub(super) const LONGEST_REST: u32 = 8;

/// State of one workload between two rounds.
#[derive(Default)]
pub(super) struct WorkloadDemotion {
    pub(super) trust: DemotionBackoff,
    pub(super) latest: Option<Instant>,
    /// When it may next make room for another workload, and the wait after a vain attempt.
    pub(super) relieves: Option<(Instant, Duration)>,
    /// The kernel's promotion count at the latest look.
    pub(super) promoted: Option<u64>,
    /// Bytes that we moved down and that did not return.
    pub(super) below: u64,
    /// Bytes moved beyond the rate: a huge page moves as a whole or not at all.
    pub(super) owed: u64,
    pub(super) moves: TierMoves,
    pub(super) rest: RoundBackoff,
    pub(super) carriage: BackendChoice,
    /// The latest record without its byte counts.
    pub(super) said: Option<(DecisionState, String)>,
}

/// Rounds skipped because all cold pages have gone down already.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundBackoff {
    /// Rounds left.
    pub(super) left: u32,
    /// Length of this rest in rounds. The next rest is twice as long if nothing goes down after it.
    pub(super) length: u32,
}

/// Backend state of one workload.
#[derive(Default)]
pub(super) struct BackendChoice {
    /// Backend of the latest round.
    pub(super) by: DemotionBackend,
    /// Why the configured backend was not used.
    pub(super) refused: Option<String>,
    /// Obstacles that were logged already.
    pub(super) told: Vec<Discriminant<BackendObstacle>>,
    /// Rounds in succession in which a large request moved nothing.
    pub(super) in_vain: u32,
}

impl BackendChoice {
    /// Number of different obstacles logged.
    pub(super) fn told(&self) -> usize {
        self.told.len()
    }
}

impl WorkloadDemotion {
    /// Records the result of a round: bytes down and up.
    pub(super) fn remember(&mut self, [down, up]: [u64; 2], look: &ColdLook, of: &DemotionInput<'_>) {
        let before = std::mem::replace(&mut self.promoted, look.promoted);
        let by_kernel = look.promoted.zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        let returned = up.saturating_add(by_kernel).min(self.below);
        self.trust.note(down, self.below, returned, of.idle, of.now_ns);
        self.below = (self.below - returned).saturating_add(down);
        add(&mut self.moves.down_bytes, look.source, down);
        add(&mut self.moves.up_bytes, look.source, up);
        add(&mut self.moves.up_bytes, "kernel", by_kernel);
    }

    /// Summary of a round for the report.
    pub(super) fn seen(&self, look: &ColdLook, round: &DemotionRound) -> LatestRound {
        LatestRound {
            source: look.source,
            cold_bytes: round.cold,
            hot_bytes: round.hot,
            estimate_bytes: look.estimate,
            bound: round.bound,
            backend: self.carriage.by.name(),
            backend_refused: self.carriage.refused.clone(),
            halvings: self.trust.halvings(),
            unwatched: look.unwatched.clone(),
        }
    }

    /// A record, unless nothing moved and the latest record said the same.
    pub(super) fn tell(
        &mut self,
        state: DecisionState,
        gist: String,
        reason: String,
    ) -> Option<DecisionRecord> {
        let said = Some((state, gist));
        let again = self.said == said && state != DecisionState::Tiered;
        self.said = said;
        (!again).then(|| DecisionRecord { reason, ..entry("demotion", state) })
    }
}

pub(super) fn add(sums: &mut BTreeMap<&'static str, u64>, source: &'static str, bytes: u64) {
    if bytes > 0 {
        sums.entry(source).or_default().add(&bytes);
    }
}

/// Carries flows out. Returns the bytes moved and adds a line for each flow that moved some.
pub(super) fn moved(
    kernel: &dyn Kernel,
    flows: &[PageFlow],
    proc: &HostPath,
    budget: &mut PageBudget,
    lines: &mut Vec<String>,
) -> u64 {
    let mut sum = 0u64;
    for flow in flows {
        let report: PageMoveReport = move_flow(kernel, proc, budget, flow);
        sum = sum.saturating_add(report.moved_bytes);
        let left = report.left();
        if report.moved_bytes > 0 || !left.is_empty() {
            let moved = units::bytes(report.moved_bytes);
            let mut line = vec![format!("{moved} went from node {} to node {}", flow.from, flow.to)];
            line.extend(left);
            lines.push(line.join(", "));
        }
    }
    sum
}
