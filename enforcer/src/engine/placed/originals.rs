//! Cpusets that containers would have without us, recorded before a runtime is told another one.
//!
//! `restore` uses the journal, which has entries for existing cgroups. Until then the original is in a record
//! of its own, in case this daemon is killed in between. The record is written before the answer and without
//! the ledger's lock. What cannot be recorded is not told.
//!
//! Invariant: nothing is set here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use enforcer_core::{
    hosted::{Announced, Cpuset},
    workload::CgroupPath,
};

use super::{
    Ledger, SharedLedger,
    record_writer::{RecordWriter, Ticket, Waiter},
    requests::EarlyTurn,
};
use enforcer_act::journal::{Granted, MADE_WITHIN, Made, MakingRecord, NotedPins};
use enforcer_kernel::clock;

/// Original cpusets that the journal does not have yet.
#[derive(Debug, Default)]
pub(in crate::engine) struct UnjournalledOriginals {
    /// Of containers with an answer.
    unrecorded: BTreeMap<CgroupPath, Made>,
    /// Of listed containers without an answer since.
    untouched: BTreeMap<CgroupPath, Cpuset>,
    /// Of containers in the journal: cpusets that the runtime's caller has set since.
    renewed: BTreeMap<CgroupPath, Cpuset>,
    /// Writes `unrecorded` for the next daemon; `None` where the daemon may not write.
    record: Option<RecordWriter>,
    /// Part of `unrecorded` from the previous daemon, and since when: these cgroups may still be created.
    left: Option<(Instant, BTreeSet<CgroupPath>)>,
}

