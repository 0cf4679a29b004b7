//! Sandboxes of pods: the containers of a runtime that hold a pod's namespaces (`pause`).
//!
//! Problem: each pod has one, with a cgroup of its own, and it looks like a container without a name. It does
//! nothing and owns nothing, so it is no workload. Idea: every call about a container has its pod with it,
//! and the id of a pod is that of its sandbox.
//!
//! Invariant: what is known of a sandbox goes with its pod, or with the next list of its runtime.

use enforcer_core::workload::{CgroupPath, Origin, Workload, printable};

use super::{NAME_LIMIT, Placed, State};
use enforcer_runtime::nri::api::PodSandbox;

impl State {
    /// A runtime tells of a pod.
    pub(in crate::engine) fn has_pod(&mut self, pod: &PodSandbox) {
        if !pod.id.is_empty() && !self.sandboxes.contains_key(&pod.id) {
            let name = printable(&format!("{}/{} (sandbox)", pod.namespace, pod.name));
            self.sandboxes.insert(pod.id.clone(), name.chars().take(NAME_LIMIT).collect());
        }
    }

    /// These are all pods that there are.
    pub(in crate::engine) fn only_pods(&mut self, pods: &[PodSandbox]) {
        self.sandboxes.clear();
        for pod in pods {
            self.has_pod(pod);
        }
    }

    /// A pod is gone.
    pub(in crate::engine) fn pod_is_gone(&mut self, pod: &PodSandbox) {
        self.sandboxes.remove(&pod.id);
    }
}

impl Placed {
    /// Takes the sandboxes of pods out of the workloads. Returns their cgroups, with the names of their pods.
    pub(in crate::engine) fn without_sandboxes(
        &self,
        workloads: &mut Vec<Workload>,
    ) -> Vec<(CgroupPath, String)> {
        let state = self.lock();
        let name = |workload: &Workload| match &workload.origin {
            Origin::Pod { container_id: Some(id), .. } => state.sandboxes.get(id),
            _ => None,
        };
        let sandboxes = workloads.extract_if(.., |workload| name(workload).is_some());
        sandboxes.map(|one| (one.cgroup.clone(), name(&one).cloned().unwrap_or_default())).collect()
    }
}
