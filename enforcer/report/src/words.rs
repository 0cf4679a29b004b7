//! Words that tables, the page and other outputs share.
//!
//! Only values without words in the core; no text here comes from outside.

use std::{cmp::Reverse, collections::BTreeMap};

use enforcer_core::{
    audit::{Audit, AuditedWorkload, Verdict},
    finding::Severity,
    model::accessed_bytes,
    owner::Owner,
    sample::{HostSettings, NodeBytes},
    workload::Origin,
};
use numa_topology::{DeviceClass, id::NodeId};

/// In one word.
pub(super) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Aligned => "aligned",
        Verdict::Partial => "partial",
        Verdict::Misaligned => "misaligned",
        Verdict::Unknown => "unknown",
    }
}

/// Which verdict matters most: the greatest.
pub(super) const fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Misaligned => 3,
        Verdict::Partial => 2,
        Verdict::Aligned => 1,
        Verdict::Unknown => 0,
    }
}

/// In one word.
pub(super) const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// Kind of workload.
pub(super) const fn origin(origin: &Origin) -> &'static str {
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
pub(super) const fn device_class(class: DeviceClass) -> &'static str {
    match class {
        DeviceClass::Nvme => "NVMe",
        DeviceClass::Storage => "storage",
        DeviceClass::Network => "network",
        DeviceClass::Gpu => "GPU",
        DeviceClass::Accelerator => "accelerator",
        DeviceClass::Other => "device",
    }
}

/// Name of the owner of its cpuset.
pub(super) fn owner(workload: &AuditedWorkload) -> &'static str {
    workload.owner.as_ref().map_or(Owner::Nobody, |ownership| ownership.owner).as_str()
}

/// Nodes with any memory, most first.
pub(super) fn most_first(by_node: &BTreeMap<NodeId, NodeBytes>) -> Vec<(u64, NodeId)> {
    let sizes = by_node.iter().map(|(node, of)| (bytes(of), *node));
    let mut sizes: Vec<(u64, NodeId)> = sizes.filter(|(size, _)| *size > 0).collect();
    sizes.sort_by_key(|(size, node)| (Reverse(*size), *node));
    sizes
}

/// Bytes on one node; `shmem` is part of `file` and must not be counted twice.
pub(super) fn bytes(bytes: &NodeBytes) -> u64 {
    accessed_bytes(bytes).saturating_add(bytes.kernel.unwrap_or(0))
}

/// Settings that change what the figures mean; those that could not be read are left out.
pub(super) fn settings(settings: &HostSettings) -> String {
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

/// Is it of a machine that was captured, and not of one that is there?
pub(super) fn is_captured(audit: &Audit) -> bool {
    audit.taken_at.is_none()
}

/// Display name of the machine.
pub(super) fn host(audit: &Audit) -> &str {
    let unnamed = if is_captured(audit) { "a captured machine" } else { "this host" };
    audit.host.hostname.as_deref().unwrap_or(unnamed)
}
