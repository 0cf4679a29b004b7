//! Where threads were pinned of containers whose CPUs their runtime was told to change.
//!
//! Problem: a runtime writes `cpuset.cpus` at a time of its own after the answer, and Linux 6.1 and older
//! forget then where threads had pinned themselves. Idea: this is read before the answer, for a bounded time,
//! and written for the next daemon ([`NotedPins`]). Turns record it in the journal, and give it back as soon
//! as the file holds something else than before the answer, as far as its CPUs allow: whether the runtime
//! wrote that, a later turn or an administrator, the pins are gone by it.
//!
//! What was told counts as written when the file holds it. Until then, and for as long as a runtime may take
//! to write, it is looked at in each turn. A file that holds after that what it held before the answer is not
//! written yet: what its threads set themselves meanwhile is theirs, and the others wait on.
//!
//! Invariants: nothing is kept of a thread that is not pinned; what could not be looked at in time, and what
//! is not given back, is said with cgroup, threads and CPUs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use enforcer_core::{place::Cpuset, self_placement::CgroupThreads, set::CpuSet, workload::CgroupPath};

use super::{Placed, State, WRITTEN_BY, record_writer::Ticket};
use enforcer_act::{
    Actuator,
    actuator::SeenPins,
    journal::{LeftPins, NotedPins},
    self_placed,
};

/// Longest look at threads before one answer. The kernel tells the affinity of one in a microsecond.
const LONGEST_LOOK: Duration = Duration::from_millis(20);

/// Threads that one message names.
const MOST_NAMED: usize = 8;

/// A container that runs and whose CPUs its runtime is about to write.
#[derive(Debug)]
pub(in crate::engine) struct Retold {
    cgroup: CgroupPath,
    /// CPUs that its file holds now.
    was: CpuSet,
    /// CPUs that the runtime is told.
    told: CpuSet,
}

impl Retold {
    /// `None` where no CPUs are told.
    pub(in crate::engine) fn new(cgroup: &CgroupPath, told: &Cpuset, now: &Cpuset) -> Option<Self> {
        let (told, was) = (told.cpus.clone()?, now.cpus.clone().unwrap_or_default());
        Some(Self { cgroup: cgroup.clone(), was, told })
    }

    fn changes(&self) -> bool {
        self.told != self.was
    }
}

/// Pins of one container.
#[derive(Debug, Clone)]
pub(super) struct Pins {
    noted: NotedPins,
    /// When the runtime was told last.
    at: Instant,
}

/// What becomes of pins after a look.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing is left to do.
    Over,
    /// They are looked at again.
    Waits,
    /// So are those of these threads alone.
    WaitsFor(Vec<CgroupThreads>),
}

impl Pins {
    /// What the file holds while the runtime has not written; `None` where that cannot be told from what it
    /// holds afterwards.
    fn unwritten(&self) -> Option<&CpuSet> {
        Some(&self.noted.was).filter(|was| **was != self.noted.told)
    }

    fn fate(&self, seen: Option<&SeenPins>) -> Fate {
        let Some(seen) = seen else { return Fate::Over };
        let NotedPins { was, told, .. } = &self.noted;
        let is_late = self.at.elapsed() >= WRITTEN_BY;
        if seen.cpus == *told && (is_late || told != was) {
            Fate::Over
        } else if !is_late {
            Fate::Waits
        } else if seen.cpus != *was || seen.whole.is_empty() {
            Fate::Over
        } else {
            Fate::WaitsFor(seen.whole.clone())
        }
    }

    /// Adds threads that were found by a later answer. Of those that are known the first one knows more.
    fn add(&mut self, found: Vec<CgroupThreads>) {
        for mut one in found {
            let known = self.noted.before.iter().flat_map(|of| &of.threads);
            one.threads.retain(|thread| !known.clone().any(|known| known.is(thread)));
            if !one.threads.is_empty() {
                self.noted.before.push(one);
            }
        }
    }
}

