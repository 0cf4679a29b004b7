//! The table of situations (scheduler.md 2.4 of the specification), a test for each row.

mod counts;
mod impossible;
mod leases;
mod model_check;
mod parked;
mod retried;
mod wrong;

use numa_placement::{Allocations, ContainerRequest, PodName, PodRequest, place};

use super::*;
use crate::cluster::{
    model::{
        NodeModel,
        tests::{state, state_of},
    },
    objects::{PodArrival, PodObject, PodPhase, PodScheduling, StateOrigin},
    state::{MeasuredLocality, NodeState, RejectedPod},
    view::{NodeView, RefusalGroup, UnknownNode},
};

fn request(uid: &str, cpus: u64, gib: u64) -> PodRequest {
    let container = ContainerRequest::guaranteed("main", cpus * 1000, gib << 30);
    PodRequest::new(PodName::new("default", uid).with_uid(uid), vec![container])
}

fn pod_of(request: PodRequest) -> PodObject {
    PodObject {
        uid: request.name.uid.clone(),
        mirror_of: None,
        node: None,
        phase: PodPhase::Pending,
        arrival: PodArrival::default(),
        ended_at: None,
        ended_init: Vec::new(),
        scheduling: PodScheduling::default(),
        counted: None,
        request,
    }
}

fn pod(uid: &str, cpus: u64) -> PodObject {
    pod_of(request(uid, cpus, 1))
}

fn on(node: &str, pod: &PodObject) -> PodObject {
    PodObject { node: Some(node.to_owned()), ..pod.clone() }
}

fn node(name: &str) -> NodeObject {
    NodeObject { name: name.into(), uid: format!("uid-{name}"), is_ready: true, ..NodeObject::default() }
}

fn object(name: &str, state: NodeState) -> StateObject {
    StateObject {
        name: name.into(),
        api_version: String::new(),
        origin: StateOrigin {
            owner_uid: Some(format!("uid-{name}")),
            lease_namespace: Some("numa-enforcer".into()),
            boot_id: None,
        },
        writers: Vec::new(),
        unknown_fields: Vec::new(),
        state: Ok(state),
    }
}

/// An extender of these nodes, 14 CPUs free on each: 6 on NUMA node 0 and 8 on NUMA node 1.
fn extender(binder: Binder, nodes: &[&str]) -> Extender {
    let mut extender = Extender::new(ExtenderSettings { binder, ..ExtenderSettings::default() });
    for name in nodes {
        extender.observe_node(node(name), 0);
        extender.observe_state(object(name, state()), 0);
    }
    extender.begin_pod_list(0);
    extender.end_pod_list(0);
    extender
}

fn filter_at(extender: &mut Extender, pod: &PodObject, names: &[&str], number: u64, now: Millis) -> String {
    let answer = extender.filter(FilterCall { pod, nodes: names, number, accepted: now }, now);
    let passed: Vec<&str> = answer.passed.iter().map(|at| names[*at]).collect();
    let refused = answer.refused.iter().map(|(at, group)| format!("{}: {}", names[*at], group.as_text()));
    let refused: Vec<String> = refused.collect();
    format!("{} | {}", passed.join(","), refused.join(", "))
}

fn filter(extender: &mut Extender, pod: &PodObject, names: &[&str]) -> String {
    filter_at(extender, pod, names, 1, 0)
}

fn bind(extender: &mut Extender, uid: &str, node: &str) -> Result<String, BindRefusal> {
    let ticket = extender.begin_bind(PodBinding { uid, node }, 0)?;
    Ok(ticket.decision.map(|decision| decision.containers["main"].cpus.to_string()).unwrap_or_default())
}

fn end(extender: &mut Extender, uid: &str, node: &str, end: BindEnd) {
    extender.end_bind(PodBinding { uid, node }, end);
}

const NO_CPUS: &str = RefusalGroup::Cpus.as_str();
const UNKNOWN: &str = UnknownNode::NoState.as_group();

