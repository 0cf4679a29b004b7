//! Interrupts of devices in a turn: reads them, judges them and, where configured, sets their CPUs.
//!
//! The core decides and judges ([`enforcer_core::interrupts`]), `act` writes. This part keeps what lasts from
//! turn to turn. Interrupts are read only while a workload has exclusive CPUs or devices of its own, or while
//! one is set: a large machine has hundreds.
//!
//! Invariants: beside irqbalance nothing is written. When the setting or its reason ends, each interrupt gets
//! its original CPUs back in the next turn.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use enforcer_core::{
    finding::Finding,
    interrupts::{
        InterruptClient, InterruptHistory, InterruptInputs, InterruptMode, InterruptTable, NetworkDevices,
        SteeredInterrupts, assess_interrupts, decide_interrupts, declared_clients, irqbalance,
    },
    policy::Policy,
    workload::printable,
};
use numa_topology::{degraded::Degraded, set::CpuSet};

use super::{Engine, turn::TurnView};
use enforcer_act::interrupts::{InterruptOutcome, InterruptWriter};
use enforcer_host::HostRoot;
use enforcer_report::interrupts::{InterruptReport, InterruptTotals};

/// Most writes of one turn.
const MOST_WRITES: usize = 256;
/// Most refusals that a report names.
const NAMED: usize = 64;

const NOT_SET: &str = "interrupts stay on the CPUs they have";

/// What a writer is opened with.
#[derive(Debug)]
pub struct InterruptParts {
    /// The host.
    pub host: HostRoot,
    /// Directory of the record; its journal is open.
    pub state_dir: PathBuf,
    /// This boot.
    pub boot_id: Option<String>,
    /// An earlier daemon has left a record.
    pub is_left: bool,
}

/// State between two turns.
#[derive(Debug, Default)]
pub(super) struct TurnInterrupts {
    parts: Option<InterruptParts>,
    writer: Option<InterruptWriter>,
    history: InterruptHistory,
    before: Option<InterruptTable>,
    networks: NetworkDevices,
    /// Whether the policy lets the daemon set interrupts, for other threads.
    steers: Arc<AtomicBool>,
    totals: InterruptTotals,
}

/// Result of a turn.
#[derive(Debug, Default)]
pub(super) struct SeenInterrupts {
    pub(super) findings: Vec<Finding>,
    pub(super) degraded: Vec<Degraded>,
    pub(super) report: Option<InterruptReport>,
}

impl TurnInterrupts {
    /// Lets turns write.
    pub(super) fn allow(&mut self, parts: InterruptParts) {
        self.parts = Some(parts);
    }

    /// Whether the policy lets the daemon set interrupts, now and after each reload.
    pub(super) fn steers(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.steers)
    }

    /// Takes over a policy.
    pub(super) fn follow(&self, policy: &Policy) {
        self.steers.store(policy.steers_interrupts(), Ordering::Relaxed);
    }

    /// Opens the writer where interrupts are to be set, or were.
    fn open(&mut self, steers: bool) -> Result<(), Degraded> {
        let Some(parts) = self.parts.as_mut().filter(|parts| steers || parts.is_left) else { return Ok(()) };
        if self.writer.is_some() {
            return Ok(());
        }
        let failed = |reason: String| Degraded::new("interrupts:write", reason, NOT_SET);
        let writer = InterruptWriter::open(&parts.host, &parts.state_dir, parts.boot_id.as_deref());
        let writer = writer.map_err(failed)?;
        for line in writer.damaged() {
            tracing::error!("record of interrupts: line that cannot be read: {}", printable(line));
        }
        parts.is_left = false;
        self.writer = Some(writer);
        Ok(())
    }

    fn steered(&self) -> SteeredInterrupts {
        self.writer.as_ref().map(InterruptWriter::steered).unwrap_or_default()
    }
}

