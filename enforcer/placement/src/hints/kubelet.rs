//! Differences of the kubelet's managers from the engine: the profile `kubelet`.
//!
//! Problem: a prediction of a kubelet needs its answers, including its defects. Idea: the same engine. This
//! module restates the offers as those of the kubelet, and makes the choices that differ.
//!
//! - CPU hints name only nodes with CPUs; device hints, since 1.36, only nodes with a device of the resource.
//! - Memory without a suitable set of nodes has no hint at all, which the merge takes for "no preference":
//!   the pod is admitted and fails when memory is given (issues 128708, 138495 of Kubernetes).
//! - Memory of ended init containers is kept for later containers of the pod on the same set of nodes
//!   ([`Accounts`](super::accounts::Accounts)).
//! - The check for enough whole cores ignores the CPUs of the pod's ended init containers.
//!
//! Other differences are settings: groups of memory nodes, no soft offers, no tie-break by use.

use super::{
    Mask, Offer, Offers,
    asker::Asker,
    cpu::{self, CpuError, CpuOptions, CpuPick},
};
use crate::{CpuLayout, Inventory, settings::KubeletDeviceHints};
use numa_topology::set::{CpuSet, NodeSet};

/// Restates offers of CPUs, devices and memory as the kubelet's.
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

/// Adds the offers of another account for one set of nodes.
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

/// Removes sets with other nodes than these; without `nodes` removes nothing.
fn keep_within(offer: &mut Offer, nodes: Mask) {
    if let Offer::Listed(hints) = offer
        && nodes != 0
    {
        hints.retain(|hint| hint.mask.is_none_or(|mask| mask & !nodes == 0));
    }
}

/// Chooses the CPUs of a container.
///
/// # Errors
/// If too few CPUs are free, or the options do not allow the amount.
pub fn assign_near(layout: &CpuLayout, pick: &CpuPick<'_>, options: CpuOptions) -> Result<CpuSet, CpuError> {
    let without = cpu::assign_near(layout, &CpuPick { reusable: &CpuSet::new(), ..*pick }, options);
    match without {
        Err(error @ (CpuError::TooFewWholeCores { .. } | CpuError::NotWholeCores { .. })) => Err(error),
        _ => cpu::assign_near(layout, pick, options),
    }
}
