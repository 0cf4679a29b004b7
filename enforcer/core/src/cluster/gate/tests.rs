//! Gated pods, a test for each situation; [`patch`] has the properties of patches.

mod patch;

use numa_placement::{ContainerRequest, PodName, PodRequest};

use super::*;
use crate::cluster::{
    extender::{Binder, ExtenderSettings},
    model::tests::state,
    objects::{NodeObject, PodArrival, PodScheduling, StateObject, StateOrigin, Taint, Toleration},
    required_nodes::{AffinityTerms, NodeRequirement, NodeTerm, RequiredNodes},
    state::NodeState,
};

const SETTINGS: GateSettings = GateSettings { uncomputed: UncomputedPods::Release, late_after: 120 };

/// A gated pod of a version.
fn gated(uid: &str, cpus: u64, version: u64) -> PodObject {
    let container = ContainerRequest::guaranteed("main", cpus * 1000, 1 << 30);
    let gates = PodGates { ours: vec![1], ..PodGates::default() };
    PodObject {
        uid: uid.into(),
        mirror_of: None,
        node: None,
        phase: PodPhase::Pending,
        arrival: PodArrival { at: 0, version },
        ended_at: None,
        ended_init: Vec::new(),
        scheduling: PodScheduling { gates, ..PodScheduling::default() },
        counted: None,
        request: PodRequest::new(PodName::new("shop", uid).with_uid(uid), vec![container]),
    }
}

/// The same pod after a patch.
fn placed(pod: &PodObject, node: &str, at: i64) -> PodObject {
    let mut placed = pod.clone();
    placed.arrival.version += 1;
    placed.scheduling.gates = PodGates {
        ours: Vec::new(),
        has_annotations: true,
        placed: Some(PlacedMark { node: node.into(), at }),
        not_computed: None,
    };
    let term = NodeTerm { labels: Vec::new(), fields: vec![NodeRequirement::of_name(node)] };
    placed.scheduling.required.affinity = AffinityTerms::Terms(vec![term]);
    placed
}

fn bound(pod: &PodObject, node: &str) -> PodObject {
    let mut bound = pod.clone();
    bound.arrival.version += 1;
    (bound.node, bound.scheduling.gates) = (Some(node.to_owned()), PodGates::default());
    bound
}

fn node(name: &str) -> NodeObject {
    let allocatable = [("cpu", 14_000), ("memory", 32 << 30), ("pods", 110)];
    NodeObject {
        name: name.into(),
        uid: format!("uid-{name}"),
        is_ready: true,
        allocatable: allocatable.map(|(resource, amount)| (resource.to_owned(), amount)).into(),
        ..NodeObject::default()
    }
}

fn state_object(name: &str, state: NodeState) -> StateObject {
    StateObject {
        name: name.into(),
        api_version: String::new(),
        origin: StateOrigin { owner_uid: Some(format!("uid-{name}")), ..StateOrigin::default() },
        writers: Vec::new(),
        unknown_fields: Vec::new(),
        state: Ok(state),
    }
}

/// A gate, and the extender that it asks: 6 CPUs are free on NUMA node 0 of each node, 8 on NUMA node 1.
struct Cluster {
    gate: Gate,
    extender: Extender,
}

impl Cluster {
    fn new(nodes: &[&str]) -> Self {
        Self::with(SETTINGS, nodes)
    }

    fn with(settings: GateSettings, nodes: &[&str]) -> Self {
        let mut extender =
            Extender::new(ExtenderSettings { binder: Binder::Scheduler, ..ExtenderSettings::default() });
        for name in nodes {
            extender.observe_node(node(name), 0);
            extender.observe_state(state_object(name, state()), 0);
        }
        extender.begin_pod_list(0);
        extender.end_pod_list(0);
        Self { gate: Gate::new(settings), extender }
    }

    fn observe(&mut self, pod: &PodObject) -> bool {
        let may_help = self.gate.observe_pod(pod, &mut self.extender, 0);
        self.extender.observe_pod(pod.clone(), 0);
        may_help
    }

