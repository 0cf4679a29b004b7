//! Where threads were pinned of containers whose CPUs their runtime was told to change.
//!
//! Problem: a runtime writes `cpuset.cpus` at a time of its own after the answer, and Linux 6.1 and older
//! forget then where threads had pinned themselves. Idea: this is read before the answer, for a bounded time,
//! and written for the next daemon ([`NotedPins`]). Turns record it in the journal, and give it back as soon
//! as the file holds something else than before the answer, as far as its CPUs allow: whether the runtime
//! wrote that, a later turn or an administrator, the pins are gone by it. Of threads to which the CPUs of
//! before had left nothing of their pins the journal alone knows them; a turn asks it as well.
//!
//! What was told counts as written when the file holds it at [`LOOKS`] looks: the kernel shows the new text
//! before it sets the threads. At as many looks pins are given back, and not at later ones: a thread that
//! runs on all CPUs then has set that itself. Until what was told is written, and for as long as a runtime
//! may take to write, it is looked at in each turn. A file that holds after that what it held before the
//! answer is not written yet: what its threads set themselves meanwhile is theirs, and the others wait on.
//!
//! Invariants: nothing is kept of a thread that is not pinned, and was not; what could not be looked at in
//! time, and what is not given back, is said with cgroup, threads and CPUs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use enforcer_core::{place::Cpuset, self_placement::CgroupThreads, set::CpuSet, workload::CgroupPath};

use super::{
    Ledger, SharedLedger, WRITTEN_BY,
    originals::{Noting, NotingPins},
    record_writer::Ticket,
};
use enforcer_act::{
    Actuator,
    actuator::SeenPins,
    journal::{LeftPins, NotedPins},
    pins::Gives,
    self_placed,
};

/// Longest look at threads before one answer. The kernel tells the affinity of one in a microsecond.
const LONGEST_LOOK: Duration = Duration::from_millis(20);

/// Looks at a file that was written, one in each turn.
const LOOKS: u32 = 2;

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
    /// `None` while the file holds what it held before the answer.
    written: Option<Written>,
}

/// What was written to a file, and at how many looks in a row it held that.
#[derive(Debug, Clone)]
struct Written {
    cpus: CpuSet,
    looks: u32,
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
    fn new(noted: NotedPins, at: Instant) -> Self {
        Self { noted, at, written: None }
    }

    /// Was its runtime told to write what the file held before? It may have been told another thing first,
    /// and write both.
    fn is_told_back(&self) -> bool {
        self.noted.was == self.noted.told
    }

    /// Where pins are given back when the file holds these CPUs.
    fn gives(&self, cpus: &CpuSet) -> Gives {
        let is_as_before = *cpus == self.noted.was;
        match &self.written {
            None if is_as_before && !self.is_told_back() => Gives::Nowhere,
            Some(written) if written.cpus == *cpus && written.looks >= LOOKS => Gives::Nowhere,
            _ if is_as_before => Gives::Everywhere,
            _ => Gives::WhereChanged,
        }
    }

