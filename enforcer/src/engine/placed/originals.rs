//! What containers would be set to without us, from the moment that a runtime is told something else on.
//!
//! `restore` puts it back from the journal, which has an entry for a cgroup that is there. Until one is, the
//! original is in a record of its own, for the next daemon, should this one be killed in between. It is
//! written before the answer, and without the lock of what is given away: what could not be noted is not
//! told.
//!
//! Never: anything is set here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use enforcer_core::{
    place::{Announced, Cpuset},
    workload::CgroupPath,
};

use super::{
    Placed, State,
    record_writer::{RecordWriter, Ticket, Waiter},
};
use crate::waker::Waker;
use enforcer_act::journal::{Granted, MADE_WITHIN, Made, MakingRecord, NotedPins};
use enforcer_kernel::clock;

/// The originals that the journal does not have yet.
#[derive(Debug, Default)]
pub(in crate::engine) struct Originals {
    /// Of containers of which a runtime was told.
    unrecorded: BTreeMap<CgroupPath, Made>,
    /// Of those that a runtime has listed, and of which it was told nothing since.
    untouched: BTreeMap<CgroupPath, Cpuset>,
    /// Of those in the journal, what their runtime was told to set since.
    renewed: BTreeMap<CgroupPath, Cpuset>,
    /// The same as `unrecorded` for the next daemon, where somebody may write.
    record: Option<RecordWriter>,
    /// Of `unrecorded`, those that a daemon before this one left, and since when: their cgroups may still be
    /// made.
    left: Option<(Instant, BTreeSet<CgroupPath>)>,
    /// A container has started since this was last asked about which a turn has something to do.
    started: bool,
    /// Woken when one has.
    waker: Option<Waker>,
}