impl Engine {
    /// Reads and judges the interrupts, and sets their CPUs if nothing keeps the daemon from it.
    pub(super) fn look_at_interrupts(
        &mut self,
        view: &TurnView<'_>,
        paused: bool,
        now_ns: u64,
    ) -> SeenInterrupts {
        let mut seen = SeenInterrupts::default();
        let steers = self.policy.steers_interrupts() && self.may_write();
        seen.degraded.extend(self.interrupts.open(steers).err());
        let clients = match self.policy.interrupts.mode {
            InterruptMode::Off => Vec::new(),
            _ => self.interrupt_clients(view, &mut seen.degraded),
        };
        if clients.is_empty() && self.interrupts.steered().is_empty() {
            self.interrupts.before = None;
            return seen;
        }
        let table = match self.source.interrupts(now_ns) {
            Some(Ok(table)) => table,
            Some(Err(degraded)) => {
                seen.degraded.push(degraded);
                return seen;
            }
            None => return seen,
        };
        let balancer = irqbalance(&view.sample.tasks, |pid| self.source.owner_of_process(pid));
        if let Some(pid) = balancer.filter(|_| steers) {
            let reason = format!("irqbalance (process {pid}) distributes interrupts, and is not fought");
            seen.degraded.push(Degraded::new("interrupts:irqbalance", reason, NOT_SET));
        }
        let steered = self.interrupts.steered();
        self.interrupts.history.look(&table, &steered, now_ns);
        if let Some(writer) = &mut self.interrupts.writer {
            let kept = writer.keep_to(&table);
            seen.degraded.extend(kept.err().map(|reason| Degraded::new("interrupts:write", reason, NOT_SET)));
        }
        let steered = self.interrupts.steered();
        let machine = &view.inventory.machine;
        let inputs = InterruptInputs { machine, table: &table, clients: &clients, steered: &steered };
        let before = self.interrupts.before.as_ref();
        let found = assess_interrupts(&inputs, before, &self.interrupts.history, balancer);
        self.interrupts.totals.add(&found);
        if !paused && balancer.is_none() && self.may_write() {
            // Without the setting nothing is left to heed: what was set is given back.
            let heeded: Vec<InterruptClient> =
                clients.iter().filter(|client| steers && !client.is_marked).cloned().collect();
            self.steer(&InterruptInputs { clients: &heeded, ..inputs }, now_ns);
            self.interrupts.history.drop_expired(now_ns);
        }
        let refused: Vec<_> = self.interrupts.history.refusals().take(NAMED).cloned().collect();
        let unset = refused.iter().filter(|one| !one.is_fixed);
        seen.degraded.extend(unset.take(1).map(|one| {
            let reason = format!("interrupt {} ({}): {}", one.number, one.name, one.cause);
            Degraded::new("interrupts:refused", reason, "this interrupt stays on the CPUs it has")
        }));
        seen.findings = found.findings;
        seen.report = Some(InterruptReport {
            steers,
            irqbalance: balancer,
            set: self.interrupts.steered().len(),
            refused,
            workloads: found.workloads,
            totals: self.interrupts.totals.clone(),
        });
        self.interrupts.before = Some(table);
        seen
    }

    /// Carries out what is decided, as far as it is due.
    fn steer(&mut self, inputs: &InterruptInputs<'_>, now_ns: u64) {
        let Some(_inside) = self.gate.enter() else { return };
        let TurnInterrupts { writer: Some(writer), history, totals, .. } = &mut self.interrupts else {
            return;
        };
        for change in history.due(decide_interrupts(inputs), now_ns).into_iter().take(MOST_WRITES) {
            let name = printable(&change.name);
            let (number, from, to) = (change.number, &change.from, &change.to);
            match writer.apply(&change) {
                InterruptOutcome::Set => {
                    history.note_set(number);
                    totals.set += 1;
                    tracing::info!("interrupt {number} ({name}): CPUs {from} -> {to}: {}", change.reason);
                }
                InterruptOutcome::Skipped(reason) => tracing::debug!("interrupt {number} ({name}): {reason}"),
                InterruptOutcome::Refused { cause, is_fixed } => {
                    totals.refused += 1;
                    if history.refusal(number).is_none() {
                        let why = match (is_fixed, &change.device) {
                            (true, Some(_)) => "; the kernel manages its CPUs",
                            (true, None) => "; its chip or driver lets no program choose them",
                            (false, _) => "",
                        };
                        tracing::warn!("interrupt {number} ({name}) stays on CPUs {from}: {cause}{why}");
                    }
                    history.note_refused(&change, cause, is_fixed, now_ns);
                }
            }
        }
    }

    /// Workloads with exclusive CPUs or devices of their own.
    fn interrupt_clients(
        &mut self,
        view: &TurnView<'_>,
        degraded: &mut Vec<Degraded>,
    ) -> Vec<InterruptClient> {
        let TurnView { inventory, workloads, sample, model, declarations, owners } = *view;
        let machine = &inventory.machine;
        let mut clients =
            declared_clients(machine, workloads, sample, model, &self.policy, declarations, owners);
        for mut granted in self.placed.exclusive_clients(machine) {
            if granted.cgroup.is_none() {
                // Those of the workloads themselves are known.
                let known = clients.iter().fold(CpuSet::new(), |all, one| all.union(&one.exclusive));
                granted.exclusive = granted.exclusive.difference(&known);
            }
            let same = clients.iter_mut().find(|one| one.cgroup.is_some() && one.cgroup == granted.cgroup);
            match same {
                Some(known) => known.exclusive = granted.exclusive,
                None if granted.exclusive.is_empty() => {}
                None => clients.push(granted),
            }
        }
        let source = &self.source;
        let unread =
            self.interrupts.networks.add_to(&mut clients, &sample.tasks, |pid| source.network_devices(pid));
        degraded.extend(unread);
        clients
    }
}
