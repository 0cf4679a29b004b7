//! Words for the obstacle if no node has a place for a workload.
//!
//! Problem: the refusal of a placement names what was short and what took it; the cgroups above, pins of
//! other cgroups and earlier remedies may be the reason as well, or not. Idea: the nodes that would hold the
//! workload if no CPU were taken show which cgroups hold the needed CPUs.
//!
//! Invariants: a cgroup is named once, and only if its CPUs would be of use. Cost: a look at each node with
//! CPUs and one placement, and only without a place.

use std::collections::BTreeMap;

use super::{Asked, Obstacle, ObstacleKind};
use crate::{
    decide::{above::AncestorLimits, pins},
    hosted::CgroupRequest,
    workload::CgroupPath,
};
use numa_placement::{Allocations, Rejection};
use numa_topology::{id::NodeId, set::NodeSet};

impl Asked<'_> {
    /// Reason why none of the requested nodes has a place for the workload.
    pub(super) fn no_node(
        &self,
        request: &CgroupRequest<'_>,
        rejection: &Rejection,
        held: &pins::Pins,
    ) -> Obstacle {
        let machine = &self.inputs.inventory.machine;
        let above = AncestorLimits::of(self.inputs, &self.workload.cgroup).narrows(machine);
        let unbounded = CgroupRequest { bounds: None, ..request.clone() };
        let useful = |request: &CgroupRequest<'_>| machine.cpus_of(&self.would_hold(request));
        let (within_bounds, anywhere) = (useful(request), useful(&unbounded));
        let in_the_way = held.iter().filter(|(_, pin)| {
            // The cgroups above lack the CPUs that a partition has taken.
            let useful = if pin.partition { &anywhere } else { &within_bounds };
            !pin.cpus.is_disjoint(useful)
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

    /// Nodes with as many CPUs and as much memory near them as it wants, if no CPU were taken: pins on other
    /// nodes are no obstacle.
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
            // An unknown node may have enough.
            let room = |node: NodeId| request.available_bytes.get(&node).copied().unwrap_or(u64::MAX);
            request.nodes.is_none_or(|open| open.contains(*node))
                && own.len() >= request.cpus as usize
                && !near.is_empty()
                && near.iter().map(room).fold(0, u64::saturating_add) >= held
        };
        inventory.cpu_nodes().iter().filter(fits).collect()
    }
}

/// Does a text name this cgroup, and not only one with a path that begins alike?
fn is_named(text: &str, cgroup: &CgroupPath) -> bool {
    let path = cgroup.as_str();
    let ends = |rest: &str| rest.chars().next().is_none_or(|next| matches!(next, ',' | ';' | ')' | ' '));
    let starts = |before: &str| before.ends_with(' ');
    text.match_indices(path).any(|(at, _)| starts(&text[..at]) && ends(&text[at + path.len()..]))
}
