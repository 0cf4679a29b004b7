//! A view against a kubelet that frees early what pods held, and that takes pods late.

use std::collections::VecDeque;

use super::*;
use crate::cluster::state::{DeviceCount, DeviceSupply, RejectedPod};

const GPU: &str = "v.com/gpu";

/// What happens to pods, or a state that the node takes down or that arrives; numbers choose among what is
/// there.
#[derive(Debug, Clone, Copy)]
enum ClusterEvent {
    /// A pod is bound where the view has a place, or chosen for it where a scheduler binds.
    Send(usize),
    /// A chosen pod is bound.
    Land(usize),
    /// Pods come by hand within one second, and in this order or the other one.
    Together(usize, usize, bool),
    KubeletSees,
    /// A pod ends; the kubelet frees what it held.
    End(usize),
    EndIsShown(usize),
    TakeDown,
    Arrive(usize),
}

fn cluster_event() -> impl Strategy<Value = ClusterEvent> {
    let at = 0..48usize;
    prop_oneof![
        8 => at.clone().prop_map(ClusterEvent::Send),
        4 => at.clone().prop_map(ClusterEvent::Land),
        1 => (at.clone(), at.clone(), any::<bool>()).prop_map(|(one, other, is_first)| {
            ClusterEvent::Together(one, other, is_first)
        }),
        8 => Just(ClusterEvent::KubeletSees),
        4 => at.clone().prop_map(ClusterEvent::End),
        2 => at.prop_map(ClusterEvent::EndIsShown),
        3 => Just(ClusterEvent::TakeDown),
        3 => (0..3usize).prop_map(ClusterEvent::Arrive),
    ]
}

/// Machines on which CPUs, memory or devices are short first.
fn empty_machine(number: usize) -> NodeState {
    let mut empty = state();
    if number % 2 == 1 {
        for (supply, gib) in empty.memory.iter_mut().zip([7, 9]) {
            (supply.allocatable, supply.free) = (gib << 30, gib << 30);
        }
    }
    if number % 4 > 1 {
        let near = |node: &str, total: u32| {
            let nodes = node.parse().unwrap();
            DeviceCount { nodes, total, healthy: total, free: total }
        };
        let by_nodes = vec![near("0", 1), near("1", 2)];
        empty.devices = vec![DeviceSupply { resource: GPU.into(), by_nodes }];
    }
    match number / 4 {
        1 => empty.kubelet.topology_scope = "pod".into(),
        2 => empty.kubelet.topology_policy = "restricted".into(),
        _ => {}
    }
    empty
}

/// A pod of one of many kinds.
fn pod_number(number: usize) -> PodRequest {
    let cpus = [1, 2, 4, 5][number % 4];
    let mut pod = asks(&format!("p{number}"), cpus, [1, 2, 3, 4][number / 4 % 4]);
    match number / 16 {
        1 => pod.containers.push(ContainerRequest::guaranteed("second", 2_000, 1 << 30)),
        2 => drop(pod.containers[0].devices.insert(GPU.into(), 1)),
        _ => {}
    }
    pod
}

/// A node, and a scheduler that sends it pods.
struct Cluster {
    /// Whether the scheduler binds pods one by one; else it chooses, and binds in any order.
    binds: bool,
    empty: NodeState,
    model: NodeModel,
    view: NodeView,
    kubelet: Holdings,
    /// Bound pods that the kubelet has not seen, and whether the view has promised them a place.
    unseen: VecDeque<(PodRequest, bool)>,
    chosen: Vec<PodRequest>,
    /// Pods that the kubelet has admitted.
    running: Vec<PodRequest>,
    /// Pods that have ended, which nothing shows.
    ended: Vec<PodRequest>,
    rejected: Vec<String>,
    states: Vec<NodeState>,
    created: usize,
}

impl Cluster {
    /// With what it admits of some first pods, as its state shows.
    fn new(binds: bool, machine: usize, first: &[PodRequest]) -> Self {
        let empty = empty_machine(machine);
        let model = NodeModel::new(&empty).unwrap();
        let mut view = NodeView::default();
        view.observe_state(&empty, 0);
        let mut cluster = Self {
            binds,
            kubelet: Holdings::new(model.allocations.clone()),
            states: vec![empty.clone()],
            empty,
            model,
            view,
            unseen: VecDeque::new(),
            chosen: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            rejected: Vec::new(),
            created: 0,
        };
        for pod in first {
            let pod = cluster.named(pod.clone());
            let mut held = cluster.kubelet.clone();
            if give(&cluster.model, &mut held, &pod).is_none() {
                cluster.kubelet = held;
                cluster.running.push(pod);
            }
        }
        cluster.take_down();
        cluster.view.observe_state(&cluster.states[1], 0);
        cluster
    }

