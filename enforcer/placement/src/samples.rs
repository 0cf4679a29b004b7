//! Pods and machines for the tests of placement: a test says what matters to it.

use super::{
    Admission, Allocations, ContainerKind, ContainerRequest, DeviceUnit, Grant, Holder, Inventory, PodName,
    PodRequest, Rejection, Resources, admit,
};
use crate::settings::{HintsSettings, PlacementSettings, TopologyPolicy};
use numa_topology::Topology;

/// Bytes of a gibibyte.
pub const GIB: u64 = 1 << 30;

/// A container with limits equal to its requests.
pub fn container(name: &str, milli_cpus: u64, memory_bytes: u64) -> ContainerRequest {
    ContainerRequest::guaranteed(name, milli_cpus, memory_bytes)
}

impl ContainerRequest {
    /// Of this kind.
    #[must_use]
    pub fn kind(mut self, kind: ContainerKind) -> Self {
        self.kind = kind;
        self
    }

    /// With so many devices of a resource.
    #[must_use]
    pub fn device(mut self, resource: &str, count: u64) -> Self {
        self.devices.insert(resource.into(), count);
        self
    }

    /// Without limits.
    #[must_use]
    pub fn without_limits(mut self) -> Self {
        self.limits = Resources::default();
        self
    }
}

/// A pod of the namespace `default`; its class is computed.
pub fn pod(name: &str, containers: Vec<ContainerRequest>) -> PodRequest {
    PodRequest::new(PodName::new("default", name), containers)
}

/// A machine and what is given away of it.
#[derive(Debug, Clone)]
pub struct Host {
    /// What the machine has.
    pub inventory: Inventory,
    /// How it places.
    pub settings: PlacementSettings,
    /// What it has given.
    pub allocations: Allocations,
}

impl Host {
    /// A host of the engine `hints`, without devices.
    pub fn new(machine: Topology, hints: HintsSettings) -> Self {
        Self::with(machine, Vec::new(), PlacementSettings { hints, ..PlacementSettings::default() })
    }

    /// A host with these devices and settings.
    ///
    /// # Panics
    /// Where the settings do not fit the machine.
    #[expect(clippy::unwrap_used, reason = "a fixture of tests")]
    pub fn with(machine: Topology, devices: Vec<DeviceUnit>, settings: PlacementSettings) -> Self {
        let inventory = Inventory::new(machine, devices, &settings).unwrap();
        Self { inventory, settings, allocations: Allocations::default() }
    }

    /// Admits a pod.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn admit(&mut self, pod: &PodRequest) -> Result<Admission, Rejection> {
        admit(&self.inventory, &self.settings, &mut self.allocations, pod)
    }

    /// The grant of a container.
    ///
    /// # Panics
    /// Where it has none.
    #[expect(clippy::unwrap_used, reason = "a fixture of tests")]
    pub fn grant(&self, pod: &str, container: &str) -> &Grant {
        let pod = PodName::new("default", pod);
        self.allocations.get(&Holder::new(pod, container.into())).unwrap()
    }

    /// CPUs and memory nodes of a container.
    pub fn place(&self, pod: &str, container: &str) -> (String, String) {
        let grant = self.grant(pod, container);
        let taken = self.allocations.exclusive_cpus();
        (grant.cpus(&taken).to_string(), grant.mems(&taken).to_string())
    }
}

/// Settings with this policy.
pub fn policy(policy: TopologyPolicy) -> HintsSettings {
    HintsSettings { policy, ..HintsSettings::default() }
}

/// Devices `NAME0`, `NAME1`... of one resource, each near the nodes of the list.
///
/// # Panics
/// Where a list of nodes cannot be read.
#[expect(clippy::unwrap_used, reason = "a fixture of tests")]
pub fn devices(resource: &str, near: &[&str]) -> Vec<DeviceUnit> {
    let unit = |(index, nodes): (usize, &&str)| DeviceUnit {
        resource: resource.into(),
        id: format!("d{index}"),
        nodes: nodes.parse().unwrap(),
    };
    near.iter().enumerate().map(unit).collect()
}
