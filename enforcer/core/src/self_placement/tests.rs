use proptest::prelude::*;

use super::*;

fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn policy(text: &str) -> OwnPolicy {
    OwnPolicy::parse_start(text).unwrap()
}

fn thread(tid: u32, cpus: &str, policies: &[&str]) -> SelfPlacedThread {
    SelfPlacedThread {
        pid: 100,
        tid,
        start_ticks: 7,
        command: "db".into(),
        cpus: Some(cpus.parse().unwrap()),
        policies: policies.iter().map(|text| policy(text)).collect(),
    }
}

fn cgroup(path: &str, own: &str, effective: (&str, &str), threads: Vec<SelfPlacedThread>) -> CgroupThreads {
    CgroupThreads {
        cgroup: CgroupPath::new(path),
        own_cpus: None,
        own_mems: Some(nodes(own)).filter(|own| !own.is_empty()),
        cpus: effective.0.parse().unwrap(),
        mems: nodes(effective.1),
        threads,
        left_out: 0,
        unreadable: 0,
    }
}

fn writes(cpus: &[&str], mems: &[&str]) -> CpusetWrites {
    CpusetWrites {
        cpus: cpus.iter().map(|text| text.parse().unwrap()).collect(),
        mems: mems.iter().map(|text| nodes(text)).collect(),
        moves: Vec::new(),
    }
}

#[test]
fn policies_are_read_with_their_flags() {
    for (line, shown) in [
        ("bind:1 anon=4 N1=4", "bind:1"),
        ("bind=static:0-1 heap", "bind=static:0-1"),
        ("bind=static|balancing:1", "bind=static:1"),
        ("interleave=relative:0,2", "interleave=relative:0,2"),
        ("prefer (many):0-1 anon=5", "prefer (many):0-1"),
        ("prefer:1", "prefer:1"),
    ] {
        assert_eq!(policy(line).to_string(), shown, "{line}");
    }
    for line in ["default file=/bind:0 N0=1", "local", "default", "bound:0"] {
        assert_eq!(OwnPolicy::parse_start(line), None, "{line}");
    }
}

/// By the rules of mm/mempolicy.c (`mpol_rebind_policy`) since Linux 5.14; read there, not measured.
#[test]
fn writes_of_memory_nodes_change_policies_as_the_kernel_does() {
    for (own, mems, left) in [
        ("bind:1", &["0-1", "0"][..], Some("0")),
        ("bind:1", &["0-1", "1"], None),
        ("bind:1", &["1", "0-1"], Some("0")),
        ("bind:1", &["1", "0-1", "1"], None),
        ("bind:1", &["0-2", "1-2"], Some("2")),
        ("interleave:0-1", &["0-1", "1"], Some("1")),
        ("interleave:0-1", &["0-1", "0-2"], None),
        ("interleave:0-1", &["0-1", "0", "0-1"], Some("0")),
        ("weighted interleave:0-1", &["0-1", "1"], Some("1")),
        // Kept, and yet without effect while the node is not there.
        ("prefer:1", &["0-1", "0"], Some("1")),
        ("prefer:1", &["1", "0-1"], None),
        ("prefer (many):0-1", &["0-1", "1"], Some("0-1")),
        ("bind=static:1", &["0-1", "0"], Some("0")),
        ("bind=static:1", &["0-1", "0", "0-1"], None),
        ("bind=static:1", &["1", "0-1"], None),
        ("bind=relative:1", &["0-1", "0"], None),
        ("bind:1", &["0-1"], None),
    ] {
        let mems: Vec<NodeSet> = mems.iter().map(|text| nodes(text)).collect();
        assert_eq!(policy(own).changed_by(&mems), left.map(nodes), "{own} over {mems:?}");
    }
}

#[test]
fn a_pin_or_policy_that_a_write_would_change_is_named_and_one_that_stays_is_not() {
    for (own, to, reason) in [
        (thread(100, "0-3", &["bind:1"]), writes(&["2-3"], &["1"]), None),
        (
            thread(100, "0-3", &["bind:1"]),
            writes(&["0-1"], &["0"]),
            Some(
                "process 100 (\"db\") has a memory policy of its own, bind:1: cpuset.mems = 0 would make the kernel \
                 rewrite it to node 0",
            ),
        ),
        (
            thread(101, "0-3", &["prefer (many):0-1"]),
            writes(&[], &["1"]),
            Some(
                "thread 101 of process 100 (\"db\") has a memory policy of its own, prefer (many):0-1: \
                 cpuset.mems = 1 would leave it no memory on node 0",
            ),
        ),
        (
            thread(101, "0", &[]),
            writes(&["2-3"], &[]),
            Some(
                "thread 101 of process 100 (\"db\") has pinned itself to CPUs 0: cpuset.cpus = 2-3 would take them away",
            ),
        ),
        (thread(101, "0", &[]), writes(&["0-1"], &["0"]), None),
        (thread(101, "0-3", &[]), writes(&["0-1"], &["0"]), None),
    ] {
        let tree = [cgroup("/a", "", ("0-3", "0-1"), vec![own.clone()])];
        assert_eq!(hindrance(&tree, &to).as_deref(), reason, "{own:?}");
    }
}