    /// The next pod, of a kind that is drawn.
    fn create(&mut self, kind: usize) -> PodRequest {
        self.named(pod_number(kind))
    }

    fn named(&mut self, mut pod: PodRequest) -> PodRequest {
        pod.name = asks(&format!("p{}", self.created), 1, 1).name;
        self.created += 1;
        pod
    }

    fn step(&mut self, event: ClusterEvent) -> Result<(), TestCaseError> {
        match event {
            ClusterEvent::Send(kind) => {
                let pod = self.create(kind);
                let uid = pod.name.uid.clone();
                if self.binds {
                    if matches!(self.view.commit(&uid, &pod, 0), Verdict::Fits(_)) {
                        self.view.observe_bound(&uid, &pod);
                        self.unseen.push_back((pod, true));
                    }
                } else if matches!(self.view.filter_in_any_order(&pod, 0), Verdict::Fits(_)) {
                    self.view.reserve(&uid, &pod, 1_000);
                    self.chosen.push(pod);
                }
            }
            ClusterEvent::Land(at) if !self.chosen.is_empty() => {
                let pod = self.chosen.remove(at % self.chosen.len());
                self.view.observe_bound(&pod.name.uid, &pod);
                self.unseen.push_back((pod, true));
            }
            // They may take the place of a chosen one.
            ClusterEvent::Together(one, other, is_first) if self.binds => {
                let pods = [self.create(one), self.create(other)];
                let named: Vec<_> = pods.iter().map(|pod| (pod.name.uid.as_str(), pod)).collect();
                self.view.observe_bound_together(&named);
                let [one, other] = pods;
                let pods = if is_first { [one, other] } else { [other, one] };
                self.unseen.extend(pods.map(|pod| (pod, false)));
            }
            ClusterEvent::KubeletSees => return self.kubelet_sees(),
            ClusterEvent::End(at) if !self.running.is_empty() => {
                let pod = self.running.remove(at % self.running.len());
                self.kubelet.remove(&pod.name);
                self.ended.push(pod);
            }
            ClusterEvent::EndIsShown(at) if !self.ended.is_empty() => {
                let pod = self.ended.remove(at % self.ended.len());
                self.view.observe_ended(&pod.name.uid, 0);
            }
            ClusterEvent::TakeDown => self.take_down(),
            ClusterEvent::Arrive(back) => {
                self.view.observe_state(&self.states[self.states.len().saturating_sub(1 + back)], 0);
            }
            ClusterEvent::Land(_)
            | ClusterEvent::Together(..)
            | ClusterEvent::End(_)
            | ClusterEvent::EndIsShown(_) => {}
        }
        Ok(())
    }

    fn kubelet_sees(&mut self) -> Result<(), TestCaseError> {
        let Some((pod, is_promised)) = self.unseen.pop_front() else { return Ok(()) };
        let mut held = self.kubelet.clone();
        let refused = give(&self.model, &mut held, &pod);
        if refused.is_none() {
            self.kubelet = held;
            self.running.push(pod);
        } else {
            prop_assert!(
                !is_promised,
                "{} is refused beside {:?}",
                pod.name,
                exclusive(self.kubelet.allocations())
            );
            self.rejected.push(pod.name.uid.clone());
            self.ended.push(pod);
        }
        Ok(())
    }

    fn take_down(&mut self) {
        let counter = i64::try_from(self.states.len()).unwrap();
        let held = self.kubelet.allocations();
        let of_pods = state_of(held, counter);
        let mut state = NodeState {
            revision: of_pods.revision,
            pods: of_pods.pods,
            shared_cpus: of_pods.shared_cpus,
            ..self.empty.clone()
        };
        let rejected = self.rejected.iter().map(|uid| RejectedPod {
            uid: uid.clone(),
            reason: "TopologyAffinityError".into(),
            at: 1,
        });
        state.rejected = rejected.collect();
        for (supply, (all, left)) in
            state.memory.iter_mut().zip(super::state().memory.iter().zip(of_pods.memory))
        {
            supply.free -= all.free - left.free;
        }
        let pods = held.iter().filter(|(holder, _)| !holder.pod().uid.is_empty());
        for (holder, id) in pods.flat_map(|(holder, grant)| {
            grant.devices.get(GPU).into_iter().flatten().map(move |id| (holder, id))
        }) {
            let unit = self.model.inventory.devices[GPU].iter().find(|unit| unit.id == *id).unwrap();
            let groups = &mut state.devices[0].by_nodes;
            groups.iter_mut().find(|group| group.nodes == unit.nodes).unwrap().free -= 1;
            let pod = state.pods.iter_mut().find(|pod| pod.uid == holder.pod().uid).unwrap();
            let container = pod.containers.iter_mut().find(|held| held.name == holder.name()).unwrap();
            let near = container.devices.entry(GPU.into()).or_default();
            *near.entry(unit.nodes.to_string()).or_default() += 1;
        }
        self.states.push(state);
    }

