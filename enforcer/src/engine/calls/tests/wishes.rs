//! Requests that cannot be placed: how and for how long they are reported; and what comes with CPUs.

use super::*;
use enforcer_report::decision::DecisionState;

fn resize(placed: &SharedLedger, name: &str, from: u64, to: u64) -> NriAnswer {
    let subject = subject(name, "", Some(amounts(from)));
    ask(placed, |reply| NriCall::Update { subject, wanted: amounts(to), reply })
}

fn unplaced(placed: &SharedLedger) -> usize {
    placed.take_report().unwrap().unplaced.len()
}

fn latest(placed: &SharedLedger, id: &str) -> (DecisionState, String) {
    let all = placed.decisions().all();
    let one = all.iter().find(|one| one.subject.container_id.as_deref() == Some(id)).unwrap();
    let record = one.records.back().unwrap();
    (record.state, record.reason.clone())
}

#[test]
fn a_refused_resize_is_told_until_it_is_taken_back() {
    let placed = placed(true);
    create(&placed, "one", 2);
    assert_eq!(unplaced(&placed), 0);
    resize(&placed, "one", 2, 9);
    let (state, reason) = latest(&placed, "id-one");
    assert_eq!(state, DecisionState::Refused);
    assert!(reason.starts_with("it keeps what it has: "), "{reason}");
    assert_eq!(unplaced(&placed), 1);
    // The runtime reports its stored amounts too; they are not the request.
    resize(&placed, "one", 2, 2);
    assert_eq!(unplaced(&placed), 0);
    assert_eq!(latest(&placed, "id-one").0, DecisionState::Placed);
}

#[test]
fn a_refused_resize_is_told_until_there_is_room() {
    let placed = placed(true);
    for (name, cpus) in [("one", 2), ("two", 2), ("three", 2)] {
        create(&placed, name, cpus);
    }
    create(&placed, "four", 1);
    resize(&placed, "one", 2, 8);
    assert_eq!(unplaced(&placed), 1);
    for name in ["two", "three", "four"] {
        ask(&placed, |reply| NriCall::Stop { subject: subject(name, "", None), reply });
    }
    assert_eq!(unplaced(&placed), 1, "no new request");
    assert_eq!(updates(&resize(&placed, "one", 2, 4)), [("id-one".to_owned(), "0-3/0".to_owned())]);
    assert_eq!(unplaced(&placed), 0);
}

#[test]
fn unplaced_container_that_repeats_its_request_stays_unplaced() {
    let placed = placed(true);
    create(&placed, "big", 9);
    resize(&placed, "big", 9, 9);
    assert_eq!(unplaced(&placed), 1);
    assert_eq!(latest(&placed, "id-big").0, DecisionState::Unplaced);
}

#[test]
fn an_amount_of_cpus_that_its_entry_declares_comes_with_its_shares() {
    let shares =
        |resources: Option<&LinuxResources>| resources?.cpu.as_ref()?.shares.map(|shares| shares.value);
    let entry =
        "[placement]\nengine = \"pools\"\n[[workload]]\nname = \"db\"\nnamespace = \"shop\"\ncpus = 2\n";
    let (declared, _) = declared(entry);
    let created = create(&declared, "one", 1);
    assert_eq!(shares(created.adjust.as_ref()), Some(2048));
    let subject = subject("one", "", Some(amounts(1)));
    let updated = ask(&declared, |reply| NriCall::Update { subject, wanted: amounts(1), reply });
    let resources = updated.updates[0].linux.as_ref().unwrap().resources.as_ref();
    assert_eq!(shares(resources), Some(2048), "the runtime would set those of the kubelet");
    // A container that has its shares already is told none.
    assert_eq!(shares(create(&declared, "two", 2).adjust.as_ref()), None);
    assert_eq!(shares(create(&placed(true), "one", 1).adjust.as_ref()), None);
    let mut without = amounts(1);
    without.cpu.as_mut().unwrap().shares = None;
    let subject = super::subject("three", "", Some(without));
    let without = ask(&declared, |reply| NriCall::Create { subject, reply });
    assert_eq!(shares(without.adjust.as_ref()), None, "it may be worth more to its runtime");
}
