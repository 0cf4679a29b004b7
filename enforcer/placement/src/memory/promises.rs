//! Promises of one kind of memory, with an arrangement that keeps all at once.
//!
//! Problem: a promise names a zone and not a node, so whether another one can be kept depends on how the
//! others can be rearranged. All can be kept exactly if no set of nodes has less than the promises on zones
//! inside it (Hall's condition); there are 2^N sets. Idea: maintain one arrangement that serves all promises,
//! a flow from zones to nodes. What it leaves free on a zone is available for certain; what others could move
//! out of the way is found by augmenting paths, and only if the first answer is not enough.
//!
//! Terminology: a zone is *kept* as far as the arrangement serves it. The *reach* of a set of nodes is where
//! memory on it could go, directly or by moving other memory.
//!
//! Cost: distinct zones are few, whatever the number of promises. Building is O(zones x nodes) where
//! the forecasts still hold, the quick answers are O(nodes + zones), an augmenting path is
//! O(zones x nodes). All sums saturate: sizes come from outside.

use super::{
    fixed::{Fixed, sum},
    room,
};
use crate::nodes::{MAX_ENUMERATED_NODES, Mask, Table, positions};

/// Capacity, promises, and one arrangement that keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Promises {
    /// By position of the node.
    capacity: Vec<u64>,
    /// Amount that the arrangement leaves, by position.
    free: Vec<u64>,
    zones: Vec<Zone>,
    /// The arrangement: one row of nodes per zone.
    lies: Vec<u64>,
    /// Whether the memory cannot move, so that the arrangement is only a forecast.
    is_fixed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Zone {
    nodes: Mask,
    promised: u64,
    /// Amount that the arrangement does not serve.
    unkept: u64,
    /// Nodes with a part of it.
    on: Mask,
}

impl Promises {
    /// No promises.
    pub(super) fn new(capacity: Vec<u64>) -> Self {
        Self { free: capacity.clone(), capacity, ..Self::default() }
    }

    /// Marks the memory as unable to move, see [`Fixed`].
    pub(super) fn fixed(self) -> Self {
        Self { is_fixed: true, ..self }
    }

    /// Zones in any order, with the promise on each.
    pub(super) fn promised(&self) -> impl Iterator<Item = (Mask, u64)> {
        self.zones.iter().map(|zone| (zone.nodes, zone.promised))
    }

    /// Amount without an arrangement.
    pub(super) fn unkept(&self) -> u64 {
        self.zones.iter().fold(0, |sum, zone| sum.saturating_add(zone.unkept))
    }

    /// Adds a new zone; their rest is [served](Self::serve_rest) later.
    pub(super) fn open(&mut self, nodes: Mask) -> usize {
        self.zones.push(Zone { nodes, promised: 0, unkept: 0, on: 0 });
        self.lies.resize(self.zones.len() * self.capacity.len(), 0);
        self.zones.len() - 1
    }

