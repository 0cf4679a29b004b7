//! The control loop: discover, observe, decide, enforce, report.
//!
//! One [`turn`](Engine::turn) is one pass through the stages. The engine owns the state between turns: the
//! previous sample, the grants, the times of corrections, the topology. The time comes in as a value, the
//! host as a [`HostSource`], and writes go to an [`Actuator`]. So a recording can replace the host, and a dry
//! run the writes.
//!
//! The engine makes no decision and knows no kernel detail. On request it records the input of each decision,
//! so that a turn can be repeated (`replay` in the core).

mod calls;
mod cold_start;
pub mod decisions;
mod demotion;
mod drift;
mod early_turns;
mod exposure;
mod gate;
mod interrupts;
mod own_cpus;
mod placed;
mod rebalance;
mod recording;
mod self_placed;
mod source;
#[cfg(test)]
mod tests;
mod top;
mod turn;
mod widened;
mod widening;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use enforcer_core::{
    audit::AuditedHost,
    cold_start::ColdStarts,
    hosted::GrantRecord,
    plan::{Outcome, OutcomeResult, Plan, Step},
    policy::{Mode, Policy},
    sample::Sample,
    turn::{Decision, Drift, History},
    widening::Narrowing,
    workload::{CgroupPath, Workload},
};
use numa_placement::Inventory;
use numa_topology::{Topology, degraded::Degraded};
use tokio::sync::watch;

pub use self::{
    calls::answer_calls,
    decisions::Decisions,
    demotion::{Demotion, demote},
    exposure::ResourceFiles,
    gate::{Gate, GatePass},
    interrupts::InterruptParts,
    placed::{SharedLedger, published::LedgerSnapshot},
    source::{ForeignOwners, HostSource, LiveSource, SourceError, WakeFds},
    top::top_report,
    widening::{BrakeParts, ReliefSensors, Sensors, Widening, start as start_widening},
};
use self::{
    early_turns::EarlyTurns, interrupts::TurnInterrupts, own_cpus::OwnCpus, recording::TurnLog,
    self_placed::SelfPlacedLooks,
};
use crate::{dra::ClaimTally, printer::Printer, publish::PredictionTally, record::Recorder};
use enforcer_act::{
    Actuator, Applied, CurrentClaims as _, DryRunActuator, apply_plan, apply_plan_beside,
    cpuset::CpusetTree,
    journal::{DriftRecord, LeftPins, Made, MakingRecord},
};
use enforcer_cluster::EventTally;
use enforcer_observe::{KeptCgroups, PressureTap};
use enforcer_report::tick::{TickReport, TickTotals};

/// Turns between two reads of the topology: hotplug is rare, and a read takes many files.
const TOPOLOGY_EVERY: u64 = 30;

/// State between two turns.
pub struct Engine {
    source: Box<dyn HostSource>,
    /// Carries out a live plan; `None` in observe mode.
    actuator: Option<Box<dyn Actuator>>,
    policy: Policy,
    host: AuditedHost,
    /// Faults that last longer than a turn: a port in use, a damaged journal.
    standing: Vec<Degraded>,
    /// What other threads miss: to publish the state of this node, or to prepare claims.
    publishing: Vec<watch::Receiver<Option<Degraded>>>,
    /// Counts of events in the cluster, where they are made.
    cluster_events: Option<Arc<EventTally>>,
    /// Counts of predictions from published states, where these are made.
    predictions: Option<Arc<PredictionTally>>,
    /// Calls of the DRA driver, where it runs.
    claims: Option<Arc<ClaimTally>>,
    own_cpus: OwnCpus,
    /// Printers that may lose output.
    printers: Vec<Printer>,
    machine: Option<PlacementMachine>,
    before: Option<Sample>,
    cold_starts: ColdStarts,
    early_turns: EarlyTurns,
    placed: SharedLedger,
    history: History,
    /// Drift counts for the next daemon; `None` where the daemon may not write.
    drift_record: Option<DriftRecord>,
    gate: Gate,
    exposure: ResourceFiles,
    /// Adds memory nodes to workloads that run short; `None` where widening is off.
    widening: Option<Widening>,
    narrowing: Narrowing,
    /// Cgroups with their original memory nodes in the journal.
    recorded_mems: BTreeSet<(CgroupPath, Option<u64>)>,
    /// Cgroups of pod sandboxes, which are not workloads.
    sandboxes: BTreeSet<CgroupPath>,
    /// Findings about processes that have placed themselves.
    self_placed: SelfPlacedLooks,
    demotion: Demotion,
    recording: TurnLog,
    interrupts: TurnInterrupts,
    /// The runtime was given answers that the latest turn did not know.
    overtaken: bool,
    /// Writes are blocked because the journal could not undo them.
    journal_blocked: bool,
    /// Whether enforcement was paused at the latest look.
    was_paused: bool,
    totals: TickTotals,
}

