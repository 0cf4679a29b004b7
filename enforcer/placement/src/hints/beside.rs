//! Offers for devices that a container should be near to: sets of nodes with the devices are preferred.
//!
//! The offers are soft. A device that is only used, unlike one that is given exclusively, can be used from
//! another node, so it never causes a rejection. Devices in a manifest are not among them: the kubelet
//! ignores them.

use super::{Need, NodeIndex, Offer, Offers, Threshold, listed::list};
use crate::{ContainerRequest, PodRequest};

/// Offers for one container, or for all of a pod.
pub(super) fn offers(nodes: &NodeIndex, container: Option<&ContainerRequest>, pod: &PodRequest) -> Offers {
    let of_pod = pod.containers.iter().filter(|_| container.is_none());
    let hints = container.into_iter().chain(of_pod).flat_map(|one| &one.wishes.beside);
    let near = hints.filter_map(|hint| {
        let near = nodes.mask(&hint.nodes);
        (near != 0).then(|| (hint.provider.clone(), offer(nodes, near)))
    });
    near.collect()
}

fn offer(nodes: &NodeIndex, near: u64) -> Offer {
    if !nodes.is_listed() {
        let free = (0..nodes.len()).map(|position| near >> position & 1).collect();
        return Offer::Threshold(Threshold { needs: vec![Need { free, amount: 1 }], width: 1, must: 0 });
    }
    let does = |mask| mask & near != 0;
    Offer::Listed(list(nodes.len(), does, does))
}
