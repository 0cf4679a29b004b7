//! The thread that widens: looks at the nodes, asks the core what is due, and has it written.
//!
//! Every 5 ms while somebody is near the end, and each 100 ms to 1 s while all is calm, by what is free, or 4
//! s where nothing has gone for a while ([`Watch::rest`]); the ring of memory pressure wakes it at once. Of
//! these calm looks those are left out before which next to nothing went of what is free on the host
//! ([`Watch::pass`]). A look allocates nothing. A write is on a thread of its own, with files that were
//! opened when the workload was handed in, and its original in the journal since then: between the sign and
//! the write there is neither a file to open nor a disk to wait for.
//!
//! Who would be through before a write returns is slowed down until then, where that is wanted
//! ([`super::brake`]).
//!
//! Never: it decides; it waits for a write; it writes while enforcement is paused.

use std::{
    fmt::Write as _,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use enforcer_core::{
    policy::Brake,
    sample::{OomConstraint, PressureEvent, PressureKind},
    widening::{BrakeOrder, Guarded, Latencies, Sign, Step, Watch, What},
    workload::CgroupPath,
};

use super::{
    MOST_TOLD, Senses, Widening,
    brake::{Lever, not_on_v1},
    told::{Addition, Happened, Told},
};
use crate::{
    engine::Gate,
    observe::{PressureTap, free_on_all_nodes},
};
use enforcer_act::{
    brake::BrakeFiles,
    cpuset::CpusetTree,
    mems_file::{MemsFiles, MemsWrite},
};
use enforcer_kernel::clock;

/// Time between two looks while somebody is near the end.
const ARMED: Duration = Duration::from_millis(5);
/// The same while nobody is guarded.
const IDLE: Duration = Duration::from_secs(10);
/// Most results of writes that are taken at once: every one of them woke it.
const MOST_RESULTS: usize = 64;

/// What the thread has.
pub(super) struct Guardian {
    widening: Widening,
    senses: Senses,
    gate: Gate,
    watch: Watch,
    files: MemsFiles,
    tree: CpusetTree,
    lever: Lever,
    brake: Brake,
    brake_files: BrakeFiles,
    results: (Sender<Done>, Receiver<Done>),
    /// How long writes took.
    writes: Latencies,
    /// The latest sign of the kernel that no look has used, by its time.
    signed_ns: Option<u64>,
    /// It was said already that the nodes cannot be read.
    blind: bool,
    /// Bytes that were free on all nodes together at the latest look.
    free: u64,
}

/// A write that has returned.
struct Done {
    cgroup: CgroupPath,
    addition: Addition,
    /// From what made it necessary, and from its begin, in ns.
    since_trigger: u64,
    took: u64,
}

impl Guardian {
    pub(super) fn new(
        widening: Widening,
        senses: Senses,
        lever: Lever,
        tree: CpusetTree,
        gate: Gate,
    ) -> Self {
        Self {
            widening,
            senses,
            gate,
            watch: Watch::default(),
            files: MemsFiles::new(tree.clone()),
            tree,
            lever,
            brake: Brake::Off,
            brake_files: BrakeFiles::default(),
            results: channel(),
            writes: Latencies::default(),
            signed_ns: None,
            blind: false,
            free: 0,
        }
    }

    /// Until the daemon ends.
    pub(super) fn run(mut self) {
        let mut ring: Option<OwnedFd> = self.senses.tap.descriptor();
        loop {
            let longest = match self.watch.guards() {
                [] => IDLE,
                _ if self.watch.is_armed() => ARMED,
                _ => self.watch.rest(ring.is_some()),
            };
            let mut by_itself = false;
            match PressureTap::wait(&self.widening.waker, ring.as_ref(), longest) {
                Ok((true, _)) => {
                    ring = self.senses.tap.descriptor();
                    self.take_results();
                    self.follow();
                }
                Ok((false, told)) => by_itself = !told,
                Err(error) => {
                    tracing::error!("waiting for memory pressure: {error}");
                    std::thread::sleep(ARMED);
                }
            }
            self.take_events();
            let passes = by_itself && ring.is_some() && self.passes();
            if !self.watch.guards().is_empty() && !passes {
                self.look();
            }
            self.brake();
        }
    }

    /// Goes on with whom the turns hand in.
    fn follow(&mut self) {
        let guards = {
            let mut state = self.widening.lock();
            if !std::mem::take(&mut state.anew) {
                return;
            }
            Arc::clone(&state.guards)
        };
        for said in self.files.follow(&guards.guarded) {
            tracing::warn!("{said}");
        }
        self.senses.limits.follow(guards.guarded.iter().map(|one| &one.cgroup));
        self.watch.follow(&guards.settings, guards.guarded.clone());
        self.follow_brake(guards.settings.brake, &guards.guarded);
    }

    /// Goes on with what the configuration says of the brake.
    fn follow_brake(&mut self, wanted: Brake, guarded: &[Guarded]) {
        let usable = wanted == Brake::Off || self.tree.is_v2();
        let to_slow = if usable && wanted != Brake::Off { guarded } else { &[] };
        self.brake_files.follow(&self.tree, to_slow);
        if wanted == self.brake {
            return;
        }
        self.brake = wanted;
        if usable {
            self.lever.be(wanted);
        } else {
            self.widening.lock().brake_degraded = Some(not_on_v1());
        }
    }

    /// Slows down who would be through before its write returns, and lets others go on.
    fn brake(&mut self) {
        if !self.watch.may_brake() {
            return;
        }
        let kind = self.lever.kind(self.brake, self.gate.paused().is_some());
        let write_ns = self.writes.quantile(99).unwrap_or(0);
        for order in self.watch.brake(clock::now_ns(), write_ns, kind) {
            let file = match order {
                BrakeOrder::Slow { cgroup, .. } => self.brake_files.get(cgroup),
                BrakeOrder::Release { .. } => None,
            };
            self.lever.carry_out(order, file);
        }
    }

    /// May the look that is due be left out?
    fn passes(&mut self) -> bool {
        let gone = self.free.saturating_sub(free_on_all_nodes());
        self.signed_ns.is_none() && !self.blind && self.watch.pass(gone)
    }

    /// Takes what the kernel told.
    fn take_events(&mut self) {
        let Self { senses, watch, signed_ns, widening, .. } = self;
        senses.tap.take(|event| {
            let sign = match event.kind {
                PressureKind::KswapdWoken => Sign::KswapdWoken,
                PressureKind::DirectReclaim => Sign::DirectReclaim,
                PressureKind::ReclaimRetry => Sign::ReclaimRetry,
                PressureKind::OomVictim => return killed(watch, widening, event),
            };
            *signed_ns = Some(signed_ns.map_or(event.time_ns, |first| first.min(event.time_ns)));
            watch.note_sign(sign, event.numa_node, event.cgroup_id);
        });
    }

    fn look(&mut self) {
        let now_ns = clock::now_ns();
        // Before the nodes are read: what goes meanwhile is gone.
        self.free = free_on_all_nodes();
        let Self { senses: Senses { rooms, limits, .. }, watch, .. } = self;
        let rooms = match rooms.look(Instant::now()) {
            Ok(rooms) => rooms,
            Err(error) => {
                if !self.blind {
                    tracing::error!("memory that gets short is not seen: {error}");
                }
                return self.blind = true;
            }
        };
        self.blind = false;
        let write_ns = self.writes.quantile(99).unwrap_or(0);
        let steps = watch.look(now_ns, rooms, write_ns, &mut |guarded| limits.left(&guarded.cgroup));
        let trigger_ns = self.signed_ns.take().unwrap_or(now_ns).min(now_ns);
        if steps.is_empty() {
            return;
        }
        let steps = steps.to_vec();
        for step in steps {
            self.carry_out(step, trigger_ns);
        }
        self.widening.relief_waker.wake();
    }

    fn carry_out(&mut self, Step { guard, stage, sight, what }: Step, trigger_ns: u64) {
        let Some(guarded) = self.watch.guards().get(guard).map(enforcer_core::widening::Guard::guarded)
        else {
            return;
        };
        let cgroup = guarded.cgroup.clone();
        let mems = match what {
            What::Widen(mems) => mems,
            What::Refuse(refusal) => {
                let bound = guarded.bound.clone();
                self.widening.lock().report.refused(refusal);
                return tell(
                    &self.widening,
                    Told { cgroup, what: Happened::Refused { sight, refusal, bound } },
                );
            }
        };
        // Inside until the write has returned: whoever pauses waits for that.
        let Some(inside) = self.gate.enter() else { return self.watch.written(&cgroup, false) };
        let mut above = String::new();
        let mut wider = Vec::new();
        for (path, has) in &guarded.above {
            if !mems.is_subset(has) {
                let to = has.union(&mems);
                // Writing into a text cannot fail.
                let _ = write!(above, ", after {path} above it has {to}");
                wider.push((path.clone(), to));
            }
        }
        wider.push((cgroup.clone(), mems.union(&guarded.kept)));
        let files: Option<Vec<_>> =
            wider.into_iter().map(|(path, mems)| Some((self.files.get(&path)?, mems))).collect();
        let added = mems.difference(&guarded.home);
        let before = {
            let mut state = self.widening.lock();
            let known = state.added.entry(cgroup.clone()).or_default();
            let before = guarded.home.union(known);
            known.extend(&added);
            state.busy += 1;
            before
        };
        let begun = clock::now_ns();
        let (sender, waker) = (self.results.0.clone(), self.widening.waker.clone());
        let done = move |cgroup: CgroupPath, result| {
            let now = clock::now_ns();
            let since = |then: u64| now.saturating_sub(then);
            let (since_trigger, took) = (since(trigger_ns), since(begun));
            let addition = Addition { stage, sight, before, mems, above, result };
            // Nobody listens when the daemon ends.
            let _ = sender.send(Done { cgroup, addition, since_trigger, took });
            waker.wake();
            drop(inside);
        };
        match files {
            Some(files) => MemsWrite { cgroup, files }.start(done),
            None => done(cgroup, Err("its cpuset, or that of one above it, could not be opened".to_owned())),
        }
    }

    fn take_results(&mut self) {
        for _ in 0..MOST_RESULTS {
            let Ok(done) = self.results.1.try_recv() else { return };
            let Done { cgroup, addition, since_trigger, took } = done;
            let Addition { stage, before, mems, result, .. } = &addition;
            self.watch.written(&cgroup, result.is_ok());
            self.writes.note(took);
            if result.is_err() {
                self.files.forget(&cgroup);
            }
            {
                let mut state = self.widening.lock();
                state.busy = state.busy.saturating_sub(1);
                state.report.widened_at(*stage, result.is_ok(), since_trigger);
                if result.is_err()
                    && let Some(added) = state.added.get_mut(&cgroup)
                {
                    *added = added.difference(&mems.difference(before));
                    if added.is_empty() {
                        state.added.remove(&cgroup);
                    }
                }
            }
            tell(&self.widening, Told { cgroup, what: Happened::Widened(addition) });
        }
    }
}

/// One of a guarded workload is killed, or of nobody who is.
fn killed(watch: &mut Watch, widening: &Widening, event: &PressureEvent) {
    let by_limit = match event.constraint {
        Some(OomConstraint::Memcg) => true,
        Some(OomConstraint::Cpuset | OomConstraint::MemoryPolicy) => false,
        _ => return,
    };
    let mut whose = watch.guards().iter().map(enforcer_core::widening::Guard::guarded);
    let Some(guarded) = whose.find(|one| one.cgroup_id == Some(event.cgroup_id)) else { return };
    let cgroup = guarded.cgroup.clone();
    widening.lock().report.killed(by_limit);
    if !by_limit {
        watch.killed(&cgroup);
    }
    tell(widening, Told { cgroup, what: Happened::Killed { by_limit } });
}

pub(super) fn tell(widening: &Widening, told: Told) {
    told.log();
    let mut state = widening.lock();
    if state.told.len() < MOST_TOLD {
        state.told.push(told);
    }
}