#[test]
fn reservation_without_binder_is_replaced_by_the_next_call_and_ends_by_time() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ");
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"), "p holds NUMA node 1");
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ", "a new attempt replaces the former");
    assert_eq!(one.reservations(), 1);
    one.tick(BINDS_SOON_FOR_TESTS - 1, 0);
    assert_eq!(one.reservations(), 1);
    one.tick(BINDS_SOON_FOR_TESTS, 0);
    assert_eq!(one.reservations(), 0);
    let mut late = pod("late", 8);
    late.scheduling.binds_late = true;
    one.observe_state(object("a", state_at(1)), BINDS_SOON_FOR_TESTS);
    filter_at(&mut one, &late, &["a"], 2, BINDS_SOON_FOR_TESTS);
    one.tick(BINDS_SOON_FOR_TESTS * 3, 0);
    assert_eq!(one.reservations(), 1, "volumes may take 600 s");
    one.observe_pod_gone("late", 0);
    assert_eq!(one.reservations(), 0);
}

const BINDS_SOON_FOR_TESTS: Millis = 300_000;

fn state_at(counter: i64) -> NodeState {
    let mut state = state();
    state.revision.counter = counter;
    state
}

#[test]
fn reservation_ends_where_the_pod_is_bound_to_whichever_node() {
    for bound in ["a", "b"] {
        let mut two = extender(Binder::Scheduler, &["a", "b"]);
        assert_eq!(filter(&mut two, &pod("p", 8), &["a"]), "a | ");
        two.observe_pod(on(bound, &pod("p", 8)), 0);
        assert_eq!(two.reservations(), 0);
        let other = if bound == "a" { "b" } else { "a" };
        assert_eq!(
            filter(&mut two, &pod("q", 8), &["a", "b"]),
            format!("{other} | {bound}: {NO_CPUS}"),
            "its place is where it is bound"
        );
    }
}

#[test]
fn of_nodes_with_a_say_one_passes_without_a_binder_and_all_with_one() {
    let mut unbound = extender(Binder::Scheduler, &["a", "b"]);
    unbound.observe_node(node("plain"), 0);
    assert_eq!(filter(&mut unbound, &pod("p", 2), &["b", "a", "plain"]), "plain,a | ");
    let mut binds = extender(Binder::Extender, &["a", "b"]);
    assert_eq!(filter(&mut binds, &pod("p", 2), &["b", "a"]), "b,a | ");
    assert_eq!(binds.reservations(), 0, "it may go to either");
    assert_eq!(filter(&mut binds, &pod("p", 2), &["b"]), "b | ");
    assert_eq!(binds.reservations(), 1);
    binds.tick(30_000, 0);
    assert_eq!(binds.reservations(), 0, "too early costs an attempt and no place");
}

#[test]
fn pods_that_no_manager_has_a_say_about_pass_everywhere() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    let mut burstable = pod("p", 2);
    burstable.request.qos = numa_placement::QosClass::Burstable;
    assert_eq!(filter(&mut one, &burstable, &["a", "unseen"]), "a,unseen | ");
    assert_eq!(one.reservations(), 0);
    one.observe_pod(on("a", &burstable), 0);
    assert_eq!(one.nodes["a"].view.pending(), 0, "nothing is kept of it on the node");
}

#[test]
fn late_call_replaces_no_newer_one() {
    let mut two = extender(Binder::Scheduler, &["a", "b"]);
    assert_eq!(filter_at(&mut two, &pod("p", 8), &["b"], 7, 0), "b | ");
    assert_eq!(filter_at(&mut two, &pod("p", 8), &["a"], 6, 0), "a | ", "nothing reads this answer any more");
    assert_eq!(two.attempts.release("p").as_deref(), Some("b"));
    let nodes = ["a"];
    let slow = pod("slow", 8);
    two.filter(FilterCall { pod: &slow, nodes: &nodes, number: 8, accepted: 0 }, 5_001);
    assert_eq!(two.reservations(), 0, "the scheduler has given up");
    let call = FilterCall { pod: &slow, nodes: &nodes, number: 9, accepted: 0 };
    two.filter(call, 5_000);
    two.withdraw(call, 5_000);
    two.withdraw(FilterCall { number: 8, ..call }, 5_001);
    assert_eq!(two.reservations(), 1, "in time, and a place of a later call");
    two.withdraw(call, 5_001);
    assert_eq!(two.reservations(), 0, "the answer took too long");
}

