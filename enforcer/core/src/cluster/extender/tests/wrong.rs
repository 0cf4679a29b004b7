//! Predictions that are wrong: a node is not asked for a while, and then pods go there one at a time.

use super::*;

#[test]
fn wrong_prediction_makes_a_node_unknown_for_a_minute() {
    let unknown = format!(" | a: {}", UnknownNode::NoState.as_group());
    let bound = || {
        let mut one = extender(Binder::Extender, &["a"]);
        filter(&mut one, &pod("p", 2), &["a"]);
        bind(&mut one, "p", "a").unwrap();
        end(&mut one, "p", "a", BindEnd::Bound);
        one
    };
    let mut given = NodeView::default();
    given.observe_state(&state(), 0);
    given.observe_bound("p", &request("p", 2, 1));
    let mut right = bound();
    right.observe_state(object("a", state_of(given.allocations(), 1)), 0);
    assert_eq!(right.take_tally().as_predicted, 1);
    assert_eq!(filter(&mut right, &pod("q", 2), &["a"]), "a | ");

    let mut refused = state_at(1);
    refused.rejected = vec![RejectedPod { uid: "p".into(), reason: "TopologyAffinityError".into(), at: 1 }];
    let mut elsewhere = NodeView::default();
    elsewhere.observe_state(&state(), 0);
    elsewhere.observe_bound("other", &request("other", 2, 1));
    elsewhere.observe_bound("p", &request("p", 2, 1));
    for wrong in [refused, state_of(elsewhere.allocations(), 1)] {
        let mut one = bound();
        one.observe_state(object("a", wrong), 0);
        assert_eq!(one.take_tally().mispredicted, ["default/p"]);
        assert_eq!(filter(&mut one, &pod("q", 2), &["a"]), unknown);
        one.tick(59_999, 0);
        assert_eq!(filter_at(&mut one, &pod("q", 2), &["a"], 2, 59_999), unknown);
        one.tick(60_000, 0);
        assert_eq!(filter_at(&mut one, &pod("q", 2), &["a"], 3, 60_000), "a | ");
    }
}

/// A state in which each of these pods came after a pod that nothing has shown.
fn elsewhere(counter: i64, uids: &[String]) -> NodeState {
    let mut given = NodeView::default();
    given.observe_state(&state(), 0);
    given.observe_bound("other", &request("other", 1, 1));
    for uid in uids {
        given.observe_bound(uid, &request(uid, 1, 1));
    }
    state_of(given.allocations(), counter)
}

/// An extender that was wrong this many times about the node, a minute apart; and the time then.
fn often_wrong(binder: Binder, times: i64) -> (Extender, Vec<String>, Millis) {
    let mut one = extender(binder, &["a"]);
    let (mut uids, mut now) = (Vec::new(), 0);
    for time in 0..times {
        now += 60_000;
        one.tick(now, 0);
        let uid = format!("wrong-{time}");
        // As the state shows it, but for CPUs that no event has explained.
        let mut claimed = state_of(&Allocations::default(), 2 * time + 1);
        claimed.revision.counter = 2 * time + 1;
        one.observe_state(object("a", claimed), now);
        one.observe_request(&uid, &request(&uid, 1, 1), now);
        one.begin_bind(PodBinding { uid: &uid, node: "a" }, now).unwrap();
        end(&mut one, &uid, "a", BindEnd::Bound);
        uids = vec![uid];
        one.observe_state(object("a", elsewhere(2 * time + 2, &uids)), now);
        assert_eq!(one.take_tally().mispredicted.len(), 1);
    }
    (one, uids, now)
}

