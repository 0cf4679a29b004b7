//! Devices that a node can use, and what is left of the counters that they share.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    objects::{Counters, Device, DeviceNodes, Slice},
    search::{Offered, Taken},
};

/// What slices offer a node.
#[derive(Debug, Default)]
pub(super) struct Offer<'a> {
    /// Devices in the order of the scheduler.
    pub(super) devices: Vec<Offered<'a>>,
    /// What is left of counters, by driver and pool.
    pub(super) counters: BTreeMap<(String, String), Counters>,
    /// Whether devices are left out because it is not understood which nodes can use them.
    pub(super) lacks_devices: bool,
}

/// Devices for the node, of complete pools of the newest generation, in the order of the scheduler.
pub(super) fn offered<'a>(slices: impl Iterator<Item = &'a Slice>, node: &str, taken: &Taken) -> Offer<'a> {
    let mut pools: BTreeMap<(&str, &str), Vec<&Slice>> = BTreeMap::new();
    for slice in slices {
        pools.entry((&slice.driver, &slice.pool)).or_default().push(slice);
    }
    let mut offer = Offer::default();
    for (&(driver, pool), of_pool) in &pools {
        let newest = of_pool.iter().map(|slice| slice.generation).max().unwrap_or(0);
        let of_pool: Vec<_> = of_pool.iter().filter(|slice| slice.generation == newest).collect();
        let mut names = BTreeSet::new();
        let is_whole = of_pool.iter().all(|slice| slice.of_pool == of_pool.len() as u64)
            && of_pool.iter().flat_map(|slice| &slice.devices).all(|device| names.insert(&device.name));
        if !is_whole {
            continue;
        }
        let id = |device: &Device| (driver.to_owned(), pool.to_owned(), device.name.clone());
        let mut left = Counters::new();
        for slice in &of_pool {
            left.extend(slice.counters.iter().map(|(set, counters)| (set.clone(), counters.clone())));
        }
        for device in of_pool.iter().flat_map(|slice| &slice.devices) {
            let has_counters = !device.counters.is_empty();
            if has_counters && (taken.whole.contains(&id(device)) || taken.shares.contains_key(&id(device))) {
                subtract(&mut left, &device.counters);
            }
        }
        if !left.is_empty() {
            offer.counters.insert((driver.to_owned(), pool.to_owned()), left);
        }
        for slice in of_pool {
            for device in &slice.devices {
                let nodes = if slice.nodes == DeviceNodes::ByDevice { &device.nodes } else { &slice.nodes };
                match nodes {
                    DeviceNodes::One(name) if name != node => continue,
                    DeviceNodes::ByDevice | DeviceNodes::Unknown => {
                        offer.lacks_devices = true;
                        continue;
                    }
                    DeviceNodes::All | DeviceNodes::One(_) => {}
                }
                let is_of_node = matches!(nodes, DeviceNodes::One(_));
                offer.devices.push(Offered { id: id(device), device, is_of_node });
            }
        }
    }
    offer
}

fn subtract(left: &mut Counters, used: &Counters) {
    for (set, counters) in used {
        let Some(of_set) = left.get_mut(set) else { continue };
        for (name, amount) in counters {
            if let Some(left) = of_set.get_mut(name) {
                *left = left.saturating_sub(*amount);
            }
        }
    }
}
