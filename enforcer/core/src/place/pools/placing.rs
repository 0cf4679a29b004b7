//! One container: rank the pools, and take the first that can really give what is asked.
//!
//! The state of the machine is read once per pod and kept up to date from container to container. An
//! offer of memory is a calculation: others are moved only for the pool that is taken.

use std::collections::BTreeMap;

use super::{
    affinity::{self, AffinityRule, Subject},
    annotations::Preferences,
    classify::{Classifier, CpuDemand, CpuLimit, Isolate},
    cpus::{self, CpuGroups},
    memory::{MemoryOffer, MemoryWish},
    rank::{LevelFit, Order, Standing},
    refusal::{self, Obstacle, refuse},
    request::Amounts,
    supply::{Choice, CpuSupply},
    topology_hints::{self, HintKind},
    tree::{Pool, PoolTree},
    zones::{Promise, Zones},
};
use crate::{
    place::{
        Allocations, Candidate, ColdStart, ContainerRequest, CpuClass, Grant, Holder, Inventory, MemoryClaim,
        MemoryPriority, MemoryResource, PodRequest, Rejection, SharedCpus, TopologyHint, Trace,
        hints::NodeIndex,
        hints::device::{self, DeviceStock},
        memory::ZoneAccount,
    },
    policy::placement::{CpuPriority, PoolLevel, PoolsSettings},
    set::{CpuSet, NodeSet},
    words,
    workload::printable,
};

/// A pod that is being placed.
pub(super) struct Placing<'a> {
    settings: &'a PoolsSettings,
    inventory: &'a Inventory,
    tree: &'a PoolTree,
    classifier: &'a Classifier,
    pod: &'a PodRequest,
    supply: CpuSupply<'a>,
    account: ZoneAccount,
    /// Made when exclusive CPUs are asked for.
    groups: Option<CpuGroups>,
}

/// One container and what it wants.
struct Wanted<'a> {
    index: usize,
    container: &'a ContainerRequest,
    preferences: Preferences,
    amounts: Amounts,
    demand: CpuDemand,
    memory: MemoryWish<'a>,
    rules: Vec<AffinityRule>,
    hints: Vec<TopologyHint>,
}

impl<'a> Placing<'a> {
    /// The pod, on what is allocated now.
    pub(super) fn new(
        settings: &'a PoolsSettings,
        inventory: &'a Inventory,
        tree: &'a PoolTree,
        classifier: &'a Classifier,
        pod: &'a PodRequest,
        allocations: &Allocations,
    ) -> Self {
        Self {
            settings,
            inventory,
            tree,
            classifier,
            pod,
            supply: CpuSupply::new(tree, allocations, |_| false),
            account: ZoneAccount::new(inventory, allocations, |_| false),
            groups: None,
        }
    }

    /// Reads the state as the container at this place of the list finds it.
    pub(super) fn look_again(&mut self, allocations: &Allocations, index: usize) {
        let ended = |holder: &Holder| self.pod.has_ended(holder, index);
        self.supply = CpuSupply::new(self.tree, allocations, ended);
        self.account = ZoneAccount::new(self.inventory, allocations, ended);
    }

    /// Gives one container its grant.
    pub(super) fn place(
        &mut self,
        index: usize,
        allocations: &mut Allocations,
        trace: &mut Trace,
    ) -> Result<(), Rejection> {
        let wanted = self.wanted(index, allocations, trace)?;
        if wanted.demand.full > 0 && self.groups.is_none() {
            self.groups = Some(CpuGroups::of(self.inventory));
        }
        let (standings, offers) = self.standings(&wanted, allocations);
        let mut obstacles = Vec::new();
        for standing in &standings {
            match self.try_pool(&wanted, standing, &offers, allocations) {
                Ok((grant, offer)) => {
                    self.consider(&wanted, &standings, standing, &obstacles, trace);
                    self.give(&wanted, grant, &offer, allocations);
                    return Ok(());
                }
                Err(obstacle) => obstacles.push((standing.pool, obstacle)),
            }
        }
        self.consider_none(&wanted, &obstacles, trace);
        Err(refuse(
            self.inventory,
            self.tree,
            &self.supply,
            &self.account,
            &wanted.demand,
            &wanted.memory,
            &obstacles,
        ))
    }

