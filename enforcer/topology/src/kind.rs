//! Determines the kind of a node's memory, with the evidence.
//!
//! Problem: no kernel file says "this node is CXL". Idea: ask the sources from the most to the least certain
//! and keep each answer: the driver that brought the memory online (a DAX device below an NVDIMM bus, below a
//! CXL region; a GPU driver), its performance relative to ordinary memory (HMAT), the kernel's own ranking
//! (memory tier), and whether it has CPUs.
//!
//! Invariant: a guess is never reported as a kind. A slow node without a known device is `Unknown`, with the
//! figures as evidence. Size is no evidence. A node without CPUs is not PMEM for that reason alone. A common
//! tier does not prove equal memory: a hot-plugged node without HMAT is in the tier of DRAM.

use super::{Hmat, MemoryKind};

/// The device that a node's memory came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryDevice {
    /// Origin of the memory.
    pub origin: MemoryOrigin,
    /// Where that is reported: `path: value`.
    pub evidence: String,
}

/// Driver or device that brought memory online.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryOrigin {
    /// The driver of a GPU.
    Gpu,
    /// DAX below an NVDIMM bus.
    Nvdimm,
    /// DAX below a CXL region.
    CxlRegion,
    /// DAX of memory that firmware reserved as special purpose: HBM or CXL memory.
    SpecialPurpose,
}

/// Known facts about one node.
#[derive(Debug, Clone, Copy)]
pub struct KindFacts<'a> {
    /// `MemTotal`.
    pub mem_total_bytes: Option<u64>,
    /// Has an online CPU.
    pub has_cpus: bool,
    /// Devices that provide its memory.
    pub devices: &'a [MemoryDevice],
    /// Its own performance.
    pub hmat: Option<&'a Hmat>,
    /// Performance of the ordinary memory at its initiators.
    pub ordinary: Option<&'a Hmat>,
    /// Its memory tier, and that of ordinary memory.
    pub tiers: Option<(u32, u32)>,
}

/// The kind and its evidence, strongest first.
pub fn classify(facts: &KindFacts<'_>) -> (MemoryKind, Vec<String>) {
    if facts.mem_total_bytes == Some(0) {
        return (MemoryKind::None, vec!["meminfo: MemTotal 0 kB".to_owned()]);
    }
    let mut evidence: Vec<String> = facts.devices.iter().map(|device| device.evidence.clone()).collect();
    let performance = facts.hmat.zip(facts.ordinary).map(|(own, ordinary)| compare(own, ordinary));
    let fast = performance.as_ref().is_some_and(|p| p.fast);
    evidence.extend(performance.into_iter().flat_map(|p| p.evidence));
    if let Some((own, ordinary)) = facts.tiers.filter(|(own, ordinary)| own != ordinary) {
        evidence.push(format!("memory tier {own}, ordinary memory is in tier {ordinary}"));
    }
    if !facts.has_cpus {
        evidence.push("no online CPU".to_owned());
    }
    let origin = facts.devices.iter().map(|device| device.origin).min();
    let kind = match origin {
        Some(MemoryOrigin::Gpu) => MemoryKind::Gpu,
        Some(MemoryOrigin::Nvdimm) => MemoryKind::Pmem,
        Some(MemoryOrigin::CxlRegion) => MemoryKind::Cxl,
        Some(MemoryOrigin::SpecialPurpose) | None if fast && !facts.has_cpus => MemoryKind::Hbm,
        None if facts.has_cpus => MemoryKind::Dram,
        // Ordinary memory and special purpose memory in one node, or special purpose alone.
        Some(MemoryOrigin::SpecialPurpose) | None => MemoryKind::Unknown,
    };
    if kind == MemoryKind::Dram {
        evidence.push("has CPUs and no memory device".to_owned());
    }
    (kind, evidence)
}

struct MemoryComparison {
    fast: bool,
    evidence: Vec<String>,
}

