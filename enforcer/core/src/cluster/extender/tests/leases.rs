//! Daemons that live and that have ended, by their leases.

use super::*;

fn lease(at: i64) -> LeaseObject {
    LeaseObject { namespace: "numa-enforcer".into(), node: "a".into(), renewed_at: Some(at), duration_s: 60 }
}

#[test]
fn lease_shows_that_a_state_is_true_still() {
    let mut one = extender(Binder::Extender, &["a"]);
    one.observe_listed_lease(lease(1_000), 140_000);
    one.observe_leases_known(true);
    one.tick(170_000, 1_030);
    assert_eq!(filter_at(&mut one, &pod("p", 2), &["a"], 1, 300_000), "a | ");
    one.tick(240_000, 1_100);
    let unknown = UnknownNode::NoState.as_group();
    assert_eq!(filter_at(&mut one, &pod("p", 2), &["a"], 2, 300_000), format!(" | a: {unknown}"));
    one.observe_leases_known(false);
    one.tick(240_000, 1_100);
    assert_eq!(filter_at(&mut one, &pod("p", 2), &["a"], 3, 300_000), "a | ", "no lease is told any more");
    one.observe_leases_known(true);
    one.observe_listed_lease(lease(1_099), 240_000);
    one.tick(240_000, 1_100);
    assert_eq!(filter_at(&mut one, &pod("p", 2), &["a"], 3, 300_000), "a | ");
}

#[test]
fn clock_of_a_node_does_not_decide_whether_its_daemon_lives() {
    for skew in [-3_600, 0, 3_600] {
        let mut one = extender(Binder::Extender, &["a"]);
        one.observe_listed_lease(lease(1_000 + skew), 0);
        one.observe_leases_known(true);
        one.observe_lease(lease(1_020 + skew), 20_000);
        // An object that is read once more, or changed by another program, is no sign of life.
        one.observe_lease(lease(1_020 + skew), 70_000);
        one.observe_listed_lease(lease(1_020 + skew), 75_000);
        let mut passes_at = |number: u64, now: Millis| {
            one.tick(now, 1_000 + i64::try_from(now / 1_000).unwrap());
            filter_at(&mut one, &pod("p", 2), &["a"], number, now) == "a | "
        };
        assert!(passes_at(1, 80_000), "{skew}");
        assert!(!passes_at(2, 81_000), "{skew}: its daemon has ended");
    }
}

#[test]
fn listed_lease_may_be_as_old_as_it_says() {
    for (renewed, lives) in [(900, false), (939, false), (940, true), (5_000, true)] {
        let mut one = extender(Binder::Extender, &["a"]);
        one.observe_listed_lease(lease(renewed), 0);
        one.observe_leases_known(true);
        one.tick(0, 1_000);
        assert_eq!(filter_at(&mut one, &pod("p", 2), &["a"], 1, 0) == "a | ", lives, "{renewed}");
        one.tick(61_000, 1_061);
        assert_ne!(filter_at(&mut one, &pod("p", 2), &["a"], 2, 61_000), "a | ", "{renewed}");
    }
}
