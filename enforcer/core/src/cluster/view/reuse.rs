//! Memory of init containers that the other containers of their pod take over.
//!
//! Problem: an admission gives memory to each container, and a kubelet's account of a node has only what is
//! left once the other containers have taken over what the init containers had. A view that counts both
//! refuses pods that the node admits. Idea: do what the memory manager does with each container that it has
//! given memory to (`updateInitContainersMemoryBlocks` in
//! `pkg/kubelet/cm/memorymanager/policy_static.go`, 1.36): its bytes are taken off those of the init
//! containers before it, on the same NUMA nodes.
//!
//! What the others do not take over stays with an init container until the next container of its pod starts:
//! then the memory manager drops what all init containers before that one have (`AddContainer` in
//! `memory_manager.go`). The API does not tell when, so a [view](super::holdings) counts with both.

use numa_placement::{Allocations, ContainerKind, Holder, MemoryClaim, PodRequest};

/// Takes off the pod's init containers what its other containers take over.
pub(in crate::cluster) fn take_over_init_memory(allocations: &mut Allocations, pod: &PodRequest) {
    if pod.containers.iter().all(|container| container.kind != ContainerKind::Init) {
        return;
    }
    for (at, container) in pod.containers.iter().enumerate() {
        let holder = Holder::new(pod.name.clone(), container.name.clone());
        let Some(grant) = allocations.get(&holder) else { continue };
        for MemoryClaim { resource, zone, mut bytes, .. } in grant.memory.clone() {
            let earlier = pod.containers.iter().take(at);
            for init in earlier.filter(|earlier| earlier.kind == ContainerKind::Init) {
                let holder = Holder::new(pod.name.clone(), init.name.clone());
                let Some(mut grant) = allocations.get(&holder).cloned() else { continue };
                let is_same = |claim: &&mut MemoryClaim| claim.resource == resource && claim.zone == zone;
                for claim in grant.memory.iter_mut().filter(is_same) {
                    bytes -= take_off(claim, bytes);
                }
                grant.memory.retain(|claim| claim.bytes > 0);
                allocations.give(holder, grant);
            }
        }
    }
}

/// Takes at most so many bytes off a claim; returns how many.
fn take_off(claim: &mut MemoryClaim, most: u64) -> u64 {
    let taken = claim.bytes.min(most);
    claim.bytes -= taken;
    let mut left = taken;
    for bytes in claim.by_node.values_mut() {
        let here = left.min(*bytes);
        *bytes -= here;
        left -= here;
    }
    claim.by_node.retain(|_, bytes| *bytes > 0);
    taken
}
