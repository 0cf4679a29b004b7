//! Advice that brings one workload's CPUs and memory together: the single source for remedies and for the
//! daemon.
//!
//! Problem: advice that knows less than the daemon names CPUs that a cgroup above does not allow, full nodes,
//! or sets that are in effect already. Idea: one function answers for every workload. For a workload of the
//! decision it repeats the decision; any other is placed by the same request, within the cgroups above it,
//! beside the grants and pins of others, and where its memory has room now. Sets that are right already stay.
//!
//! Invariants: advice stays within the cgroups above, names only nodes with room, writes nothing that is
//! there already, touches no cpuset of another owner, and promises nothing that was advised to another
//! workload before ([`EarlierAdvice`]). Without advice there is an [`Obstacle`] that names the cause. Cost:
//! at most four placements per workload.

mod no_place;
mod pages;
mod route;

pub use self::pages::tmpfs_in_words;

use std::{cell::LazyCell, collections::BTreeMap, fmt};

use super::{
    EarlierAdvice, above::AncestorLimits, controller::without_controller, declared::available_bytes, pins,
};
use crate::{
    hosted::{CgroupBounds, CgroupRequest},
    model::{WorkloadModel, nearest_effective, own_bytes},
    sample::CgroupSample,
    self_placement::CpusetWrites,
    turn::{Decision, Inputs, RefusalCause},
    words,
    workload::{Origin, Workload},
};
use numa_placement::{Allocations, Holder};
use numa_topology::{
    Locality,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Sets to write, and what they do not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// CPUs to set; `None` if they are right already.
    pub cpus: Option<CpuSet>,
    /// Memory nodes to set; `None` if they are right already.
    pub mems: Option<NodeSet>,
    /// Nodes far from its CPUs with pages that it may use no more, or may not have been able to leave.
    pub from: NodeSet,
    /// Memory nodes to write, one set after the other: a write moves only pages of the nodes that it takes
    /// away, each node's pages to the one node that its position gives.
    pub mem_writes: Vec<NodeSet>,
    /// Sweeps by each process (migratepages) before the last of these writes, which would move the pages to
    /// nodes without room.
    pub swept_first: Vec<(NodeSet, NodeId)>,
    /// Sweeps by each process after the writes, of pages that no write moves.
    pub swept: Vec<(NodeSet, NodeId)>,
    /// Its CPUs and memory nodes afterwards.
    pub place: (CpuSet, NodeSet),
    /// Nodes of these that receive pages, without memory of GPUs and nodes that are only there for the
    /// kernel.
    pub to: NodeSet,
    /// Reason why some of its CPUs have no memory near them even so.
    pub lacks: Option<Obstacle>,
    /// Bytes that arrive on each of these nodes.
    pub comes: BTreeMap<NodeId, u64>,
    /// Nodes far from its CPUs with bytes of files that stay because no process maps them: page cache does
    /// not follow its readers.
    pub stays: (NodeSet, u64),
}

impl Advice {
    /// Changes of this advice, in order.
    pub fn writes(&self) -> CpusetWrites {
        let moves = self.swept_first.iter().chain(&self.swept).cloned().collect();
        CpusetWrites { cpus: self.cpus.iter().cloned().collect(), mems: self.mem_writes.clone(), moves }
    }
}

/// Memory nodes near these CPU nodes that the cgroups above leave a workload: the single answer for findings
/// and for advice.
pub fn near_memory(inputs: &Inputs<'_>, workload: &Workload, cpu_nodes: &NodeSet) -> NodeSet {
    let inventory = inputs.inventory;
    inventory.locality.near_memory_of(&inventory.machine, cpu_nodes, &allowed_memory(inputs, workload))
}

/// Ordinary memory nodes that the cgroups above leave a workload.
fn allowed_memory(inputs: &Inputs<'_>, workload: &Workload) -> NodeSet {
    let ordinary = inputs.inventory.machine.ordinary_memory_nodes();
    let above = bounds(inputs, workload).and_then(|bounds| bounds.mems);
    above.map_or(ordinary.clone(), |above| ordinary.intersection(&above))
}

