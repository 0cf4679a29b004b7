//! Any order of requests, crashes and changes of the machine, against a list of what has to be there.

use proptest::prelude::*;

use super::*;
use crate::dra::ClaimOptions;

#[derive(Debug, Clone)]
enum Step {
    Prepare {
        uid: u8,
        results: Vec<(u8, u64, u64, u8)>,
    },
    Again(u8),
    Unprepare(u8),
    Crash {
        reboots: bool,
    },
    /// These CPUs are not there, or the kubelet's.
    Machine(Vec<u32>),
    Orphans(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let result = (0u8..4, 0u64..7, 0u64..3_000, 0u8..5);
    prop_oneof![
        6 => (0u8..8, prop::collection::vec(result, 1..3))
            .prop_map(|(uid, results)| Step::Prepare { uid, results }),
        2 => (0u8..8).prop_map(Step::Again),
        3 => (0u8..8).prop_map(Step::Unprepare),
        2 => any::<bool>().prop_map(|reboots| Step::Crash { reboots }),
        2 => prop::collection::vec(0u32..32, 0..10).prop_map(Step::Machine),
        1 => (0u8..8).prop_map(Step::Orphans),
    ]
}

fn uid(number: u8) -> ClaimUid {
    ClaimUid::parse(&format!("c{number}")).unwrap()
}

fn allocation(number: u8, results: &[(u8, u64, u64, u8)]) -> ClaimAllocation {
    let results = results.iter().map(|(device, cpus, milli_cpus, options)| {
        let fields = [
            json!({}),
            json!({"cores": "full"}),
            json!({"pack": "spread"}),
            json!({"irqs": "away"}),
            json!({"memory": "free"}),
        ];
        let device = ["ne-numa0", "ne-numa1", "ne-core2", "ne-core9"][usize::from(*device)];
        let amounts = PlaceAmounts { cpus: *cpus, milli_cpus: *milli_cpus, ..PlaceAmounts::default() };
        let mut result = result(device, amounts, &fields[usize::from(*options)]);
        if matches!(result.device, DeviceName::Core(_)) {
            result.consumed = ConsumedAmounts::Whole;
        }
        result
    });
    claim(uid(number).as_str(), results.collect())
}

fn check(ledger: &Ledger, supply: &ClaimSupply) -> Result<(), TestCaseError> {
    let mut taken = CpuSet::new();
    let all = ledger.claims().flat_map(|claim| &claim.results);
    for result in all {
        prop_assert!(taken.is_disjoint(&result.cpus), "a CPU is in two results: {:?}", result.cpus);
        taken.extend(&result.cpus);
        let node = supply.node(result.node).map(|budget| budget.cpus.clone()).unwrap_or_default();
        prop_assert!(
            result.cpus.is_subset(&node),
            "{:?} of node {} with {:?}",
            result.cpus,
            result.node,
            node
        );
        prop_assert!(result.cpus.len() as u64 <= result.amounts.cpus);
    }
    prop_assert_eq!(&taken, &ledger.exclusive_cpus());
    for budget in supply.nodes() {
        let shared = ledger.shared_cpus(budget.node, supply);
        prop_assert!(shared.is_some_and(|cpus| !cpus.is_empty() && cpus.is_disjoint(&taken)));
        let missing = ledger.claims().any(|claim| {
            claim.results.iter().any(|result| result.node == budget.node && result.missing_cpus() > 0)
        });
        let left = budget.cpus.difference(&taken);
        prop_assert!(!missing || left.len() <= 1, "CPUs are missing although {:?} are left", left);
    }
    Ok(())
}

fn play(steps: &[Step]) -> Result<(), TestCaseError> {
    let options = BudgetOptions::default();
    let at = |kubelet: &CpuSet| supply(LINE, &options, &kubelet.to_string());
    let mut machine = at(&CpuSet::new());
    let mut boot = 0;
    let mut ledger = Ledger::new("n1", "boot 0");
    // What has to be in the ledger, and what it was answered.
    let mut expected = BTreeMap::<ClaimUid, PreparedClaim>::new();
    for (now, step) in (0_u64..).zip(steps) {
        let before = ledger.clone();
        match step {
            Step::Prepare { uid, results } => {
                let claim = allocation(*uid, results);
                let decision = ledger.prepare(&claim, &machine, &limits());
                match decision {
                    Ok(PrepareDecision::Prepared) => {
                        prop_assert!(!expected.contains_key(&claim.uid));
                        let prepared = ledger.claim(&claim.uid).unwrap().clone();
                        prop_assert_eq!(prepared.missing_cpus(), 0);
                        expected.insert(claim.uid, prepared);
                    }
                    Ok(PrepareDecision::Repeated { .. }) => prop_assert!(expected.contains_key(&claim.uid)),
                    Ok(PrepareDecision::Wait(shortage)) => {
                        prop_assert_eq!(&ledger, &before);
                        prop_assert!(!expected.contains_key(&claim.uid));
                        // An empty machine would have prepared it: something else is in the way.
                        let mut empty = Ledger::new("n1", "boot");
                        let alone = empty.prepare(&claim, &machine, &limits());
                        let is_alone = alone != Ok(PrepareDecision::Prepared);
                        let waits = !shortage.holders.is_empty() || shortage.in_cores || is_alone;
                        prop_assert!(waits, "{} waits for nothing", shortage);
                    }
                    Err(_) => prop_assert_eq!(&ledger, &before),
                }
            }
            Step::Again(number) => {
                let Some(known) = expected.get(&uid(*number)) else { continue };
                let claim = ClaimAllocation {
                    uid: known.uid.clone(),
                    namespace: known.namespace.clone(),
                    name: known.name.clone(),
                    consumers: known.consumers.clone(),
                    results: known.results.iter().map(|result| result.result.clone()).collect(),
                };
                let decision = ledger.prepare(&claim, &machine, &limits()).unwrap();
                let is_repeated = matches!(decision, PrepareDecision::Repeated { .. });
                prop_assert!(is_repeated);
                let again = ledger.claim(&claim.uid).unwrap();
                prop_assert_eq!(&again.results, &before.claim(&claim.uid).unwrap().results);
                prop_assert_eq!(&again.boot_id, &format!("boot {boot}"));
            }
            Step::Unprepare(number) => {
                let had = ledger.unprepare(&uid(*number));
                prop_assert_eq!(had.is_some(), expected.remove(&uid(*number)).is_some());
                prop_assert!(ledger.unprepare(&uid(*number)).is_none());
            }
            Step::Crash { reboots } => {
                boot += u32::from(*reboots);
                ledger = Ledger::from_text(&ledger.to_text(), "n1", &format!("boot {boot}")).unwrap();
                prop_assert!(ledger.claims().eq(before.claims()), "a crash changes nothing");
                prop_assert_eq!(ledger.settle(&machine), []);
            }
            Step::Machine(gone) => {
                machine = at(&gone.iter().map(|cpu| numa_topology::id::CpuId(*cpu)).collect());
                for repair in ledger.settle(&machine) {
                    let (had, has) = (before.claim(&repair.uid).unwrap(), ledger.claim(&repair.uid).unwrap());
                    prop_assert_eq!(had.cpus().difference(&has.cpus()), repair.lost.clone());
                    prop_assert!(
                        repair.lost.is_disjoint(&machine.cpus()),
                        "only CPUs that are gone are taken"
                    );
                }
                prop_assert_eq!(ledger.settle(&machine), [], "settled once is settled");
            }
            Step::Orphans(number) => {
                let uid = uid(*number);
                let evidence = |claim: &PreparedClaim| OrphanEvidence {
                    has_container: false,
                    is_held_by_kubelet: claim.uid != uid,
                    is_gone_from_api: true,
                };
                ledger.release_orphans(now * 1_000, evidence);
                let released = ledger.release_orphans(now * 1_000 + 300, evidence);
                prop_assert_eq!(released.len(), usize::from(expected.remove(&uid).is_some()));
            }
        }
        prop_assert!(
            ledger.claims().map(|claim| &claim.uid).eq(expected.keys()),
            "nothing is lost or leaked"
        );
        let promised = |claim: &PreparedClaim| {
            claim
                .results
                .iter()
                .map(|result| (result.result.clone(), result.amounts.clone()))
                .collect::<Vec<_>>()
        };
        for claim in ledger.claims() {
            prop_assert_eq!(promised(claim), promised(&expected[&claim.uid]));
        }
        check(&ledger, &machine)?;
    }
    for uid in expected.keys() {
        ledger.unprepare(uid);
    }
    prop_assert!(ledger.exclusive_cpus().is_empty());
    prop_assert_eq!(ledger.promised(NodeId(0)), PlaceAmounts::default());
    Ok(())
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_the_ledger(steps in prop::collection::vec(any_step(), 1..40)) {
        play(&steps)?;
    }
}

#[test]
fn options_of_samples_are_read() {
    let read = allocation(1, &[(0, 1, 0, 1)]).results[0].options;
    assert_ne!(read, ClaimOptions::default());
}
