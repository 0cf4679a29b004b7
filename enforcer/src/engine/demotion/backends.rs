//! Chooses what moves cold pages down in one round: the configured backend, or else `move_pages`.
//!
//! The core decides whether a backend may be used (`enforcer_core::demotion::backend`), from facts read for
//! the round. Each backend is tried once before its first round. A refusal is logged once for each workload;
//! a refusal for the whole host is a degraded source. The latest round always names its backend. Room for a
//! neighbour is made with `move_pages` in any case: it concerns one node and must happen at once.

use std::{collections::BTreeMap, mem::discriminant, path::Path};

use enforcer_core::{
    demotion::{
        NodeMemory, PageFlow,
        backend::{BackendObstacle, BackendPreconditions, BackendProbe, ask, obstacle, slower},
        target,
    },
    named::Named as _,
    policy::DemotionBackend,
};
use numa_topology::{Topology, degraded::Degraded, id::NodeId, set::NodeSet};

use super::{
    progress::{BackendChoice, LONGEST_REST, RoundBackoff, WorkloadDemotion, add, moved},
    shared::{DemotionTarget, DemotionWork, FLOW},
};
use enforcer_act::{
    pages::{PageBudget, Stop},
    scratch,
    tiers::{
        Carried, Deadline, Sides, bytes_there,
        damos::{self, DamosOrder},
        facts::TierFacts,
        frames_there, reclaim,
    },
};
use enforcer_host::{HostPath, HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::Kernel;
use enforcer_observe::cold::ColdWatch;
use enforcer_report::units;

/// Requests of at least this size that move nothing are vain; `memory.numa_stat` may not show less yet.
const MUCH: u64 = 4 << 20;

/// Everything that a round uses to move pages.
pub(super) struct DemotionContext<'a> {
    pub(super) kernel: &'a dyn Kernel,
    pub(super) proc: &'a HostPath,
    pub(super) budget: &'a mut PageBudget,
    pub(super) watch: &'a mut ColdWatch,
    pub(super) backends: &'a mut Backends,
}

/// State of the backends on this host.
pub(super) struct Backends {
    host: HostRoot,
    layout: CgroupLayout,
    stop: Stop,
    /// Results of the probes.
    probes: BTreeMap<DemotionBackend, BackendProbe>,
    /// The configured backend, if this host cannot use it.
    degraded: Option<Degraded>,
}

/// A request to a backend, and its result.
struct CarriedRequest {
    asked: u64,
    carried: Carried,
    sides: Sides,
}

impl Backends {
    pub(super) fn new(host: &HostRoot, layout: &CgroupLayout, stop: &Stop) -> Self {
        let (host, layout, stop) = (host.clone(), layout.clone(), stop.clone());
        Self { host, layout, stop, probes: BTreeMap::new(), degraded: None }
    }

    pub(super) fn degraded(&self) -> Option<Degraded> {
        self.degraded.clone()
    }

    #[cfg(test)]
    pub(super) fn tried(&mut self, backend: DemotionBackend, probe: BackendProbe) {
        self.probes.insert(backend, probe);
    }

    /// Probes a backend once. While the kernel's demotion is off, reclaim moves no page, so a probe would
    /// show nothing.
    fn probe(
        &mut self,
        backend: DemotionBackend,
        facts: &TierFacts,
        machine: &Topology,
        watch: &mut ColdWatch,
    ) -> BackendProbe {
        if let Some(probe) = self.probes.get(&backend) {
            return probe.clone();
        }
        let probe = match backend {
            DemotionBackend::MovePages => BackendProbe::Sound,
            DemotionBackend::Reclaim if !facts.kernel_demotes => return BackendProbe::Sound,
            DemotionBackend::Reclaim => {
                let fast = machine
                    .nodes
                    .iter()
                    .find(|node| !node.cpus.is_empty() && target::rank(machine, node.id) == Some(0));
                let tried = fast.ok_or_else(|| "no node has CPUs and fast memory".to_owned());
                match tried.and_then(|node| scratch::bytes_outside(&self.layout.cpuset.path, node.id)) {
                    Ok(0) => BackendProbe::Sound,
                    Ok(bytes) => BackendProbe::PastCpusets(bytes),
                    Err(error) => BackendProbe::Unusable(format!(
                        "whether it keeps to cpusets could not be tried: {error}"
                    )),
                }
            }
            DemotionBackend::Damos => {
                let tried = watch.spare_kdamond().and_then(|kdamond| {
                    damos::probe(kdamond.as_path()).map_err(|error| format!("{error}; Linux 6.11 has it"))
                });
                tried.map_or_else(BackendProbe::Unusable, |()| BackendProbe::Sound)
            }
        };
        tracing::info!("{} was tried for cold pages: {probe:?}", backend.name());
        self.probes.insert(backend, probe.clone());
        probe
    }