impl UnjournalledOriginals {
    /// Records from now on for the next daemon, and takes over the previous daemon's entries (`left`).
    pub(in crate::engine) fn remember(&mut self, record: MakingRecord, left: BTreeMap<CgroupPath, Made>) {
        self.record = Some(RecordWriter::start(record, left.clone()));
        let (renewed, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            left.into_iter().partition(|(_, made)| made.renews);
        self.renewed.extend(renewed.into_iter().map(|(cgroup, made)| (cgroup, made.original)));
        self.left = Some((Instant::now(), left.keys().cloned().collect()));
        self.unrecorded.extend(left);
    }

    /// Tells whether the record can be written; `None` where the daemon may not write.
    pub(super) fn waiter(&self) -> Option<Waiter> {
        self.record.as_ref().map(RecordWriter::waiter)
    }

    /// Replaces the recorded pins. Returns the ticket to wait for.
    pub(super) fn keep_pins(&self, all: BTreeMap<CgroupPath, NotedPins>) -> Option<Ticket> {
        self.record.as_ref().map(|record| record.pins(all))
    }

    /// Notes the original of a cgroup for the journal and the next daemon, with the grant of a new container.
    /// The caller waits for the ticket before it answers the runtime.
    fn note(&mut self, cgroup: &CgroupPath, original: &Cpuset, granted: Option<Granted>) -> Option<Ticket> {
        let made = Made { granted, ..self.pending_record(original) };
        let ticket = self.record.as_ref().map(|record| record.record(cgroup, &made));
        self.unrecorded.insert(cgroup.clone(), made);
        ticket
    }

    /// An entry of this moment.
    fn pending_record(&self, original: &Cpuset) -> Made {
        let boot_id = self.record.as_ref().and_then(RecordWriter::boot_id).map(str::to_owned);
        let (original, told_ns) = (original.clone(), clock::now_ns());
        Made { original, renews: false, granted: None, boot_id, told_ns }
    }

    /// Originals that are not in the journal.
    pub(in crate::engine) fn unrecorded(&self) -> BTreeMap<CgroupPath, Cpuset> {
        self.unrecorded.iter().map(|(cgroup, made)| (cgroup.clone(), made.original.clone())).collect()
    }

    /// Marks these as recorded in the journal.
    pub(in crate::engine) fn recorded(&mut self, cgroups: &[CgroupPath]) {
        let gone = self.left.take_if(|(since, _)| since.elapsed() > MADE_WITHIN);
        let gone = gone.map(|(_, gone)| gone).unwrap_or_default();
        self.retain(|cgroup| !cgroups.contains(cgroup) && !gone.contains(cgroup));
    }

    /// Keeps only listed cgroups, and those of the previous daemon that may still be created.
    pub(in crate::engine) fn only(&mut self, is_listed: impl Fn(&CgroupPath) -> bool) {
        let left = self.left();
        self.retain(|cgroup| is_listed(cgroup) || left.contains(cgroup));
    }

    /// Drops originals that are in the journal, and those of ended containers.
    fn retain(&mut self, stays: impl Fn(&CgroupPath) -> bool) {
        let over: Vec<_> =
            self.unrecorded.extract_if(.., |cgroup, _| !stays(cgroup)).map(|(cgroup, _)| cgroup).collect();
        if let Some(record) = self.record.as_ref().filter(|_| !over.is_empty()) {
            record.over(over);
        }
    }

    /// Cgroups of the previous daemon that may still be created.
    pub(in crate::engine) fn left(&self) -> BTreeSet<CgroupPath> {
        let left = self.left.as_ref().filter(|(since, _)| since.elapsed() < MADE_WITHIN);
        left.map(|(_, left)| left.clone()).unwrap_or_default()
    }

    /// Forgets a container that has ended.
    pub(in crate::engine) fn ends(&mut self, cgroup: &CgroupPath) {
        self.untouched.remove(cgroup);
        if self.renewed.remove(cgroup).is_some() {
            self.are_renewed(std::iter::once(cgroup.clone()));
        }
        if let Some((_, left)) = &mut self.left {
            left.remove(cgroup);
        }
        self.retain(|other| other != cgroup);
    }

    /// Replaces the current cpusets of all running containers.
    pub(in crate::engine) fn set_original_cpusets(
        &mut self,
        all: impl Iterator<Item = (CgroupPath, Cpuset)>,
    ) {
        self.untouched = all.collect();
    }

    /// Notes the cpuset of a container that was not announced.
    pub(in crate::engine) fn set_original_cpuset(&mut self, cgroup: CgroupPath, cpuset: Cpuset) {
        self.untouched.insert(cgroup, cpuset);
    }

    /// Notes that the runtime's caller has set this cgroup: that is its original from now on. Absent sets
    /// stay. The journal renews its entries in `early_turn`.
    fn note_caller_request(
        &mut self,
        cgroup: &CgroupPath,
        wanted: &Cpuset,
        early_turn: &mut EarlyTurn,
    ) -> Option<Ticket> {
        let renew = |was: &mut Cpuset| {
            was.cpus = wanted.cpus.clone().or(was.cpus.take());
            was.mems = wanted.mems.clone().or(was.mems.take());
        };
        if let Some(untouched) = self.untouched.get_mut(cgroup) {
            renew(untouched);
        } else if let Some(made) = self.unrecorded.get_mut(cgroup) {
            renew(&mut made.original);
            return self.record.as_ref().map(|record| record.record(cgroup, made));
        } else {
            let renewed = self.renewed.entry(cgroup.clone()).or_default();
            renew(renewed);
            let original = renewed.clone();
            early_turn.request();
            let made = Made { renews: true, ..self.pending_record(&original) };
            return self.record.as_ref().map(|record| record.record(cgroup, &made));
        }
        None
    }

    /// Takes the originals that the journal must renew.
    pub(in crate::engine) fn take_renewed(&mut self) -> BTreeMap<CgroupPath, Cpuset> {
        std::mem::take(&mut self.renewed)
    }

    /// Drops renewals that the journal has, and those of ended containers. Later ones stay.
    fn are_renewed(&self, cgroups: impl Iterator<Item = CgroupPath>) {
        let over: Vec<_> = cgroups.filter(|cgroup| !self.renewed.contains_key(cgroup)).collect();
        if let Some(record) = self.record.as_ref().filter(|_| !over.is_empty()) {
            record.over(over);
        }
    }

    /// Puts renewals back that the journal did not take; later ones win.
    pub(in crate::engine) fn were_taken(&mut self, taken: BTreeMap<CgroupPath, Cpuset>, written: bool) {
        if written {
            return self.are_renewed(taken.into_keys());
        }
        for (cgroup, before) in taken {
            let now = self.renewed.entry(cgroup).or_default();
            now.cpus = now.cpus.take().or(before.cpus);
            now.mems = now.mems.take().or(before.mems);
        }
    }
}

/// Records to wait for before the runtime gets its answer; often empty.
#[derive(Debug, Default)]
#[must_use = "what is not waited for may not be written"]
pub(in crate::engine) struct Noting {
    tickets: Vec<Ticket>,
    /// Running containers with their former cpusets.
    changed: Vec<Changed>,
    /// Id and cgroup of a new container.
    new: Option<(String, CgroupPath)>,
    pins: NotingPins,
}

/// Pins of threads, which are noted as well.
#[derive(Debug, Default)]
pub(super) struct NotingPins {
    pub(super) ticket: Option<Ticket>,
    /// Containers of which none were noted before.
    pub(super) cgroups: Vec<CgroupPath>,
}

/// A running container, its former cpuset, and whether that was noted just now.
#[derive(Debug)]
struct Changed {
    id: String,
    cgroup: CgroupPath,
    before: Cpuset,
    is_new: bool,
}

impl Noting {
    /// Joins both.
    pub(in crate::engine) fn and(mut self, other: Self) -> Self {
        self.tickets.extend(other.tickets);
        self.changed.extend(other.changed);
        self.new = self.new.or(other.new);
        self.pins.ticket = self.pins.ticket.max(other.pins.ticket);
        self.pins.cgroups.extend(other.pins.cgroups);
        self
    }

