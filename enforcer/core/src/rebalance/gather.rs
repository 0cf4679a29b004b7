//! Builds the planner's input: the workloads that may move, and the bounds of each move.
//!
//! The planner moves workloads that are declared with `enforce`, and containers that the daemon placed at
//! creation. It leaves workloads with a cpuset of another owner and workloads that are declared to be left
//! alone. A workload moves only if its CPUs can: an exclusive set, or a share of CPUs that no workload has
//! exclusively. A container that the engine `pools` placed stays in its pool.
//!
//! A workload's place is what the kernel shows ([`crate::model`]), not its grant, so the same code serves the
//! daemon and a one-shot command. An unknown figure keeps the workload where it is and is reported.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    MoveHistory,
    evidence::believed,
    report::UnmovedWorkload,
    view::{Ailment, CpusHeld, FreeResources, HostState, Mover, NodeShare},
};
use crate::{
    decide::{bounds, pins},
    hosted::wishes_of,
    model::{WorkloadModel, movable_bytes, staying_bytes},
    sample::{Count as _, NodeSample},
    turn::Inputs,
    workload::{CgroupPath, Origin, QosClass, Workload},
};
use numa_placement::{Allocations, CpuClass, Grant, Holder, MemoryClaim, MemoryResource, engine_name::HINTS};
use numa_topology::{Locality, Topology, id::NodeId, set::NodeSet};

/// Input of a plan, and the workloads that are no part of it.
#[derive(Debug, Clone)]
pub struct Gathered<'a> {
    /// The host.
    pub host: HostState<'a>,
    /// Workloads that may be moved.
    pub movers: Vec<Mover>,
    /// Workloads with far memory that may not be moved, with the reason.
    pub left: Vec<UnmovedWorkload>,
    /// Movable workloads for which one more sample would decide.
    pub undecided: BTreeSet<CgroupPath>,
}

/// A workload that the daemon may move.
struct OwnWorkload<'a> {
    workload: &'a Workload,
    figures: &'a WorkloadModel,
    grant: Option<&'a Grant>,
    /// Declared number of exclusive CPUs; absent if it shares CPUs.
    alone: Option<usize>,
    qos: QosClass,
    declared_bytes: Option<u64>,
    nodes: Option<&'a NodeSet>,
    devices: NodeSet,
}

/// Gathers the input. `busy` returns the reason why a workload may not move just now.
pub fn gather<'a>(
    inputs: &Inputs<'a>,
    allocations: &Allocations,
    past: &MoveHistory,
    busy: impl Fn(&CgroupPath) -> Option<String>,
) -> Gathered<'a> {
    let by_cgroup: BTreeMap<&CgroupPath, &Holder> = inputs.containers.cgroups().collect();
    let mut movers = Vec::new();
    let mut left = Vec::new();
    let mut counted = BTreeSet::new();
    let mut undecided = BTreeSet::new();
    for workload in inputs.workloads {
        let holder = by_cgroup.get(&workload.cgroup).copied();
        let ours = ours(inputs, allocations, workload, holder);
        if ours.as_ref().is_ok_and(|ours| is_open(inputs, past, ours)) && busy(&workload.cgroup).is_none() {
            undecided.insert(workload.cgroup.clone());
        }
        match ours.and_then(|ours| mover(inputs, past, &ours)) {
            Ok(mut mover) => {
                mover.held_back = mover.held_back.or_else(|| busy(&workload.cgroup));
                counted.insert(holder.cloned().unwrap_or_else(|| Holder::cgroup(&workload.cgroup)));
                movers.push(mover);
            }
            Err(reason) => {
                if is_remote(inputs, past, workload) {
                    left.push(UnmovedWorkload { workload: workload.cgroup.clone(), ailing: true, reason });
                }
            }
        }
    }
    let rooms = rooms(inputs, allocations, &movers, &counted);
    let machine = &inputs.inventory.machine;
    let host = HostState { machine, locality: Locality::new(machine), rooms, short: past.short().clone() };
    Gathered { host, movers, left, undecided }
}

