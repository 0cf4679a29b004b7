//! What one pool can give a container: CPUs, the offered memory, devices.
//!
//! Nothing is given here; an obstacle states what is missing.

use crate::engine_name::{POOLS, POOLS_POLICY};
use std::collections::BTreeMap;

use super::{
    PoolsPlacing,
    wanted::{ContainerWish, picked_hints},
};
use crate::{
    Allocations, ColdStart, CpuClass, Grant, SharedCpus,
    hints::{
        NodeIndex,
        device::{self, DeviceStock},
    },
    pools::{
        classify::Isolate,
        memory::MemoryOffer,
        rank::PoolScore,
        refusal::{self, PoolObstacle},
        supply::CpuConstraints,
        topology_hints,
        tree::Pool,
        zones::ZoneOffer,
    },
    words,
};
use numa_topology::set::CpuSet;

impl PoolsPlacing<'_> {
    /// What a pool can give.
    pub(super) fn try_pool(
        &self,
        wanted: &ContainerWish<'_>,
        standing: &PoolScore,
        offers: &BTreeMap<usize, MemoryOffer>,
        allocations: &Allocations,
    ) -> Result<(Grant, MemoryOffer), PoolObstacle> {
        let pool = self.tree.pool(standing.pool);
        let (class, exclusive, shared) = self.cpus(wanted, pool)?;
        let offer = offers.get(&pool.id).ok_or(PoolObstacle::Memory)?;
        let ContainerWish { preferences, amounts, demand, memory, rules, .. } = wanted;
        let had = self.pod.previous.get(&wanted.container.name).and_then(|had| had.cold_start.as_ref());
        let all_milli = demand.full.saturating_mul(1000).saturating_add(demand.fraction_milli);
        let pin_cpus = self.settings.pin_cpu && class != CpuClass::Preserved;
        let mut grant = Grant {
            engine: POOLS,
            policy: POOLS_POLICY,
            class,
            mems: memory.with_kernel_memory(&self.inventory.machine, offer.zone.zone.clone()),
            memory_source: amounts.memory.source,
            pool: Some(pool.name.clone()),
            pin_cpus,
            pin_mems: self.settings.pin_memory && !memory.preserve,
            one_thread_of: Vec::new(),
            cpu_shares: pin_cpus.then(|| shares(all_milli)),
            memory_priority: memory.priority,
            cold_start: offer.then.clone().zip(memory.cold_start).map(|(mems, after)| ColdStart {
                after,
                mems: memory.with_kernel_memory(&self.inventory.machine, mems),
                began_ns: had.and_then(|had| had.began_ns),
            }),
            labels: self.pod.labels.clone(),
            qos: Some(self.pod.qos),
            affinity: rules.clone(),
            exclusive,
            shared,
            ..Grant::default()
        };
        if preferences.hide_hyperthreads {
            // Of all cores, because its scope may change later.
            let cores = self.inventory.layout.cores.iter().map(|(_, core)| core);
            grant.one_thread_of = cores.filter(|core| core.len() > 1).cloned().collect();
        }
        if preferences.hints.strict {
            let cpus = grant.cpus(self.supply.taken());
            let machine = &self.inventory.machine;
            let outside = wanted.hints.iter().find_map(|hint| {
                let outside = topology_hints::outside(self.tree, machine, hint, &cpus, &grant.mems)?;
                let (near, memory) = topology_hints::inside(self.tree, machine, hint);
                Some(PoolObstacle::StrictHint { outside, near, memory })
            });
            if let Some(outside) = outside {
                return Err(outside);
            }
        }
        grant.devices = self.devices(wanted, pool, allocations)?;
        let had = self.pod.previous.get(&wanted.container.name);
        grant.reason = reason(wanted, pool, &offer.zone, had);
        Ok((grant, offer.clone()))
    }

    fn cpus(
        &self,
        wanted: &ContainerWish<'_>,
        pool: &Pool,
    ) -> Result<(CpuClass, CpuSet, Option<SharedCpus>), PoolObstacle> {
        let demand = &wanted.demand;
        let allowed = wanted.container.allowed_cpus.as_ref();
        let within =
            |cpus: &CpuSet| allowed.map_or_else(|| cpus.clone(), |allowed| cpus.intersection(allowed));
        let fraction = demand.fraction_milli;
        let shared =
            |scope: CpuSet| SharedCpus::new(scope, fraction).avoiding_reserved(self.strict_cpu_reservation);
        if demand.class == CpuClass::Reserved {
            let scope = within(&pool.reserved);
            return if scope.is_empty() {
                Err(PoolObstacle::Cpus)
            } else {
                Ok((CpuClass::Reserved, CpuSet::new(), Some(shared(scope))))
            };
        }
        if demand.class == CpuClass::Preserved {
            return Ok((CpuClass::Preserved, CpuSet::new(), Some(shared(pool.sharable.clone()))));
        }
        let (class, exclusive) = self.exclusive(wanted, pool)?;
        if demand.full > 0 && fraction == 0 {
            return Ok((class, exclusive, None));
        }
        let scope = within(&pool.sharable);
        if scope.is_subset(&self.supply.taken().union(&exclusive)) {
            return Err(PoolObstacle::Cpus);
        }
        // Taking exclusive CPUs leaves room for the fraction; a container without a request only needs some
        // CPU.
        let sliced = demand.full > 0 && class != CpuClass::Isolated;
        if !sliced
            && fraction > 0
            && self.supply.shared(pool.id) < i64::try_from(fraction).unwrap_or(i64::MAX)
        {
            return Err(PoolObstacle::Cpus);
        }
        let class = if demand.full > 0 { CpuClass::Mixed } else { CpuClass::Shared };
        Ok((class, exclusive, Some(shared(scope))))
    }

    fn exclusive(&self, wanted: &ContainerWish<'_>, pool: &Pool) -> Result<(CpuClass, CpuSet), PoolObstacle> {
        let demand = &wanted.demand;
        let Some(groups) = self.groups.filter(|_| demand.full > 0) else {
            return Ok((CpuClass::Shared, CpuSet::new()));
        };
        let count = usize::try_from(demand.full).ok().ok_or(PoolObstacle::Cpus)?;
        let near = self.near(wanted);
        let choice = self.choice(wanted, pool, &near);
        if demand.isolate != Isolate::No
            && let Some(cpus) = self.supply.take_isolated(groups, &choice, count)
        {
            return Ok((CpuClass::Isolated, cpus));
        }
        if demand.isolate == Isolate::Require {
            return Err(PoolObstacle::IsolatedCpus);
        }
        let cpus = self.supply.take_shared(groups, &choice, count, demand.fraction_milli);
        cpus.map(|cpus| (CpuClass::Exclusive, cpus)).ok_or(PoolObstacle::Cpus)
    }

    fn choice<'c>(
        &'c self,
        wanted: &ContainerWish<'c>,
        pool: &Pool,
        near: &'c [CpuSet],
    ) -> CpuConstraints<'c> {
        CpuConstraints {
            pool: pool.id,
            priority: wanted.demand.priority,
            allowed: wanted.container.allowed_cpus.as_ref(),
            had: self.pod.previous.get(&wanted.container.name).map(|had| &had.exclusive),
            near,
        }
    }

    /// Maximum number of exclusive CPUs that such a container could get in a pool, by binary search.
    pub(super) fn most_exclusive(&self, wanted: &ContainerWish<'_>, pool: &Pool) -> u64 {
        let Some(groups) = self.groups else { return 0 };
        let near = self.near(wanted);
        let choice = self.choice(wanted, pool, &near);
        let fits = |count: u64| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            self.supply.take_shared(groups, &choice, count, wanted.demand.fraction_milli).is_some()
        };
        let (mut most, mut too_many) = (0, wanted.demand.full.min(pool.sharable.len() as u64 + 1));
        while too_many > most + 1 {
            let middle = most.midpoint(too_many);
            if fits(middle) {
                most = middle;
            } else {
                too_many = middle;
            }
        }
        most
    }

    /// By `pick-resources-by-hints`: the CPUs near each of its hints.
    fn near(&self, wanted: &ContainerWish<'_>) -> Vec<CpuSet> {
        if !wanted.preferences.pick_by_hints {
            return Vec::new();
        }
        let machine = &self.inventory.machine;
        let near = picked_hints(&wanted.hints)
            .map(|hint| if hint.cpus.is_empty() { machine.cpus_of(&hint.nodes) } else { hint.cpus.clone() });
        near.collect()
    }

    fn devices(
        &self,
        wanted: &ContainerWish<'_>,
        pool: &Pool,
        allocations: &Allocations,
    ) -> Result<BTreeMap<String, Vec<String>>, PoolObstacle> {
        let asked = wanted.container.devices.iter().filter(|(_, count)| **count > 0);
        let mut devices = BTreeMap::new();
        let all = self.inventory.cpu_nodes();
        // A mask that cannot name every node names those of the pool.
        let named = if all.len() > NodeIndex::LARGEST { &pool.cpu_nodes } else { &all };
        for (resource, count) in asked {
            let nodes = NodeIndex::of(&self.inventory.machine, named);
            let stock =
                DeviceStock::new(self.inventory, allocations, &nodes, self.pod, wanted.index, resource);
            let ids = device::assign(&stock, *count, Some(nodes.mask(&pool.cpu_nodes)));
            devices.insert(
                resource.clone(),
                ids.map_err(|rejection| PoolObstacle::Devices(Box::new(rejection)))?,
            );
        }
        Ok(devices)
    }
}

