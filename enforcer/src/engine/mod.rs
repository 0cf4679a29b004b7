//! Turns the wheel: discover, observe, decide, enforce, report.
//!
//! One [`turn`](Engine::turn) is one pass through the stages. The engine owns what lasts between two
//! of them: the sample before, what was given to whom, when it was last corrected, the topology. It is
//! handed the time as a value, the host as a [`Source`] and the writing as an [`Actuator`], so a
//! recording can take the place of the first and a dry run that of the second.
//!
//! It decides nothing itself and knows no kernel detail. What it decides from is recorded where that is asked
//! for, so that the same turn can be taken again (`replay` in the core).

mod calls;
mod cold_start;
pub mod decisions;
mod demotion;
mod drift;
mod early_turns;
mod exposure;
mod gate;
mod own_cpus;
mod placed;
mod rebalance;
mod recording;
mod self_placed;
mod source;
#[cfg(test)]
mod tests;
mod top;
mod widened;
mod widening;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::BorrowedFd,
    sync::Arc,
    time::Duration,
};

use enforcer_core::{
    audit::{Audit, AuditInputs, Host, Tool},
    cold_start::ColdStarts,
    decide::{self, Drift, History, Inputs, SelfPlacedWorkloads, Written},
    degraded::Degraded,
    finding::{Finding, Judged, Severity, assess, with_added},
    model::{Activity, Model},
    owner::{Facts, Owners},
    place::{Containers, GrantRecord, Inventory},
    plan::{Outcome, OutcomeResult, Plan, Step},
    policy::{Mode, Policy},
    replay::{Taken, Terms},
    sample::{Changes, Sample},
    topology::Topology,
    widening::Narrowing,
    workload::{CgroupPath, Workload},
};

pub use self::{
    calls::answer_calls,
    decisions::Decisions,
    demotion::{Demotion, demote},
    exposure::Exposure,
    gate::{Gate, Inside},
    placed::Placed,
    source::{LiveSource, Others, Source, SourceError},
    top::top_report,
    widening::{BrakeParts, ReliefSenses, Senses, Widening},
};
use self::{early_turns::EarlyTurns, own_cpus::OwnCpus, recording::Recording};
use crate::{
    observe::{KeptCgroups, PressureTap},
    printer::Printer,
    record::Recorder,
    wall_clock,
};
use enforcer_act::{
    Actuator, Applied, CurrentClaims as _, DryRunActuator, apply_plan, apply_plan_beside,
    cpuset::CpusetTree,
    journal::{DriftRecord, LeftPins, Made, MakingRecord},
    pages::PageMoveLimits,
};
use enforcer_report::{
    counters::Counters,
    tick::{TICK_SCHEMA_VERSION, TickReport, Totals},
};

/// Turns between two readings of the topology: hotplug is rare, and reading it takes many files.
const TOPOLOGY_EVERY: u64 = 30;

/// State between two turns.
pub struct Engine {
    source: Box<dyn Source>,
    /// Where a live plan goes; there is none in observe mode.
    actuator: Option<Box<dyn Actuator>>,
    policy: Policy,
    host: Host,
    /// Not of one turn: a port that is taken, a journal that is damaged.
    standing: Vec<Degraded>,
    own_cpus: OwnCpus,
    /// What is lost of what the daemon says.
    printers: Vec<Printer>,
    machine: Option<Machine>,
    before: Option<Sample>,
    cold_starts: ColdStarts,
    early_turns: EarlyTurns,
    placed: Placed,
    history: History,
    /// For the daemon after this one; none where nobody may write.
    drift_record: Option<DriftRecord>,
    gate: Gate,
    exposure: Exposure,
    /// Memory nodes for workloads that run short; none where nobody widens.
    widening: Option<Widening>,
    narrowing: Narrowing,
    /// Whose memory nodes are in the journal as they were before.
    recorded_mems: BTreeSet<(CgroupPath, Option<u64>)>,
    /// Cgroups of the sandboxes of pods, which are no workloads.
    sandboxes: BTreeSet<CgroupPath>,
    /// What was found of processes that have placed themselves.
    self_placed: self_placed::Looks,
    demotion: Demotion,
    recording: Recording,
    /// A runtime was told of containers, meanwhile, what the latest turn did not know.
    overtaken: bool,
    /// Nothing may be written, because it could not be undone.
    barred: bool,
    /// It was paused at the latest look.
    was_paused: bool,
    totals: Totals,
}