    /// What is taken: CPUs, memory, and devices by their NUMA nodes, because states do not name devices.
    fn held_in(&self, held: &Holdings) -> (String, BTreeMap<String, u64>) {
        let held = held.allocations();
        let mut amounts = BTreeMap::<String, u64>::new();
        for (_, grant) in held.iter().filter(|(holder, _)| !holder.pod().uid.is_empty()) {
            for claim in &grant.memory {
                *amounts.entry(format!("memory of {}", claim.zone)).or_default() += claim.bytes;
            }
            for id in grant.devices.get(GPU).into_iter().flatten() {
                let unit = self.model.inventory.devices[GPU].iter().find(|unit| unit.id == *id).unwrap();
                *amounts.entry(format!("devices of {}", unit.nodes)).or_default() += 1;
            }
        }
        (held.exclusive_cpus().to_string(), amounts)
    }

    /// Where nothing is hidden or in doubt, the view has what the kubelet has.
    fn check(&self) -> Result<(), TestCaseError> {
        let is_seen = self.ended.is_empty() && self.unseen.is_empty();
        if is_seen && self.view.unordered.is_empty() && self.view.doubt().is_none() {
            prop_assert_eq!(self.held_in(&self.view.bound), self.held_in(&self.kubelet));
        }
        Ok(())
    }

    /// Everything arrives.
    fn quiesce(&mut self) -> Result<(), TestCaseError> {
        while !self.chosen.is_empty() {
            self.step(ClusterEvent::Land(0))?;
        }
        while !self.unseen.is_empty() {
            self.step(ClusterEvent::KubeletSees)?;
        }
        while !self.ended.is_empty() {
            self.step(ClusterEvent::EndIsShown(0))?;
        }
        self.step(ClusterEvent::TakeDown)?;
        self.step(ClusterEvent::Arrive(0))?;
        self.view.tick(REMEMBERED_FOR_TESTS);
        self.check()?;
        prop_assert_eq!(self.view.doubt(), None);
        prop_assert_eq!(self.view.pending(), 0);
        let mut left = self.view.log.events().filter(|(uid, _)| !self.rejected.contains(uid));
        prop_assert_eq!(left.next(), None, "nothing but what the state names is left");
        Ok(())
    }
}

/// The kubelet may have freed the second pod: then `moved` has the memory of NUMA node 0 that `next` needs,
/// and node 1 has too few CPUs for that.
#[test]
fn a_place_that_an_unseen_end_may_have_given_to_another_pod_is_not_promised() {
    let ended = asks("p1", 1, 1);
    let mut cluster = Cluster::new(true, 1, &[asks("stays", 1, 4), ended.clone(), asks("large", 5, 1)]);
    let (moved, next) = (asks("moved", 1, 3), asks("next", 4, 2));
    let mut chosen = cluster.view.clone();
    assert_eq!(told(&cluster.view.filter(&next, 0)), "nodes 0 CPUs 2-3,10-11", "the state covers all pods");
    cluster.view.observe_bound("moved", &moved);
    assert_eq!(told(&cluster.view.filter(&next, 0)), "nodes 0 CPUs 2-3,10-11", "as far as is shown");
    let unseen = Verdict::Unknown(UnknownNode::UnseenEnd("default/next".into()));
    assert_eq!(cluster.view.filter_to_commit(&next, 0), unseen);
    assert_eq!(cluster.view.filter_in_any_order(&next, 0), unseen);
    assert_eq!(cluster.view.commit("next", &next, 0), unseen);
    assert!(
        matches!(cluster.view.filter_to_commit(&asks("next", 3, 2), 0), Verdict::Fits(_)),
        "on node 1, too"
    );
    assert!(matches!(cluster.view.filter_to_commit(&asks("next", 1, 1), 0), Verdict::Fits(_)));

    chosen.reserve("moved", &moved, 1_000);
    let waits = Verdict::Unknown(UnknownNode::Waiting("default/next".into()));
    assert_eq!(chosen.filter_in_any_order(&next, 0), waits, "before or after the end");

    let mut kubelet = cluster.kubelet.clone();
    kubelet.remove(&ended.name);
    assert_eq!(give(&cluster.model, &mut kubelet, &moved), None);
    assert!(give(&cluster.model, &mut kubelet, &next).is_some(), "the control: this kubelet refuses it");

    let before = cluster.view.taken(0).unwrap();
    assert_eq!(give(&cluster.model, &mut cluster.kubelet, &moved), None);
    cluster.take_down();
    cluster.step(ClusterEvent::Arrive(0)).unwrap();
    assert!(
        matches!(cluster.view.commit("next", &next, 0), Verdict::Fits(_)),
        "the state shows where moved is"
    );
    let mut after = cluster.view.clone();
    after.forget("next");
    assert!(after.taken(0).unwrap().lacks_some_of(&before), "so pods without a place are tried again");
}

