use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flate2::{Compression, write::GzEncoder};
use numa_placement::{
    ContainerKind, ContainerRequest, Holder, PodRequest, QosClass, Resources, Undescribed,
    foreign::DECISION,
    settings::{PlacementEngine, TopologyPolicy},
};
use numa_topology::synth::Machine;
use proptest::prelude::*;

use super::{arrival::as_runtime_shows, *};
use crate::{
    cluster::{
        model::{NodeModel, StateFault},
        observed::{ApiContainer, ApiPod, NodeInApi, NodeInputs, NodeObservation, NodeStateSource},
        outcome::{PredictionCheck, PredictionOutcomes},
        state::{DecidedBy, KubeletProfile, NodeState},
        view::{NodeView, PredictedPlace, StateOutcome, UnknownNode, Verdict},
    },
    hosted::{Announced, Containers, Cpuset, DecidedContainer, PlacementNode},
};

const GIB: u64 = 1 << 30;

/// A node whose daemon places containers as its runtime creates them.
struct PlayedNode {
    inventory: Inventory,
    settings: PlacementSettings,
    allocations: Allocations,
    containers: Containers,
    /// Announced containers by id, and the pod of each.
    announced: BTreeMap<String, AnnouncedContainer>,
    pods: Vec<ApiPod>,
    source: NodeStateSource,
}

impl PlayedNode {
    fn new(machine: &str, engine: PlacementEngine) -> Self {
        let mut settings = PlacementSettings::default();
        settings.engine = engine;
        settings.hints.policy = TopologyPolicy::SingleNumaNode;
        let machine = machine.parse::<Machine>().unwrap().build();
        Self {
            inventory: Inventory::new(machine, Vec::new(), &settings).unwrap(),
            settings,
            allocations: Allocations::default(),
            containers: Containers::default(),
            announced: BTreeMap::new(),
            pods: Vec::new(),
            source: NodeStateSource::new(1),
        }
    }

    fn node(&mut self) -> (&mut Containers, PlacementNode<'_>) {
        let Self { inventory, settings, allocations, containers, .. } = self;
        (containers, PlacementNode { inventory, settings, allocations })
    }

    /// The API shows a pod that is bound to the node.
    fn bind(&mut self, pod: &PodRequest) {
        let container = |one: &ContainerRequest| ApiContainer {
            name: one.name.clone(),
            kind: one.kind,
            ..ApiContainer::default()
        };
        self.pods.push(ApiPod {
            uid: pod.name.uid.clone(),
            namespace: pod.name.namespace.clone(),
            name: pod.name.name.clone(),
            containers: pod.containers.iter().map(container).collect(),
            request: Some(Arc::new(pod.clone())),
            ..ApiPod::default()
        });
    }

    /// The runtime creates a container; whether it has a place.
    fn create(&mut self, pod: &PodRequest, at: usize) -> bool {
        let (container, _) = as_runtime_shows(pod, &self.inventory.machine)[at].clone();
        let id = format!("{}-{at}", pod.name.uid);
        let announced = AnnouncedContainer { pod: pod.name.clone(), container: container.name.clone() };
        self.announced.insert(id.clone(), announced);
        let new = Announced {
            id: id.clone(),
            cgroup: None,
            pod: PodRequest { containers: vec![container], ..pod.clone() },
            now: Cpuset::default(),
            shown: None,
            given: None,
            named_claims: BTreeSet::new(),
            claimed: None,
            opts_out: false,
        };
        let (containers, mut node) = self.node();
        !containers.create(&mut node, &new).rejections.contains_key(&id)
    }

    fn end(&mut self, pod: &PodRequest, at: usize) {
        let id = format!("{}-{at}", pod.name.uid);
        self.announced.remove(&id);
        let (containers, mut node) = self.node();
        containers.end(&mut node, &id);
    }

    /// All containers of a pod, one after another; whether each has a place.
    fn run(&mut self, pod: &PodRequest) -> bool {
        let mut all = true;
        for (at, container) in pod.containers.iter().enumerate() {
            all &= self.create(pod, at);
            if container.kind == ContainerKind::Init {
                self.end(pod, at);
            }
        }
        all
    }

