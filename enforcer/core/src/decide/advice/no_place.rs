//! What is in the way where no node has a place for a workload, in words.
//!
//! Problem: the refusal of a placement says what was short and what took it; the cgroups above, pins of
//! other cgroups and earlier remedies may be the reason as well, and may be none. Idea: what would hold
//! the workload if no CPU were taken says whose CPUs are in the way.
//!
//! Invariants: a cgroup is named once, and one whose CPUs would be of no use is not named. Cost: a
//! look at each node with CPUs and one placement, and only where there is no place.

use std::collections::BTreeMap;

use super::{Asked, Obstacle, ObstacleKind};
use crate::{
    decide::{above::AncestorLimits, pins},
    id::NodeId,
    place::{Allocations, CgroupRequest, Rejection},
    set::NodeSet,
    workload::CgroupPath,
};

impl Asked<'_> {
    /// Why none of the nodes that it asked for has a place for it.
    pub(super) fn no_node(
        &self,
        request: &CgroupRequest<'_>,
        rejection: &Rejection,
        held: &pins::Pins,
    ) -> Obstacle {
        let machine = &self.inputs.inventory.machine;
        let above = AncestorLimits::of(self.inputs, &self.workload.cgroup).narrows(self.inputs);
        let unbounded = CgroupRequest { bounds: None, ..request.clone() };
        let (within_bounds, anywhere) = (self.would_hold(request), self.would_hold(&unbounded));
        let in_the_way = held.iter().filter(|(_, pin)| {
            // What a partition has taken, the cgroups above do not have.
            let nodes = if pin.partition { &anywhere } else { &within_bounds };
            !machine.nodes_of(&pin.cpus).is_disjoint(nodes)
        });
        let told = rejection.to_string();
        let named: Vec<String> = in_the_way
            .clone()
            .filter(|(cgroup, pin)| !is_named(&told, cgroup) || pin.partition && !told.contains("partition"))
            .map(|(cgroup, pin)| pin.in_words(cgroup))
            .collect();
        let beside = (!named.is_empty()).then(|| named.join(", "));
        let partition = in_the_way.clone().any(|(_, pin)| pin.partition);
        let within = self.is_process().then(|| {
            let cgroup = &self.workload.cgroup;
            format!("its cgroup {cgroup} bounds it")
        });
        let parts = [Some(told), above.clone(), beside.clone(), self.earlier.cpus_in_words(), within];
        let reason = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let fits_nowhere = || {
            let anywhere = CgroupRequest { available_bytes: BTreeMap::new(), ..unbounded.clone() };
            anywhere.place(self.inputs.inventory, &mut Allocations::default()).is_err()
        };
        let kind = if fits_nowhere() {
            ObstacleKind::Machine
        } else if above.is_some() || partition {
            ObstacleKind::Elsewhere
        } else {
            ObstacleKind::NoRoom
        };
        Obstacle::new(kind, reason)
    }

    /// Nodes with as many CPUs and as much memory beside them as it wants, if no CPU were taken: pins
    /// elsewhere are in the way of nothing.
    fn would_hold(&self, request: &CgroupRequest<'_>) -> NodeSet {
        let inventory = self.inputs.inventory;
        let usable = inventory.shareable_cpus().difference(&inventory.reserved_cpus);
        let above = request.bounds.as_ref();
        let (cpus, mems) =
            (above.and_then(|above| above.cpus.as_ref()), above.and_then(|above| above.mems.as_ref()));
        let (_, held) = self.held_outside(&NodeSet::new());
        let fits = |node: &NodeId| {
            let one = NodeSet::from_iter([*node]);
            let own = usable.intersection(&inventory.machine.cpus_of(&one));
            let own = cpus.map_or(own.clone(), |above| own.intersection(above));
            let near = self.near(&one);
            let near = mems.map_or(near.clone(), |above| near.intersection(above));
            // Of a node of which nothing is known there may be enough.
            let room = |node: NodeId| request.available_bytes.get(&node).copied().unwrap_or(u64::MAX);
            request.nodes.is_none_or(|open| open.contains(*node))
                && own.len() >= request.cpus as usize
                && !near.is_empty()
                && near.iter().map(room).fold(0, u64::saturating_add) >= held
        };
        inventory.cpu_nodes().iter().filter(fits).collect()
    }
}

/// Does a text name this cgroup, and not only one whose path begins alike?
fn is_named(text: &str, cgroup: &CgroupPath) -> bool {
    let path = cgroup.as_str();
    let ends = |rest: &str| rest.chars().next().is_none_or(|next| matches!(next, ',' | ';' | ')' | ' '));
    let starts = |before: &str| before.ends_with(' ');
    text.match_indices(path).any(|(at, _)| starts(&text[..at]) && ends(&text[at + path.len()..]))
}