/// Why it was placed here, in one sentence.
fn reason(wanted: &ContainerWish<'_>, pool: &Pool, offer: &ZoneOffer, had: Option<&Grant>) -> String {
    let memory = wanted.amounts.memory;
    let promised = memory.source.filter(|_| memory.bytes > 0).map(|source| {
        format!("; {} of memory by its {}", words::size(memory.bytes), refusal::source(source))
    });
    let promised = promised.unwrap_or_default();
    let stays = had.is_some_and(|had| had.pool.as_ref() == Some(&pool.name));
    let best = if stays { "is the pool that it had" } else { "is the best pool" };
    let farther = offer.zone.difference(&pool.memory.all());
    let room = match () {
        () if wanted.memory.preserve => " for its CPUs".to_owned(),
        () if !farther.is_empty() => {
            format!(" for its CPUs, with memory on {} outside it", words::nodes(&farther))
        }
        () if !offer.moved.is_empty() => {
            format!(", with room after {} got a wider zone", words::count(offer.moved.len(), "other"))
        }
        () if stays => ", with room".to_owned(),
        () => " that has room".to_owned(),
    };
    format!("{} {best}{room}; {}{promised}", pool.name, wanted.demand.because)
}

/// CPU time as a weight, computed like the kubelet (`MilliCPUToShares` in its container manager).
fn shares(milli_cpus: u64) -> u64 {
    (milli_cpus.saturating_mul(1024) / 1000).clamp(2, 262_144)
}
