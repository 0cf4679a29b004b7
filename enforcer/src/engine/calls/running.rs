//! What an answer leaves as it is for containers that run, and what it takes from their threads.
//!
//! Problem: a runtime that is told a cpuset writes it with no look at what the container's processes have set
//! themselves. The kernel rewrites memory policies at each write of memory nodes, moves all pages at once,
//! and up to Linux 6.1 forgets at each write of CPUs where threads had pinned themselves. Turns ask before
//! they write, move pages in batches and give pins back. Idea: what an answer need not change is left to the
//! next turn, which comes at once. Only CPUs that another container has for itself from now on cannot wait:
//! where threads are pinned is read before the answer, and a turn gives the pins back when the runtime has
//! written ([`Retold`]).
//!
//! A runtime writes both sets of each container that it is told of: what it has stored where nothing is said.
//! So a container is either left out of the answer, or told its CPUs and the memory nodes that its cgroup
//! shows. CPUs that are stored of one that is left out are some of those that it may have.
//!
//! A container of which the runtime was told a moment ago is told again: what it was told may be written
//! after the turn.
//!
//! Invariant: no lock is held while files are read. Cost: two files of each container of the answer, and a
//! bounded time for the threads of those that lose CPUs.

use std::collections::BTreeMap;

use enforcer_core::place::Cpuset;

use super::Answering;
use crate::engine::placed::Retold;

impl Answering<'_> {
    /// Takes out of an answer what it need not change for containers that run, and notes what it does change.
    /// `own` is the container of the call: it is told in any case, because its runtime writes it.
    pub(super) fn leave_running(
        &self,
        others: &mut BTreeMap<String, Cpuset>,
        own: Option<(&String, &mut Cpuset)>,
    ) {
        let cgroups: BTreeMap<String, _> = {
            let mut state = self.placed.lock();
            if state.is_held() {
                return;
            }
            for (id, cpuset) in others.iter_mut().filter(|(_, cpuset)| cpuset.cpus.is_none()) {
                cpuset.cpus = state.cpuset(id).and_then(|goal| goal.cpus);
            }
            let ids = others.keys().chain(own.as_ref().map(|(id, _)| *id));
            let cgroups = ids.filter_map(|id| {
                let cgroup = state.containers.cgroup(id)?;
                Some((id.clone(), (cgroup.clone(), state.was_told_lately(cgroup))))
            });
            cgroups.collect()
        };
        let shown = self.placed.shown(cgroups.values().map(|(cgroup, _)| cgroup));
        let seen = |id: &String| {
            let (cgroup, told_lately) = cgroups.get(id)?;
            Some((cgroup, shown.get(cgroup)?, *told_lately))
        };
        let (mut waits, mut retold) = (false, Vec::new());
        others.retain(|id, cpuset| {
            let Some((cgroup, now, told_lately)) = seen(id) else { return true };
            let is_left_out = cpuset.only_adds_cpus(now) && !told_lately;
            waits |= cpuset.keep_memory(now) | is_left_out;
            if !is_left_out {
                retold.extend(Retold::new(cgroup, cpuset, now));
            }
            !is_left_out
        });
        if let Some((id, cpuset)) = own.filter(|(_, cpuset)| !cpuset.is_empty())
            && let Some((cgroup, now, _)) = seen(id)
        {
            waits |= cpuset.keep_memory(now);
            retold.extend(Retold::new(cgroup, cpuset, now));
        }
        if waits {
            self.placed.lock().originals.want_turn();
        }
        self.placed.note_pins(retold);
    }
}