    fn wanted(
        &self,
        index: usize,
        allocations: &Allocations,
        trace: &mut Trace,
    ) -> Result<Wanted<'a>, Rejection> {
        let (pod, container) = (self.pod, &self.pod.containers[index]);
        let name = printable(&container.name);
        let mut warn = |warning: String| trace.warn(format!("container {name}: {warning}"));
        let (preferences, warnings) = Preferences::read(pod, &container.name);
        warnings.into_iter().for_each(&mut warn);
        // All memory, as the kubelet divides by it: what is set aside is part of it.
        let totals = self.inventory.nodes.iter().filter_map(|node| node.total.get(&MemoryResource::Memory));
        let machine_bytes = totals.fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let (amounts, warnings) = Amounts::of(container, pod, machine_bytes);
        warnings.into_iter().for_each(&mut warn);
        let (rules, warnings) = affinity::rules_of(pod, &container.name, self.settings);
        warnings.into_iter().for_each(&mut warn);
        let demand = self.classifier.classify(&amounts, pod.qos, &pod.name.namespace, &preferences);
        let demand = self.with_reserved(demand, &mut warn);
        let memory =
            MemoryWish::new(self.inventory, self.tree, container, pod.qos, amounts.memory, &preferences);
        let (memory, warning) = memory.map_err(|problem| Obstacle::Types(problem).into_rejection())?;
        warning.map(str::to_owned).into_iter().for_each(&mut warn);
        let mut hints = container.topology_hints.clone();
        hints.extend(self.device_hints(index, allocations));
        hints.retain(|hint| preferences.hints.admit(hint));
        Ok(Wanted { index, container, preferences, amounts, demand, memory, rules, hints })
    }

    /// Where there are no reserved CPUs, those who want them share; where there are too few, they share
    /// the CPUs of the whole machine.
    fn with_reserved(&self, demand: CpuDemand, warn: &mut impl FnMut(String)) -> CpuDemand {
        let root = self.tree.root();
        if demand.class != CpuClass::Reserved {
            return demand;
        }
        if root.reserved.is_empty() {
            return CpuDemand { class: CpuClass::Shared, ..demand };
        }
        let left = self.supply.reserved(root.id);
        if left >= i64::try_from(demand.fraction_milli).unwrap_or(i64::MAX) {
            return demand;
        }
        warn(format!(
            "{left}m of reserved CPUs {} are left and {}m are wanted: it shares all other CPUs; possible misconfiguration",
            root.reserved, demand.fraction_milli
        ));
        CpuDemand {
            class: CpuClass::Shared,
            limit: CpuLimit::Unlimited(PoolLevel::System),
            because: "too few reserved CPUs are left",
            ..demand
        }
    }

    /// Where the devices that it asks for can be had, as hints.
    fn device_hints(&self, index: usize, allocations: &Allocations) -> Vec<TopologyHint> {
        let container = &self.pod.containers[index];
        let known = |resource: &str| {
            let said = container.topology_hints.iter().filter_map(|hint| hint.provider.split_once(':'));
            said.filter(|(kind, _)| HintKind::named(kind) == Some(HintKind::PodResources))
                .any(|(_, of)| of == resource)
        };
        let wanted = container.devices.iter().filter(|(resource, count)| **count > 0 && !known(resource));
        let hints = wanted.filter_map(|(resource, count)| {
            let taken = |id: &str| {
                allocations.iter().any(|(holder, grant)| {
                    !self.pod.has_ended(holder, index)
                        && grant.devices.get(resource).is_some_and(|ids| ids.iter().any(|held| held == id))
                })
            };
            let free = self.inventory.devices.get(resource)?.iter().filter(|unit| !taken(&unit.id));
            let mut near = BTreeMap::<NodeSet, u64>::new();
            free.filter(|unit| !unit.nodes.is_empty())
                .for_each(|unit| *near.entry(unit.nodes.clone()).or_insert(0) += 1);
            let enough = near.iter().filter(|(_, free)| **free >= *count).map(|(nodes, _)| nodes);
            let mut nodes = enough.fold(NodeSet::new(), |all, nodes| all.union(nodes));
            if nodes.is_empty() {
                nodes = near.keys().fold(NodeSet::new(), |all, nodes| all.union(nodes));
            }
            let everywhere = self.inventory.cpu_nodes().is_subset(&nodes);
            (!nodes.is_empty() && !everywhere).then(|| TopologyHint {
                provider: format!("pod-resources:{resource}"),
                cpus: CpuSet::new(),
                nodes,
                packages: Vec::new(),
            })
        });
        hints.collect()
    }

    /// All pools that may be tried, the best first, and the memory that each offers.
    fn standings(
        &self,
        wanted: &Wanted<'_>,
        allocations: &Allocations,
    ) -> (Vec<Standing>, BTreeMap<usize, MemoryOffer>) {
        let affinity = self.affinity(wanted, allocations);
        let root_only = matches!(wanted.demand.class, CpuClass::Reserved | CpuClass::Preserved);
        let pools: Vec<&Pool> =
            if root_only { vec![self.tree.root()] } else { self.tree.pools().iter().collect() };
        let zones = Zones { inventory: self.inventory, account: &self.account };
        let mut offers = BTreeMap::new();
        let mut standings: Vec<Standing> = Vec::with_capacity(pools.len());
        for pool in pools {
            // A pool inside another one with the same memory has the same offer.
            let same = pool.children.iter().find(|child| self.tree.pool(**child).memory == pool.memory);
            let offer = match same.filter(|_| !wanted.preferences.pick_by_hints && !root_only) {
                Some(child) => offers.get(child).cloned(),
                None => self.memory_offer(wanted, zones, pool, allocations),
            };
            standings.push(Standing {
                pool: pool.id,
                depth: pool.depth,
                shared: match wanted.demand.full {
                    0 => self.supply.shared(pool.id),
                    _ => self.supply.sliceable(pool.id),
                },
                isolated: i64::try_from(self.supply.isolated(pool.id)).unwrap_or(i64::MAX),
                reserved: self.supply.reserved(pool.id),
                affinity: affinity.get(pool.id).copied().unwrap_or(0),
                hints: topology_hints::score(self.tree, pool, &wanted.hints),
                level: self.level(&wanted.demand, pool),
                priority_fits: self.priority_fits(&wanted.demand, pool),
                colocated: self.supply.colocated(pool.id, wanted.demand.class),
                memory: wanted.memory.standing(zones, pool, offer.as_ref()),
            });
            if let Some(offer) = offer {
                offers.insert(pool.id, offer);
            }
        }
        Order::new(&wanted.demand, wanted.memory.limit).sort(&mut standings);
        let had = self.pod.previous.get(&wanted.container.name).and_then(|had| self.supply.pool_of(had));
        if let Some(old) = had.and_then(|id| standings.iter().position(|standing| standing.pool == id)) {
            standings[..=old].rotate_right(1);
        }
        (standings, offers)
    }

    fn memory_offer(
        &self,
        wanted: &Wanted<'_>,
        zones: Zones<'_>,
        pool: &Pool,
        allocations: &Allocations,
    ) -> Option<MemoryOffer> {
        let place = self.memory_near_hints(wanted, zones);
        let others = self.others(wanted.index, allocations);
        wanted
            .memory
            .offer(zones, self.tree, pool, place.as_ref(), || others().map(|(_, promise)| promise).collect())
    }

    /// Promises that others have, with their holders. Those of other engines are not ours to move.
    fn others<'s>(
        &'s self,
        index: usize,
        allocations: &'s Allocations,
    ) -> impl Fn() -> Box<dyn Iterator<Item = (&'s Holder, Promise<'s>)> + 's> {
        move || {
            let kept = allocations.iter().filter(move |(holder, _)| !self.pod.has_ended(holder, index));
            Box::new(kept.filter_map(move |(holder, grant)| {
                let claim = grant.memory.iter().find(|claim| claim.resource == MemoryResource::Memory)?;
                let ours = grant.engine == ENGINE;
                let priority = if ours { grant.memory_priority } else { MemoryPriority::Strict };
                let turn = allocations.turn(holder).unwrap_or(0);
                Some((holder, Promise { zone: &claim.zone, bytes: claim.bytes, priority, turn }))
            }))
        }
    }

    /// By `pick-resources-by-hints`: the memory beside what it uses, where that is all of the kinds
    /// that it wants.
    fn memory_near_hints(&self, wanted: &Wanted<'_>, zones: Zones<'_>) -> Option<NodeSet> {
        if !wanted.preferences.pick_by_hints {
            return None;
        }
        let nodes = picked_hints(&wanted.hints).fold(NodeSet::new(), |all, hint| all.union(&hint.nodes));
        let local = self.tree.local_memory(&nodes);
        let memory = self.tree.root().memory.of_types(wanted.memory.types).intersection(&local);
        (!nodes.is_empty() && zones.types(&memory) == wanted.memory.types).then_some(memory)
    }

    fn affinity(&self, wanted: &Wanted<'_>, allocations: &Allocations) -> Vec<i64> {
        let mut drawn = vec![0i64; self.tree.pools().len()];
        let pod = self.pod;
        let own = Subject {
            pod: &pod.name,
            container: &wanted.container.name,
            qos: Some(pod.qos),
            labels: &pod.labels,
        };
        for (holder, grant) in allocations.iter() {
            if wanted.rules.is_empty() && grant.affinity.is_empty() || pod.has_ended(holder, wanted.index) {
                continue;
            }
            let Some(id) = self.supply.pool_of(grant) else { continue };
            let (pod, container) = (holder.pod(), holder.name());
            let other = Subject { pod, container, qos: grant.qos, labels: &grant.labels };
            let draws = affinity::attraction((&own, &wanted.rules), (&other, &grant.affinity));
            drawn[id] = drawn[id].saturating_add(draws);
        }
        affinity::score(self.tree, &drawn)
    }

    fn level(&self, demand: &CpuDemand, pool: &Pool) -> LevelFit {
        let CpuLimit::Unlimited(level) = demand.limit else { return LevelFit::default() };
        let level = self.tree.existing_level(level);
        if pool.is_of(level) {
            LevelFit::Exact
        } else if pool.stands_for.first().is_some_and(|widest| *widest > level) {
            LevelFit::Deeper
        } else {
            LevelFit::Shallower
        }
    }

    fn priority_fits(&self, demand: &CpuDemand, pool: &Pool) -> bool {
        let Some(groups) = self.groups.as_ref().filter(|_| demand.priority != CpuPriority::None) else {
            return true;
        };
        let free = pool.sharable.difference(self.supply.taken());
        let full = usize::try_from(demand.full).unwrap_or(usize::MAX);
        cpus::of_priority(groups, &free, demand.priority) >= full
    }

    /// What a pool really gives.
    fn try_pool(
        &self,
        wanted: &Wanted<'_>,
        standing: &Standing,
        offers: &BTreeMap<usize, MemoryOffer>,
        allocations: &Allocations,
    ) -> Result<(Grant, MemoryOffer), Obstacle> {
        let pool = self.tree.pool(standing.pool);
        let (class, exclusive, shared) = self.cpus(wanted, pool)?;
        let offer = offers.get(&pool.id).ok_or(Obstacle::Memory)?;
        let Wanted { preferences, amounts, demand, memory, rules, .. } = wanted;
        let all_milli = demand.full.saturating_mul(1000).saturating_add(demand.fraction_milli);
        let pin_cpus = self.settings.pin_cpu && class != CpuClass::Preserved;
        let mut grant = Grant {
            engine: ENGINE,
            policy: "topology-aware",
            class,
            mems: offer.zone.zone.clone(),
            memory_source: amounts.memory.source,
            pool: Some(pool.name.clone()),
            pin_cpus,
            pin_mems: self.settings.pin_memory && !memory.preserve,
            one_thread_of: Vec::new(),
            cpu_shares: pin_cpus.then(|| shares(all_milli)),
            memory_priority: memory.priority,
            cold_start: offer
                .then
                .clone()
                .zip(memory.cold_start)
                .map(|(mems, after)| ColdStart { after, mems }),
            labels: self.pod.labels.clone(),
            qos: Some(self.pod.qos),
            affinity: rules.clone(),
            exclusive,
            shared,
            ..Grant::default()
        };
        if preferences.hide_hyperthreads {
            // Of all cores, since its scope may become another one.
            let cores = self.inventory.layout.cores.iter().map(|(_, core)| core);
            grant.one_thread_of = cores.filter(|core| core.len() > 1).cloned().collect();
        }
        if preferences.hints.strict {
            let cpus = grant.cpus(self.supply.taken());
            let machine = &self.inventory.machine;
            let outside = wanted
                .hints
                .iter()
                .find_map(|hint| topology_hints::outside(self.tree, machine, hint, &cpus, &grant.mems));
            if let Some(outside) = outside {
                return Err(Obstacle::StrictHint(outside));
            }
        }
        grant.devices = self.devices(wanted, pool, allocations)?;
        grant.reason = reason(wanted, pool);
        Ok((grant, offer.clone()))
    }

    fn cpus(
        &self,
        wanted: &Wanted<'_>,
        pool: &Pool,
    ) -> Result<(CpuClass, CpuSet, Option<SharedCpus>), Obstacle> {
        let demand = &wanted.demand;
        let allowed = wanted.container.allowed_cpus.as_ref();
        let within =
            |cpus: &CpuSet| allowed.map_or_else(|| cpus.clone(), |allowed| cpus.intersection(allowed));
        let fraction = demand.fraction_milli;
        let shared = |scope: CpuSet| SharedCpus { scope, milli_cpus: fraction };
        if demand.class == CpuClass::Reserved {
            let scope = within(&pool.reserved);
            return if scope.is_empty() {
                Err(Obstacle::Cpus)
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
            return Err(Obstacle::Cpus);
        }
        // A slice leaves room for the fraction; who asks for nothing needs a CPU to run on, no more.
        let sliced = demand.full > 0 && class != CpuClass::Isolated;
        if !sliced
            && fraction > 0
            && self.supply.shared(pool.id) < i64::try_from(fraction).unwrap_or(i64::MAX)
        {
            return Err(Obstacle::Cpus);
        }
        let class = if demand.full > 0 { CpuClass::Mixed } else { CpuClass::Shared };
        Ok((class, exclusive, Some(shared(scope))))
    }

    fn exclusive(&self, wanted: &Wanted<'_>, pool: &Pool) -> Result<(CpuClass, CpuSet), Obstacle> {
        let demand = &wanted.demand;
        let Some(groups) = self.groups.as_ref().filter(|_| demand.full > 0) else {
            return Ok((CpuClass::Shared, CpuSet::new()));
        };
        let count = usize::try_from(demand.full).ok().ok_or(Obstacle::Cpus)?;
        let near = self.near(wanted);
        let choice = Choice {
            pool: pool.id,
            priority: demand.priority,
            allowed: wanted.container.allowed_cpus.as_ref(),
            had: self.pod.previous.get(&wanted.container.name).map(|had| &had.exclusive),
            near: &near,
        };
        if demand.isolate != Isolate::No
            && let Some(cpus) = self.supply.take_isolated(groups, &choice, count)
        {
            return Ok((CpuClass::Isolated, cpus));
        }
        if demand.isolate == Isolate::Require {
            return Err(Obstacle::IsolatedCpus);
        }
        let cpus = self.supply.take_shared(groups, &choice, count, demand.fraction_milli);
        cpus.map(|cpus| (CpuClass::Exclusive, cpus)).ok_or(Obstacle::Cpus)
    }

    /// By `pick-resources-by-hints`: the CPUs beside each thing that it uses.
    fn near(&self, wanted: &Wanted<'_>) -> Vec<CpuSet> {
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
        wanted: &Wanted<'_>,
        pool: &Pool,
        allocations: &Allocations,
    ) -> Result<BTreeMap<String, Vec<String>>, Obstacle> {
        let asked = wanted.container.devices.iter().filter(|(_, count)| **count > 0);
        let mut devices = BTreeMap::new();
        for (resource, count) in asked {
            let nodes = NodeIndex::of(&self.inventory.machine, &self.inventory.cpu_nodes());
            let stock =
                DeviceStock::new(self.inventory, allocations, &nodes, self.pod, wanted.index, resource);
            let ids = device::assign(&stock, *count, Some(nodes.mask(&pool.cpu_nodes)));
            devices
                .insert(resource.clone(), ids.map_err(|rejection| Obstacle::Devices(Box::new(rejection)))?);
        }
        Ok(devices)
    }

    /// Writes the grant, and moves those whose memory gets a wider zone.
    fn give(
        &mut self,
        wanted: &Wanted<'_>,
        mut grant: Grant,
        offer: &MemoryOffer,
        allocations: &mut Allocations,
    ) {
        if !offer.zone.moved.is_empty() {
            let holders: Vec<Holder> = {
                let others = self.others(wanted.index, allocations);
                let all: Vec<&Holder> = others().map(|(holder, _)| holder).collect();
                offer.zone.moved.iter().filter_map(|(at, _)| all.get(*at).map(|h| (*h).clone())).collect()
            };
            let leave =
                |holder: &Holder| self.pod.has_ended(holder, wanted.index) || holders.contains(holder);
            self.account = ZoneAccount::new(self.inventory, allocations, leave);
            for (holder, (_, zone)) in holders.into_iter().zip(&offer.zone.moved) {
                self.widen(holder, zone, allocations);
            }
        }
        let wishes = &wanted.memory;
        let amounts = std::iter::once((MemoryResource::Memory, wishes.bytes))
            .chain(wishes.hugepages.iter().map(|(size, bytes)| (MemoryResource::Hugepages(*size), *bytes)));
        let zone = &offer.zone.zone;
        let claims: Vec<MemoryClaim> = amounts
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(resource, bytes)| self.account.promise(zone, resource, bytes))
            .collect();
        grant.memory = claims;
        self.supply.add(&grant);
        allocations.give(Holder::new(self.pod.name.clone(), wanted.container.name.clone()), grant);
    }

    fn widen(&mut self, holder: Holder, zone: &NodeSet, allocations: &mut Allocations) {
        let Some(mut grant) = allocations.get(&holder).cloned() else { return };
        for claim in &mut grant.memory {
            *claim = match claim.resource {
                MemoryResource::Memory => self.account.promise(zone, claim.resource, claim.bytes),
                MemoryResource::Hugepages(_) => {
                    self.account.promise(&claim.zone, claim.resource, claim.bytes)
                }
            };
        }
        grant.mems.extend(zone);
        if let Some(cold_start) = &mut grant.cold_start {
            cold_start.mems.extend(zone);
        }
        allocations.give(holder, grant);
    }

    fn consider(
        &self,
        wanted: &Wanted<'_>,
        standings: &[Standing],
        chosen: &Standing,
        obstacles: &[(usize, Obstacle)],
        trace: &mut Trace,
    ) {
        if !trace.is_wanted() {
            return;
        }
        let order = Order::new(&wanted.demand, wanted.memory.limit);
        let candidates = standings.iter().map(|standing| {
            let obstacle =
                obstacles.iter().find(|(id, _)| *id == standing.pool).map(|(_, obstacle)| obstacle);
            let because = match obstacle {
                Some(obstacle) => obstacle.to_string(),
                None if standing.pool == chosen.pool => "the first that can give everything".to_owned(),
                None => format!("behind the chosen one by {}", order.decided_by(chosen, standing)),
            };
            Candidate {
                container: wanted.container.name.clone(),
                place: self.tree.pool(standing.pool).name.clone(),
                chosen: standing.pool == chosen.pool,
                because,
            }
        });
        trace.consider(candidates);
    }

    fn consider_none(&self, wanted: &Wanted<'_>, obstacles: &[(usize, Obstacle)], trace: &mut Trace) {
        if trace.is_wanted() {
            trace.consider(obstacles.iter().map(|(id, obstacle)| Candidate {
                container: wanted.container.name.clone(),
                place: self.tree.pool(*id).name.clone(),
                chosen: false,
                because: obstacle.to_string(),
            }));
        }
    }
}

/// The engine's name.
pub(super) const ENGINE: &str = "pools";

/// Hints that resources are picked by: those of device plugins.
fn picked_hints(hints: &[TopologyHint]) -> impl Iterator<Item = &TopologyHint> {
    hints.iter().filter(|hint| {
        let kind = hint.provider.split_once(':').and_then(|(kind, _)| HintKind::named(kind));
        kind == Some(HintKind::PodResources) && !(hint.cpus.is_empty() && hint.nodes.is_empty())
    })
}

/// Why here, in one sentence.
fn reason(wanted: &Wanted<'_>, pool: &Pool) -> String {
    let memory = wanted.amounts.memory;
    let promised = memory.source.filter(|_| memory.bytes > 0).map(|source| {
        format!("; {} of memory by its {}", words::size(memory.bytes), refusal::source(source))
    });
    let promised = promised.unwrap_or_default();
    format!("{} is the best pool that has room; {}{promised}", pool.name, wanted.demand.because)
}

/// CPU time as a weight, as the kubelet computes it (`MilliCPUToShares` in
/// its container manager).
fn shares(milli_cpus: u64) -> u64 {
    (milli_cpus.saturating_mul(1024) / 1000).clamp(2, 262_144)
}