    /// Has a backend other than `move_pages` carry the flows out. An error means that nothing has moved.
    fn carry(
        &mut self,
        backend: DemotionBackend,
        round: &DemotionRequest<'_>,
        in_vain: u32,
        kernel: &dyn Kernel,
        watch: &mut ColdWatch,
    ) -> Result<CarriedRequest, BackendObstacle> {
        let machine = &round.wanted.inventory.machine;
        let facts = TierFacts::read(&self.host, &self.layout, &round.wish.cgroup)
            .map_err(BackendObstacle::Unknown)?;
        let probe = self.probe(backend, &facts, machine, watch);
        let footing = BackendPreconditions {
            topology: machine,
            allowed: &facts.allowed,
            probe: &probe,
            kernel_demotes: facts.kernel_demotes,
            cgroups_below: facts.cgroups_below,
            may_swap: facts.may_swap,
            in_vain,
            memory: &facts.memory,
        };
        if backend == DemotionBackend::Damos {
            let all = round.flows.iter().fold(0, |sum: u64, flow| sum.saturating_add(flow.bytes));
            obstacle(backend, &footing, round.flows, all).map_or(Ok(()), Err)?;
            let kdamond = watch.spare_kdamond().map_err(BackendObstacle::Unusable)?;
            return self.migrate(kdamond.as_path(), round, &facts, kernel);
        }
        let deadline = Deadline::after(FLOW, &self.stop);
        let there = |flow: &PageFlow| (flow.from, bytes_there(kernel, &self.host.proc, flow, &deadline));
        let there: BTreeMap<NodeId, u64> = round.flows.iter().map(there).collect();
        let asked = ask(&footing, round.flows, &there, round.rooms);
        obstacle(backend, &footing, round.flows, asked).map_or(Ok(()), Err)?;
        let upper: NodeSet = round.flows.iter().map(|flow| flow.from).collect();
        let sides = Sides { lower: slower(machine, &upper), upper, allowed: facts.allowed.clone() };
        let carried = reclaim::reclaim(&facts.cgroup, asked, &sides, &deadline, &mut reclaim::to_file)
            .map_err(BackendObstacle::Unknown)?;
        if carried.shift.outside > 0 {
            self.probes.insert(backend, BackendProbe::PastCpusets(carried.shift.outside));
        }
        Ok(CarriedRequest { asked, carried, sides })
    }

    fn migrate(
        &self,
        kdamond: &Path,
        round: &DemotionRequest<'_>,
        facts: &TierFacts,
        kernel: &dyn Kernel,
    ) -> Result<CarriedRequest, BackendObstacle> {
        let all = |end: fn(&PageFlow) -> NodeId| round.flows.iter().map(end).collect::<NodeSet>();
        let sides = Sides {
            upper: all(|flow| flow.from),
            lower: all(|flow| flow.to),
            allowed: facts.allowed.clone(),
        };
        let mut done = CarriedRequest { asked: 0, carried: Carried::default(), sides };
        for flow in round.flows {
            let deadline = Deadline::after(FLOW, &self.stop);
            let one = |node: NodeId| [node].into_iter().collect::<NodeSet>();
            let sides = Sides { upper: one(flow.from), lower: one(flow.to), allowed: facts.allowed.clone() };
            let frames = frames_there(kernel, &self.host.proc, flow, &deadline);
            let carried = frames.map_err(BackendObstacle::Unusable).and_then(|frames| {
                let bytes = frames.bytes().min(flow.bytes);
                done.asked = done.asked.saturating_add(bytes);
                let order = DamosOrder { frames: &frames, to: flow.to, named: &facts.named, bytes };
                damos::migrate(kdamond, &facts.cgroup, &order, &sides, &deadline)
                    .map_err(BackendObstacle::Unknown)
            });
            match carried {
                Ok(carried) => {
                    let shift = &mut done.carried.shift;
                    shift.down = shift.down.saturating_add(carried.shift.down);
                    shift.outside = shift.outside.saturating_add(carried.shift.outside);
                }
                // `move_pages` must not move again what has moved already.
                Err(obstacle) if done.carried.shift.down > 0 => {
                    done.carried.less = Some(obstacle.words());
                    break;
                }
                Err(obstacle) => return Err(obstacle),
            }
        }
        Ok(done)
    }
}