/// Result of a look between two turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolledEvents {
    /// The next turn should not wait.
    pub wants_turn: bool,
    /// The kernel reported tasks on a wrong node, which an early turn may correct.
    pub misplaced: bool,
    /// Nothing was found, and every later event wakes the daemon or may wait some seconds.
    pub is_quiet: bool,
}

/// The machine as placement sees it, with the parts that could not be read.
struct PlacementMachine {
    inventory: Arc<Inventory>,
    degraded: Vec<Degraded>,
}

impl PlacementMachine {
    fn new((topology, mut degraded): (Topology, Vec<Degraded>), policy: &Policy) -> Self {
        let (inventory, unfit) = Inventory::or_whole(topology, &policy.placement);
        degraded.extend(unfit);
        Self { inventory: Arc::new(inventory), degraded }
    }
}

impl Engine {
    /// An engine without observations. Without an actuator it never writes, whatever the policy.
    pub fn new(source: Box<dyn HostSource>, policy: Policy) -> Self {
        let host = source.host();
        let interrupts = TurnInterrupts::default();
        interrupts.follow(&policy);
        Self {
            source,
            actuator: None,
            policy,
            host,
            standing: Vec::new(),
            publishing: Vec::new(),
            cluster_events: None,
            predictions: None,
            claims: None,
            own_cpus: OwnCpus::default(),
            printers: Vec::new(),
            machine: None,
            before: None,
            cold_starts: ColdStarts::default(),
            early_turns: EarlyTurns::default(),
            placed: SharedLedger::default(),
            history: History::default(),
            drift_record: None,
            gate: Gate::default(),
            exposure: ResourceFiles::default(),
            widening: None,
            narrowing: Narrowing::default(),
            recorded_mems: BTreeSet::new(),
            sandboxes: BTreeSet::new(),
            self_placed: SelfPlacedLooks::default(),
            demotion: Demotion::default(),
            recording: TurnLog::default(),
            interrupts,
            overtaken: false,
            journal_blocked: false,
            was_paused: false,
            totals: TickTotals { config_good: true, ..TickTotals::default() },
        }
    }

    /// Sets where writes go when the policy allows them.
    pub fn set_actuator(&mut self, actuator: Box<dyn Actuator>) {
        self.actuator = Some(actuator);
    }

    /// Lets turns set CPUs of interrupts when the policy allows it.
    pub fn allow_interrupts(&mut self, parts: InterruptParts) {
        self.interrupts.allow(parts);
    }

    /// Whether turns set CPUs of interrupts under the policy, now and after each reload.
    pub fn steers_interrupts(&self) -> Arc<AtomicBool> {
        self.interrupts.steers()
    }

    /// Disables writes for good.
    pub fn remove_actuator(&mut self) {
        self.actuator = None;
    }

    /// Refreshes the containers' resource files after each turn.
    pub fn set_exposure(&mut self, exposure: ResourceFiles) {
        self.exposure = exposure;
    }

    /// Records each turn from now on.
    pub fn set_recorder(&mut self, recorder: Recorder) {
        self.recording = TurnLog::with(recorder);
    }

    /// Adds memory nodes to workloads that run short, between turns.
    pub fn set_widening(&mut self, widening: Widening) {
        self.placed.set_widening(widening.clone());
        self.widening = Some(widening);
    }

    /// Memory pressure events for a consumer that reacts at once, and for the loop. The handle stays the same
    /// from [`prepare`](Self::prepare) on.
    pub fn tap(&self) -> PressureTap {
        self.source.tap()
    }

