mod early;

use super::*;
use crate::cluster::{
    model::tests::{state, state_of},
    state::{HeldContainer, HeldMemory, HeldPod, NodeState},
};
use numa_placement::{ContainerRequest, PodName, QosClass};
use proptest::prelude::*;

fn asks(uid: &str, cpus: u64, gib: u64) -> PodRequest {
    let container = ContainerRequest::guaranteed("main", cpus * 1000, gib << 30);
    PodRequest::new(PodName::new("default", uid).with_uid(uid), vec![container])
}

fn view() -> NodeView {
    let mut view = NodeView::default();
    assert_eq!(view.observe_state(&state(), 0), StateOutcome::Taken);
    view
}

fn told(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Fits(place) => {
            let cpus: Vec<_> = place.containers.iter().map(|one| one.cpus.to_string()).collect();
            format!("nodes {} CPUs {}", place.nodes, cpus.join(" + "))
        }
        Verdict::Refused(group, _) => group.as_str().to_owned(),
        Verdict::NotConcerned => "not concerned".into(),
        Verdict::Unknown(why) => why.to_string(),
    }
}

/// The state after the kubelet has admitted what the view predicts for its pending pods.
fn published(view: &NodeView, counter: i64) -> NodeState {
    state_of(view.allocations(), counter)
}

#[test]
fn pods_bound_since_the_state_hold_their_place() {
    let mut view = view();
    assert_eq!(told(&view.filter(&asks("a", 6, 1), 0)), "nodes 0 CPUs 1-3,9-11");
    view.observe_bound("a", &asks("a", 6, 1));
    view.observe_bound("a", &asks("a", 6, 1));
    assert_eq!(view.pending(), 1);
    assert_eq!(told(&view.filter(&asks("b", 6, 1), 0)), "nodes 1 CPUs 4-6,12-14");
    assert_eq!(told(&view.commit("b", &asks("b", 6, 1), 0)), "nodes 1 CPUs 4-6,12-14");
    assert_eq!(told(&view.filter(&asks("c", 4, 1), 0)), RefusalGroup::Cpus.as_str());
    view.observe_ended("a", 0);
    assert_eq!(
        told(&view.filter(&asks("c", 4, 1), 0)),
        "nodes 1 CPUs 4-5,12-13",
        "b is bound after that end"
    );
    view.observe_bound("b", &asks("b", 6, 1));
    assert_eq!(exclusive(view.allocations()), [("b".to_owned(), "1-3,9-11".to_owned())]);
}

#[test]
fn a_state_that_covers_a_pod_counts_it_once() {
    let mut view = view();
    view.observe_bound("a", &asks("a", 6, 1));
    let covering = published(&view, 1);
    assert_eq!(view.observe_state(&covering, 5), StateOutcome::Taken);
    assert_eq!((view.pending(), view.allocations().iter().count()), (0, 1));
    view.observe_bound("a", &asks("a", 6, 1));
    assert_eq!(view.pending(), 0, "a late event of a covered pod changes nothing");
    assert_eq!(view.observe_state(&state(), 6), StateOutcome::Older(covering.revision));
    view.observe_ended("a", 0);
    assert_eq!(view.allocations().iter().count(), 0);
    view.observe_bound("a", &asks("a", 6, 1));
    assert_eq!(view.pending(), 0, "an ended pod does not come back");
    let mut next = covering.clone();
    next.revision.counter = 2;
    view.observe_state(&next, 7);
    assert_eq!(view.allocations().iter().count(), 0, "the state still names it, the API has seen its end");
}

#[test]
fn a_tentative_place_ends_by_time_forgetting_or_binding() {
    let mut view = view();
    view.reserve("a", &asks("a", 6, 1), 30);
    view.reserve("b", &asks("b", 8, 1), 40);
    assert_eq!(told(&view.filter(&asks("c", 6, 1), 0)), RefusalGroup::Cpus.as_str());
    assert_eq!(told(&view.filter(&asks("a", 6, 1), 0)), "nodes 0 CPUs 1-3,9-11", "it is not in its own way");
    view.tick(29);
    assert_eq!(view.pending(), 2);
    view.tick(30);
    assert_eq!(view.pending(), 1);
    view.forget("b");
    assert_eq!(view.pending(), 0);
    view.reserve("a", &asks("a", 6, 1), 30);
    view.observe_bound("a", &asks("a", 6, 1));
    view.tick(1_000);
    assert_eq!(view.pending(), 1, "a bound pod has no end by time");
}