impl State {
    /// Containers whose pins wait for their runtime.
    #[cfg(test)]
    pub(in crate::engine) fn pinned(&self) -> usize {
        self.pins.len()
    }

    /// All runtimes were told long ago.
    #[cfg(test)]
    pub(in crate::engine) fn pins_told_long_ago(&mut self) {
        let long_ago = Instant::now().checked_sub(WRITTEN_BY).unwrap();
        self.pins.values_mut().for_each(|pins| pins.at = long_ago);
    }

    /// Has all that waits written for the next daemon.
    fn record_pins(&self) -> Option<Ticket> {
        let all = self.pins.iter().map(|(cgroup, pins)| (cgroup.clone(), pins.noted.clone()));
        self.originals.keep_pins(all.collect())
    }
}

impl Placed {
    /// Goes on with what a daemon before this one had noted: its runtime may be writing still.
    pub(in crate::engine) fn remember_pins(&self, left: LeftPins) {
        for error in left.unread {
            tracing::warn!("where threads had pinned themselves before a daemon ended is not known: {error}");
        }
        let at = Instant::now();
        let pins = left.pins.into_iter().map(|(cgroup, noted)| (cgroup, Pins { noted, at }));
        self.lock().pins.extend(pins);
    }

    /// Reads where threads of these containers are pinned, for a turn to give back. Not under the lock, and
    /// before the runtime is told.
    pub(in crate::engine) fn note_pins(&self, retold: Vec<Retold>) {
        if retold.is_empty() {
            return;
        }
        let tree = self.lock().tree.clone();
        let until = Instant::now() + LONGEST_LOOK;
        let cgroups = retold.iter().filter(|one| one.changes()).map(|one| &one.cgroup);
        let (mut pinned, left_out) =
            tree.map(|tree| self_placed::pinned(&tree, cgroups, until)).unwrap_or_default();
        if left_out > 0 {
            tracing::warn!(
                "{left_out} threads or cgroups of containers that lose CPUs could not be looked at before an answer: \
                 where these threads had pinned themselves is not given back (Linux 6.2 and newer remember it)"
            );
        }
        let at = Instant::now();
        let (mut state, mut has_pins) = (self.lock(), false);
        for one in retold {
            let found = pinned.remove(&one.cgroup);
            if one.changes() {
                state.retold.insert(one.cgroup.clone());
            }
            let Retold { cgroup, was, told } = one;
            match (state.pins.get_mut(&cgroup), found) {
                (Some(pins), found) => {
                    (pins.noted.told, pins.at) = (told, at);
                    pins.add(found.unwrap_or_default());
                }
                (None, Some(before)) => {
                    drop(state.pins.insert(cgroup, Pins { noted: NotedPins { before, was, told }, at }));
                }
                (None, None) => continue,
            }
            has_pins = true;
        }
        if !has_pins {
            return;
        }
        state.originals.want_turn();
        let ticket = state.record_pins();
        let waiter = state.originals.waiter();
        drop(state);
        if let Some((waiter, ticket)) = waiter.zip(ticket)
            && let Err(error) = waiter.wait(ticket)
        {
            tracing::warn!("where threads have pinned themselves is lost if this daemon ends now: {error}");
        }
    }

