//! Bytes between the tiers of memory.

use super::{
    family::{Family, Scrape},
    label::bounded,
    series::to_f64,
};
use crate::report::demotion::DemotionReport;

const MOVED: Family = Family::counter(
    "workload_tier_moved_bytes_total",
    &["workload", "cgroup", "direction", "source"],
    "Bytes of the workload that went to slower memory (down) or came back (up), by who saw that they were cold or touched; \
     kernel for what it promoted itself.",
);
const COLD: Family = Family::gauge(
    "workload_cold_bytes",
    &["workload", "cgroup", "source"],
    "Bytes of the workload that nobody touched for the idle time, by who looked; lru-gen is the kernel's own estimate.",
);
const HALVINGS: Family = Family::gauge(
    "workload_demotion_halvings",
    &["workload", "cgroup"],
    "How often the amount of a round is halved because pages were wanted back.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[&MOVED, &COLD, &HALVINGS];

/// Of workloads that are declared for it; `name_of` is what people call a cgroup.
pub(super) fn put<'a>(report: &'a DemotionReport, name_of: impl Fn(&'a str) -> &'a str, scrape: &mut Scrape) {
    for (path, moves) in report {
        let (name, cgroup) = (&*bounded(name_of(path.as_str())), &*bounded(path.as_str()));
        for (direction, by_source) in [("down", &moves.down_bytes), ("up", &moves.up_bytes)] {
            for (source, bytes) in by_source {
                scrape.put(&MOVED, &[name, cgroup, direction, source], Some(to_f64(*bytes)));
            }
        }
        let Some(latest) = &moves.latest else { continue };
        scrape.put(&COLD, &[name, cgroup, latest.source], Some(to_f64(latest.cold_bytes)));
        scrape.put(&COLD, &[name, cgroup, "lru-gen"], latest.estimate_bytes.map(to_f64));
        scrape.put(&HALVINGS, &[name, cgroup], Some(f64::from(latest.halvings)));
    }
}