    /// Takes over the previous daemon's grants, as far as `tree` still shows them.
    pub fn adopt(&mut self, tree: CpusetTree, grants: BTreeMap<String, GrantRecord>) {
        self.placed.adopt(tree, grants);
    }

    /// Records the originals of containers that are being created, and takes over the previous daemon's
    /// (`left`).
    pub fn remember(&mut self, record: MakingRecord, left: BTreeMap<CgroupPath, Made>) {
        self.placed.remember(record, left);
    }

    /// Takes over thread pins that the previous daemon had not restored.
    pub fn remember_pins(&mut self, left: LeftPins) {
        self.placed.remember_pins(left);
    }

    /// Continues the drift counts that the previous daemon `left` at `now_ns`.
    pub fn restore_drift_counts(&mut self, record: DriftRecord, left: Drift, now_ns: u64) {
        drift::log_given_up(&left, now_ns);
        let given_up = left.given_up(now_ns).map(|(cgroup, goal)| (cgroup.clone(), goal.clone()));
        self.placed.give_up(given_up.collect());
        self.history.drift = left;
        self.drift_record = Some(record);
    }

    /// Whether the engine can write if the policy allows it.
    pub fn has_actuator(&self) -> bool {
        self.actuator.is_some()
    }

    /// Adds a printer. Its lost output is reported as degraded.
    pub fn add_printer(&mut self, printer: Printer) {
        self.printers.push(printer);
    }

    /// Adds a degraded source that lasts as long as the daemon runs.
    pub fn add_degraded(&mut self, degraded: Degraded) {
        self.standing.push(degraded);
    }

    /// Reports what keeps the cluster from knowing the state of this node, while it does, and counts events
    /// and predictions.
    pub(crate) fn report_publishing(
        &mut self,
        missing: Vec<watch::Receiver<Option<Degraded>>>,
        events: Option<Arc<EventTally>>,
        predictions: Arc<PredictionTally>,
    ) {
        self.report_missing(missing);
        self.cluster_events = events;
        self.predictions = Some(predictions);
    }

    /// Reports from now on what the DRA driver does.
    pub(crate) fn report_claims(&mut self, tally: Arc<ClaimTally>) {
        self.claims = Some(tally);
    }

    /// Reports from now on what other threads miss.
    pub(crate) fn report_missing(&mut self, missing: Vec<watch::Receiver<Option<Degraded>>>) {
        self.publishing.extend(missing);
    }

    /// Applies another policy. Grants stay while they are valid under it.
    pub fn set_policy(&mut self, policy: Policy) {
        if let Some(PlacementMachine { inventory, mut degraded }) = self.machine.take() {
            degraded.retain(|one| one.source != Inventory::UNFIT);
            self.machine = Some(PlacementMachine::new((inventory.machine.clone(), degraded), &policy));
        }
        self.interrupts.follow(&policy);
        self.policy = policy;
        self.totals.config_good = true;
        self.self_placed.forget();
        self.history.drift.forgive();
        self.placed.give_up(BTreeMap::new());
        if let Some(record) = &mut self.drift_record {
            record.keep(Drift::default());
        }
        self.history.partitions.forgive();
        self.history.rebalance.forget_aims();
        self.source.refresh_owners();
        self.share();
    }

    /// Whether the next turn has no work left, given the `report` of the latest.
    pub fn is_settled(&self, report: &TickReport) -> bool {
        report.is_settled() && self.cold_starts.is_empty() && !self.overtaken && !self.journal_blocked
    }

    /// The ledger, for the thread that answers a container runtime.
    pub fn placed(&self) -> SharedLedger {
        self.placed.clone()
    }

    /// The gate in front of all writes, for the control socket that pauses them.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The demotion state, for the thread that moves cold pages.
    pub fn demotion(&self) -> Demotion {
        self.demotion.clone()
    }

    /// The latest decisions, for the control socket.
    pub fn decisions(&self) -> Decisions {
        self.placed.decisions()
    }

    /// Passes the machine and the policy to the ledger.
    fn share(&self) {
        let inventory = self.machine.as_ref().map(|machine| Arc::clone(&machine.inventory));
        self.placed.apply_policy(inventory, &self.policy, self.may_write());
        self.placed.report_supply();
    }

