//! Any order of requests, crashes and changes of the machine, against a list of what has to be there.

use numa_topology::id::CpuId;
use proptest::prelude::*;

use super::*;
use crate::dra::{
    ClaimOptions,
    cdi::{self, written_claim},
};

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
    /// The state is lost, and the CDI files are not.
    Loss,
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
        1 => Just(Step::Loss),
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

fn check(ledger: &ClaimLedger, supply: &ClaimSupply) -> Result<(), TestCaseError> {
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

/// A ledger under test, and what has to be in it.
struct Course {
    machine: ClaimSupply,
    boot: u32,
    ledger: ClaimLedger,
    /// Prepared claims, as they were answered.
    expected: BTreeMap<ClaimUid, PreparedClaim>,
}

fn machine_without(gone: &CpuSet) -> ClaimSupply {
    supply(LINE, &BudgetOptions::default(), &gone.to_string())
}

/// The request for a prepared claim.
fn asked_again(known: &PreparedClaim) -> ClaimAllocation {
    ClaimAllocation {
        uid: known.uid.clone(),
        namespace: known.namespace.clone(),
        name: known.name.clone(),
        pod_claim: known.pod_claim.clone(),
        consumers: known.consumers.clone(),
        results: known.results.iter().map(|result| result.result.clone()).collect(),
    }
}

impl Course {
    fn prepare(&mut self, claim: ClaimAllocation) -> Result<(), TestCaseError> {
        let before = self.ledger.clone();
        let is_expected = self.expected.contains_key(&claim.uid);
        match self.ledger.prepare(&claim, &self.machine, &limits()) {
            Ok(PrepareDecision::Prepared) => {
                prop_assert!(!is_expected);
                let prepared = self.ledger.claim(&claim.uid).unwrap().clone();
                prop_assert_eq!(prepared.missing_cpus(), 0);
                self.expected.insert(claim.uid, prepared);
            }
            Ok(PrepareDecision::Repeated { .. }) => prop_assert!(is_expected),
            Ok(PrepareDecision::Wait(shortage)) => {
                prop_assert_eq!(&self.ledger, &before);
                prop_assert!(!is_expected);
                // An empty machine would have prepared it: something else is in the way.
                let mut empty = ClaimLedger::new("n1", "boot");
                let alone = empty.prepare(&claim, &self.machine, &limits());
                let is_alone = alone != Ok(PrepareDecision::Prepared);
                let waits = !shortage.holders.is_empty() || shortage.in_cores || is_alone;
                prop_assert!(waits, "{} waits for nothing", shortage);
            }
            Err(_) => prop_assert_eq!(&self.ledger, &before),
        }
        Ok(())
    }

    fn ask_again(&mut self, uid: &ClaimUid) -> Result<(), TestCaseError> {
        let Some(known) = self.expected.get(uid) else { return Ok(()) };
        let claim = asked_again(known);
        let had = self.ledger.claim(uid).unwrap().results.clone();
        let decision = self.ledger.prepare(&claim, &self.machine, &limits()).unwrap();
        let is_repeated = matches!(decision, PrepareDecision::Repeated { .. });
        prop_assert!(is_repeated);
        let again = self.ledger.claim(uid).unwrap();
        prop_assert_eq!(&again.results, &had);
        prop_assert_eq!(&again.boot_id, &format!("boot {}", self.boot));
        Ok(())
    }

    fn unprepare(&mut self, uid: &ClaimUid) -> Result<(), TestCaseError> {
        let had = self.ledger.unprepare(uid);
        prop_assert_eq!(had.is_some(), self.expected.remove(uid).is_some());
        prop_assert!(self.ledger.unprepare(uid).is_none());
        self.heal()
    }

    /// What was given back goes to claims that miss CPUs; nothing is taken for that.
    fn heal(&mut self) -> Result<(), TestCaseError> {
        for repair in self.ledger.settle(&self.machine) {
            prop_assert!(repair.lost.is_empty() && !repair.gained.is_empty(), "{:?}", repair);
        }
        Ok(())
    }

    fn crash(&mut self, reboots: bool) -> Result<(), TestCaseError> {
        let before = self.ledger.clone();
        self.boot += u32::from(reboots);
        let text = self.ledger.to_text();
        self.ledger = ClaimLedger::from_text(&text, "n1", &format!("boot {}", self.boot)).unwrap();
        prop_assert!(self.ledger.claims().eq(before.claims()), "a crash changes nothing");
        prop_assert_eq!(self.ledger.settle(&self.machine), []);
        Ok(())
    }

    fn change_machine(&mut self, gone: &[u32]) -> Result<(), TestCaseError> {
        let before = self.ledger.clone();
        self.machine = machine_without(&gone.iter().map(|cpu| CpuId(*cpu)).collect());
        for repair in self.ledger.settle(&self.machine) {
            let (had, has) = (before.claim(&repair.uid).unwrap(), self.ledger.claim(&repair.uid).unwrap());
            prop_assert_eq!(had.cpus().difference(&has.cpus()), repair.lost.clone());
            prop_assert!(repair.lost.is_disjoint(&self.machine.cpus()), "only CPUs that are gone are taken");
        }
        prop_assert_eq!(self.ledger.settle(&self.machine), [], "settled once is settled");
        Ok(())
    }

    fn release_orphan(&mut self, now: u64, uid: &ClaimUid) -> Result<(), TestCaseError> {
        let evidence = |claim: &PreparedClaim| OrphanEvidence {
            has_container: false,
            is_held_by_kubelet: claim.uid != *uid,
            is_gone_from_api: true,
        };
        self.ledger.release_orphans(now, evidence);
        let released = self.ledger.release_orphans(now + 300, evidence);
        prop_assert_eq!(released.len(), usize::from(self.expected.remove(uid).is_some()));
        self.heal()
    }

    /// Every claim is prepared again; one that cannot be, as it has lost CPUs before, is given up.
    fn lose(&mut self) -> Result<(), TestCaseError> {
        let before =
            std::mem::replace(&mut self.ledger, ClaimLedger::new("n1", &format!("boot {}", self.boot)));
        for claim in before.claims() {
            let written = written_claim(&cdi::file(claim, false).text).unwrap();
            self.ledger.recover(claim.uid.clone(), &written, &self.machine);
        }
        prop_assert_eq!(self.ledger.exclusive_cpus(), before.exclusive_cpus());
        for claim in before.claims() {
            let others = self.ledger.claims().filter(|other| other.uid != claim.uid);
            let others = others.fold(CpuSet::new(), |cpus, other| cpus.union(&other.cpus()));
            self.expected.remove(&claim.uid);
            self.prepare(asked_again(claim))?;
            if self.expected.contains_key(&claim.uid) {
                prop_assert!(self.ledger.claim(&claim.uid).unwrap().cpus().is_disjoint(&others));
            } else {
                prop_assert!(self.ledger.unprepare(&claim.uid).is_some());
            }
        }
        self.heal()
    }

    /// Nothing is lost, leaked or changed.
    fn check(&self) -> Result<(), TestCaseError> {
        let uids = self.ledger.claims().map(|claim| &claim.uid);
        prop_assert!(uids.eq(self.expected.keys()), "a claim is lost or leaked");
        let promised = |claim: &PreparedClaim| -> Vec<_> {
            claim.results.iter().map(|result| (result.result.clone(), result.amounts.clone())).collect()
        };
        for claim in self.ledger.claims() {
            prop_assert_eq!(promised(claim), promised(&self.expected[&claim.uid]));
        }
        check(&self.ledger, &self.machine)
    }
}

fn play(steps: &[Step]) -> Result<(), TestCaseError> {
    let machine = machine_without(&CpuSet::new());
    let ledger = ClaimLedger::new("n1", "boot 0");
    let mut course = Course { machine, boot: 0, ledger, expected: BTreeMap::new() };
    for (at, step) in (0_u64..).zip(steps) {
        match step {
            Step::Prepare { uid, results } => course.prepare(allocation(*uid, results))?,
            Step::Again(number) => course.ask_again(&uid(*number))?,
            Step::Unprepare(number) => course.unprepare(&uid(*number))?,
            Step::Crash { reboots } => course.crash(*reboots)?,
            Step::Machine(gone) => course.change_machine(gone)?,
            Step::Orphans(number) => course.release_orphan(at * 1_000, &uid(*number))?,
            Step::Loss => course.lose()?,
        }
        course.check()?;
    }
    for uid in course.expected.keys() {
        course.ledger.unprepare(uid);
    }
    prop_assert!(course.ledger.exclusive_cpus().is_empty());
    prop_assert_eq!(course.ledger.promised(NodeId(0)), PlaceAmounts::default());
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