/// Limits of the cgroups above; for a process its own cgroup is one of them.
fn bounds(inputs: &Inputs<'_>, workload: &Workload) -> Option<CgroupBounds> {
    let cgroup = &workload.cgroup;
    if !matches!(workload.origin, Origin::Process { .. }) {
        return AncestorLimits::of(inputs, cgroup).bounds();
    }
    let sample = inputs.sample;
    let cpus = nearest_effective(sample, cgroup, |cgroup| cgroup.cpus_effective.clone());
    let mems = nearest_effective(sample, cgroup, |cgroup| cgroup.mems_effective.clone());
    Some(CgroupBounds {
        cgroup: cgroup.clone(),
        cpus: cpus.map(|(_, cpus)| cpus),
        mems: mems.map(|(_, mems)| mems),
    })
}

/// Limit of places tried for one workload: each costs a placement.
const MOST_PLACES: usize = 4;

/// Reason why there is no advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Kind of obstacle.
    pub kind: ObstacleKind,
    /// The obstacle in one sentence, with its name.
    pub reason: String,
}

/// Kinds of obstacles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObstacleKind {
    /// The machine has no better place for the workload.
    Machine,
    /// The daemon has put it there, or its own memory policy spreads it.
    Intended,
    /// The better place is full at present.
    NoRoom,
    /// A cgroup, a partition or another owner decides, and would have to change.
    Elsewhere,
}

impl Obstacle {
    pub(super) fn new(kind: ObstacleKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Advice for this workload after the earlier advice. `decision` and `allocations` are those of the same
/// inputs.
pub fn advise(
    inputs: &Inputs<'_>,
    decision: &Decision,
    allocations: &Allocations,
    earlier: &EarlierAdvice,
    workload: &Workload,
) -> Result<Advice, Obstacle> {
    let asked = Asked::of(inputs, earlier, workload)?;
    let cgroup = &workload.cgroup;
    if let Some(refusal) = decision.refused.iter().find(|refusal| refusal.workload == *cgroup) {
        return Err(Obstacle::new(kind_of(refusal.cause), refusal.reason.clone()));
    }
    if let Some(target) = decision.targets.get(cgroup) {
        let has = || (asked.cpus.clone(), asked.mems.clone());
        let cpus = target.cpuset.cpus.clone().unwrap_or_else(|| has().0);
        let mems = target.cpuset.mems.clone().unwrap_or_else(|| has().1);
        let intended = || Obstacle::new(ObstacleKind::Intended, "it is where its declaration puts it");
        let in_parts = |obstacle: Obstacle| {
            Obstacle::new(obstacle.kind, format!("{obstacle}; numa-enforcer brings them in parts"))
        };
        return asked.advice(cpus, mems).map_err(in_parts)?.ok_or_else(intended);
    }
    if let Some(reason) = earlier.comes_first(workload) {
        return Err(Obstacle::new(ObstacleKind::Elsewhere, reason));
    }
    asked.best(allocations).and_then(|advice| match asked.held_below(&advice) {
        Some(obstacle) => Err(obstacle),
        None => Ok(advice),
    })
}

fn kind_of(cause: RefusalCause) -> ObstacleKind {
    match cause {
        RefusalCause::OneNode => ObstacleKind::Machine,
        RefusalCause::NoPlace | RefusalCause::NotSeen | RefusalCause::CoolDown => ObstacleKind::NoRoom,
        RefusalCause::Drift
        | RefusalCause::OtherOwner
        | RefusalCause::AboveTooNarrow
        | RefusalCause::NoController
        | RefusalCause::PinnedToIsolated
        | RefusalCause::SelfPlacement => ObstacleKind::Elsewhere,
    }
}

/// A workload with its present CPUs and memory nodes.
struct Asked<'a> {
    inputs: &'a Inputs<'a>,
    earlier: &'a EarlierAdvice,
    workload: &'a Workload,
    figures: &'a WorkloadModel,
    cpus: &'a CpuSet,
    mems: &'a NodeSet,
    /// Ordinary memory nodes that the cgroups above leave it.
    allowed: NodeSet,
    locality: &'a Locality,
}

/// The request of a workload, and the grants and pins of others: the same for each tried place.
struct Beside<'a> {
    request: CgroupRequest<'a>,
    allocations: Allocations,
    /// Pins of other cgroups.
    held: pins::Pins,
    /// Exclusive CPUs of others, without those that earlier remedies keep busy.
    taken: CpuSet,
}

