use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn waiting(cgroup: &CgroupPath, left_ms: u64) -> WaitingWorkload<'_> {
    WaitingWorkload { cgroup, is_emergency: false, time_left_ns: Some(left_ms * MS), rate: 7 }
}

/// `slow /a freeze`, `release /a TimeIsUp`.
fn said(orders: &[BrakeOrder]) -> Vec<String> {
    let one = |order: &BrakeOrder| match order {
        BrakeOrder::Slow { cgroup, kind, .. } => format!("slow {cgroup} {}", kind.name()),
        BrakeOrder::Release { cgroup, why } => format!("release {cgroup} {why:?}"),
    };
    orders.iter().map(one).collect()
}

#[test]
fn brake_needs_the_second_process_and_no_pause_and_is_never_high_where_the_kernel_demotes() {
    use Brake::{Freeze, High, Off};
    for (wanted, watched, paused, demotes, expected) in [
        (Off, true, false, false, None),
        (Freeze, true, false, false, Some(BrakeKind::Freeze)),
        (Freeze, true, false, true, Some(BrakeKind::Freeze)),
        (High, true, false, false, Some(BrakeKind::High)),
        (High, true, false, true, Some(BrakeKind::Freeze)),
        (Freeze, false, false, false, None),
        (High, false, false, false, None),
        (Freeze, true, true, false, None),
    ] {
        let means = BrakeConditions { wanted, watched, paused, demotes };
        assert_eq!(means.kind(), expected, "{means:?}");
    }
}

#[test]
fn workload_that_fills_its_nodes_before_the_write_is_slowed_down_until_it_returns() {
    let (a, freeze) = (CgroupPath::new("/a"), Some(BrakeKind::Freeze));
    let mut brakes = Brakes::default();
    let mut at = |ms: u64, write_ms: u64, kind, left: Option<u64>| {
        let waiting = left.map(|left| waiting(&a, left)).into_iter();
        said(brakes.turn(ms * MS, write_ms * MS, kind, waiting))
    };
    assert_eq!(
        at(0, 0, freeze, Some(301)),
        [""; 0],
        "the write's duration is unknown, and the time left exceeds the assumed one"
    );
    assert_eq!(at(5, 0, None, Some(10)), [""; 0], "no second process");
    assert_eq!(at(10, 10, freeze, Some(50)), [""; 0]);
    assert_eq!(at(15, 10, freeze, Some(49)), ["slow /a freeze"]);
    assert_eq!(at(20, 10, freeze, Some(1)), [""; 0], "once");
    assert_eq!(at(25, 10, freeze, None), ["release /a Written"]);
    assert_eq!(at(30, 10, freeze, Some(1)), [""; 0], "it was lately");
    assert_eq!(at(2_025, 700, freeze, Some(699)), ["slow /a freeze"]);
    assert_eq!(at(2_524, 700, freeze, Some(1)), [""; 0]);
    assert_eq!(at(2_525, 700, freeze, Some(1)), ["release /a TimeIsUp"]);
    assert_eq!(at(9_000, 700, freeze, Some(1)), [""; 0], "it is the same write");
    assert_eq!(at(9_005, 700, freeze, None), [""; 0]);
    assert_eq!(at(9_010, 700, freeze, Some(1)), ["slow /a freeze"]);
    assert_eq!(at(9_011, 700, Some(BrakeKind::High), Some(1)), ["release /a NotAllowed"]);
}

#[test]
fn emergency_brakes_without_figures() {
    let a = CgroupPath::new("/a");
    let one = WaitingWorkload { is_emergency: true, time_left_ns: None, ..waiting(&a, 0) };
    let orders = Brakes::default().turn(3, 1, Some(BrakeKind::High), [one].into_iter()).to_vec();
    let until_ns = 3 + LONGEST_BRAKE_NS;
    assert_eq!(orders, [BrakeOrder::Slow { cgroup: a, kind: BrakeKind::High, rate: 7, until_ns }]);
}

#[test]
fn the_mark_is_a_little_above_what_it_has() {
    assert_eq!(high_mark(10 * MIB, 0), 11 * MIB);
    assert_eq!(high_mark(10 * MIB + 1, 0), 12 * MIB);
    assert_eq!(high_mark(10 * MIB, 400 * MIB), 14 * MIB);
    assert_eq!(high_mark(u64::MAX, u64::MAX), u64::MAX);
}

proptest! {
    /// In any order of events, no workload is slowed down without the second process, for longer than the
    /// bound, again at once, or without a release.
    #[test]
    fn a_brake_is_watched_short_and_always_released(
        turns in proptest::collection::vec(
            (0u64..700, 0u64..400, 0u32..4, proptest::array::uniform3((any::<bool>(), any::<bool>(), 0u64..600))),
            1..120,
        ),
    ) {
        let names = ["/a", "/b", "/c"].map(CgroupPath::new);
        let mut brakes = Brakes::default();
        // Present brakes with their method and end, and the times of releases.
        let mut slow: BTreeMap<CgroupPath, (BrakeKind, u64)> = BTreeMap::new();
        let mut released: BTreeMap<CgroupPath, u64> = BTreeMap::new();
        let mut at = 0;
        for (passed, write_ms, watched, waits) in turns {
            at += passed * MS;
            let kind = [None, Some(BrakeKind::Freeze), Some(BrakeKind::High)].get(watched as usize).copied();
            let kind = kind.unwrap_or(Some(BrakeKind::Freeze));
            let waits: Vec<WaitingWorkload<'_>> = names
                .iter()
                .zip(waits)
                .filter(|(_, (waits, ..))| *waits)
                .map(|(name, (_, is_emergency, left))| WaitingWorkload { is_emergency, ..waiting(name, left) })
                .collect();
            let orders = brakes.turn(at, write_ms * MS, kind, waits.iter().copied()).to_vec();
            for order in orders {
                match order {
                    BrakeOrder::Slow { cgroup, kind: how, until_ns, .. } => {
                        prop_assert_eq!(kind, Some(how), "not in a way that is allowed now");
                        prop_assert!(until_ns - at <= LONGEST_BRAKE_NS);
                        prop_assert!(waits.iter().any(|one| *one.cgroup == cgroup), "no write is under way");
                        prop_assert!(released.get(&cgroup).is_none_or(|before| at - before >= REST));
                        prop_assert!(slow.insert(cgroup, (how, until_ns)).is_none(), "twice");
                    }
                    BrakeOrder::Release { cgroup, .. } => {
                        prop_assert!(slow.remove(&cgroup).is_some(), "it was not slowed down");
                        released.insert(cgroup, at);
                    }
                }
            }
            for (cgroup, (how, until_ns)) in &slow {
                prop_assert!(at < *until_ns, "{} is slowed down for too long", cgroup);
                prop_assert!(kind == Some(*how) && waits.iter().any(|one| one.cgroup == cgroup));
            }
            prop_assert_eq!(brakes.is_any(), !slow.is_empty());
        }
        brakes.turn(at, 0, None, std::iter::empty());
        prop_assert!(!brakes.is_any(), "the applying process may be unable to any longer");
    }
}
