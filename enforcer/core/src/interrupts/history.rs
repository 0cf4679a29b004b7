//! What became of earlier writes: refused ones are not repeated at once, and another writer is not fought.

use std::collections::BTreeMap;

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
    /// The kernel manages its CPUs, and takes no others: it is not tried again.
    pub is_managed: bool,
}

#[derive(Debug, Clone)]
struct Held {
    refusal: InterruptRefusal,
    identity: Option<String>,
    retry_ns: u64,
    times: u32,
}

/// Refusals and foreign writes by number of the interrupt.
#[derive(Debug, Clone, Default)]
pub struct InterruptHistory {
    held: BTreeMap<u32, Held>,
    foreign_writes: BTreeMap<u32, u32>,
}

impl InterruptHistory {
    /// Notes interrupts that another writer has set since, and forgets those that are gone.
    pub fn look(&mut self, table: &InterruptTable, steered: &SteeredInterrupts, now_ns: u64) {
        let of = |number: u32| {
            let at = table.interrupts.binary_search_by_key(&number, |one| one.number).ok();
            at.and_then(|at| table.interrupts.get(at))
        };
        self.held.retain(|number, held| of(*number).is_some_and(|one| one.identity == held.identity));
        self.foreign_writes.retain(|number, _| of(*number).is_some());
        for (number, steered) in steered {
            let Some(one) = of(*number) else { continue };
            if one.affinity.as_ref().is_none_or(|affinity| *affinity == steered.set) {
                continue;
            }
            let writes = self.foreign_writes.entry(*number).or_default();
            *writes += 1;
            if *writes >= FOREIGN_WRITES {
                *writes = 0;
                let refusal = InterruptRefusal {
                    number: *number,
                    name: printable(&one.name),
                    cause: "another program sets its CPUs repeatedly; they are left alone for an hour"
                        .to_owned(),
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
        let waits = |held: &Held| held.refusal.is_managed || now_ns < held.retry_ns;
        changes.retain(|change| !self.held.get(&change.number).is_some_and(waits));
        changes
    }

    /// Notes that the kernel refused a change.
    pub fn note_refused(&mut self, change: &InterruptChange, cause: String, is_managed: bool, now_ns: u64) {
        let times = self.held.get(&change.number).map_or(0, |held| held.times).saturating_add(1);
        let wait = FIRST_RETRY_NS.saturating_mul(1 << times.saturating_sub(1).min(6)).min(LONGEST_RETRY_NS);
        let name = printable(&change.name);
        let refusal = InterruptRefusal { number: change.number, name, cause, is_managed };
        let retry_ns = now_ns.saturating_add(wait);
        self.held.insert(change.number, Held { refusal, identity: change.identity.clone(), retry_ns, times });
    }

    /// Notes that a change was made.
    pub fn note_set(&mut self, number: u32) {
        self.held.remove(&number);
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
