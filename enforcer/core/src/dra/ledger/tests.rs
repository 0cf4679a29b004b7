mod interleavings;
mod record;

use serde_json::json;

use super::{
    samples::{claim, cpus, result, supply},
    *,
};
use crate::dra::BudgetOptions;

const LINE: &str = "sockets:2 cores:8 threads:2 l3:2 memory:64GiB";

pub(super) fn limits() -> LedgerLimits<'static> {
    static NONE: CpuSet = CpuSet::new();
    LedgerLimits { now: 1_000, share_exclusive: false, interrupt_cpus: &NONE }
}

fn machine() -> ClaimSupply {
    supply(LINE, &BudgetOptions::default(), "")
}

fn exclusive(uid: &str, device: &str, count: u64) -> ClaimAllocation {
    claim(uid, vec![result(device, cpus(count), &json!({}))])
}

fn shortage(decision: Result<PrepareDecision, LedgerError>) -> String {
    match decision {
        Ok(PrepareDecision::Wait(shortage)) => shortage.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn same_claim_gets_the_same_answer() {
    let (supply, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    let first = exclusive("a", "ne-numa1", 4);
    assert_eq!(ledger.prepare(&first, &supply, &limits()), Ok(PrepareDecision::Prepared));
    let had = ledger.claim(&first.uid).unwrap().clone();
    assert_eq!(had.cpus().to_string(), "8-9,24-25");
    assert_eq!(
        ledger.prepare(&first, &supply, &limits()),
        Ok(PrepareDecision::Repeated { is_changed: false })
    );
    assert_eq!(ledger.repeat(&first.uid), Some(PrepareDecision::Repeated { is_changed: false }));
    assert_eq!(ledger.repeat(&ClaimUid::parse("b").unwrap()), None);
    assert_eq!(ledger.claim(&first.uid), Some(&had));
    let mut other = first.clone();
    other.results[0].device = DeviceName::Node(NodeId(0));
    let refused = ledger.prepare(&other, &supply, &limits()).unwrap_err();
    assert!(refused.to_string().contains("shop/a: it is prepared with another allocation"), "{refused}");
    let added = ClaimAllocation {
        consumers: vec![ClaimConsumer::Pod { uid: "other".into(), name: "web".into() }],
        ..first
    };
    assert_eq!(
        ledger.prepare(&added, &supply, &limits()),
        Ok(PrepareDecision::Repeated { is_changed: true })
    );
    assert_eq!(ledger.claim(&added.uid).unwrap().consumers, added.consumers);
}

#[test]
fn shortage_names_the_claims_that_hold() {
    let (supply, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    for (uid, count) in [("a", 4), ("b", 2)] {
        ledger.prepare(&exclusive(uid, "ne-numa0", count), &supply, &limits()).unwrap();
    }
    let before = ledger.clone();
    let late = exclusive("c", "ne-numa0", 8);
    let said = shortage(ledger.prepare(&late, &supply, &limits()));
    assert_eq!(said, "numa0: 8 CPUs asked, 6 free, still held: 4 by claim shop/a, 2 by claim shop/b");
    assert_eq!(ledger, before);
    assert!(ledger.unprepare(&ClaimUid::parse("a").unwrap()).is_some());
    assert_eq!(ledger.prepare(&late, &supply, &limits()), Ok(PrepareDecision::Prepared));
    assert!(ledger.unprepare(&ClaimUid::parse("a").unwrap()).is_none(), "twice is no error");
}

#[test]
fn cpus_of_containers_without_claims_are_waited_for_and_named() {
    let holders = [("shop/web/main", "0-3"), ("shop/db/main", "4-5"), ("shop/far/main", "8-9")];
    let holders = holders.map(|(name, cpus)| (name.to_owned(), cpus.parse::<CpuSet>().unwrap()));
    let supply = supply(LINE, &BudgetOptions::default(), "0-5,8-9").with_holders(holders.into());
    let mut ledger = ClaimLedger::new("n1", "boot");
    ledger.prepare(&exclusive("a", "ne-numa0", 3), &supply, &limits()).unwrap();
    let said = shortage(ledger.prepare(&exclusive("b", "ne-numa0", 12), &supply, &limits()));
    assert_eq!(
        said,
        "numa0: 12 CPUs asked, 5 free, still held: 4 by container shop/web/main, 3 by claim shop/a, \
         2 by container shop/db/main"
    );
    let refused = ledger.prepare(&exclusive("c", "ne-numa0", 13), &supply, &limits()).unwrap_err();
    assert!(refused.to_string().ends_with("asked of ne-numa0, which has 12"), "{refused}");
}

#[test]
fn losses_alone_give_a_claim_no_other_cpus() {
    let (all, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    ledger.prepare(&exclusive("a", "ne-numa0", 4), &all, &limits()).unwrap();
    let had = ledger.exclusive_cpus();
    let lost: CpuSet = had.iter().take(1).collect();
    let repairs = ledger.settle_losses(&supply(LINE, &BudgetOptions::default(), &lost.to_string()));
    assert_eq!((&repairs[0].lost, repairs[0].gained.len(), repairs[0].missing), (&lost, 0, 1));
    assert_eq!(ledger.exclusive_cpus(), had.difference(&lost));
}

#[test]
fn memory_is_promised_once() {
    let (supply, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    let of = |uid: &str, gib: u64| {
        let amounts = PlaceAmounts { memory_bytes: gib << 30, ..PlaceAmounts::default() };
        claim(uid, vec![result("ne-numa0", amounts, &json!({}))])
    };
    ledger.prepare(&of("a", 40), &supply, &limits()).unwrap();
    let said = shortage(ledger.prepare(&of("b", 30), &supply, &limits()));
    assert!(said.starts_with("numa0: 32212254720 bytes of memory asked, "), "{said}");
    let refused = ledger.prepare(&of("c", 65), &supply, &limits()).unwrap_err().to_string();
    assert!(refused.contains("numa-enforcer.io/memory asked of ne-numa0, which has"), "{refused}");
}

#[test]
fn budgets_at_full_size_are_the_same_cpus() {
    let options = BudgetOptions { overlap: true, ..BudgetOptions::default() };
    let (supply, mut ledger) = (supply(LINE, &options, ""), ClaimLedger::new("n1", "boot"));
    let amounts = PlaceAmounts { milli_cpus: 7_500, ..PlaceAmounts::default() };
    let shared = claim("a", vec![result("ne-numa0", amounts, &json!({}))]);
    ledger.prepare(&shared, &supply, &limits()).unwrap();
    let said = shortage(ledger.prepare(&exclusive("b", "ne-numa0", 10), &supply, &limits()));
    assert!(said.starts_with("numa0: 10 CPUs asked, 8 free"), "{said}");
    assert_eq!(
        ledger.prepare(&exclusive("b", "ne-numa0", 8), &supply, &limits()),
        Ok(PrepareDecision::Prepared)
    );
}

#[test]
fn exclusive_cpus_are_for_one_pod_unless_configured() {
    let (supply, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    let two = |uid: &str, count: u64| {
        let mut claim = exclusive(uid, "ne-numa0", count);
        claim.consumers.push(ClaimConsumer::Pod { uid: "second".into(), name: "web-1".into() });
        claim
    };
    let refused = ledger.prepare(&two("a", 2), &supply, &limits()).unwrap_err();
    assert!(refused.to_string().contains("reserved for 2 consumers"), "{refused}");
    assert_eq!(ledger.prepare(&two("b", 0), &supply, &limits()), Ok(PrepareDecision::Prepared));
    let first = exclusive("c", "ne-numa0", 2);
    ledger.prepare(&first, &supply, &limits()).unwrap();
    assert_eq!(
        ledger.prepare(&two("c", 2), &supply, &limits()),
        Ok(PrepareDecision::Repeated { is_changed: false }),
        "the first pod goes on"
    );
    assert_eq!(ledger.claim(&first.uid).unwrap().consumers, first.consumers);
    let mut next = first.clone();
    next.consumers = vec![ClaimConsumer::Pod { uid: "next".into(), name: "web-2".into() }];
    ledger.prepare(&next, &supply, &limits()).unwrap();
    assert_eq!(ledger.claim(&first.uid).unwrap().consumers, next.consumers);
    let shared = LedgerLimits { share_exclusive: true, ..limits() };
    assert_eq!(ledger.prepare(&two("a", 2), &supply, &shared), Ok(PrepareDecision::Prepared));
    let mut group = exclusive("g", "ne-numa0", 2);
    group.consumers = vec![ClaimConsumer::Other { resource: "podgroups".into(), uid: "g".into() }];
    assert!(matches!(ledger.prepare(&group, &supply, &limits()), Err(LedgerError::Shared { .. })));
}

#[test]
fn whole_devices_and_cores_are_given_as_they_are() {
    let (supply, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    let whole = |uid: &str, device: &str| {
        let mut claim = exclusive(uid, device, 0);
        claim.results[0].consumed = ConsumedAmounts::Whole;
        claim
    };
    ledger.prepare(&whole("a", "ne-core3"), &supply, &limits()).unwrap();
    assert_eq!(ledger.exclusive_cpus().to_string(), "3,19");
    let said = shortage(ledger.prepare(&whole("b", "ne-core3"), &supply, &limits()));
    assert_eq!(said, "numa0: 2 CPUs asked, 0 free in whole cores, still held: 2 by claim shop/a");
    shortage(ledger.prepare(&whole("c", "ne-numa0"), &supply, &limits()));
    ledger.prepare(&whole("c", "ne-numa1"), &supply, &limits()).unwrap();
    let node = ledger.claim(&ClaimUid::parse("c").unwrap()).unwrap();
    assert_eq!((node.cpus().len(), node.results[0].amounts.memory_bytes), (12, 64 << 30));
    for device in ["ne-numa7", "ne-core16", "ne-core40"] {
        let refused = ledger.prepare(&whole("d", device), &supply, &limits());
        assert!(matches!(refused, Err(LedgerError::NoSuchDevice { .. })), "{device}: {refused:?}");
    }
}

#[test]
fn full_cores_are_a_whole_number() {
    let (supply, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    let odd = claim("a", vec![result("ne-numa0", cpus(3), &json!({"cores": "full"}))]);
    let refused = ledger.prepare(&odd, &supply, &limits()).unwrap_err();
    assert!(refused.to_string().contains("3 CPUs are no whole cores of 2 threads"), "{refused}");
}

#[test]
fn cpus_that_go_are_replaced_on_the_node_and_come_back() {
    let (all, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    ledger.prepare(&exclusive("a", "ne-numa0", 12), &all, &limits()).unwrap();
    let had = ledger.exclusive_cpus();
    assert_eq!(ledger.settle(&all), []);
    let lost = had.iter().take(2).collect::<CpuSet>();
    let fewer = supply(LINE, &BudgetOptions::default(), &lost.to_string());
    let repairs = ledger.settle(&fewer);
    assert_eq!((&repairs[0].lost, repairs[0].missing, repairs[0].gained.len()), (&lost, 0, 2));
    assert!(ledger.exclusive_cpus().is_disjoint(&lost));
    // One CPU of the node stays shared, whatever is missing.
    let few = supply(LINE, &BudgetOptions::default(), "0-7,16-21");
    let repairs = ledger.settle(&few);
    assert_eq!((repairs[0].missing, ledger.exclusive_cpus().len()), (11, 1));
    assert_eq!(ledger.shared_cpus(NodeId(0), &few).unwrap().len(), 1);
    let none = supply(LINE, &BudgetOptions::default(), "0-7,16-23");
    ledger.settle(&none);
    assert_eq!(ledger.shared_cpus(NodeId(0), &none).unwrap().to_string(), "8-15,24-31");
    let repairs = ledger.settle(&all);
    assert_eq!((repairs[0].missing, ledger.exclusive_cpus().len()), (0, 12));
}

#[test]
fn orphans_are_released_after_five_minutes_without_any_sign() {
    let (supply, mut ledger) = (machine(), ClaimLedger::new("n1", "boot"));
    let uid = ClaimUid::parse("a").unwrap();
    ledger.prepare(&exclusive("a", "ne-numa0", 2), &supply, &limits()).unwrap();
    let unneeded = OrphanEvidence { has_container: false, is_held_by_kubelet: false, is_gone_from_api: true };
    for sign in [
        OrphanEvidence { has_container: true, ..unneeded },
        OrphanEvidence { is_held_by_kubelet: true, ..unneeded },
        OrphanEvidence { is_gone_from_api: false, ..unneeded },
    ] {
        assert!(ledger.release_orphans(0, |_| unneeded).is_empty());
        assert!(ledger.release_orphans(200, |_| sign).is_empty(), "{sign:?}");
        assert!(ledger.release_orphans(400, |_| unneeded).is_empty(), "the time starts anew");
        assert!(ledger.release_orphans(400, |_| sign).is_empty());
    }
    let mut rebooted = ClaimLedger::from_text(&ledger.to_text(), "n1", "next boot").unwrap();
    let stale = OrphanEvidence { has_container: true, ..unneeded };
    assert!(rebooted.release_orphans(0, |_| stale).is_empty());
    assert_eq!(rebooted.release_orphans(300, |_| stale)[0].uid, uid);
    assert!(rebooted.claims().next().is_none());
    ledger.release_orphans(1_000, |_| unneeded);
    assert!(ledger.release_orphans(1_299, |_| unneeded).is_empty());
    assert_eq!(ledger.release_orphans(1_300, |_| unneeded).len(), 1);
}

#[test]
fn copies_share_the_claims_that_do_not_change() {
    let machine = supply(LINE, &BudgetOptions::default(), "");
    let mut ledger = ClaimLedger::new("n1", "boot");
    let [a, b] = ["a", "b"].map(|name| claim(name, vec![result("ne-numa0", cpus(1), &json!({}))]));
    for claim in [&a, &b] {
        assert_eq!(ledger.prepare(claim, &machine, &limits()), Ok(PrepareDecision::Prepared));
    }
    let mut copy = ledger.clone();
    let taken = ledger.claim(&b.uid).unwrap().cpus();
    let without = supply(LINE, &BudgetOptions::default(), &taken.to_string());
    assert_eq!(copy.settle(&without).len(), 1);
    let is_shared = |uid| std::ptr::eq(ledger.claim(uid).unwrap(), copy.claim(uid).unwrap());
    assert_eq!((is_shared(&a.uid), is_shared(&b.uid)), (true, false));
    assert_eq!(ledger.claim(&b.uid).unwrap().cpus(), taken, "the other copy is as it was");
}