impl<'a> Asked<'a> {
    fn of(
        inputs: &'a Inputs<'_>,
        earlier: &'a EarlierAdvice,
        workload: &'a Workload,
    ) -> Result<Self, Obstacle> {
        let elsewhere = |reason: String| Obstacle::new(ObstacleKind::Elsewhere, reason);
        if let Some(ownership) = inputs.owners.foreign(workload) {
            return Err(elsewhere(ownership.refusal()));
        }
        let is_process = matches!(workload.origin, Origin::Process { .. });
        if !is_process {
            if workload.cgroup.is_root() {
                return Err(elsewhere("it is in the root cgroup, which has no cpuset to set".into()));
            }
            if let Some(reason) = without_controller(inputs.sample, &workload.cgroup) {
                return Err(elsewhere(reason));
            }
        }
        let unknown = || Obstacle::new(ObstacleKind::Machine, "its CPUs and memory nodes are not known");
        let figures = inputs.model.of(workload).ok_or_else(unknown)?;
        let (cpus, mems) = figures.cpus.as_ref().zip(figures.mems.as_ref()).ok_or_else(unknown)?;
        let locality = &inputs.inventory.locality;
        let allowed = allowed_memory(inputs, workload);
        Ok(Self { inputs, earlier, workload, figures, cpus, mems, allowed, locality })
    }

    fn is_process(&self) -> bool {
        matches!(self.workload.origin, Origin::Process { .. })
    }

    /// Does its cpuset keep it from a CPU that others may use?
    fn is_pinned(&self) -> bool {
        !self.inputs.inventory.machine.online_cpus().is_subset(self.cpus)
    }

    /// Is it pinned to CPUs of one node, or may it use memory of GPUs alone, and is none of its memory known
    /// to be far from its CPUs? Its CPUs are right then: unknown memory is no reason to leave them.
    fn is_beside_its_memory(&self) -> bool {
        let machine = &self.inputs.inventory.machine;
        let cpu_nodes = machine.nodes_of(self.cpus);
        let far = machine.ordinary_memory_nodes().difference(&self.near(&cpu_nodes));
        let bytes = self.figures.bytes_by_node.iter().flatten();
        let mut held_far = bytes.filter(|(node, bytes)| far.contains(**node) && own_bytes(bytes) > 0);
        let cache_is_near = !self.is_judged_remote(self.stays(&self.near(&cpu_nodes)).1);
        let on_one_node = self.is_pinned() && cpu_nodes.len() == 1;
        let on_gpus = self.mems.is_disjoint(&machine.ordinary_memory_nodes());
        (on_one_node || on_gpus) && held_far.next().is_none() && cache_is_near
    }

    /// Is it pinned near a GPU that it has memory on? Its CPUs are right then, wherever its other memory is.
    fn is_beside_its_gpu(&self) -> bool {
        let machine = &self.inputs.inventory.machine;
        let cpu_nodes = machine.nodes_of(self.cpus);
        let bytes = self.figures.bytes_by_node.iter().flatten();
        let mut gpus = bytes.filter(|(node, bytes)| own_bytes(bytes) > 0 && self.locality.is_gpu(**node));
        let is_beside = |node: &NodeId| !self.locality.near_cpu_nodes(*node).is_disjoint(&cpu_nodes);
        self.is_pinned() && gpus.any(|(node, _)| is_beside(node))
    }

    /// Reason why its CPUs are not exchanged for others.
    fn keeps_its_cpus(&self) -> Option<String> {
        let inventory = &self.inputs.inventory;
        if inventory.is_pinned_to_isolated(self.cpus, self.figures.on_isolated_cpus.keys().copied()) {
            let isolated = self.cpus.intersection(&inventory.machine.isolated_cpus);
            return Some(format!("its CPUs {isolated} are isolated (isolcpus) and stay its own"));
        }
        let nearest = pins::nearest_pin(self.inputs.sample, &self.workload.cgroup);
        let (_, pin) = nearest.filter(|(_, pin)| pin.partition)?;
        Some(format!(
            "its CPUs {} are those of a partition, which it or a cgroup above it is the root of",
            pin.cpus
        ))
    }