#[test]
fn binding_is_the_point_at_which_a_place_is_given() {
    let mut one = extender(Binder::Extender, &["a"]);
    for uid in ["p", "q"] {
        assert_eq!(
            filter(&mut one, &pod(uid, 8), &["a"]),
            if uid == "p" { "a | ".into() } else { format!(" | a: {NO_CPUS}") }
        );
    }
    assert_eq!(bind(&mut one, "q", "a").as_deref(), Ok("4-7,12-15"), "the reservation of p is soft");
    assert_eq!(bind(&mut one, "p", "a"), Err(BindRefusal::NoPlace(AnswerGroup::Cpus)));
    assert_eq!(one.claims(), 1);
    end(&mut one, "q", "a", BindEnd::Bound);
    one.observe_pod(on("a", &pod("q", 8)), 0);
    assert_eq!((one.claims(), one.reservations()), (0, 0));
    assert_eq!(one.take_tally().foreign, 0);
}

#[test]
fn place_of_a_refused_binding_is_free_again() {
    let mut one = extender(Binder::Extender, &["a"]);
    filter(&mut one, &pod("p", 8), &["a"]);
    bind(&mut one, "p", "a").unwrap();
    end(&mut one, "p", "a", BindEnd::Refused);
    assert_eq!(one.claims(), 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), "a | ");
}

#[test]
fn binding_without_a_reply_keeps_its_place_until_it_is_settled() {
    let setup = || {
        let mut two = extender(Binder::Extender, &["a", "b"]);
        filter(&mut two, &pod("p", 8), &["a", "b"]);
        bind(&mut two, "p", "a").unwrap();
        assert_eq!(bind(&mut two, "p", "b"), Err(BindRefusal::OnItsWay("a".into())));
        end(&mut two, "p", "a", BindEnd::Unknown);
        two
    };
    let waits = UnknownNode::WAITING;
    let mut landed = setup();
    assert_eq!(
        filter(&mut landed, &pod("q", 2), &["a"]),
        format!(" | a: {waits}"),
        "its place in the order is open"
    );
    assert_eq!(bind(&mut landed, "q", "a"), Err(BindRefusal::NoPlace(AnswerGroup::Waiting)));
    landed.observe_pod(on("a", &pod("p", 8)), 0);
    assert_eq!((landed.claims(), filter(&mut landed, &pod("q", 2), &["a"]).as_str()), (0, "a | "));

    let mut elsewhere = setup();
    filter(&mut elsewhere, &pod("p", 8), &["b"]);
    bind(&mut elsewhere, "p", "b").unwrap();
    assert_eq!(elsewhere.claims(), 2, "the lost one may still land");
    end(&mut elsewhere, "p", "b", BindEnd::Bound);
    elsewhere.observe_pod(on("b", &pod("p", 8)), 0);
    assert_eq!(elsewhere.claims(), 0);
    assert_eq!(filter(&mut elsewhere, &pod("q", 8), &["a", "b"]), format!("a | b: {NO_CPUS}"));

    let mut lost = setup();
    assert_eq!(lost.unsettled(119_999), []);
    let due = lost.unsettled(120_000);
    assert_eq!(due.iter().map(|claim| claim.uid.as_str()).collect::<Vec<_>>(), ["p"]);
    end(&mut lost, "p", "a", BindEnd::NotThere);
    assert_eq!(filter(&mut lost, &pod("q", 8), &["a"]), "a | ");

    let mut sent_again = setup();
    filter(&mut sent_again, &pod("p", 8), &["a"]);
    bind(&mut sent_again, "p", "a").unwrap();
    end(&mut sent_again, "p", "a", BindEnd::Refused);
    assert_eq!(sent_again.claims(), 1, "the first one may still land, whatever became of the second");
    end(&mut sent_again, "p", "a", BindEnd::NotThere);
    assert_eq!(sent_again.claims(), 0);
}

#[test]
fn pod_that_cannot_be_read_is_not_gone_and_makes_its_node_unknown() {
    let unknown = format!(" | a: {}", UnknownNode::NoState.as_group());
    let mut taken = NodeView::default();
    taken.observe_state(&state(), 0);
    taken.observe_bound("odd", &request("odd", 8, 1));
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_unread_pod("odd", "a", "pod default/odd cannot be read".into());
    assert_eq!(filter(&mut one, &pod("q", 2), &["a"]), unknown);
    one.observe_state(object("a", state_of(taken.allocations(), 1)), 0);
    assert_eq!(filter(&mut one, &pod("q", 2), &["a"]), "a | ", "its state covers it");
    for uid in ["odd", ""] {
        one.begin_pod_list(0);
        one.observe_unread_pod(uid, "a", "pod default/odd cannot be read".into());
        one.end_pod_list(0);
        assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"), "{uid:?}");
    }
    one.observe_pod_gone("odd", 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), "a | ");
}

