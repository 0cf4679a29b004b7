//! Rejections of containers that fit in no pool.

use std::fmt;

use super::{
    classify::CpuDemand,
    memory::MemoryWish,
    supply::CpuSupply,
    tree::{Pool, PoolTree},
};
use crate::{
    CpuClass, Inventory, MemoryResource, MemorySource, Rejection, RejectionProblem, RejectionReason,
    Shortage, hints::left_out, memory::ZoneAccount, room::FittingAmount,
};
use numa_topology::set::{CpuSet, NodeSet};

/// What is missing in one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PoolObstacle {
    /// Too few CPUs.
    Cpus,
    /// Isolated CPUs are required, and there are too few.
    IsolatedCpus,
    /// Too little memory, even after moving others.
    Memory,
    /// Strict hints would be violated.
    StrictHint {
        /// Resources that would be outside.
        outside: String,
        /// CPUs inside.
        near: CpuSet,
        /// Memory nodes inside.
        memory: NodeSet,
    },
    /// Too few devices.
    Devices(Box<Rejection>),
    /// The machine has no memory of these types.
    Types(String),
}

impl fmt::Display for PoolObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Of one pool; the rejections are about all of them.
            Self::Cpus => f.write_str("too few CPUs"),
            Self::IsolatedCpus => f.write_str("too few isolated CPUs"),
            _ => self.problem().fmt(f),
        }
    }
}

impl PoolObstacle {
    /// The rejection, if every pool has this obstacle.
    pub(super) fn into_rejection(self) -> Rejection {
        let reason = match &self {
            Self::StrictHint { .. } => RejectionReason::TopologyAffinityError,
            _ => RejectionReason::UnexpectedAdmissionError,
        };
        match self {
            Self::Devices(rejection) => *rejection,
            _ => Rejection::new(reason, self.problem()),
        }
    }

    /// The problem, if every pool has this obstacle.
    fn problem(&self) -> RejectionProblem {
        match self {
            Self::Cpus => RejectionProblem::NoPoolWithCpus,
            Self::IsolatedCpus => RejectionProblem::NoPoolWithIsolatedCpus,
            Self::Memory => RejectionProblem::NoPoolWithMemory,
            Self::StrictHint { outside, .. } => RejectionProblem::StrictHint { outside: outside.clone() },
            Self::Devices(rejection) => (*rejection.problem).clone(),
            Self::Types(types) => RejectionProblem::NoMemoryOfType(types.clone()),
        }
    }

    /// How close to success it came: the closest one is reported.
    const fn progress(&self) -> u8 {
        match self {
            Self::Cpus | Self::Types(_) => 0,
            Self::IsolatedCpus => 1,
            Self::Memory => 2,
            Self::StrictHint { .. } => 3,
            Self::Devices(_) => 4,
        }
    }
}

/// State and request of a refused container.
pub(super) struct PoolRefusal<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) tree: &'a PoolTree,
    pub(super) supply: &'a CpuSupply<'a>,
    pub(super) account: &'a ZoneAccount,
    pub(super) demand: &'a CpuDemand,
    pub(super) memory: &'a MemoryWish<'a>,
    /// Maximum number of exclusive CPUs that a pool would give.
    pub(super) exclusive: &'a dyn Fn(&Pool) -> u64,
}