/// What a look between two turns has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The next turn should not wait.
    pub wants_turn: bool,
    /// The kernel side told of tasks that came to another node, which a turn soon may set right.
    pub misplaced: bool,
    /// There was nothing, and whatever comes tells of itself, or may be seen some seconds later.
    pub is_quiet: bool,
}

/// The machine as placement sees it, and what of it could not be seen.
struct Machine {
    inventory: Arc<Inventory>,
    degraded: Vec<Degraded>,
}

impl Machine {
    fn new((topology, mut degraded): (Topology, Vec<Degraded>), policy: &Policy) -> Self {
        let (inventory, unfit) = Inventory::or_whole(topology, &policy.placement);
        degraded.extend(unfit);
        Self { inventory: Arc::new(inventory), degraded }
    }
}

impl Engine {
    /// An engine that has seen nothing yet. Without an actuator it never writes, whatever the policy.
    pub fn new(source: Box<dyn Source>, policy: Policy) -> Self {
        let host = source.host();
        Self {
            source,
            actuator: None,
            policy,
            host,
            standing: Vec::new(),
            own_cpus: OwnCpus::default(),
            printers: Vec::new(),
            machine: None,
            before: None,
            cold_starts: ColdStarts::default(),
            early_turns: EarlyTurns::default(),
            placed: Placed::default(),
            history: History::default(),
            drift_record: None,
            gate: Gate::default(),
            exposure: Exposure::default(),
            widening: None,
            narrowing: Narrowing::default(),
            recorded_mems: BTreeSet::new(),
            sandboxes: BTreeSet::new(),
            self_placed: self_placed::Looks::default(),
            demotion: Demotion::default(),
            recording: Recording::default(),
            overtaken: false,
            barred: false,
            was_paused: false,
            totals: Totals { config_good: true, ..Totals::default() },
        }
    }

    /// Lets the engine write where the policy says so.
    pub fn set_actuator(&mut self, actuator: Box<dyn Actuator>) {
        self.actuator = Some(actuator);
    }

    /// Never writes again.
    pub fn remove_actuator(&mut self) {
        self.actuator = None;
    }

    /// Keeps what containers read true after each turn.
    pub fn set_exposure(&mut self, exposure: Exposure) {
        self.exposure = exposure;
    }

    /// Records each turn from now on.
    pub fn set_recorder(&mut self, recorder: Recorder) {
        self.recording = Recording::with(recorder);
    }

    /// Has memory nodes added to workloads that run short, between the turns.
    pub fn set_widening(&mut self, widening: Widening) {
        self.placed.widened_by(widening.clone());
        self.widening = Some(widening);
    }

    /// Memory pressure, for somebody who acts on it at once.
    pub fn tap(&self) -> PressureTap {
        self.source.tap()
    }

    /// Goes on where the daemon before this one stopped: containers keep what it had granted them, as far as
    /// `tree` still shows it.
    pub fn adopt(&mut self, tree: CpusetTree, grants: BTreeMap<String, GrantRecord>) {
        self.placed.adopt(tree, grants);
    }

    /// Notes of containers in the making what they would be set to without us, and goes on with what a daemon
    /// before this one `left`.
    pub fn remember(&mut self, record: MakingRecord, left: BTreeMap<CgroupPath, Made>) {
        self.placed.remember(record, left);
    }

    /// Goes on with the pins of threads that a daemon before this one had not given back.
    pub fn remember_pins(&mut self, left: LeftPins) {
        self.placed.remember_pins(left);
    }

    /// Goes on counting how often who was put back, from what a daemon before this one `left` at `now_ns`.
    pub fn go_on_counting(&mut self, record: DriftRecord, left: Drift, now_ns: u64) {
        drift::tell_given_up(&left, now_ns);
        let given_up = left.given_up(now_ns).map(|(cgroup, goal)| (cgroup.clone(), goal.clone()));
        self.placed.give_up(given_up.collect());
        self.history.drift = left;
        self.drift_record = Some(record);
    }

    /// May the engine write if the policy says so?
    pub fn has_actuator(&self) -> bool {
        self.actuator.is_some()
    }

    /// What this one loses is missing as long as it is lost.
    pub fn add_printer(&mut self, printer: Printer) {
        self.printers.push(printer);
    }