/// The workload if the daemon may move it, else the reason.
fn ours<'a>(
    inputs: &Inputs<'a>,
    allocations: &'a Allocations,
    workload: &'a Workload,
    holder: Option<&Holder>,
) -> Result<OwnWorkload<'a>, String> {
    if let Some(ownership) = inputs.owners.foreign(workload) {
        return Err(ownership.refusal());
    }
    let rule = inputs.declarations.rule(inputs.policy, &workload.cgroup);
    if rule.is_some_and(|(_, rule)| !rule.enforce) {
        return Err("it is declared to be left alone".into());
    }
    if matches!(workload.origin, Origin::Process { .. }) || workload.cgroup == CgroupPath::root() {
        return Err("it is in no cgroup of its own".into());
    }
    let figures = inputs.model.of(workload).ok_or("nothing was seen of it")?;
    let qos = match workload.origin {
        Origin::Pod { qos, .. } => qos,
        _ => QosClass::Guaranteed,
    };
    let placed = holder.filter(|holder| !holder.is_given());
    if let Some(grant) = placed.and_then(|holder| allocations.get(holder)) {
        if grant.engine != HINTS {
            return Err("it is in a pool, which it does not leave while it runs".into());
        }
        let hugepages = |claim: &MemoryClaim| claim.resource != MemoryResource::Memory && claim.bytes > 0;
        if grant.memory.iter().any(hugepages) {
            return Err("it was promised huge pages, which do not move".into());
        }
        if !grant.pin_cpus {
            return Err("its CPUs are not pinned".into());
        }
        let (alone, devices) = (None, NodeSet::new());
        let nodes = rule.and_then(|(_, rule)| rule.numa_nodes.as_ref());
        return Ok(OwnWorkload {
            workload,
            figures,
            grant: Some(grant),
            alone,
            qos,
            declared_bytes: None,
            nodes,
            devices,
        });
    }
    let Some((position, rule)) = rule else { return Err("it is not declared".into()) };
    if !rule.options.is_empty() {
        return Err("its CPUs are chosen by options, and a move chooses them by NUMA node alone".into());
    }
    let (wishes, _) = wishes_of(rule, position, &inputs.inventory.machine);
    let grant = allocations.get(&Holder::cgroup(&workload.cgroup));
    let count = rule.cpus.and_then(|cpus| usize::try_from(cpus.get()).ok());
    let alone = count.filter(|_| wishes.alone() != Some(false));
    let devices = wishes.beside.iter().fold(NodeSet::new(), |nodes, hint| nodes.union(&hint.nodes));
    Ok(OwnWorkload {
        workload,
        figures,
        grant,
        alone,
        qos,
        declared_bytes: rule.memory.map(|memory| memory.0),
        nodes: rule.numa_nodes.as_ref(),
        devices,
    })
}

fn mover(inputs: &Inputs<'_>, past: &MoveHistory, ours: &OwnWorkload<'_>) -> Result<Mover, String> {
    let OwnWorkload { workload, figures, .. } = ours;
    let settings = &inputs.policy.rebalance;
    let used = figures.cpus_used.ok_or("how much CPU time it uses is not known")?;
    let bytes = figures.bytes_by_node.as_ref().ok_or("where its memory is is not known")?;
    let ordinary = inputs.inventory.machine.ordinary_memory_nodes();
    let bytes: BTreeMap<NodeId, NodeShare> = bytes
        .iter()
        .filter(|(node, _)| ordinary.contains(**node))
        .map(|(node, held)| (*node, NodeShare { movable: movable_bytes(held), fixed: staying_bytes(held) }))
        .collect();
    let cpus = held_cpus(&inputs.inventory.machine, ours, used)?;
    let stands_on = cpus.nodes(&inputs.inventory.machine);
    let run = match (&figures.run_share, stands_on.first()) {
        (Some(run), _) => run.clone(),
        // A workload that has not run at all would run where its CPUs are.
        (None, Some(node)) if stands_on.len() == 1 => BTreeMap::from([(node, 1.0)]),
        (None, _) => return Err("on which nodes it runs is not known".into()),
    };
    let mut ails = BTreeSet::new();
    if is_remote(inputs, past, workload) {
        ails.insert(Ailment::Remote);
    }
    if !ours.devices.is_empty() && ours.devices.is_disjoint(&stands_on) {
        ails.insert(Ailment::FarFromDevices);
    }
    let promised = match (ours.grant, ours.declared_bytes) {
        (Some(grant), _) => grant.memory_by_node(),
        (None, Some(bytes)) => stands_on.first().map(|node| (node, bytes)).into_iter().collect(),
        (None, None) => BTreeMap::new(),
    };
    Ok(Mover {
        cgroup: workload.cgroup.clone(),
        qos: ours.qos,
        may_settle: may_settle(inputs, past, ours, &stands_on),
        cpus,
        run,
        used,
        bytes,
        promised,
        remote: believed(figures.traffic.as_ref(), settings),
        devices: ours.devices.clone(),
        ails,
        held_back: past.cooling(&workload.cgroup, settings, inputs.now_ns),
    })
}