#[test]
fn claims_of_a_pod_that_can_no_longer_be_read_are_settled_by_its_node() {
    let mut one = extender(Binder::Extender, &["a", "b"]);
    filter(&mut one, &pod("odd", 8), &["a"]);
    bind(&mut one, "odd", "a").unwrap();
    end(&mut one, "odd", "a", BindEnd::Unknown);
    one.observe_unread_pod("odd", "b", "pod default/odd cannot be read".into());
    assert_eq!(one.claims(), 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), "a | ", "it went to the other node");
}

#[test]
fn pod_that_cannot_be_read_makes_a_node_unknown_that_is_shown_later() {
    let mut one = extender(Binder::Extender, &[]);
    one.observe_unread_pod("odd", "late", "pod default/odd cannot be read".into());
    one.tick(1, 0);
    one.observe_node(node("late"), 2);
    one.observe_state(object("late", state()), 2);
    let unknown = format!(" | late: {}", UnknownNode::NoState.as_group());
    assert_eq!(filter(&mut one, &pod("q", 2), &["late"]), unknown);
    one.observe_pod_gone("odd", 3);
    assert_eq!(filter(&mut one, &pod("q", 2), &["late"]), "late | ");
}

#[test]
fn pod_that_an_old_list_lacked_is_there_again_when_it_is_seen() {
    let mut taken = NodeView::default();
    taken.observe_state(&state(), 0);
    taken.observe_bound("p", &request("p", 8, 1));
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_state(object("a", state_of(taken.allocations(), 1)), 0);
    one.begin_pod_list(0);
    one.end_pod_list(0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), "a | ");
    one.observe_pod(on("a", &pod("p", 8)), 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"));
}

#[test]
fn node_that_is_made_again_has_published() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_node_gone("a");
    one.observe_node(NodeObject { uid: "new".into(), ..node("a") }, 0);
    let unknown = format!(" | a: {}", UnknownNode::NoState.as_group());
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), unknown, "until its daemon has written");
    one.observe_state_gone("a");
    one.observe_node_gone("a");
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), "a | ", "it is unseen");
}

#[test]
fn second_binding_to_the_same_node_after_a_lost_one_is_sent() {
    let mut one = extender(Binder::Extender, &["a"]);
    filter(&mut one, &pod("p", 8), &["a"]);
    bind(&mut one, "p", "a").unwrap();
    end(&mut one, "p", "a", BindEnd::Unknown);
    filter(&mut one, &pod("p", 8), &["a"]);
    assert!(bind(&mut one, "p", "a").is_ok());
    end(&mut one, "p", "a", BindEnd::Bound);
    for when in ["by the reply", "by the event"] {
        assert_eq!(bind(&mut one, "p", "a"), Err(BindRefusal::Done), "{when}");
        assert_eq!(bind(&mut one, "p", "b"), Err(BindRefusal::Elsewhere("a".into())), "{when}");
        one.observe_pod(on("a", &pod("p", 8)), 0);
    }
}

#[test]
fn pod_of_which_no_call_was_seen_is_bound_by_its_object() {
    let mut one = extender(Binder::Extender, &["a"]);
    assert_eq!(bind(&mut one, "p", "a"), Err(BindRefusal::UnknownPod));
    one.observe_request("p", &request("p", 2, 1), 0);
    assert_eq!(bind(&mut one, "p", "a").as_deref(), Ok("1,9"));
}

#[test]
fn report_newer_than_the_pod_watch_counts_once() {
    let mut one = extender(Binder::Extender, &["a"]);
    let mut taken = NodeView::default();
    taken.observe_state(&state(), 0);
    taken.observe_bound("p", &request("p", 8, 1));
    one.observe_state(object("a", state_of(taken.allocations(), 1)), 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"), "the pod watch is behind");
    one.observe_pod(on("a", &pod("p", 8)), 0);
    assert_eq!(one.nodes["a"].view.pending(), 0);
    one.observe_pod_gone("p", 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), "a | ");
}

