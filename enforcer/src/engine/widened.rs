//! The part of a turn about memory widening: hands in the workloads to guard, and takes added nodes back.
//!
//! The turns give the thread of [`Widening`](super::Widening) its workloads, with the originals recorded
//! already. Like every cpuset write, both check first which memory policies of processes they would change.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    declarations::Declarations,
    model::Model,
    sample::Sample,
    widening::{ProtectedWorkload, ReclaimSource, added_before},
    workload::{CgroupPath, Workload},
};
use numa_topology::set::NodeSet;

use super::{Engine, PlacementMachine};
use enforcer_report::widening::WideningReport;

impl Engine {
    /// Takes over nodes added by an earlier daemon, and takes back those no longer needed. Returns why the
    /// others stay.
    pub(super) fn review_widened(
        &mut self,
        workloads: &[Workload],
        declarations: &Declarations,
        model: &Model,
        sample: &Sample,
    ) -> BTreeMap<CgroupPath, String> {
        let (Some(widening), Some(PlacementMachine { inventory, .. })) = (&self.widening, &self.machine)
        else {
            return BTreeMap::new();
        };
        widening.only(workloads);
        let actuator = self.actuator.as_ref().filter(|_| self.totals.ticks == 0);
        let ours = |cgroup: &CgroupPath| actuator.is_some_and(|one| one.has_set(cgroup));
        for workload in workloads.iter().filter(|workload| ours(&workload.cgroup)) {
            let engine = self.policy.placement.engine;
            let figures = model.of(workload);
            if let Some(added) = figures.and_then(|figures| added_before(&inventory.machine, engine, figures))
            {
                widening.adopt(&workload.cgroup, added);
            }
        }
        let (seen, samples) = ((workloads, model), (sample, self.before.as_ref()));
        let (policy, source, looks) = (&self.policy, &mut *self.source, &mut self.self_placed);
        let respects = |cgroup: &CgroupPath| declarations.respects_self_placement(policy, cgroup);
        let mut hindered = |cgroup: &CgroupPath, home: &NodeSet, extra: &NodeSet| {
            looks.narrows(source, sample, cgroup, (home, extra), &respects)
        };
        let waiting = widening.review(&mut self.narrowing, inventory, seen, samples, policy, &mut hindered);
        for (subject, record) in widening.note_exposed(workloads, sample) {
            self.decisions().note(subject, record);
        }
        waiting
    }

    /// Hands in the workloads to guard once their originals are recorded; records the memory decisions since
    /// the previous turn.
    pub(super) fn guard(
        &mut self,
        mut guarded: Vec<ProtectedWorkload>,
        declarations: &Declarations,
        workloads: &[Workload],
        waiting: BTreeMap<CgroupPath, String>,
        paused: bool,
    ) -> Option<WideningReport> {
        let widening = self.widening.clone()?;
        if !self.policy.memory.widening.enabled || !self.may_write() || paused || self.ready().is_err() {
            guarded.clear();
        }
        self.leave_self_placed(&mut guarded, declarations);
        let key = |one: &ProtectedWorkload| (one.cgroup.clone(), one.cgroup_id);
        let now: BTreeSet<_> = guarded.iter().map(key).collect();
        let new = now.difference(&self.recorded_mems).map(|(cgroup, _)| cgroup).collect::<Vec<_>>();
        let recorded = match &mut self.actuator {
            Some(actuator) if !new.is_empty() => actuator.record_mems(&new),
            _ => Ok(()),
        };
        match recorded {
            Ok(()) => self.recorded_mems = now,
            Err(error) => {
                tracing::warn!("some workloads are not guarded against full memory nodes: {error}");
                guarded.retain(|one| self.recorded_mems.contains(&key(one)));
            }
        }
        widening.guard(&self.policy.memory.widening, guarded);
        for (subject, record) in widening.take_records(workloads) {
            self.decisions().note(subject, record);
        }
        let mut report = WideningReport { waiting, ..widening.report() };
        let cold = self.demotion.relieved();
        if cold > 0 {
            report.relieved(ReclaimSource::Cold, cold);
        }
        Some(report)
    }
}