#[test]
fn what_is_not_certain_is_unknown() {
    let asks_little = asks("a", 2, 1);
    assert_eq!(told(&NodeView::default().filter(&asks_little, 0)), UnknownNode::NoState.to_string());
    let mut view = view();
    assert_eq!(told(&view.filter(&asks_little, STALE_AFTER + 1)), UnknownNode::Stale.to_string());
    view.observe_life(STALE_AFTER);
    assert_eq!(told(&view.filter(&asks_little, STALE_AFTER + 1)), "nodes 0 CPUs 1,9");
    view.observe_bound("b", &asks("b", 15, 1));
    assert_eq!(
        told(&view.filter(&asks_little, 0)),
        "pod default/b is bound to the node and does not fit by its state"
    );
    view.observe_ended("b", 0);
    let mut inexact = state();
    (inexact.exact, inexact.revision.counter) = (false, 1);
    view.observe_state(&inexact, 0);
    assert!(told(&view.filter(&asks_little, 0)).contains("inexact"));
    let mut broken = state();
    broken.memory[0].free = -1;
    broken.revision.counter = 2;
    assert!(matches!(view.observe_state(&broken, 0), StateOutcome::Refused(_)));
    assert_eq!(told(&view.filter(&asks_little, 0)), UnknownNode::NoState.to_string());
    // The states before the refused one do not name pods that the view has dropped as covered.
    assert!(matches!(view.observe_state(&inexact, 0), StateOutcome::Older(_)));
    assert_eq!(told(&view.filter(&asks_little, 0)), UnknownNode::NoState.to_string());
}

#[test]
fn node_without_a_state_takes_pods_that_no_manager_has_a_say_about() {
    let unknown = NodeView::default();
    let mut pod = asks("a", 2, 1);
    pod.qos = QosClass::Burstable;
    assert_eq!(unknown.filter(&pod, 0), Verdict::NotConcerned);
    pod.containers[0].devices.insert("vendor.com/gpu".into(), 1);
    assert_eq!(unknown.filter(&pod, 0), Verdict::Unknown(UnknownNode::NoState));
}

#[test]
fn other_pods_are_not_the_concern_of_the_managers() {
    let view = view();
    let mut pod = asks("a", 2, 1);
    pod.qos = numa_placement::QosClass::Burstable;
    assert_eq!(view.filter(&pod, 0), Verdict::NotConcerned);
    pod.containers[0].devices.insert("v.com/unknown".into(), 1);
    assert_eq!(view.filter(&pod, 0), Verdict::NotConcerned, "no device of it has a NUMA node");
}

#[test]
fn the_end_of_a_pod_moves_no_other() {
    let mut view = view();
    view.observe_bound("a", &asks("a", 6, 1));
    view.observe_bound("b", &asks("b", 6, 1));
    let on_node_1 = published(&view, 1);
    view.observe_ended("a", 0);
    assert_eq!(view.pending(), 1);
    let open = Verdict::Unknown(UnknownNode::OpenEnd("a".into()));
    assert_eq!(view.filter(&asks("c", 6, 1), 0), open, "b may have come when a was gone");
    view.observe_state(&on_node_1, 0);
    assert_eq!(told(&view.filter(&asks("c", 6, 1), 0)), "nodes 0 CPUs 1-3,9-11", "b stays on node 1");
    assert_eq!(view.pending(), 0);
    view.observe_ended("b", 0);
    view.tick(REMEMBERED_FOR_TESTS);
    assert_eq!(view.pending(), 0);
}

#[test]
fn an_end_is_remembered_until_no_state_can_name_the_pod() {
    let mut view = view();
    view.observe_bound("a", &asks("a", 6, 1));
    let late = published(&view, 1);
    view.observe_ended("a", 0);
    view.tick(1_000);
    view.observe_state(&late, 1_000);
    assert_eq!(view.allocations().iter().count(), 0);
}

const REMEMBERED_FOR_TESTS: Millis = 10_000_000;

