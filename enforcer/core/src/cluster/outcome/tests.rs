use std::sync::Arc;

use numa_placement::{ContainerRequest, PodName, PodRequest, QosClass, admit, remove};
use numa_topology::set::CpuSet;
use proptest::prelude::*;

use super::*;
use crate::cluster::{
    model::tests::{hold, state as empty_state},
    observed::{ApiPod, ApiRejection},
    state::{DeviceCount, DeviceSupply, RejectedPod},
};

const GPU: &str = "v.com/gpu";

/// A kubelet that places pods by the engine, unless a test says otherwise. NUMA node 0 has CPUs 1-3 and 9-11
/// for pods, node 1 has 4-7 and 12-15.
struct PlayedNode {
    empty: NodeState,
    model: NodeModel,
    allocations: Allocations,
    api: NodeInApi,
    rejected: Vec<RejectedPod>,
    counter: i64,
    now: i64,
    check: PredictionCheck,
}

fn asks(uid: &str, cpus: u64) -> PodRequest {
    let container = ContainerRequest::guaranteed("main", cpus * 1000, 1 << 30);
    PodRequest::new(PodName::new("shop", uid).with_uid(uid), vec![container])
}

/// An empty node with two devices near NUMA node 0, one of which is not healthy, and two near node 1.
fn with_gpus() -> NodeState {
    let near = |node: &str, healthy: u32| DeviceCount {
        nodes: node.parse().unwrap(),
        total: 2,
        healthy,
        free: healthy,
    };
    let gpus = DeviceSupply { resource: GPU.into(), by_nodes: vec![near("0", 1), near("1", 2)] };
    NodeState { devices: vec![gpus], ..empty_state() }
}

impl PlayedNode {
    fn new() -> Self {
        Self::of(empty_state())
    }

    fn of(empty: NodeState) -> Self {
        let model = NodeModel::new(&empty).unwrap();
        let allocations = model.allocations.clone();
        let api = NodeInApi { pods: Some(Vec::new()), ..NodeInApi::default() };
        let (rejected, check) = (Vec::new(), PredictionCheck::default());
        let mut node = Self { empty, model, allocations, api, rejected, counter: 0, now: 100, check };
        assert_eq!(node.look(), PredictionOutcomes::default());
        node
    }

    fn pods(&mut self) -> &mut Vec<ApiPod> {
        self.api.pods.as_mut().unwrap()
    }

    fn bind(&mut self, pod: &PodRequest) {
        self.pods().push(ApiPod {
            uid: pod.name.uid.clone(),
            namespace: pod.name.namespace.clone(),
            name: pod.name.name.clone(),
            request: Some(Arc::new(pod.clone())),
            ..ApiPod::default()
        });
    }

    /// The kubelet takes or refuses a pod as the engine says; whether it took it.
    fn come(&mut self, pod: &PodRequest) -> bool {
        self.bind(pod);
        let admitted = admit(&self.model.inventory, &self.model.settings, &mut self.allocations, pod).is_ok();
        if !admitted {
            self.refuse(&pod.name.uid, "TopologyAffinityError");
        }
        admitted
    }

    fn refuse(&mut self, uid: &str, reason: &str) {
        let (uid, reason, at) = (uid.to_owned(), reason.to_owned(), self.now);
        let pod = self.pods().iter_mut().find(|pod| pod.uid == uid).unwrap();
        (pod.is_finished, pod.rejection) = (true, Some(ApiRejection { reason: reason.clone(), at }));
        self.rejected.push(RejectedPod { uid, reason, at });
    }

    /// The kubelet gives these CPUs to a pod.
    fn give(&mut self, pod: &PodRequest, cpus: &str) {
        self.bind(pod);
        let mut grants = Allocations::default();
        admit(&self.model.inventory, &self.model.settings, &mut grants, pod).unwrap();
        let (holder, grant) = grants.iter().next().unwrap();
        let cpus: CpuSet = cpus.parse().unwrap();
        let nodes = self.model.inventory.machine.nodes_of(&cpus);
        let mut grant = Grant { exclusive: cpus, ..grant.clone() };
        for claim in &mut grant.memory {
            claim.zone = nodes.clone();
        }
        self.allocations.give(holder.clone(), grant);
    }