/// Twice the bandwidth or 1.5 times the latency indicates another technology; smaller differences occur
/// between ordinary DIMMs.
fn compare(own: &Hmat, ordinary: &Hmat) -> MemoryComparison {
    let bandwidth = own.read_bandwidth_mbps.zip(ordinary.read_bandwidth_mbps);
    let latency = own.read_latency_ns.zip(ordinary.read_latency_ns);
    let fast = bandwidth.filter(|&(own, ordinary)| own / 2 > ordinary);
    let slow = latency.filter(|&(own, ordinary)| own.saturating_mul(2) > ordinary.saturating_mul(3));
    let evidence = [
        fast.map(|(own, ordinary)| format!("read_bandwidth: {own} MB/s, ordinary memory {ordinary}")),
        slow.map(|(own, ordinary)| format!("read_latency: {own} ns, ordinary memory {ordinary}")),
    ];
    MemoryComparison { fast: fast.is_some(), evidence: evidence.into_iter().flatten().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::NodeSet;

    fn hmat(latency: u64, bandwidth: u64) -> Hmat {
        Hmat {
            access_class: 1,
            initiators: NodeSet::new(),
            read_latency_ns: Some(latency),
            write_latency_ns: None,
            read_bandwidth_mbps: Some(bandwidth),
            write_bandwidth_mbps: None,
        }
    }

    fn device(origin: MemoryOrigin) -> MemoryDevice {
        MemoryDevice { origin, evidence: format!("{origin:?}") }
    }

    fn memory_only() -> KindFacts<'static> {
        KindFacts {
            mem_total_bytes: Some(1 << 30),
            has_cpus: false,
            devices: &[],
            hmat: None,
            ordinary: None,
            tiers: None,
        }
    }

    #[test]
    fn devices_name_the_kind() {
        for (origin, kind) in [
            (MemoryOrigin::Gpu, MemoryKind::Gpu),
            (MemoryOrigin::Nvdimm, MemoryKind::Pmem),
            (MemoryOrigin::CxlRegion, MemoryKind::Cxl),
            (MemoryOrigin::SpecialPurpose, MemoryKind::Unknown),
        ] {
            let devices = [device(origin)];
            assert_eq!(classify(&KindFacts { devices: &devices, ..memory_only() }).0, kind);
        }
    }

    #[test]
    fn a_node_without_cpus_is_unknown_for_that_alone() {
        let (kind, evidence) = classify(&memory_only());
        assert_eq!((kind, evidence), (MemoryKind::Unknown, vec!["no online CPU".to_owned()]));
        assert_eq!(classify(&KindFacts { has_cpus: true, ..memory_only() }).0, MemoryKind::Dram);
        assert_eq!(classify(&KindFacts { mem_total_bytes: Some(0), ..memory_only() }).0, MemoryKind::None);
    }

    #[test]
    fn twice_the_bandwidth_without_cpus_is_hbm() {
        let ordinary = hmat(100, 1000);
        let kind = |own: &Hmat, has_cpus| {
            classify(&KindFacts { hmat: Some(own), ordinary: Some(&ordinary), has_cpus, ..memory_only() }).0
        };
        assert_eq!(kind(&hmat(110, 4000), false), MemoryKind::Hbm);
        assert_eq!(kind(&hmat(110, 4000), true), MemoryKind::Dram);
        assert_eq!(kind(&hmat(110, 2000), false), MemoryKind::Unknown);
    }

    #[test]
    fn slow_memory_is_unknown_with_its_figures() {
        let (own, ordinary) = (hmat(350, 900), hmat(80, 1000));
        let facts =
            KindFacts { hmat: Some(&own), ordinary: Some(&ordinary), tiers: Some((78, 4)), ..memory_only() };
        let (kind, evidence) = classify(&facts);
        assert_eq!(kind, MemoryKind::Unknown);
        assert_eq!(
            evidence,
            [
                "read_latency: 350 ns, ordinary memory 80",
                "memory tier 78, ordinary memory is in tier 4",
                "no online CPU",
            ]
        );
    }
}