    fn remove(&mut self, pod: &PodRequest) {
        for at in 0..pod.containers.len() {
            self.end(pod, at);
        }
        self.pods.retain(|known| known.uid != pod.name.uid);
    }

    fn snapshot(&self) -> EngineSnapshot {
        let inputs = EngineInputs::new(&self.inventory, &self.settings, &self.allocations);
        EngineSnapshot::new(inputs, self.announced.values().cloned().collect(), None)
    }

    fn state_with(&mut self, engine: &EngineSnapshot, kubelet: &KubeletProfile) -> NodeState {
        let api = NodeInApi { pods: Some(self.pods.clone()), ..NodeInApi::default() };
        let inputs = NodeInputs {
            machine: &self.inventory.machine,
            kubelet,
            inexact: &[],
            observation: &NodeObservation::default(),
            api: &api,
            engine: OwnPart::Known(engine),
            measured: None,
        };
        self.source.observe(inputs).unwrap().clone()
    }

    /// What the daemon says of its predictions after a look.
    fn checked(&mut self, check: &mut PredictionCheck) -> PredictionOutcomes {
        let state = self.state();
        let api = NodeInApi { pods: Some(self.pods.clone()), ..NodeInApi::default() };
        check.observe(&state, &api, 0)
    }

    fn state(&mut self) -> NodeState {
        let engine = self.snapshot();
        self.state_with(&engine, &kubelet("none", "none"))
    }

    /// Exclusive CPUs of the pod's lasting containers.
    fn cpus(&self, pod: &PodRequest) -> Vec<String> {
        let lasting = pod.containers.iter().filter(|container| container.kind != ContainerKind::Init);
        let cpus = lasting.map(|container| {
            let holder = Holder::new(pod.name.clone(), container.name.clone());
            self.allocations.get(&holder).map(|grant| grant.exclusive.to_string()).unwrap_or_default()
        });
        cpus.collect()
    }
}

fn kubelet(cpu_policy: &str, topology_policy: &str) -> KubeletProfile {
    KubeletProfile {
        version: "v1.36.2".into(),
        cpu_policy: cpu_policy.into(),
        memory_policy: "None".into(),
        topology_policy: topology_policy.into(),
        topology_scope: "container".into(),
        ..KubeletProfile::default()
    }
}

fn pod(uid: &str, containers: Vec<ContainerRequest>) -> PodRequest {
    PodRequest::new(PodName::new("shop", uid).with_uid(uid), containers)
}

fn guaranteed(name: &str, milli: u64) -> ContainerRequest {
    ContainerRequest::guaranteed(name, milli, GIB)
}

/// The pod as its binding shows it, with the place that was chosen.
fn decided(pod: &PodRequest, place: &PredictedPlace) -> PodRequest {
    let chosen = place
        .containers
        .iter()
        .map(|one| (one.name.clone(), DecidedContainer { cpus: one.cpus.clone(), nodes: one.mems.clone() }));
    let chosen = serde_json::json!({"containers": chosen.collect::<BTreeMap<_, _>>()}).to_string();
    let mut pod = pod.clone();
    pod.annotations.insert(DECISION.into(), chosen);
    pod
}

fn view_of(state: &NodeState) -> NodeView {
    let mut view = NodeView::default();
    assert_eq!(view.observe_state(state, 0), StateOutcome::Taken);
    view
}

#[test]
fn a_state_carries_what_the_engine_decides_from() {
    let mut node = PlayedNode::new("sockets:2 cores:4 threads:2", PlacementEngine::Pools);
    let first = pod("a", vec![guaranteed("main", 2000)]);
    node.bind(&first);
    assert!(node.run(&first));
    let state = node.state();
    assert_eq!((state.exact, state.decided_by), (true, DecidedBy::NumaEnforcer), "{:?}", state.inexact);
    assert_eq!(state.pods[0].containers[0].cpus, node.allocations.exclusive_cpus());
    let model = NodeModel::new(&state).unwrap();
    assert!(model.is_exact() && model.covered.contains("a"));
    let [theirs, ours] = [&*model.inventory, &node.inventory];
    assert_eq!((&theirs.layout, &theirs.locality), (&ours.layout, &ours.locality));
    assert_eq!((&theirs.nodes, &theirs.reserved_cpus), (&ours.nodes, &ours.reserved_cpus));
    assert_eq!(model.allocations.exclusive_cpus(), node.allocations.exclusive_cpus());
    assert_eq!(node.state().revision, state.revision, "nothing has changed");
}