#[test]
fn an_unseen_end_changes_nothing_where_sums_decide_alone() {
    let moved_onto = |memory_policy: &str| {
        let mut empty = state();
        empty.kubelet.topology_policy = "best-effort".into();
        empty.kubelet.memory_policy = memory_policy.into();
        let mut base = NodeView::default();
        base.observe_state(&empty, 0);
        base.observe_bound("x", &asks("x", 5, 1));
        let of_pods = published(&base, 1);
        let mut view = NodeView::default();
        view.observe_state(&NodeState { kubelet: empty.kubelet, ..of_pods }, 0);
        view.observe_bound("p", &asks("p", 3, 1));
        view.moved_pods(view.model().unwrap()).onto.to_string()
    };
    assert_eq!((moved_onto("None"), moved_onto("Static")), (String::new(), "0".into()));
}

/// One may have the place that the other one has here.
#[test]
fn the_end_of_a_pod_leaves_those_that_were_bound_together_with_it_somewhere() {
    let mut view = view();
    let pods = [asks("one", 6, 1), asks("other", 6, 1)];
    view.observe_bound_together(&[("one", &pods[0]), ("other", &pods[1])]);
    view.observe_ended("other", 0);
    let next = asks("next", 8, 1);
    let unordered = Verdict::Unknown(UnknownNode::Unordered("default/one, default/other".into()));
    assert_eq!(view.filter(&next, 0), unordered);
    let mut older = state();
    older.revision.counter = 1;
    view.observe_state(&older, 0);
    assert_eq!(view.filter(&next, 0), unordered, "a state before both tells nothing");
    let mut kubelet = super::view();
    kubelet.observe_bound("other", &pods[1]);
    kubelet.observe_bound("one", &pods[0]);
    kubelet.observe_ended("other", 0);
    view.observe_state(&published(&kubelet, 2), 0);
    assert!(matches!(view.filter(&next, 0), Verdict::Refused(..)), "one is on node 1");
}

/// Of two pods that were bound together, `six` is on NUMA node 0 if it came first and `ended` had gone.
#[test]
fn an_end_counts_in_each_order_of_pods_that_were_bound_together() {
    let mut base = view();
    base.observe_bound("below", &asks("below", 4, 1));
    base.observe_bound("ended", &asks("ended", 2, 1));
    base.observe_ended("below", 0);
    let mut view = view();
    view.observe_state(&published(&base, 1), 0);
    let pods = [asks("four", 4, 1), asks("six", 6, 1)];
    view.observe_bound_together(&[("four", &pods[0]), ("six", &pods[1])]);
    let next = asks("next", 4, 1);
    assert!(matches!(view.filter(&next, 0), Verdict::Refused(..)));
    view.observe_ended("ended", 0);
    assert_eq!(view.filter(&next, 0), Verdict::Unknown(UnknownNode::OpenEnd("ended".into())));
}

/// The state that lacks both shows more room, which the first one of them has.
#[test]
fn a_later_state_may_make_a_difference_of_the_order_of_pods() {
    let mut base = view();
    base.observe_bound("ended", &asks("ended", 5, 1));
    base.observe_bound("stays", &asks("stays", 5, 1));
    let mut seen = view();
    seen.observe_state(&published(&base, 1), 0);
    let pods = [asks("one", 1, 1), asks("two", 2, 1)];
    seen.observe_bound_together(&[("one", &pods[0]), ("two", &pods[1])]);
    let next = asks("next", 2, 1);
    assert!(matches!(seen.filter(&next, 0), Verdict::Refused(..)));
    base.observe_ended("ended", 0);
    seen.observe_state(&published(&base, 2), 0);
    let unordered = UnknownNode::Unordered("default/one, default/two".into());
    assert_eq!(seen.filter(&next, 0), Verdict::Unknown(unordered), "CPUs 1-2 and 10, or 1-2 and 9");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// A kubelet admits pods in the order of the API, late, and frees what they held before that is shown; it
    /// publishes its state at any time, and states arrive late and in any order. It refuses no pod that the
    /// view has a place for, and where all is shown the view holds what it holds.
    #[test]
    fn a_view_is_what_the_node_holds(
        binds in any::<bool>(),
        machine in 0..12usize,
        first in prop::collection::vec(0..48usize, 0..8),
        events in prop::collection::vec(cluster_event(), 1..48),
    ) {
        let first: Vec<_> = first.into_iter().map(pod_number).collect();
        let mut cluster = Cluster::new(binds, machine, &first);
        for event in events {
            cluster.step(event)?;
            cluster.check()?;
        }
        cluster.quiesce()?;
    }
}
