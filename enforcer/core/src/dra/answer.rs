//! What other parts of the node are told of prepared claims: the kubelet, its health stream, the placement
//! engine.
//!
//! The shell sends [`PreparedClaim::answer`] as the devices of `NodePrepareResources`, a device of
//! [`ClaimLedger::ailing_devices`] as unhealthy with its message and every other published one as healthy,
//! and gives [`ClaimLedger::exclusive_grants`] to the engine in place of those that it gave before.

use std::collections::BTreeMap;

use numa_placement::{Grant, Holder};
use numa_topology::text::cut_at;

use super::{ClaimLedger, DeviceName, PreparedClaim, cdi};
use crate::hosted::ExternalGrants;

/// Longest message of the health stream (KEP-4680), in characters of one byte.
const MAX_MESSAGE: usize = 1_000;

/// A device of a prepared claim, as the kubelet is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedDevice {
    /// Requests that it is for, without the names of their alternatives.
    pub requests: Vec<String>,
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// What the runtime adds to containers for it; nothing for an administrator.
    pub cdi_ids: Vec<String>,
    /// The share, of a device with more than one.
    pub share_id: Option<String>,
}

impl PreparedClaim {
    /// The devices of the claim, one for each result, in their order.
    pub fn answer(&self, pool: &str) -> Vec<PreparedDevice> {
        let device = |prepared: &super::PreparedResult| PreparedDevice {
            requests: vec![prepared.result.base_request().to_owned()],
            pool: pool.to_owned(),
            device: prepared.result.device.to_string(),
            share_id: prepared.result.share_id.clone(),
            cdi_ids: if prepared.result.is_admin { Vec::new() } else { vec![cdi::device_id(&self.uid)] },
        };
        self.results.iter().map(device).collect()
    }
}

impl ClaimLedger {
    /// Devices that do not keep what they have promised, with what is missing.
    pub fn ailing_devices(&self) -> BTreeMap<DeviceName, String> {
        let mut ailing = BTreeMap::<DeviceName, String>::new();
        for claim in self.claims() {
            for result in claim.results.iter().filter(|result| result.missing_cpus() > 0) {
                let (missing, promised) = (result.missing_cpus(), result.amounts.cpus);
                let message = ailing.entry(result.result.device).or_default();
                if message.len() < MAX_MESSAGE {
                    let separator = if message.is_empty() { "" } else { "; " };
                    let name = claim.full_name();
                    *message =
                        format!("{message}{separator}{missing} of {promised} CPUs of claim {name} are gone");
                }
            }
        }
        for message in ailing.values_mut() {
            *message = cut_at(message, MAX_MESSAGE).into_owned();
        }
        ailing
    }

    /// The exclusive CPUs of claims, for the placement engine, which gives them to nothing else.
    pub fn exclusive_grants(&self) -> ExternalGrants {
        let with_cpus = self.claims().map(|claim| (claim, claim.cpus())).filter(|(_, cpus)| !cpus.is_empty());
        let grant = |(claim, cpus): (&PreparedClaim, _)| {
            let reason = format!("exclusive to resource claim {}", claim.full_name());
            (Holder::resource_claim(claim.uid.as_str()), Grant::taken_by_others(cpus, reason))
        };
        with_cpus.map(grant).collect()
    }
}

#[cfg(test)]
mod tests {
    use numa_topology::set::CpuSet;
    use serde_json::json;

    use super::*;
    use crate::dra::{
        BudgetOptions, LedgerLimits,
        ledger::samples::{claim, cpus, result, supply},
    };

    const LINE: &str = "sockets:2 cores:8 threads:2";

    fn ledger() -> ClaimLedger {
        let mut ledger = ClaimLedger::new("n1", "boot");
        let mut two = claim(
            "a",
            vec![result("ne-numa0", cpus(4), &json!({})), result("ne-numa1", cpus(4), &json!({}))],
        );
        two.results[0].request = "place/two".into();
        two.results[1].is_admin = true;
        let none = CpuSet::new();
        let limits = LedgerLimits { now: 0, share_exclusive: false, interrupt_cpus: &none };
        ledger.prepare(&two, &supply(LINE, &BudgetOptions::default(), ""), &limits).unwrap();
        ledger
    }

    #[test]
    fn each_result_is_answered_by_its_base_request() {
        let ledger = ledger();
        let answer = ledger.claims().next().unwrap().answer("n1");
        let requests: Vec<_> = answer.iter().map(|device| (&*device.requests[0], &*device.device)).collect();
        assert_eq!(requests, [("place", "ne-numa0"), ("place", "ne-numa1")]);
        assert_eq!(answer[0].cdi_ids, ["numa-enforcer.io/place=claim-a"]);
        assert!(answer[1].cdi_ids.is_empty());
    }

    #[test]
    fn ailing_device_names_the_claim() {
        let mut ledger = ledger();
        assert!(ledger.ailing_devices().is_empty());
        ledger.settle(&supply(LINE, &BudgetOptions::default(), "0-7,16-21"));
        let ailing = ledger.ailing_devices();
        let device = DeviceName::parse("ne-numa0").unwrap();
        assert_eq!(ailing[&device], "3 of 4 CPUs of claim shop/a are gone");
        assert_eq!(ailing.len(), 1);
    }

    #[test]
    fn engine_sees_the_cpus_of_claims() {
        let grants: Vec<_> = ledger().exclusive_grants().into_values().collect();
        assert_eq!((grants.len(), grants[0].reason.as_str()), (1, "exclusive to resource claim shop/a"));
        assert_eq!(grants[0].exclusive, ledger().exclusive_cpus());
        assert_eq!(grants[0].exclusive.len(), 4);
    }
}