#[test]
fn the_kubelet_decides_while_its_managers_do() {
    let mut node = PlayedNode::new("sockets:2 cores:4", PlacementEngine::Pools);
    let engine = node.snapshot();
    for (cpu_policy, topology_policy, decided_by) in [
        ("none", "none", DecidedBy::NumaEnforcer),
        ("none", "best-effort", DecidedBy::NumaEnforcer),
        ("none", "restricted", DecidedBy::Kubelet),
        ("static", "none", DecidedBy::Kubelet),
    ] {
        let state = node.state_with(&engine, &kubelet(cpu_policy, topology_policy));
        assert_eq!(state.decided_by, decided_by, "{cpu_policy} {topology_policy}");
        assert_eq!(state.own_engine.is_some(), decided_by == DecidedBy::NumaEnforcer);
    }
    let api = NodeInApi { pods: Some(Vec::new()), ..NodeInApi::default() };
    let inputs = NodeInputs {
        machine: &node.inventory.machine,
        kubelet: &kubelet("none", "none"),
        inexact: &[],
        observation: &NodeObservation::default(),
        api: &api,
        engine: OwnPart::Unknown("no runtime has come"),
        measured: None,
    };
    let state = NodeStateSource::new(1).observe(inputs).unwrap().clone();
    assert_eq!((state.exact, state.decided_by), (false, DecidedBy::NumaEnforcer));
    assert_eq!(state.inexact[0].reason, "no runtime has come");
    let rule = Some("entry \"db\" changes pods".to_owned());
    let state = node.state_with(&EngineSnapshot { unrepeatable: rule, ..engine }, &kubelet("none", "none"));
    assert_eq!((state.exact, state.inexact[0].source.as_str()), (false, "ownEngine"));
}

#[test]
fn a_pod_is_covered_once_all_its_containers_have_come() {
    let mut node = PlayedNode::new("sockets:2 cores:4", PlacementEngine::Pools);
    let two = pod("a", vec![guaranteed("one", 2000), guaranteed("two", 1000)]);
    node.bind(&two);
    assert!(node.create(&two, 0));
    let half = node.state();
    assert_eq!(half.covered.count, 0);
    // A reader adds the second container beside the first, which stays where it is.
    let mut view = view_of(&half);
    view.observe_bound("a", &two);
    let predicted = view.allocations().clone();
    assert!(node.create(&two, 1));
    assert_eq!(node.state().covered.count, 1);
    for (holder, grant) in node.allocations.iter() {
        assert_eq!(predicted.get(holder).map(|grant| &grant.exclusive), Some(&grant.exclusive), "{holder}");
    }
    // A container that crashed comes again, and is added by a reader; one that has ended does not.
    node.end(&two, 0);
    assert_eq!(node.state().covered.count, 0);
    node.pods[0].containers[0].has_ended = true;
    assert_eq!(node.state().covered.count, 1);
}

