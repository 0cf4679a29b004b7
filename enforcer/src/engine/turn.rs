//! One turn: the stages in order.
//!
//! Invariant: what has ended is known before placement, and what is decided is recorded before it is carried
//! out.

use std::sync::{Arc, atomic::Ordering};

use enforcer_core::{
    audit::{Audit, AuditInputs},
    declarations::Declarations,
    finding::{Finding, Judged, Severity, assess, with_added, with_more},
    hosted::Containers,
    model::{Activity, Model},
    owner::OwnershipFacts,
    owners::Owners,
    plan::Outcome,
    policy::Mode,
    sample::{Changes, Sample},
    turn::{
        Decision, Inputs, SelfPlacedWorkloads, TurnLimits, TurnOutput, Widened, WrittenCgroups, decide_turn,
    },
    workload::{CgroupPath, Workload},
};
use numa_placement::Inventory;
use numa_topology::degraded::Degraded;

use super::{
    Engine, PlacementMachine, SourceError, TOPOLOGY_EVERY, cold_start, drift, rebalance,
    self_placed::DecidingHost, source, widening::Widening,
};
use crate::{printer::Printer, version, wall_clock};
use enforcer_act::{Applied, pages::PageMoveLimits};
use enforcer_report::{
    counters::Counters,
    interrupts::InterruptReport,
    status::Paused,
    tick::{ClusterEventTotals, ClusterPredictionTotals, Rebalanced, TICK_SCHEMA_VERSION, TickReport},
    widening::WideningReport,
};

/// What a turn sees of its host.
struct ObservedHost {
    inventory: Arc<Inventory>,
    workloads: Vec<Workload>,
    sample: Sample,
    degraded: Vec<Degraded>,
}

/// What follows from it and from the facts about other writers.
struct AssessedHost {
    model: Model,
    declarations: Declarations,
    owners: Owners,
}

/// What the parts of a turn see.
#[derive(Clone, Copy)]
pub(super) struct TurnView<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) workloads: &'a [Workload],
    pub(super) sample: &'a Sample,
    pub(super) model: &'a Model,
    pub(super) declarations: &'a Declarations,
    pub(super) owners: &'a Owners,
}

/// What a turn has done.
struct TurnResult {
    paused: Option<Paused>,
    audit: Audit,
    decision: Decision,
    rebalanced: Option<Rebalanced>,
    outcomes: Vec<Outcome>,
    widening: Option<WideningReport>,
    interrupts: Option<InterruptReport>,
}

impl Engine {
    /// One pass through the stages at `now_ns` of a clock that continues across daemons.
    pub fn turn(&mut self, now_ns: u64) -> Result<TickReport, SourceError> {
        let mut host = self.observe(now_ns)?;
        let (assessed, findings) = self.assess(&host);
        let AssessedHost { model, declarations, .. } = &assessed;
        self.history.prune(&self.policy, now_ns);
        self.placed.exempt_own_writes(&mut self.history);
        let waiting = self.review_widened(&host.workloads, declarations, model, &host.sample);
        let widened = self.widening.as_ref().map(Widening::added).unwrap_or_default();
        let paused = self.gate.paused();
        let is_paused = paused.is_some();
        self.demotion.set_targets(
            &host.inventory,
            &host.workloads,
            &host.sample,
            declarations,
            &self.policy,
            self.may_write() && !is_paused,
        );
        self.end_cold_starts(&host, model, now_ns);
        let TurnOutput { mut decision, rebalanced, next } =
            self.decide(&host, &assessed, &widened, is_paused, now_ns);
        host.degraded.extend(self.self_placed.unseen());
        let guarded = std::mem::take(&mut decision.guarded);
        let rebalanced = rebalanced.map(|(turn, past)| {
            self.history.rebalance = past;
            rebalance::report_moves(turn, &mut self.totals.rebalance)
        });
        self.source.aim(&decision.aims);
        let view = TurnView {
            inventory: &host.inventory,
            workloads: &host.workloads,
            sample: &host.sample,
            model,
            declarations,
            owners: &assessed.owners,
        };
        let interrupts = self.look_at_interrupts(&view, is_paused, now_ns);
        let findings = with_more(findings, interrupts.findings);
        host.degraded.extend(interrupts.degraded);
        host.degraded.extend(drift::left_alone(&decision).chain(drift::without_partition(&decision)));
        let degraded = std::mem::take(&mut host.degraded);
        let audit = self.audit(&host, &assessed, with_added(findings, &widened), degraded);
        let applied = self.carry_out(&decision, is_paused, now_ns);
        self.recording.end(&applied.outcomes);
        self.decisions().note_turn(&host.workloads, &decision, &applied.outcomes, is_paused);
        self.keep(&decision, &applied, is_paused, now_ns);
        self.exposure.refresh(&self.placed);
        self.placed.lift_quotas();
        self.placed.note_corrections(&applied.outcomes);
        self.placed.report_supply();
        let widening = self.guard(guarded, declarations, &host.workloads, waiting, is_paused);
        self.count(&applied, &host.sample);
        let outcomes = applied.outcomes;
        let interrupts = interrupts.report;
        let result = TurnResult { paused, audit, decision, rebalanced, outcomes, widening, interrupts };
        let report = self.report(&host, &assessed, result, now_ns);
        self.before = Some(host.sample);
        self.early_turns.after(next);
        Ok(report)
    }