    /// Notes what a look has found.
    fn look(&mut self, seen: &SeenPins) -> Fate {
        let is_late = self.at.elapsed() >= WRITTEN_BY;
        if self.written.is_none() && seen.cpus == self.noted.was {
            return if !is_late {
                Fate::Waits
            } else if self.is_told_back() || seen.whole.is_empty() {
                Fate::Over
            } else {
                Fate::WaitsFor(seen.whole.clone())
            };
        }
        let before = self.written.take().filter(|written| written.cpus == seen.cpus);
        let looks = before.map_or(1, |written| written.looks.saturating_add(1));
        self.written = Some(Written { cpus: seen.cpus.clone(), looks });
        if looks >= LOOKS && (is_late || seen.cpus == self.noted.told) { Fate::Over } else { Fate::Waits }
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

impl Ledger {
    /// Containers whose pins wait for their runtime.
    #[cfg(test)]
    pub(in crate::engine) fn pinned(&self) -> usize {
        self.pins.len()
    }

    /// All runtimes were told long ago.
    #[cfg(test)]
    pub(in crate::engine) fn expire_pending_pins(&mut self) {
        let long_ago = Instant::now().checked_sub(WRITTEN_BY).unwrap();
        self.pins.values_mut().for_each(|pins| pins.at = long_ago);
    }

    /// Nothing is told to the runtimes of these.
    pub(super) fn drop_pins(&mut self, cgroups: &[CgroupPath]) {
        if !cgroups.is_empty() {
            self.pins.retain(|cgroup, _| !cgroups.contains(cgroup));
            self.record_pins();
        }
    }

    /// Has all that waits written for the next daemon.
    fn record_pins(&self) -> Option<Ticket> {
        let all = self.pins.iter().map(|(cgroup, pins)| (cgroup.clone(), pins.noted.clone()));
        self.originals.keep_pins(all.collect())
    }
}

impl SharedLedger {
    /// Goes on with what a daemon before this one had noted: its runtime may be writing still.
    pub(in crate::engine) fn remember_pins(&self, left: LeftPins) {
        for error in left.unread {
            tracing::warn!("where threads had pinned themselves before a daemon ended is not known: {error}");
        }
        let at = Instant::now();
        let pins = left.pins.into_iter().map(|(cgroup, noted)| (cgroup, Pins::new(noted, at)));
        self.lock().pins.extend(pins);
    }

    /// Reads where threads of these containers are pinned, for a turn to give back. Not under the lock, and
    /// before the runtime is told.
    pub(in crate::engine) fn note_pins(&self, retold: Vec<Retold>) -> Noting {
        if retold.is_empty() {
            return Noting::default();
        }
        let tree = self.lock().tree.clone();
        let until = Instant::now() + LONGEST_LOOK;
        let cgroups = retold.iter().filter(|one| one.changes()).map(|one| &one.cgroup);
        let (mut pinned, left_out) =
            tree.as_ref().map(|tree| self_placed::pinned(tree, cgroups, until)).unwrap_or_default();
        if left_out > 0 {
            tracing::warn!(
                "{left_out} threads or cgroups of containers that lose CPUs could not be looked at before an answer:                  where these threads had pinned themselves is not given back (Linux 6.2 and newer remember it)"
            );
        }
        // Threads that have none of the CPUs that they had pinned themselves to are known to the journal.
        let is_forgotten = tree.is_some_and(|tree| tree.forgets_pins());
        let at = Instant::now();
        let (mut state, mut cgroups, mut has_pins) = (self.lock(), Vec::new(), false);
        for one in retold {
            let found = pinned.remove(&one.cgroup);
            let changes = one.changes();
            if changes {
                state.retold.insert(one.cgroup.clone());
            }
            let Retold { cgroup, was, told } = one;
            match (state.pins.get_mut(&cgroup), found) {
                (Some(pins), found) => {
                    (pins.noted.told, pins.at) = (told, at);
                    pins.add(found.unwrap_or_default());
                }
                (None, None) if !(changes && is_forgotten) => continue,
                (None, found) => {
                    let noted = NotedPins { before: found.unwrap_or_default(), was, told };
                    state.pins.insert(cgroup.clone(), Pins::new(noted, at));
                    cgroups.push(cgroup);
                }
            }
            has_pins = true;
        }
        if !has_pins {
            return Noting::default();
        }
        state.originals.want_turn();
        let ticket = state.record_pins();
        Noting::of_pins(NotingPins { ticket, cgroups })
    }

    /// Has them recorded, and given back where something was written. The error is that they cannot be
    /// recorded, or that their cgroups cannot be read.
    pub(in crate::engine) fn give_pins_back(&self, actuator: &mut dyn Actuator) -> Result<(), String> {
        let noted = self.lock().pins.clone();
        let (mut fates, mut recorded) = (BTreeMap::new(), Ok(()));
        for (cgroup, mut pins) in noted {
            let seen = match actuator.keep_pins(&cgroup, &pins.noted.before, &|cpus| pins.gives(cpus)) {
                Ok(Some(seen)) => seen,
                Ok(None) => {
                    fates.insert(cgroup, (pins, Fate::Over));
                    continue;
                }
                Err(error) => {
                    recorded = recorded.and(Err(error));
                    continue;
                }
            };
            let mut fate = pins.look(&seen);
            if let Some(error) = seen.unrecorded {
                // Given back they are, and what `restore` may need is recorded as soon as it can be.
                recorded = recorded.and(Err(error));
                fate = Fate::Waits;
            } else if fate == Fate::Over {
                tell_unkept(&cgroup, &pins.noted.told, &seen);
            }
            fates.insert(cgroup, (pins, fate));
        }
        let mut state = self.lock();
        let mut has_changed = false;
        for (cgroup, (Pins { at, written, .. }, fate)) in fates {
            // What was told since is looked at again.
            let Some(pins) = state.pins.get_mut(&cgroup).filter(|pins| pins.at == at) else { continue };
            pins.written = written;
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
        Pins::new(NotedPins { before: Vec::new(), was: set(was), told: set(told) }, at)
    }

    fn threads() -> Vec<CgroupThreads> {
        vec![CgroupThreads {
            cgroup: CgroupPath::new("/a"),
            own_cpus: None,
            own_mems: None,
            cpus: CpuSet::new(),
            mems: [].into_iter().collect(),
            threads: Vec::new(),
            left_out: 0,
            unreadable: 0,
        }]
    }

    #[test]
    fn pins_are_given_back_whatever_was_written_and_wait_while_nothing_was() {
        use Gives::{Everywhere, Nowhere, WhereChanged};
        // What the file held, what was told, is it late; what it holds at each look, where pins are given
        // back then, and do they wait on?
        for (was, told, is_late, looks) in [
            ("0-7", "2-7", false, &[("0-7", Nowhere, true); 3][..]),
            ("0-7", "2-7", true, &[("0-7", Nowhere, true); 3]),
            // The kernel shows the text before it sets the threads.
            ("0-7", "2-7", false, &[("2-7", WhereChanged, true), ("2-7", WhereChanged, false)]),
            (
                "0-7",
                "2-7",
                true,
                &[("0-7", Nowhere, true), ("2-7", WhereChanged, true), ("2-7", WhereChanged, false)],
            ),
            // A later turn of ours, after which the runtime may write still; a thread that unpins itself is
            // left.
            (
                "0-7",
                "2-7",
                false,
                &[("1-7", WhereChanged, true), ("1-7", WhereChanged, true), ("1-7", Nowhere, true)],
            ),
            ("0-7", "2-7", true, &[("1-7", WhereChanged, true), ("1-7", WhereChanged, false)]),
            // There and back.
            (
                "0-7",
                "2-7",
                false,
                &[("1-7", WhereChanged, true), ("0-7", Everywhere, true), ("0-7", Everywhere, true)],
            ),
            // Told back before it had written what it was told first: it may write both.
            ("0-7", "0-7", false, &[("0-7", Everywhere, true); 3]),
            (
                "0-7",
                "0-7",
                false,
                &[("2-7", WhereChanged, true), ("0-7", Everywhere, true), ("0-7", Everywhere, false)],
            ),
            ("0-7", "0-7", true, &[("0-7", Everywhere, false)]),
            // It had what the cgroup above it has.
            ("", "2-7", true, &[("", Nowhere, true)]),
        ] {
            let mut pins = pins(was, told, is_late);
            for (look, (now, gives, waits)) in looks.iter().enumerate() {
                let case = format!("{was} -> {told}, late: {is_late}, look {look}: {now}");
                let cpus: CpuSet = now.parse().unwrap();
                assert_eq!(pins.gives(&cpus), *gives, "{case}");
                let fate = pins.look(&SeenPins { cpus, whole: threads(), ..SeenPins::default() });
                assert_eq!(fate != Fate::Over, *waits, "{case}");
            }
        }
    }

    #[test]
    fn those_that_are_pinned_still_wait_alone_for_a_runtime_that_is_late() {
        let look = |whole| {
            let cpus = "0-7".parse().unwrap();
            pins("0-7", "2-7", true).look(&SeenPins { cpus, whole, ..SeenPins::default() })
        };
        assert_eq!(look(threads()), Fate::WaitsFor(threads()));
        assert_eq!(look(Vec::new()), Fate::Over);
    }
}
