//! Memory of one container: initial nodes, and offers of pools.
//!
//! A container asks for kinds of memory (DRAM and PMEM by default; HBM only on request). In a pool it gets
//! the pool's nodes of these kinds; a kind that the pool lacks comes from the nearest nodes of that kind. A
//! zone of only movable memory cannot hold the kernel's own data, so the nearest node of normal memory joins
//! its memory nodes, whatever its kind; no memory is promised there.
//!
//! *Cold start*: the container starts without DRAM and gets it after a while; its promise must fit without
//! DRAM. The grant has the time and the later nodes.
//!
//! Huge pages come from the same nodes; they are never moved for others.

use std::{collections::BTreeMap, time::Duration};

use super::{
    annotations::Preferences,
    rank::{MemoryLimit, MemoryScore},
    request::MemoryAmount,
    tree::{Pool, PoolTree},
    zones::{MemoryZones, OtherPromises, Promise, ZoneOffer},
};
use crate::{
    ContainerRequest, Inventory, MemoryPriority, MemoryResource, QosClass, settings::MemoryTypes, words,
};
use numa_topology::{Topology, set::NodeSet};

/// Multiple of its request that must fit in the chosen pool, for a container without a limit.
const HEADROOM: u64 = 2;

/// Memory request of a container.
#[derive(Debug, Clone)]
pub(super) struct MemoryWish<'a> {
    /// Requested kinds that the machine has.
    pub(super) types: MemoryTypes,
    /// Whether the container states no kinds: slower memory is only used if ordinary memory has no room.
    pub(super) ordinary_first: bool,
    /// Bytes to promise.
    pub(super) bytes: u64,
    /// Memory limit.
    pub(super) limit: MemoryLimit,
    /// When its memory may move to make room for others.
    pub(super) priority: MemoryPriority,
    /// Whether its memory nodes stay as they are.
    pub(super) preserve: bool,
    /// Time without DRAM.
    pub(super) cold_start: Option<Duration>,
    /// Nodes that it may use.
    pub(super) allowed: Option<&'a NodeSet>,
    /// Bytes of huge pages, by page size.
    pub(super) hugepages: &'a BTreeMap<u64, u64>,
}

/// Memory offer of a pool.
#[derive(Debug, Clone)]
pub(super) struct MemoryOffer {
    /// The zone, and the containers that would move.
    pub(super) zone: ZoneOffer,
    /// Nodes after a cold start.
    pub(super) then: Option<NodeSet>,
}

impl<'a> MemoryWish<'a> {
    /// Memory request of a container, with warnings about requests that cannot be met. The error says that
    /// the machine has none of the kinds.
    pub(super) fn new(
        inventory: &Inventory,
        tree: &PoolTree,
        container: &'a ContainerRequest,
        qos: QosClass,
        amount: MemoryAmount,
        preferences: &Preferences,
    ) -> Result<(Self, Vec<String>), String> {
        let (types, mut warnings) = usable_types(inventory, tree, preferences)?;
        let (cold_start, warning) = cold_start(inventory, tree, types, preferences);
        let wish = Self {
            types,
            ordinary_first: preferences.memory_types.is_none() && types.dram && (types.pmem || types.hbm),
            bytes: amount.bytes,
            limit: limit(qos, amount),
            priority: match () {
                () if preferences.strict_memory => MemoryPriority::Strict,
                () if preferences.preserve_memory => MemoryPriority::Preserved,
                () => MemoryPriority::of_class(qos),
            },
            preserve: preferences.preserve_memory,
            cold_start,
            allowed: container.allowed_nodes.as_ref(),
            hugepages: &container.requests.hugepages,
        };
        warnings.extend(warning.map(str::to_owned));
        Ok((wish, warnings))
    }

