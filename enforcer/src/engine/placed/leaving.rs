//! Containers that still run processes after the runtime has announced their end.
//!
//! Problem: a runtime announces a stop at its begin. A process that ignores SIGTERM runs on for its grace
//! period, on CPUs that would be another container's by then. Idea: a container keeps its grant until its
//! cgroup is empty or gone, whatever its runtime says first. A thread of its own looks, and so does each
//! turn. A turn hands the freed CPUs to waiting containers.
//!
//! Invariants: no file is read under the lock. A cgroup with processes holds its grant without a time limit.
//! An unreadable one holds it for [`UNREAD_WITHIN`] and is a degraded source meanwhile.
//!
//! A runtime may create a container of the same name in the same pod meanwhile. It takes the grant over only
//! if the former one has no process; else it is placed beside it.
//!
//! Cost: one file per leaving container and look; nothing while none leaves.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use enforcer_core::{
    hosted::Announced,
    workload::{CgroupPath, Workload},
};
use numa_topology::degraded::Degraded;

use super::{HeldResources, Ledger, SharedLedger, roster::ContainerRoster};
use enforcer_act::cpuset::CpusetTree;

/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Time for which a container with an unreadable cgroup keeps its grant.
pub(super) const UNREAD_WITHIN: Duration = Duration::from_mins(5);

/// A leaving container.
#[derive(Debug)]
pub(super) struct DepartingContainer {
    since: Instant,
    /// Why its processes cannot be seen.
    unread: Option<String>,
}

/// State of a leaving container's cgroup.
enum CgroupOccupancy {
    Empty,
    Occupied,
    Unread(String),
}

fn read_occupancy(tree: Option<&CpusetTree>, cgroup: Option<&CgroupPath>) -> CgroupOccupancy {
    let Some(tree) = tree else { return CgroupOccupancy::Empty };
    let Some(cgroup) = cgroup else {
        return CgroupOccupancy::Unread("the runtime's name of its cgroup is not understood".to_owned());
    };
    match tree.is_occupied(cgroup) {
        Ok(false) => CgroupOccupancy::Empty,
        Ok(true) => CgroupOccupancy::Occupied,
        Err(error) => CgroupOccupancy::Unread(error.to_string()),
    }
}

impl SharedLedger {
    /// Notes that a container ends or has ended. True if it keeps its grant, because a process may still run.
    pub(in crate::engine) fn leaves(&self, id: &str) -> bool {
        let (tree, cgroup) = {
            let state = self.lock();
            if !state.terms.places || state.held.containers.holder(id).is_none() {
                return false;
            }
            (state.terms.tree.clone(), state.held.containers.cgroup(id).cloned())
        };
        let unread = match read_occupancy(tree.as_ref(), cgroup.as_ref()) {
            CgroupOccupancy::Empty => return false,
            CgroupOccupancy::Occupied => None,
            CgroupOccupancy::Unread(reason) => Some(reason),
        };
        let mut state = self.lock();
        state.roster.note_leaving(id, unread);
        let stays = state.roster.leaving.get(id).is_some_and(DepartingContainer::holds);
        if stays {
            state.held.containers.depart(id);
        }
        stays
    }

    /// Called before a container is placed. A former container of the same name and pod that may still have
    /// processes keeps its grant, apart from the new one.
    pub(in crate::engine) fn keep_apart(&self, new: &Announced) {
        let (tree, old, cgroup) = {
            let state = self.lock();
            let Some(old) = state.held.containers.namesake(new).filter(|_| state.terms.places) else {
                return;
            };
            (state.terms.tree.clone(), old.to_owned(), state.held.containers.cgroup(old).cloned())
        };
        if !matches!(read_occupancy(tree.as_ref(), cgroup.as_ref()), CgroupOccupancy::Occupied) {
            return;
        }
        let mut state = self.lock();
        if state.held.containers.namesake(new) != Some(old.as_str()) {
            return;
        }
        state.roster.note_leaving(&old, None);
        let HeldResources { containers, allocations, .. } = &mut state.held;
        containers.depart(&old);
        containers.set_apart(allocations, &old);
        state.held.mark_changed();
    }