    /// Records that a new configuration was rejected; the old policy stays.
    pub fn keep_policy(&mut self) {
        self.totals.config_good = false;
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Records the duration of the latest turn.
    pub fn note_duration(&mut self, seconds: f64) {
        self.totals.last_tick_seconds = Some(seconds);
    }

    /// Reads the machine and attaches its watchers, as the first turn would. A daemon that drops its
    /// privileges before the first turn calls this first.
    pub fn prepare(&mut self) -> Result<(), SourceError> {
        if self.machine.is_none() {
            self.machine = Some(PlacementMachine::new(self.read_machine()?, &self.policy));
            self.placed.set_foreign_owners(self.source.others());
            // Partitions of the previous daemon may exist and hold CPUs that their ancestors lack.
            let partitioned = self.actuator.as_ref().map(|one| one.partitioned()).unwrap_or_default();
            self.source.look_at_partitions(partitioned.all());
            self.share();
        }
        Ok(())
    }

    /// Looks for events between two turns and drains the kernel's buffers. The next turn should not wait
    /// when: a cpuset that is ours was written, a container has started without a recorded original, the
    /// runtime was given an answer that the latest turn did not know, a process came to a new cgroup that a
    /// rule may match, or a pause has begun or expired. Nothing signals a pause, so no look is quiet while
    /// one lasts.
    pub fn poll_events(&mut self) -> PolledEvents {
        let drained = self.source.drain();
        if self.gate.ended() {
            tracing::warn!("pause expired");
        }
        let is_paused = self.gate.paused().is_some();
        let was_paused = std::mem::replace(&mut self.was_paused, is_paused);
        let policy = &self.policy;
        let appeared = self.watches() && self.source.appeared(&|cgroup| policy.interest(cgroup));
        // No short circuit: each source must be drained.
        let pause_changed = is_paused != was_paused;
        let wants_turn = self.placed.take_early_turn()
            | self.source.written()
            | appeared
            | std::mem::take(&mut self.overtaken)
            | pause_changed;
        let misplaced = drained && self.policy.rebalance.enabled && self.may_write();
        PolledEvents {
            wants_turn,
            misplaced,
            is_quiet: !wants_turn && !drained && !is_paused && !self.source.needs_polling(),
        }
    }

    /// Time until the next turn where it should come early.
    pub fn early_turn(&self) -> Option<Duration> {
        self.early_turns.wanted()
    }

    /// Whether new cgroups matter: only where turns may place declared workloads.
    fn watches(&self) -> bool {
        self.may_write() && self.policy.workloads.iter().any(|rule| rule.enforce)
    }

    /// Descriptors that become readable when a look is due; the look takes what made them so.
    pub fn wake_fds(&self) -> WakeFds<'_> {
        let fds = self.source.wake_fds();
        WakeFds { came: fds.came.filter(|_| self.watches()), ..fds }
    }

    fn may_write(&self) -> bool {
        self.actuator.is_some() && self.policy.mode == Mode::Enforce
    }

    fn read_machine(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        if let Some(actuator) = &self.actuator {
            self.source.set_by_us(actuator.own_settings());
        }
        self.source.topology()
    }

    fn carry_out(&mut self, decision: &Decision, paused: bool, now_ns: u64) -> Applied {
        if self.may_write()
            && !paused
            && let Err(error) = self.ready()
        {
            return skipped(&decision.plan, &error);
        }
        // Stay inside until the plan is done: a pause waits for that.
        let inside = (self.may_write() && !paused).then(|| self.gate.enter()).flatten();
        let mut applied = match &mut self.actuator {
            Some(actuator) if inside.is_some() => {
                apply_plan_beside(&decision.plan, &mut **actuator, &self.placed)
            }
            _ => return apply_plan(&decision.plan, &mut DryRunActuator),
        };
        drop(inside);
        if self.ready().is_err() {
            // Steps that failed for this reason get no cool-down.
            applied.unfinished = cgroups(&decision.plan);
        }
        // Also cgroups with an answer during the writes: the next turn sees which write came last.
        let mut passed = cgroups(&decision.plan);
        passed.retain(|cgroup| self.placed.is_overtaken(cgroup));
        self.overtaken = !passed.is_empty();
        applied.unfinished.extend(passed);
        let mut finished: Plan = decision.plan.clone();
        finished.steps.retain(|step| !applied.unfinished.contains(step.action.cgroup()));
        self.history.note(&finished, &decision.targets, now_ns);
        applied
    }

