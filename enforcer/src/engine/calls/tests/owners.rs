//! Owners that are unknown or misstated, and containers that come and go while none is placed.

use std::pin::pin;

use super::*;

fn kubelet(placed: &SharedLedger, policy: Option<&str>, unread: Option<&str>) {
    let kubelet = Kubelet {
        cpu_policy: policy.map(str::to_owned),
        unread: unread.map(str::to_owned),
        ..Kubelet::default()
    };
    placed.set_foreign_owners(ForeignOwners { kubelet, ..ForeignOwners::default() });
}

fn turn(placed: &SharedLedger, names: &[&str]) -> Vec<Option<Owner>> {
    let workloads: Vec<Workload> = names.iter().map(|name| workload_of(name)).collect();
    let (_, owners) =
        placed.owners(&workloads, &Sample::default(), &Model::default(), &Policy::default(), |_| ());
    workloads.iter().map(|one| owners.of(one).map(|ownership| ownership.owner)).collect()
}

fn taken(placed: &SharedLedger) -> String {
    placed.lock().held.allocations.exclusive_cpus().to_string()
}

#[test]
fn a_state_file_that_cannot_be_used_frees_nothing_and_gives_nothing_twice() {
    for policy in [None, Some("none")] {
        let placed = placed(true);
        kubelet(&placed, Some("none"), None);
        assert_eq!(cpuset(create(&placed, "one", 2).adjust.as_ref()), "0-1/0");
        kubelet(&placed, policy, Some("memory_manager_state: input/output error"));
        assert_eq!(turn(&placed, &["one"]), [Some(Owner::Unknown)]);
        assert_eq!(taken(&placed), "0-1");
        // The runtime has stored our cpuset.
        let update = ask(&placed, |reply| NriCall::Update {
            subject: with_cpus("one", "", 2, "0-1"),
            wanted: amounts(2),
            reply,
        });
        assert_eq!(updates(&update), [("id-one".to_owned(), "0-1/0".to_owned())]);
        // The owner of the next container is unknown as well, so it is left alone.
        assert_eq!(create(&placed, "two", 2), NriAnswer::default());
        turn(&placed, &["one", "two"]);
        assert_eq!(taken(&placed), "0-1");
        assert_eq!(synchronize(&placed, &["one"], "0-1").updates.len(), 1, "memory nodes");
        assert_eq!(create(&placed, "two", 2), NriAnswer::default());
        assert_eq!(taken(&placed), "0-1");

        let again = placed.again();
        let mut told = pin!(again.notified());
        kubelet(&placed, Some("none"), None);
        assert!(told.as_mut().enable(), "the runtime must list its containers");
        assert_eq!(turn(&placed, &["one"]), [Some(Owner::NumaEnforcer)]);
        let answer = synchronize(&placed, &["one", "two"], "");
        let all = [("id-one", "0-1/0"), ("id-two", "2-3/0")].map(|(id, set)| (id.to_owned(), set.to_owned()));
        assert_eq!((updates(&answer), taken(&placed)), (all.to_vec(), "0-3".to_owned()));
    }
}