/// How it has its CPUs, as the kernel shows.
fn held_cpus(machine: &Topology, ours: &OwnWorkload<'_>, used: f64) -> Result<CpusHeld, String> {
    let now = ours.figures.cpus.as_ref().filter(|cpus| !cpus.is_empty());
    let now = now.ok_or("its effective CPUs are not known")?;
    let count = match ours.grant {
        Some(Grant { class: CpuClass::Mixed, .. }) => {
            return Err("it has some CPUs for itself and shares others".into());
        }
        Some(grant) if grant.shared.is_none() && grant.exclusive == *now => Some(grant.exclusive.len()),
        Some(Grant { shared: Some(_), .. }) => None,
        _ => ours.alone,
    };
    if let Some(count) = count {
        let own = (now.len() == count).then(|| CpusHeld::Alone(now.clone()));
        return own.ok_or_else(|| format!("it has not its {count} CPUs for itself yet, but CPUs {now}"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "CPU time that was used")]
    let uses = (used.max(0.0) * 1000.0) as u64;
    let promised = ours.grant.and_then(|grant| grant.shared.as_ref()).map_or(0, |shared| shared.milli_cpus);
    Ok(CpusHeld::Together { nodes: machine.nodes_of(now), milli: promised.max(uses) })
}

/// Nodes with CPUs and memory of which it may have the whole. Of nodes that it left lately, only its present
/// one.
fn may_settle(
    inputs: &Inputs<'_>,
    past: &MoveHistory,
    ours: &OwnWorkload<'_>,
    stands_on: &NodeSet,
) -> NodeSet {
    let machine = &inputs.inventory.machine;
    let mut nodes = machine.ordinary_memory_nodes().intersection(&inputs.inventory.cpu_nodes());
    if let Some(allowed) = ours.nodes {
        nodes = nodes.intersection(allowed);
    }
    if let Some(bounds) = bounds(inputs, &ours.workload.cgroup) {
        let has_cpus = |node: &NodeId| {
            let there = machine.node(*node).map(|node| &node.cpus);
            bounds.cpus.as_ref().is_none_or(|above| there.is_some_and(|there| there.is_subset(above)))
        };
        let has_memory = |node: &NodeId| bounds.mems.as_ref().is_none_or(|above| above.contains(*node));
        nodes = nodes.iter().filter(has_cpus).filter(has_memory).collect();
    }
    let left = past.nodes_it_left(&ours.workload.cgroup, &inputs.policy.rebalance, inputs.now_ns);
    nodes.difference(&left.difference(stands_on))
}

/// Returns true if its memory is far from its CPUs and the measurements do not suffice to say what that
/// costs. One more sample would decide.
fn is_open(inputs: &Inputs<'_>, past: &MoveHistory, ours: &OwnWorkload<'_>) -> bool {
    let (settings, figures) = (&inputs.policy.rebalance, ours.figures);
    figures.remote_residency.is_some_and(|share| share >= settings.start_above)
        && is_large(inputs, figures)
        && believed(figures.traffic.as_ref(), settings).is_none()
        && past.cooling(&ours.workload.cgroup, settings, inputs.now_ns).is_none()
}

fn is_large(inputs: &Inputs<'_>, figures: &WorkloadModel) -> bool {
    let bytes = figures.ordinary_bytes(&inputs.inventory.machine);
    bytes.is_some_and(|bytes| bytes >= inputs.policy.thresholds.min_memory.0)
}

fn is_remote(inputs: &Inputs<'_>, past: &MoveHistory, workload: &Workload) -> bool {
    let settings = &inputs.policy.rebalance;
    let Some(figures) = inputs.model.of(workload) else { return false };
    let remote = believed(figures.traffic.as_ref(), settings);
    is_large(inputs, figures)
        && remote.is_some_and(|remote| past.is_ailing(&workload.cgroup, remote, settings))
}

/// Free resources of the nodes. A mover's exclusive CPUs are not free; the allocations have all other
/// workloads.
fn rooms(
    inputs: &Inputs<'_>,
    allocations: &Allocations,
    movers: &[Mover],
    counted: &BTreeSet<Holder>,
) -> BTreeMap<NodeId, FreeResources> {
    let inventory = inputs.inventory;
    let mut taken = inventory.reserved_cpus.union(&inventory.machine.isolated_cpus);
    let mut promised = BTreeMap::<NodeId, u64>::new();
    let mut others = BTreeMap::<NodeId, u64>::new();
    let mut promise = |by_node: &BTreeMap<NodeId, u64>| promised.add(by_node);
    for mover in movers {
        promise(&mover.promised);
        if let CpusHeld::Alone(cpus) = &mover.cpus {
            taken.extend(cpus);
        }
    }
    let exclusive = allocations.exclusive_cpus();
    for (_, grant) in allocations.iter().filter(|(holder, _)| !counted.contains(holder)) {
        promise(&grant.memory_by_node());
        if let Some(shared) = &grant.shared {
            let on = inventory.machine.nodes_of(&grant.cpus(&exclusive));
            for node in on.iter() {
                let share = shared.milli_cpus / u64::try_from(on.len()).unwrap_or(u64::MAX).max(1);
                *others.entry(node).or_default() += share;
            }
        }
    }
    // The grant of a mover counts too when it is not there: the move may be in progress.
    taken.extend(&exclusive);
    let pinned = pins::cpus(&pins::all(inputs));
    let room = |node: &numa_placement::NodeSupply| {
        let seen = inputs.sample.nodes.get(&node.id);
        let cache = inventory.machine.llcs.iter().find(|llc| !llc.cpus.is_disjoint(&node.cpus));
        FreeResources {
            free: node.cpus.difference(&taken),
            pinned: node.cpus.intersection(&pinned),
            others_milli: others.get(&node.id).copied().unwrap_or(0),
            total_bytes: seen.and_then(|seen| seen.mem_total_bytes),
            available_bytes: seen.and_then(NodeSample::available_bytes),
            unpromised_bytes: Some(
                node.allocatable(MemoryResource::Memory)
                    .saturating_sub(promised.get(&node.id).copied().unwrap_or(0)),
            ),
            cache_bytes: cache.and_then(|cache| cache.size_bytes),
        }
    };
    inventory.nodes.iter().map(|node| (node.id, room(node))).collect()
}
