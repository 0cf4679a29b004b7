//! Bytes between the tiers of memory.

use std::borrow::Cow;

use enforcer_core::workload::CgroupPath;

use super::{
    family::{Family, FamilyOf, Scrape},
    number::to_f64,
    values,
};
use crate::demotion::DemotionReport;

const MOVED: FamilyOf<3> = Family::counter("workload_tier_moved_bytes_total",
    ["workload", "direction", "source"],
    "Bytes of the workload that went to slower memory (down) or came back (up), by the detector that saw them cold or touched; \
     kernel for what it promoted itself.",
)
.of(&[values::DIRECTION, values::TIER_SOURCE]);
const CARRIED: FamilyOf<2> = Family::counter("workload_demoted_bytes_total",
    ["workload", "backend"],
    "Bytes of the workload that went to slower memory, by backend; of damos and reclaim as memory.numa_stat shows it, \
     which lags a little.",
)
.of(&[values::BACKEND]);
const COLD: FamilyOf<2> = Family::gauge("workload_cold_bytes",
    ["workload", "source"],
    "Idle bytes of the workload, not touched for the idle time, by detector; lru-gen is the kernel's own estimate.",
)
.of(&[values::COLD_SOURCE]);
const HALVINGS: FamilyOf<1> = Family::gauge(
    "workload_demotion_halvings",
    ["workload"],
    "How often the amount of a round is halved because pages were wanted back.",
);

/// Source of the kernel's own estimate.
const ESTIMATE: &str = "lru-gen";

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[&MOVED, &CARRIED, &COLD, &HALVINGS];

/// Series of workloads with demotion; `label_of` gives the label of a cgroup.
pub(super) fn put<'a>(
    report: &'a DemotionReport,
    label_of: impl Fn(&'a CgroupPath) -> Cow<'a, str>,
    scrape: &mut Scrape,
) {
    for (path, moves) in report {
        let workload = &*label_of(path);
        for (direction, by_source) in [("down", &moves.down_bytes), ("up", &moves.up_bytes)] {
            for (source, bytes) in by_source {
                scrape.put(&MOVED, &[workload, direction, source], Some(to_f64(*bytes)));
            }
        }
        for (backend, bytes) in &moves.by_backend {
            scrape.put(&CARRIED, &[workload, backend], Some(to_f64(*bytes)));
        }
        let Some(latest) = &moves.latest else { continue };
        scrape.put(&COLD, &[workload, latest.source], Some(to_f64(latest.cold_bytes)));
        if latest.source != ESTIMATE {
            scrape.put(&COLD, &[workload, ESTIMATE], latest.estimate_bytes.map(to_f64));
        }
        scrape.put(&HALVINGS, &[workload], Some(f64::from(latest.halvings)));
    }
}
