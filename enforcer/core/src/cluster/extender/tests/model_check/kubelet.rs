//! A kubelet that admits pods one by one, and the pods that it is asked for.
//!
//! Its nodes differ: one has little memory, one aligns whole pods, one has devices. Memory of init containers
//! returns as in the memory manager: what later containers take over at their admission, the rest when the
//! next container starts.

use std::collections::BTreeSet;

use numa_placement::{Allocations, ContainerKind, ContainerRequest, Grant, QosClass, admit, remove};

use super::super::{request, state, state_of};
use crate::cluster::{
    model::NodeModel,
    objects::PodObject,
    state::{DeviceCount, DeviceSupply, NodeState, RejectedPod},
    view::take_over_init_memory,
};
use numa_placement::PodRequest;

/// The resource of all devices.
const GPU: &str = "v.com/gpu";

#[derive(Debug)]
pub(super) struct Kubelet {
    empty: NodeState,
    pub(super) model: NodeModel,
    pub(super) held: Allocations,
    /// Position in the events of the API server.
    pub(super) seen: usize,
    pub(super) admitted: BTreeSet<String>,
    pub(super) rejected: Vec<RejectedPod>,
    pub(super) states: Vec<NodeState>,
    counter: i64,
}

/// A pod of one of many kinds.
pub(super) fn pod_number(number: usize) -> PodRequest {
    let uid = format!("p{number}");
    let cpus = [1, 2, 3, 4, 6, 8][number % 6];
    let mut request = request(&uid, cpus, 1 + number as u64 % 5);
    if number.is_multiple_of(7) {
        request.containers.push(ContainerRequest::guaranteed("second", 2_000, 1 << 30));
    }
    if number % 9 == 4 {
        let gib = 1 + number as u64 % 4;
        // One with CPUs of its own is refused on some nodes because more is free there: its main container
        // must take them along. An end that comes between the choice and the binding can do that.
        let mut init = ContainerRequest::guaranteed("init", 500, gib << 30);
        init.kind = ContainerKind::Init;
        request.containers.insert(0, init);
    }
    if number % 5 == 3 {
        request.containers.last_mut().unwrap().devices.insert(GPU.into(), 1);
    }
    if number.is_multiple_of(11) {
        request.qos = QosClass::Burstable;
    }
    request
}

/// What each node has when it is empty.
pub(super) fn empty_state(name: &str) -> NodeState {
    let mut empty = state();
    match name {
        "n0" => {
            for supply in &mut empty.memory {
                (supply.allocatable, supply.free) = (7 << 30, 7 << 30);
            }
        }
        "n1" => empty.kubelet.topology_scope = "pod".into(),
        _ => {}
    }
    let near = |node: &str, total: u32| DeviceCount {
        nodes: node.parse().unwrap(),
        total,
        healthy: total,
        free: total,
    };
    empty.devices = vec![DeviceSupply { resource: GPU.into(), by_nodes: vec![near("0", 1), near("1", 2)] }];
    empty
}

impl Kubelet {
    pub(super) fn new(name: &str) -> Self {
        let empty = empty_state(name);
        let model = NodeModel::new(&empty).unwrap();
        Self {
            held: model.allocations.clone(),
            model,
            seen: 0,
            admitted: BTreeSet::new(),
            rejected: Vec::new(),
            states: vec![empty.clone()],
            empty,
            counter: 0,
        }
    }

    /// Would it admit the pod now? One of which its managers give nothing always.
    pub(super) fn admits(&self, pod: &PodObject) -> bool {
        self.try_on(&mut self.held.clone(), pod)
    }

    /// Admits the pod, or adds it to those that it has refused.
    pub(super) fn admit(&mut self, pod: &PodObject) -> bool {
        let mut held = self.held.clone();
        if self.try_on(&mut held, pod) {
            self.held = held;
            self.admitted.insert(pod.uid.clone());
            return true;
        }
        let reason = "TopologyAffinityError".to_owned();
        self.rejected.push(RejectedPod { uid: pod.uid.clone(), reason, at: 1 });
        false
    }

    fn try_on(&self, held: &mut Allocations, pod: &PodObject) -> bool {
        let request = self.model.request_of(&pod.request);
        let is_admitted = admit(&self.model.inventory, &self.model.settings, held, &request).is_ok();
        take_over_init_memory(held, &request);
        is_admitted
    }

    /// Frees what the pod holds.
    pub(super) fn free(&mut self, pod: &PodObject) {
        remove(&mut self.held, &pod.request.name);
        self.admitted.remove(&pod.uid);
    }

    /// All containers start: init containers keep their CPUs and give their memory back.
    pub(super) fn start_containers(&mut self) {
        let init = self.held.iter().filter(|(holder, _)| holder.name() == "init");
        for (holder, grant) in init.map(|(holder, grant)| (holder.clone(), grant.clone())).collect::<Vec<_>>()
        {
            self.held.give(holder, Grant { memory: Vec::new(), ..grant });
        }
    }

    /// Publishes its state.
    pub(super) fn publish(&mut self) {
        let state = self.next_state();
        self.states.push(state);
    }

    /// Its state now, with the next revision.
    pub(super) fn next_state(&mut self) -> NodeState {
        self.counter += 1;
        let of_pods = state_of(&self.held, self.counter);
        let mut state = NodeState {
            revision: of_pods.revision,
            pods: of_pods.pods,
            shared_cpus: of_pods.shared_cpus,
            rejected: self.rejected.clone(),
            ..self.empty.clone()
        };
        let used = state_of(&Allocations::default(), 0).memory.into_iter().zip(of_pods.memory);
        for (supply, (all, left)) in state.memory.iter_mut().zip(used) {
            supply.free -= all.free - left.free;
        }
        let units = self.model.inventory.devices.get(GPU).into_iter().flatten();
        let units: Vec<_> = units.collect();
        for (holder, grant) in self.held.iter().filter(|(holder, _)| !holder.pod().uid.is_empty()) {
            for id in grant.devices.get(GPU).into_iter().flatten() {
                let nodes = &units.iter().find(|unit| unit.id == *id).unwrap().nodes;
                let group = state.devices[0].by_nodes.iter_mut().find(|group| group.nodes == *nodes).unwrap();
                group.free -= 1;
                let pod = state.pods.iter_mut().find(|pod| pod.uid == holder.pod().uid).unwrap();
                let container = pod.containers.iter_mut().find(|held| held.name == holder.name()).unwrap();
                *container.devices.entry(GPU.into()).or_default().entry(nodes.to_string()).or_default() += 1;
            }
        }
        state
    }
}