fn exclusive(allocations: &Allocations) -> Vec<(String, String)> {
    let all = allocations.iter();
    all.map(|(holder, grant)| (holder.pod().uid.clone(), grant.exclusive.to_string())).collect()
}

#[test]
fn a_tentative_pod_that_is_bound_is_counted_once() {
    let mut view = view();
    view.reserve("a", &asks("a", 6, 1), 1_000);
    view.observe_bound("a", &asks("a", 6, 1));
    assert_eq!(exclusive(view.allocations()), [("a".to_owned(), "1-3,9-11".to_owned())]);
    assert_eq!(view.doubt, None);
}

#[test]
fn a_pod_that_fits_in_one_order_alone_has_to_wait() {
    let mut view = view();
    view.observe_bound("seven", &asks("seven", 7, 1));
    view.reserve("six", &asks("six", 6, 1), 1_000);
    let one = asks("one", 1, 1);
    assert_eq!(told(&view.filter(&one, 0)), "nodes 1 CPUs 15", "after six, which fills node 0");
    let waits = UnknownNode::Waiting("default/six".into());
    assert_eq!(view.filter_in_any_order(&one, 0), Verdict::Unknown(waits), "before it, one gets node 0");
    view.observe_bound("six", &asks("six", 6, 1));
    assert!(matches!(view.filter_in_any_order(&one, 0), Verdict::Fits(_)));
}

#[test]
fn more_orders_than_can_be_tried_make_a_pod_wait() {
    let mut view = view();
    for cpus in 1..=4 {
        view.reserve(&format!("p{cpus}"), &asks(&format!("p{cpus}"), cpus, cpus), 1_000);
    }
    let last = asks("last", 1, 9);
    assert!(matches!(view.filter(&last, 0), Verdict::Fits(_)));
    let waits = UnknownNode::Waiting("default/last".into());
    assert_eq!(view.filter_in_any_order(&last, 0), Verdict::Unknown(waits));
}

