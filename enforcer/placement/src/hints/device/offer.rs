//! Sets of nodes that the devices of a resource offer.
//!
//! Devices are counted by the set of nodes that they are near; there are few such sets. If sets are not
//! listed, the offer is a threshold, and a device near several nodes counts at the lowest of them.

use std::collections::BTreeMap;

use super::{
    DeviceStock,
    stock::{DeviceAvailability, Unit},
};
use crate::hints::{Mask, Need, Offer, Table, Threshold, narrowest::narrowest, positions};

/// Number of devices by their near nodes.
type CountsByNodes = BTreeMap<Mask, u64>;

/// Offer of the devices of a resource for a request.
pub fn offer(stock: &DeviceStock<'_>, count: u64) -> Offer {
    let known = stock.units.iter().any(|unit| unit.near.is_some());
    if count == 0 || !known && !stock.units.is_empty() {
        return Offer::NoPreference;
    }
    if u64::try_from(stock.available().count()).is_ok_and(|available| available < count) {
        return Offer::Listed(Vec::new());
    }
    let keeps = stock.keeps(count);
    let usable = |unit: &&Unit<'_>| {
        if keeps { unit.state == DeviceAvailability::Held } else { unit.state != DeviceAvailability::Taken }
    };
    let all = counts(stock.units.iter());
    let now = counts(stock.units.iter().filter(usable));
    let reusable =
        counts(stock.units.iter().filter(|unit| !keeps && unit.state == DeviceAvailability::Reusable));
    let nodes = stock.nodes.len();
    if !stock.nodes.is_listed() {
        let Some(width) = narrowest(&[need(&all, nodes, count)]) else { return Offer::Listed(Vec::new()) };
        let must = reusable.keys().fold(0, |must, near| must | near & near.wrapping_neg());
        return Offer::Threshold(Threshold { needs: vec![need(&now, nodes, count)], width, must });
    }
    let (all, now) = (Table::of_near(nodes, all), Table::of_near(nodes, now));
    let does = |mask: Mask| now.at(mask) >= count && reusable.keys().all(|near| near & mask != 0);
    Offer::Listed(crate::hints::listed::list(nodes, |mask| all.at(mask) >= count, does))
}

fn counts<'a>(units: impl Iterator<Item = &'a Unit<'a>>) -> CountsByNodes {
    let mut counts = CountsByNodes::new();
    for near in units.filter_map(|unit| unit.near) {
        *counts.entry(near).or_insert(0) += 1;
    }
    counts
}

fn need(counts: &CountsByNodes, nodes: usize, amount: u64) -> Need {
    let mut free = vec![0u64; nodes];
    for (near, count) in counts {
        if let Some(sum) = positions(*near).next().and_then(|node| free.get_mut(node)) {
            *sum += count;
        }
    }
    Need { free, amount }
}