impl Originals {
    /// Notes from now on for the next daemon, and goes on with what one before this `left`.
    pub(in crate::engine) fn remember(&mut self, record: MakingRecord, left: BTreeMap<CgroupPath, Made>) {
        self.record = Some(RecordWriter::start(record, left.clone()));
        let (renewed, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            left.into_iter().partition(|(_, made)| made.renews);
        self.renewed.extend(renewed.into_iter().map(|(cgroup, made)| (cgroup, made.original)));
        self.left = Some((Instant::now(), left.keys().cloned().collect()));
        self.unrecorded.extend(left);
    }

    /// What tells whether anything can be noted; none where nobody writes.
    pub(super) fn waiter(&self) -> Option<Waiter> {
        self.record.as_ref().map(RecordWriter::waiter)
    }

    /// Has these pins written for the next daemon, in the place of those before.
    pub(super) fn keep_pins(&self, all: BTreeMap<CgroupPath, NotedPins>) -> Option<Ticket> {
        self.record.as_ref().map(|record| record.pins(all))
    }

    /// What a cgroup would be set to, for the journal, and for the next daemon; with what a new container was
    /// granted. The ticket is to be waited for before its runtime is told.
    fn note(&mut self, cgroup: &CgroupPath, original: &Cpuset, granted: Option<Granted>) -> Option<Ticket> {
        let made = Made { granted, ..self.told(original) };
        let ticket = self.record.as_ref().map(|record| record.made(cgroup, &made));
        self.unrecorded.insert(cgroup.clone(), made);
        ticket
    }

    /// What a runtime is told now.
    fn told(&self, original: &Cpuset) -> Made {
        let boot_id = self.record.as_ref().and_then(RecordWriter::boot_id).map(str::to_owned);
        let (original, told_ns) = (original.clone(), clock::now_ns());
        Made { original, renews: false, granted: None, boot_id, told_ns }
    }

    /// All that the journal does not have.
    pub(in crate::engine) fn unrecorded(&self) -> BTreeMap<CgroupPath, Cpuset> {
        self.unrecorded.iter().map(|(cgroup, made)| (cgroup.clone(), made.original.clone())).collect()
    }

    /// The journal has these.
    pub(in crate::engine) fn recorded(&mut self, cgroups: &[CgroupPath]) {
        let gone = self.left.take_if(|(since, _)| since.elapsed() > MADE_WITHIN);
        let gone = gone.map(|(_, gone)| gone).unwrap_or_default();
        self.retain(|cgroup| !cgroups.contains(cgroup) && !gone.contains(cgroup));
    }

    /// Of these, only those that a runtime lists are left, and those that it may be making since the daemon
    /// before.
    pub(in crate::engine) fn only(&mut self, is_listed: impl Fn(&CgroupPath) -> bool) {
        let left = self.left();
        self.retain(|cgroup| is_listed(cgroup) || left.contains(cgroup));
    }

    /// The others are in the journal, or have ended.
    fn retain(&mut self, stays: impl Fn(&CgroupPath) -> bool) {
        let over: Vec<_> =
            self.unrecorded.extract_if(.., |cgroup, _| !stays(cgroup)).map(|(cgroup, _)| cgroup).collect();
        if let Some(record) = self.record.as_ref().filter(|_| !over.is_empty()) {
            record.over(over);
        }
    }

    /// Those of a daemon before this one, for as long as they may still be made.
    pub(in crate::engine) fn left(&self) -> BTreeSet<CgroupPath> {
        let left = self.left.as_ref().filter(|(since, _)| since.elapsed() < MADE_WITHIN);
        left.map(|(_, left)| left.clone()).unwrap_or_default()
    }

    /// A container has ended.
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

    /// These are all that run, and what they are set to.
    pub(in crate::engine) fn are_set_to(&mut self, all: impl Iterator<Item = (CgroupPath, Cpuset)>) {
        self.untouched = all.collect();
    }

    /// So does this one, of which nobody was told.
    pub(in crate::engine) fn is_set_to(&mut self, cgroup: CgroupPath, cpuset: Cpuset) {
        self.untouched.insert(cgroup, cpuset);
    }

    /// A runtime was told by its caller to set this one: that is what it would be set to without us, from now
    /// on. What is absent stays as it was.
    fn is_told(&mut self, cgroup: &CgroupPath, wanted: &Cpuset) -> Option<Ticket> {
        let renew = |was: &mut Cpuset| {
            was.cpus = wanted.cpus.clone().or(was.cpus.take());
            was.mems = wanted.mems.clone().or(was.mems.take());
        };
        if let Some(untouched) = self.untouched.get_mut(cgroup) {
            renew(untouched);
        } else if let Some(made) = self.unrecorded.get_mut(cgroup) {
            renew(&mut made.original);
            return self.record.as_ref().map(|record| record.made(cgroup, made));
        } else {
            let renewed = self.renewed.entry(cgroup.clone()).or_default();
            renew(renewed);
            let original = renewed.clone();
            self.want_turn();
            let made = Made { renews: true, ..self.told(&original) };
            return self.record.as_ref().map(|record| record.made(cgroup, &made));
        }
        None
    }

    /// Takes what the journal has to renew.
    pub(in crate::engine) fn take_renewed(&mut self) -> BTreeMap<CgroupPath, Cpuset> {
        std::mem::take(&mut self.renewed)
    }

    /// The journal has these as they were taken, or they have ended. What came since is to be renewed still.
    fn are_renewed(&self, cgroups: impl Iterator<Item = CgroupPath>) {
        let over: Vec<_> = cgroups.filter(|cgroup| !self.renewed.contains_key(cgroup)).collect();
        if let Some(record) = self.record.as_ref().filter(|_| !over.is_empty()) {
            record.over(over);
        }
    }

    /// These were taken, and the journal has them or not. What came since counts more.
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

    /// A container runs, so its cgroup is there.
    pub(in crate::engine) fn started(&mut self) {
        if !self.unrecorded.is_empty() {
            self.want_turn();
        }
    }

    /// There is something for a turn to do that should not wait.
    pub(in crate::engine) fn want_turn(&mut self) {
        self.started = true;
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Is there, since this was last asked?
    pub(in crate::engine) fn take_started(&mut self) -> bool {
        std::mem::take(&mut self.started)
    }

    /// Wakes this from now on when there is.
    pub(in crate::engine) fn listen(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }
}

/// What is noted before a runtime is told; nothing where nothing has to be.
#[derive(Debug, Default)]
#[must_use = "what is not waited for may not be written"]
pub(in crate::engine) struct Noting {
    tickets: Vec<Ticket>,
    /// Containers that run, and what they were set to.
    changed: Vec<Changed>,
    /// The cgroup of a new one, and its id.
    new: Option<(String, CgroupPath)>,
}

/// A container that runs, what it was set to, and whether that was noted just now.
#[derive(Debug)]
struct Changed {
    id: String,
    cgroup: CgroupPath,
    before: Cpuset,
    is_new: bool,
}

impl Noting {
    /// Both.
    pub(in crate::engine) fn and(mut self, other: Self) -> Self {
        self.tickets.extend(other.tickets);
        self.changed.extend(other.changed);
        self.new = self.new.or(other.new);
        self
    }
}

impl Placed {
    /// Waits until all of this is written, for a bounded time and without the lock. False where it is not:
    /// then nothing is set from now on.
    pub(in crate::engine) fn await_noted(&self, noting: Noting) -> bool {
        let waiter = self.lock().originals.waiter();
        let wait = |ticket: &Ticket| waiter.as_ref().map_or(Ok(()), |waiter| waiter.wait(*ticket));
        match noting.tickets.iter().try_for_each(wait) {
            Ok(()) => true,
            Err(error) => {
                self.lock().is_not_noted(noting, &error);
                false
            }
        }
    }
}

impl State {
    /// A container is made with our cpuset instead of what it was to have.
    pub(in crate::engine) fn made(&mut self, one: &Announced, noting: &mut Noting) {
        if self.containers.holder(&one.id).is_none() {
            return;
        }
        let grant = self.containers.record(&self.allocations, &one.id);
        let granted = grant.map(|grant| Granted { id: one.id.clone(), grant });
        if let Some(cgroup) = &one.cgroup {
            noting.tickets.extend(self.originals.note(cgroup, &one.now, granted));
            noting.new = Some((one.id.clone(), cgroup.clone()));
        }
    }

    /// A container is made without what was decided for it.
    pub(in crate::engine) fn made_without(&mut self, id: &str) {
        if let Some(held) = &mut self.held {
            held.remove(id);
        }
    }

    /// A runtime is told by its caller to set a container of ours; it counts while nothing may be set, too.
    pub(in crate::engine) fn is_told(&mut self, id: &str, wanted: &Cpuset, noting: &mut Noting) {
        if wanted.is_empty() {
            return;
        }
        let ours = self.containers.holder(id).filter(|holder| !holder.is_given());
        if let Some(cgroup) = ours.and_then(|holder| self.containers.cgroup_of(holder)).cloned() {
            noting.tickets.extend(self.originals.is_told(&cgroup, wanted));
        }
    }

    /// Containers that run are about to be set by their runtime. Those that were set by us before are
    /// recorded already, and those that are somebody else's are never set.
    pub(in crate::engine) fn changes<'a>(&mut self, ids: impl Iterator<Item = &'a String>) -> Noting {
        let mut noting = Noting::default();
        if self.is_held() {
            return noting;
        }
        for id in ids {
            let ours = self.containers.holder(id).filter(|holder| !holder.is_given());
            let cgroup = ours.and_then(|holder| self.containers.cgroup_of(holder));
            let before = cgroup.and_then(|cgroup| self.originals.untouched.remove_entry(cgroup));
            let Some((cgroup, before)) = before else { continue };
            let is_new = !self.originals.unrecorded.contains_key(&cgroup);
            if is_new {
                noting.tickets.extend(self.originals.note(&cgroup, &before, None));
            }
            noting.changed.push(Changed { id: id.clone(), cgroup, before, is_new });
        }
        self.originals.started();
        noting
    }

    /// Nothing is set from now on, and what was to be set stays as it is.
    fn is_not_noted(&mut self, noting: Noting, error: &str) {
        if !self.barred {
            tracing::warn!("a runtime is told nothing until it can be recorded: {error}");
        }
        self.barred = true;
        self.hold(false);
        let Noting { changed, new, .. } = noting;
        for Changed { id, cgroup, before, is_new } in changed {
            self.originals.retain(|other| !is_new || *other != cgroup);
            if let Some(held) = &mut self.held {
                held.insert(id, before.clone());
            }
            self.originals.untouched.insert(cgroup, before);
        }
        if let Some((id, cgroup)) = new {
            self.originals.retain(|other| *other != cgroup);
            self.made_without(&id);
        }
    }
}