#[test]
fn hostile_inputs_are_refused_with_words() {
    let mut node = PlayedNode::new("sockets:2 cores:4", PlacementEngine::Pools);
    let good = node.state();
    let packed = |json: &[u8]| {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(json).unwrap();
        OwnEngine { format: FORMAT, inputs: BASE64_STANDARD.encode(packer.finish().unwrap()) }
    };
    let bomb = packed(&vec![b' '; usize::try_from(MOST_BYTES).unwrap() + 1]);
    assert!(bomb.inputs.len() < limits::ENGINE_INPUTS);
    let other = PlayedNode::new("sockets:2 cores:8", PlacementEngine::Pools).snapshot().inputs;
    let mut twice = node.snapshot().inputs;
    for name in ["a", "b"] {
        let holder = Holder::new(PodName::new("shop", name), "main".into());
        twice.allocations.give(holder, Grant { exclusive: "1".parse().unwrap(), ..Grant::default() });
    }
    let mut elsewhere = node.snapshot().inputs;
    let holder = Holder::new(PodName::new("shop", "a"), "main".into());
    elsewhere.allocations.give(holder, Grant { exclusive: "99".parse().unwrap(), ..Grant::default() });
    let mut hidden = node.snapshot().inputs;
    let holder = Holder::new(PodName::new("shop", "a"), "main".into());
    hidden.allocations.give(holder, Grant { exclusive: "1".parse().unwrap(), ..Grant::default() });
    let mut many = node.snapshot().inputs;
    for number in 0..=2 * limits::PODS {
        let holder = Holder::new(PodName::new("shop", "a"), number.to_string());
        many.allocations.give(holder, Grant::default());
    }
    let negative = |text: &str| text.replace("\"memTotalBytes\":", "\"memTotalBytes\":-");
    let json = serde_json::to_string(&node.snapshot().inputs).unwrap();
    for (own_engine, said) in [
        (OwnEngine { format: FORMAT, inputs: "%".into() }, "Invalid symbol"),
        (OwnEngine { format: FORMAT, inputs: "AAAA".into() }, "end of file"),
        (
            OwnEngine { format: FORMAT, inputs: "A".repeat(limits::ENGINE_INPUTS + 1) },
            "more than 24576 bytes",
        ),
        (bomb, "more than 4194304 bytes"),
        (packed(b"{}"), "missing field"),
        (packed(negative(&json).as_bytes()), "invalid value"),
        (other.packed().unwrap(), "are not those of the state"),
        (twice.packed().unwrap(), "another pod's"),
        (elsewhere.packed().unwrap(), "not online"),
        (hidden.packed().unwrap(), "sharedCpus shows CPUs 0-7, and ownEngine has CPUs 0,2-7"),
        (many.packed().unwrap(), "more than 2048 holders"),
    ] {
        let state = NodeState { own_engine: Some(own_engine), ..good.clone() };
        let fault = NodeModel::new(&state).unwrap_err();
        assert!(fault.to_string().contains(said), "{said}: {fault}");
        assert!(!matches!(fault, StateFault::Negative { .. }));
    }
    for own_engine in [None, Some(OwnEngine { format: 2, ..OwnEngine::default() })] {
        let state = NodeState { own_engine, ..good.clone() };
        let model = NodeModel::new(&state).unwrap();
        assert!(!model.is_exact() && model.inexact[0].source == "ownEngine");
        let verdict = view_of(&state).filter(&pod("a", vec![guaranteed("main", 1000)]), 0);
        assert!(matches!(verdict, Verdict::Unknown(UnknownNode::Inexact(_))), "{verdict:?}");
    }
}

#[test]
fn nothing_is_said_of_pods_that_another_controller_pins() {
    let mut node = PlayedNode::new("sockets:2 cores:4", PlacementEngine::Pools);
    let mut view = view_of(&node.state());
    for mark in [KOORDINATOR, KATALYST] {
        let mut marked = pod("a", vec![guaranteed("main", 1000)]);
        marked.annotations.insert(mark.into(), "{}".into());
        let verdict = view.filter(&marked, 0);
        assert!(matches!(verdict, Verdict::Unknown(UnknownNode::OtherController(_))), "{verdict:?}");
    }
    let mut marked = pod("b", vec![guaranteed("main", 1000)]);
    marked.annotations.insert(KATALYST.into(), "dedicated_cores".into());
    view.observe_bound("b", &marked);
    let verdict = view.filter(&pod("c", vec![guaranteed("main", 1000)]), 0);
    assert!(matches!(verdict, Verdict::Unknown(UnknownNode::OtherController(_))), "{verdict:?}");
}