#[test]
fn equal_pods_have_one_order() {
    let mut view = view();
    for at in 0..6 {
        let pod = asks(&format!("p{at}"), 2, 1);
        assert!(matches!(view.filter_in_any_order(&pod, 0), Verdict::Fits(_)), "{at}");
        view.reserve(&format!("p{at}"), &pod, 1_000);
    }
    let different = asks("d", 1, 1);
    assert!(
        matches!(view.filter_in_any_order(&different, 0), Verdict::Fits(_)),
        "it has seven places among them"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Pods that a view took one after another are admitted in whatever order they are bound.
    #[test]
    fn pods_taken_in_any_order_are_admitted_in_any_order(
        sizes in prop::collection::vec(1..8u64, 1..10),
        order in Just((0..10usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut view = view();
        let mut taken = Vec::new();
        for (at, cpus) in sizes.iter().enumerate() {
            let pod = asks(&format!("p{at}"), *cpus, 1);
            if matches!(view.filter_in_any_order(&pod, 0), Verdict::Fits(_)) {
                view.reserve(&format!("p{at}"), &pod, 1_000);
                taken.push(pod);
            }
        }
        let model = NodeModel::new(&state()).unwrap();
        let mut node = Holdings::new(model.allocations.clone());
        for pod in order.iter().filter_map(|at| taken.get(*at)) {
            prop_assert_eq!(give(&model, &mut node, pod), None, "{} of {:?}", pod.name, sizes);
        }
    }
}

fn container(name: &str, kind: numa_placement::ContainerKind, cpus: u64, gib: u64) -> ContainerRequest {
    ContainerRequest { kind, ..ContainerRequest::guaranteed(name, cpus * 1000, gib << 30) }
}

#[test]
fn memory_of_init_containers_is_taken_over_by_the_others() {
    use numa_placement::ContainerKind::{App, Init, Sidecar};
    let pod = |name: &str, containers: Vec<ContainerRequest>| {
        PodRequest::new(PodName::new("default", name).with_uid(name), containers)
    };
    let held_by = |containers: Vec<ContainerRequest>| {
        let mut view = view();
        view.observe_bound("p", &pod("p", containers));
        let held = view.allocations().iter().map(|(holder, grant)| {
            let gib: u64 = grant.memory.iter().map(|claim| claim.bytes >> 30).sum();
            format!("{} {gib}", holder.name())
        });
        held.collect::<Vec<_>>().join(", ")
    };
    let app = || container("main", App, 2, 10);
    assert_eq!(held_by(vec![container("init", Init, 2, 6), app()]), "init 0, main 10");
    assert_eq!(held_by(vec![container("init", Init, 2, 12), app()]), "init 2, main 10");
    let two = vec![container("a", Init, 2, 4), container("b", Init, 2, 7), app()];
    assert_eq!(held_by(two), "a 0, b 0, main 10", "b takes over what a had");
    let sidecar =
        vec![container("a", Init, 2, 6), container("s", Sidecar, 2, 4), container("main", App, 2, 1)];
    assert_eq!(held_by(sidecar), "a 1, main 1, s 4", "a sidecar takes over and goes on");

    let mut view = view();
    view.observe_bound("p", &pod("p", vec![container("init", Init, 2, 9), container("main", App, 2, 9)]));
    view.observe_bound("q", &asks("q", 8, 1));
    let next = pod("r", vec![container("main", App, 2, 7)]);
    assert_eq!(told(&view.filter(&next, 0)), "nodes 0 CPUs 2,10", "16 GiB of node 0 less 9, not less 18");
}

#[test]
fn memory_that_an_init_container_may_have_freed_decides_nothing() {
    use numa_placement::ContainerKind::{App, Init};
    let pod = |name: &str, containers: Vec<ContainerRequest>| {
        PodRequest::new(PodName::new("default", name).with_uid(name), containers)
    };
    let mut view = view();
    // Of 12 GiB, 8 are free again when main starts.
    let first = pod("p", vec![container("init", Init, 2, 12), container("main", App, 2, 4)]);
    view.observe_bound("p", &first);
    assert_eq!(told(&view.filter(&asks("q", 1, 3), 0)), "nodes 0 CPUs 2", "it fits beside the 12 GiB");
    assert_eq!(told(&view.filter(&asks("q", 1, 17), 0)), RefusalGroup::Memory.as_str());
    let depends = UnknownNode::FreedMemory("default/p".into());
    assert_eq!(view.filter(&asks("q", 1, 6), 0), Verdict::Unknown(depends.clone()), "on node 0 or on node 1");
    let mut full = view.clone();
    full.observe_bound("r", &asks("r", 1, 16));
    assert_eq!(full.filter(&asks("q", 1, 6), 0), Verdict::Unknown(depends.clone()), "on node 0 or nowhere");
    // What follows on a place that is not known is not known.
    full.observe_bound("q", &asks("q", 1, 6));
    assert_eq!(full.filter(&asks("s", 1, 1), 0), Verdict::Unknown(depends));
    full.observe_ended("p", 0);
    full.observe_ended("q", 0);
    let open = Verdict::Unknown(UnknownNode::OpenEnd("p".into()));
    assert_eq!(full.filter(&asks("s", 1, 1), 0), open);

    let mut covering = published(&view, 1);
    covering.pods[0].containers.retain(|held| held.name == "main");
    covering.pods.truncate(1);
    let mut state = state();
    state.revision.counter = 1;
    state.memory[0].free -= 4 << 30;
    state.shared_cpus = covering.shared_cpus.clone();
    state.pods = vec![HeldPod {
        containers: vec![HeldContainer {
            name: "main".into(),
            cpus: "1,9".parse().unwrap(),
            memory: vec![HeldMemory {
                nodes: [numa_topology::id::NodeId(0)].into_iter().collect(),
                resource: "memory".into(),
                bytes: 4 << 30,
            }],
            ..HeldContainer::default()
        }],
        ..covering.pods[0].clone()
    }];
    view.observe_state(&state, 0);
    assert_eq!(told(&view.filter(&asks("q", 1, 6), 0)), "nodes 0 CPUs 2", "the state shows it as freed");
}

#[test]
fn more_loose_memory_than_can_be_tried_makes_the_answer_unknown() {
    use numa_placement::ContainerKind::{App, Init};
    let mut view = view();
    for name in ["a", "b", "c", "d", "e"] {
        let containers = vec![container("init", Init, 1, 2), container("main", App, 1, 1)];
        let pod = PodRequest::new(PodName::new("default", name).with_uid(name), containers);
        view.observe_bound(name, &pod);
    }
    let depends = UnknownNode::FreedMemory("default/a".into());
    assert_eq!(view.filter(&asks("q", 1, 1), 0), Verdict::Unknown(depends));
}

#[test]
fn bound_pods_count_if_each_order_of_them_leaves_the_same() {
    let after = |pods: &[(&str, u64)]| {
        let mut view = view();
        let requests: Vec<_> = pods.iter().map(|(uid, cpus)| (*uid, asks(uid, *cpus, 1))).collect();
        let pods: Vec<_> = requests.iter().map(|(uid, request)| (*uid, request)).collect();
        view.observe_bound_together(&pods);
        view
    };
    let verdict = |view: &NodeView| view.filter(&asks("next", 1, 1), 0);
    assert!(
        matches!(verdict(&after(&[("six", 6), ("eight", 8)])), Verdict::Refused(..)),
        "one order is enough"
    );
    assert!(matches!(verdict(&after(&[("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 2)])), Verdict::Fits(_)));
    assert!(matches!(verdict(&after(&[("one", 1)])), Verdict::Fits(_)));
    let mut view = after(&[("six", 6), ("one", 1)]);
    let unordered = UnknownNode::Unordered("default/one, default/six".into());
    assert_eq!(verdict(&view), Verdict::Unknown(unordered.clone()));
    let mut burstable = asks("x", 1, 1);
    burstable.qos = QosClass::Burstable;
    assert_eq!(view.filter(&burstable, 0), Verdict::NotConcerned);
    // A state that covers one of them tells how it was.
    let mut other = state();
    other.revision.counter = 1;
    view.observe_state(&other, 0);
    assert_eq!(verdict(&view), Verdict::Unknown(unordered), "a state before both tells nothing");
    let mut one = NodeView::default();
    one.observe_state(&state(), 0);
    one.observe_bound("one", &asks("one", 1, 1));
    view.observe_state(&published(&one, 2), 0);
    assert!(matches!(verdict(&view), Verdict::Fits(_)));
}

#[test]
fn a_commit_is_before_all_tentative_pods() {
    let mut view = view();
    view.reserve("six", &asks("six", 6, 1), 1_000);
    assert_eq!(told(&view.filter(&asks("one", 1, 1), 0)), "nodes 1 CPUs 4");
    assert_eq!(told(&view.commit("one", &asks("one", 1, 1), 0)), "nodes 0 CPUs 1");
    assert_eq!(
        exclusive(view.allocations()),
        [("one".into(), "1".into()), ("six".into(), "4-6,12-14".into())]
    );
}

/// Its binding may be on its way, and what has taken its place may have ended unseen.
#[test]
fn a_chosen_pod_without_a_place_any_more_leaves_no_place_to_others() {
    let mut view = view();
    view.reserve("chosen", &asks("chosen", 8, 1), 1_000);
    view.observe_bound("old", &asks("old", 7, 1));
    let next = asks("next", 1, 1);
    let misfit = UnknownNode::Misfit(asks("chosen", 8, 1).name.to_string());
    assert_eq!(view.filter(&next, 0), Verdict::Unknown(misfit));
    assert!(matches!(view.filter(&asks("chosen", 8, 1), 0), Verdict::Refused(..)), "not in its own way");
    view.release("chosen");
    assert!(matches!(view.filter(&next, 0), Verdict::Fits(_)));
}

#[test]
fn an_end_that_changes_nothing_for_later_pods_leaves_no_doubt() {
    let mut base = view();
    base.observe_bound("a", &asks("a", 8, 1));
    let mut view = view();
    view.observe_state(&published(&base, 1), 0);
    view.observe_bound("b", &asks("b", 2, 1));
    view.observe_ended("a", 0);
    assert_eq!(
        told(&view.filter(&asks("c", 8, 1), 0)),
        "nodes 1 CPUs 4-7,12-15",
        "b is on node 0 in any case"
    );
}

/// The kubelet has freed what `x` held, which nothing shows yet, so it had `passer` on NUMA node 0 and has
/// `late` on node 1.
#[test]
fn an_unseen_end_decides_where_a_pod_is_after_another_came_and_went() {
    let mut base = view();
    base.observe_bound("x", &asks("x", 3, 1));
    let mut seen = view();
    seen.observe_state(&published(&base, 1), 0);
    seen.observe_bound("passer", &asks("passer", 6, 1));
    seen.observe_bound("late", &asks("late", 2, 1));
    seen.observe_ended("passer", 0);
    let next = asks("next", 8, 1);
    let unknown = Verdict::Unknown(UnknownNode::OpenEnd("passer".into()));
    assert_eq!(seen.filter(&next, 0), unknown);
    let mut kubelet = view();
    kubelet.observe_bound("passer", &asks("passer", 6, 1));
    kubelet.observe_bound("late", &asks("late", 2, 1));
    kubelet.observe_ended("passer", 0);
    assert!(matches!(kubelet.bound.clone().admit(kubelet.model().unwrap(), &next), NodeReply::Refused(_)));
    seen.observe_state(&published(&kubelet, 2), 0);
    assert!(matches!(seen.filter(&next, 0), Verdict::Refused(..)));
    assert!(matches!(seen.filter(&asks("next", 6, 1), 0), Verdict::Fits(_)));
}

/// The kubelet has freed NUMA node 0 early, so it has the second pod where the third one would be.
#[test]
fn an_early_end_may_decide_where_a_pod_is_whose_neighbours_have_ended_since() {
    let mut base = view();
    base.observe_bound("y", &asks("y", 5, 1));
    base.observe_bound("x", &asks("x", 3, 1));
    let mut view = view();
    view.observe_state(&published(&base, 1), 0);
    view.observe_ended("x", 0);
    view.observe_bound("a", &asks("a", 5, 1));
    view.observe_ended("y", 0);
    view.observe_bound("b", &asks("b", 3, 1));
    view.observe_ended("a", 0);
    let verdict = view.filter(&asks("next", 8, 1), 0);
    assert!(matches!(verdict, Verdict::Unknown(UnknownNode::OpenEnd(_))), "{verdict:?}");
}

#[test]
fn a_claimed_pod_takes_its_place_among_the_events_when_it_is_seen() {
    let mut view = view();
    view.commit("claimed", &asks("claimed", 4, 1), 0);
    view.observe_bound("by-hand", &asks("by-hand", 4, 1));
    let held = |view: &NodeView| {
        exclusive(view.allocations()).into_iter().map(|(uid, cpus)| format!("{uid} {cpus}"))
    };
    assert_eq!(held(&view).collect::<Vec<_>>(), ["by-hand 1-2,9-10", "claimed 4-5,12-13"]);
    view.observe_bound("claimed", &asks("claimed", 4, 1));
    assert_eq!(held(&view).collect::<Vec<_>>(), ["by-hand 1-2,9-10", "claimed 4-5,12-13"]);
}

#[test]
fn equal_versions_have_equal_answers() {
    let mut view = view();
    let mut versions = vec![view.version()];
    let mut changed = |view: &NodeView| versions.push(view.version());
    view.reserve("a", &asks("a", 6, 1), 30);
    changed(&view);
    view.observe_bound("b", &asks("b", 6, 1));
    changed(&view);
    view.tick(30);
    changed(&view);
    view.observe_outdated(Some("gone".into()));
    changed(&view);
    view.observe_outdated(None);
    changed(&view);
    view.observe_ended("b", 40);
    changed(&view);
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
    let version = view.version();
    view.observe_outdated(None);
    view.observe_ended("b", 40);
    view.tick(41);
    view.forget("c");
    assert_eq!(view.version(), version);
}

#[test]
fn a_state_that_other_objects_outdate_gives_no_answer_until_the_next() {
    let mut view = view();
    view.observe_outdated(Some("its daemon has ended".into()));
    assert_eq!(
        told(&view.filter(&asks("a", 1, 1), 0)),
        "the state of the node is out of date: its daemon has ended"
    );
    let mut next = state();
    next.revision.counter = 1;
    view.observe_state(&next, 0);
    assert!(matches!(view.filter(&asks("a", 1, 1), 0), Verdict::Fits(_)));
}
