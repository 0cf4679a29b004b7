//! A pod that arrives at a node where this daemon places containers.
//!
//! Problem: a scheduler has the pod's manifest; the daemon sees its containers one by one, as the kernel
//! settings that the kubelet makes of them, each init container ending before the next begins. Idea: play
//! the same calls on a copy of the grants.
//!
//! What the kubelet makes of a manifest (`pkg/kubelet/cm/helpers_linux.go`, `pkg/kubelet/qos/policy.go`,
//! 1.36):
//! a request of 2m or less is that of no request; a limit is at least 10m; the memory request of a Burstable
//! container is only left as its `oom_score_adj`, in thousandths of the machine's memory. Devices come from
//! plugins, without a request that the runtime names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use numa_placement::{
    Allocations, ContainerKind, ContainerRequest, Holder, Inventory, PodRequest, QosClass, Rejection,
    external::UNPLACED, foreign::DECISION, settings::PlacementSettings,
};
use numa_topology::Topology;

use crate::hosted::{Announced, Containers, Cpuset, PlacementNode};

/// Most of a CPU, in thousandths, that counts as no request: 2 shares stand for it.
const NO_REQUEST: u64 = 2;
/// Least limit in thousandths of a CPU: the kernel's least quota.
const LEAST_LIMIT: u64 = 10;
/// `oom_score_adj` of the most and the least privileged Burstable container.
const BURSTABLE_SCORES: (i64, i64) = (3, 999);

/// Pods that arrive together, each as far as it has come.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct Arrivals<'a> {
    pods: Vec<ArrivingPod<'a>>,
    known: Containers,
}

#[derive(Debug, Clone)]
struct ArrivingPod<'a> {
    request: &'a PodRequest,
    /// As the runtime announces them, each with the kind that only the manifest tells.
    containers: Arc<Vec<(ContainerRequest, ContainerKind)>>,
    /// Position of the next container that comes.
    next: usize,
}

impl<'a> Arrivals<'a> {
    /// These pods; containers that have a grant have come already.
    pub(in crate::cluster) fn new(
        inventory: &Inventory,
        allocations: &Allocations,
        pods: impl IntoIterator<Item = &'a PodRequest>,
    ) -> Self {
        let mut arrivals = Self::default();
        for request in pods {
            let containers = as_runtime_shows(request, &inventory.machine);
            let has_grant = |name: &str| {
                let holder = Holder::new(request.name.clone(), name.to_owned());
                allocations.get(&holder).is_some_and(|grant| grant.engine != UNPLACED)
            };
            let come = containers.iter().rposition(|(container, _)| has_grant(&container.name));
            let next = come.map_or(0, |last| last + 1);
            for (container, _) in containers.iter().take(next).filter(|(one, _)| has_grant(&one.name)) {
                arrivals.known.take_over(&announced(request, container));
            }
            arrivals.pods.push(ArrivingPod { request, containers: Arc::new(containers), next });
        }
        arrivals
    }

    /// Positions of pods of which a container is still to come; of pods that ask for the same, one.
    pub(in crate::cluster) fn coming(&self) -> Vec<usize> {
        let is_coming = |pod: &ArrivingPod<'_>| pod.next < pod.containers.len();
        // Each gets the place that was chosen for it, whichever comes first.
        let annotations = |pod: &'a PodRequest| pod.annotations.iter().filter(|(key, _)| *key != DECISION);
        let is_alike = |one: &ArrivingPod<'a>, other: &ArrivingPod<'a>| {
            let (asks, other_asks) = (one.request, other.request);
            one.next == other.next
                && (asks.qos, &asks.containers) == (other_asks.qos, &other_asks.containers)
                && asks.labels == other_asks.labels
                && annotations(asks).eq(annotations(other_asks))
        };
        let positions = 0..self.pods.len();
        let distinct = positions.filter(|at| {
            let (earlier, rest) = self.pods.split_at(*at);
            rest.first().is_some_and(|pod| is_coming(pod) && !earlier.iter().any(|one| is_alike(one, pod)))
        });
        distinct.collect()
    }

    /// Name of the pod at this position.
    pub(in crate::cluster) fn name(&self, at: usize) -> String {
        self.pods.get(at).map(|pod| pod.request.name.to_string()).unwrap_or_default()
    }

