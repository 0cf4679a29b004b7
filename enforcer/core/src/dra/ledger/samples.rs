//! Claims and machines for tests.

use numa_placement::{Inventory, settings::PlacementSettings};
use numa_topology::{id::NodeId, set::CpuSet, synth::Machine};
use serde_json::json;

use super::{
    ClaimConsumer, ClaimResult, ClaimUid, ConsumedAmounts, DeviceName, PlaceAmounts, PreparedClaim,
    PreparedResult,
};
use crate::dra::{BudgetOptions, ClaimAllocation, ClaimOptions, ClaimSupply, field::Field};

/// A machine of this line, of which claims may take what the options say.
pub(in crate::dra) fn supply(line: &str, options: &BudgetOptions, kubelet_cpus: &str) -> ClaimSupply {
    ClaimSupply::new(&inventory(line), options, &kubelet_cpus.parse().unwrap())
}

/// A machine of this line.
pub(in crate::dra) fn inventory(line: &str) -> Inventory {
    let machine = line.parse::<Machine>().unwrap().build();
    Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap()
}

/// A result of a device with these amounts and options.
pub(in crate::dra) fn result(
    device: &str,
    amounts: PlaceAmounts,
    options: &serde_json::Value,
) -> ClaimResult {
    ClaimResult {
        request: "place".into(),
        device: DeviceName::parse(device).unwrap(),
        share_id: None,
        is_admin: false,
        consumed: ConsumedAmounts::Amounts(amounts),
        options: ClaimOptions::read_recorded(&Field::root(options)).unwrap(),
    }
}

/// CPUs alone.
pub(in crate::dra) fn cpus(cpus: u64) -> PlaceAmounts {
    PlaceAmounts { cpus, ..PlaceAmounts::default() }
}

/// A claim of one pod, `pod-UID`.
pub(in crate::dra) fn claim(uid: &str, results: Vec<ClaimResult>) -> ClaimAllocation {
    ClaimAllocation {
        uid: ClaimUid::parse(uid).unwrap(),
        namespace: "shop".into(),
        name: uid.into(),
        pod_claim: None,
        consumers: vec![ClaimConsumer::Pod { uid: format!("pod-{uid}"), name: "web".into() }],
        results,
    }
}

/// The prepared claim `c1` with these CPUs of a node.
pub(in crate::dra) fn prepared(cpus: &str, node: &str) -> PreparedClaim {
    let set: CpuSet = cpus.parse().unwrap();
    let amounts = self::cpus(set.len() as u64);
    let claim = claim("c1", vec![result(&format!("ne-numa{node}"), amounts.clone(), &json!({}))]);
    let result = claim.results[0].clone();
    PreparedClaim {
        uid: claim.uid,
        namespace: claim.namespace,
        name: claim.name,
        pod_claim: claim.pod_claim,
        consumers: claim.consumers,
        results: vec![PreparedResult { result, node: NodeId(node.parse().unwrap()), amounts, cpus: set }],
        boot_id: "boot".into(),
        prepared_at: 0,
    }
}
