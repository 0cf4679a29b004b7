//! The thread that widens: reads the nodes, asks the core what is due, and has it written.
//!
//! It looks every 5 ms while a workload is near the end of its nodes. While all are calm it looks each 100 ms
//! to 1 s, by free memory, or each 4 s if free memory has not shrunk for a while ([`WideningWatch::rest`]).
//! It skips a calm look when the host's free memory has hardly changed ([`WideningWatch::pass`]). Memory
//! pressure events wake it at once.
//!
//! A look allocates nothing. A thread of its own writes, to files opened when the workload was handed in,
//! with the original in the journal. So between the signal and the write no file is opened and no disk is
//! waited for.
//!
//! A workload that would fill its nodes before the write returns is slowed down until then, if configured
//! ([`super::brake`]).
//!
//! Invariants: this thread makes no decision, does not wait for a write, and does not write while enforcement
//! is paused.

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
    widening::{
        BrakeOrder, Latencies, PressureSign, ProtectedWorkload, WideningAction, WideningStep, WideningWatch,
    },
    workload::CgroupPath,
};

use super::{
    brake::{BrakeHandle, not_on_v1},
    guard_event::{Addition, GuardEvent, Happened},
    shared::Widening,
};
use crate::engine::Gate;
use enforcer_act::{
    brake::BrakeFiles,
    cpuset::CpusetTree,
    mems_file::{MemsFiles, MemsWrite},
};
use enforcer_kernel::clock;
use enforcer_observe::{HeadroomReader, MemoryLimits, PressureTap, free_on_all_nodes};

/// Interval of looks while a workload is near the end of its nodes.
const ARMED: Duration = Duration::from_millis(5);
/// The same without guarded workloads.
const IDLE: Duration = Duration::from_secs(10);
/// Most write results taken at once: each of them woke the thread.
const MOST_RESULTS: usize = 64;

/// Observers of the thread that adds nodes.
pub struct Sensors {
    /// Memory pressure.
    pub tap: PressureTap,
    /// Free memory of the nodes.
    pub rooms: HeadroomReader,
    /// Memory limits of workloads.
    pub limits: MemoryLimits,
}

/// State of the guardian thread.
pub(super) struct Guardian {
    widening: Widening,
    senses: Sensors,
    gate: Gate,
    watch: WideningWatch,
    files: MemsFiles,
    tree: CpusetTree,
    lever: BrakeHandle,
    brake: Brake,
    brake_files: BrakeFiles,
    results: (Sender<FinishedWrite>, Receiver<FinishedWrite>),
    /// Durations of the writes.
    writes: Latencies,
    /// Time of the latest pressure event that no look has used.
    signed_ns: Option<u64>,
    /// The failure to read the nodes was logged already.
    blind: bool,
    /// Free bytes of all nodes together at the latest look.
    free: u64,
}

/// A finished write.
struct FinishedWrite {
    cgroup: CgroupPath,
    addition: Addition,
    /// Time since the event that caused the write, in ns.
    since_trigger: u64,
    took: u64,
}

