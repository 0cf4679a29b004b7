//! Pods and machines for the tests of placement: a test states only what matters to it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    Admission, Allocations, ContainerKind, ContainerRequest, DeviceUnit, Grant, Holder, Inventory, PodName,
    PodRequest, Rejection, Resources, Trace, admit, pools::Documents, qos_class,
};
use crate::{
    id::NodeId,
    policy::placement::{HintsSettings, PlacementSettings, TopologyPolicy},
    topology::{MemoryKind, Topology, synth::Machine},
};

/// Bytes of a gibibyte.
pub(super) const GIB: u64 = 1 << 30;

/// A container with limits equal to its requests.
pub(super) fn container(name: &str, milli_cpus: u64, memory_bytes: u64) -> ContainerRequest {
    let amounts = Resources {
        milli_cpus: Some(milli_cpus).filter(|millis| *millis > 0),
        memory_bytes: Some(memory_bytes).filter(|bytes| *bytes > 0),
        hugepages: BTreeMap::new(),
    };
    ContainerRequest {
        name: name.into(),
        requests: amounts.clone(),
        limits: amounts,
        ..ContainerRequest::default()
    }
}

impl ContainerRequest {
    pub(super) fn kind(mut self, kind: ContainerKind) -> Self {
        self.kind = kind;
        self
    }

    pub(super) fn device(mut self, resource: &str, count: u64) -> Self {
        self.devices.insert(resource.into(), count);
        self
    }

    pub(super) fn without_limits(mut self) -> Self {
        self.limits = Resources::default();
        self
    }
}

/// A pod of the namespace `default`; its class is computed.
pub(super) fn pod(name: &str, containers: Vec<ContainerRequest>) -> PodRequest {
    PodRequest {
        name: PodName::new("default", name),
        qos: qos_class(&containers),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        documents: Documents::new(),
        containers,
        previous: BTreeMap::new(),
    }
}

/// A machine and its allocations.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) inventory: Inventory,
    pub(super) settings: PlacementSettings,
    pub(super) allocations: Allocations,
}

impl Host {
    pub(super) fn new(machine: Topology, hints: HintsSettings) -> Self {
        Self::with(machine, Vec::new(), PlacementSettings { hints, ..PlacementSettings::default() })
    }

    pub(super) fn with(machine: Topology, devices: Vec<DeviceUnit>, settings: PlacementSettings) -> Self {
        let inventory = Inventory::new(machine, devices, &settings).unwrap();
        Self { inventory, settings, allocations: Allocations::default() }
    }

    pub(super) fn admit(&mut self, pod: &PodRequest) -> Result<Admission, Rejection> {
        admit(&self.inventory, &self.settings, &mut self.allocations, pod, &mut Trace::default())
    }

    pub(super) fn grant(&self, pod: &str, container: &str) -> &Grant {
        let pod = PodName::new("default", pod);
        self.allocations.get(&Holder::new(pod, container.into())).unwrap()
    }

    /// CPUs and memory nodes of a container.
    pub(super) fn place(&self, pod: &str, container: &str) -> (String, String) {
        let grant = self.grant(pod, container);
        let taken = self.allocations.exclusive_cpus();
        (grant.cpus(&taken).to_string(), grant.mems(&taken).to_string())
    }
}

/// Settings with this policy.
pub(super) fn policy(policy: TopologyPolicy) -> HintsSettings {
    HintsSettings { policy, ..HintsSettings::default() }
}

/// Devices `NAME0`, `NAME1`... of one resource, each near the nodes of the list.
pub(super) fn devices(resource: &str, near: &[&str]) -> Vec<DeviceUnit> {
    let unit = |(index, nodes): (usize, &&str)| DeviceUnit {
        resource: resource.into(),
        id: format!("d{index}"),
        nodes: nodes.parse().unwrap(),
    };
    near.iter().enumerate().map(unit).collect()
}

/// Small machines of many shapes: sockets of several nodes, nodes without memory, slower memory beside some.
pub(super) fn any_machine() -> impl Strategy<Value = Topology> {
    let shape = (1u32..=3, 1u32..=2, 1u32..=3, 1u32..=2);
    let slow = proptest::collection::vec((0u32..6, prop::sample::select(vec![1u64, 4]), any::<bool>()), 0..3);
    let memless = proptest::collection::vec(prop::bool::weighted(0.2), 6);
    (shape, 1u64..=8, slow, memless).prop_map(|((sockets, nodes, cores, threads), gib, slow, memless)| {
        let machine = Machine::new().sockets(sockets).nodes_per_socket(nodes).cores(cores).threads(threads);
        let mut machine = machine.memory_gib(gib);
        for (index, (beside, gib, cxl)) in (0u32..).zip(slow) {
            let kind = if cxl { MemoryKind::Cxl } else { MemoryKind::Pmem };
            let beside = NodeId(beside % (sockets * nodes));
            machine = machine.memory_only(NodeId(20 + index), gib, kind, beside);
        }
        let mut machine = machine.build();
        let several = machine.nodes.len() > 1;
        for (node, memless) in machine.nodes.iter_mut().skip(1).zip(memless) {
            if memless && several && !node.cpus.is_empty() {
                (node.mem_total_bytes, node.mem_free_bytes) = (Some(0), Some(0));
                node.kind = MemoryKind::None;
            }
        }
        machine
    })
}
