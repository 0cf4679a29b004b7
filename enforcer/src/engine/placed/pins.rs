//! Restores thread pins of containers after their runtime has written new CPUs.
//!
//! Problem: a runtime writes `cpuset.cpus` some time after the answer, and Linux 6.1 and older then forget to
//! which CPUs threads had pinned themselves. Idea: pins are read before the answer, for a bounded time, and
//! recorded for the next daemon ([`NotedPins`]). Turns record them in the journal. They restore them as soon
//! as the file has other CPUs than before the answer, as far as these allow. The writer does not matter: the
//! runtime, a later turn or an administrator, each write loses the pins. If the former CPUs left a thread
//! none of its pinned ones, only the journal knows its pins; a turn reads it as well.
//!
//! An answer counts as written when the file shows it at [`LOOKS`] looks: the kernel shows the new text
//! before it sets the threads. Pins are restored at that many looks and not later: a thread that runs on all
//! CPUs after that has set this itself. Until the answer is written, and for as long as a runtime may take to
//! write, each turn looks at the file. A file with the former CPUs after that time is not written yet: pins
//! that its threads have set meanwhile stay theirs, and the others wait on.
//!
//! Invariants: threads without pins are not recorded. Threads that could not be read in time, and pins that
//! are not restored, are logged with cgroup, threads and CPUs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use enforcer_core::{hosted::Cpuset, self_placement::CgroupThreads, workload::CgroupPath};
use numa_topology::set::CpuSet;

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

/// Longest time for reading threads before one answer. The kernel returns one affinity in a microsecond.
const LONGEST_LOOK: Duration = Duration::from_millis(20);

/// Looks at a written file, one in each turn.
const LOOKS: u32 = 2;

/// Most threads that one message names.
const MOST_NAMED: usize = 8;

/// A running container with CPUs that its runtime is about to write.
#[derive(Debug)]
pub(in crate::engine) struct CpusChange {
    cgroup: CgroupPath,
    /// CPUs in its file now.
    was: CpuSet,
    /// CPUs in the answer.
    told: CpuSet,
}

impl CpusChange {
    /// `None` if the answer has no CPUs.
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
pub(super) struct PendingPins {
    noted: NotedPins,
    /// Time of the latest answer.
    at: Instant,
    /// `None` while the file has its former CPUs.
    written: Option<Written>,
}

/// The CPUs written to a file, and the number of looks in a row that showed them.
#[derive(Debug, Clone)]
struct Written {
    cpus: CpuSet,
    looks: u32,
}

/// State of pins after a look.
#[derive(Debug, PartialEq, Eq)]
enum PinProgress {
    /// Nothing is left to do.
    Over,
    /// All are looked at again.
    Waits,
    /// Those of these threads are looked at again.
    WaitsFor(Vec<CgroupThreads>),
}

impl PendingPins {
    fn new(noted: NotedPins, at: Instant) -> Self {
        Self { noted, at, written: None }
    }

    /// Whether the runtime was told to write the file's former CPUs. An earlier answer may differ, and it may
    /// write both.
    fn is_told_back(&self) -> bool {
        self.noted.was == self.noted.told
    }

    /// Threads that get their pins back when the file has these CPUs.
    fn gives(&self, cpus: &CpuSet) -> Gives {
        let is_as_before = *cpus == self.noted.was;
        match &self.written {
            None if is_as_before && !self.is_told_back() => Gives::Nowhere,
            Some(written) if written.cpus == *cpus && written.looks >= LOOKS => Gives::Nowhere,
            _ if is_as_before => Gives::Everywhere,
            _ => Gives::WhereChanged,
        }
    }

    /// Applies the result of a look.
    fn apply(&mut self, seen: &SeenPins) -> PinProgress {
        let is_late = self.at.elapsed() >= WRITTEN_BY;
        if self.written.is_none() && seen.cpus == self.noted.was {
            return if !is_late {
                PinProgress::Waits
            } else if self.is_told_back() || seen.whole.is_empty() {
                PinProgress::Over
            } else {
                PinProgress::WaitsFor(seen.whole.clone())
            };
        }
        let before = self.written.take().filter(|written| written.cpus == seen.cpus);
        let looks = before.map_or(1, |written| written.looks.saturating_add(1));
        self.written = Some(Written { cpus: seen.cpus.clone(), looks });
        if looks >= LOOKS && (is_late || seen.cpus == self.noted.told) {
            PinProgress::Over
        } else {
            PinProgress::Waits
        }
    }

