//! Moves to slower memory and back, by workload.

use std::collections::BTreeMap;

use enforcer_core::{demotion::AmountBound, workload::CgroupPath};
use serde::Serialize;

/// Moves of cold pages, by workload.
pub type DemotionReport = BTreeMap<CgroupPath, TierMoves>;

/// Totals of one workload, since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TierMoves {
    /// Bytes moved to slower memory, by the detector that found them cold.
    pub down_bytes: BTreeMap<&'static str, u64>,
    /// Bytes moved back to faster memory, by the detector that found them in use; `kernel` for pages that the
    /// kernel promoted.
    pub up_bytes: BTreeMap<&'static str, u64>,
    /// Bytes moved to slower memory, by the backend that moved them.
    pub by_backend: BTreeMap<&'static str, u64>,
    /// The latest round; `None` before the first.
    pub latest: Option<LatestRound>,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LatestRound {
    /// Detector of idle pages.
    pub source: &'static str,
    /// Bytes of ranges that were cold, whatever tier they are on and whether or not pages are in all of them.
    pub cold_bytes: u64,
    /// Bytes of ranges that were hot, likewise.
    pub hot_bytes: u64,
    /// Bytes that the kernel's generations hold for cold; `None` where it does not say.
    pub estimate_bytes: Option<u64>,
    /// The bound that decided the amount; `None` where the cpuset allows no slower node.
    pub bound: Option<AmountBound>,
    /// Backend that moves pages to slower memory.
    pub backend: &'static str,
    /// Why it is another backend than the configured one; `null` where it is that one.
    pub backend_refused: Option<String>,
    /// How often the amount is halved because pages were wanted back.
    pub halvings: u32,
    /// Processes that could not be watched, the first with its reason.
    pub unwatched: Option<String>,
}
