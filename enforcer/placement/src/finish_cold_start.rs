//! Ends cold starts.
//!
//! Problem: a container that starts on slow memory gets fast memory some time later, so that rarely used
//! pages stay on slow memory. Idea: its memory nodes and the zone of its promise grow by the nodes that were
//! set aside for it. A promise on a superset of nodes can always be kept, so this needs no room and cannot
//! fail; the forecast stays, because no page moves. The caller decides when (the time has passed, or slow
//! memory runs short).
//!
//! Invariant: no node is ever removed: pages on it would have to move.

use super::{Allocations, Holder, MemoryResource, Update};

/// Ends the cold start of a holder and returns its memory nodes; `None` if it has no cold start.
pub fn finish_cold_start(allocations: &mut Allocations, holder: &Holder) -> Option<Update> {
    let mut grant = allocations.get(holder)?.clone();
    let cold_start = grant.cold_start.take()?;
    grant.mems.extend(&cold_start.mems);
    for claim in grant.memory.iter_mut().filter(|claim| claim.resource == MemoryResource::Memory) {
        claim.zone.extend(&cold_start.mems);
    }
    let mems = grant.pin_mems.then(|| grant.mems.clone());
    allocations.give(holder.clone(), grant);
    Some(Update { holder: holder.clone(), cpus: None, mems })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::*;
    use crate::{ColdStart, Grant, MemoryClaim, PodName};
    use numa_topology::id::NodeId;

    #[test]
    fn a_cold_start_ends_once_and_takes_no_node_away() {
        let holder = |name: &str| Holder::new(PodName::new("default", "p"), name.to_owned());
        let claim = |resource| MemoryClaim {
            resource,
            zone: "4".parse().unwrap(),
            bytes: 7,
            by_node: BTreeMap::from([(NodeId(4), 7)]),
        };
        let huge = MemoryResource::Hugepages(2 << 20);
        let grant = Grant {
            mems: "4".parse().unwrap(),
            memory: vec![claim(MemoryResource::Memory), claim(huge)],
            cold_start: Some(ColdStart {
                after: Duration::from_mins(1),
                mems: "0".parse().unwrap(),
                began_ns: None,
            }),
            pin_mems: true,
            ..Grant::default()
        };
        let mut allocations = Allocations::default();
        allocations.give(holder("c"), grant.clone());
        allocations.give(holder("loose"), Grant { pin_mems: false, ..grant });
        let update = finish_cold_start(&mut allocations, &holder("c")).unwrap();
        assert_eq!((update.cpus, update.mems.unwrap().to_string().as_str()), (None, "0,4"));
        let now = allocations.get(&holder("c")).unwrap().clone();
        let zones: Vec<String> = now.memory.iter().map(|claim| claim.zone.to_string()).collect();
        assert_eq!(zones, ["0,4", "4"], "huge pages are where they are");
        assert_eq!(now.memory_by_node(), BTreeMap::from([(NodeId(4), 7)]));
        assert_eq!(finish_cold_start(&mut allocations, &holder("c")), None);
        assert_eq!(finish_cold_start(&mut allocations, &holder("unknown")), None);
        assert_eq!(allocations.get(&holder("c")), Some(&now));
        assert_eq!(
            finish_cold_start(&mut allocations, &holder("loose")).unwrap().mems,
            None,
            "it is not pinned"
        );
    }
}
