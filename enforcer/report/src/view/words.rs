//! Words for kinds and settings; no text here comes from outside.

use enforcer_core::{sample::HostSettings, workload::Origin};
use numa_topology::{DeviceClass, MemoryKind};

/// Kind of workload.
pub(crate) const fn origin(origin: &Origin) -> &'static str {
    match origin {
        Origin::Pod { .. } => "pod",
        Origin::Container { .. } => "container",
        Origin::Unit { .. } => "unit",
        Origin::VirtualMachine { .. } => "machine",
        Origin::Cgroup => "cgroup",
        Origin::Process { .. } => "process",
    }
}

/// Word for the class of a device.
pub(crate) const fn device_class(class: DeviceClass) -> &'static str {
    match class {
        DeviceClass::Nvme => "NVMe",
        DeviceClass::Storage => "storage",
        DeviceClass::Network => "network",
        DeviceClass::Gpu => "GPU",
        DeviceClass::Accelerator => "accelerator",
        DeviceClass::Other => "device",
    }
}

/// Settings that change what the figures mean; those that could not be read are left out.
pub(crate) fn settings(settings: &HostSettings) -> String {
    let on = |value: bool| if value { "on" } else { "off" };
    let balancing = settings.numa_balancing.map(|mode| match mode {
        0 => "NUMA balancing off".to_owned(),
        1 => "NUMA balancing on".to_owned(),
        2 => "memory tiering on".to_owned(),
        mode => format!("NUMA balancing mode {mode}"),
    });
    let parts: Vec<String> = [
        balancing,
        settings.transparent_hugepage.as_ref().map(|thp| format!("transparent huge pages {thp}")),
        settings.zone_reclaim_mode.map(|mode| format!("zone_reclaim_mode {mode}")),
        settings.demotion_enabled.map(|demotion| format!("demotion {}", on(demotion))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() { "unknown".into() } else { parts.join(", ") }
}

/// The word for a kind of memory.
pub(crate) const fn memory_kind(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Dram => "DRAM",
        MemoryKind::Pmem => "PMEM",
        MemoryKind::Cxl => "CXL",
        MemoryKind::Hbm => "HBM",
        MemoryKind::Gpu => "GPU memory",
        MemoryKind::None => "no memory",
        MemoryKind::Unknown => "memory of unknown kind",
    }
}

/// The same in a few letters; nothing for no memory.
pub(crate) const fn short_memory_kind(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Gpu => "GPU",
        MemoryKind::Unknown => "?",
        MemoryKind::None => "",
        named => memory_kind(named),
    }
}
