//! Pods that no node passed are tried again when a state may help them.

use super::*;

/// A later state of a node with pods of these numbers of CPUs.
fn newer(counter: i64, held: &[u64]) -> NodeState {
    let mut view = NodeView::default();
    view.observe_state(&state(), 0);
    for (at, cpus) in held.iter().enumerate() {
        let uid = format!("held-{at}");
        view.observe_bound(&uid, &request(&uid, *cpus, 1));
    }
    state_of(view.allocations(), counter)
}

#[test]
fn state_that_shows_more_room_wakes_pods_that_no_node_passed_once() {
    let mut one = extender(Binder::Extender, &["a"]);
    let publish = |one: &mut Extender, counter, held: &[u64]| {
        one.observe_state(object("a", newer(counter, held)), 0);
        one.take_wake()
    };
    assert!(!publish(&mut one, 1, &[8]), "no pod waits");
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), format!(" | a: {NO_CPUS}"));
    assert!(!one.take_wake(), "nothing has changed");
    assert!(!publish(&mut one, 2, &[8]) && !publish(&mut one, 3, &[8, 2]), "there is no more room");
    assert!(publish(&mut one, 4, &[2]));
    assert!(!publish(&mut one, 5, &[]), "it was not refused again");
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ");
    assert!(!publish(&mut one, 6, &[8]) && !publish(&mut one, 7, &[]), "it was passed");
}

#[test]
fn end_of_a_pod_that_no_state_covers_wakes_pods() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_pod(on("a", &pod("p", 8)), 0);
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"));
    one.observe_pod_gone("elsewhere", 0);
    assert!(!one.take_wake());
    one.observe_pod_gone("p", 0);
    assert!(one.take_wake());
}

#[test]
fn pod_that_goes_elsewhere_wakes_others() {
    let mut one = extender(Binder::Scheduler, &["a", "b"]);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ");
    assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"));
    assert_eq!(filter(&mut one, &pod("p", 8), &["b"]), "b | ");
    assert!(one.take_wake());
}

#[test]
fn place_that_is_given_up_by_time_or_after_a_lost_reply_wakes_pods() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ");
    assert_eq!(filter(&mut one, &pod("r", 8), &["a"]), format!(" | a: {NO_CPUS}"));
    one.tick(1_000, 0);
    assert!(!one.take_wake());
    one.tick(10_000_000, 0);
    assert!(one.take_wake(), "the reservation has ended");
    let mut one = extender(Binder::Extender, &["a"]);
    filter(&mut one, &pod("p", 8), &["a"]);
    bind(&mut one, "p", "a").unwrap();
    end(&mut one, "p", "a", BindEnd::Unknown);
    assert_eq!(filter(&mut one, &pod("r", 2), &["a"]), format!(" | a: {}", UnknownNode::WAITING));
    assert!(!one.take_wake());
    end(&mut one, "p", "a", BindEnd::NotThere);
    assert!(one.take_wake());
}

#[test]
fn node_that_is_known_again_wakes_pods() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_unread_pod("odd", "a", "pod default/odd cannot be read".into());
    one.tick(0, 0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), format!(" | a: {UNKNOWN}"));
    one.tick(1, 0);
    assert!(!one.take_wake());
    one.observe_pod_gone("odd", 2);
    one.tick(2, 0);
    assert!(one.take_wake());
}

#[test]
fn state_with_more_to_give_wakes_pods() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_state(object("a", newer(1, &[8])), 0);
    assert_eq!(filter(&mut one, &pod("p", 7), &["a"]), format!(" | a: {NO_CPUS}"));
    let mut grown = newer(2, &[8]);
    grown.reserved_cpus = "0".parse().unwrap();
    one.observe_state(object("a", grown), 0);
    assert!(one.take_wake());
    assert_eq!(filter(&mut one, &pod("p", 7), &["a"]), "a | ");
}

#[test]
fn pod_that_keeps_its_place_wakes_none() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    filter_at(&mut one, &pod("p", 8), &["a"], 1, 0);
    filter_at(&mut one, &pod("q", 8), &["a"], 2, 0);
    assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 3, 0), "a | ");
    assert!(!one.take_wake());
    assert_eq!(filter_at(&mut one, &pod("p", 9), &["a"], 4, 0), format!(" | a: {NO_CPUS}"));
    assert!(one.take_wake(), "its place is free now");
}