    fn decide(&mut self, uid: &str, now: Millis) -> GateDecision {
        self.gate.decide(uid, &mut self.extender, now).unwrap()
    }

    /// The node that a new pod gets.
    fn place(&mut self, pod: &PodObject) -> Option<String> {
        self.observe(pod);
        match self.decide(&pod.uid, 0) {
            GateDecision::Place { node } => Some(node),
            _ => None,
        }
    }

    /// Places a pod, and lets the patch land.
    fn land(&mut self, pod: &PodObject, at: i64) -> Option<String> {
        let node = self.place(pod)?;
        let decision = GateDecision::Place { node: node.clone() };
        self.gate.note_landed(&pod.uid, &decision, pod.arrival.version + 1, at);
        Some(node)
    }

    /// Why a pod has no node.
    fn waits(&mut self, pod: &PodObject) -> GateWait {
        self.observe(pod);
        match self.decide(&pod.uid, 0) {
            GateDecision::Wait(wait) => wait,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn pods_hold_their_places_until_they_are_bound_ended_or_gone() {
    let mut one = Cluster::new(&["a"]);
    let p = gated("p", 8, 1);
    assert_eq!(one.land(&p, 0).as_deref(), Some("a"));
    assert!(one.waits(&gated("q", 8, 1)).answer.is_final(), "p holds NUMA node 1");
    assert!(!one.observe(&placed(&p, "a", 0)), "no pod has more room for that");
    assert_eq!(one.gate.counts(0), GateCounts { gated: 1, placed: 1, late: 0, ..GateCounts::default() });
    assert!(matches!(one.decide("q", 0), GateDecision::Wait(_)));
    assert!(one.observe(&bound(&placed(&p, "a", 0), "a")));
    assert!(matches!(one.decide("q", 0), GateDecision::Wait(_)), "the state does not cover p yet");
    one.extender.observe_pod_gone("p", 0);
    one.gate.observe_gone("p");
    assert_eq!(one.decide("q", 0), GateDecision::Place { node: "a".into() });
    assert_eq!(one.gate.nodes.used("a")["cpu"], 8_000, "p counts no more");
}

#[test]
fn new_process_finds_what_was_placed_in_the_pods() {
    let mut one = Cluster::new(&["a"]);
    one.gate.begin_list();
    one.observe(&placed(&gated("p", 8, 1), "a", 0));
    assert_eq!(one.place(&gated("q", 8, 1)), None, "p holds its place");
    one.gate.end_list();
    assert_eq!(one.extender.held_on("p"), Some("a"));
    // A mark alone binds no scheduler to the node.
    let mut unbound = placed(&gated("r", 8, 1), "a", 0);
    unbound.scheduling.required = RequiredNodes::default();
    one.observe(&unbound);
    assert_eq!(one.extender.held_on("r"), None);
    one.gate.begin_list();
    one.gate.end_list();
    assert_eq!(one.gate.counts(0), GateCounts::default(), "a list without them shows that they are gone");
}

#[test]
fn pods_come_by_priority_and_then_by_age() {
    let mut one = Cluster::new(&["a"]);
    for (uid, priority, at) in [("young", 0, 9), ("old", 0, 3), ("urgent", 7, 9)] {
        let mut pod = gated(uid, 2, 1);
        (pod.scheduling.priority, pod.arrival.at) = (priority, at);
        one.observe(&pod);
    }
    assert_eq!(one.gate.queue(false, 0), ["urgent", "old", "young"]);
    one.decide("old", 0);
    assert_eq!(one.gate.queue(false, 0), ["urgent", "young"], "only those without a decision");
    assert_eq!(one.gate.queue(true, 0).len(), 3);
}

#[test]
fn pod_that_no_manager_has_a_say_about_is_released() {
    let mut one = Cluster::new(&["a"]);
    let mut pod = gated("p", 8, 1);
    pod.request.containers[0].requests.milli_cpus = Some(500);
    pod.request.qos = numa_placement::QosClass::Burstable;
    one.observe(&pod);
    assert_eq!(one.decide("p", 0), GateDecision::Release(ReleaseCause::NotConcerned));
    let mut unpublished = Cluster::new(&[]);
    unpublished.extender.observe_node(node("a"), 0);
    unpublished.observe(&gated("q", 8, 1));
    assert_eq!(unpublished.decide("q", 0), GateDecision::Release(ReleaseCause::NotConcerned));
}

#[test]
fn requirements_that_are_not_computed_have_the_fate_of_the_settings() {
    let what = NotComputed::TopologySpread;
    let decide = |uncomputed, what| {
        let mut one = Cluster::with(GateSettings { uncomputed, ..SETTINGS }, &["a"]);
        let mut pod = gated("p", 8, 1);
        pod.scheduling.gates.not_computed = Some(what);
        one.observe(&pod);
        one.decide("p", 0)
    };
    let released = |what| GateDecision::Release(ReleaseCause::NotComputed(what));
    assert_eq!(decide(UncomputedPods::Release, what), released(what));
    assert_eq!(decide(UncomputedPods::Place, what), GateDecision::Place { node: "a".into() });
    let large = NotComputed::TooLarge;
    assert_eq!(decide(UncomputedPods::Place, large), released(large), "its terms are not known");
    let GateDecision::Wait(wait) = decide(UncomputedPods::Hold, what) else { panic!() };
    let note = "the pod stays gated: its topologySpreadConstraints cannot be computed here";
    assert_eq!(wait.note(None).as_deref(), Some(note));
}

#[test]
fn nodes_that_no_scheduler_uses_are_no_choice() {
    let zone = |name: &str| {
        let mut node = node(name);
        node.labels = [("zone".to_owned(), name.to_owned())].into();
        node
    };
    let taint = || Taint { key: "k".into(), value: "v".into(), effect: "NoExecute".into() };
    let changes: [&dyn Fn(&mut NodeObject); 5] = [
        &|node| node.is_cordoned = true,
        &|node| node.is_ready = false,
        &|node| node.taints = vec![taint()],
        &|node| *node.allocatable.get_mut("cpu").unwrap() = 5_000,
        &|node| *node.allocatable.get_mut("pods").unwrap() = 2,
    ];
    let mut one = Cluster::new(&["a", "b"]);
    one.extender.observe_node(zone("a"), 0);
    one.extender.observe_node(zone("b"), 0);
    let mut pod = gated("p", 2, 1);
    pod.scheduling.required.selector = [("zone".to_owned(), "b".to_owned())].into();
    assert_eq!(one.place(&pod).as_deref(), Some("b"));
    assert_eq!(one.place(&gated("q", 2, 1)).as_deref(), Some("b"), "it packs");

    for change in changes {
        let mut other = zone("b");
        change(&mut other);
        one.extender.observe_node(other, 0);
        let mut third = gated("r", 2, 1);
        third.arrival.version += 1;
        assert_eq!(one.place(&third).as_deref(), Some("a"));
        one.gate.observe_gone("r");
        one.extender.observe_pod_gone("r", 0);
    }
    let mut tolerant = gated("t", 2, 1);
    let all = Toleration { operator: "Exists".into(), ..Toleration::default() };
    tolerant.scheduling.tolerations = vec![all];
    tolerant.scheduling.required.selector = [("zone".to_owned(), "b".to_owned())].into();
    let wait = one.waits(&tolerant);
    let note =
        "2 nodes are not for the pod: 1 Too many pods, 1 node(s) didn't match Pod's node affinity/selector";
    assert_eq!(wait.note(None).as_deref(), Some(note));
}

#[test]
fn patch_without_a_reply_keeps_its_node_until_it_can_no_longer_land() {
    let mut one = Cluster::new(&["a", "b"]);
    let p = gated("p", 8, 1);
    assert_eq!(one.place(&p).as_deref(), Some("a"));
    let decision = GateDecision::Place { node: "a".into() };
    one.gate.note_unclear("p", &decision, 0);
    assert_eq!(one.gate.queue(true, 0), [""; 0], "it waits");
    assert_eq!(one.gate.next_due(0), Some(1_000));
    // The node is no choice any more, and the patch may land all the same.
    one.extender.observe_node(NodeObject { is_cordoned: true, ..node("a") }, 0);
    assert_eq!(one.gate.queue(true, 1_000), ["p"]);
    assert_eq!(one.decide("p", 1_000), decision);
    one.gate.note_refused("p", None, &mut one.extender, 1_000);
    assert_eq!(one.extender.held_on("p"), Some("a"), "the first one may still land");
    assert_eq!(one.decide("p", SETTLES), GateDecision::Place { node: "b".into() });
    // A new version of the pod shows that nothing has landed.
    one.gate.note_unclear("p", &GateDecision::Place { node: "b".into() }, SETTLES);
    one.extender.observe_node(node("a"), 0);
    one.extender.observe_node(NodeObject { is_cordoned: true, ..node("b") }, 0);
    one.observe(&gated("p", 8, 2));
    assert_eq!(one.decide("p", SETTLES), decision);
}

#[test]
fn refused_patch_frees_the_place_and_waits_longer_each_time() {
    let mut one = Cluster::new(&["a"]);
    assert_eq!(one.place(&gated("p", 8, 1)).as_deref(), Some("a"));
    let mut now = 0;
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        one.gate.note_refused("p", None, &mut one.extender, now);
        assert_eq!(one.gate.next_due(now), Some(now + wait * 1_000));
        now += wait * 1_000;
    }
    assert_eq!(one.place(&gated("q", 8, 1)).as_deref(), Some("a"));
}

#[test]
fn event_older_than_a_patch_changes_nothing() {
    let mut one = Cluster::new(&["a"]);
    let p = gated("p", 8, 4);
    one.land(&p, 0);
    assert!(!one.observe(&gated("p", 8, 3)));
    assert_eq!(one.gate.counts(0), GateCounts { gated: 0, placed: 1, late: 0, ..GateCounts::default() });
    one.observe(&placed(&p, "a", 0));
    assert_eq!(one.extender.held_on("p"), Some("a"));
    // Another program takes the affinity away again.
    let mut changed = placed(&p, "a", 0);
    (changed.arrival.version, changed.scheduling.required) = (7, RequiredNodes::default());
    assert!(one.observe(&changed));
    assert_eq!(one.extender.held_on("p"), None);
    assert!(one.gate.nodes.used("a").is_empty());
}

#[test]
fn placed_pod_that_is_not_bound_is_told_once() {
    let mut one = Cluster::new(&["a"]);
    let p = gated("p", 8, 1);
    one.land(&p, 1_000);
    assert_eq!(one.gate.take_late(1_119), []);
    let told = one.gate.take_late(1_120);
    assert_eq!((told.len(), told[0].node.as_str(), told[0].age), (1, "a", 120));
    assert_eq!(one.gate.counts(1_120).late, 1);
    one.observe(&placed(&p, "a", 1_000));
    assert_eq!(one.gate.take_late(2_000), []);
    one.observe(&bound(&placed(&p, "a", 1_000), "a"));
    assert_eq!(one.gate.counts(2_000), GateCounts::default());
}

#[test]
fn pod_without_a_say_on_the_only_open_node_gets_that_node() {
    let mut one = Cluster::new(&["a"]);
    one.extender.observe_node(node("free"), 0);
    let p = gated("p", 9, 1);
    assert_eq!(one.place(&p).as_deref(), Some("free"), "a has no place, free has published nothing");
}

/// A pod that its author marked as placed.
fn marked(uid: &str, node: &str, cpus: u64, created: i64) -> PodObject {
    let mut pod = placed(&gated(uid, cpus, 1), node, 0);
    pod.arrival.at = created;
    pod
}

#[test]
fn claims_of_pods_never_exceed_what_their_node_has() {
    let mut one = Cluster::new(&["a"]);
    one.observe(&marked("huge", "a", 1 << 40, 0));
    assert!(one.gate.decide("none", &mut one.extender, 0).is_none());
    assert_eq!(one.extender.held_on("huge"), None, "no scheduler can bind it there");
    assert_eq!(one.land(&gated("p", 2, 1), 0).as_deref(), Some("a"), "it takes nothing from others");
    for at in 0..1_000 {
        one.observe(&marked(&format!("h{at:03}"), "a", 1, at));
    }
    one.observe(&marked("elsewhere", "nowhere", 1, 0));
    assert!(one.gate.decide("none", &mut one.extender, 0).is_none());
    let of = |one: &Cluster, resource| one.gate.nodes.used("a").get(resource).copied();
    assert_eq!(of(&one, "cpu"), Some(14_000));
    let held = (0..1_000).filter(|at| one.extender.held_on(&format!("h{at:03}")).is_some());
    assert_eq!(held.count(), 12);
    assert_eq!(one.extender.held_on("elsewhere"), None, "there is no such node");
    one.extender.observe_node(node("nowhere"), 0);
    one.gate.note_nodes_changed();
    assert!(one.gate.decide("none", &mut one.extender, 0).is_none());
    assert_eq!(one.extender.held_on("elsewhere"), Some("nowhere"), "now there is");
}

#[test]
fn claim_gets_its_place_when_there_is_room_and_the_oldest_pod_comes_first() {
    let mut one = Cluster::new(&["a"]);
    let tenant = bound(&gated("tenant", 12, 1), "a");
    one.observe(&tenant);
    one.gate.begin_list();
    one.observe(&tenant);
    one.observe(&marked("young", "a", 8, 9));
    one.observe(&marked("old", "a", 8, 3));
    one.gate.end_list();
    assert!(one.gate.decide("none", &mut one.extender, 0).is_none());
    assert_eq!((one.extender.held_on("old"), one.extender.held_on("young")), (None, None));
    one.gate.observe_gone("tenant");
    one.extender.observe_pod_gone("tenant", 0);
    assert_eq!(one.place(&gated("q", 8, 1)), None, "the oldest pod that was placed has come first");
    assert_eq!((one.extender.held_on("old"), one.extender.held_on("young")), (Some("a"), None));
}

#[test]
fn amounts_without_end_leave_the_sums_of_a_node_exact() {
    let mut one = Cluster::new(&["a"]);
    for uid in ["x", "y"] {
        let mut pod = bound(&gated(uid, 1, 1), "a");
        pod.counted = Some([("cpu".to_owned(), u64::MAX), ("pods".to_owned(), 1)].into());
        one.observe(&pod);
    }
    one.observe(&bound(&gated("z", 2, 1), "a"));
    one.gate.observe_gone("x");
    one.gate.observe_gone("y");
    assert_eq!(one.gate.nodes.used("a")["cpu"], 2_000);
}

#[test]
fn patch_that_is_refused_for_good_is_told_once_and_tried_ever_more_rarely() {
    let mut one = Cluster::new(&["a"]);
    assert_eq!(one.place(&gated("p", 8, 1)).as_deref(), Some("a"));
    let mut now = 0;
    for (at, wait) in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].into_iter().enumerate() {
        one.gate.note_refused("p", Some("not permitted"), &mut one.extender, now);
        assert_eq!(one.gate.next_due(now), Some(now + wait * 1_000));
        let told = one.gate.take_stuck();
        assert_eq!(told.len(), usize::from(at == 2), "with the third one");
        assert!(told.iter().all(|stuck| stuck.why == "the API server refuses its change: not permitted"));
        assert_eq!(one.gate.counts(0).refused, usize::from(at >= 2));
        now += wait * 1_000;
    }
    assert!(one.gate.note_landed("p", &GateDecision::Release(ReleaseCause::NotConcerned), 2, 0));
    assert_eq!(one.gate.counts(0).refused, 0);
}

/// A gated pod that cannot be read.
fn unread(uid: &str) -> UnreadPod {
    UnreadPod { name: PodName::new("shop", uid).with_uid(uid), is_bound: false, is_gated: true }
}

#[test]
fn gated_pod_that_cannot_be_read_is_told_once_and_holds_nothing() {
    let mut one = Cluster::new(&["a"]);
    one.gate.begin_list();
    one.gate.observe_unread(unread("p"), "no quantity: \"x\"", &mut one.extender);
    one.gate.observe_unread(UnreadPod { is_gated: false, ..unread("q") }, "", &mut one.extender);
    one.gate.observe_unread(UnreadPod { is_bound: true, ..unread("r") }, "", &mut one.extender);
    one.gate.end_list();
    assert_eq!(one.gate.counts(0).unread, 1);
    let told = one.gate.take_stuck();
    assert_eq!(
        told,
        [StuckPod {
            name: PodName::new("shop", "p").with_uid("p"),
            why: "it cannot be read: no quantity: \"x\"".into(),
        }]
    );
    one.gate.observe_unread(unread("p"), "again", &mut one.extender);
    assert_eq!(one.gate.take_stuck(), []);
    assert_eq!(one.place(&gated("p", 8, 2)).as_deref(), Some("a"), "now it can be read");
    assert_eq!(one.gate.counts(0).unread, 0);
    one.gate.observe_unread(unread("p"), "again", &mut one.extender);
    assert_eq!((one.gate.counts(0).gated, one.extender.held_on("p")), (0, None));
    assert!(one.gate.nodes.used("a").is_empty());
    one.gate.begin_list();
    one.gate.end_list();
    assert_eq!(one.gate.counts(0).unread, 0, "it is gone");
}

#[test]
fn end_of_a_patch_without_a_reply_counts_when_the_pod_shows_it() {
    let release = GateDecision::Release(ReleaseCause::NotConcerned);
    let place = GateDecision::Place { node: "a".into() };
    let released = |pod: &PodObject| {
        let mut released = pod.clone();
        (released.arrival.version, released.scheduling.gates) = (2, PodGates::default());
        released
    };
    let (p, elsewhere) = (gated("p", 8, 1), bound(&gated("p", 8, 1), "b"));
    for (decision, shown, is_end) in [
        (&release, released(&p), true),
        (&release, elsewhere.clone(), true),
        (&place, placed(&p, "a", 0), true),
        (&place, bound(&p, "a"), true),
        (&place, elsewhere, false),
        (&place, released(&p), false),
    ] {
        for is_unclear in [true, false] {
            let mut one = Cluster::new(&["a"]);
            one.observe(&p);
            one.gate.note_sent("p", decision);
            if is_unclear {
                one.gate.note_unclear("p", decision, 0);
            }
            one.observe(&shown);
            let ended: Vec<_> = one.gate.take_ended().into_iter().map(|(_, decision)| decision).collect();
            assert_eq!(ended, if is_end { vec![decision.clone()] } else { Vec::new() });
            assert!(!one.gate.note_landed("p", decision, 2, 0), "it counts once");
        }
    }
    let mut one = Cluster::new(&["a"]);
    one.observe(&p);
    one.gate.note_sent("p", &release);
    one.gate.observe_answer(&released(&p), &mut one.extender, 0);
    assert!(!one.observe(&p), "the watch is behind");
    assert_eq!((one.gate.take_ended().len(), one.gate.counts(0).gated), (1, 0));
    let mut one = Cluster::new(&["a"]);
    one.observe(&p);
    one.gate.note_sent("p", &release);
    one.gate.note_refused("p", None, &mut one.extender, 0);
    one.observe(&released(&p));
    assert!(one.gate.take_ended().is_empty(), "another program removed the gate");
}

#[test]
fn oldest_gated_pod_is_known_by_its_age() {
    let mut one = Cluster::new(&["a"]);
    assert_eq!(one.gate.counts(500).oldest, 0);
    for (uid, created) in [("p", 300), ("q", 100)] {
        let mut pod = gated(uid, 8, 1);
        pod.arrival.at = created;
        one.observe(&pod);
    }
    assert_eq!(one.gate.counts(500).oldest, 400);
    assert_eq!(one.gate.counts(50).oldest, 0);
}