    /// Offer of a pool, or of `place` instead of the pool's nodes.
    pub(super) fn offer<'p>(
        &self,
        zones: MemoryZones<'_>,
        tree: &PoolTree,
        pool: &Pool,
        place: Option<&NodeSet>,
        others: impl FnOnce() -> &'p OtherPromises<'p>,
    ) -> Option<MemoryOffer> {
        let full = match place {
            _ if self.preserve => tree.root().memory.all(),
            Some(place) => place.clone(),
            None => self.nodes(zones, pool, self.types),
        };
        let slow = MemoryTypes { dram: false, ..self.types };
        let (start, limit) = match self.cold_start {
            Some(_) => {
                let slow_nodes = tree.root().memory.of_types(slow);
                let limit = self.allowed.map(|allowed| allowed.intersection(&slow_nodes));
                (self.nodes(zones, pool, slow), Some(limit.unwrap_or(slow_nodes)))
            }
            None => (full.clone(), self.allowed.cloned()),
        };
        if start.is_empty() {
            return None;
        }
        let new = Promise { zone: &start, bytes: self.bytes, priority: self.priority, arrival_seq: u64::MAX };
        let zone = zones.offer(new, limit.as_ref(), others)?;
        let mut hugepages = self.hugepages.iter();
        let fits = |(size, bytes): (&u64, &u64)| {
            zones.account.fits(&zone.zone, MemoryResource::Hugepages(*size), *bytes)
        };
        if !hugepages.all(fits) {
            return None;
        }
        let then = self.cold_start.map(|_| full.union(&zone.zone));
        Some(MemoryOffer { zone, then })
    }

    /// All nodes that could get its promise.
    pub(super) fn widest(&self, tree: &PoolTree) -> NodeSet {
        let all = match self.cold_start {
            Some(_) => tree.root().memory.of_types(MemoryTypes { dram: false, ..self.types }),
            None => tree.root().memory.all(),
        };
        self.allowed.map_or_else(|| all.clone(), |allowed| all.intersection(allowed))
    }

    /// Nodes that it could use, but without a promise because of its cold start.
    pub(super) fn set_aside(&self, tree: &PoolTree) -> NodeSet {
        let dram = self.cold_start.map(|_| tree.root().memory.dram.clone()).unwrap_or_default();
        self.allowed.map_or_else(|| dram.clone(), |allowed| dram.intersection(allowed))
    }

    /// Figures of an offer for ranking pools.
    pub(super) fn standing(
        &self,
        zones: MemoryZones<'_>,
        pool: &Pool,
        offer: Option<&MemoryOffer>,
    ) -> MemoryScore {
        let of_pool = pool.memory.of_types(self.types);
        let offered = offer.map(|offer| offer.then.as_ref().unwrap_or(&offer.zone.zone));
        let (wholly_ordinary, mostly_ordinary) = self.ordinary(zones, pool);
        MemoryScore {
            offered: offered.is_some(),
            wholly_ordinary,
            mostly_ordinary,
            exact_types: offered.is_some_and(|zone| zones.types(zone) == self.types),
            has_types: zones.types(&of_pool) == self.types,
            capacity: zones.account.capacity(&of_pool, MemoryResource::Memory),
            nodes: offered.map_or(usize::MAX, NodeSet::len),
        }
    }

    /// The first of these nodes that together have room for the request; all if they have not.
    fn enough_of(&self, zones: MemoryZones<'_>, nodes: &NodeSet) -> NodeSet {
        let mut enough = NodeSet::new();
        for node in nodes.iter() {
            enough.insert(node);
            if zones.account.fits(&enough, MemoryResource::Memory, self.bytes) {
                return enough;
            }
        }
        enough
    }

    /// Does ordinary memory of a pool have room for all of the request, and for most of what it could ever
    /// hold of it? Constant if the container states its kinds.
    fn ordinary(&self, zones: MemoryZones<'_>, pool: &Pool) -> (bool, bool) {
        if !self.ordinary_first {
            return (false, true);
        }
        let nodes = self.allowed.map(|allowed| pool.memory.dram.intersection(allowed));
        let nodes = nodes.as_ref().unwrap_or(&pool.memory.dram);
        // By forecast: nothing moves to slower memory for this container.
        let free = zones.account.left(nodes, MemoryResource::Memory).min(self.bytes);
        let ever = zones.account.capacity(nodes, MemoryResource::Memory).min(self.bytes);
        (free >= self.bytes, free >= ever - ever / 2)
    }

    /// Nodes of these kinds in a pool, or the nearest ones.
    fn nodes(&self, zones: MemoryZones<'_>, pool: &Pool, types: MemoryTypes) -> NodeSet {
        let here = pool.memory.types();
        let mut nodes = pool.memory.of_types(types);
        let from = || pool.memory.all().union(&pool.cpu_nodes);
        for (missing, kind) in [
            (types.dram && !here.dram, MemoryTypes { dram: true, ..MemoryTypes::default() }),
            (types.pmem && !here.pmem, MemoryTypes { pmem: true, ..MemoryTypes::default() }),
            (types.hbm && !here.hbm, MemoryTypes { hbm: true, ..MemoryTypes::default() }),
        ] {
            if missing && let Some(wider) = zones.widened(&from(), kind, self.allowed) {
                nodes.extend(&self.enough_of(zones, &wider.difference(&from())));
            }
        }
        if let Some(allowed) = self.allowed {
            nodes = nodes.intersection(allowed);
        }
        nodes
    }

    /// Memory nodes of a container with a promise on these nodes: adds one for the kernel if they have none;
    /// nothing is promised there.
    pub(super) fn with_kernel_memory(&self, machine: &Topology, nodes: NodeSet) -> NodeSet {
        let allowed = self.allowed.cloned().unwrap_or_else(|| machine.ordinary_memory_nodes());
        machine.with_kernel_memory(nodes, &allowed)
    }
}