    /// These alone.
    pub(super) fn of_pins(pins: NotingPins) -> Self {
        Self { pins, ..Self::default() }
    }
}

impl SharedLedger {
    /// Waits until all of this is written, for a bounded time in all and without the lock. False where it is
    /// not: then nothing is set from now on. Pins that are not written keep nothing from being told.
    pub(in crate::engine) fn await_noted(&self, noting: Noting) -> bool {
        let Some(waiter) = self.lock().originals.waiter() else { return true };
        let until = Waiter::deadline();
        if let Err(error) = noting.tickets.iter().try_for_each(|ticket| waiter.wait_for_line(*ticket, until))
        {
            self.lock().is_not_noted(noting, &error);
            return false;
        }
        let pins = noting.pins.ticket.map_or(Ok(()), |ticket| waiter.wait(ticket, until));
        if let Err(error) = pins {
            tracing::warn!("where threads have pinned themselves is lost if this daemon ends now: {error}");
        }
        true
    }
}

impl Ledger {
    /// Notes that a container is created with our cpuset, and its original.
    pub(in crate::engine) fn record_original(&mut self, one: &Announced, noting: &mut Noting) {
        if self.held.containers.holder(&one.id).is_none() {
            return;
        }
        let grant = self.held.containers.record(&self.held.allocations, &one.id);
        let granted = grant.map(|grant| Granted { id: one.id.clone(), grant });
        if let Some(cgroup) = &one.cgroup {
            noting.tickets.extend(self.originals.note(cgroup, &one.now, granted));
            noting.new = Some((one.id.clone(), cgroup.clone()));
        }
    }

    /// Notes that the runtime's caller sets a container of ours; also while writes are blocked.
    pub(in crate::engine) fn note_caller_request(&mut self, id: &str, wanted: &Cpuset, noting: &mut Noting) {
        if wanted.is_empty() {
            return;
        }
        let ours = self.held.containers.holder(id).filter(|holder| !holder.is_given());
        if let Some(cgroup) = ours.and_then(|holder| self.held.containers.cgroup_of(holder)).cloned() {
            let Self { originals, requests, .. } = self;
            let early_turn = &mut requests.early_turn;
            noting.tickets.extend(originals.note_caller_request(&cgroup, wanted, early_turn));
        }
    }

    /// Notes the originals of running containers before their runtime sets them. Containers that we have set
    /// before are recorded already; foreign ones are never set.
    pub(in crate::engine) fn changes<'a>(&mut self, ids: impl Iterator<Item = &'a String>) -> Noting {
        let mut noting = Noting::default();
        if self.overrides.is_frozen() {
            return noting;
        }
        for id in ids {
            let ours = self.held.containers.holder(id).filter(|holder| !holder.is_given());
            let cgroup = ours.and_then(|holder| self.held.containers.cgroup_of(holder));
            let before = cgroup.and_then(|cgroup| self.originals.untouched.remove_entry(cgroup));
            let Some((cgroup, before)) = before else { continue };
            let is_new = !self.originals.unrecorded.contains_key(&cgroup);
            if is_new {
                noting.tickets.extend(self.originals.note(&cgroup, &before, None));
            }
            noting.changed.push(Changed { id: id.clone(), cgroup, before, is_new });
        }
        self.request_turn_for_journal();
        noting
    }

    /// Requests a turn if originals wait for the journal: the cgroup of a container exists now.
    pub(in crate::engine) fn request_turn_for_journal(&mut self) {
        if !self.originals.unrecorded.is_empty() {
            self.requests.early_turn.request();
        }
    }

    /// Blocks writes, and freezes what was to be set.
    fn is_not_noted(&mut self, noting: Noting, error: &str) {
        if !self.overrides.journal_blocked {
            tracing::warn!("a runtime is told nothing until it can be recorded: {error}");
        }
        self.overrides.journal_blocked = true;
        self.freeze(false);
        let Noting { changed, new, pins, .. } = noting;
        self.drop_pins(&pins.cgroups);
        for Changed { id, cgroup, before, is_new } in changed {
            self.originals.retain(|other| !is_new || *other != cgroup);
            if let Some(frozen) = &mut self.overrides.frozen {
                frozen.insert(id, before.clone());
            }
            self.originals.untouched.insert(cgroup, before);
        }
        if let Some((id, cgroup)) = new {
            self.originals.retain(|other| *other != cgroup);
            self.overrides.unfreeze(&id);
        }
    }
}
