//! Containers with processes that run on after the runtime has announced the end.

use super::*;

/// A host on which this container's cgroup has processes, or not.
fn populate(host: &Fixture, name: &str, populated: bool) {
    let path = host.path(&format!("/kubepods/pod{name}/id-{name}"));
    if path.is_dir() {
        let file = path.join(if host.layout.cpuset.v2 { "cgroup.events" } else { "cgroup.procs" });
        let text = match (host.layout.cpuset.v2, populated) {
            (true, _) => format!("populated {}\nfrozen 0\n", u8::from(populated)),
            (false, true) => "17\n".to_owned(),
            (false, false) => String::new(),
        };
        std::fs::write(file, text).unwrap();
    }
}

fn running(host: &Fixture, placed: &SharedLedger, name: &str, cpus: u64) -> String {
    let own = cpuset(create(placed, name, cpus).adjust.as_ref());
    let (list, mems) = own.split_once('/').unwrap();
    host.cgroup(&format!("/kubepods/pod{name}/id-{name}"), &format!("{list}\n"), &format!("{mems}\n"));
    populate(host, name, true);
    runs(placed, name);
    list.to_owned()
}

fn stop(placed: &SharedLedger, name: &str) -> NriAnswer {
    let subject = subject(name, "", None);
    ask(placed, |reply| NriCall::Stop { subject, reply })
}

fn removed(placed: &SharedLedger, name: &str) {
    super::super::answer(
        placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Removed(subject(name, "", None)),
    );
}

fn taken(placed: &SharedLedger) -> String {
    placed.lock().held.allocations.exclusive_cpus().to_string()
}

#[test]
fn what_a_container_has_is_free_when_its_last_process_is_gone_whatever_its_runtime_tells_first() {
    for v2 in [true, false] {
        for tells in [&["stop"][..], &["removed"], &["stop", "removed", "stop"]] {
            let host = Fixture::new(v2);
            let placed = placed(true);
            placed.adopt(CpusetTree::new(&host.layout.cpuset.path, v2), BTreeMap::new());
            let own = running(&host, &placed, "one", 2);
            for call in tells {
                match *call {
                    "stop" => assert_eq!(updates(&stop(&placed, "one")), []),
                    _ => removed(&placed, "one"),
                }
                placed.free_departed();
                assert_eq!(taken(&placed), own, "v2 {v2}, {tells:?}: a process runs");
            }
            let other = running(&host, &placed, "two", 2);
            assert_ne!(other, own);
            populate(&host, "one", false);
            placed.free_departed();
            assert_eq!(taken(&placed), other, "v2 {v2}, {tells:?}: the last process is gone");
            assert!(placed.take_early_turn(), "a turn gives it to those that wait");
        }
    }
}

#[test]
fn a_cgroup_that_is_gone_or_empty_frees_at_once() {
    for gone in [true, false] {
        let host = Fixture::new(true);
        let placed = placed(true);
        placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
        running(&host, &placed, "one", 2);
        populate(&host, "one", false);
        if gone {
            std::fs::remove_dir_all(host.path("/kubepods/podone")).unwrap();
        }
        stop(&placed, "one");
        assert_eq!(taken(&placed), "", "gone: {gone}");
    }
}

