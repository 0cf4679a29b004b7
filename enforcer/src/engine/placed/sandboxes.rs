//! Sandboxes of pods: the runtime's containers that hold a pod's namespaces (`pause`).
//!
//! Problem: each pod has one, with a cgroup of its own, and it looks like a container without a name. It runs
//! nothing, so it is no workload. Idea: every call about a container carries its pod, and the pod's id is
//! that of its sandbox.
//!
//! Invariant: a sandbox is forgotten with its pod, or with the runtime's next list.

use enforcer_core::workload::{CgroupPath, Origin, Workload, printable};

use super::{
    SharedLedger,
    roster::{ContainerRoster, NAME_LIMIT},
};
use enforcer_runtime::nri::api::PodSandbox;

impl ContainerRoster {
    /// Notes the sandbox of a pod.
    pub(in crate::engine) fn add_pod(&mut self, pod: &PodSandbox) {
        if !pod.id.is_empty() && !self.sandboxes.contains_key(&pod.id) {
            let name = printable(&format!("{}/{} (sandbox)", pod.namespace, pod.name));
            self.sandboxes.insert(pod.id.clone(), name.chars().take(NAME_LIMIT).collect());
        }
    }

    /// Replaces the list of pods.
    pub(in crate::engine) fn set_pods(&mut self, pods: &[PodSandbox]) {
        self.sandboxes.clear();
        for pod in pods {
            self.add_pod(pod);
        }
    }

    /// Forgets the sandbox of a removed pod.
    pub(in crate::engine) fn remove_pod(&mut self, pod: &PodSandbox) {
        self.sandboxes.remove(&pod.id);
    }
}

impl SharedLedger {
    /// Removes sandboxes from the workloads. Returns their cgroups and their pods' names.
    pub(in crate::engine) fn without_sandboxes(
        &self,
        workloads: &mut Vec<Workload>,
    ) -> Vec<(CgroupPath, String)> {
        let state = self.lock();
        let name = |workload: &Workload| match &workload.origin {
            Origin::Pod { container_id: Some(id), .. } => state.roster.sandboxes.get(id),
            _ => None,
        };
        let sandboxes = workloads.extract_if(.., |workload| name(workload).is_some());
        sandboxes.map(|one| (one.cgroup.clone(), name(&one).cloned().unwrap_or_default())).collect()
    }
}