    /// Brings its CPUs to its memory or its memory to its CPUs, depending on which is right already.
    fn best(&self, allocations: &Allocations) -> Result<Advice, Obstacle> {
        let in_place = LazyCell::new(|| self.in_place_of_its_cpus());
        if let Some(reason) = self.keeps_its_cpus() {
            let named = |obstacle| Obstacle::new(ObstacleKind::Elsewhere, format!("{reason}; {obstacle}"));
            return in_place.clone().map_err(named);
        }
        if (self.is_beside_its_memory() || self.is_beside_its_gpu()) && in_place.is_ok() {
            return in_place.clone();
        }
        self.alone_on_a_node(allocations).or_else(|no_node| match &*in_place {
            Ok(advice) => Ok(advice.clone()),
            // The kind that a person can do more about.
            Err(obstacle) => Err(if no_node.kind >= obstacle.kind { no_node } else { obstacle.clone() }),
        })
    }

    /// The cgroup below that makes advice ineffective. On v1 a cgroup keeps what those below it have
    /// (`validate_change`, kernel/cgroup/cpuset.c). On v2 the kernel moves pages of a cgroup with memory
    /// nodes of its own by these and not by those of the one above (`update_nodemasks_hier`).
    fn held_below(&self, advice: &Advice) -> Option<Obstacle> {
        let (sample, own) = (self.inputs.sample, &self.workload.cgroup);
        if self.is_process() {
            return None;
        }
        let mut below = sample.cgroups.iter().filter(|(path, _)| *path != own && path.is_within(own));
        if !sample.cpuset_v1 {
            let to = &advice.place.1;
            let moves_otherwise = |seen: &CgroupSample| {
                let has =
                    seen.mems_effective.as_ref().filter(|has| !has.is_subset(to) && *has != self.mems)?;
                seen.mems.as_ref().filter(|own| !own.is_empty()).map(|_| has.clone())
            };
            let (path, has) = below.find_map(|(path, seen)| Some((path, moves_otherwise(seen)?)))?;
            let reason = format!(
                "{path} below it has memory nodes {has} of its own in cpuset.mems, by which the kernel moves its \
                 pages: change that first"
            );
            return Some(Obstacle::new(ObstacleKind::Elsewhere, reason));
        }
        let held = below.filter_map(|(path, seen)| {
            let cpus = advice.cpus.as_ref().zip(seen.cpus_effective.as_ref());
            let cpus = cpus.filter(|(to, has)| !has.is_subset(to));
            let mems = advice.mems.as_ref().zip(seen.mems_effective.as_ref());
            let mems = mems.filter(|(to, has)| !has.is_subset(to));
            let mems = mems.map(|(_, has)| format!("memory nodes {has} in cpuset.mems"));
            let held = mems.or_else(|| cpus.map(|(_, has)| format!("CPUs {has} in cpuset.cpus")))?;
            Some(format!("{path} below it has {held}, which cgroup v1 keeps for it: change that first"))
        });
        held.map(|reason| Obstacle::new(ObstacleKind::Elsewhere, reason)).next()
    }

