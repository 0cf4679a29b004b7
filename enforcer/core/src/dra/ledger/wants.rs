//! What the results of a claim want of this machine, in numbers.

use numa_topology::{id::NodeId, set::CpuSet};

use super::{ClaimAllocation, ClaimResult, ConsumedAmounts, DeviceName, LedgerError, PlaceAmounts};
use crate::dra::{ClaimCores, ClaimSupply};

/// What one result wants.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) result: ClaimResult,
    pub(super) node: NodeId,
    pub(super) amounts: PlaceAmounts,
    /// The CPUs themselves, if the device is a core.
    pub(super) core: Option<CpuSet>,
}

/// What the results of a claim want, in their order.
pub(super) fn of(claim: &ClaimAllocation, supply: &ClaimSupply) -> Result<Vec<Want>, LedgerError> {
    let name = || format!("{}/{}", claim.namespace, claim.name);
    let want = |result: &ClaimResult| {
        let device = result.device;
        let absent = || LedgerError::NoSuchDevice { claim: name(), device };
        let core = match device {
            DeviceName::Core(core) => {
                Some(supply.core(core).cloned().filter(|cpus| !cpus.is_empty()).ok_or_else(absent)?)
            }
            DeviceName::Node(_) => None,
        };
        let of_core = |cpus: &CpuSet| supply.layout().place(cpus.first()?).map(|place| place.node);
        let node = match (device, &core) {
            (DeviceName::Node(node), _) => Some(node),
            (DeviceName::Core(_), core) => core.as_ref().and_then(of_core),
        };
        let budget = node.and_then(|node| supply.node(node)).ok_or_else(absent)?;
        let threads = supply.threads_per_core() as u64;
        let is_full = result.options.cores() == ClaimCores::Full;
        let mut amounts = match (&result.consumed, &core) {
            _ if result.is_admin => PlaceAmounts::default(),
            (_, Some(core)) => PlaceAmounts { cpus: core.len() as u64, ..PlaceAmounts::default() },
            (ConsumedAmounts::Amounts(amounts), None) => amounts.clone(),
            (ConsumedAmounts::Whole, None) => PlaceAmounts { milli_cpus: 0, ..budget.capacity.clone() },
        };
        let core = core.filter(|_| !result.is_admin);
        if is_full && core.is_none() && result.consumed == ConsumedAmounts::Whole {
            amounts.cpus -= amounts.cpus % threads;
        }
        for resource in amounts.capacities() {
            // What containers have of it may come back, and is waited for.
            let (asked, capacity) = (amounts.of(resource), budget.whole_capacity.of(resource));
            if asked > capacity {
                return Err(LedgerError::TooLarge { claim: name(), device, resource, asked, capacity });
            }
        }
        if is_full && core.is_none() && !amounts.cpus.is_multiple_of(threads) {
            return Err(LedgerError::NotWholeCores { claim: name(), asked: amounts.cpus, threads });
        }
        Ok(Want { result: result.clone(), node: budget.node, amounts, core })
    };
    claim.results.iter().map(want).collect()
}
