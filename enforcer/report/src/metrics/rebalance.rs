//! Workloads that run and were given a better place.

use super::{
    family::{Family, FamilyOf, Scrape},
    number::to_f64,
    values,
};
use crate::tick::TickReport;

const MOVES: FamilyOf<1> = Family::counter("rebalance_moves_total",
    ["outcome"],
    "Workloads that were moved: begun, and of these held (it fares better), reverted (it does not, and went back), stays (it \
     does not, and could not go back), given-up.",
)
.of(&[values::OUTCOME]);
const BYTES: FamilyOf<0> = Family::counter(
    "rebalance_planned_bytes_total",
    [],
    "Memory that the moves that were begun were to move.",
);
const PLANNED: FamilyOf<0> =
    Family::gauge("rebalance_moves_planned", [], "Moves of the latest plan, whether or not they were begun.");
const GAIN: FamilyOf<0> = Family::gauge(
    "rebalance_gain_seconds",
    [],
    "CPU time that the latest plan is to save within its horizon.",
);

/// Every metric there is of it.
pub(super) const FAMILIES: &[&Family] = &[&MOVES, &BYTES, &PLANNED, &GAIN];

/// Nothing while `rebalance.enabled` is off.
pub(super) fn put(report: &TickReport, scrape: &mut Scrape) {
    let Some(rebalanced) = &report.rebalanced else { return };
    let totals = &report.totals.rebalance;
    for (outcome, moves) in [
        ("begun", totals.begun),
        ("held", totals.held),
        ("reverted", totals.reverted),
        ("stays", totals.stays),
        ("given-up", totals.given_up),
    ] {
        scrape.put(&MOVES, &[outcome], Some(to_f64(moves)));
    }
    scrape.put(&BYTES, &[], Some(to_f64(totals.bytes)));
    scrape.put(&PLANNED, &[], Some(to_f64(rebalanced.report.moves.len() as u64)));
    scrape.put(&GAIN, &[], Some(rebalanced.report.gain));
}