#[test]
fn a_cgroup_that_cannot_be_read_is_named_and_keeps_for_a_bounded_time() {
    let host = Fixture::new(true);
    let placed = placed(true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    let own = running(&host, &placed, "one", 2);
    let events = host.path("/kubepods/podone/id-one").join("cgroup.events");
    std::fs::remove_file(&events).unwrap();
    std::fs::create_dir(&events).unwrap();
    stop(&placed, "one");
    placed.free_departed();
    assert_eq!(taken(&placed), own);
    let gap = placed.unreadable_departures();
    assert_eq!((gap.len(), gap[0].source.as_str()), (1, "departures"));
    assert!(gap[0].reason.contains("cgroup.events") && gap[0].effect.contains("shop/one/main"), "{gap:?}");
    placed.lock().roster.expire_departures();
    placed.free_departed();
    assert_eq!((taken(&placed), placed.unreadable_departures().len()), (String::new(), 0));
}

#[test]
fn a_runtime_that_lists_it_no_longer_frees_nothing_while_a_process_runs() {
    let host = Fixture::new(true);
    let tree = || CpusetTree::new(&host.layout.cpuset.path, true);
    let before = placed(true);
    before.adopt(tree(), BTreeMap::new());
    let own = running(&host, &before, "one", 2);
    // The runtime has restarted and forgotten the container.
    synchronize(&before, &[], "");
    assert_eq!(taken(&before), own);
    let records = before.regranted().unwrap();

    // The daemon has restarted too.
    let next = placed(true);
    next.adopt(tree(), records);
    synchronize(&next, &[], "");
    assert_eq!(taken(&next), own);
    next.expect_only(&[workload_of("one")]);
    assert_eq!(taken(&next), own);

    populate(&host, "one", false);
    before.free_departed();
    next.expect_only(&[]);
    assert_eq!((taken(&before), taken(&next)), (String::new(), String::new()));
}

/// Creates another container of the same name in the pod with this uid.
fn made_again(placed: &SharedLedger, uid: &str, cpus: u64) -> String {
    let mut again = subject("one", "", Some(amounts(cpus)));
    again.pod.uid = uid.to_owned();
    if !uid.is_empty() {
        again.pod.id = "sandbox-again".to_owned();
    }
    again.container.id = "id-again".to_owned();
    if let Some(linux) = &mut again.container.linux {
        linux.cgroups_path = "/kubepods/podone/id-again".to_owned();
    }
    let answer = ask(placed, |reply| NriCall::Create { subject: again, reply });
    let own = cpuset(answer.adjust.as_ref());
    own.split('/').next().unwrap_or_default().to_owned()
}

#[test]
fn a_container_of_the_same_name_goes_on_with_what_one_before_that_has_ended_had() {
    let host = Fixture::new(true);
    let placed = placed(true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    let own = running(&host, &placed, "one", 2);
    stop(&placed, "one");
    populate(&host, "one", false);
    assert_eq!(made_again(&placed, "", 2), own, "nothing has looked since its last process was gone");
    placed.free_departed();
    assert_eq!(taken(&placed), own, "they are the other one's by now");
    placed.lock().roster.expire_departures();
    assert_eq!(placed.unreadable_departures().len(), 0, "what it had is no longer its own");
}

#[test]
fn a_container_of_the_same_name_takes_nothing_from_one_before_whose_process_runs() {
    // A restart in the pod, and a recreated pod; with the stop announced, or not.
    for (uid, told, cpus) in
        [("", true, 2), ("", false, 2), ("", true, 1), ("again", true, 2), ("again", false, 1)]
    {
        let host = Fixture::new(true);
        let placed = placed(true);
        placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
        let own: CpuSet = running(&host, &placed, "one", 2).parse().unwrap();
        if told {
            stop(&placed, "one");
        }
        let case = format!("uid {uid:?}, told {told}, {cpus} CPUs");
        let other: CpuSet = made_again(&placed, uid, cpus).parse().unwrap();
        assert_eq!(
            (other.len() as u64, own.intersection(&other).len()),
            (cpus, 0),
            "{case}: {own} and {other}"
        );
        placed.free_departed();
        assert_eq!(taken(&placed), own.union(&other).to_string(), "{case}: a process of the old one runs");
        assert_eq!(placed.unreadable_departures().len(), 0, "{case}");
        assert_eq!(placed.regranted().unwrap().len(), 2, "{case}: both are recorded for the next daemon");
        populate(&host, "one", false);
        stop(&placed, "one");
        placed.free_departed();
        assert_eq!(taken(&placed), other.to_string(), "{case}: its last process is gone");
    }
}

#[test]
fn a_daemon_that_was_not_told_of_a_stop_frees_what_is_gone() {
    let host = Fixture::new(true);
    let tree = || CpusetTree::new(&host.layout.cpuset.path, true);
    let before = placed(true);
    before.adopt(tree(), BTreeMap::new());
    let own = running(&host, &before, "one", 2);
    stop(&before, "one");
    // The stop goes on, and the runtime lists the container as running.
    let next = placed(true);
    next.adopt(tree(), before.regranted().unwrap());
    synchronize(&next, &["one"], &own);
    next.end_vanished(&[]);
    assert_eq!(taken(&next), own, "its cgroup is there");
    std::fs::remove_dir_all(host.path("/kubepods/podone")).unwrap();
    next.end_vanished(&[workload_of("one")]);
    assert_eq!(taken(&next), own, "it was there when the turn began");
    next.end_vanished(&[]);
    assert_eq!(taken(&next), "");
}
