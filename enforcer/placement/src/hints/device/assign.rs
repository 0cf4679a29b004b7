//! Chooses devices for a container.
//!
//! Order: devices that it held before, those of an ended init container of its pod, free devices near the
//! chosen nodes, those near other nodes, then those with unknown nodes. Within each group, devices near nodes
//! with fewer free devices come first, so that nodes with many keep them; then by id.

use super::{
    DeviceStock,
    stock::{DeviceAvailability, Unit},
};
use crate::{
    Rejection, RejectionProblem, RejectionReason, Shortage,
    hints::{Mask, positions},
};
use numa_topology::set::NodeSet;

/// Ids of `count` devices, ascending; `mask` is the set of nodes chosen for the container.
///
/// # Errors
/// If too few devices are free.
pub fn assign(stock: &DeviceStock<'_>, count: u64, mask: Option<Mask>) -> Result<Vec<String>, Rejection> {
    let mut units: Vec<&Unit<'_>> = stock.available().collect();
    let wanted = match usize::try_from(count) {
        Ok(wanted) if wanted <= units.len() => wanted,
        _ => return Err(unavailable(stock, count, units.len())),
    };
    let load = free_by_node(stock);
    units.sort_by_cached_key(|unit| {
        let first = unit.state.min(DeviceAvailability::Free);
        (first, rank(unit, mask, &load), unit.id)
    });
    let mut ids: Vec<String> = units.iter().take(wanted).map(|unit| unit.id.to_owned()).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Shortage of devices on these nodes, if any.
pub fn shortage(stock: &DeviceStock<'_>, count: u64, nodes: &NodeSet) -> Option<Shortage> {
    let mask = stock.nodes.mask(nodes);
    let near = stock.available().filter(|unit| unit.near.is_some_and(|near| near & mask != 0)).count();
    let available = u64::try_from(near).unwrap_or(u64::MAX);
    let resource = stock.resource.to_owned();
    (available < count).then(|| Shortage { resource, nodes: nodes.clone(), wanted: count, available })
}

/// Near, elsewhere or unknown; then the number of free devices and the position of the node that it counts
/// for.
fn rank(unit: &Unit<'_>, mask: Option<Mask>, load: &[u64]) -> (u8, u64, usize) {
    // Without chosen nodes all are equal.
    let Some(mask) = mask else { return (0, 0, 0) };
    let Some(near) = unit.near else { return (2, 0, 0) };
    let (class, nodes) = if near & mask == 0 { (1, near) } else { (0, near & mask) };
    let of_node = |node: usize| (load.get(node).copied().unwrap_or(0), node);
    let (devices, node) = positions(nodes).map(of_node).min().unwrap_or_default();
    (class, devices, node)
}

fn free_by_node(stock: &DeviceStock<'_>) -> Vec<u64> {
    let mut load = vec![0; stock.nodes.len()];
    for node in stock.available().filter_map(|unit| unit.near).flat_map(positions) {
        if let Some(devices) = load.get_mut(node) {
            *devices += 1;
        }
    }
    load
}

fn unavailable(stock: &DeviceStock<'_>, count: u64, available: usize) -> Rejection {
    let resource = stock.resource.to_owned();
    let problem = RejectionProblem::Devices { resource, requested: count, available };
    let shortage = Shortage {
        resource: stock.resource.to_owned(),
        nodes: stock.nodes.ids().iter().copied().collect(),
        wanted: count,
        available: u64::try_from(available).unwrap_or(u64::MAX),
    };
    Rejection::new(RejectionReason::UnexpectedAdmissionError, problem)
        .short_of(vec![shortage], &[stock.room()])
}