    /// Adds something that is missing for as long as the daemon runs.
    pub fn add_degraded(&mut self, degraded: Degraded) {
        self.standing.push(degraded);
    }

    /// Goes on with another policy. What was given to workloads stays theirs while it is valid.
    pub fn set_policy(&mut self, policy: Policy) {
        if let Some(Machine { inventory, mut degraded }) = self.machine.take() {
            degraded.retain(|one| one.source != Inventory::UNFIT);
            self.machine = Some(Machine::new((inventory.machine.clone(), degraded), &policy));
        }
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
        self.source.others_may();
        self.share();
    }

    /// Is there nothing that the next turn would go on with, once this was reported of the latest?
    pub fn is_settled(&self, report: &TickReport) -> bool {
        report.is_settled() && self.cold_starts.is_empty() && !self.overtaken && !self.barred
    }

    /// What is given away, for somebody who answers a container runtime.
    pub fn placed(&self) -> Placed {
        self.placed.clone()
    }

    /// What lets the engine write, for somebody who pauses it.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Whose cold pages are moved, for the thread that moves them.
    pub fn demotion(&self) -> Demotion {
        self.demotion.clone()
    }

    /// What was decided lately, for somebody who is asked about it.
    pub fn decisions(&self) -> Decisions {
        self.placed.decisions()
    }

    /// Tells the runtime's side which machine and policy count.
    fn share(&self) {
        let inventory = self.machine.as_ref().map(|machine| Arc::clone(&machine.inventory));
        self.placed.follow(inventory, &self.policy, self.may_write());
    }

    /// Notes that a new configuration was not good; the old policy stays.
    pub fn keep_policy(&mut self) {
        self.totals.config_good = false;
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Notes how long the latest turn took.
    pub fn note_duration(&mut self, seconds: f64) {
        self.totals.last_tick_seconds = Some(seconds);
    }

    /// Reads the machine and attaches what watches it, which the first turn would do otherwise: for a
    /// daemon that gives up the privileges for it before its first turn.
    pub fn prepare(&mut self) -> Result<(), SourceError> {
        if self.machine.is_none() {
            self.machine = Some(Machine::new(self.read_machine()?, &self.policy));
            self.placed.beside(self.source.others());
            // Those of the daemon before this one may live, and have taken their CPUs from everybody above
            // them.
            let partitioned = self.actuator.as_ref().map(|one| one.partitioned()).unwrap_or_default();
            self.source.look_at_partitions(partitioned.all());
            self.share();
        }
        Ok(())
    }

    /// A look between two turns: makes room for events that the kernel side tells. The next turn should not
    /// wait where a cpuset that is ours to keep was written, a container has started whose original is not in
    /// the journal, a runtime was told what the turn before did not know, a process came to a new cgroup that
    /// may be declared, or a pause has begun or is over, of which nothing tells: no look is quiet until then.
    pub fn look(&mut self) -> Look {
        let drained = self.source.drain();
        if self.gate.ended() {
            tracing::warn!("no longer paused: the time that was asked for is over");
        }
        let is_paused = self.gate.paused().is_some();
        let was_paused = std::mem::replace(&mut self.was_paused, is_paused);
        let policy = &self.policy;
        let appeared = self.watches() && self.source.appeared(&|cgroup| policy.interest(cgroup));
        // All are taken, whatever the others say.
        let pause_changed = is_paused != was_paused;
        let wants_turn = self.placed.has_started()
            | self.source.written()
            | appeared
            | std::mem::take(&mut self.overtaken)
            | pause_changed;
        let misplaced = drained && self.policy.rebalance.enabled && self.may_write();
        Look {
            wants_turn,
            misplaced,
            is_quiet: !wants_turn && !drained && !is_paused && !self.source.must_be_asked(),
        }
    }

    /// Time after which the next turn should come, where that is before it is due.
    pub fn early_turn(&self) -> Option<Duration> {
        self.early_turns.wanted()
    }

    /// Who is never placed by turns is not watched for.
    fn watches(&self) -> bool {
        self.may_write() && self.policy.workloads.iter().any(|rule| rule.enforce)
    }

    /// Readable when there are events, which a look takes; who waits is woken when there is little room left
    /// for more.
    pub fn filling_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.filling_fd()
    }

