//! What the owner of a pod without a place is told.

use super::*;

fn explained(extender: &mut Extender, pod: &PodObject, names: &[&str]) -> Option<String> {
    let answer = extender.filter(FilterCall { pod, nodes: names, number: 1, accepted: 0 }, 0);
    extender.explain_impossible(pod, names, &answer, 0)
}

#[test]
fn note_counts_reasons_and_names_what_the_closest_node_lacks() {
    let mut one = extender(Binder::Extender, &["a", "b", "c"]);
    one.observe_pod(on("a", &pod("bound", 8)), 0);
    one.observe_state_gone("c");
    let note = explained(&mut one, &pod("p", 9), &["a", "b", "c"]).unwrap();
    let expected = "no node of 3 has a place for the pod: 2 for \"no node of the machine has \
                    the CPUs free together\", 1 for \"state unknown\"; closest is node b, with ";
    assert!(note.starts_with(expected), "{note}");
    let (_, closest) = note.split_once("closest is node b, with ").unwrap();
    assert_eq!(closest, "8 of 9 cpu on NUMA node 1", "{note}");
}

#[test]
fn nodes_that_are_all_unknown_are_told_with_why() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_state_gone("a");
    let note = explained(&mut one, &pod("p", 2), &["a"]).unwrap();
    assert!(note.contains("1 for \"state unknown\"; node a: "), "{note}");
    assert!(note.ends_with("its state is out of date"), "{note}");
}

#[test]
fn owner_of_a_pod_reads_no_names_of_other_pods() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.begin_pod_list(1);
    one.observe_pod(on("a", &pod("secret", 6)), 1);
    one.end_pod_list(1);
    let note = explained(&mut one, &pod("p", 1), &["a"]).unwrap();
    assert!(note.ends_with("node a: its state does not tell what its last pods have"), "{note}");
    one.observe_unread_pod("u", "a", "pod shop/secret cannot be read".into());
    let note = explained(&mut one, &pod("p", 1), &["a"]).unwrap();
    assert!(!note.contains("secret"), "{note}");
}

#[test]
fn nothing_is_told_where_a_node_passes_or_an_earlier_pod_is_waited_for() {
    let mut one = extender(Binder::Extender, &["a", "b"]);
    assert_eq!(explained(&mut one, &pod("p", 8), &["a", "b"]), None);
    assert_eq!(explained(&mut one, &pod("p", 8), &[]), None, "kube-scheduler had no node left");
    bind(&mut one, "p", "a").unwrap();
    end(&mut one, "p", "a", BindEnd::Unknown);
    assert_eq!(explained(&mut one, &pod("q", 2), &["a"]), None);
    assert_eq!(explained(&mut one, &pod("large", 99), &["unseen"]), None, "it passes without a state");
}