#[test]
fn after_three_wrong_predictions_a_pod_waits_for_the_one_before_it() {
    for (times, expected) in [(2, "a | ".to_owned()), (3, format!(" | a: {}", UnknownNode::WAITING))] {
        let (mut one, held, mut now) = often_wrong(Binder::Extender, times);
        now += 60_000;
        one.tick(now, 0);
        assert_eq!(filter_at(&mut one, &pod("p", 1), &["a"], 9, now), "a | ");
        one.begin_bind(PodBinding { uid: "p", node: "a" }, now).unwrap();
        end(&mut one, "p", "a", BindEnd::Bound);
        assert_eq!(filter_at(&mut one, &pod("q", 1), &["a"], 10, now), expected, "after {times}");
        assert_eq!(filter_at(&mut one, &pod("p", 1), &["a"], 11, now), "a | ", "it does not wait for itself");
        let burstable = pod_of(PodRequest::new(PodName::new("default", "b").with_uid("b"), Vec::new()));
        assert_eq!(filter_at(&mut one, &burstable, &["a"], 12, now), "a | ");
        if times == 3 {
            let refused = one.begin_bind(PodBinding { uid: "q", node: "a" }, now);
            assert_eq!(refused, Err(BindRefusal::NoPlace(AnswerGroup::Waiting)));
            // The state covers it where it was predicted.
            let mut uids = held;
            uids.push("p".to_owned());
            one.take_wake();
            filter_at(&mut one, &pod("q", 1), &["a"], 13, now);
            one.observe_state(object("a", elsewhere(99, &uids)), now);
            assert_eq!(one.take_tally().as_predicted, 1);
            assert!(one.take_wake(), "the pod behind it is tried again");
            assert_eq!(filter_at(&mut one, &pod("q", 1), &["a"], 14, now), "a | ");
        }
    }
}

#[test]
fn pods_that_may_still_come_are_waited_for_as_well_and_old_mistakes_are_forgotten() {
    let (mut one, _, mut now) = often_wrong(Binder::Extender, 3);
    one.settings.binder = Binder::Scheduler;
    now += 60_000;
    one.tick(now, 0);
    assert_eq!(filter_at(&mut one, &pod("p", 1), &["a"], 9, now), "a | ");
    let waits = format!(" | a: {}", UnknownNode::WAITING);
    assert_eq!(filter_at(&mut one, &pod("q", 1), &["a"], 10, now), waits);
    // The first mistake was at minute 1.
    for (later, expected) in [(599_999, waits.as_str()), (600_000, "a | ")] {
        let now = 60_000 + later;
        one.observe_state(object("a", elsewhere(later.try_into().unwrap(), &[])), now);
        one.tick(now, 0);
        filter_at(&mut one, &pod("p", 1), &["a"], later, now);
        assert_eq!(filter_at(&mut one, &pod("q", 1), &["a"], later, now), expected);
    }
}

#[test]
fn node_that_takes_the_name_starts_without_mistakes() {
    let (mut one, ..) = often_wrong(Binder::Extender, 3);
    one.observe_node(NodeObject { uid: "uid-new".into(), ..node("a") }, 200_000);
    let mut fresh = object("a", state_of(&Allocations::default(), 1));
    fresh.origin.owner_uid = Some("uid-new".into());
    one.observe_state(fresh, 200_000);
    assert_eq!(filter_at(&mut one, &pod("p", 1), &["a"], 9, 200_000), "a | ");
    one.begin_bind(PodBinding { uid: "p", node: "a" }, 200_000).unwrap();
    assert_eq!(filter_at(&mut one, &pod("q", 1), &["a"], 10, 200_000), "a | ");
}