#[test]
fn pod_of_a_report_is_gone_if_a_later_list_does_not_have_it() {
    let mut taken = NodeView::default();
    taken.observe_state(&state(), 0);
    taken.observe_bound("p", &request("p", 8, 1));
    let covering = || object("a", state_of(taken.allocations(), 1));
    let full = format!(" | a: {NO_CPUS}");

    let mut listed_after = extender(Binder::Extender, &["a"]);
    listed_after.observe_state(covering(), 0);
    listed_after.begin_pod_list(0);
    assert_eq!(filter(&mut listed_after, &pod("q", 8), &["a"]), full);
    listed_after.end_pod_list(0);
    assert_eq!(filter(&mut listed_after, &pod("q", 8), &["a"]), "a | ");

    let mut listed_before = extender(Binder::Extender, &["a"]);
    listed_before.begin_pod_list(0);
    listed_before.observe_state(covering(), 0);
    listed_before.end_pod_list(0);
    assert_eq!(filter(&mut listed_before, &pod("q", 8), &["a"]), full, "the list may be older");

    let mut has_it = extender(Binder::Extender, &["a"]);
    has_it.observe_state(covering(), 0);
    has_it.begin_pod_list(0);
    has_it.observe_pod(on("a", &pod("p", 8)), 0);
    has_it.end_pod_list(0);
    assert_eq!(filter(&mut has_it, &pod("q", 8), &["a"]), full);
    has_it.begin_pod_list(0);
    has_it.end_pod_list(0);
    assert_eq!(filter(&mut has_it, &pod("q", 8), &["a"]), "a | ", "it was deleted while the watch was down");
}

#[test]
fn static_pod_whose_mirror_is_not_there_stays() {
    let uid = "0123456789abcdef0123456789abcdef";
    let mut taken = NodeView::default();
    taken.observe_state(&state(), 0);
    taken.observe_bound(uid, &request(uid, 8, 1));
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_state(object("a", state_of(taken.allocations(), 1)), 0);
    one.begin_pod_list(0);
    one.end_pod_list(0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"));
    let mut mirror = PodObject { mirror_of: Some(uid.into()), ..on("a", &pod("mirror", 8)) };
    one.observe_pod(PodObject { uid: "forged".into(), ..mirror.clone() }, 0);
    one.observe_pod_gone("forged", 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"), "it has another name");
    mirror.request.name.name = uid.into();
    one.observe_pod(mirror, 0);
    assert_eq!(one.nodes["a"].view.pending(), 0, "the state has it by the uid of the kubelet");
    one.observe_pod_gone("mirror", 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), "a | ");
}

#[test]
fn nominated_pod_holds_its_place_against_pods_of_lower_or_equal_priority() {
    let mut one = extender(Binder::Extender, &["a"]);
    let mut preemptor = pod("preemptor", 8);
    preemptor.scheduling.priority = 10;
    preemptor.scheduling.nominated_node = Some("a".into());
    one.observe_pod(preemptor.clone(), 0);
    let with_priority = |priority: i32| {
        let mut pod = pod("p", 8);
        pod.scheduling.priority = priority;
        pod
    };
    for (priority, expected) in
        [(9, format!(" | a: {NO_CPUS}")), (10, format!(" | a: {NO_CPUS}")), (11, "a | ".into())]
    {
        assert_eq!(filter(&mut one, &with_priority(priority), &["a"]), expected, "{priority}");
    }
    one.observe_pod_gone("p", 0);
    assert_eq!(filter(&mut one, &preemptor, &["a"]), "a | ", "it is not in its own way");
    one.observe_pod_gone("preemptor", 0);
    assert_eq!(filter(&mut one, &with_priority(9), &["a"]), "a | ");
}

#[test]
fn nomination_ends_if_a_later_list_lacks_its_pod() {
    let mut one = extender(Binder::Extender, &["a"]);
    let mut preemptor = pod("preemptor", 8);
    preemptor.scheduling.nominated_node = Some("a".into());
    one.observe_pod(preemptor, 0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), format!(" | a: {NO_CPUS}"));
    one.begin_pod_list(0);
    one.end_pod_list(0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ");
}

#[test]
fn annotation_of_a_mirror_with_the_uid_of_another_pod_is_not_believed() {
    let mut taken = NodeView::default();
    taken.observe_state(&state(), 0);
    taken.observe_bound("victim", &request("victim", 8, 1));
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_state(object("a", state_of(taken.allocations(), 1)), 0);
    one.observe_pod(on("a", &pod("victim", 8)), 0);
    let forged = PodObject { mirror_of: Some("victim".into()), ..on("a", &pod("forged", 4)) };
    one.observe_pod(forged, 0);
    assert_eq!(filter(&mut one, &pod("p", 4), &["a"]), format!(" | a: {NO_CPUS}"), "it holds its own place");
    one.observe_pod_gone("forged", 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"));
}

/// The watch of nodes may be behind that of pods.
#[test]
fn pod_on_a_node_that_is_shown_later_holds_its_place() {
    let mut one = extender(Binder::Extender, &[]);
    one.observe_pod(on("late", &pod("p", 8)), 0);
    one.tick(1, 0);
    one.observe_node(node("late"), 2);
    one.observe_state(object("late", state()), 2);
    assert_eq!(filter(&mut one, &pod("q", 8), &["late"]), format!(" | late: {NO_CPUS}"));
    one.observe_pod(on("never", &pod("r", 8)), 2);
    one.observe_pod_gone("r", 3);
    one.tick(1_000_000, 0);
    assert_eq!(one.nodes.keys().collect::<Vec<_>>(), ["late"]);
}

/// A pod that was bound before `listed` and deleted may have made the kubelet put `listed` elsewhere.
#[test]
fn node_with_listed_pods_is_unknown_until_its_state_covers_them() {
    let mut one = extender(Binder::Extender, &["a", "b"]);
    one.begin_pod_list(1);
    one.observe_pod(on("a", &pod("listed", 6)), 1);
    one.end_pod_list(1);
    assert_eq!(filter(&mut one, &pod("p", 1), &["a", "b"]), format!("b | a: {UNKNOWN}"));
    one.observe_pod(on("a", &pod("later", 2)), 2);
    let mut kubelet = NodeView::default();
    kubelet.observe_state(&state(), 0);
    for (uid, cpus, counter, expected) in
        [("listed", 6, 1, format!(" | a: {UNKNOWN}")), ("later", 2, 2, "a | ".into())]
    {
        kubelet.observe_bound(uid, &request(uid, cpus, 1));
        one.observe_state(object("a", state_of(kubelet.allocations(), counter)), 2);
        assert_eq!(filter(&mut one, &pod("p", 1), &["a"]), expected, "{uid} is covered");
    }
}

#[test]
fn victims_of_preemption_hold_their_place_until_they_are_gone() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_pod(on("a", &pod("victim", 8)), 0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), format!(" | a: {NO_CPUS}"), "it terminates");
    let ended = PodObject { phase: PodPhase::Ended, ..on("a", &pod("victim", 8)) };
    one.observe_pod(ended, 0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ");
}

#[test]
fn foreign_pods_count_when_they_are_seen() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_pod(on("a", &pod("by-hand", 8)), 0);
    assert_eq!(one.take_tally().foreign, 1);
    one.observe_pod(on("a", &pod("by-hand", 8)), 0);
    assert_eq!(one.take_tally().foreign, 0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), format!(" | a: {NO_CPUS}"));
}