#[test]
fn what_the_kubelet_gave_before_its_state_could_not_be_used_is_still_given() {
    let placed = placed(true);
    static_kubelet(&placed, &[("a", "2-3")]);
    let claims = |placed: &SharedLedger| {
        let (_, owners) =
            placed.owners(&[], &Sample::default(), &Model::default(), &Policy::default(), |_| ());
        owners.claims().iter().map(|claim| claim.cpus.to_string()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        kubelet(&placed, None, Some("checksum of cpu_manager_state"));
        assert_eq!(claims(&placed), ["2-3"]);
    }
    static_kubelet(&placed, &[]);
    assert_eq!(claims(&placed), [""; 0]);
}

#[test]
fn a_mark_takes_no_more_cpus_than_its_container_asks_for() {
    let variable = |mut subject: Box<NriSubject>, cpus: &str| {
        subject.container.env.push(format!("DRA_CPUSET_x={cpus}"));
        subject
    };
    let annotated = |mut subject: Box<NriSubject>, cpus: &str| {
        let value = format!(r#"{{"cpuset":"{cpus}"}}"#);
        subject.pod.annotations.insert("scheduling.koordinator.sh/resource-status".into(), value);
        subject
    };
    let asks = |cpus| subject("m", "", Some(amounts(cpus)));
    for (marked, expected) in [
        (variable(subject("m", "/besteffort", None), "0-6"), ""),
        (annotated(subject("m", "/besteffort", None), "0-6"), ""),
        (variable(asks(2), "4-6"), ""),
        (variable(asks(2), "4-5"), "4-5"),
        (annotated(asks(2), "4-5"), "4-5"),
    ] {
        let placed = placed(true);
        let shared = subject("shared", "/besteffort", None);
        ask(&placed, |reply| NriCall::Create { subject: shared, reply });
        let answer = ask(&placed, |reply| NriCall::Create { subject: marked, reply });
        assert_eq!((answer, taken(&placed).as_str()), (NriAnswer::default(), expected), "left alone");
        let owner = turn(&placed, &["m"])[0];
        assert!(matches!(owner, Some(Owner::Koordlet | Owner::DraDriver)), "{owner:?}");
        assert_eq!(taken(&placed), expected);
    }
}

#[test]
fn a_mark_takes_neither_what_is_set_aside_nor_the_last_cpu() {
    let entries = "[placement.reserved]\ncpus = \"cpuset:0\"\n";
    let marked = |cpus: &str, count| {
        let mut subject = subject("m", "", Some(amounts(count)));
        subject.container.env.push(format!("DRA_CPUSET_x={cpus}"));
        subject
    };
    for (count, cpus, expected) in
        [(2, "6-7", "1-2,6-7"), (2, "0,7", "1-2,7"), (6, "0,3-7", "1-7"), (5, "3-7", "1-7")]
    {
        let placed = declared(entries).0;
        assert_eq!(cpuset(create(&placed, "one", 2).adjust.as_ref()), "1-2/0");
        ask(&placed, |reply| NriCall::Create { subject: marked(cpus, count), reply });
        assert_eq!(taken(&placed), expected, "{cpus}");
        let shared = subject("shared", "/besteffort", None);
        let answer = ask(&placed, |reply| NriCall::Create { subject: shared, reply });
        let own = cpuset(answer.adjust.as_ref());
        let shared: CpuSet = own.split_once('/').unwrap().0.parse().unwrap();
        assert!(!shared.is_empty() && shared.is_disjoint(&expected.parse().unwrap()), "{cpus}: {own}");
    }
    // No CPU is free: sharing containers have the last CPUs and keep them whatever is written elsewhere.
    let placed = placed(true);
    assert_eq!(cpuset(create(&placed, "one", 4).adjust.as_ref()), "0-3/0");
    let shared = subject("shared", "/besteffort", None);
    ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    ask(&placed, |reply| NriCall::Create { subject: marked("4-7", 4), reply });
    assert_eq!(taken(&placed), "0-3");
    let subject = subject("shared", "/besteffort", None);
    let update = ask(&placed, |reply| NriCall::Update { subject, wanted: amounts(0), reply });
    assert_eq!(updates(&update), [("id-shared".to_owned(), "4-7/1".to_owned())]);
    turn(&placed, &["m"]);
    assert_eq!(taken(&placed), "0-3", "a turn does not believe it either");
    ask(&placed, |reply| NriCall::Stop { subject: self::subject("one", "", None), reply });
    turn(&placed, &["m"]);
    assert_eq!(taken(&placed), "4-7", "there is room for it now");
}

#[test]
fn a_mark_says_nothing_where_it_is_not_honoured() {
    let mut policy = Policy::default();
    policy.nri.place = true;
    let mut subject = subject("m", "", Some(amounts(2)));
    subject.container.env.push("DRA_CPUSET_x=6-7".into());
    for (honours, expected) in [(false, "0-1/0"), (true, "")] {
        policy.nri.honour_marks = honours;
        let placed = placed_by(&policy);
        let answer = ask(&placed, |reply| NriCall::Create { subject: subject.clone(), reply });
        assert_eq!(cpuset(answer.adjust.as_ref()), expected);
        turn(&placed, &["m"]);
        let taken = if honours { "6-7" } else { "0-1" };
        assert_eq!(self::taken(&placed), taken, "a turn thinks so too");
    }
}

#[test]
fn the_mark_of_a_pod_counts_when_its_containers_together_ask_for_its_cpus() {
    let of_pod = |name: &str, whole: Option<LinuxResources>| {
        let mut one = subject(name, "", Some(amounts(2)));
        let value = r#"{"cpuset":"2-5"}"#.to_owned();
        one.pod.annotations.insert("scheduling.koordinator.sh/resource-status".into(), value);
        (one.pod.uid, one.container.name) = ("pod".into(), name.into());
        one.pod.linux.get_or_insert_default().pod_resources = whole;
        one
    };
    let come = |placed: &SharedLedger, one: Box<NriSubject>| {
        let answer = ask(placed, |reply| NriCall::Create { subject: one, reply });
        assert_eq!(answer, NriAnswer::default(), "left alone");
        taken(placed)
    };
    // The runtime reports the request of the whole pod.
    let told = placed(true);
    assert_eq!(come(&told, of_pod("main", Some(amounts(4)))), "2-5");
    let other = placed(true);
    assert_eq!(come(&other, of_pod("main", Some(amounts(3)))), "");
    // It does not, so the known containers of the pod must do.
    let untold = placed(true);
    assert_eq!(come(&untold, of_pod("main", None)), "");
    assert_eq!(come(&untold, of_pod("sidecar", None)), "2-5");
    turn(&untold, &["main", "sidecar"]);
    ask(&untold, |reply| NriCall::Stop { subject: of_pod("sidecar", None), reply });
    assert_eq!(taken(&untold), "2-5", "the one that runs on them has learnt of it");
}

#[test]
fn container_that_ends_while_placing_is_off_has_nothing_afterwards() {
    let policy = |place| {
        let mut policy = Policy::default();
        policy.nri.place = place;
        policy
    };
    let placed = placed_by(&policy(true));
    for name in ["one", "two", "three"] {
        create(&placed, name, 2);
    }
    assert_eq!(taken(&placed), "0-5");
    let inventory = placed.lock().inventory();
    placed.apply_policy(inventory.clone(), &policy(false), true);
    let stopped = ask(&placed, |reply| NriCall::Stop { subject: subject("one", "", None), reply });
    assert_eq!(stopped, NriAnswer::default());
    let removed = NriCall::Removed(subject("two", "", None));
    super::super::answer(&placed, &Gate::default(), &ResourceFiles::default(), removed);
    assert_eq!(create(&placed, "four", 2), NriAnswer::default());
    let again = placed.again();
    let mut told = pin!(again.notified());
    placed.apply_policy(inventory.clone(), &policy(true), true);
    assert!(told.as_mut().enable(), "containers that came meanwhile are unknown");
    let mut told = pin!(again.notified());
    placed.apply_policy(inventory, &policy(true), true);
    assert!(!told.as_mut().enable(), "nothing has changed");
    assert_eq!(taken(&placed), "4-5");
    synchronize(&placed, &["three", "four"], "");
    assert_eq!((taken(&placed).as_str(), placed.lock().held.allocations.iter().count()), ("0-1,4-5", 2));
}