    /// Has them recorded, and given back where something was written. The error is that they cannot be
    /// recorded, or that their cgroups cannot be read.
    pub(in crate::engine) fn give_pins_back(&self, actuator: &mut dyn Actuator) -> Result<(), String> {
        let noted = self.lock().pins.clone();
        let (mut fates, mut recorded) = (BTreeMap::new(), Ok(()));
        for (cgroup, pins) in noted {
            match actuator.keep_pins(&cgroup, &pins.noted.before, pins.unwritten()) {
                Ok(seen) => {
                    let fate = pins.fate(seen.as_ref());
                    if let (Fate::Over, Some(seen)) = (&fate, &seen) {
                        tell_unkept(&cgroup, &pins.noted.told, seen);
                    }
                    fates.insert(cgroup, (pins.at, fate));
                }
                Err(error) => recorded = recorded.and(Err(error)),
            }
        }
        let mut state = self.lock();
        let mut has_changed = false;
        for (cgroup, (at, fate)) in fates {
            // What was told since is looked at again.
            let Some(pins) = state.pins.get_mut(&cgroup).filter(|pins| pins.at == at) else { continue };
            match fate {
                Fate::Over => {
                    state.pins.remove(&cgroup);
                    has_changed = true;
                }
                Fate::Waits => {}
                Fate::WaitsFor(before) => {
                    has_changed |= pins.noted.before != before;
                    pins.noted.before = before;
                }
            }
        }
        if has_changed {
            state.record_pins();
        }
        recorded
    }
}

/// Says which threads have not what they had pinned themselves to.
fn tell_unkept(cgroup: &CgroupPath, told: &CpuSet, seen: &SeenPins) {
    let SeenPins { cpus, unkept, .. } = seen;
    if unkept.is_empty() {
        return;
    }
    let has =
        if cpus.is_empty() { "the CPUs of the cgroup above it".to_owned() } else { format!("CPUs {cpus}") };
    let told = if cpus == told { String::new() } else { format!(" (its runtime was told {told})") };
    let named = &unkept[..unkept.len().min(MOST_NAMED)];
    let more = match unkept.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    tracing::warn!(
        "{cgroup} has {has} now{told}; threads had pinned themselves to other CPUs: {}{more}; they have these again \
         when their container does",
        named.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(was: &str, told: &str, is_late: bool) -> Pins {
        let set = |text: &str| text.parse().unwrap();
        let at = Instant::now().checked_sub(if is_late { WRITTEN_BY } else { Duration::ZERO }).unwrap();
        Pins { noted: NotedPins { before: Vec::new(), was: set(was), told: set(told) }, at }
    }

    #[test]
    fn pins_are_given_back_whatever_was_written_and_wait_while_nothing_was() {
        let one = CgroupThreads {
            cgroup: CgroupPath::new("/a"),
            own_cpus: None,
            own_mems: None,
            cpus: CpuSet::new(),
            mems: [].into_iter().collect(),
            threads: Vec::new(),
            left_out: 0,
            unreadable: 0,
        };
        let threads = || vec![one.clone()];
        // What the file held, what was told, what it holds, is it late; are pins given back, and then?
        for (was, told, now, is_late, gives, fate) in [
            ("0-7", "2-7", "0-7", false, false, Fate::Waits),
            ("0-7", "2-7", "0-7", true, false, Fate::WaitsFor(threads())),
            ("0-7", "2-7", "2-7", false, true, Fate::Over),
            ("0-7", "2-7", "2-7", true, true, Fate::Over),
            // A later turn of ours.
            ("0-7", "2-7", "1-7", false, true, Fate::Waits),
            ("0-7", "2-7", "1-7", true, true, Fate::Over),
            // Told back before it had written what it was told first: it may write both.
            ("0-7", "0-7", "0-7", false, true, Fate::Waits),
            ("0-7", "0-7", "2-7", false, true, Fate::Waits),
            ("0-7", "0-7", "0-7", true, true, Fate::Over),
            // It had what the cgroup above it has.
            ("", "2-7", "", true, false, Fate::WaitsFor(threads())),
        ] {
            let pins = pins(was, told, is_late);
            let cpus: CpuSet = now.parse().unwrap();
            let case = format!("{was} -> {told}, {now}, {is_late}");
            assert_eq!(pins.unwritten() != Some(&cpus), gives, "{case}");
            let seen = SeenPins { cpus, whole: threads(), unkept: Vec::new() };
            assert_eq!(pins.fate(Some(&seen)), fate, "{case}");
            assert_eq!(pins.fate(None), Fate::Over, "{case}: it has ended");
        }
    }
}
