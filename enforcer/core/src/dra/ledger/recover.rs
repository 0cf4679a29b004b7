//! Claims of which only CPUs and name are known, because the state file was lost or damaged.
//!
//! Problem: containers of prepared claims go on when the state is lost, and the kubelet does not ask again
//! for a pod that runs. Idea: a CDI file names its claim and the CPUs, so the claim is taken up with these.
//! Nothing else gets the CPUs, over further restarts too. The claim is whole again when it is prepared once
//! more, and keeps the same CPUs then: the shell does that as soon as the API server answers, and the kubelet
//! where the file has no name.
//!
//! Invariants: a recovered claim is promised nothing but CPUs that it has, answers no request, and gives
//! containers nothing. It leaves as other claims do.

use std::{collections::BTreeMap, sync::Arc};

use numa_topology::{id::NodeId, set::CpuSet};

use super::{
    ClaimLedger, ClaimResult, ClaimUid, ConsumedAmounts, DeviceName, MAX_CLAIMS, PlaceAmounts, PreparedClaim,
    PreparedResult,
};
use crate::dra::{ClaimOptions, ClaimSupply, cdi::WrittenClaim};

impl PreparedClaim {
    /// Whether only its CPUs and perhaps its name are known. Each request of a claim has a name.
    pub fn is_recovered(&self) -> bool {
        self.results.iter().all(|result| result.result.request.is_empty())
    }
}

impl ClaimLedger {
    /// Takes up a claim with the CPUs of its file, as far as no other claim has them and the machine does. A
    /// known claim stays as it is.
    pub fn recover(&mut self, uid: ClaimUid, written: &WrittenClaim, supply: &ClaimSupply) {
        if self.claims.contains_key(&uid) || self.claims.len() >= MAX_CLAIMS {
            return;
        }
        let mut by_node = BTreeMap::<NodeId, CpuSet>::new();
        for cpu in written.cpus.difference(&self.exclusive_cpus()).iter() {
            if let Some(place) = supply.layout().place(cpu) {
                by_node.entry(place.node).or_default().extend(&[cpu].into_iter().collect());
            }
        }
        let result = |(node, cpus): (NodeId, CpuSet)| {
            let amounts = PlaceAmounts { cpus: cpus.len() as u64, ..PlaceAmounts::default() };
            let result = ClaimResult {
                request: String::new(),
                device: DeviceName::Node(node),
                share_id: None,
                is_admin: false,
                consumed: ConsumedAmounts::Amounts(amounts.clone()),
                options: ClaimOptions::default(),
            };
            PreparedResult { result, node, amounts, cpus }
        };
        let claim = PreparedClaim {
            uid: uid.clone(),
            namespace: written.namespace.clone(),
            name: written.name.clone(),
            pod_claim: None,
            consumers: Vec::new(),
            results: by_node.into_iter().map(result).collect(),
            boot_id: self.boot_id.clone(),
            prepared_at: 0,
        };
        self.claims.insert(uid, Arc::new(claim));
    }