    /// Checks that the actuator can write; if not, answers to a runtime set nothing either.
    fn ready(&mut self) -> Result<(), String> {
        let Some(actuator) = self.actuator.as_mut() else { return Ok(()) };
        let ready = actuator.ready().and_then(|()| self.placed.can_note());
        match (&ready, self.journal_blocked) {
            (Err(error), false) => {
                tracing::error!("cannot write the journal: {error}; nothing is set until it can be written");
            }
            (Ok(()), true) => tracing::info!("the journal can be written again; enforcement continues"),
            _ => {}
        }
        self.journal_blocked = ready.is_err();
        self.placed.block_writes(self.journal_blocked);
        ready
    }

    /// Records original cpusets, and every [`TOPOLOGY_EVERY`] turns drops workloads that have ended.
    fn record(&mut self, workloads: &[Workload]) -> Option<Degraded> {
        if !self.may_write() {
            return None;
        }
        let ready = self.ready();
        let actuator = self.actuator.as_mut()?;
        if let Err(error) = ready {
            // For this nothing has to be recorded; why nothing can be is said.
            let _ = self.placed.give_pins_back(&mut **actuator);
            return Some(not_recorded(error));
        }
        let originals = self.placed.unrecorded();
        let mut outcome = Ok(());
        // The grants go first: with the originals they leave the other record.
        if let Some(grants) = self.placed.regranted() {
            outcome = actuator.note_grants(grants).inspect_err(|_error| self.placed.mark_unrecorded());
        }
        if outcome.is_ok() && !originals.is_empty() {
            outcome = actuator.record(&originals).map(|recorded| self.placed.recorded(&recorded));
        }
        outcome = outcome.and(self.placed.renew(|renewed| actuator.renew(renewed)));
        outcome = outcome.and(self.placed.give_pins_back(&mut **actuator));
        if self.totals.ticks.is_multiple_of(TOPOLOGY_EVERY) {
            let cgroups = || workloads.iter().map(|one| &one.cgroup).chain(&self.sandboxes);
            let there = |path: &CgroupPath| cgroups().any(|one| one.is_within(path));
            outcome = outcome.and(actuator.tidy(&there));
        }
        outcome.err().map(not_recorded)
    }

    /// Updates the drift history from the outcomes, and watches the cpusets that are ours.
    fn keep(&mut self, decision: &Decision, applied: &Applied, paused: bool, now_ns: u64) {
        if !self.may_write() || paused {
            self.source.keep_watch(&KeptCgroups::new());
            return;
        }
        let Applied { outcomes, unfinished } = applied;
        self.history.partitions.note(&decision.partitions, &decision.added_above, outcomes);
        for (cgroup, fate) in self.history.drift.note(&decision.targets, outcomes, unfinished, now_ns) {
            drift::log_fate(&cgroup, fate);
            self.totals.drift.count(fate);
        }
        if let Some(record) = &mut self.drift_record {
            record.keep(self.history.drift.lasting(now_ns));
        }
        self.source.keep_watch(&drift::kept(decision));
        self.placed.give_up(drift::given_up(decision));
    }
}

/// Skips the whole plan and leaves it for the next turn.
fn skipped(plan: &Plan, error: &str) -> Applied {
    let because = format!("it could not be undone: {error}");
    let skipped = |step: &Step| Outcome {
        step: step.clone(),
        result: OutcomeResult::Skipped { because: because.clone() },
    };
    Applied { outcomes: plan.steps.iter().map(skipped).collect(), unfinished: cgroups(plan) }
}

fn cgroups(plan: &Plan) -> BTreeSet<CgroupPath> {
    plan.steps.iter().map(|step| step.action.cgroup().clone()).collect()
}

fn not_recorded(error: String) -> Degraded {
    let effect =
        "nothing is set, by the daemon or by a runtime for it, until it can be recorded how to undo it";
    Degraded::new("journal", error, effect)
}