    fn end(&mut self, uid: &str) {
        let name = PodName::new("shop", uid).with_uid(uid);
        remove(&mut self.allocations, &name);
        self.pods().retain(|pod| pod.uid != uid);
        self.api.sequence.gone += 1;
    }

    fn state(&mut self) -> NodeState {
        let mut state = self.empty.clone();
        self.counter += 1;
        state.revision.counter = self.counter;
        state.rejected = self.rejected.clone();
        hold(&mut state, &self.allocations);
        state
    }

    /// The daemon looks some seconds later.
    fn look(&mut self) -> PredictionOutcomes {
        let state = self.state();
        assert!(state.exact && NodeModel::new(&state).unwrap().is_exact(), "{:?}", state.inexact);
        self.now += 5;
        let outcomes = self.check.observe(&state, &self.api, self.now);
        self.now += 5;
        outcomes
    }
}

fn counts(outcomes: &PredictionOutcomes) -> (u64, u64, u64) {
    (outcomes.right, outcomes.wrong, outcomes.unchecked)
}

fn note(outcomes: &PredictionOutcomes) -> String {
    let [event] = &outcomes.events[..] else { panic!("{outcomes:?}") };
    let reason: &str = event.reason.into();
    format!("{reason}: {}", event.note)
}

#[test]
fn pod_with_other_cpus_than_predicted_is_told_and_the_state_is_in_doubt() {
    let mut node = PlayedNode::new();
    assert!(node.come(&asks("a", 4)));
    assert_eq!(counts(&node.look()), (1, 0, 0));
    node.give(&asks("b", 2), "4,12");
    let outcomes = node.look();
    assert_eq!(counts(&outcomes), (0, 1, 0));
    assert_eq!(
        note(&outcomes),
        "NumaPredictionWrong: the node gave main: CPUs 4,12, memory of nodes 1, and its state predicted main: CPUs 3,11, memory of nodes 0"
    );
    let EventObject::Pod { namespace, name, uid } = &outcomes.events[0].object else { panic!() };
    assert_eq!([namespace, name, uid], ["shop", "b", "b"]);
    let doubt = outcomes.doubt.unwrap();
    assert!(
        doubt.source == "prediction" && doubt.reason.starts_with("pod shop/b: the node gave"),
        "{doubt:?}"
    );
    // The next state that is trusted is the new base.
    assert_eq!(node.look(), PredictionOutcomes::default());
    assert!(node.come(&asks("c", 2)));
    assert_eq!(counts(&node.look()), (1, 0, 0));
}

#[test]
fn refused_pod_learns_what_was_short() {
    let mut node = PlayedNode::new();
    assert!(node.come(&asks("neighbour", 2)));
    node.look();
    assert!(!node.come(&asks("a", 9)) && !node.come(&asks("b", 12)));
    let outcomes = node.look();
    assert_eq!(counts(&outcomes), (2, 0, 0));
    let notes: Vec<_> = outcomes.events.iter().map(|event| event.note.as_str()).collect();
    assert!(
        notes[0].starts_with("the kubelet refused the pod (TopologyAffinityError), as its state predicts: ")
            && notes[0].contains("container main")
            && notes[0].contains("of 9 cpu"),
        "{notes:?}"
    );
    assert!(notes[1].contains("of 12 cpu"), "{notes:?}");
    assert!(!notes.concat().contains("neighbour"), "it may be of another namespace: {notes:?}");
    assert_eq!(outcomes.doubt, None);
    assert_eq!(node.look(), PredictionOutcomes::default(), "it is told once");
}