    /// Takes a recovered claim out, to be prepared as a whole.
    pub(super) fn take_recovered(&mut self, uid: &ClaimUid) -> Option<Arc<PreparedClaim>> {
        if self.claim(uid).is_some_and(PreparedClaim::is_recovered) { self.claims.remove(uid) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dra::{
        BudgetOptions, LedgerLimits, OrphanEvidence, PrepareDecision,
        binding::{ContainerHints, bind, named_claims},
        ledger::samples::{claim, cpus, result, supply},
    };

    fn uid(text: &str) -> ClaimUid {
        ClaimUid::parse(text).unwrap()
    }

    fn machine() -> ClaimSupply {
        supply("sockets:2 cores:8", &BudgetOptions::default(), "")
    }

    /// A ledger that has lost everything but the CPUs 3-6 of claim `a`.
    fn recovered() -> ClaimLedger {
        let mut ledger = ClaimLedger::new("n1", "boot");
        ledger.recover(uid("a"), &with_cpus("3-6"), &machine());
        ledger
    }

    fn with_cpus(cpus: &str) -> WrittenClaim {
        WrittenClaim { cpus: cpus.parse().unwrap(), ..WrittenClaim::default() }
    }

    fn prepare(ledger: &mut ClaimLedger, name: &str, count: u64) -> PrepareDecision {
        let none = CpuSet::new();
        let limits = LedgerLimits { now: 7, share_exclusive: false, interrupt_cpus: &none };
        let claim = claim(name, vec![result("ne-numa0", cpus(count), &json!({}))]);
        ledger.prepare(&claim, &machine(), &limits).unwrap()
    }

    #[test]
    fn other_claims_do_not_get_its_cpus_and_it_gets_them_again() {
        let mut ledger = recovered();
        assert_eq!(prepare(&mut ledger, "b", 2), PrepareDecision::Prepared);
        assert!(ledger.claim(&uid("b")).unwrap().cpus().is_disjoint(&"3-6".parse().unwrap()));
        let PrepareDecision::Wait(shortage) = prepare(&mut ledger, "c", 1) else {
            panic!("6 of 6 are taken")
        };
        assert_eq!(
            shortage.to_string(),
            "numa0: 1 CPUs asked, 0 free, still held: 4 by claim with uid a, 2 by claim shop/b"
        );
        assert_eq!(ledger.repeat(&uid("a")), None, "there is no answer to repeat");
        assert_eq!(prepare(&mut ledger, "a", 4), PrepareDecision::Prepared);
        let whole = ledger.claim(&uid("a")).unwrap();
        assert_eq!((whole.cpus().to_string(), whole.is_recovered()), ("3-6".into(), false));
        assert_eq!(prepare(&mut ledger, "a", 4), PrepareDecision::Repeated { is_changed: false });
    }

    #[test]
    fn request_that_waits_or_is_refused_leaves_it_as_it_was() {
        let mut ledger = recovered();
        prepare(&mut ledger, "b", 2);
        let before = ledger.clone();
        assert!(matches!(prepare(&mut ledger, "a", 5), PrepareDecision::Wait(_)));
        assert_eq!(ledger, before);
    }

    #[test]
    fn it_survives_restarts_and_gives_containers_nothing() {
        let ledger = recovered();
        let mut again = ClaimLedger::from_text(&ledger.to_text(), "n1", "boot").unwrap();
        assert_eq!(again, ledger);
        again.recover(uid("b"), &with_cpus("6-8"), &machine());
        assert_eq!(again.claim(&uid("b")).unwrap().cpus().to_string(), "7-8", "CPU 6 is of claim a");
        assert_eq!(again.claim(&uid("b")).unwrap().nodes().to_string(), "0-1");
        // A CPU that goes is not replaced: it is not known what was promised.
        let repairs = again.settle(&supply("sockets:2 cores:8", &BudgetOptions::default(), "4"));
        assert_eq!((repairs.len(), repairs[0].missing), (1, 0));
        assert_eq!(again.claim(&uid("a")).unwrap().cpus().to_string(), "3,5-6");
        let hints =
            ContainerHints { pod_uid: "", named: &named_claims(["numa-enforcer.io/place=claim-a"], []) };
        let bound = bind(&hints, &again, &machine());
        assert_eq!((bound.place, bound.unconfirmed), (None, vec![uid("a")]));
    }

    #[test]
    fn without_a_name_it_is_an_orphan_by_what_the_node_knows() {
        let mut ledger = recovered();
        let evidence = |is_held_by_kubelet| OrphanEvidence {
            has_container: false,
            is_held_by_kubelet,
            is_gone_from_api: false,
        };
        assert_eq!(ledger.release_orphans(0, |_| evidence(true)), []);
        assert_eq!(ledger.release_orphans(1_000, |_| evidence(false)), []);
        assert_eq!(ledger.release_orphans(1_300, |_| evidence(false)).len(), 1);
    }

    #[test]
    fn name_of_the_file_is_known_and_makes_it_no_whole_claim() {
        let mut ledger = ClaimLedger::new("n1", "boot");
        for (id, cpus) in [("a", "3-6"), ("b", "")] {
            let written = WrittenClaim { namespace: "shop".into(), name: id.into(), ..with_cpus(cpus) };
            ledger.recover(uid(id), &written, &machine());
            let claim = ledger.claim(&uid(id)).unwrap();
            assert!(claim.is_recovered());
            assert_eq!(claim.full_name(), format!("shop/{id}"));
        }
        assert_eq!(ClaimLedger::from_text(&ledger.to_text(), "n1", "boot").unwrap(), ledger);
        assert_eq!(prepare(&mut ledger, "a", 4), PrepareDecision::Prepared);
        assert!(!ledger.claim(&uid("a")).unwrap().is_recovered());
    }

    #[test]
    fn machine_of_which_nothing_is_known_takes_no_cpus_away() {
        let mut ledger = recovered();
        assert_eq!(ledger.settle(&ClaimSupply::default()), []);
        assert_eq!(ledger.exclusive_cpus().to_string(), "3-6");
    }
}