    /// Observes the host, and records what earlier turns and answers have left to record.
    fn observe(&mut self, now_ns: u64) -> Result<ObservedHost, SourceError> {
        let seen = self.see(now_ns).inspect_err(|_error| self.totals.failed_ticks += 1);
        let (workloads, mut degraded, sample) = seen?;
        degraded.extend(self.record(&workloads));
        let Some(PlacementMachine { inventory, degraded: of_machine }) = &self.machine else {
            return Err(SourceError::new("topology", &"was not read"));
        };
        degraded.extend(of_machine.iter().cloned());
        let inventory = Arc::clone(inventory);
        degraded.extend(self.missing());
        Ok(ObservedHost { inventory, workloads, sample, degraded })
    }

    /// Finds the declared workloads, the owners of their cpusets and the findings; a recording begins here.
    fn assess(&mut self, host: &ObservedHost) -> (AssessedHost, Vec<Finding>) {
        let ObservedHost { inventory, workloads, sample, .. } = host;
        let model = Model::new(&inventory.machine, workloads, sample, self.before.as_ref());
        let begins = |facts: &OwnershipFacts| self.recording.begin(facts);
        self.placed.note_remote_accesses(&model);
        let (declarations, owners) = self.placed.owners(workloads, sample, &model, &self.policy, begins);
        let findings = {
            let (model, policy, owners, declarations) = (&model, &self.policy, &owners, &declarations);
            assess(Judged { inventory, workloads, sample, model, policy, owners, declarations })
        };
        (AssessedHost { model, declarations, owners }, findings)
    }

    /// Decides, records that, and asks for the partitions that the next sample needs.
    fn decide(
        &mut self,
        host: &ObservedHost,
        assessed: &AssessedHost,
        widened: &Widened,
        paused: bool,
        now_ns: u64,
    ) -> TurnOutput {
        let ObservedHost { inventory, workloads, sample, .. } = host;
        let actuator = &self.actuator;
        let has_set = |cgroup: &CgroupPath| actuator.as_ref().is_some_and(|one| one.has_set(cgroup));
        let partitioned = actuator.as_ref().map(|one| one.partitioned()).unwrap_or_default();
        let inputs = Inputs {
            inventory,
            workloads,
            sample,
            model: &assessed.model,
            policy: &self.policy,
            declarations: &assessed.declarations,
            containers: &Containers::default(),
            owners: &assessed.owners,
            history: &self.history,
            widened,
            written: WrittenCgroups(&has_set),
            partitioned: &partitioned,
            self_placed: &SelfPlacedWorkloads::new(),
            now_ns,
        };
        let terms = TurnLimits {
            may_begin: self.may_write() && !paused,
            bytes_per_turn: PageMoveLimits::default().bytes,
        };
        self.recording.note_inputs(&inputs, inventory, self.before.as_ref(), terms);
        let mut deciding = DecidingHost {
            source: &mut *self.source,
            placed: &self.placed,
            recording: &mut self.recording,
            paused,
        };
        let output = decide_turn(&inputs, terms, &mut self.self_placed.answers, &mut deciding);
        self.source.look_at_partitions(output.decision.about_partitions(&partitioned));
        output
    }

    /// Builds the audit from the observations of a turn.
    fn audit(
        &self,
        host: &ObservedHost,
        assessed: &AssessedHost,
        findings: Vec<Finding>,
        degraded: Vec<Degraded>,
    ) -> Audit {
        Audit::new(AuditInputs {
            tool: version::tool(),
            taken_at: Some(wall_clock::utc_now()),
            host: self.host.clone(),
            topology: host.inventory.machine.clone(),
            workloads: &host.workloads,
            sample: &host.sample,
            model: &assessed.model,
            owners: &assessed.owners,
            findings,
            degraded,
            thresholds: &self.policy.thresholds,
            fail_on: Severity::Warning,
            only_misaligned: false,
        })
    }