    /// Adds threads found by a later answer. For a known thread the first finding is the better one.
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
    /// Number of containers with pins that wait for the runtime.
    #[cfg(test)]
    pub(in crate::engine) fn pinned(&self) -> usize {
        self.writes.pins.len()
    }

    /// Backdates all answers.
    #[cfg(test)]
    pub(in crate::engine) fn expire_pending_pins(&mut self) {
        let long_ago = Instant::now().checked_sub(WRITTEN_BY).unwrap();
        self.writes.pins.values_mut().for_each(|pins| pins.at = long_ago);
    }

    /// Drops the pins of containers that get no answer.
    pub(super) fn drop_pins(&mut self, cgroups: &[CgroupPath]) {
        if !cgroups.is_empty() {
            self.writes.pins.retain(|cgroup, _| !cgroups.contains(cgroup));
            self.record_pins();
        }
    }

    /// Records all waiting pins for the next daemon.
    fn record_pins(&self) -> Option<Ticket> {
        let all = self.writes.pins.iter().map(|(cgroup, pins)| (cgroup.clone(), pins.noted.clone()));
        self.originals.keep_pins(all.collect())
    }
}

impl SharedLedger {
    /// Takes over pins that the previous daemon had recorded: the runtime may be writing still.
    pub(in crate::engine) fn remember_pins(&self, left: LeftPins) {
        for error in left.unread {
            tracing::warn!("where threads had pinned themselves before a daemon ended is not known: {error}");
        }
        let at = Instant::now();
        let pins = left.pins.into_iter().map(|(cgroup, noted)| (cgroup, PendingPins::new(noted, at)));
        self.lock().writes.pins.extend(pins);
    }

    /// Reads the thread pins of these containers, for a turn to restore. Called without the lock, before the
    /// runtime gets its answer.
    pub(in crate::engine) fn note_pins(&self, all: Vec<CpusChange>) -> Noting {
        if all.is_empty() {
            return Noting::default();
        }
        let tree = self.lock().terms.tree.clone();
        let until = Instant::now() + LONGEST_LOOK;
        let cgroups = all.iter().filter(|one| one.changes()).map(|one| &one.cgroup);
        let (mut pinned, left_out) =
            tree.as_ref().map(|tree| self_placed::pinned(tree, cgroups, until)).unwrap_or_default();
        if left_out > 0 {
            tracing::warn!(
                "{left_out} threads or cgroups of containers that lose CPUs could not be looked at before an answer: \
                 where these threads had pinned themselves is not given back (Linux 6.2 and newer remember it)"
            );
        }
        // The journal knows threads that have none of their pinned CPUs.
        let is_forgotten = tree.is_some_and(|tree| tree.forgets_pins());
        let at = Instant::now();
        let (mut state, mut cgroups, mut has_pins) = (self.lock(), Vec::new(), false);
        for one in all {
            let found = pinned.remove(&one.cgroup);
            let changes = one.changes();
            if changes {
                state.writes.changed_cpus.insert(one.cgroup.clone());
            }
            let CpusChange { cgroup, was, told } = one;
            match (state.writes.pins.get_mut(&cgroup), found) {
                (Some(pins), found) => {
                    (pins.noted.told, pins.at) = (told, at);
                    pins.add(found.unwrap_or_default());
                }
                (None, None) if !(changes && is_forgotten) => continue,
                (None, found) => {
                    let noted = NotedPins { before: found.unwrap_or_default(), was, told };
                    state.writes.pins.insert(cgroup.clone(), PendingPins::new(noted, at));
                    cgroups.push(cgroup);
                }
            }
            has_pins = true;
        }
        if !has_pins {
            return Noting::default();
        }
        state.requests.early_turn.request();
        let ticket = state.record_pins();
        Noting::of_pins(NotingPins { ticket, cgroups })
    }