#[test]
fn refusal_that_the_api_shows_before_the_state_is_a_wrong_prediction() {
    let refuse = |reason: &str, later: Millis| {
        let mut one = extender(Binder::Extender, &["a"]);
        filter(&mut one, &pod("p", 2), &["a"]);
        bind(&mut one, "p", "a").unwrap();
        end(&mut one, "p", "a", BindEnd::Bound);
        one.observe_pod(on("a", &pod("p", 2)), 0);
        one.observe_pod(PodObject { phase: PodPhase::Ended, ..on("a", &pod("p", 2)) }, 0);
        one.tick(later, 0);
        let mut refused = state_at(1);
        refused.rejected = vec![RejectedPod { uid: "p".into(), reason: reason.into(), at: 1 }];
        one.observe_state(object("a", refused), later);
        (one.take_tally().mispredicted, filter_at(&mut one, &pod("q", 2), &["a"], 2, later))
    };
    let unknown = format!(" | a: {UNKNOWN}");
    assert_eq!(refuse("TopologyAffinityError", 1_000), (vec!["default/p".to_owned()], unknown));
    assert_eq!(refuse("OutOfcpu", 1_000), (Vec::new(), "a | ".to_owned()), "sums are the scheduler's");
    assert_eq!(refuse("TopologyAffinityError", 60_000), (Vec::new(), "a | ".to_owned()), "it is long over");
}

#[test]
fn pod_that_may_come_explains_no_wrong_prediction() {
    let mut one = extender(Binder::Extender, &["a"]);
    filter(&mut one, &pod("t", 2), &["a"]);
    filter(&mut one, &pod("p", 2), &["a"]);
    bind(&mut one, "p", "a").unwrap();
    end(&mut one, "p", "a", BindEnd::Bound);
    let mut given = NodeView::default();
    given.observe_state(&state(), 0);
    for uid in ["other", "p"] {
        given.observe_bound(uid, &request(uid, 2, 1));
    }
    one.observe_state(object("a", state_of(given.allocations(), 1)), 0);
    let tally = one.take_tally();
    assert_eq!((tally.unchecked, tally.mispredicted), (0, vec!["default/p".to_owned()]));
}

#[test]
fn mistakes_of_one_state_count_once() {
    let mut one = extender(Binder::Extender, &["a"]);
    let uids: Vec<String> = (0..3).map(|at| format!("p{at}")).collect();
    for uid in &uids {
        one.observe_request(uid, &request(uid, 1, 1), 0);
        one.begin_bind(PodBinding { uid, node: "a" }, 0).unwrap();
        end(&mut one, uid, "a", BindEnd::Bound);
    }
    one.observe_state(object("a", elsewhere(1, &uids)), 0);
    assert_eq!(one.take_tally().mispredicted.len(), 3);
    one.tick(60_000, 0);
    one.observe_request("q", &request("q", 1, 1), 60_000);
    one.begin_bind(PodBinding { uid: "q", node: "a" }, 60_000).unwrap();
    assert_eq!(filter_at(&mut one, &pod("r", 1), &["a"], 9, 60_000), "a | ", "it is not one at a time");
}

#[test]
fn end_of_one_at_a_time_wakes_those_that_waited() {
    let (mut one, held, _) = often_wrong(Binder::Extender, 3);
    let now = 659_990;
    one.observe_state(object("a", elsewhere(98, &held)), now);
    one.tick(now, 0);
    one.observe_request("p", &request("p", 1, 1), now);
    one.begin_bind(PodBinding { uid: "p", node: "a" }, now).unwrap();
    end(&mut one, "p", "a", BindEnd::Bound);
    one.take_wake();
    assert_eq!(filter_at(&mut one, &pod("q", 1), &["a"], 9, now), format!(" | a: {}", UnknownNode::WAITING));
    one.tick(660_000, 0);
    assert!(one.take_wake());
    assert_eq!(filter_at(&mut one, &pod("q", 1), &["a"], 10, 660_000), "a | ");
}

#[test]
fn nominated_pods_do_not_wait_for_each_other() {
    let (mut one, _, mut now) = often_wrong(Binder::Extender, 3);
    now += 60_000;
    one.tick(now, 0);
    let nominated = |uid: &str| {
        let mut pod = pod(uid, 1);
        pod.scheduling.nominated_node = Some("a".into());
        pod
    };
    for uid in ["m", "n"] {
        one.observe_pod(nominated(uid), now);
    }
    assert_eq!(filter_at(&mut one, &nominated("m"), &["a"], 1, now), "a | ");
}
