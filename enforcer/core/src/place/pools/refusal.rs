//! Why no pool can have a container.

use std::fmt;

use super::{classify::CpuDemand, memory::MemoryWish, supply::CpuSupply, tree::PoolTree};
use crate::{
    place::{Inventory, MemoryResource, MemorySource, Reason, Rejection, Shortage, memory::ZoneAccount},
    set::NodeSet,
};

/// What stood in the way in one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Too few CPUs.
    Cpus,
    /// Isolated CPUs are required, and there are too few.
    IsolatedCpus,
    /// Too little memory, also after moving others.
    Memory,
    /// The hints are to be kept strictly.
    StrictHint(String),
    /// Too few devices.
    Devices(Box<Rejection>),
    /// The machine has no memory of these kinds.
    Types(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus => f.write_str("too few CPUs"),
            Self::IsolatedCpus => f.write_str("too few isolated CPUs"),
            Self::Memory => f.write_str("too little memory, also if others were moved"),
            Self::StrictHint(outside) => write!(f, "fail strict hint: {outside}"),
            Self::Devices(rejection) => f.write_str(&rejection.problem),
            Self::Types(problem) => f.write_str(problem),
        }
    }
}

impl Obstacle {
    /// The rejection, where it is that of every pool.
    pub(super) fn into_rejection(self) -> Rejection {
        match self {
            Self::Devices(rejection) => *rejection,
            Self::StrictHint(_) => Rejection::new(Reason::TopologyAffinityError, self.to_string()),
            _ => Rejection::new(Reason::UnexpectedAdmissionError, self.to_string()),
        }
    }

    /// The one that came closest to success is the one to tell.
    const fn progress(&self) -> u8 {
        match self {
            Self::Cpus | Self::Types(_) => 0,
            Self::IsolatedCpus => 1,
            Self::Memory => 2,
            Self::StrictHint(_) => 3,
            Self::Devices(_) => 4,
        }
    }
}

/// The rejection of a container that every pool turned down.
pub(super) fn refuse(
    inventory: &Inventory,
    tree: &PoolTree,
    supply: &CpuSupply<'_>,
    account: &ZoneAccount,
    demand: &CpuDemand,
    memory: &MemoryWish<'_>,
    obstacles: &[(usize, Obstacle)],
) -> Rejection {
    let closest = obstacles.iter().rev().max_by_key(|(_, obstacle)| obstacle.progress());
    let obstacle = closest.map_or(Obstacle::Cpus, |(_, obstacle)| obstacle.clone());
    let root = tree.root();
    let mut rejection = obstacle.clone().into_rejection();
    let nodes = inventory.cpu_nodes();
    match obstacle {
        Obstacle::Cpus => {
            let milli = demand.full.saturating_mul(1000).saturating_add(demand.fraction_milli);
            let left = if demand.full > 0 { supply.sliceable(root.id) } else { supply.shared(root.id) };
            let left = u64::try_from(left).unwrap_or(0);
            "no pool has enough CPUs".clone_into(&mut rejection.problem);
            rejection.shortages = vec![cpu_shortage(nodes, milli.div_ceil(1000).max(1), left / 1000)];
            let fits = format!(
                "{left}m of CPU time would fit, {} exclusive CPUs",
                supply.sliceable(root.id).max(0) / 1000
            );
            rejection.fits = Some(fits);
        }
        Obstacle::IsolatedCpus => {
            let available = u64::try_from(supply.isolated(root.id)).unwrap_or(u64::MAX);
            "too few isolated CPUs are free in one pool".clone_into(&mut rejection.problem);
            rejection.shortages = vec![cpu_shortage(nodes, demand.full, available)];
        }
        Obstacle::Memory => {
            let all = root.memory.all();
            let zone = memory.allowed.map_or_else(|| all.clone(), |allowed| all.intersection(allowed));
            let wanted = std::iter::once((MemoryResource::Memory, memory.bytes)).chain(
                memory.hugepages.iter().map(|(size, bytes)| (MemoryResource::Hugepages(*size), *bytes)),
            );
            let short = wanted.filter_map(|(resource, wanted)| {
                let available = account.free(&zone, resource);
                let resource = resource.to_string();
                (wanted > available).then(|| Shortage { resource, nodes: zone.clone(), wanted, available })
            });
            rejection.shortages = short.collect();
        }
        Obstacle::StrictHint(_) | Obstacle::Devices(_) | Obstacle::Types(_) => {}
    }
    rejection
}

fn cpu_shortage(nodes: NodeSet, wanted: u64, available: u64) -> Shortage {
    Shortage { resource: "cpu".to_owned(), nodes, wanted, available }
}

/// Where an amount of memory is from, in a sentence.
pub(super) const fn source(source: MemorySource) -> &'static str {
    match source {
        MemorySource::Request => "request",
        MemorySource::Annotation => "annotation of exact resources",
        MemorySource::OomScoreAdj => "oom_score_adj",
        MemorySource::Limit => "limit",
    }
}
