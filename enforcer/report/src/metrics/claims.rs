//! Resource claims that the DRA driver has prepared.

use super::{
    family::{Family, FamilyOf, Scrape},
    number::{count, to_f64, truth},
    values,
};
use crate::claims::ClaimsReport;

const CLAIMS: FamilyOf<0> = Family::gauge("dra_claims", [], "Resource claims that are prepared.");
const CONTAINERS: FamilyOf<0> =
    Family::gauge("dra_containers", [], "Containers that have what resource claims give them.");
const CPUS: FamilyOf<2> = Family::gauge(
    "dra_cpus",
    ["numa_node", "state"],
    "CPUs of the NUMA node: capacity is what claims may have exclusively, exclusive what they have, shared is exclusive to \
     no claim and to no container.",
)
.of(&[values::CLAIM_CPUS]);
const MEMORY: FamilyOf<2> = Family::gauge(
    "dra_memory_bytes",
    ["numa_node", "state"],
    "Memory of the NUMA node: capacity is what claims may have, promised what they have.",
)
.of(&[values::CLAIM_MEMORY]);
const REGISTERED: FamilyOf<0> =
    Family::gauge("dra_kubelet_registered", [], "1 when the kubelet has registered the driver.");
const PREPARED: FamilyOf<1> = Family::counter(
    "dra_prepare_total",
    ["result"],
    "Calls that prepare a claim: ok also of a claim that was prepared already.",
)
.of(&[values::CLAIM_CALL]);
const PREPARING: FamilyOf<0> = Family::counter(
    "dra_prepare_seconds_total",
    [],
    "Time of calls that prepare a claim, summed over all; waits for the API server and for CPUs included.",
);
const GIVEN_UP: FamilyOf<1> =
    Family::counter("dra_unprepare_total", ["result"], "Calls that give a claim up.")
        .of(&[values::CLAIM_CALL]);
const SLICE_WRITES: FamilyOf<0> =
    Family::counter("dra_slice_writes_total", [], "Writes of resource slices to the API server.");
const SPOOFED: FamilyOf<0> = Family::counter(
    "dra_spoofed_total",
    [],
    "Containers that named a claim and got nothing of it: it is not prepared, or not reserved for their pod.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[
    &CLAIMS,
    &CONTAINERS,
    &CPUS,
    &MEMORY,
    &REGISTERED,
    &PREPARED,
    &PREPARING,
    &GIVEN_UP,
    &SLICE_WRITES,
    &SPOOFED,
];

/// Absent where `dra.enabled` is off.
pub(super) fn put(claims: Option<&ClaimsReport>, scrape: &mut Scrape) {
    let Some(claims) = claims else { return };
    scrape.put(&CLAIMS, &[], Some(count(claims.claims)));
    scrape.put(&CONTAINERS, &[], Some(count(claims.containers)));
    for (node, has) in &claims.nodes {
        let node = node.to_string();
        for (state, cpus) in [
            ("capacity", has.exclusive_capacity),
            ("exclusive", has.exclusive_cpus),
            ("shared", has.shared_cpus),
        ] {
            scrape.put(&CPUS, &[&node, state], Some(to_f64(cpus)));
        }
        for (state, bytes) in [("capacity", has.memory_capacity), ("promised", has.memory_promised)] {
            scrape.put(&MEMORY, &[&node, state], Some(to_f64(bytes)));
        }
    }
    let calls = &claims.calls;
    scrape.put(&REGISTERED, &[], Some(truth(calls.is_registered)));
    for (result, number) in [("ok", calls.prepared), ("error", calls.refused)] {
        scrape.put(&PREPARED, &[result], Some(to_f64(number)));
    }
    scrape.put(&PREPARING, &[], Some(calls.prepare_seconds));
    for (result, number) in [("ok", calls.given_up), ("error", calls.kept)] {
        scrape.put(&GIVEN_UP, &[result], Some(to_f64(number)));
    }
    scrape.put(&SLICE_WRITES, &[], Some(to_f64(calls.slice_writes)));
    scrape.put(&SPOOFED, &[], Some(to_f64(claims.spoofed)));
}
