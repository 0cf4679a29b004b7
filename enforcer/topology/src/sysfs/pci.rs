//! PCI devices with a place that matters: network, NVMe and other storage, GPUs, accelerators.
//!
//! `/sys/bus/pci/devices` holds a link per device. Copies of sysfs sometimes lose links; then the
//! devices are looked for in the tree of bridges below `/sys/devices/pci*`. A kernel that does not write
//! `numa_node` may still list the CPUs that are local to a device.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    Device, DeviceClass, Node,
    id::NodeId,
    parse::scalar,
    set::{CpuSet, NodeSet},
};

use super::{
    memory::Gpus,
    source::{Source, SourceEffect},
};

const PCI: SourceEffect = SourceEffect { source: "pci", effect: "the node of some devices is not known" };

/// Directories that are visited in the tree of bridges, at most.
const VISIT_LIMIT: usize = 16_384;

/// Below a device, one directory per subsystem that gives it a name.
const SUBSYSTEMS: [&str; 5] = ["net", "nvme", "drm", "infiniband", "block"];

/// The devices. Memory of a GPU is noted to be closest to the CPU node of that GPU.
pub(super) fn read(source: &mut Source<'_>, nodes: &mut [Node], gpus: &Gpus) -> Vec<Device> {
    let mut paths = on_the_bus(source);
    if paths.is_empty() {
        paths = below_bridges(source);
    }
    for (memory, addresses) in gpus {
        let near = |address: &String| {
            let address = address.to_ascii_lowercase();
            node_with_cpus(source, paths.get(&address)?, nodes)
        };
        let near: NodeSet = addresses.iter().filter_map(near).collect();
        if let Some(node) = nodes.iter_mut().find(|node| node.id == *memory) {
            node.closest_cpu_node = near.first().filter(|_| near.len() == 1);
        }
    }
    paths.into_iter().filter_map(|(address, path)| read_device(source, address, &path, nodes)).collect()
}

fn on_the_bus(source: &mut Source<'_>) -> BTreeMap<String, PathBuf> {
    let dir = source.files.sys().join("bus/pci/devices");
    let names = source.names(&PCI, &dir).into_iter().filter(|name| is_address(name));
    names
        .map(|name| (name.clone(), dir.join(name)))
        .filter(|(_, path)| source.files.exists(&path.join("class")))
        .collect()
}

fn below_bridges(source: &mut Source<'_>) -> BTreeMap<String, PathBuf> {
    let devices = source.files.sys().join("devices");
    let roots = source.names(&PCI, &devices).into_iter().filter(|name| name.starts_with("pci"));
    let mut open: Vec<PathBuf> = roots.map(|name| devices.join(name)).collect();
    let mut found = BTreeMap::new();
    let mut visits = 0;
    while let Some(dir) = open.pop() {
        visits += 1;
        if visits > VISIT_LIMIT {
            source.lost(&PCI, format_args!("{}: more than {VISIT_LIMIT} directories", devices.display()));
            break;
        }
        for name in source.names(&PCI, &dir) {
            let path = dir.join(&name);
            // The bridges are a tree only without the links.
            if is_address(&name) && source.files.link(&path).is_none() && source.files.is_dir(&path) {
                open.push(path.clone());
                found.insert(name, path);
            }
        }
    }
    found
}

/// `0000:3b:00.0`; the domain may be longer (VMD: `10000:01:00.0`).
fn is_address(name: &str) -> bool {
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = name.split([':', '.']);
    let four = [parts.next(), parts.next(), parts.next(), parts.next()];
    parts.next().is_none() && four.iter().all(|part| part.is_some_and(hex))
}

