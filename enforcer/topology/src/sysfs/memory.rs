//! What the memory of each node is: the devices that brought it online, the kernel's memory tiers,
//! and the verdict of [`crate::kind`].
//!
//! A DAX device gives its memory to node `target_node` once the kmem driver holds it
//! (Documentation/ABI/testing/sysfs-bus-dax); where it comes from is in its device path. Memory of
//! GPUs is named by NVIDIA's driver in `/proc/driver/nvidia/gpus/*/numa_status`.

use std::{collections::BTreeMap, path::Path};

use crate::{
    Hmat, MemoryKind, MemoryTier, Node,
    id::NodeId,
    kind::{self, KindFacts, MemoryDevice, MemoryOrigin},
    parse::{ParseError, scalar},
};

use super::source::{Source, SourceEffect};

const KIND: SourceEffect =
    SourceEffect { source: "memory-kind", effect: "the kind of some nodes' memory is unknown" };
const TIERS: SourceEffect =
    SourceEffect { source: "memory-tiers", effect: "the kernel's ranking of memory is not known" };

type Devices = BTreeMap<NodeId, Vec<MemoryDevice>>;

/// Memory tiers, fastest first (`/sys/devices/virtual/memory_tiering`, since 6.1).
pub(super) fn read_tiers(source: &mut Source<'_>) -> Vec<MemoryTier> {
    let dir = source.files.sys().join("devices/virtual/memory_tiering");
    let ids = source.numbered(&TIERS, &dir, "memory_tier");
    let tier = |id: u32| {
        let path = dir.join(format!("memory_tier{id}/nodelist"));
        Some(MemoryTier { id, nodes: source.value(&TIERS, &path, scalar::list)? })
    };
    ids.into_iter().filter_map(tier).collect()
}

/// Bus addresses of GPUs by the node that their memory is.
pub(super) type Gpus = BTreeMap<NodeId, Vec<String>>;

/// Gives each node its kind and the evidence for it. Returns which GPUs' memory is a node.
pub(super) fn classify(source: &mut Source<'_>, nodes: &mut [Node], tiers: &[MemoryTier]) -> Gpus {
    let mut devices = read_dax(source);
    let gpus = read_gpus(source);
    for (node, addresses) in &gpus {
        devices.entry(*node).or_default().extend(addresses.iter().map(|address| MemoryDevice {
            origin: MemoryOrigin::Gpu,
            evidence: format!("/proc/driver/nvidia/gpus/{address}/numa_status: Node {node}"),
        }));
    }
    let tier_of = |id: NodeId| tiers.iter().find(|tier| tier.nodes.contains(id)).map(|tier| tier.id);
    let ordinary: Vec<(NodeId, Option<Hmat>)> =
        nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| (node.id, node.hmat.clone())).collect();
    let ordinary_tier = ordinary.iter().filter_map(|(id, _)| tier_of(*id)).min();
    for node in nodes {
        let near = |id: NodeId| node.hmat.as_ref().is_some_and(|hmat| hmat.initiators.contains(id));
        let others = || ordinary.iter().filter(|(id, hmat)| *id != node.id && hmat.is_some());
        let beside = others().find(|(id, _)| near(*id)).or_else(|| others().next());
        let facts = KindFacts {
            mem_total_bytes: node.mem_total_bytes,
            has_cpus: !node.cpus.is_empty(),
            devices: devices.get(&node.id).map_or(&[], Vec::as_slice),
            hmat: node.hmat.as_ref(),
            ordinary: beside.and_then(|(_, hmat)| hmat.as_ref()),
            tiers: tier_of(node.id).zip(ordinary_tier),
        };
        (node.kind, node.kind_evidence) = kind::classify(&facts);
        if node.kind == MemoryKind::Unknown {
            let evidence = node.kind_evidence.join("; ");
            source.lost(&KIND, format_args!("node {}: nothing names its memory ({evidence})", node.id));
        }
    }
    gpus
}

fn read_dax(source: &mut Source<'_>) -> Devices {
    let bus = source.files.sys().join("bus/dax");
    let mut devices = Devices::new();
    for name in source.names(&KIND, &bus.join("devices")) {
        let path = bus.join("devices").join(&name);
        let Some(target) = source.files.link(&path) else { continue };
        let held = source.files.link(&bus.join("drivers/kmem").join(&name)).is_some();
        let node = source.value(&KIND, &path.join("target_node"), scalar::signed);
        let node = node.and_then(|node| u32::try_from(node).ok()).map(NodeId);
        if let (true, Some(node), Some(origin)) = (held, node, origin(&target)) {
            let evidence = format!("/sys/bus/dax/devices/{name}: {}", target.display());
            devices.entry(node).or_default().push(MemoryDevice { origin, evidence });
        }
    }
    devices
}

/// Read off the path of the device: `.../ndbus0/...`, `.../dax_region0/...` below a CXL decoder,
/// `platform/hmem.1/...`.
fn origin(device: &Path) -> Option<MemoryOrigin> {
    let mut parts = device.iter().filter_map(|part| part.to_str());
    parts.find_map(|part| match part {
        _ if part.starts_with("ndbus") => Some(MemoryOrigin::Nvdimm),
        _ if part.starts_with("hmem") => Some(MemoryOrigin::SpecialPurpose),
        _ if part.contains("cxl") || part.starts_with("decoder") || part.starts_with("dax_region") => {
            Some(MemoryOrigin::CxlRegion)
        }
        _ => None,
    })
}

fn read_gpus(source: &mut Source<'_>) -> Gpus {
    let dir = source.files.proc().join("driver/nvidia/gpus");
    let mut gpus = Gpus::new();
    for address in source.names(&KIND, &dir) {
        let path = dir.join(&address).join("numa_status");
        if let Some(Some(node)) = source.value(&KIND, &path, gpu_node) {
            gpus.entry(node).or_default().push(address);
        }
    }
    gpus
}

/// The line `Node: 255`; -1 where the memory is not a node.
fn gpu_node(text: &str) -> Result<Option<NodeId>, ParseError> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix("Node:"));
    let node = value.map(scalar::signed).transpose()?;
    Ok(node.and_then(|node| u32::try_from(node).ok()).map(NodeId))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_dax_device_tells_its_origin() {
        for (path, expected) in [
            (
                "../../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region1/dax1.1/dax1.4",
                Some(MemoryOrigin::Nvdimm),
            ),
            ("../../../devices/platform/hmem.1/dax1.0", Some(MemoryOrigin::SpecialPurpose)),
            (
                "../../../devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0",
                Some(MemoryOrigin::CxlRegion),
            ),
            ("../../../devices/platform/e820_pmem/dax0.0", None),
        ] {
            assert_eq!(origin(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_gpu_names_its_node_or_none() {
        assert_eq!(gpu_node("Node:\t\t 255\nStatus: online\n"), Ok(Some(NodeId(255))));
        assert_eq!(gpu_node("Node: -1\n"), Ok(None));
        assert_eq!(gpu_node("Status: disabled\n"), Ok(None));
        assert!(gpu_node("Node: x\n").is_err());
    }
}
