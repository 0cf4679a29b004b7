//! The thread that slows workloads down and resumes them on the guardian's orders.
//!
//! Problem: a write of `cgroup.freeze` may wait a second for a lock, and the guardian must not wait. Idea:
//! this thread writes. It starts the watching process once, when the configuration first asks for a brake. If
//! that process ends, the brake stays off and is named as degraded.
//!
//! Invariant: the thread decides nothing, except that it ends a brake when its time is over, whatever the
//! guardian does.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    time::Duration,
};

use enforcer_core::{
    named::Named as _,
    policy::Brake,
    widening::{BrakeConditions, BrakeKind, BrakeOrder, LONGEST_BRAKE_NS, ReleaseReason},
    workload::CgroupPath,
};
use numa_topology::degraded::Degraded;

use super::{
    guard_event::{GuardEvent, Happened},
    shared::Widening,
};
use crate::threads::{self, Role};
use enforcer_act::{
    brake::{BrakeControl, BrakeFile, watchdog::BrakeWatchdog},
    journal::BrakeRecord,
};
use enforcer_kernel::{clock, waker::Waker};
use enforcer_report::widening::BrakeUse;

/// Longest wait while a workload is slowed down.
const SLOWED: Duration = Duration::from_millis(20);
/// The same while none is.
const CALM: Duration = Duration::from_mins(1);

/// Parts that a brake needs.
pub struct BrakeParts {
    /// Where brakes are recorded, or why they cannot be.
    pub record: Result<BrakeRecord, String>,
    /// Id of this boot.
    pub boot_id: Option<String>,
    /// Whether the kernel demotes reclaimed pages at this moment.
    pub demotes: Box<dyn Fn() -> bool + Send>,
}

/// Orders to the thread.
enum BrakeCommand {
    /// The configured kind of brake.
    Be(Brake),
    Slow {
        file: Arc<BrakeFile>,
        kind: BrakeKind,
        rate: u64,
        until_ns: u64,
    },
    Release {
        cgroup: CgroupPath,
        why: ReleaseReason,
    },
}

/// The guardian's end of the brake thread.
pub(super) struct BrakeHandle {
    orders: Sender<BrakeCommand>,
    waker: Waker,
    watched: Arc<AtomicBool>,
    demotes: Box<dyn Fn() -> bool + Send>,
}

impl BrakeHandle {
    /// Starts the thread, without workloads to watch.
    pub(super) fn start(widening: Widening, parts: BrakeParts) -> std::io::Result<Self> {
        let BrakeParts { record, boot_id, demotes } = parts;
        let (orders, receiver) = channel();
        let (waker, watched) = (Waker::new()?, Arc::new(AtomicBool::new(false)));
        let (hears, watches) = (waker.clone(), Arc::clone(&watched));
        let slowing = move || {
            BrakeWorker { widening, orders: receiver, waker: hears, watched: watches, brakes: None }
                .run(record, boot_id);
        };
        threads::spawn(Role::Brake, slowing)?;
        Ok(Self { orders, waker, watched, demotes })
    }

    /// The kind of brake that can be used now.
    pub(super) fn kind(&self, wanted: Brake, paused: bool) -> Option<BrakeKind> {
        let watched = self.watched.load(Ordering::Acquire);
        let demotes = wanted == Brake::High && (self.demotes)();
        BrakeConditions { wanted, watched, paused, demotes }.kind()
    }

    /// Applies the configured kind of brake.
    pub(super) fn be(&self, wanted: Brake) {
        self.send(BrakeCommand::Be(wanted));
    }

    /// Hands an order to the thread; `file` belongs to its cgroup.
    pub(super) fn carry_out(&self, order: &BrakeOrder, file: Option<Arc<BrakeFile>>) {
        match (order, file) {
            (BrakeOrder::Slow { kind, rate, until_ns, .. }, Some(file)) => {
                self.send(BrakeCommand::Slow { file, kind: *kind, rate: *rate, until_ns: *until_ns });
            }
            // Its files could not be opened; that was logged.
            (BrakeOrder::Slow { .. }, None) => {}
            (BrakeOrder::Release { cgroup, why }, _) => {
                self.send(BrakeCommand::Release { cgroup: cgroup.clone(), why: *why });
            }
        }
    }

    fn send(&self, order: BrakeCommand) {
        // The thread listens for as long as the daemon runs.
        let _ = self.orders.send(order);
        self.waker.wake();
    }
}

struct BrakeWorker {
    widening: Widening,
    orders: Receiver<BrakeCommand>,
    waker: Waker,
    watched: Arc<AtomicBool>,
    brakes: Option<BrakeControl>,
}