    /// Cgroups of known containers that are not in `listed` and still have processes.
    /// These containers leave.
    pub(in crate::engine) fn occupied_unlisted<'a>(
        &self,
        listed: impl Iterator<Item = &'a str>,
    ) -> Vec<CgroupPath> {
        let listed: std::collections::BTreeSet<&str> = listed.collect();
        let (tree, known) = {
            let state = self.lock();
            (state.terms.tree.clone(), state.held.containers.all_cgroups())
        };
        let Some(tree) = tree else { return Vec::new() };
        let mut occupied = Vec::new();
        for (id, cgroup) in known.into_iter().filter(|(id, _)| !listed.contains(id.as_str())) {
            if matches!(read_occupancy(Some(&tree), Some(&cgroup)), CgroupOccupancy::Occupied) {
                let mut state = self.lock();
                if state.held.containers.holder(&id).is_some() {
                    state.roster.note_leaving(&id, None);
                    state.held.containers.depart(&id);
                }
                occupied.push(cgroup);
            }
        }
        occupied
    }

    /// Frees the grants of containers after their last process has ended.
    pub(in crate::engine) fn free_departed(&self) {
        let (tree, leaving) = {
            let mut state = self.lock();
            let Ledger { held: HeldResources { containers, .. }, roster, .. } = &mut *state;
            // The grant of a forgotten container may belong to another by now.
            roster.leaving.retain(|id, _| containers.holder(id).is_some());
            let cgroup = |id: &String| (id.clone(), state.held.containers.cgroup(id).cloned());
            (state.terms.tree.clone(), state.roster.leaving.keys().map(cgroup).collect::<Vec<_>>())
        };
        for (id, cgroup) in leaving {
            let found = read_occupancy(tree.as_ref(), cgroup.as_ref());
            let mut state = self.lock();
            let Some(one) = state.roster.leaving.get_mut(&id) else { continue };
            one.unread = match found {
                CgroupOccupancy::Empty => None,
                CgroupOccupancy::Occupied => {
                    one.unread = None;
                    continue;
                }
                CgroupOccupancy::Unread(reason) => Some(reason),
            };
            if one.unread.is_some() && one.holds() {
                continue;
            }
            let (name, waited) = (state.roster.name_of(&id), UNREAD_WITHIN.as_secs());
            if let Some(reason) = state.roster.leaving.get(&id).and_then(|one| one.unread.as_ref()) {
                tracing::warn!(
                    "what {name} was given is free {waited} s after its end, though a process of it may still \
                     run: {reason}"
                );
            } else {
                tracing::debug!("{name} has ended: its grant is free");
            }
            // The turn writes and records what this changes for others.
            drop(state.ends("stop", &id));
            state.requests.early_turn.request();
        }
    }

    /// Ends listed containers without a cgroup. If the previous daemon was told of a stop, no event
    /// comes at its end. `workloads` exist.
    pub(in crate::engine) fn end_vanished(&self, workloads: &[Workload]) {
        let (tree, found) = {
            let state = self.lock();
            let runs = |cgroup: &CgroupPath| workloads.iter().any(|one| one.cgroup == *cgroup);
            let cgroup = |id: &String| Some((id.clone(), state.held.containers.cgroup(id)?.clone()));
            let found = state.roster.found.iter().filter_map(cgroup).filter(|(_, cgroup)| !runs(cgroup));
            (state.terms.tree.clone(), found.collect::<Vec<_>>())
        };
        let Some(tree) = tree else { return };
        for (id, _) in found.into_iter().filter(|(_, cgroup)| tree.is_gone(cgroup)) {
            let mut state = self.lock();
            tracing::debug!("{} has ended: its cgroup is gone", state.roster.name_of(&id));
            drop(state.ends("stop", &id));
        }
    }

    /// Looks until all senders are gone; each call sends on `woken`.
    pub(in crate::engine) fn watch_departures(&self, woken: &Receiver<()>) {
        loop {
            let leaving = !self.lock().roster.leaving.is_empty();
            let told = if leaving {
                woken.recv_timeout(LOOK_EVERY)
            } else {
                woken.recv().map_err(|_ended| RecvTimeoutError::Disconnected)
            };
            if told == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            self.free_departed();
        }
    }

    /// Leaving containers with processes that cannot be seen.
    pub(in crate::engine) fn unreadable_departures(&self) -> Vec<Degraded> {
        let state = self.lock();
        let unread = state.roster.leaving.iter().filter_map(|(id, one)| Some((id, one.unread.as_ref()?)));
        let effect = |id: &str| {
            let (name, seconds) = (state.roster.name_of(id), UNREAD_WITHIN.as_secs());
            format!("what {name} was given stays taken for {seconds} s from its end on")
        };
        unread.map(|(id, reason)| Degraded::new("departures", reason.clone(), effect(id))).collect()
    }
}

impl DepartingContainer {
    /// Whether its grant still counts as taken.
    fn holds(&self) -> bool {
        self.unread.is_none() || self.since.elapsed() < UNREAD_WITHIN
    }
}

impl ContainerRoster {
    fn note_leaving(&mut self, id: &str, unread: Option<String>) {
        let name = self.name_of(id);
        let one = self.leaving.entry(id.to_owned()).or_insert_with(|| {
            tracing::debug!("{name} ends: its grant stays taken until its last process is gone");
            DepartingContainer { since: Instant::now(), unread: None }
        });
        one.unread = unread;
    }

    /// Backdates all departures.
    #[cfg(test)]
    pub(in crate::engine) fn expire_departures(&mut self) {
        let long_ago = Instant::now().checked_sub(UNREAD_WITHIN).unwrap();
        self.leaving.values_mut().for_each(|one| one.since = long_ago);
    }
}