#[test]
fn refusal_of_a_pod_that_fits_and_place_of_one_that_does_not_are_told() {
    let mut node = PlayedNode::new();
    node.bind(&asks("a", 2));
    node.refuse("a", "TopologyAffinityError");
    let told = note(&node.look());
    assert!(
        told.contains("NumaPredictionWrong: the kubelet refused the pod (TopologyAffinityError)"),
        "{told}"
    );
    assert!(told.ends_with("its state predicted main: CPUs 1,9, memory of nodes 0"), "{told}");
    let mut node = PlayedNode::new();
    let both = asks("b", 10);
    node.bind(&both);
    let (mut other, name) = (node.model.settings.as_ref().clone(), both.name.clone());
    other.hints.policy = numa_placement::settings::TopologyPolicy::BestEffort;
    admit(&node.model.inventory, &other, &mut node.allocations, &both).unwrap();
    assert_eq!(node.allocations.of_pod(&name).count(), 1);
    let told = note(&node.look());
    assert!(told.contains("NumaPredictionWrong: the node gave main: CPUs "), "{told}");
    assert!(told.contains("and its state predicted a refusal: TopologyAffinityError"), "{told}");
}

#[test]
fn what_something_else_may_explain_is_unchecked() {
    type Change = fn(&mut PlayedNode);
    let cases: [(&str, Change); 14] = [
        ("a pod ended", |node| node.end("first")),
        ("its request is not known", |node| node.pods().last_mut().unwrap().request = None),
        ("a pod came and ended", |node| {
            node.bind(&asks("short", 2));
            node.check.base.as_mut().unwrap().shown.note(&node.empty, &node.api);
            node.end("short");
        }),
        ("a pod came and went unseen", |node| node.end("unseen")),
        ("the pods were listed anew", |node| node.api.sequence.list += 1),
        ("a pod could not be read", |node| node.api.left_out.push("pod shop/large: too large".into())),
        ("the pods were not known for a while", |node| {
            let pods = node.api.pods.take();
            node.check.base.as_mut().unwrap().shown.note(&node.empty, &node.api);
            node.api.pods = pods;
        }),
        ("a device became healthy", |node| node.empty.devices[0].by_nodes[0].free = 2),
        ("a pod whose request is not known came and ended", |node| {
            let (uid, is_finished) = ("short".to_owned(), true);
            node.pods().push(ApiPod { uid, is_finished, ..ApiPod::default() });
        }),
        ("the kubelet started again", |node| node.empty.kubelet.started_at = Some(77)),
        ("another pod holds something else", |node| {
            let first = asks("first", 2);
            node.pods().retain(|pod| pod.uid != "first");
            remove(&mut node.allocations, &first.name);
            node.give(&first, "2,10");
        }),
        ("it has resources of its own", |node| {
            let pod = node.pods().last_mut().unwrap();
            let mut request = pod.request.as_deref().unwrap().clone();
            request.undescribed = Some(Undescribed::PodResources);
            pod.request = Some(Arc::new(request));
        }),
        ("there are too many pods for their orders", |node| {
            for (at, cpu) in ["5", "6", "13", "14"].iter().enumerate() {
                node.give(&asks(&format!("more{at}"), 1), cpu);
            }
        }),
        ("a pod is held and refused", |node| {
            let (uid, reason, at) = ("wrong".to_owned(), "OutOfcpu".to_owned(), node.now);
            node.rejected.push(RejectedPod { uid, reason, at });
        }),
    ];
    for (case, change) in cases {
        let mut node = PlayedNode::of(with_gpus());
        assert!(node.come(&asks("first", 2)));
        node.look();
        node.give(&asks("wrong", 2), "4,12");
        change(&mut node);
        let outcomes = node.look();
        assert_eq!((outcomes.wrong, &outcomes.events[..]), (0, &[][..]), "{case}: {outcomes:?}");
        assert!(outcomes.unchecked > 0, "{case}: {outcomes:?}");
    }
    let mut node = PlayedNode::new();
    assert!(node.come(&asks("first", 2)));
    node.look();
    node.give(&asks("wrong", 2), "4,12");
    assert_eq!(node.look().wrong, 1, "the control");
}