#[test]
fn a_cgroup_below_is_asked_for_what_it_will_have() {
    let bound = || vec![thread(100, "0-3", &["bind:1"])];
    let box_of = |below: CgroupThreads| [cgroup("/box", "", ("0-3", "0-1"), Vec::new()), below];
    let to = writes(&[], &["0"]);
    assert!(hindrance(&box_of(cgroup("/box/db", "", ("0-3", "0-1"), bound())), &to).is_some());
    // It keeps node 1, which is all that it has.
    let to = writes(&[], &["1-2"]);
    assert!(hindrance(&box_of(cgroup("/box/db", "1", ("0-3", "1"), bound())), &to).is_none());
}

#[test]
fn a_pin_is_kept_as_far_as_the_new_cpus_allow() {
    let set = |text: &str| text.parse::<CpuSet>().unwrap();
    for (recorded, now, from, to, kept) in [
        (None, "0", "0-3", "0-1", Some("0")),
        (None, "0-1", "0-3", "1-3", Some("1")),
        (None, "0", "0-3", "2-3", None),
        (None, "0-3", "0-3", "0-1", None),
        // The kernel has lost the affinity, the record has not.
        (Some("0"), "2-3", "2-3", "0-3", Some("0")),
        (Some("0,2"), "2", "2-3", "0-3", Some("0,2")),
        // It has pinned itself anew.
        (Some("0"), "3", "2-3", "0-3", Some("3")),
        (Some("0-3"), "2-3", "2-3", "0-3", None),
    ] {
        let recorded = recorded.map(|cpus| thread(5, cpus, &[]));
        let found = kept_pin(&thread(5, now, &[]), recorded.as_ref(), &set(from), &set(to));
        assert_eq!(found, kept.map(set), "{recorded:?} {now} {from} {to}");
    }
}

#[test]
fn what_is_lost_is_named_and_what_ended_is_not() {
    let recorded = [thread(100, "0-3", &["bind:1", "prefer:0"]), thread(200, "0", &["bind:1"])];
    let now = [thread(100, "0-3", &["bind:0", "prefer:0"])];
    let found = lost(&recorded, &now, true, &now);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("its memory policy bind:1 was rewritten"), "{found:?}");
    assert!(found[0].contains("it has prefer:0, bind:0 now"), "{found:?}");
    let again = [SelfPlacedThread { start_ticks: 8, ..thread(100, "0-3", &[]) }];
    assert_eq!(lost(&recorded, &again, true, &again), Vec::<String>::new());
}

#[test]
fn only_what_the_kernel_has_rewritten_is_lost() {
    for (recorded, before, now, named) in [
        (Some(&["bind:1"][..]), &["bind:0"][..], &["bind:0"][..], Some("bind:1 ")),
        (Some(&["bind:1"]), &["bind:0"], &["bind:1"], None),
        // They follow the cpuset, whatever its nodes are by now.
        (Some(&["bind=relative:1"]), &["bind=relative:0"], &["bind=relative:0"], None),
        (Some(&["bind=static:1"]), &["bind=static:0"], &["bind=static:0"], None),
        (None, &["bind=static:0"], &["bind=static:1"], None),
        (None, &["interleave=relative:0"], &["interleave=relative:0-1"], None),
        // The process has set another one itself, which stays or does not.
        (Some(&["bind:1"]), &["interleave:0"], &["interleave:0"], None),
        (Some(&["bind:1"]), &["interleave:0-1"], &["interleave:0"], Some("interleave:0-1 ")),
        (Some(&["bind:1"]), &[], &[], None),
        (Some(&["prefer:0"]), &["prefer:0", "bind:1"], &["prefer:0", "bind:0"], Some("bind:1 ")),
        (None, &["bind:1"], &["bind:0"], Some("bind:1 ")),
        (None, &["bind:1"], &["bind:1"], None),
    ] {
        let one = |policies: &[&str]| [thread(100, "0-3", policies)];
        let of = |is_whole| {
            let recorded = recorded.map(one);
            lost(recorded.as_ref().map_or(&[][..], |one| one), &one(before), is_whole, &one(now))
        };
        let found = of(true);
        let expected = named.map(|named| format!("its memory policy {named}was rewritten"));
        assert_eq!(
            found.len(),
            usize::from(expected.is_some()),
            "{recorded:?} {before:?} {now:?}: {found:?}"
        );
        assert!(expected.is_none_or(|expected| found[0].contains(&expected)), "{found:?}");
    }
    // The setting may be in a part that was not read.
    let found =
        lost(&[thread(100, "0-3", &["bind:1"])], &[thread(100, "0-3", &[])], false, &[thread(100, "0", &[])]);
    assert_eq!(found.len(), 1);
}

proptest! {
    #[test]
    fn write_that_changes_nothing_has_no_hindrance(
        named in 1u64..16, mems in 1u64..16, mode in 0usize..4,
    ) {
        let mems = NodeSet::from_words(&[mems]);
        let named = NodeSet::from_words(&[named]).intersection(&mems);
        let mode = ["bind", "interleave", "prefer (many)", "bind=static"][mode];
        if !named.is_empty() {
            let own = policy(&format!("{mode}:{named}"));
            prop_assert_eq!(own.changed_by(&[mems.clone(), mems]), None);
        }
    }

    #[test]
    fn a_record_of_threads_is_read_as_it_was_written(pid in any::<u32>(), start_ticks in any::<u64>()) {
        let thread = SelfPlacedThread { pid, start_ticks, ..thread(5, "0-3", &["bind=static:1", "interleave:0-1"]) };
        let text = serde_json::to_string(&thread).unwrap();
        prop_assert_eq!(serde_json::from_str::<SelfPlacedThread>(&text).unwrap(), thread);
    }
}