    /// Plays the next container of the pod at this position; an init container before it has ended.
    ///
    /// # Errors
    /// If the container has no place.
    pub(in crate::cluster) fn step(
        &mut self,
        (inventory, settings): (&Inventory, &PlacementSettings),
        allocations: &mut Allocations,
        at: usize,
    ) -> Result<(), Box<Rejection>> {
        let mut node = PlacementNode { inventory, settings, allocations };
        let Some(pod) = self.pods.get_mut(at) else { return Ok(()) };
        let before = pod.next.checked_sub(1).and_then(|at| pod.containers.get(at));
        if let Some((ended, ContainerKind::Init)) = before {
            self.known.end(&mut node, &id_of(pod.request, ended));
        }
        let Some((container, kind)) = pod.containers.get(pod.next) else { return Ok(()) };
        pod.next += 1;
        let mut settled = self.known.create(&mut node, &announced(pod.request, container));
        let id = id_of(pod.request, container);
        if *kind == ContainerKind::Init && pod.next == pod.containers.len() {
            self.known.end(&mut node, &id);
        }
        settled.rejections.remove(&id).map_or(Ok(()), |rejection| Err(Box::new(rejection)))
    }
}

/// Plays the arrival of all containers of a pod; the first one without a place is the answer. Grants of ended
/// init containers are free again.
///
/// # Errors
/// If a container has no place. The others have one nevertheless, as on the node.
pub(in crate::cluster) fn arrive(
    terms: (&Inventory, &PlacementSettings),
    allocations: &mut Allocations,
    pod: &PodRequest,
) -> Result<(), Box<Rejection>> {
    let mut arrivals = Arrivals::new(terms.0, allocations, [pod]);
    let mut first = Ok(());
    while !arrivals.coming().is_empty() {
        first = first.and(arrivals.step(terms, allocations, 0));
    }
    first
}

/// Id of a container among those that arrive.
fn id_of(pod: &PodRequest, container: &ContainerRequest) -> String {
    format!("{}/{}/{}", pod.name.uid, pod.name, container.name)
}

fn announced(pod: &PodRequest, container: &ContainerRequest) -> Announced {
    Announced {
        id: id_of(pod, container),
        cgroup: None,
        pod: PodRequest { containers: vec![container.clone()], previous: BTreeMap::new(), ..pod.clone() },
        now: Cpuset::default(),
        shown: None,
        given: None,
        named_claims: BTreeSet::new(),
        claimed: None,
        opts_out: false,
    }
}

/// The containers as a runtime announces them on this machine, each with its kind, which a runtime does not
/// tell.
pub fn as_runtime_shows(pod: &PodRequest, machine: &Topology) -> Vec<(ContainerRequest, ContainerKind)> {
    let totals = machine.nodes.iter().filter_map(|node| node.mem_total_bytes);
    let machine_bytes = totals.fold(0u64, u64::saturating_add);
    let shown = pod.containers.iter().map(|container| {
        let mut shown = container.clone();
        shown.requests.milli_cpus = container.requests.milli_cpus.filter(|milli| *milli > NO_REQUEST);
        shown.limits.milli_cpus =
            container.limits.milli_cpus.filter(|milli| *milli > 0).map(|milli| milli.max(LEAST_LIMIT));
        shown.limits.memory_bytes = container.limits.memory_bytes.filter(|bytes| *bytes > 0);
        shown.requests.memory_bytes = shown.limits.memory_bytes.filter(|_| pod.qos == QosClass::Guaranteed);
        shown.requests.hugepages.retain(|_, bytes| *bytes > 0);
        shown.limits.hugepages.clone_from(&shown.requests.hugepages);
        let own = oom_score_adj(pod.qos, container.requests.memory_bytes, machine_bytes);
        shown.oom_score_adj = if container.kind == ContainerKind::Sidecar {
            // No sidecar is killed before the containers that it serves.
            let apps = pod.containers.iter().filter(|one| one.kind == ContainerKind::App);
            let scores =
                apps.filter_map(|one| oom_score_adj(pod.qos, one.requests.memory_bytes, machine_bytes));
            own.min(scores.max().or(own))
        } else {
            own
        };
        shown.devices = BTreeMap::new();
        // The runtime does not tell the kinds apart.
        let kind = std::mem::take(&mut shown.kind);
        (ContainerRequest { topology_hints: Vec::new(), ..shown }, kind)
    });
    shown.collect()
}

/// The score by which the kernel chooses what to kill.
fn oom_score_adj(qos: QosClass, requested: Option<u64>, machine_bytes: u64) -> Option<i32> {
    match qos {
        QosClass::Guaranteed => Some(-997),
        QosClass::BestEffort => Some(1000),
        QosClass::Burstable => {
            let thousandths =
                (u128::from(requested.unwrap_or(0)) * 1000).checked_div(u128::from(machine_bytes))?;
            let (least, most) = BURSTABLE_SCORES;
            let score = (1000 - i64::try_from(thousandths).ok()?).clamp(least, most);
            i32::try_from(score).ok()
        }
    }
}