    /// Journals pins, and restores those of written files. An error means that they cannot be journalled, or
    /// that their cgroups cannot be read.
    pub(in crate::engine) fn give_pins_back(&self, actuator: &mut dyn Actuator) -> Result<(), String> {
        let noted = self.lock().writes.pins.clone();
        let (mut fates, mut recorded) = (BTreeMap::new(), Ok(()));
        for (cgroup, mut pins) in noted {
            let seen = match actuator.keep_pins(&cgroup, &pins.noted.before, &|cpus| pins.gives(cpus)) {
                Ok(Some(seen)) => seen,
                Ok(None) => {
                    fates.insert(cgroup, (pins, PinProgress::Over));
                    continue;
                }
                Err(error) => {
                    recorded = recorded.and(Err(error));
                    continue;
                }
            };
            let mut fate = pins.apply(&seen);
            if let Some(error) = seen.unrecorded {
                // They are restored; the journal for `restore` follows as soon as it can be written.
                recorded = recorded.and(Err(error));
                fate = PinProgress::Waits;
            } else if fate == PinProgress::Over {
                tell_unkept(&cgroup, &pins.noted.told, &seen);
            }
            fates.insert(cgroup, (pins, fate));
        }
        let mut state = self.lock();
        let mut has_changed = false;
        for (cgroup, (PendingPins { at, written, .. }, fate)) in fates {
            // Pins with a newer answer are looked at again.
            let Some(pins) = state.writes.pins.get_mut(&cgroup).filter(|pins| pins.at == at) else {
                continue;
            };
            pins.written = written;
            match fate {
                PinProgress::Over => {
                    state.writes.pins.remove(&cgroup);
                    has_changed = true;
                }
                PinProgress::Waits => {}
                PinProgress::WaitsFor(before) => {
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

/// Logs threads that have lost their pins.
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

    fn pins(was: &str, told: &str, is_late: bool) -> PendingPins {
        let set = |text: &str| text.parse().unwrap();
        let at = Instant::now().checked_sub(if is_late { WRITTEN_BY } else { Duration::ZERO }).unwrap();
        PendingPins::new(NotedPins { before: Vec::new(), was: set(was), told: set(told) }, at)
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
        // Former CPUs, answer, late; for each look the file's CPUs, the threads that get pins back, and
        // whether pins wait on.
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
            // A later turn of ours, after which the runtime may still write; a thread that unpins itself is
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
            // Told back before the first answer was written: the runtime may write both.
            ("0-7", "0-7", false, &[("0-7", Everywhere, true); 3]),
            (
                "0-7",
                "0-7",
                false,
                &[("2-7", WhereChanged, true), ("0-7", Everywhere, true), ("0-7", Everywhere, false)],
            ),
            ("0-7", "0-7", true, &[("0-7", Everywhere, false)]),
            // Its file was empty: it had its parent's CPUs.
            ("", "2-7", true, &[("", Nowhere, true)]),
        ] {
            let mut pins = pins(was, told, is_late);
            for (look, (now, gives, waits)) in looks.iter().enumerate() {
                let case = format!("{was} -> {told}, late: {is_late}, look {look}: {now}");
                let cpus: CpuSet = now.parse().unwrap();
                assert_eq!(pins.gives(&cpus), *gives, "{case}");
                let fate = pins.apply(&SeenPins { cpus, whole: threads(), ..SeenPins::default() });
                assert_eq!(fate != PinProgress::Over, *waits, "{case}");
            }
        }
    }

    #[test]
    fn those_that_are_pinned_still_wait_alone_for_a_runtime_that_is_late() {
        let look = |whole| {
            let cpus = "0-7".parse().unwrap();
            pins("0-7", "2-7", true).apply(&SeenPins { cpus, whole, ..SeenPins::default() })
        };
        assert_eq!(look(threads()), PinProgress::WaitsFor(threads()));
        assert_eq!(look(Vec::new()), PinProgress::Over);
    }
}
