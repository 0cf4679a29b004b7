//! The condition of a claim that says whether the memory accesses of its containers stay on their NUMA nodes.
//!
//! Problem: a share of remote accesses is another one at each look, and each change of a condition is a write
//! to the API server. Idea: a claim is remote at and above a limit, local below half of it, and stays as it
//! was in between; a change counts after several looks in a row. Invariant: what is written and has not
//! changed is not written again.

use serde_json::{Value, json};

use super::{LOCALITY_CONDITION, PreparedClaim};

/// Looks in a row after which a change counts.
const LOOKS: u32 = 3;

/// What is known of the condition of one claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimLocality {
    /// Whether the written condition says that it is local.
    written: Option<bool>,
    /// What the latest looks say, and how many in a row.
    looks: (Option<bool>, u32),
}

impl ClaimLocality {
    /// Takes in a look at the share of remote accesses, 0 to 1; returns whether the claim is local if that
    /// has to be written.
    pub fn observe(&mut self, remote: f64, limit: f64) -> Option<bool> {
        let is_local = (remote < limit / 2.0).then_some(true).or((remote >= limit).then_some(false));
        let looks = if self.looks.0 == is_local { self.looks.1.saturating_add(1) } else { 1 };
        self.looks = (is_local, looks);
        is_local.filter(|is_local| looks >= LOOKS && self.written != Some(*is_local))
    }

    /// The condition is written so.
    pub fn set_written(&mut self, is_local: bool) {
        self.written = Some(is_local);
    }
}

/// The share of remote accesses of a claim in words.
pub fn remote_words(remote: f64) -> String {
    format!("{:.0} % of the memory accesses of its containers go to other NUMA nodes", remote * 100.0)
}

/// `status.devices` of a claim with the condition; `remote` is the share of remote accesses, and `at` the
/// time, as RFC 3339 has it.
pub fn locality_status(
    claim: &PreparedClaim,
    (driver, pool): (&str, &str),
    (is_local, remote): (bool, f64),
    at: &str,
) -> Value {
    let (status, reason) = if is_local { ("True", "LocalAccesses") } else { ("False", "RemoteAccesses") };
    let message = remote_words(remote);
    let devices = claim.results.iter().filter(|own| !own.result.is_admin).map(|own| {
        let mut device = json!({
            "driver": driver,
            "pool": pool,
            "device": own.result.device.to_string(),
            "conditions": [{
                "type": LOCALITY_CONDITION,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": at,
            }],
        });
        if let Some(share) = &own.result.share_id {
            device["shareID"] = json!(share);
        }
        device
    });
    devices.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dra::{
        BudgetOptions, ClaimLedger, LedgerLimits,
        ledger::samples::{claim, cpus, result, supply},
    };
    use numa_topology::set::CpuSet;

    #[test]
    fn change_counts_after_several_looks_and_is_written_once() {
        let mut locality = ClaimLocality::default();
        let looks = |locality: &mut ClaimLocality, all: &[f64]| -> Vec<_> {
            all.iter().map(|remote| locality.observe(*remote, 0.2)).collect()
        };
        assert_eq!(looks(&mut locality, &[0.05, 0.5, 0.05, 0.05]), [None; 4]);
        assert_eq!(looks(&mut locality, &[0.05, 0.05]), [Some(true); 2], "until it is written");
        locality.set_written(true);
        assert_eq!(looks(&mut locality, &[0.05, 0.15, 0.15, 0.15, 0.15, 0.3, 0.3]), [None; 7]);
        assert_eq!(looks(&mut locality, &[0.2]), [Some(false)]);
        locality.set_written(false);
        assert_eq!(looks(&mut locality, &[0.9, 0.15, 0.15, 0.15, 0.01, 0.01]), [None; 6]);
        assert_eq!(looks(&mut locality, &[0.0]), [Some(true)]);
    }

    #[test]
    fn each_device_of_the_claim_has_the_condition_and_its_share() {
        let machine = supply("sockets:2 cores:8", &BudgetOptions::default(), "");
        let mut ledger = ClaimLedger::new("n1", "boot");
        let mut own = result("ne-numa1", cpus(2), &json!({}));
        own.share_id = Some("share".into());
        let none = CpuSet::new();
        let limits = LedgerLimits { now: 0, share_exclusive: false, interrupt_cpus: &none };
        ledger.prepare(&claim("a", vec![own]), &machine, &limits).unwrap();
        let prepared = ledger.claims().next().unwrap();
        let status =
            locality_status(prepared, ("numa-enforcer.io", "n1"), (false, 0.416), "2026-11-29T09:00:00Z");
        let expected = json!([{
            "driver": "numa-enforcer.io", "pool": "n1", "device": "ne-numa1", "shareID": "share",
            "conditions": [{
                "type": "NumaLocal", "status": "False", "reason": "RemoteAccesses",
                "message": "42 % of the memory accesses of its containers go to other NUMA nodes",
                "lastTransitionTime": "2026-11-29T09:00:00Z",
            }],
        }]);
        assert_eq!(status, expected);
    }
}