    /// Builds the report on a turn.
    fn report(
        &mut self,
        host: &ObservedHost,
        assessed: &AssessedHost,
        result: TurnResult,
        begun_ns: u64,
    ) -> TickReport {
        let ObservedHost { inventory, workloads, sample, .. } = host;
        let TurnResult { paused, audit, decision, rebalanced, outcomes, widening, interrupts } = result;
        TickReport {
            schema_version: TICK_SCHEMA_VERSION,
            mode: if self.may_write() { Mode::Enforce } else { Mode::Observe },
            paused,
            begun_ns,
            audit,
            nodes: sample.nodes.clone(),
            activity: Activity::new(&inventory.machine, &assessed.model),
            pods: self.placed.pods(workloads),
            events: sample.events.as_ref().map(|events| events.counts),
            counters: Counters::of(sample),
            kernel_side: sample.kernel_side.clone(),
            pressure: sample.pressure_events.clone(),
            widening,
            other_page_moves: sample.other_page_moves.clone(),
            runtime: self.placed.take_report(),
            claims: self.claims.as_deref().map(|tally| self.placed.claims_report(tally.totals())),
            interrupts,
            demotion: self.demotion.report(),
            changes: self.foreign_changes(sample),
            entries: assessed.declarations.entries(&self.policy, workloads),
            decision,
            rebalanced,
            outcomes,
            totals: self.totals.clone(),
        }
    }

    /// Ends finished cold starts and gives those containers all of their memory, before the turn decides.
    fn end_cold_starts(&mut self, host: &ObservedHost, model: &Model, now_ns: u64) {
        let ObservedHost { workloads, sample, .. } = host;
        // Read even if unused: a container that reports ready must not block on a full pipe.
        let ready = &self.exposure.ready(&self.placed);
        if self.may_write() && self.gate.paused().is_none() {
            let seen =
                cold_start::ColdStartInputs { workloads, model, sample, before: self.before.as_ref(), ready };
            cold_start::turn(&mut self.placed.lock(), &mut self.cold_starts, seen, now_ns);
        }
    }

    /// Adds a turn to the totals.
    fn count(&mut self, applied: &Applied, sample: &Sample) {
        self.totals.ticks += 1;
        self.totals.counters.grow(self.before.as_ref(), sample);
        self.totals.count(&applied.outcomes);
        self.totals.cluster_events = self.cluster_events.as_deref().map(|tally| ClusterEventTotals {
            written: tally.written.load(Ordering::Relaxed),
            dropped: tally.dropped.load(Ordering::Relaxed),
        });
        self.totals.cluster_predictions = self.predictions.as_deref().map(|tally| ClusterPredictionTotals {
            right: tally.right.load(Ordering::Relaxed),
            wrong: tally.wrong.load(Ordering::Relaxed),
            unchecked: tally.unchecked.load(Ordering::Relaxed),
        });
        self.totals.page_move_calls = self.actuator.as_ref().and_then(|one| one.page_move_calls().cloned());
    }

    /// Degraded parts of the daemon, and sources about other writers that cannot be read.
    fn missing(&mut self) -> Vec<Degraded> {
        let mut missing: Vec<Degraded> =
            self.actuator.as_ref().and_then(|actuator| actuator.degraded()).into_iter().collect();
        missing.extend(self.placed.degraded());
        missing.extend(self.placed.unreadable_departures());
        missing.extend(self.exposure.degraded());
        missing.extend(self.demotion.degraded());
        missing.extend(self.recording.degraded());
        missing.extend(self.widening.as_ref().and_then(Widening::degraded));
        missing.extend(self.printers.iter().filter_map(Printer::degraded));
        missing.extend(self.publishing.iter().filter_map(|missing| missing.borrow().clone()));
        missing.extend(self.standing.iter().cloned());
        let others = self.source.others();
        missing.extend(others.degraded.iter().cloned());
        let allows = others.own_cpus.clone();
        self.placed.set_foreign_owners(others);
        if let Some(allows) = allows {
            missing.extend(self.own_cpus.keep_off(&self.placed.exclusive_of_others(), &allows));
        }
        missing
    }

    /// Reads the machine when it is due, the workloads and a sample.
    fn see(&mut self, now_ns: u64) -> Result<source::HostView, SourceError> {
        self.prepare()?;
        if self.totals.ticks > 0 && self.totals.ticks.is_multiple_of(TOPOLOGY_EVERY) {
            match self.read_machine() {
                Ok(read) => {
                    self.machine = Some(PlacementMachine::new(read, &self.policy));
                    self.share();
                }
                // The previous topology stays in use; the next read may succeed.
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
        self.placed.free_departed();
        self.placed.end_vanished(&workloads);
        self.placed.expect_only(&workloads);
        let sample = self.source.sample(&workloads, now_ns);
        Ok((workloads, degraded, sample))
    }

    /// Changes by other writers, without the runtime's writes of our answers.
    fn foreign_changes(&self, sample: &Sample) -> Option<Changes> {
        let mut changes = sample.changes.clone()?;
        self.placed.remove_own_writes(&mut changes);
        Some(changes)
    }
}
