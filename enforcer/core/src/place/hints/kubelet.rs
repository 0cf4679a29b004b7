//! What the kubelet's managers do otherwise than ours: the profile `kubelet`.
//!
//! Problem: who predicts a kubelet needs its answers, defects included. Idea: the same engine, whose offers
//! are restated here as that of the kubelet would be, and whose choices are made here where they differ.
//!
//! - CPU hints name nodes with CPUs only; device hints, since 1.36, nodes that have a device of the resource.
//! - Memory for which there is no set of nodes has no hint at all, which the merge takes for "no preference":
//!   the pod is admitted and fails when memory is given (issues 128708, 138495 of Kubernetes).
//! - Memory of ended init containers is kept for later containers of the pod on the same set of nodes
//!   ([`Accounts`](super::accounts::Accounts)).
//! - Whether there are enough whole cores is asked without the CPUs of the pod's ended init containers.
//!
//! Not here, because settings say it: groups of memory nodes, no soft offers, no tie-break by use.

use super::{
    Mask, Offer, Offers,
    cpu::{self, CpuError, CpuOptions, Pick},
    placing::Asker,
};
use crate::{
    place::{CpuLayout, Inventory},
    policy::placement::KubeletDeviceHints,
    set::{CpuSet, NodeSet},
};

/// Restates offers of CPUs and devices, and those of memory, as the kubelet's.
pub(super) fn restate(inventory: &Inventory, asker: Asker<'_>, firm: &mut Offers, memory: &mut Offers) {
    for (resource, offer) in firm {
        let named = match inventory.devices.get(resource) {
            None if resource == "cpu" => asker.nodes.mask(&inventory.machine.cpu_nodes()),
            Some(units) if asker.settings.kubelet_device_hints == KubeletDeviceHints::DeviceNodes => {
                let mut near = NodeSet::new();
                for unit in units {
                    near.extend(&unit.nodes);
                }
                asker.nodes.mask(&near)
            }
            _ => continue,
        };
        keep_within(offer, named);
    }
    let is_empty = |offer: &Offer| matches!(offer, Offer::Listed(hints) if hints.is_empty());
    for (_, offer) in memory.iter_mut().filter(|(_, offer)| is_empty(offer)) {
        *offer = Offer::NoPreference;
    }
}

/// Adds what another account says of one set of nodes.
pub(super) fn add(offers: &mut Offers, of_set: Option<Offers>, set: Mask) {
    let hint_of = |offer: &Offer| match offer {
        Offer::Listed(hints) => hints.iter().find(|hint| hint.mask == Some(set)).copied(),
        _ => None,
    };
    for ((_, offer), (_, other)) in offers.iter_mut().zip(of_set.into_iter().flatten()) {
        let missing = hint_of(offer).is_none();
        if let (Offer::Listed(hints), Some(hint)) = (offer, hint_of(&other).filter(|_| missing)) {
            hints.push(hint);
        }
    }
}

/// Leaves out sets with other nodes than these; without any of these nothing is left out.
fn keep_within(offer: &mut Offer, nodes: Mask) {
    if let Offer::Listed(hints) = offer
        && nodes != 0
    {
        hints.retain(|hint| hint.mask.is_none_or(|mask| mask & !nodes == 0));
    }
}

/// The CPUs of a container.
pub fn take_near(layout: &CpuLayout, pick: &Pick<'_>, options: CpuOptions) -> Result<CpuSet, CpuError> {
    let without = cpu::take_near(layout, &Pick { reusable: &CpuSet::new(), ..*pick }, options);
    match without {
        Err(error @ (CpuError::TooFewWholeCores { .. } | CpuError::NotWholeCores { .. })) => Err(error),
        _ => cpu::take_near(layout, pick, options),
    }
}
