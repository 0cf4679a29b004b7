//! Answers while originals cannot be recorded.

use std::path::Path;

use super::*;
use enforcer_act::journal::MakingRecord;

/// `ID CPUS/MEMS` of each container in an answer, a created one first.
fn told(answer: &NriAnswer) -> Vec<String> {
    let own = Some(cpuset(answer.adjust.as_ref())).filter(|own| !own.is_empty());
    let others = updates(answer).into_iter().map(|(id, cpuset)| format!("{id} {cpuset}"));
    own.map(|own| format!("own {own}")).into_iter().chain(others).collect()
}

/// The answer to a list of containers that are set to `CPUS/MEMS`.
fn listed(placed: &SharedLedger, containers: &[(&str, &str, u64, &str)]) -> Vec<String> {
    let container = |(name, class, count, set_to): &(&str, &str, u64, &str)| {
        let (cpus, mems) = set_to.split_once('/').unwrap();
        let mut container = with_cpus(name, class, *count, cpus).container;
        let resources = container.linux.as_mut().unwrap().resources.as_mut().unwrap();
        resources.cpu.as_mut().unwrap().mems = mems.into();
        container
    };
    let answer = ask(placed, |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: containers.iter().map(|(name, class, ..)| pod(name, class)).collect(),
        containers: containers.iter().map(container).collect(),
        reply,
    });
    told(&answer)
}

#[test]
fn nothing_is_told_of_what_could_not_be_undone_once_the_disk_is_full() {
    let full = || MakingRecord::at(Path::new("/dev/full"));
    let shared = |placed: &SharedLedger| {
        told(&ask(placed, |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply }))
    };
    let update = |placed: &SharedLedger, name: &str| {
        let subject = subject(name, "", Some(amounts(2)));
        told(&ask(placed, |reply| NriCall::Update { subject, wanted: amounts(2), reply }))
    };
    for writes in [true, false] {
        let placed = placed(true);
        placed.remember(
            if writes { MakingRecord::at(Path::new("/dev/null")) } else { full() },
            BTreeMap::new(),
        );
        // The disk was not checked yet.
        assert!(!placed.lock().is_journal_blocked());
        let now = [("one", "", 2, "0-7/0-1"), ("rest", "/besteffort", 0, "0-7/0-1")];
        let expected: &[&str] = if writes { &["id-one 0-1/0", "id-rest 2-3/0"] } else { &[] };
        assert_eq!(listed(&placed, &now), expected);
        assert_eq!((placed.can_note().is_ok(), placed.lock().is_journal_blocked()), (writes, !writes));
        assert_eq!(shared(&placed), if writes { vec!["own 4-7/1"] } else { vec![] });
        let kept = if writes { "id-one 0-1/0" } else { "id-one 0-7/0-1" };
        assert_eq!(update(&placed, "one"), [kept], "what it is set to already");
    }
    // The disk fills up later: new containers get no place, and others need not make room.
    let placed = placed(true);
    placed.remember(MakingRecord::at(Path::new("/dev/null")), BTreeMap::new());
    assert_eq!(listed(&placed, &[("rest", "/besteffort", 0, "0-3/0")]), [""; 0], "it is as it should be");
    placed.remember(full(), BTreeMap::new());
    assert_eq!(told(&create(&placed, "one", 2)), [""; 0]);
    assert_eq!(update(&placed, "one"), [""; 0]);
    assert_eq!(update(&placed, "rest"), ["id-rest 0-3/0"]);
    placed.remember(MakingRecord::at(Path::new("/dev/null")), BTreeMap::new());
    placed.block_writes(placed.can_note().is_err());
    assert_eq!(told(&create(&placed, "two", 3)), ["own 4-6/1"], "no container has to make room");
    assert_eq!(told(&create(&placed, "three", 2)), ["own 2-3/0", "id-rest 7/0-1"]);
    let originals: Vec<_> = placed.unrecorded().into_iter().collect();
    let said = |(cgroup, was): &(CgroupPath, Cpuset)| {
        format!("{cgroup} {:?}", was.cpus.as_ref().map(ToString::to_string))
    };
    assert_eq!(
        originals.iter().map(said).collect::<Vec<_>>(),
        [
            "/kubepods/besteffort/podrest/id-rest Some(\"0-3\")",
            "/kubepods/podthree/id-three None",
            "/kubepods/podtwo/id-two None"
        ]
    );

    // No container would have to make room.
    let placed = self::placed(true);
    placed.remember(full(), BTreeMap::new());
    assert_eq!(told(&create(&placed, "one", 2)), [""; 0]);
    assert_eq!((update(&placed, "one"), placed.unrecorded().len()), (vec![], 0));
}