/// Kinds of memory that a container gets, of those that the machine has, with warnings about kinds that it
/// has not. The error names the kinds if the machine has none of them.
fn usable_types(
    inventory: &Inventory,
    tree: &PoolTree,
    preferences: &Preferences,
) -> Result<(MemoryTypes, Vec<String>), String> {
    let there = tree.root().memory.types();
    let asked = preferences.memory_types.unwrap_or(MemoryTypes { dram: true, pmem: true, hbm: false });
    let types = MemoryTypes {
        dram: asked.dram && there.dram,
        pmem: asked.pmem && there.pmem,
        hbm: asked.hbm && there.hbm,
    };
    if preferences.memory_types.is_none() {
        return Ok((if types == MemoryTypes::default() { there } else { types }, Vec::new()));
    }
    if types == MemoryTypes::default() {
        return Err(named(asked));
    }
    let mut warnings = Vec::new();
    let missing = MemoryTypes {
        dram: asked.dram && !types.dram,
        pmem: asked.pmem && !types.pmem,
        hbm: asked.hbm && !types.hbm,
    };
    if missing != MemoryTypes::default() {
        warnings.push(format!("memory-type: the machine has no {}, ignored", named(missing)));
    }
    let nodes = tree.root().memory.of_types(types);
    if inventory.are_movable_only(&nodes) {
        warnings.push(format!(
            "memory-type {}: {} {} movable memory only, which the kernel cannot use for itself: the nearest \
             other node is added",
            named(types),
            words::nodes(&nodes),
            if nodes.len() == 1 { "has" } else { "have" },
        ));
    }
    Ok((types, warnings))
}

/// The wished cold start, or the warning why there is none.
fn cold_start(
    inventory: &Inventory,
    tree: &PoolTree,
    types: MemoryTypes,
    preferences: &Preferences,
) -> (Option<Duration>, Option<&'static str>) {
    match preferences.cold_start {
        None => (None, None),
        Some(_) if !types.pmem => (None, Some("cold-start: no PMEM to start on, ignored")),
        Some(_) if !types.dram => (None, Some("cold-start: no DRAM to get later, ignored")),
        Some(_) if movable_pmem(inventory, tree) => {
            (None, Some("cold-start: a PMEM node has movable memory only, ignored"))
        }
        Some(duration) => (Some(duration), None),
    }
}

/// Memory that a container may use, for the choice of its pool.
fn limit(qos: QosClass, amount: MemoryAmount) -> MemoryLimit {
    match amount.limit {
        _ if qos != QosClass::Burstable => MemoryLimit::Request,
        // Without a memory request, more memory is no advantage.
        None if amount.bytes == 0 => MemoryLimit::Request,
        // It may exceed its request by far, and most never do: it stays near with headroom, and gets
        // further nodes when these are nearly full.
        None => MemoryLimit::Bytes(amount.bytes.saturating_mul(HEADROOM)),
        Some(limit) if limit > amount.bytes => MemoryLimit::Bytes(limit),
        Some(_) => MemoryLimit::Request,
    }
}

/// Is there PMEM that the kernel cannot use for itself?
fn movable_pmem(inventory: &Inventory, tree: &PoolTree) -> bool {
    tree.root().memory.pmem.iter().any(|node| inventory.is_movable_only(node))
}

fn named(types: MemoryTypes) -> String {
    let names = [(types.dram, "dram"), (types.pmem, "pmem"), (types.hbm, "hbm")];
    let names: Vec<&str> = names.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name).collect();
    names.join(",")
}