#[test]
fn pods_without_a_part_in_it_hide_no_wrong_prediction() {
    let mut node = PlayedNode::new();
    let mut shared = asks("shared", 2);
    shared.qos = QosClass::Burstable;
    node.bind(&shared);
    let ended = ApiPod { uid: "ended".into(), is_finished: true, ..ApiPod::default() };
    node.pods().push(ended);
    assert_eq!(node.look(), PredictionOutcomes::default());
    node.end("shared");
    node.give(&asks("wrong", 2), "4,12");
    assert_eq!(node.look().wrong, 1);
}

#[test]
fn inexact_states_are_passed_over_and_what_they_show_is_remembered() {
    let mut node = PlayedNode::new();
    let inexact = |node: &mut PlayedNode| {
        let mut state = node.state();
        (state.exact, state.inexact) = (false, vec![InexactSource::new("kubelet:admission", "a part")]);
        node.now += 1;
        node.check.observe(&state, &node.api, node.now)
    };
    assert!(node.come(&asks("a", 2)));
    assert_eq!(inexact(&mut node), PredictionOutcomes::default());
    assert_eq!(counts(&node.look()), (1, 0, 0), "it is compared once it is whole");
    // Seen in files alone.
    node.give(&asks("b", 2), "2,10");
    node.pods().pop();
    inexact(&mut node);
    node.end("b");
    node.give(&asks("c", 2), "3,11");
    assert_eq!(counts(&node.look()), (0, 0, 1));
}

#[test]
fn refusal_before_the_node_held_what_it_holds_is_unchecked() {
    let mut node = PlayedNode::new();
    assert!(node.come(&asks("a", 6)) && node.come(&asks("b", 8)));
    node.look();
    let refused_at = node.now;
    node.end("b");
    node.look();
    // The API shows it late: the kubelet refused it beside the pod that has ended.
    node.bind(&asks("c", 2));
    node.refuse("c", "TopologyAffinityError");
    for at in [refused_at, node.check.base.as_ref().unwrap().held_since] {
        node.rejected.last_mut().unwrap().at = at;
        let mut check = node.check.clone();
        let outcomes = check.observe(&node.state(), &node.api, node.now);
        assert_eq!((counts(&outcomes), outcomes.events.len()), ((0, 0, 1), 0));
    }
    node.rejected.last_mut().unwrap().at = node.now;
    assert_eq!(node.look().wrong, 1);
}

#[test]
fn failures_of_plugins_and_other_refusals_are_no_wrong_prediction() {
    for (reason, gpus, wrong) in [
        ("UnexpectedAdmissionError", 1, 0),
        ("UnexpectedAdmissionError", 0, 1),
        ("SMTAlignmentError", 1, 1),
        ("OutOfcpu", 0, 0),
        ("EmptyPodSharedPoolError", 0, 0),
    ] {
        let mut node = PlayedNode::of(with_gpus());
        let mut pod = asks("a", 2);
        pod.containers[0].devices = (0..gpus).map(|_| (GPU.to_owned(), 1)).collect();
        node.bind(&pod);
        node.refuse("a", reason);
        assert_eq!(node.look().wrong, wrong, "{reason} {gpus}");
    }
}

#[test]
fn device_of_another_numa_node_is_a_wrong_prediction() {
    // The engine gives the device of node 0; the kubelet takes that of node `near`.
    for (near, cpus, wrong) in [("0", "1,9", 0), ("1", "1,9", 1), ("1", "4,12", 1)] {
        let mut node = PlayedNode::of(with_gpus());
        let mut pod = asks("a", 2);
        pod.containers[0].devices.insert(GPU.into(), 1);
        node.give(&pod, cpus);
        let mut state = node.state();
        let group = state.devices[0].by_nodes.iter_mut().find(|one| one.nodes.to_string() == near).unwrap();
        group.free -= 1;
        state.pods[0].containers[0].devices.insert(GPU.into(), [(near.to_owned(), 1)].into());
        let outcomes = node.check.observe(&state, &node.api, node.now);
        assert_eq!(outcomes.wrong, wrong, "{near} {cpus}: {outcomes:?}");
        assert_eq!(outcomes.right, 1 - wrong, "{near} {cpus}: {outcomes:?}");
    }
}

