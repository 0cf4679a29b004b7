//! Reduces an answer to the changes that running containers need at once, and saves the thread pins that it
//! breaks.
//!
//! Problem: a runtime writes a cpuset without a look at what the container's processes have set. The kernel
//! rewrites memory policies at each write of memory nodes and moves all pages at once. Up to Linux 6.1 it
//! also forgets thread pins at each write of CPUs. Turns check before they write, move pages in batches and
//! restore pins. Idea: an answer leaves to the next turn, which comes at once, all that can wait. Only CPUs
//! that become exclusive to another container cannot wait. Thread pins are read before the answer, and a turn
//! restores them when the runtime has written ([`CpusChange`]).
//!
//! A runtime writes both sets of each container in an answer; for an absent set it writes its stored one. So
//! an answer either omits a container, or gives its CPUs and the memory nodes that its cgroup shows. The
//! stored CPUs of an omitted container are a subset of those it may have.
//!
//! A container in a recent answer is told again: the runtime may carry that answer out after the turn.
//!
//! Invariant: no lock is held while files are read. Cost: two files for each container of the answer, and a
//! bounded time for the threads of containers that lose CPUs.

use std::collections::BTreeMap;

use enforcer_core::hosted::Cpuset;

use super::Answering;
use crate::engine::placed::{CpusChange, Noting};

impl Answering<'_> {
    /// Removes from an answer what running containers need not change, and notes the rest. `own` is the
    /// container of the call; it stays, because its runtime writes it in any case.
    pub(super) fn leave_running(
        &self,
        others: &mut BTreeMap<String, Cpuset>,
        own: Option<(&String, &mut Cpuset)>,
    ) -> Noting {
        let cgroups: BTreeMap<String, _> = {
            let mut state = self.placed.lock();
            if state.overrides.is_frozen() {
                return Noting::default();
            }
            for (id, cpuset) in others.iter_mut().filter(|(_, cpuset)| cpuset.cpus.is_none()) {
                cpuset.cpus = state.cpuset(id).and_then(|goal| goal.cpus);
            }
            let ids = others.keys().chain(own.as_ref().map(|(id, _)| *id));
            let cgroups = ids.filter_map(|id| {
                let cgroup = state.held.containers.cgroup(id)?;
                Some((id.clone(), (cgroup.clone(), state.writes.may_be_writing(cgroup))))
            });
            cgroups.collect()
        };
        let shown = self.placed.shown(cgroups.values().map(|(cgroup, _)| cgroup));
        let seen = |id: &String| {
            let (cgroup, is_pending) = cgroups.get(id)?;
            Some((cgroup, shown.get(cgroup)?, *is_pending))
        };
        let (mut waits, mut changed) = (false, Vec::new());
        others.retain(|id, cpuset| {
            let Some((cgroup, now, is_pending)) = seen(id) else { return true };
            let is_left_out = cpuset.only_adds_cpus(now) && !is_pending;
            waits |= cpuset.keep_memory(now) | is_left_out;
            if !is_left_out {
                changed.extend(CpusChange::new(cgroup, cpuset, now));
            }
            !is_left_out
        });
        if let Some((id, cpuset)) = own.filter(|(_, cpuset)| !cpuset.is_empty())
            && let Some((cgroup, now, _)) = seen(id)
        {
            waits |= cpuset.keep_memory(now);
            changed.extend(CpusChange::new(cgroup, cpuset, now));
        }
        if waits {
            self.placed.lock().requests.early_turn.request();
        }
        self.placed.note_pins(changed)
    }
}