    /// As many CPUs as it has, on one node with all of its memory; all CPUs of that node for a workload that
    /// may run everywhere. If its pages cannot come to a node the next one is tried, [`MOST_PLACES`] in all.
    fn alone_on_a_node(&self, allocations: &Allocations) -> Result<Advice, Obstacle> {
        let all: NodeSet = self.inputs.inventory.nodes.iter().map(|node| node.id).collect();
        let open = self.open_to_its_cache()?;
        let beside = self.beside(allocations);
        let mut left = open.clone();
        let mut first = None;
        for _ in 0..MOST_PLACES {
            let (cpus, mems) = match self.placed_on(&beside, left.as_ref()) {
                Ok(place) => place,
                // Other nodes may have room, but its page cache keeps it from them.
                Err(obstacle) if open.is_some() => {
                    return Err(first.unwrap_or_else(|| self.cache_stays(Some(&obstacle))));
                }
                Err(obstacle) => return Err(first.unwrap_or(obstacle)),
            };
            let nodes = self.inputs.inventory.machine.nodes_of(&cpus);
            // Nodes with enough room together may lack room for the pages of one node: another node may have
            // it.
            let all_near = self.near(&nodes).intersection(left.as_ref().unwrap_or(&all));
            let advice = self.advice(cpus.clone(), self.completed(mems));
            let advice = match advice {
                Err(_) if !all_near.is_empty() => self.advice(cpus, self.completed(all_near)),
                advice => advice,
            };
            match advice {
                Ok(advice) => {
                    let advice = advice.ok_or_else(|| self.stays_as_it_is())?;
                    return if self.leaves_more_remote(&advice) {
                        Err(self.cache_stays(None))
                    } else {
                        Ok(advice)
                    };
                }
                Err(obstacle) => _ = first.get_or_insert(obstacle),
            }
            let others = left.as_ref().unwrap_or(&all).difference(&nodes);
            if nodes.is_empty() || others.is_disjoint(&self.inputs.inventory.cpu_nodes()) {
                break;
            }
            left = Some(others);
        }
        Err(first.unwrap_or_else(|| self.stays_as_it_is()))
    }