impl Guardian {
    pub(super) fn new(
        widening: Widening,
        senses: Sensors,
        lever: BrakeHandle,
        tree: CpusetTree,
        gate: Gate,
    ) -> Self {
        Self {
            widening,
            senses,
            gate,
            watch: WideningWatch::default(),
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

    /// Runs until the daemon ends.
    pub(super) fn run(mut self) {
        let mut ring: Option<Arc<OwnedFd>> = self.senses.tap.descriptor();
        loop {
            let longest = match self.watch.guards() {
                [] => IDLE,
                _ if self.watch.is_armed() => ARMED,
                _ => self.watch.rest(ring.is_some()),
            };
            let mut by_itself = false;
            match PressureTap::wait(&self.widening.waker, ring.as_deref(), longest) {
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
                self.check_nodes();
            }
            self.brake();
        }
    }

    /// Takes the workloads that the turns hand in.
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
        self.watch.set_guarded(&guards.settings, guards.guarded.clone());
        self.follow_brake(guards.settings.brake, &guards.guarded);
    }

    /// Applies the configured kind of brake.
    fn follow_brake(&mut self, wanted: Brake, guarded: &[ProtectedWorkload]) {
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

    /// Slows down workloads that would fill their nodes before the write returns, and resumes others.
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

    /// Whether the due look can be skipped.
    fn passes(&mut self) -> bool {
        let gone = self.free.saturating_sub(free_on_all_nodes());
        self.signed_ns.is_none() && !self.blind && self.watch.pass(gone)
    }

    /// Takes the kernel's events.
    fn take_events(&mut self) {
        let Self { senses, watch, signed_ns, widening, .. } = self;
        senses.tap.take(|event| {
            let sign = match event.kind {
                PressureKind::KswapdWoken => PressureSign::KswapdWoken,
                PressureKind::DirectReclaim => PressureSign::DirectReclaim,
                PressureKind::ReclaimRetry => PressureSign::ReclaimRetry,
                PressureKind::OomVictim => return killed(watch, widening, event),
            };
            *signed_ns = Some(signed_ns.map_or(event.time_ns, |first| first.min(event.time_ns)));
            watch.note_sign(sign, event.numa_node, event.cgroup_id);
        });
    }

    fn check_nodes(&mut self) {
        let now_ns = clock::now_ns();
        // Read before the nodes: allocations in between then count as a change.
        self.free = free_on_all_nodes();
        let Self { senses: Sensors { rooms, limits, .. }, watch, .. } = self;
        let rooms = match rooms.read(Instant::now()) {
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
        let steps = watch.steps(now_ns, rooms, write_ns, &mut |guarded| limits.left(&guarded.cgroup));
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

    fn carry_out(&mut self, WideningStep { guard, stage, sight, what }: WideningStep, trigger_ns: u64) {
        let Some(guarded) = self.watch.guards().get(guard).map(enforcer_core::widening::Guard::guarded)
        else {
            return;
        };
        let cgroup = guarded.cgroup.clone();
        let mems = match what {
            WideningAction::Widen(mems) => mems,
            WideningAction::Refuse(refusal) => {
                let bound = guarded.bound.clone();
                self.widening.lock().report.refused(refusal);
                return self
                    .widening
                    .note(GuardEvent { cgroup, what: Happened::Refused { sight, refusal, bound } });
            }
        };
        // Stay inside until the write has returned: a pause waits for that.
        let Some(inside) = self.gate.enter() else { return self.watch.written(&cgroup, false) };
        let mut above = String::new();
        let mut wider = Vec::new();
        for (path, has) in &guarded.above {
            if !mems.is_subset(has) {
                let to = has.union(&mems);
                // Writing to a `String` cannot fail.
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
            // The receiver is gone when the daemon ends.
            let _ = sender.send(FinishedWrite { cgroup, addition, since_trigger, took });
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
            let FinishedWrite { cgroup, addition, since_trigger, took } = done;
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
            self.widening.note(GuardEvent { cgroup, what: Happened::Widened(addition) });
        }
    }
}

/// Records an OOM kill if its victim belongs to a guarded workload.
fn killed(watch: &mut WideningWatch, widening: &Widening, event: &PressureEvent) {
    let by_limit = match event.constraint {
        Some(OomConstraint::Memcg) => true,
        Some(OomConstraint::Cpuset | OomConstraint::MemoryPolicy) => false,
        _ => return,
    };
    let mut guarded = watch.guards().iter().map(enforcer_core::widening::Guard::guarded);
    let Some(guarded) = guarded.find(|one| one.cgroup_id == Some(event.cgroup_id)) else { return };
    let cgroup = guarded.cgroup.clone();
    widening.lock().report.killed(by_limit);
    if !by_limit {
        watch.killed(&cgroup);
    }
    widening.note(GuardEvent { cgroup, what: Happened::Killed { by_limit } });
}