#[test]
fn nothing_is_said_of_pods_that_their_containers_do_not_describe() {
    let mut node = PlayedNode::new("sockets:2 cores:4", PlacementEngine::Pools);
    let view = view_of(&node.state());
    for undescribed in [Undescribed::NodeCritical, Undescribed::PodResources, Undescribed::ResourceClaims] {
        let mut pod = pod("a", vec![guaranteed("main", 1000)]);
        assert!(matches!(view.filter(&pod, 0), Verdict::Fits(_)));
        pod.undescribed = Some(undescribed);
        let Verdict::Unknown(why) = view.filter(&pod, 0) else { panic!("{undescribed:?}") };
        assert!(why.to_string().contains(undescribed.as_str()), "{why}");
        // Until the state covers it, nothing is said of those after it either.
        let mut view = view.clone();
        view.observe_bound("a", &pod);
        let next = view.filter(&self::pod("b", vec![guaranteed("main", 1000)]), 0);
        assert_eq!(next, Verdict::Unknown(why));
        node.bind(&pod);
        node.run(&pod);
        let mut state = node.state();
        state.revision.counter += 1;
        view.observe_state(&state, 0);
        assert!(matches!(view.filter(&self::pod("b", vec![guaranteed("main", 1000)]), 0), Verdict::Fits(_)));
        node.remove(&pod);
    }
}

#[test]
fn a_pod_of_shared_containers_that_never_starts_counts_and_hides_nothing() {
    let burstable = |cpus: u64| {
        let mut pod = pod("stuck", vec![guaranteed("main", cpus)]);
        pod.qos = QosClass::Burstable;
        pod.containers[0].limits = Resources::default();
        pod
    };
    let mut node = PlayedNode::new("sockets:2 cores:4", PlacementEngine::Pools);
    let state = node.state();
    for is_before_the_state in [false, true] {
        let mut view = if is_before_the_state { NodeView::default() } else { view_of(&state) };
        view.observe_bound("stuck", &burstable(3500));
        view.observe_state(&state, 0);
        for revision in 1..4 {
            let next = pod("next", vec![guaranteed("main", 3000)]);
            assert!(matches!(view.filter(&next, 0), Verdict::Fits(_)));
            let crowded = pod("next", vec![guaranteed("one", 4000), guaranteed("two", 3000)]);
            assert!(!matches!(view.filter(&crowded, 0), Verdict::Fits(_)), "3.5 of 8 CPUs are promised");
            let mut later = node.state();
            later.revision.counter += revision;
            view.observe_state(&later, 0);
        }
    }
}

#[test]
fn daemon_that_gives_another_place_than_it_predicts_is_told() {
    let mut node = PlayedNode::new("sockets:2 cores:8", PlacementEngine::Pools);
    let mut check = PredictionCheck::default();
    let shared = pod("shared", vec![guaranteed("main", 250)]);
    node.bind(&shared);
    node.run(&shared);
    assert_eq!(node.checked(&mut check), PredictionOutcomes::default());
    let first = pod("a", vec![guaranteed("main", 2000)]);
    node.bind(&first);
    node.run(&first);
    assert_eq!(node.checked(&mut check), PredictionOutcomes { right: 1, ..PredictionOutcomes::default() });
    // A container between two of another pod has a part in where they go.
    let two = pod("b", vec![guaranteed("one", 1000), guaranteed("two", 1000)]);
    let between = pod("c", vec![guaranteed("main", 1000)]);
    node.bind(&two);
    node.bind(&between);
    for (pod, at) in [(&two, 0), (&between, 0), (&two, 1)] {
        assert!(node.create(pod, at));
    }
    let unchecked = PredictionOutcomes { unchecked: 2, ..PredictionOutcomes::default() };
    assert_eq!(node.checked(&mut check), unchecked);
    let wrong = pod("wrong", vec![guaranteed("main", 1000)]);
    node.bind(&wrong);
    node.run(&wrong);
    let holder = Holder::new(wrong.name.clone(), "main".into());
    let grant = node.allocations.get(&holder).unwrap().clone();
    let free = node.inventory.layout.all().difference(&node.allocations.exclusive_cpus());
    let others = free.iter().skip(3).take(1).collect();
    node.allocations.give(holder, Grant { exclusive: others, ..grant });
    let outcomes = node.checked(&mut check);
    assert_eq!(
        (outcomes.wrong, outcomes.events.len(), outcomes.doubt.is_some()),
        (1, 1, true),
        "{outcomes:?}"
    );
}