#[test]
fn pods_that_hold_nothing_or_passed_without_a_place_are_not_foreign() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    one.observe_node(node("unpublished"), 0);
    // No whole CPU, and a node whose memory manager gives none.
    let mut fraction = pod("fraction", 1);
    fraction.request.containers[0] = ContainerRequest::guaranteed("main", 500, 1 << 30);
    let mut without_memory = state_at(1);
    without_memory.kubelet.memory_policy = "None".into();
    without_memory.memory.clear();
    one.observe_state(object("a", without_memory), 0);
    one.observe_pod(on("a", &fraction), 0);
    assert_eq!(filter(&mut one, &pod("asked", 2), &["unpublished"]), "unpublished | ");
    one.observe_pod(on("unpublished", &pod("asked", 2)), 0);
    assert_eq!(one.take_tally().foreign, 0);
    one.observe_pod(on("a", &pod("by-hand", 2)), 0);
    assert_eq!(one.take_tally().foreign, 1);
}

#[test]
fn node_without_a_usable_state_takes_no_pod_with_a_place() {
    let unknown = UnknownNode::NoState.as_group();
    let refused = format!(" | a: {unknown}");
    let mut one = extender(Binder::Extender, &["a"]);
    let mut inexact = state_at(1);
    inexact.exact = false;
    one.observe_state(object("a", inexact), 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), refused, "a kubelet that starts again");
    one.observe_state(object("a", state_at(2)), 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), "a | ");
    one.observe_state(StateObject { state: Err("no JSON".into()), ..object("a", state()) }, 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), refused);
    one.observe_state(object("a", state_at(3)), 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), "a | ");
    one.observe_state_gone("a");
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), refused);
    one.observe_state(object("a", state_at(3)), 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), "a | ", "the daemon has written it again");
    assert_eq!(filter_at(&mut one, &pod("p", 2), &["a"], 2, 180_001), refused, "nothing shows that it lives");
    let denies = ExtenderSettings { allows_unknown_nodes: false, ..ExtenderSettings::default() };
    let mut denies = Extender::new(denies);
    assert_eq!(filter(&mut denies, &pod("p", 2), &["a"]), refused);
    assert_eq!(filter(&mut one, &pod("p", 2), &["unseen"]), "unseen | ");
}

