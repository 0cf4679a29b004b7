//! What is counted for metrics.

use super::*;
use crate::cluster::state::InexactSource;

fn told(counts: &AnswerCounts) -> Vec<(&'static str, u64)> {
    counts.by_name().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn each_answer_of_a_node_is_counted_once() {
    let mut one = extender(Binder::Extender, &["a", "b"]);
    one.observe_node(node("new"), 0);
    filter(&mut one, &pod("p", 8), &["a", "b", "new"]);
    filter(&mut one, &pod("large", 9), &["a", "new"]);
    let shared = ContainerRequest { name: "main".into(), ..ContainerRequest::default() };
    let shared = pod_of(PodRequest::new(PodName::new("default", "s").with_uid("s"), vec![shared]));
    filter(&mut one, &shared, &["a", "b"]);
    bind(&mut one, "p", "a").unwrap();
    bind(&mut one, "large", "b").unwrap_err();
    let tally = one.take_tally();
    let expected = [("passed", 2), ("not-concerned", 2), ("unpublished", 2), ("cpus", 1)];
    assert_eq!(told(&tally.filtered), expected);
    assert_eq!(told(&tally.bound), [("passed", 1), ("cpus", 1)]);
    assert_eq!(one.take_tally(), ExtenderTally::default(), "nothing is counted twice");
}

#[test]
fn bindings_that_may_still_land_are_counted_until_they_settle() {
    let mut one = extender(Binder::Extender, &["a"]);
    filter(&mut one, &pod("p", 2), &["a"]);
    bind(&mut one, "p", "a").unwrap();
    assert_eq!((one.claims(), one.unsettled_claims()), (1, 0));
    end(&mut one, "p", "a", BindEnd::Unknown);
    assert_eq!((one.claims(), one.unsettled_claims()), (1, 1));
    filter(&mut one, &pod("q", 2), &["a"]);
    assert_eq!(told(&one.take_tally().filtered), [("passed", 1), ("waiting", 1)]);
    one.observe_pod(on("a", &pod("p", 2)), 0);
    assert_eq!((one.claims(), one.unsettled_claims()), (0, 0));
}

#[test]
fn nodes_are_counted_by_what_their_state_is_worth() {
    let mut one = extender(Binder::Extender, &["a", "b"]);
    one.observe_node(node("new"), 0);
    one.observe_state(object("early", state()), 0);
    let counts = NodeCounts { exact: 2, unpublished: 1, ..NodeCounts::default() };
    assert_eq!(one.node_counts(0), counts, "a state without its Node is not counted");
    let mut inexact = state();
    inexact.revision.counter += 1;
    inexact.exact = false;
    inexact.inexact = vec![InexactSource { source: "kubelet".into(), reason: "starting".into() }];
    one.observe_state(object("b", inexact), 0);
    assert_eq!(one.node_counts(0), NodeCounts { exact: 1, unknown: 1, ..counts });
    assert_eq!(one.node_counts(10_000_000), NodeCounts { exact: 0, unknown: 2, ..counts }, "stale");
    one.tick(1_000, 0);
    assert_eq!(one.node_counts(600_999).long_unknown, 0);
    assert_eq!(one.node_counts(601_000).long_unknown, 1);
    let mut exact = state();
    exact.revision.counter += 2;
    one.observe_state(object("b", exact), 601_000);
    one.tick(601_000, 0);
    assert_eq!(one.node_counts(601_000).long_unknown, 0);
}