    /// Readable when somebody has come to a cgroup, which is looked at.
    pub fn came_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.came_fd().filter(|_| self.watches())
    }

    /// Readable when somebody has written a cpuset that is ours to keep, which is looked at.
    pub fn writes_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.writes_fd()
    }

    /// Readable when something was told that should not wait for the next turn; `None` where nothing can be.
    pub fn urgent_fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.urgent_fd()
    }

    /// Takes it, for the next turn.
    pub fn take_urgent(&mut self) {
        self.source.take_urgent();
    }

    /// One pass through the stages at `now_ns` of a clock that is the same for the next daemon.
    pub fn turn(&mut self, now_ns: u64) -> Result<TickReport, SourceError> {
        let seen = self.see(now_ns).inspect_err(|_error| self.totals.failed_ticks += 1);
        let (workloads, mut degraded, sample) = seen?;
        degraded.extend(self.record(&workloads));
        let Some(Machine { inventory, degraded: of_machine }) = &self.machine else {
            return Err(SourceError::new("topology", &"was not read"));
        };
        degraded.extend(of_machine.iter().cloned());
        let inventory = &Arc::clone(inventory);
        degraded.extend(self.missing());

        let model = Model::new(&inventory.machine, &workloads, &sample, self.before.as_ref());
        let begins = |facts: &Facts| self.recording.begin(facts);
        let (declarations, owners) = self.placed.owners(&workloads, &sample, &model, &self.policy, begins);
        let findings = {
            let (workloads, sample, model, policy) = (&workloads, &sample, &model, &self.policy);
            let (owners, declarations) = (&owners, &declarations);
            assess(Judged { inventory, workloads, sample, model, policy, owners, declarations })
        };
        self.history.prune(&self.policy, now_ns);
        self.placed.tell(&mut self.history);
        let waiting = self.review_widened(&workloads, &declarations, &model, &sample);
        let widened = self.widening.as_ref().map(Widening::added).unwrap_or_default();
        let paused = self.gate.paused();
        let may_move = self.may_write() && paused.is_none();
        self.demotion.follow(inventory, &workloads, &sample, &declarations, &self.policy, may_move);
        self.end_cold_starts(&workloads, &model, &sample, now_ns);
        let actuator = &self.actuator;
        let has_set = |cgroup: &CgroupPath| actuator.as_ref().is_some_and(|one| one.has_set(cgroup));
        let partitioned = actuator.as_ref().map(|one| one.partitioned()).unwrap_or_default();
        let inputs = Inputs {
            inventory,
            workloads: &workloads,
            sample: &sample,
            model: &model,
            policy: &self.policy,
            declarations: &declarations,
            containers: &Containers::default(),
            owners: &owners,
            history: &self.history,
            widened: &widened,
            written: Written(&has_set),
            partitioned: &partitioned,
            self_placed: &SelfPlacedWorkloads::new(),
            now_ns,
        };
        let terms = Terms { may_begin: may_move, bytes_per_turn: PageMoveLimits::default().bytes };
        self.recording.seen(&inputs, inventory, self.before.as_ref(), terms);
        let deciding = self_placed::Deciding {
            source: &mut *self.source,
            placed: &self.placed,
            recording: &mut self.recording,
            looks: &mut self.self_placed,
            paused: paused.is_some(),
        };
        let Taken { mut decision, rebalanced, next } = deciding.take(&inputs, terms);
        degraded.extend(self.self_placed.unseen());
        self.source.look_at_partitions(decision.about_partitions(&partitioned));
        let guarded = std::mem::take(&mut decision.guarded);
        let rebalanced = rebalanced.map(|(turn, past)| {
            self.history.rebalance = past;
            rebalance::tell(turn, &mut self.totals.rebalance)
        });
        self.source.aim(&decision.aims);
        degraded.extend(drift::left_alone(&decision).chain(drift::without_partition(&decision)));
        let findings = with_added(findings, &widened);
        let audit =
            self.audit(&inventory.machine, (&workloads, &sample, &model), &owners, findings, degraded);
        let applied = self.carry_out(&decision, paused.is_some(), now_ns);
        self.recording.end(&applied.outcomes);
        self.decisions().note_turn(&workloads, &decision, &applied.outcomes, paused.is_some());
        self.keep(&decision, &applied, paused.is_some(), now_ns);
        self.exposure.refresh(&self.placed);
        let widening = self.guard(guarded, &declarations, &workloads, waiting, paused.is_some());
        self.count(&applied, &sample);
        let report = TickReport {
            schema_version: TICK_SCHEMA_VERSION,
            mode: if self.may_write() { Mode::Enforce } else { Mode::Observe },
            paused,
            begun_ns: now_ns,
            audit,
            nodes: sample.nodes.clone(),
            activity: Activity::new(&inventory.machine, &model),
            pods: self.placed.pods(&workloads),
            events: sample.events.as_ref().map(|events| events.counts),
            counters: Counters::of(&sample),
            kernel_side: sample.kernel_side.clone(),
            pressure: sample.pressure_events.clone(),
            widening,
            other_page_moves: sample.other_page_moves.clone(),
            runtime: self.placed.take_report(),
            demotion: self.demotion.report(),
            changes: self.foreign_changes(&sample),
            entries: declarations.entries(&self.policy, &workloads),
            decision,
            rebalanced,
            outcomes: applied.outcomes,
            totals: self.totals.clone(),
        };
        self.before = Some(sample);
        self.early_turns.after(next);
        Ok(report)
    }

    /// What a turn has seen, judged.
    fn audit(
        &self,
        machine: &Topology,
        (workloads, sample, model): (&[Workload], &Sample, &Model),
        owners: &Owners,
        findings: Vec<Finding>,
        degraded: Vec<Degraded>,
    ) -> Audit {
        Audit::new(AuditInputs {
            tool: Tool { name: "numa-enforcer".into(), version: env!("CARGO_PKG_VERSION").into() },
            taken_at: Some(wall_clock::utc_now()),
            host: self.host.clone(),
            topology: machine.clone(),
            workloads,
            sample,
            model,
            owners,
            findings,
            degraded,
            thresholds: &self.policy.thresholds,
            fail_on: Severity::Warning,
            only_misaligned: false,
        })
    }

    /// Gives all of their memory to those whose cold start is over; before it is decided where everybody
    /// should be.
    fn end_cold_starts(&mut self, workloads: &[Workload], model: &Model, sample: &Sample, now_ns: u64) {
        // Also while nothing is done about it: who says it must not wait for room to say more.
        let ready = &self.exposure.ready(&self.placed);
        if self.may_write() && self.gate.paused().is_none() {
            let seen = cold_start::Seen { workloads, model, sample, before: self.before.as_ref(), ready };
            cold_start::turn(&mut self.placed.lock(), &mut self.cold_starts, seen, now_ns);
        }
    }

    /// Adds a turn to what was done since the start.
    fn count(&mut self, applied: &Applied, sample: &Sample) {
        self.totals.ticks += 1;
        self.totals.counters.grow(self.before.as_ref(), sample);
        self.totals.count(&applied.outcomes);
        self.totals.page_move_calls = self.actuator.as_ref().and_then(|one| one.page_move_calls().cloned());
    }

    /// What its parts cannot do just now as they should, and what cannot be seen of others who write cpusets.
    fn missing(&mut self) -> Vec<Degraded> {
        let mut missing: Vec<Degraded> =
            self.actuator.as_ref().and_then(|actuator| actuator.degraded()).into_iter().collect();
        missing.extend(self.placed.degraded());
        missing.extend(self.placed.unread_departures());
        missing.extend(self.exposure.degraded());
        missing.extend(self.demotion.degraded());
        missing.extend(self.recording.degraded());
        missing.extend(self.widening.as_ref().and_then(Widening::degraded));
        missing.extend(self.printers.iter().filter_map(Printer::degraded));
        missing.extend(self.standing.iter().cloned());
        let others = self.source.others();
        missing.extend(others.degraded.iter().cloned());
        let allows = others.own_cpus.clone();
        self.placed.beside(others);
        if let Some(allows) = allows {
            missing.extend(self.own_cpus.keep_off(&self.placed.exclusive_of_others(), &allows));
        }
        missing
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

    fn see(&mut self, now_ns: u64) -> Result<source::Seen, SourceError> {
        self.prepare()?;
        if self.totals.ticks > 0 && self.totals.ticks.is_multiple_of(TOPOLOGY_EVERY) {
            match self.read_machine() {
                Ok(read) => {
                    self.machine = Some(Machine::new(read, &self.policy));
                    self.share();
                }
                // The machine is still there; it will be read again.
                Err(error) => tracing::warn!("{error}"),
            }
        }
        let (mut workloads, degraded) = self.source.workloads()?;
        self.placed.rename(&mut workloads);
        let sandboxes = self.placed.without_sandboxes(&mut workloads);
        for (cgroup, name) in sandboxes.iter().filter(|(cgroup, _)| !self.sandboxes.contains(cgroup)) {
            tracing::debug!("{cgroup} is {name}, and no workload");
        }
        self.sandboxes = sandboxes.into_iter().map(|(cgroup, _)| cgroup).collect();
        self.placed.release_departed();
        self.placed.end_those_gone(&workloads);
        self.placed.expect_only(&workloads);
        let sample = self.source.sample(&workloads, now_ns);
        Ok((workloads, degraded, sample))
    }

    /// What others have changed, without what carries our own answers out.
    fn foreign_changes(&self, sample: &Sample) -> Option<Changes> {
        let mut changes = sample.changes.clone()?;
        self.placed.without_our_answers(&mut changes);
        Some(changes)
    }

    fn carry_out(&mut self, decision: &decide::Decision, paused: bool, now_ns: u64) -> Applied {
        if self.may_write()
            && !paused
            && let Err(error) = self.ready()
        {
            return skipped(&decision.plan, &error);
        }
        // Inside until the plan is carried out: whoever pauses waits for that.
        let inside = (self.may_write() && !paused).then(|| self.gate.enter()).flatten();
        let mut applied = match &mut self.actuator {
            Some(actuator) if inside.is_some() => {
                apply_plan_beside(&decision.plan, &mut **actuator, &self.placed)
            }
            _ => return apply_plan(&decision.plan, &mut DryRunActuator),
        };
        drop(inside);
        if self.ready().is_err() {
            // What failed because of that is not to be left alone for the cool-down.
            applied.unfinished = cgroups(&decision.plan);
        }
        // Also what was told while it was written: the next turn sees which of the two came last.
        let mut passed = cgroups(&decision.plan);
        passed.retain(|cgroup| self.placed.is_overtaken(cgroup));
        self.overtaken = !passed.is_empty();
        applied.unfinished.extend(passed);
        let mut finished: Plan = decision.plan.clone();
        finished.steps.retain(|step| !applied.unfinished.contains(step.action.cgroup()));
        self.history.note(&finished, &decision.targets, now_ns);
        applied
    }

    /// May the actuator write? If not nothing is set in answers to a runtime either.
    fn ready(&mut self) -> Result<(), String> {
        let Some(actuator) = self.actuator.as_mut() else { return Ok(()) };
        let ready = actuator.ready().and_then(|()| self.placed.can_note());
        match (&ready, self.barred) {
            (Err(error), false) => tracing::error!("nothing is set until it can be recorded: {error}"),
            (Ok(()), true) => tracing::info!("what is set can be recorded again"),
            _ => {}
        }
        self.barred = ready.is_err();
        self.placed.bar(self.barred);
        ready
    }

    /// Records what containers would have been set to without us; and forgets, now and then, who has ended.
    fn record(&mut self, workloads: &[Workload]) -> Option<Degraded> {
        if !self.may_write() {
            return None;
        }
        if let Err(error) = self.ready() {
            return Some(not_recorded(error));
        }
        let actuator = self.actuator.as_mut()?;
        let originals = self.placed.unrecorded();
        let mut outcome = Ok(());
        // What was granted first: it goes from the other record with the originals.
        if let Some(grants) = self.placed.regranted() {
            outcome = actuator.note_grants(grants).inspect_err(|_error| self.placed.not_recorded());
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

    /// Notes what became of what others had written, and watches what is ours to keep.
    fn keep(&mut self, decision: &decide::Decision, applied: &Applied, paused: bool, now_ns: u64) {
        if !self.may_write() || paused {
            self.source.keep_watch(&KeptCgroups::new());
            return;
        }
        let Applied { outcomes, unfinished } = applied;
        self.history.partitions.note(decision, outcomes);
        for (cgroup, fate) in self.history.drift.note(decision, outcomes, unfinished, now_ns) {
            drift::tell(&cgroup, fate);
            self.totals.drift.count(fate);
        }
        if let Some(record) = &mut self.drift_record {
            record.keep(self.history.drift.lasting(now_ns));
        }
        self.source.keep_watch(&drift::kept(decision));
        self.placed.give_up(drift::given_up(decision));
    }
}

/// Nothing of the plan is tried, and all of it is to be gone on with.
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