#[test]
fn node_that_was_replaced_under_its_name_has_another_state() {
    let unknown = format!(" | a: {}", UnknownNode::NoState.as_group());
    let mut one = extender(Binder::Extender, &["a"]);
    let new = NodeObject { uid: "new".into(), ..node("a") };
    let mut of_new = object("a", state());
    of_new.origin.owner_uid = Some("new".into());
    one.observe_node(new.clone(), 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), unknown);
    one.observe_state(object("a", state_at(9)), 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), unknown, "a late state of the old node");
    one.observe_state(of_new.clone(), 0);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), "a | ", "its revision may be lower");
    let mut early = extender(Binder::Extender, &["a"]);
    early.observe_state(of_new, 0);
    early.observe_node(new, 0);
    assert_eq!(filter(&mut early, &pod("p", 2), &["a"]), "a | ", "the state came before the node");
    early.observe_node_gone("a");
    early.observe_state_gone("a");
    assert_eq!(early.nodes_with_state(), 0);
    let mut unowned = extender(Binder::Extender, &["a"]);
    let mut of_any = object("a", state_at(1));
    of_any.origin.owner_uid = None;
    unowned.observe_state(of_any, 0);
    assert_eq!(filter(&mut unowned, &pod("p", 2), &["a"]), "a | ");
    unowned.observe_node(NodeObject { uid: "other".into(), ..node("a") }, 0);
    assert_eq!(filter(&mut unowned, &pod("p", 2), &["a"]), unknown, "the state names no owner");
}

#[test]
fn best_node_is_that_with_the_fewest_numa_nodes_then_by_packing() {
    for (packing, expected) in [(Packing::Pack, "full"), (Packing::Spread, "empty")] {
        let settings = ExtenderSettings { binder: Binder::Scheduler, packing, ..ExtenderSettings::default() };
        let mut two = Extender::new(settings);
        for name in ["empty", "full"] {
            two.observe_node(node(name), 0);
            two.observe_state(object(name, state()), 0);
        }
        two.observe_pod(on("full", &pod("there", 4)), 0);
        let nodes = ["empty", "full", "unseen"];
        let scores = two.prioritize(&pod("p", 2), &nodes, 0);
        let (other, best) = if expected == "full" { (scores[0], scores[1]) } else { (scores[1], scores[0]) };
        assert!(best > other && other > 0 && scores[2] == 0 && best <= 10, "{scores:?}");
        assert_eq!(filter(&mut two, &pod("p", 2), &["empty", "full"]), format!("{expected} | "));
    }
}

#[test]
fn nodes_where_less_memory_is_remote_are_better() {
    let score = |extender: &mut Extender| extender.prioritize(&pod("p", 2), &["a"], 0)[0];
    let mut before = i64::MAX;
    for (percent, is_worse) in [(0, true), (9, false), (10, true), (25, true), (50, true), (75, false)] {
        let mut two = extender(Binder::Scheduler, &["a", "b"]);
        let measured = Some(MeasuredLocality { remote_percent: percent });
        two.observe_state(object("a", NodeState { measured, ..state_at(1) }), 0);
        let now = score(&mut two);
        assert_eq!(now < before, is_worse, "{percent}");
        before = now;
        // Of equal nodes the first one is taken.
        let expected = if percent < 10 { "a | " } else { "b | " };
        assert_eq!(filter(&mut two, &pod("p", 2), &["a", "b"]), expected, "{percent}");
        // A node that gives it two NUMA nodes is worse than any that gives it one.
        assert!(now > 0, "{percent}");
    }
}

