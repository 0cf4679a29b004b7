//! What became of earlier writes: refused ones are not repeated at once, and another writer is not fought.

use std::collections::BTreeMap;

use numa_topology::set::CpuSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InterruptChange, InterruptTable, SteeredInterrupts};
use crate::workload::printable;

/// Time after the first refusal; it doubles with each further one.
const FIRST_RETRY_NS: u64 = 60_000_000_000;
/// Longest time, and the time for which another writer's value stays.
const LONGEST_RETRY_NS: u64 = 3_600_000_000_000;
/// Writes of another writer after which its value stays.
const FOREIGN_WRITES: u32 = 3;

/// An interrupt that keeps its CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterruptRefusal {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Operation and cause.
    pub cause: String,
    /// The kernel takes no CPUs for it: it is not tried again.
    pub is_fixed: bool,
    /// It is fixed, and of a PCI device: the kernel chooses its CPUs when it is set up.
    pub is_managed: bool,
}

#[derive(Debug, Clone)]
struct Held {
    refusal: InterruptRefusal,
    identity: Option<String>,
    retry_ns: u64,
    times: u32,
}

impl Held {
    fn waits(&self, now_ns: u64) -> bool {
        self.refusal.is_fixed || now_ns < self.retry_ns
    }
}

/// Writes of another writer.
#[derive(Debug, Clone, Default)]
struct ForeignWrites {
    times: u32,
    /// The value that was counted last, until the daemon sets another one.
    counted: Option<CpuSet>,
}

/// Refusals and foreign writes by number of the interrupt.
#[derive(Debug, Clone, Default)]
pub struct InterruptHistory {
    held: BTreeMap<u32, Held>,
    foreign_writes: BTreeMap<u32, ForeignWrites>,
}

impl InterruptHistory {
    /// Notes interrupts that another writer has set since, each value once, and forgets those that are gone.
    pub fn look(&mut self, table: &InterruptTable, steered: &SteeredInterrupts, now_ns: u64) {
        let of = |number: u32| {
            let at = table.interrupts.binary_search_by_key(&number, |one| one.number).ok();
            at.and_then(|at| table.interrupts.get(at))
        };
        self.held.retain(|number, held| of(*number).is_some_and(|one| one.identity == held.identity));
        self.foreign_writes.retain(|number, _| of(*number).is_some());
        for (number, steered) in steered {
            let Some(one) = of(*number) else { continue };
            let Some(foreign) = one.affinity.as_ref().filter(|affinity| !steered.has_set(affinity)) else {
                continue;
            };
            let writes = self.foreign_writes.entry(*number).or_default();
            if writes.counted.as_ref() == Some(foreign) {
                continue;
            }
            writes.counted = Some(foreign.clone());
            writes.times += 1;
            if writes.times >= FOREIGN_WRITES {
                writes.times = 0;
                let refusal = InterruptRefusal {
                    number: *number,
                    name: printable(&one.name),
                    cause: "another program sets its CPUs repeatedly; they are left alone for an hour"
                        .to_owned(),
                    is_fixed: false,
                    is_managed: false,
                };
                let retry_ns = now_ns.saturating_add(LONGEST_RETRY_NS);
                self.held
                    .insert(*number, Held { refusal, identity: one.identity.clone(), retry_ns, times: 0 });
            }
        }
    }

    /// The changes that may be tried now.
    pub fn due(&self, mut changes: Vec<InterruptChange>, now_ns: u64) -> Vec<InterruptChange> {
        let waits = |held: &Held| held.waits(now_ns);
        changes.retain(|change| !self.held.get(&change.number).is_some_and(waits));
        changes
    }

    /// Forgets what may be tried and was not: nothing speaks against the CPUs of these interrupts by now.
    pub fn drop_expired(&mut self, now_ns: u64) {
        self.held.retain(|_, held| held.waits(now_ns));
    }

    /// Notes that the kernel refused a change; a fixed interrupt refuses each one.
    pub fn note_refused(&mut self, change: &InterruptChange, cause: String, is_fixed: bool, now_ns: u64) {
        let times = self.held.get(&change.number).map_or(0, |held| held.times).saturating_add(1);
        let wait = FIRST_RETRY_NS.saturating_mul(1 << times.saturating_sub(1).min(6)).min(LONGEST_RETRY_NS);
        let name = printable(&change.name);
        let is_managed = is_fixed && change.device.is_some();
        let refusal = InterruptRefusal { number: change.number, name, cause, is_fixed, is_managed };
        let retry_ns = now_ns.saturating_add(wait);
        self.held.insert(change.number, Held { refusal, identity: change.identity.clone(), retry_ns, times });
    }

    /// Notes that a change was made.
    pub fn note_set(&mut self, number: u32) {
        self.held.remove(&number);
        if let Some(writes) = self.foreign_writes.get_mut(&number) {
            writes.counted = None;
        }
    }

    /// Why an interrupt keeps its CPUs.
    pub fn refusal(&self, number: u32) -> Option<&InterruptRefusal> {
        self.held.get(&number).map(|held| &held.refusal)
    }

    /// All of them.
    pub fn refusals(&self) -> impl Iterator<Item = &InterruptRefusal> {
        self.held.values().map(|held| &held.refusal)
    }
}
