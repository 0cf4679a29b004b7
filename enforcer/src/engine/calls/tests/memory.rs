//! Memory nodes of containers that run, in answers.

use super::*;

/// A daemon connected to a runtime with one unplaced container on these memory nodes.
fn beside(mems: &str) -> (Fixture, SharedLedger, NriAnswer) {
    let host = Fixture::new(true);
    host.cgroup("/kubepods/podone/id-one", "0-7\n", mems);
    let placed = placed(true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    let answer = synchronize(&placed, &["one"], "");
    (host, placed, answer)
}

#[test]
fn no_answer_changes_the_memory_nodes_of_a_container_that_runs() {
    for (shown, told) in [("0-1\n", "0-1/0-1"), ("\n", "0-1/"), ("1\n", "0-1/1"), ("0\n", "0-1/0")] {
        let (host, placed, answer) = beside(shown);
        assert_eq!(updates(&answer), [("id-one".to_owned(), told.to_owned())], "{shown:?}");
        assert!(placed.take_early_turn(), "a turn does");
        let update = || {
            let subject = subject("one", "", Some(amounts(2)));
            updates(&ask(&placed, |reply| NriCall::Update { subject, wanted: amounts(2), reply }))
        };
        assert_eq!(update(), [("id-one".to_owned(), told.to_owned())], "{shown:?}");
        // A turn has moved its pages.
        host.cgroup("/kubepods/podone/id-one", "0-1\n", "0\n");
        assert_eq!(update(), [("id-one".to_owned(), "0-1/0".to_owned())], "{shown:?}");
    }
}

#[test]
fn pending_container_has_no_pages_and_gets_its_node() {
    let (_host, placed, _) = beside("0-1\n");
    assert_eq!(cpuset(create(&placed, "two", 2).adjust.as_ref()), "2-3/0");
}