#[test]
fn each_pod_gets_the_place_that_was_chosen_for_it_whichever_comes_first() {
    for engine in [PlacementEngine::Pools, PlacementEngine::Hints] {
        for has_decision in [true, false] {
            let mut node = PlayedNode::new("sockets:2 cores:8", engine);
            let mut view = view_of(&node.state());
            let mut check = PredictionCheck::default();
            node.checked(&mut check);
            let mut chosen = Vec::new();
            for (uid, cpus) in [("a", 2), ("b", 3), ("c", 2), ("d", 4)] {
                let pod = pod(uid, vec![guaranteed("main", cpus * 1000)]);
                let Verdict::Fits(place) = view.commit(uid, &pod, 0) else { panic!("{engine:?} {uid}") };
                let bound = if has_decision { decided(&pod, &place) } else { pod };
                view.observe_bound(uid, &bound);
                assert_eq!(view.pending(), chosen.len() + 1, "the binding is that of the claim");
                node.bind(&bound);
                chosen.push((bound, place.containers[0].cpus.to_string()));
            }
            for (pod, _) in chosen.iter().rev() {
                assert!(node.run(pod));
            }
            let got = chosen.iter().all(|(pod, cpus)| node.cpus(pod) == [cpus.as_str()]);
            assert_eq!(got, has_decision, "{engine:?}");
            assert_eq!(node.checked(&mut check).wrong, 0, "{engine:?}");
            let after = view_of(&node.state());
            let next = pod("next", vec![guaranteed("main", 4000)]);
            if has_decision {
                assert_eq!(view.filter(&next, 0), after.filter(&next, 0), "{engine:?}");
            }
        }
    }
}

/// No state covers it until all its containers are there.
#[test]
fn listed_pod_that_never_starts_leaves_the_node_known() {
    let mut node = PlayedNode::new("sockets:2 cores:4 threads:2", PlacementEngine::Pools);
    let mut view = view_of(&node.state());
    let stuck = pod("stuck", vec![guaranteed("main", 2000)]);
    view.observe_listed("stuck", &stuck);
    let next = pod("next", vec![guaranteed("main", 2000)]);
    assert!(matches!(view.filter(&next, 0), Verdict::Fits(_)), "{:?}", view.filter(&next, 0));
}

#[test]
fn hundreds_of_shared_containers_fit_into_a_state() {
    let mut node = PlayedNode::new("sockets:2 cores:64 threads:2", PlacementEngine::Pools);
    for at in 0..110 {
        let shared = |name: &str| ContainerRequest::guaranteed(name, 250 + at, (32 + at) << 20);
        let pod = pod(&format!("0b5a7f6e-0000-0000-0000-{at:012}"), vec![shared("main"), shared("proxy")]);
        node.bind(&pod);
        assert!(node.run(&pod));
    }
    let state = node.state();
    assert!(state.exact, "{:?}", state.inexact);
    assert_eq!(state.covered.count, 110);
    assert!(serde_json::to_vec(&state).unwrap().len() < 32 << 10);
}

/// Containers of all classes and kinds, in the order in which a pod starts them.
fn containers() -> impl Strategy<Value = Vec<ContainerRequest>> {
    let one =
        (prop_oneof![1..3u64, (0..4u64).prop_map(|cpus| cpus * 1000), 1..3_000u64], 0..4u64, any::<bool>());
    let init = (prop::option::of(one.clone()), any::<bool>());
    (init, prop::collection::vec(one, 1..3)).prop_map(|((init, stays), apps)| {
        let kind = if stays { ContainerKind::Sidecar } else { ContainerKind::Init };
        let first = init.into_iter().map(|one| ("first".to_owned(), kind, one));
        let apps = apps.into_iter().enumerate().map(|(at, one)| (format!("c{at}"), ContainerKind::App, one));
        let container =
            |(name, kind, (milli, gib, has_limits)): (String, ContainerKind, (u64, u64, bool))| {
                let whole = ContainerRequest::guaranteed(name, milli, gib << 30);
                let limits =
                    if has_limits { whole.limits.clone() } else { numa_placement::Resources::default() };
                ContainerRequest { kind, limits, ..whole }
            };
        first.chain(apps).map(container).collect()
    })
}