    /// Records a promise on a zone without serving it.
    pub(super) fn note(&mut self, zone: usize, bytes: u64) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.promised = zone.promised.saturating_add(bytes);
            zone.unkept = zone.unkept.saturating_add(bytes);
        }
    }

    /// Serves up to `bytes` of the zone's promise from one node, as far as available; returns the amount.
    pub(super) fn lay(&mut self, zone: usize, node: usize, bytes: u64) -> u64 {
        let Some(Zone { nodes, unkept, .. }) = self.zones.get(zone).copied() else { return 0 };
        let Some(free) = self.free.get_mut(node).filter(|_| nodes >> node & 1 == 1) else { return 0 };
        let laid = bytes.min(*free).min(unkept);
        if laid > 0 {
            *free -= laid;
            self.zones[zone].unkept -= laid;
            self.put(zone, node, laid);
        }
        laid
    }

    /// Serves the rest of a zone: from its nodes in ascending order, then by moving others. Returns the
    /// amount from each node.
    pub(super) fn serve_rest(&mut self, zone: usize) -> Vec<(usize, u64)> {
        let nodes = self.zones.get(zone).map_or(0, |zone| zone.nodes);
        let mut laid = Vec::new();
        for node in positions(nodes) {
            match self.lay(zone, node, u64::MAX) {
                0 => {}
                bytes => laid.push((node, bytes)),
            }
        }
        while let Some((node, bytes)) = self.make_room(zone) {
            laid.push((node, bytes));
        }
        laid
    }

    /// Index of the zone of these nodes, which is added if it is missing.
    pub(super) fn zone(&mut self, nodes: Mask) -> usize {
        let there = self.zones.iter().position(|zone| zone.nodes == nodes);
        there.unwrap_or_else(|| self.open(nodes))
    }

    /// Amount that could be promised on these nodes in addition, with all other promises kept as now.
    pub(super) fn free(&self, nodes: Mask) -> u64 {
        if self.is_fixed {
            return self.as_fixed().free(nodes);
        }
        if self.reach(nodes) == nodes {
            return self.left(nodes);
        }
        self.could_lay(nodes, u64::MAX)
    }

    /// Could this be promised on these nodes?
    pub(super) fn fits(&self, nodes: Mask, bytes: u64) -> bool {
        if self.is_fixed {
            return self.as_fixed().free(nodes) >= bytes;
        }
        if self.left(nodes) >= bytes {
            return true;
        }
        let reach = self.reach(nodes);
        reach != nodes && self.left(reach) >= bytes && self.could_lay(nodes, bytes) >= bytes
    }

    /// The [free](Self::free) amount on every set of these nodes, each a mask of one node or none; the amount
    /// [left](Self::left) if the table would be too large.
    pub(super) fn free_on_sets(&self, nodes: &[Mask]) -> Table {
        if self.is_fixed {
            let fixed = self.as_fixed();
            let sets = 0..1 << nodes.len().min(MAX_ENUMERATED_NODES);
            let of_set =
                |set: Mask| positions(set).filter_map(|at| nodes.get(at)).fold(0, |all, node| all | node);
            return Table::of_amounts(sets.map(|set| fixed.free(of_set(set))).collect());
        }
        let promised = self.zones.iter().filter(|zone| zone.promised > 0);
        let zones: Vec<(Mask, u64)> = promised.map(|zone| (zone.nodes, zone.promised)).collect();
        // Promises on single nodes cannot be moved.
        let movable = zones.iter().any(|(nodes, _)| !nodes.is_power_of_two());
        let free = movable.then(|| room::of_sets(&self.capacity, &zones, nodes)).flatten();
        free.unwrap_or_else(|| {
            Table::of_sums(&nodes.iter().map(|node| self.left(*node)).collect::<Vec<u64>>())
        })
    }

    /// Capacity of these nodes.
    pub(super) fn capacity(&self, nodes: Mask) -> u64 {
        sum(&self.capacity, nodes)
    }

    /// Maximum that promises take from these nodes: promises inside them, and for memory that cannot move
    /// also what others may take there.
    pub(super) fn taken(&self, nodes: Mask) -> u64 {
        if self.is_fixed { self.as_fixed().taken(nodes) } else { self.usage(nodes) }
    }

    /// Sum of the promises on zones inside these nodes.
    pub(super) fn usage(&self, nodes: Mask) -> u64 {
        let inside = self.zones.iter().filter(|zone| zone.nodes & !nodes == 0);
        inside.fold(0, |sum, zone| sum.saturating_add(zone.promised))
    }

    /// Amount that the arrangement leaves on these nodes: at most [`Self::free`]. For memory that cannot
    /// move, the sum of the free amounts of each node, which says nothing about the nodes together.
    pub(super) fn left(&self, nodes: Mask) -> u64 {
        if self.is_fixed { self.as_fixed().free_on_each(nodes) } else { sum(&self.free, nodes) }
    }

    /// Zones with a promise.
    pub(super) fn zones(&self) -> impl Iterator<Item = Mask> {
        self.zones.iter().filter(|zone| zone.promised > 0).map(|zone| zone.nodes)
    }

    /// Sets of nodes with less capacity than promises inside them: every such zone, and where several zones
    /// together are the cause, the nodes that they share.
    pub(super) fn overcommitted(&self) -> Vec<Mask> {
        if self.is_fixed {
            let mut found = self.as_fixed().overcommitted();
            found.sort_unstable_by_key(|nodes| (nodes.count_ones(), *nodes));
            return found;
        }
        let short = |nodes: &Mask| self.usage(*nodes) > self.capacity(*nodes);
        let mut found: Vec<Mask> = self.zones().filter(short).collect();
        for zone in self.zones.iter().filter(|zone| zone.unkept > 0) {
            let shared = self.reach(zone.nodes);
            if !found.iter().any(|nodes| nodes & !shared == 0) {
                found.push(shared);
            }
        }
        found.sort_unstable_by_key(|nodes| (nodes.count_ones(), *nodes));
        found
    }

    fn as_fixed(&self) -> Fixed<'_> {
        Fixed::new(&self.capacity, self.promised())
    }

    /// [`Self::free`], limited to `most`.
    fn could_lay(&self, nodes: Mask, most: u64) -> u64 {
        let mut trial = self.clone();
        let zone = trial.open(nodes);
        trial.note(zone, most);
        trial.serve_rest(zone);
        trial.zones.get(zone).map_or(0, |zone| most - zone.unkept)
    }

    /// Nodes that memory of these nodes could move to.
    fn reach(&self, nodes: Mask) -> Mask {
        let mut reach = nodes;
        loop {
            let before = reach;
            let movable = |zone: &&Zone| zone.on & reach != 0;
            reach = self.zones.iter().filter(movable).fold(reach, |reach, zone| reach | zone.nodes);
            if reach == before {
                return reach;
            }
        }
    }

    /// Moves other memory along a shortest path and serves the zone from the freed amount. Returns the node
    /// and the amount.
    fn make_room(&mut self, zone: usize) -> Option<(usize, u64)> {
        let Zone { nodes, unkept, .. } = *self.zones.get(zone)?;
        if unkept == 0 {
            return None;
        }
        let path = self.shortest_path(nodes)?;
        let (first, last) = (path.first()?.to, path.last()?.to);
        let movable = path.windows(2).map(|step| self.lies[self.place(step[1].zone, step[0].to)]);
        let bytes = movable.fold(unkept.min(self.free[last]), u64::min);
        for step in path.windows(2) {
            let ([from, to], mover) = ([step[0].to, step[1].to], step[1].zone);
            self.put(mover, to, bytes);
            self.take(mover, from, bytes);
        }
        self.free[last] -= bytes;
        self.zones[zone].unkept -= bytes;
        self.put(zone, first, bytes);
        Some((first, bytes))
    }

    /// Path from one of these nodes to one with a free amount, over zones that can move; the zone of the
    /// first step has no meaning.
    fn shortest_path(&self, nodes: Mask) -> Option<Vec<PathStep>> {
        let mut seen = nodes;
        let mut queue: Vec<(PathStep, Option<usize>)> =
            positions(nodes).map(|to| (PathStep { zone: 0, to }, None)).collect();
        let mut next = 0;
        while let Some((PathStep { to: node, .. }, _)) = queue.get(next).copied() {
            if self.free.get(node).is_some_and(|free| *free > 0) {
                return Some(unwind(&queue, next));
            }
            for (zone, at) in self.zones.iter().enumerate().filter(|(_, zone)| zone.on >> node & 1 == 1) {
                queue.extend(positions(at.nodes & !seen).map(|to| (PathStep { zone, to }, Some(next))));
                seen |= at.nodes;
            }
            next += 1;
        }
        None
    }

    fn place(&self, zone: usize, node: usize) -> usize {
        zone * self.capacity.len() + node
    }

    fn put(&mut self, zone: usize, node: usize, bytes: u64) {
        let place = self.place(zone, node);
        self.lies[place] += bytes;
        self.zones[zone].on |= 1 << node;
    }

    fn take(&mut self, zone: usize, node: usize, bytes: u64) {
        let place = self.place(zone, node);
        self.lies[place] -= bytes;
        if self.lies[place] == 0 {
            self.zones[zone].on &= !(1 << node);
        }
    }
}

/// One step of a path: a zone moves memory from the previous node to this one.
#[derive(Debug, Clone, Copy)]
struct PathStep {
    zone: usize,
    to: usize,
}

fn unwind(queue: &[(PathStep, Option<usize>)], last: usize) -> Vec<PathStep> {
    let ends = std::iter::successors(Some(last), |at| queue.get(*at).and_then(|(_, before)| *before));
    let mut path: Vec<PathStep> = ends.filter_map(|at| queue.get(at).map(|(step, _)| *step)).collect();
    path.reverse();
    path
}
