//! Calls for pods that have a place already, and states that come again.

use super::*;

#[test]
fn answer_to_a_pod_that_is_bound_is_for_no_other_pod() {
    for binder in [Binder::Scheduler, Binder::Extender] {
        let mut one = extender(binder, &["a"]);
        assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 1, 0), "a | ");
        one.observe_pod(on("a", &pod("p", 8)), 0);
        assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 2, 0), "a | ", "it is not in its own way");
        assert_eq!(filter_at(&mut one, &pod("q", 8), &["a"], 3, 0), format!(" | a: {NO_CPUS}"));
        assert_eq!(one.prioritize(&pod("q", 8), &["a"], 0), [0]);
    }
}

#[test]
fn answers_to_others_are_not_that_of_a_pod_with_a_place() {
    let mut one = extender(Binder::Extender, &["a"]);
    filter(&mut one, &pod("p", 8), &["a"]);
    bind(&mut one, "p", "a").unwrap();
    for is_bound in [false, true] {
        if is_bound {
            one.observe_pod(on("a", &pod("p", 8)), 0);
        }
        assert_eq!(filter(&mut one, &pod("q", 8), &["a"]), format!(" | a: {NO_CPUS}"));
        assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 2, 0), "a | ", "bound: {is_bound}");
    }
}

#[test]
fn late_call_of_a_pod_gives_its_place_to_no_other() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 7, 0), "a | ");
    assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 6, 0), "a | ");
    assert_eq!(filter_at(&mut one, &pod("q", 8), &["a"], 8, 0), format!(" | a: {NO_CPUS}"));
}

#[test]
fn claimed_pod_that_is_asked_for_again_gives_its_place_to_no_other() {
    let mut one = extender(Binder::Extender, &["a"]);
    filter(&mut one, &pod("p", 8), &["a"]);
    bind(&mut one, "p", "a").unwrap();
    end(&mut one, "p", "a", BindEnd::Bound);
    assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 2, 0), "a | ");
    assert_eq!(filter_at(&mut one, &pod("q", 8), &["a"], 3, 0), format!(" | a: {NO_CPUS}"));
}

#[test]
fn pod_that_is_bound_holds_no_second_place() {
    let mut two = extender(Binder::Scheduler, &["a", "b"]);
    two.observe_pod(on("a", &pod("p", 8)), 0);
    assert_eq!(
        filter_at(&mut two, &pod("p", 8), &["b"], 1, 0),
        "b | ",
        "the API server takes no second binding"
    );
    assert_eq!(two.reservations(), 0);
    assert_eq!(filter_at(&mut two, &pod("q", 8), &["b"], 2, 0), "b | ");
}

#[test]
fn state_that_was_deleted_is_replaced_by_any_other_one() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_state(object("a", state_at(7)), 0);
    one.observe_state_gone("a");
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), format!(" | a: {UNKNOWN}"));
    one.observe_state(object("a", state_at(3)), 0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), "a | ", "the clock of its machine has gone back");
    one.observe_state(object("a", state_at(2)), 0);
    one.observe_pod(on("a", &pod("q", 8)), 0);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a"]), format!(" | a: {NO_CPUS}"));
}

#[test]
fn node_is_unknown_while_its_newest_state_cannot_be_read() {
    let mut two = extender(Binder::Extender, &["a"]);
    two.observe_node(node("b"), 0);
    two.observe_unread_state("c", "its object is too large".to_owned());
    two.tick(0, 0);
    two.observe_node(node("c"), 0);
    for name in ["a", "b"] {
        two.observe_unread_state(name, "its object is too large".to_owned());
    }
    for name in ["a", "b", "c"] {
        assert_eq!(
            filter(&mut two, &pod("p", 8), &[name]),
            format!(" | {name}: {UNKNOWN}"),
            "not unpublished"
        );
    }
    for name in ["a", "b"] {
        two.observe_state(object(name, state_at(1)), 0);
        assert_eq!(filter(&mut two, &pod("p", 8), &[name]), format!("{name} | "));
    }
}

#[test]
fn late_call_of_a_pod_with_a_place_gets_no_answer_of_others() {
    let mut one = extender(Binder::Scheduler, &["a"]);
    assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 7, 0), "a | ");
    assert_eq!(filter_at(&mut one, &pod("q", 8), &["a"], 8, 0), format!(" | a: {NO_CPUS}"));
    assert_eq!(filter_at(&mut one, &pod("p", 8), &["a"], 6, 0), "a | ");
}

#[test]
fn lost_reply_of_a_pod_without_a_say_holds_up_no_other() {
    let mut one = extender(Binder::Extender, &["a"]);
    let burstable = PodRequest::new(PodName::new("default", "b").with_uid("b"), Vec::new());
    one.observe_request("b", &burstable, 0);
    one.begin_bind(PodBinding { uid: "b", node: "a" }, 0).unwrap();
    end(&mut one, "b", "a", BindEnd::Unknown);
    assert_eq!(filter(&mut one, &pod("p", 2), &["a"]), "a | ");
}

#[test]
fn node_that_is_named_twice_is_one_node() {
    let mut one = extender(Binder::Extender, &["a", "b"]);
    assert_eq!(filter(&mut one, &pod("p", 8), &["a", "b", "a"]), "a,b,a | ");
}