#[test]
fn answers_do_not_depend_on_how_they_are_shared_out() {
    let names: Vec<String> = (0..200).map(|at| format!("n{at:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answers = |sharing: WorkSharing, binder: Binder| {
        let mut one = Extender::new(ExtenderSettings { binder, ..ExtenderSettings::default() });
        one.share_work(sharing);
        for (at, name) in names.iter().enumerate().filter(|(at, _)| at % 7 != 0) {
            one.observe_node(node(name), 0);
            one.observe_state(object(name, state()), 0);
            for (uid, cpus) in [(format!("one-{at}"), 8), (format!("two-{at}"), at as u64 % 9)] {
                one.observe_pod(on(name, &pod(&uid, cpus)), 0);
            }
        }
        let mut nominated = pod("nominated", 8);
        nominated.scheduling.nominated_node = Some("n001".into());
        one.observe_pod(nominated, 0);
        let calls = ["p", "q", "p"].map(|uid| filter(&mut one, &pod(uid, 4), &names));
        (calls, one.prioritize(&pod("r", 4), &names, 0), one.take_tally())
    };
    for binder in [Binder::Extender, Binder::Scheduler] {
        let expected = answers(WorkSharing::default(), binder);
        assert!(expected.0[0].contains(NO_CPUS), "{:?}", expected.0);
        assert!(expected.1.iter().any(|score| *score > 0), "{:?}", expected.1);
        let runs: [RunParts; 3] =
            [|_, parts, work| (0..parts).rev().for_each(work), |_, _, work| work(1), |_, _, _| {}];
        for run in runs {
            assert_eq!(answers(WorkSharing::new(2, run), binder), expected);
        }
    }
}

#[test]
fn held_place_outlives_its_node_and_one_that_takes_the_name_has_it() {
    for state_is_first in [false, true] {
        let mut one = extender(Binder::Scheduler, &["a"]);
        one.hold(&pod("p", 8), "a", 0);
        if state_is_first {
            one.observe_state_gone("a");
            one.observe_node_gone("a");
        } else {
            one.observe_node_gone("a");
            one.observe_state_gone("a");
        }
        one.tick(0, 0);
        one.observe_node(node("a"), 1);
        one.observe_state(object("a", state()), 1);
        assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"));
        one.release_hold("p");
        assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), "a | ");
        one.observe_node_gone("a");
        one.observe_state_gone("a");
        one.observe_pod_gone("q", 2);
        one.tick(2, 0);
        assert!(one.nodes.is_empty(), "nothing of it is left");
    }
}

#[test]
fn held_place_that_bound_pods_have_taken_keeps_no_other_pod_away() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    one.hold(&pod("late", 8), "a", 0);
    one.observe_pod(on("a", &pod("foreign", 8)), 0);
    assert_eq!(filter(&mut one, &pod("q", 2), &["a"]), "a | ");
}

#[test]
fn nodes_in_one_situation_pass_or_not_as_each_does_alone() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let model = NodeModel::new(&state()).unwrap();
    let of_nodes = || {
        let mut one = extender(Binder::Extender, &names);
        for (at, name) in names.iter().enumerate() {
            let mut held = Allocations::default();
            for which in 0..at % 3 {
                let request = request(&format!("held-{name}-{which}"), 4, 1);
                place(&model.inventory, &model.settings, &mut held, &request).unwrap();
            }
            one.observe_state(object(name, state_of(&held, 2)), 0);
        }
        one
    };
    for (cpus, expected) in [(2, "a,b,c,d,e,f"), (6, "a,b,d,e"), (8, "a,b,d,e"), (9, "")] {
        let alone = |name: &&&str| filter(&mut of_nodes(), &pod("p", cpus), &[name]) == format!("{name} | ");
        let alone: Vec<&str> = names.iter().filter(alone).copied().collect();
        assert_eq!(alone.join(","), expected, "{cpus}");
        let mut one = of_nodes();
        let together = filter(&mut one, &pod("p", cpus), &names);
        assert_eq!(together.split(" | ").next(), Some(expected), "{cpus}");
        // Answers that others gave are as good the second time.
        assert_eq!(filter(&mut one, &pod("q", cpus), &names), together, "{cpus}");
        // A node that leaves the situation takes no answer along.
        one.observe_pod(on("a", &pod("new", 8)), 0);
        let without_a = expected.strip_prefix("a,").unwrap_or(expected);
        let passed = if cpus < 8 { expected } else { without_a };
        assert_eq!(filter(&mut one, &pod("q", cpus), &names).split(" | ").next(), Some(passed), "{cpus}");
    }
}
