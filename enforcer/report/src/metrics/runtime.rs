//! The link to the container runtime, and what came over it.

use super::{
    family::{Family, FamilyOf, Scrape},
    number::{count, to_f64, truth},
    values,
};
use crate::runtime::{RuntimeLink, RuntimeReport};

const UP: FamilyOf<0> = Family::gauge("nri_up", [], "1 when a container runtime is connected.");
const CONTAINERS: FamilyOf<0> =
    Family::gauge("nri_containers", [], "Containers that the runtime told of and that have not ended.");
const UNPLACED: FamilyOf<0> = Family::gauge(
    "nri_containers_unplaced",
    [],
    "Of these, containers that have no place: they run on CPUs that are exclusive to no container, or on what \
     they had before they asked for more.",
);
const CALLS: FamilyOf<1> =
    Family::counter("nri_calls_total", ["call"], "Calls of the runtime.").of(&[values::CALL]);
const LATE: FamilyOf<0> = Family::counter(
    "nri_late_answers_total",
    [],
    "Answers that came after the runtime had been told that nothing changes; the next turn writes them.",
);
const DECIDING: FamilyOf<0> = Family::counter(
    "nri_deciding_seconds_total",
    [],
    "Time from the last byte of a call to its answer, summed over all calls.",
);
const LONGEST: FamilyOf<0> =
    Family::gauge("nri_deciding_longest_seconds", [], "The longest of these times since the turn before.");

const CREATIONS: FamilyOf<0> = Family::histogram(
    "nri_create_duration_seconds",
    "Time from the last byte of a call about a container that is created to its answer.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] =
    &[&UP, &CONTAINERS, &UNPLACED, &CALLS, &LATE, &DECIDING, &LONGEST, &CREATIONS];

/// Absent where no runtime was looked for.
pub(super) fn put(runtime: Option<&RuntimeReport>, scrape: &mut Scrape) {
    let Some(runtime) = runtime else { return };
    scrape.put(&UP, &[], Some(truth(matches!(runtime.link, RuntimeLink::Up { .. }))));
    scrape.put(&CONTAINERS, &[], Some(count(runtime.containers)));
    scrape.put(&UNPLACED, &[], Some(count(runtime.unplaced.len())));
    for (call, calls) in &runtime.calls {
        scrape.put(&CALLS, &[call], Some(to_f64(*calls)));
    }
    scrape.put(&LATE, &[], Some(to_f64(runtime.late)));
    scrape.put(&DECIDING, &[], Some(runtime.deciding.sum.as_secs_f64()));
    scrape.put(&LONGEST, &[], runtime.deciding.longest.map(|time| time.as_secs_f64()));
    scrape.put_times(&CREATIONS, &[], &runtime.deciding.creations);
}
