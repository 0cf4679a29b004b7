//! Pods that no node passed are tried again when a state may help them.

use super::*;

fn newer(counter: i64) -> NodeState {
    let mut newer = state();
    newer.revision.counter += counter;
    newer
}

#[test]
fn state_wakes_pods_that_no_node_passed_once() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_state(object("a", newer(1)), 0);
    assert!(!one.take_wake(), "no pod waits");
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ");
    one.observe_state(object("a", newer(2)), 0);
    assert!(!one.take_wake(), "it was passed");
    assert_eq!(filter(&mut one, &pod("q", 9), &["a"]), format!(" | a: {NO_CPUS}"));
    assert!(!one.take_wake(), "nothing has changed");
    one.observe_state(object("a", newer(2)), 0);
    assert!(!one.take_wake(), "the state is not newer");
    one.observe_state(object("a", newer(3)), 0);
    assert!(one.take_wake());
    one.observe_state(object("a", newer(4)), 0);
    assert!(!one.take_wake(), "it was not refused again");
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
