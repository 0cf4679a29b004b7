//! Conversions between NRI messages and the ledger's types.
//!
//! Invariant: nothing is decided here.

use std::{collections::HashMap, path::Path};

use enforcer_core::{
    dra::binding::named_claims,
    hosted::{Announced, Cpuset},
    owner::KnownContainer,
    parse::scalar,
};

use enforcer_runtime::nri::{
    api::{
        Container, ContainerUpdate, LinuxCpu, LinuxResources, LinuxUpdate, Mount, OptionalUint, PodSandbox,
    },
    marks::known,
    request::{container_cgroup, pod_request},
};

/// Where a container finds its resource files.
const EXPOSED_AT: &str = "/.numa-enforcer";

/// `CONTAINER_STOPPED` of NRI.
pub(super) const STOPPED: i32 = 4;

/// Containers of existing pods that have not ended.
pub(super) fn listed(pods: &[PodSandbox], containers: &[Container]) -> Vec<(Announced, KnownContainer)> {
    let by_id: HashMap<&str, &PodSandbox> = pods.iter().map(|pod| (pod.id.as_str(), pod)).collect();
    let there = containers.iter().filter(|container| container.state != STOPPED);
    there.filter_map(|one| Some(both(by_id.get(one.pod_sandbox_id.as_str())?, one))).collect()
}

/// A container as announced, with its own claims.
pub(super) fn both(pod: &PodSandbox, container: &Container) -> (Announced, KnownContainer) {
    (announced(pod, container), known(pod, container))
}

/// The announcement of a container.
pub(super) fn announced(pod: &PodSandbox, container: &Container) -> Announced {
    let cpu = resources_of(container).and_then(|resources| resources.cpu.as_ref());
    let cpus = cpu.and_then(|cpu| scalar::list(&cpu.cpus).ok()).filter(|cpus| !cpus.is_empty());
    let mems = cpu.and_then(|cpu| scalar::list(&cpu.mems).ok()).filter(|mems| !mems.is_empty());
    let devices = container.cdi_devices.iter().map(|device| device.name.as_str());
    let variables = container.env.iter().map(String::as_str);
    Announced {
        id: container.id.clone(),
        cgroup: container_cgroup(container),
        pod: pod_request(pod, [container]),
        now: Cpuset { cpus, mems },
        shown: None,
        given: None,
        named_claims: named_claims(devices, variables),
        claimed: None,
        opts_out: false,
    }
}

/// The resources that the runtime has stored for a container.
pub(super) fn resources_of(container: &Container) -> Option<&LinuxResources> {
    container.linux.as_ref()?.resources.as_ref()
}

/// `cpu.shares` in a message.
pub(super) fn shares(resources: Option<&LinuxResources>) -> Option<u64> {
    resources?.cpu.as_ref()?.shares.map(|shares| shares.value)
}

/// Sets the shares of the grant where they differ. A container created without shares keeps its runtime's.
pub(super) fn share(resources: &mut LinuxResources, given: Option<u64>, has: Option<u64>) {
    if let Some(given) = given.filter(|given| has.is_some_and(|has| has != *given)) {
        resources.cpu.get_or_insert_default().shares = Some(OptionalUint { value: given });
    }
}

/// Read-only, non-executable mount of a container's resource files.
pub(super) fn mount(dir: &Path) -> Mount {
    Mount {
        destination: EXPOSED_AT.to_owned(),
        r#type: "bind".to_owned(),
        source: dir.to_string_lossy().into_owned(),
        options: ["bind", "ro", "nosuid", "nodev", "noexec"].map(str::to_owned).into(),
    }
}

/// Update of a running container to this cpuset.
pub(super) fn update_of(container_id: String, cpuset: &Cpuset) -> ContainerUpdate {
    let linux = LinuxUpdate { resources: Some(resources(cpuset)) };
    // A container that ends in between is no error.
    ContainerUpdate { container_id, linux: Some(linux), ignore_failure: true }
}

/// Resources with this cpuset.
pub(super) fn resources(cpuset: &Cpuset) -> LinuxResources {
    let cpus = cpuset.cpus.as_ref().map(ToString::to_string).unwrap_or_default();
    let mems = cpuset.mems.as_ref().map(ToString::to_string).unwrap_or_default();
    LinuxResources { cpu: Some(LinuxCpu { cpus, mems, ..LinuxCpu::default() }), ..LinuxResources::default() }
}