impl BrakeWorker {
    fn run(mut self, record: Result<BrakeRecord, String>, boot_id: Option<String>) {
        // Taken at the first use.
        let mut parts = Some((record, boot_id));
        loop {
            let busy = self.brakes.as_ref().is_some_and(|brakes| !brakes.slowed().is_empty());
            let longest = if busy { SLOWED } else { CALM };
            let socket: Option<BorrowedFd<'_>> =
                self.brakes.as_ref().map(|brakes| brakes.watchdog().socket());
            if self.waker.wait(socket, longest).is_err() {
                std::thread::sleep(SLOWED);
            }
            loop {
                match self.orders.try_recv() {
                    Ok(BrakeCommand::Be(wanted)) => self.be(wanted, &mut parts),
                    Ok(BrakeCommand::Slow { file, kind, rate, until_ns }) => {
                        self.slow(file, kind, rate, until_ns);
                    }
                    Ok(BrakeCommand::Release { cgroup, why }) => self.release(&cgroup, why),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let overdue = |brakes: &BrakeControl| brakes.overdue(clock::now_ns(), LONGEST_BRAKE_NS);
            for cgroup in self.brakes.as_ref().map(overdue).unwrap_or_default() {
                self.release(&cgroup, ReleaseReason::TimeIsUp);
            }
            self.look_at_watchdog();
        }
    }

    fn be(&mut self, wanted: Brake, parts: &mut Option<(Result<BrakeRecord, String>, Option<String>)>) {
        if wanted != Brake::Off
            && let Some((record, boot_id)) = parts.take()
        {
            let started = record.and_then(|record| {
                let handle = record.handle().map_err(|error| error.to_string())?;
                Ok(BrakeControl::new(record, boot_id, BrakeWatchdog::start(handle)?))
            });
            match started {
                Ok(brakes) => {
                    self.watched.store(true, Ordering::Release);
                    self.brakes = Some(brakes);
                }
                Err(error) => self.is_without(error),
            }
        }
        self.note(|used| wanted.name().clone_into(&mut used.wanted));
    }

    /// Switches the brake off for good.
    fn is_without(&mut self, why: String) {
        tracing::error!("workloads are not slowed down any more: {why}");
        self.watched.store(false, Ordering::Release);
        self.brakes = None;
        self.widening.lock().brake_degraded = Some(not_watched(why));
        self.note(|_| ());
    }

    fn look_at_watchdog(&mut self) {
        let lost = self.brakes.as_mut().and_then(|brakes| brakes.lost().map(str::to_owned));
        let Some(why) = lost else { return };
        self.watched.store(false, Ordering::Release);
        for cgroup in self.slowed() {
            self.release(&cgroup, ReleaseReason::NotAllowed);
        }
        self.is_without(format!("the process that watches: {why}"));
    }

    fn slowed(&self) -> Vec<CgroupPath> {
        let slowed = self.brakes.as_ref().map(BrakeControl::slowed).unwrap_or_default();
        slowed.iter().map(|one| one.cgroup().clone()).collect()
    }

    fn slow(&mut self, file: Arc<BrakeFile>, kind: BrakeKind, rate: u64, until_ns: u64) {
        let Some(brakes) = &mut self.brakes else { return };
        let cgroup = file.cgroup().clone();
        match brakes.slow(file, kind, rate, until_ns) {
            Ok(()) => self.note(|used| used.applied += 1),
            Err(why) => {
                self.note(|used| used.failed += 1);
                self.widening.note(GuardEvent { cgroup, what: Happened::NotSlowed { why } });
            }
        }
    }

    fn release(&mut self, cgroup: &CgroupPath, why: ReleaseReason) {
        let Some((slowed, result)) = self.brakes.as_mut().and_then(|brakes| brakes.release(cgroup)) else {
            return;
        };
        let lasted_ns = clock::now_ns().saturating_sub(slowed.since_ns);
        self.note(|used| used.slowed_ns = used.slowed_ns.saturating_add(lasted_ns));
        let (cgroup, set) = (cgroup.clone(), slowed.what());
        self.widening.note(GuardEvent { cgroup, what: Happened::Slowed { set, lasted_ns, why, result } });
    }

    /// Updates the brake's part of the report.
    fn note(&self, change: impl FnOnce(&mut BrakeUse)) {
        let now = self.slowed();
        let watchdog = self.brakes.as_ref().and_then(|brakes| brakes.watchdog().pid());
        let mut state = self.widening.lock();
        let used = state.report.brake.get_or_insert_default();
        change(used);
        (used.slowed, used.watchdog) = (now, watchdog);
    }
}

fn not_watched(why: String) -> Degraded {
    let effect =
        "a workload that fills its nodes faster than one can be added is not slowed down; restart the daemon";
    Degraded::new("brake", why, effect)
}

/// Why there is no brake on cgroup v1.
pub(super) fn not_on_v1() -> Degraded {
    let reason = "cgroup v1 has neither cgroup.freeze nor memory.high beside its cpusets";
    let effect = "a workload that fills its nodes faster than one can be added is not slowed down";
    Degraded::new("brake", reason, effect)
}