/// Flows of one round.
pub(super) struct DemotionRequest<'a> {
    pub(super) wish: &'a DemotionTarget,
    pub(super) wanted: &'a DemotionWork,
    pub(super) flows: &'a [PageFlow],
    pub(super) rooms: &'a BTreeMap<NodeId, NodeMemory>,
}

impl BackendChoice {
    fn refuse(&mut self, obstacle: &BackendObstacle, round: &DemotionRequest<'_>, lines: &mut Vec<String>) {
        let (asked, words) = (round.wanted.settings.backend.name(), obstacle.words());
        if !self.told.contains(&discriminant(obstacle)) {
            self.told.push(discriminant(obstacle));
            let line = format!("moved with move-pages and not by {asked}: {words}");
            tracing::warn!("{}: cold pages are {line}", round.wish.cgroup);
            lines.push(line);
        }
        (self.by, self.refused) = (DemotionBackend::MovePages, Some(words));
    }
}

impl WorkloadDemotion {
    /// Moves pages down. After a round without cold pages it skips some rounds: a search asks the kernel
    /// about each page.
    pub(super) fn down(
        &mut self,
        round: &DemotionRequest<'_>,
        means: &mut DemotionContext<'_>,
        lines: &mut Vec<String>,
    ) -> u64 {
        if self.rest.left > 0 {
            self.rest.left -= 1;
            return 0;
        }
        let bytes = self.carry(round, means, lines);
        add(&mut self.moves.by_backend, self.carriage.by.name(), bytes);
        let went = bytes > 0 || round.flows.is_empty();
        let length = if went { 0 } else { (self.rest.length * 2).clamp(1, LONGEST_REST) };
        self.rest = RoundBackoff { left: length, length };
        bytes
    }

    fn carry(
        &mut self,
        round: &DemotionRequest<'_>,
        means: &mut DemotionContext<'_>,
        lines: &mut Vec<String>,
    ) -> u64 {
        if round.flows.is_empty() {
            return 0;
        }
        let (asked, carriage) = (round.wanted.settings.backend, &mut self.carriage);
        if asked == DemotionBackend::MovePages {
            (carriage.by, carriage.refused, means.backends.degraded) = (asked, None, None);
        } else {
            let DemotionContext { kernel, watch, backends, .. } = means;
            match backends.carry(asked, round, carriage.in_vain, *kernel, watch) {
                Ok(done) => {
                    (carriage.by, carriage.refused, backends.degraded) = (asked, None, None);
                    let bytes = done.carried.shift.down;
                    if bytes > 0 {
                        carriage.in_vain = 0;
                    } else if done.asked >= MUCH {
                        carriage.in_vain += 1;
                    }
                    lines.extend(done.line(asked));
                    return bytes;
                }
                Err(obstacle) => {
                    if obstacle.is_of_the_host() {
                        let reason = format!("{}: {}", asked.name(), obstacle.words());
                        let effect = "cold pages are moved with move_pages instead";
                        backends.degraded = Some(Degraded::new("demotion-backend", reason, effect));
                    }
                    carriage.refuse(&obstacle, round, lines);
                }
            }
        }
        moved(means.kernel, round.flows, means.proc, means.budget, lines)
    }
}

impl CarriedRequest {
    /// Its part of the record, if a request was made.
    fn line(&self, by: DemotionBackend) -> Option<String> {
        if self.asked == 0 {
            return None;
        }
        let Self { asked, carried: Carried { shift, less }, sides } = self;
        let [down, asked] = [shift.down, *asked].map(units::bytes);
        let (upper, lower) = (&sides.upper, &sides.lower);
        let mut line = vec![format!(
            "{down} went from node {upper} to node {lower} by {}, of {asked} asked for",
            by.name()
        )];
        line.extend(less.clone());
        for (bytes, what) in [
            (shift.dropped, "of files were dropped"),
            (shift.outside, "went where the cpuset does not allow"),
        ] {
            if bytes > 0 {
                line.push(format!("{} {what}", units::bytes(bytes)));
            }
        }
        Some(line.join(", "))
    }
}