    /// Its request for any node, and the grants and pins of others.
    fn beside(&self, allocations: &Allocations) -> Beside<'_> {
        let inputs = self.inputs;
        let pinned = self.is_pinned();
        let count = if pinned { self.cpus.len() } else { busy_cpus(self.figures) };
        let mut allocations = allocations.clone();
        for cgroup in self.workload.cgroup.ancestors().chain([self.workload.cgroup.clone()]) {
            // A workload inside of a partition may have its CPUs.
            allocations.release(&Holder::partition(&cgroup));
        }
        let mut held = self.earlier.pins_beside(&self.workload.cgroup, self.cpus);
        self.earlier.pin(&mut held, self.cpus, pinned);
        pins::hold(&mut allocations, &held);
        let request = CgroupRequest {
            cgroup: &self.workload.cgroup,
            cpus: u32::try_from(count).unwrap_or(u32::MAX),
            memory_bytes: None,
            now: Some(self.figures),
            nodes: None,
            bounds: bounds(inputs, self.workload),
            available_bytes: self.earlier.leave_of(available_bytes(inputs.sample, Some(self.figures))),
            avoids: CpuSet::new(),
            wished: None,
        };
        let taken = allocations.exclusive_cpus();
        if !pinned {
            pins::hold(&mut allocations, &self.earlier.with_busy(held.clone()));
        }
        Beside { request, allocations, held, taken }
    }

    /// CPUs and memory nodes of one of the nodes `open`, or of any node without `open`.
    fn placed_on(&self, beside: &Beside<'_>, open: Option<&NodeSet>) -> Result<(CpuSet, NodeSet), Obstacle> {
        let inventory = self.inputs.inventory;
        let request = CgroupRequest { nodes: open, ..beside.request.clone() };
        let placed = request.place(inventory, &mut beside.allocations.clone());
        let grant = placed.map_err(|rejection| self.no_node(&request, &rejection, &beside.held))?;
        if self.is_pinned() {
            return Ok((grant.exclusive, grant.mems));
        }
        let machine = &inventory.machine;
        let all = machine.cpus_of(&machine.nodes_of(&grant.exclusive)).difference(&inventory.isolated_cpus);
        let above = request.bounds.and_then(|bounds| bounds.cpus);
        let cpus = above.map_or(all.clone(), |above| all.intersection(&above)).difference(&beside.taken);
        Ok((cpus, grant.mems))
    }

    /// Brings its memory to the nodes of its present CPUs.
    fn in_place_of_its_cpus(&self) -> Result<Advice, Obstacle> {
        let machine = &self.inputs.inventory.machine;
        let cpu_nodes = machine.nodes_of(self.cpus);
        let near = self.near(&cpu_nodes);
        let held = self.figures.bytes_by_node.iter().flatten().filter(|(_, bytes)| own_bytes(bytes) > 0);
        let held: NodeSet = held.map(|(node, _)| *node).collect();
        let wanted = cpu_nodes.intersection(&near).union(&near.intersection(self.mems).intersection(&held));
        let wanted = if wanted.is_empty() { near } else { wanted };
        if wanted.is_empty() {
            let reason = format!("{} have no memory, and none is nearest to them", words::nodes(&cpu_nodes));
            let reason = if cpu_nodes.len() == 1 { reason.replacen("have", "has", 1) } else { reason };
            return Err(Obstacle::new(ObstacleKind::Machine, reason));
        }
        let allowed =
            bounds(self.inputs, self.workload).and_then(|bounds| Some((bounds.cgroup, bounds.mems?)));
        let (mems, above) = match &allowed {
            Some((cgroup, mems)) => (wanted.intersection(mems), Some((cgroup, mems))),
            None => (wanted.clone(), None),
        };
        let lacks = above.filter(|_| mems.is_empty() || !cpu_nodes.intersection(&wanted).is_subset(&mems));
        let lacks = lacks.map(|(cgroup, allows)| {
            let reason = format!(
                "its memory belongs on {}, and {cgroup} above it allows only memory {}: change cpuset.mems of {cgroup}",
                words::nodes(&wanted),
                words::nodes(allows)
            );
            Obstacle::new(ObstacleKind::Elsewhere, reason)
        });
        if let Some(lacks) = lacks.as_ref().filter(|_| mems.is_empty()) {
            return Err(lacks.clone());
        }
        match self.advice(self.cpus.clone(), self.completed(mems))? {
            Some(advice) => Ok(Advice { lacks, ..advice }),
            None => Err(lacks.unwrap_or_else(|| self.stays_as_it_is())),
        }
    }

    /// Memory of GPUs that it may use: it is there for the GPU, and stays allowed.
    fn of_gpus(&self) -> NodeSet {
        self.inputs.inventory.machine.gpu_memory_nodes().intersection(self.mems)
    }

    /// These nodes with their companions: memory for the kernel if they have none, and memory of GPUs that
    /// the workload may use. Pages that arrive do not count on either.
    fn completed(&self, mems: NodeSet) -> NodeSet {
        let machine = &self.inputs.inventory.machine;
        machine.with_kernel_memory(mems, &self.allowed).union(&self.of_gpus())
    }

    /// Advice to be there; `None` if it would change nothing. Pages that cannot come are an obstacle.
    fn advice(&self, cpus: CpuSet, mems: NodeSet) -> Result<Option<Advice>, Obstacle> {
        let near = self.near(&self.inputs.inventory.machine.nodes_of(&cpus));
        let machine = &self.inputs.inventory.machine;
        let for_kernel = machine.kernel_only(&mems, &near);
        let to = mems.difference(&machine.gpu_memory_nodes()).difference(&for_kernel);
        let outside = self.held_outside(&to);
        let from = outside.0.difference(&near);
        let best = Some(to.intersection(&near)).filter(|near| !near.is_empty()).unwrap_or_else(|| to.clone());
        let way = route::Way { mems: &mems, outside, best: &best, near: &near, for_kernel: &for_kernel };
        let route = self.route(&way)?;
        let advice = Advice {
            cpus: Some(cpus.clone()).filter(|cpus| cpus != self.cpus),
            // A process has none of its own.
            mems: Some(mems.clone()).filter(|mems| mems != self.mems && !self.is_process()),
            stays: self.stays(&near),
            to: best,
            from,
            comes: route.comes,
            mem_writes: route.writes,
            swept_first: route.swept_first,
            swept: route.swept,
            lacks: None,
            place: (cpus, mems),
        };
        let comes = advice.comes.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let nothing = advice.cpus.is_none() && advice.mems.is_none() && self.is_negligible(comes);
        Ok((!nothing).then_some(advice))
    }
}

/// Whole CPUs that a workload keeps busy, at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
pub(super) fn busy_cpus(figures: &WorkloadModel) -> usize {
    figures.cpus_used.map_or(1, |cpus| cpus.ceil() as usize).max(1)
}
