//! Where threads were pinned of containers whose CPUs their runtime was told to change.
//!
//! Problem: a runtime writes `cpuset.cpus` at a time of its own after the answer, and Linux 6.1 and older
//! forget then where threads had pinned themselves. Idea: this is read before the answer, for a bounded time,
//! and handed to the turns, which record it in the journal and give it back as soon as the file holds what
//! was told, as far as the new CPUs allow.
//!
//! Invariants: nothing is kept of a thread that is not pinned, and nothing for longer than a runtime may take
//! to write; what could not be looked at in time is said.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use enforcer_core::{
    place::Cpuset,
    self_placement::CgroupThreads,
    set::CpuSet,
    workload::{CgroupPath, printable},
};

#[cfg(test)]
use super::State;
use super::{Placed, WRITTEN_BY};
use enforcer_act::{Actuator, self_placed};

/// Longest look at threads before one answer. The kernel tells the affinity of one in a microsecond.
const LONGEST_LOOK: Duration = Duration::from_millis(20);

/// A container that runs and whose CPUs its runtime is about to change.
#[derive(Debug)]
pub(in crate::engine) struct Retold {
    cgroup: CgroupPath,
    /// CPUs that the runtime is told.
    cpus: CpuSet,
}

impl Retold {
    /// `None` where the container has these CPUs `now`.
    pub(in crate::engine) fn new(cgroup: &CgroupPath, told: &Cpuset, now: &Cpuset) -> Option<Self> {
        let cpus = told.cpus.clone().filter(|cpus| now.cpus.as_ref() != Some(cpus))?;
        Some(Self { cgroup: cgroup.clone(), cpus })
    }
}

/// Pins of one container.
#[derive(Debug)]
pub(super) struct Pins {
    before: Vec<CgroupThreads>,
    /// What the runtime writes.
    cpus: CpuSet,
    told: Instant,
}

#[cfg(test)]
impl State {
    /// Containers whose pins wait for their runtime.
    pub(in crate::engine) fn pinned(&self) -> usize {
        self.pins.len()
    }
}

impl Placed {
    /// Reads where threads of these containers are pinned, for a turn to give back. Not under the lock, and
    /// before the runtime is told.
    pub(in crate::engine) fn note_pins(&self, retold: Vec<Retold>) {
        if retold.is_empty() {
            return;
        }
        let tree = self.lock().tree.clone();
        let until = Instant::now() + LONGEST_LOOK;
        let cgroups = retold.iter().map(|one| &one.cgroup);
        let (mut pinned, left_out) =
            tree.map(|tree| self_placed::pinned(&tree, cgroups, until)).unwrap_or_default();
        if left_out > 0 {
            tracing::warn!(
                "{left_out} threads or cgroups of containers that lose CPUs could not be looked at before an answer: \
                 where these threads had pinned themselves is not given back (Linux 6.2 and newer remember it)"
            );
        }
        let told = Instant::now();
        let mut state = self.lock();
        for Retold { cgroup, cpus } in retold {
            if let Some(before) = pinned.remove(&cgroup) {
                tell_overridden(&cgroup, &before, &cpus);
                // Of two answers before the runtime wrote the first knows more.
                let pins = state.pins.entry(cgroup.clone()).or_insert_with(|| Pins {
                    before,
                    cpus: CpuSet::new(),
                    told,
                });
                (pins.cpus, pins.told) = (cpus, told);
                state.originals.want_turn();
            }
            state.retold.insert(cgroup);
        }
    }

    /// Has them recorded, and given back where the runtime has written. The error is that they cannot be
    /// recorded.
    pub(in crate::engine) fn give_pins_back(&self, actuator: &mut dyn Actuator) -> Result<(), String> {
        let noted = std::mem::take(&mut self.lock().pins);
        let (mut waiting, mut recorded) = (BTreeMap::new(), Ok(()));
        for (cgroup, pins) in noted {
            let given = actuator.keep_pins(&cgroup, &pins.before, &pins.cpus);
            let is_over = pins.told.elapsed() >= WRITTEN_BY;
            if !is_over && !matches!(given, Ok(true)) {
                waiting.insert(cgroup, pins);
            }
            recorded = recorded.and(given.map(|_| ()));
        }
        let mut state = self.lock();
        for (cgroup, pins) in waiting {
            let latest = state.pins.remove(&cgroup);
            let (cpus, told) = latest.map_or((pins.cpus, pins.told), |latest| (latest.cpus, latest.told));
            state.pins.insert(cgroup, Pins { before: pins.before, cpus, told });
        }
        recorded
    }
}

/// Says which thread keeps nothing of its pin.
fn tell_overridden(cgroup: &CgroupPath, before: &[CgroupThreads], to: &CpuSet) {
    let pinned = before
        .iter()
        .flat_map(|one| one.threads.iter().filter_map(|thread| Some((thread, thread.pinned(&one.cpus)?))));
    let mut lost = pinned.filter(|(_, cpus)| cpus.is_disjoint(to));
    let Some((thread, cpus)) = lost.next() else { return };
    let others = match lost.count() {
        0 => String::new(),
        others => format!("; nor have {others} other threads what they had pinned themselves to"),
    };
    let thread = printable(&thread.name());
    tracing::warn!(
        "{cgroup}: {thread} had pinned itself to CPUs {cpus}, which another container has for itself now: it runs \
         on all CPUs that its container has left{others}"
    );
}