fn read_device(source: &mut Source<'_>, address: String, dir: &Path, nodes: &[Node]) -> Option<Device> {
    let class = class_of(source.value(&PCI, &dir.join("class"), scalar::hexadecimal)?)?;
    let path = dir.join("numa_node");
    let given = source.value(&PCI, &path, scalar::signed);
    let node = given.and_then(|node| u32::try_from(node).ok()).map(NodeId);
    let known = node.filter(|id| nodes.iter().any(|node| node.id == *id));
    if let (Some(node), None) = (node, known) {
        source.lost(&PCI, format_args!("{}: there is no node {node}", path.display()));
    }
    // -1 says that it is near to none in particular, and then its CPUs say nothing else.
    let known = if given.is_none() { node_of_local_cpus(source, dir, nodes) } else { known };
    Some(Device { address, class, names: names_of(source, dir), node: known })
}

/// The node of a device, if it has CPUs, else that of its CPUs: the node of a GPU may be its own memory.
fn node_with_cpus(source: &mut Source<'_>, dir: &Path, nodes: &[Node]) -> Option<NodeId> {
    let given = source.value(&PCI, &dir.join("numa_node"), scalar::signed);
    let given = given.and_then(|node| u32::try_from(node).ok()).map(NodeId);
    let with_cpus = nodes.iter().find(|node| given == Some(node.id) && !node.cpus.is_empty());
    with_cpus.map(|node| node.id).or_else(|| node_of_local_cpus(source, dir, nodes))
}

/// The node that all CPUs local to a device belong to, if it is exactly one.
fn node_of_local_cpus(source: &mut Source<'_>, dir: &Path, nodes: &[Node]) -> Option<NodeId> {
    let cpus: CpuSet = source.ids(&PCI, dir, &["local_cpulist"], &["local_cpus"])?;
    let mut near = nodes.iter().filter(|node| !node.cpus.is_disjoint(&cpus)).map(|node| node.id);
    near.next().filter(|_| near.next().is_none())
}

/// Base class and subclass of the PCI Code and ID Assignment Specification.
fn class_of(code: u32) -> Option<DeviceClass> {
    match code >> 8 {
        0x0108 => Some(DeviceClass::Nvme),
        0x0100..=0x01ff => Some(DeviceClass::Storage),
        // 0x0c06 is InfiniBand.
        0x0200..=0x02ff | 0x0c06 => Some(DeviceClass::Network),
        0x0300..=0x03ff | 0x1200 => Some(DeviceClass::Gpu),
        0x0b40 | 0x1201..=0x12ff => Some(DeviceClass::Accelerator),
        _ => None,
    }
}

/// Names that user space knows; a virtio device has them one level down.
fn names_of(source: &mut Source<'_>, dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let entries = source.names(&PCI, dir);
    let mut holders = vec![(dir.to_owned(), entries.clone())];
    for virtio in entries.into_iter().filter(|name| name.starts_with("virtio")) {
        let path = dir.join(virtio);
        let below = source.names(&PCI, &path);
        holders.push((path, below));
    }
    for (holder, entries) in holders {
        for entry in entries {
            match entry.split_once(':') {
                // Before 2.6.25: one link `net:eth0` instead of a directory.
                Some((subsystem, name)) if SUBSYSTEMS.contains(&subsystem) => names.push(name.to_owned()),
                None if SUBSYSTEMS.contains(&entry.as_str()) => {
                    names.extend(source.names(&PCI, &holder.join(entry)));
                }
                _ => {}
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_codes_name_what_a_device_is_for() {
        for (code, class) in [
            (0x01_0802, Some(DeviceClass::Nvme)),
            (0x01_0601, Some(DeviceClass::Storage)),
            (0x02_8000, Some(DeviceClass::Network)),
            (0x0c_0600, Some(DeviceClass::Network)),
            (0x03_0200, Some(DeviceClass::Gpu)),
            (0x12_0000, Some(DeviceClass::Gpu)),
            (0x0b_4000, Some(DeviceClass::Accelerator)),
            (0x06_0400, None),
            (u32::MAX, None),
        ] {
            assert_eq!(class_of(code), class, "{code:#x}");
        }
    }

    #[test]
    fn addresses_are_domain_bus_device_function() {
        assert!(is_address("0000:3b:00.0") && is_address("10000:01:00.1"));
        assert!(!is_address("0000:3b:00") && !is_address("pci0000:00") && !is_address("0000:00:00.0:pcie01"));
    }
}