#[test]
fn order_of_pods_that_came_together_is_found() {
    // Node 0 has 6 CPUs: in one order both fit, in the other the larger pod goes to node 1.
    let mut node = PlayedNode::new();
    for uid in ["z", "a"] {
        assert!(node.come(&asks(uid, if uid == "z" { 6 } else { 2 })));
    }
    assert_eq!(counts(&node.look()), (2, 0, 0), "z came first");
    let mut node = PlayedNode::new();
    assert!(node.come(&asks("a", 6)) && node.come(&asks("b", 8)) && !node.come(&asks("c", 2)));
    let outcomes = node.look();
    assert_eq!((counts(&outcomes), outcomes.events.len()), ((3, 0, 0), 0));
    let mut node = PlayedNode::new();
    node.give(&asks("a", 2), "4,12");
    node.give(&asks("b", 2), "5,13");
    let outcomes = node.look();
    assert_eq!(counts(&outcomes), (0, 1, 1));
    assert!(note(&outcomes).ends_with("(whatever the order of the pods that came with it)"), "{outcomes:?}");
}

/// What a test does between two looks.
#[derive(Debug, Clone)]
enum Step {
    Come(u64),
    End(usize),
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..10u64).prop_map(Step::Come),
        3 => any::<usize>().prop_map(Step::End),
        5 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Of a kubelet that is the engine, no prediction is wrong, whatever the looks miss.
    #[test]
    fn kubelet_that_is_the_engine_is_never_called_wrong(steps in steps()) {
        let mut node = PlayedNode::new();
        let mut there: Vec<String> = Vec::new();
        let (mut came, mut judged) = (0, 0);
        for (at, step) in steps.iter().chain([&Step::Look]).enumerate() {
            match step {
                Step::Come(cpus) => {
                    came += 1;
                    let uid = format!("p{at:02}");
                    if node.come(&asks(&uid, *cpus)) {
                        there.push(uid);
                    }
                }
                Step::End(which) if !there.is_empty() => node.end(&there.swap_remove(which % there.len())),
                Step::End(_) => {}
                Step::Look => {
                    let outcomes = node.look();
                    prop_assert_eq!((outcomes.wrong, &outcomes.doubt), (0, &None), "{:?}", outcomes);
                    judged += outcomes.right + outcomes.unchecked;
                }
            }
        }
        prop_assert!(judged <= came);
    }

    /// A kubelet that gives a pod the other NUMA node is found out, whatever was there before.
    #[test]
    fn kubelet_that_gives_another_numa_node_is_called_wrong(
        before in prop::collection::vec(1..4u64, 0..3),
        cpus in 1..3u64,
    ) {
        let mut node = PlayedNode::new();
        for (at, cpus) in before.iter().enumerate() {
            node.come(&asks(&format!("p{at}"), *cpus));
            prop_assert_eq!(node.look().wrong, 0);
        }
        let pod = asks("wrong", cpus);
        let mut trial = node.allocations.clone();
        let (inventory, settings) = (&node.model.inventory, &node.model.settings);
        if admit(inventory, settings, &mut trial, &pod).is_err() {
            return Ok(());
        }
        let right = inventory.machine.nodes_of(&trial.of_pod(&pod.name).next().unwrap().1.exclusive);
        let other: CpuSet = if right.to_string() == "0" { "4-7,12-15" } else { "1-3,9-11" }.parse().unwrap();
        let free = other.difference(&node.allocations.exclusive_cpus());
        let given: CpuSet = free.iter().take(usize::try_from(cpus).unwrap()).collect();
        if given.len() as u64 == cpus {
            node.give(&pod, &given.to_string());
            let outcomes = node.look();
            prop_assert_eq!(counts(&outcomes), (0, 1, 0), "{:?}", outcomes);
        }
    }
}