fn machine_and_engine() -> impl Strategy<Value = (&'static str, PlacementEngine)> {
    let machines = prop_oneof![
        Just("sockets:2 cores:4 threads:2"),
        Just("sockets:2 dies:2 cores:4"),
        Just("sockets:1 cores:6 isolated:4,5"),
        Just("sockets:4 cores:2"),
    ];
    (machines, prop_oneof![Just(PlacementEngine::Pools), Just(PlacementEngine::Hints)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// A reader predicts for each pod what the daemon then does, also for the pods after it.
    #[test]
    fn a_reader_predicts_what_the_daemon_does(
        (machine, engine) in machine_and_engine(),
        pods in prop::collection::vec((containers(), prop::option::of(0..6usize)), 1..10),
    ) {
        let mut node = PlayedNode::new(machine, engine);
        let mut there: Vec<PodRequest> = Vec::new();
        let mut check = PredictionCheck::default();
        for (at, (containers, ends)) in pods.into_iter().enumerate() {
            if let Some(gone) = ends.filter(|ends| *ends < there.len()) {
                node.remove(&there.remove(gone));
            }
            let state = node.state();
            prop_assert!(state.exact, "{:?}", state.inexact);
            let view = view_of(&state);
            let pod = pod(&format!("p{at}"), containers);
            let verdict = view.filter(&pod, 0);
            node.checked(&mut check);
            node.bind(&pod);
            let has_place = node.run(&pod);
            let outcomes = node.checked(&mut check);
            prop_assert_eq!((outcomes.wrong, outcomes.right + outcomes.unchecked), (0, 1), "{:?}", outcomes);
            match verdict {
                Verdict::Fits(place) => {
                    prop_assert!(has_place, "{pod:?}");
                    let lasting = place.containers.iter().map(|one| one.cpus.to_string());
                    prop_assert_eq!(lasting.collect::<Vec<_>>(), node.cpus(&pod));
                }
                Verdict::Refused(..) => prop_assert!(!has_place, "{pod:?}"),
                other => prop_assert!(false, "{other:?}"),
            }
            there.push(pod);
        }
    }

    /// Pods that a reader takes before the daemon has seen any of them have a place in whatever order their
    /// containers come.
    #[test]
    fn pods_that_were_taken_have_a_place_in_any_order_of_containers(
        (machine, engine) in machine_and_engine(),
        pods in prop::collection::vec(containers(), 2..6),
        decides in prop::collection::vec(any::<bool>(), 6),
        order in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut node = PlayedNode::new(machine, engine);
        let mut view = view_of(&node.state());
        let mut taken = Vec::new();
        for (at, containers) in pods.into_iter().enumerate() {
            let pod = pod(&format!("p{at}"), containers);
            if let Verdict::Fits(place) = view.commit(&format!("p{at}"), &pod, 0) {
                let pod = if decides[at] { decided(&pod, &place) } else { pod };
                node.bind(&pod);
                taken.push((pod, 0));
            }
        }
        // Each number takes the next container of a pod.
        let mut coming: BTreeSet<usize> = (0..taken.len()).collect();
        for number in order.into_iter().cycle() {
            let Some(at) = coming.iter().nth(number % coming.len().max(1)).copied() else { break };
            let (pod, next) = &mut taken[at];
            if *next > 0 && pod.containers[*next - 1].kind == ContainerKind::Init {
                node.end(pod, *next - 1);
            }
            prop_assert!(node.create(pod, *next), "{} of {pod:?}", pod.containers[*next].name);
            *next += 1;
            if *next == pod.containers.len() {
                coming.remove(&at);
            }
        }
    }
}