impl PoolRefusal<'_> {
    /// The rejection, after every pool refused the container.
    pub(super) fn rejection(&self, obstacles: &[(usize, PoolObstacle)]) -> Rejection {
        let closest = obstacles.iter().rev().max_by_key(|(_, obstacle)| obstacle.progress());
        let obstacle = closest.map_or(PoolObstacle::Cpus, |(_, obstacle)| obstacle.clone());
        let rejection = obstacle.clone().into_rejection();
        match obstacle {
            PoolObstacle::Cpus => self.cpus(rejection),
            PoolObstacle::IsolatedCpus => self.isolated_cpus(rejection),
            PoolObstacle::Memory => self.of_memory(rejection),
            PoolObstacle::StrictHint { near, memory, .. } => self.strict_hint(rejection, &near, &memory),
            PoolObstacle::Devices(_) | PoolObstacle::Types(_) => rejection,
        }
    }

    fn cpus(&self, rejection: Rejection) -> Rejection {
        let CpuDemand { full, fraction_milli, .. } = *self.demand;
        let root = self.tree.root();
        let time = |pool: &Pool| u64::try_from(self.supply.shared(pool.id)).unwrap_or(0);
        let (available, room) = if self.demand.class == CpuClass::Reserved {
            let left = u64::try_from(self.supply.reserved(root.id)).unwrap_or(0);
            (
                left / 1000,
                self.room(|pool| u64::try_from(self.supply.reserved(pool.id)).unwrap_or(0)).in_thousandths(),
            )
        } else if full > 0 {
            ((self.exclusive)(root), self.room(self.exclusive))
        } else {
            (time(root) / 1000, self.room(time).in_thousandths())
        };
        let wanted = full.saturating_mul(1000).saturating_add(fraction_milli).div_ceil(1000).max(1);
        rejection.short_of(vec![self.cpu_shortage(wanted, available)], &[room])
    }

    fn isolated_cpus(&self, rejection: Rejection) -> Rejection {
        let isolated = |pool: &Pool| u64::try_from(self.supply.isolated(pool.id)).unwrap_or(u64::MAX);
        let shortage = self.cpu_shortage(self.demand.full, isolated(self.tree.root()));
        let rejection = rejection.short_of(vec![shortage], &[self.room(isolated)]);
        Rejection { fits: rejection.fits.map(|fits| format!("{fits} as isolated CPUs")), ..rejection }
    }

    /// Available amount on the nodes of a single pool, and on the whole machine.
    fn room(&self, free: impl Fn(&Pool) -> u64) -> FittingAmount {
        let pools = || self.tree.pools().iter();
        let nodes = self.inventory.cpu_nodes();
        FittingAmount::new("cpu", &nodes, |place| {
            if *place == nodes {
                return free(self.tree.root());
            }
            pools().filter(|pool| pool.cpu_nodes.is_subset(place)).map(&free).max().unwrap_or(0)
        })
    }

    fn amounts(&self) -> Vec<(MemoryResource, u64)> {
        let hugepages = self.memory.hugepages.iter();
        let hugepages = hugepages.map(|(size, bytes)| (MemoryResource::Hugepages(*size), *bytes));
        let all = std::iter::once((MemoryResource::Memory, self.memory.bytes)).chain(hugepages);
        all.filter(|(_, bytes)| *bytes > 0).collect()
    }

    fn of_memory(&self, rejection: Rejection) -> Rejection {
        let zone = self.memory.widest(self.tree);
        let counted = zone.union(&self.memory.set_aside(self.tree));
        self.on_zone(rejection.leaving_out(left_out(&self.inventory.machine, &counted)), &zone)
    }

    fn on_zone(&self, rejection: Rejection, zone: &NodeSet) -> Rejection {
        let shortage = |(resource, wanted): (MemoryResource, u64)| Shortage {
            available: self.account.free(zone, resource),
            resource: resource.to_string(),
            nodes: zone.clone(),
            wanted,
        };
        let all: Vec<Shortage> = self.amounts().into_iter().map(shortage).collect();
        let room = |(resource, _): (MemoryResource, u64)| self.account.room(zone, resource);
        let rooms: Vec<FittingAmount> = self.amounts().into_iter().map(room).collect();
        let rejection = rejection.short_of(short_or_all(all), &rooms);
        Rejection { fits: rejection.fits.map(|fits| format!("{fits} without moving others")), ..rejection }
    }

    fn strict_hint(&self, rejection: Rejection, near: &CpuSet, memory: &NodeSet) -> Rejection {
        let machine = &self.inventory.machine;
        let near = near.intersection(&self.tree.root().sharable).difference(self.supply.taken());
        let count = u64::try_from(near.len()).unwrap_or(u64::MAX);
        let CpuDemand { full, fraction_milli, .. } = *self.demand;
        let wanted = full.saturating_add(fraction_milli.div_ceil(1000)).max(1);
        let nodes = machine.nodes_of(&near).union(memory);
        let cpus = Shortage { nodes: nodes.clone(), ..self.cpu_shortage(wanted, count) };
        let room = FittingAmount::together("cpu", nodes, count);
        let memory = self.on_zone(rejection.clone(), memory).shortages;
        let bytes = |one: &Shortage| FittingAmount::together(&one.resource, one.nodes.clone(), one.available);
        let rooms: Vec<FittingAmount> = std::iter::once(room).chain(memory.iter().map(bytes)).collect();
        let all: Vec<Shortage> = std::iter::once(cpus).chain(memory).collect();
        rejection.short_of(short_or_all(all), &rooms)
    }

    fn cpu_shortage(&self, wanted: u64, available: u64) -> Shortage {
        Shortage { resource: "cpu".to_owned(), nodes: self.inventory.cpu_nodes(), wanted, available }
    }
}

/// The shortages; all amounts if each is sufficient but not where it must be.
fn short_or_all(mut all: Vec<Shortage>) -> Vec<Shortage> {
    if all.iter().any(|one| one.wanted > one.available) {
        all.retain(|one| one.wanted > one.available);
    }
    all
}

/// Rejection of memory types that the machine lacks; its nodes have `bytes` of other types.
pub(super) fn no_such_memory(tree: &PoolTree, account: &ZoneAccount, bytes: u64, types: String) -> Rejection {
    let nodes = tree.root().memory.all();
    let room = account.room(&nodes, MemoryResource::Memory);
    let resource = MemoryResource::Memory.to_string();
    let shortage = Shortage { resource, nodes, wanted: bytes, available: 0 };
    let rejection = PoolObstacle::Types(types).into_rejection().short_of(vec![shortage], &[room]);
    Rejection { fits: rejection.fits.map(|fits| format!("{fits} of other types")), ..rejection }
}

/// Source of a memory request, for a sentence.
pub(super) const fn source(source: MemorySource) -> &'static str {
    match source {
        MemorySource::Request => "request",
        MemorySource::Annotation => "annotation of exact resources",
        MemorySource::OomScoreAdj => "oom_score_adj",
        MemorySource::Limit => "limit",
    }
}
