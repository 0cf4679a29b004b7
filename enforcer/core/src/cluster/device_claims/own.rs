//! What this project's driver would do with the claims of a plan: which devices it publishes on a node, and
//! which CPUs it chooses when it prepares a claim.
//!
//! Idea: the code of the driver itself answers, from the inventory of the node. So a claim that the driver
//! would refuse, for its options or for a lack of CPUs, has no place in the plan either, with the same words.

use std::collections::BTreeMap;

use numa_placement::{Allocations, Inventory, trial::PlannedDevice};
use numa_topology::set::CpuSet;
use serde_json::{Value, json};

use super::{
    objects::{AllocatedDevice, Slice, read_slice},
    search::ONE,
};
use crate::{
    dra::{
        BudgetOptions, ClaimAllocation, ClaimContext, ClaimLedger, ClaimSupply, ClaimUid, DRIVER,
        LedgerLimits, MissingAmounts, PrepareDecision, PreparedClaim, PublishOptions,
        cdi::WrittenClaim,
        field::Field,
        slice::{SliceOwner, slices},
    },
    policy::DraSettings,
};

/// How the driver of the nodes is configured.
#[derive(Debug, Clone)]
pub struct PlannedDriver {
    budgets: BudgetOptions,
    full_cores: bool,
    missing: MissingAmounts,
    share_exclusive: bool,
}

impl From<&DraSettings> for PlannedDriver {
    fn from(dra: &DraSettings) -> Self {
        Self {
            budgets: dra.budgets(),
            full_cores: dra.full_cores,
            missing: dra.without_amounts,
            share_exclusive: dra.share_exclusive,
        }
    }
}

impl PlannedDriver {
    /// Whether several pods may have the exclusive CPUs of one claim.
    pub(super) const fn share_exclusive(&self) -> bool {
        self.share_exclusive
    }
}

impl Default for PlannedDriver {
    fn default() -> Self {
        Self::from(&DraSettings::default())
    }
}

/// A node whose driver is asked.
#[derive(Clone, Copy)]
pub struct ClaimNode<'a> {
    /// Its name, which is the name of its pool.
    pub name: &'a str,
    /// Changes with its inventory and its allocations.
    pub version: u64,
    /// Its machine; without it, no device is made and no CPU is chosen.
    pub inventory: Option<&'a Inventory>,
    /// What containers have there.
    pub allocations: &'a Allocations,
}

/// The driver of a node.
#[derive(Debug, Clone)]
pub(super) struct DriverOfNode {
    version: u64,
    /// Devices that it publishes.
    pub(super) slices: Vec<Slice>,
    supply: ClaimSupply,
    /// Claims that it has prepared.
    pub(super) ledger: ClaimLedger,
}

/// A claim as its driver reads it.
pub(super) struct DriverClaim<'a> {
    pub(super) key: &'a (String, String),
    pub(super) uid: &'a str,
    pub(super) results: &'a [AllocatedDevice],
    /// Opaque configurations with their sources.
    pub(super) configs: &'a [Value],
    /// Uids and names of its pods.
    pub(super) pods: &'a [(String, String)],
}

impl DriverClaim<'_> {
    fn read(&self, node: &str, driver: &PlannedDriver) -> Result<ClaimAllocation, String> {
        let (namespace, name) = self.key;
        let result = |result: &AllocatedDevice| {
            let AllocatedDevice { request, driver, pool, device, is_admin, is_share, consumed } = result;
            let mut json = json!({
                "request": request, "driver": driver, "pool": pool, "device": device, "adminAccess": is_admin,
            });
            if *is_share {
                let amounts = consumed.iter().map(|(key, nano)| (key.clone(), exact(*nano).into()));
                json["consumedCapacity"] = Value::Object(amounts.collect());
            }
            json
        };
        let results: Vec<Value> = self.results.iter().map(result).collect();
        let pod = |(uid, name): &(String, String)| json!({"resource": "pods", "uid": uid, "name": name});
        let pods: Vec<Value> = self.pods.iter().map(pod).collect();
        let object = json!({
            "metadata": {"namespace": namespace, "name": name, "uid": self.uid},
            "status": {
                "reservedFor": pods,
                "allocation": {"devices": {"results": results, "config": self.configs}},
            },
        });
        let context = ClaimContext { driver: DRIVER, pool: node, uid: self.uid, missing: driver.missing };
        ClaimAllocation::read(&object, &context).map_err(|error| error.to_string())
    }
}

impl DriverOfNode {
    /// The driver of a node; `claimed` says which pods have claims, so that their CPUs are not kept from
    /// these.
    pub(super) fn new(
        node: &ClaimNode<'_>,
        inventory: &Inventory,
        driver: &PlannedDriver,
        claimed: &dyn Fn(&str) -> bool,
    ) -> Self {
        let (supply, slices) = offer(node, inventory, driver, claimed);
        let ledger = ClaimLedger::new(node.name, "plan");
        Self { version: node.version, slices, supply, ledger }
    }

    /// Follows the node; prepared claims keep their CPUs.
    pub(super) fn follow(
        &mut self,
        node: &ClaimNode<'_>,
        inventory: &Inventory,
        driver: &PlannedDriver,
        claimed: &dyn Fn(&str) -> bool,
    ) {
        if self.version != node.version {
            self.version = node.version;
            (self.supply, self.slices) = offer(node, inventory, driver, claimed);
        }
    }

    /// What claims may have of the node.
    pub(super) const fn supply(&self) -> &ClaimSupply {
        &self.supply
    }

    /// Takes up a claim that runs, with the CPUs of its pods as far as these are known.
    pub(super) fn take_up(&mut self, claim: &DriverClaim<'_>, cpus: CpuSet, driver: &PlannedDriver) {
        let Some(uid) = ClaimUid::parse(claim.uid) else { return };
        let (namespace, name) = claim.key.clone();
        self.ledger.recover(uid.clone(), &WrittenClaim { cpus, namespace, name }, &self.supply);
        // What it has is told by its pods, if the driver would not prepare it so again.
        let _refused = prepare(&mut self.ledger, claim, &self.supply, driver);
    }
}

/// Prepares a claim in a ledger.
///
/// # Errors
/// Why the driver refuses it, or what it would wait for.
pub(super) fn prepare<'a>(
    ledger: &'a mut ClaimLedger,
    claim: &DriverClaim<'_>,
    supply: &ClaimSupply,
    driver: &PlannedDriver,
) -> Result<Option<&'a PreparedClaim>, String> {
    let allocation = claim.read(ledger.node(), driver)?;
    let limits =
        LedgerLimits { now: 0, share_exclusive: driver.share_exclusive, interrupt_cpus: &CpuSet::new() };
    match ledger.prepare(&allocation, supply, &limits).map_err(|error| error.to_string())? {
        PrepareDecision::Wait(shortage) => Err(shortage.to_string()),
        PrepareDecision::Prepared | PrepareDecision::Repeated { .. } => Ok(ledger.claim(&allocation.uid)),
    }
}

/// Reads a claim without a machine to prepare it on.
///
/// # Errors
/// Why the driver refuses it.
pub(super) fn check(claim: &DriverClaim<'_>, node: &str, driver: &PlannedDriver) -> Result<(), String> {
    claim.read(node, driver).map(drop)
}

/// Notes the CPUs and options of a prepared claim at its devices.
pub(super) fn note(prepared: &PreparedClaim, devices: &mut [PlannedDevice]) {
    let own = devices.iter_mut().filter(|device| device.driver == DRIVER);
    for (device, result) in own.zip(&prepared.results) {
        device.cpus.clone_from(&result.cpus);
        device.options = match result.result.options.to_json() {
            Value::Object(fields) => fields
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
                .collect::<BTreeMap<_, _>>(),
            _ => BTreeMap::new(),
        };
    }
}

fn offer(
    node: &ClaimNode<'_>,
    inventory: &Inventory,
    driver: &PlannedDriver,
    claimed: &dyn Fn(&str) -> bool,
) -> (ClaimSupply, Vec<Slice>) {
    let mut given = CpuSet::new();
    for (holder, grant) in node.allocations.iter() {
        if !claimed(&holder.pod().uid) && !holder.is_resource_claim() && !holder.is_claiming() {
            given.extend(&grant.exclusive);
        }
    }
    let supply = ClaimSupply::new(inventory, &driver.budgets, &given);
    let options = PublishOptions {
        version: env!("CARGO_PKG_VERSION"),
        full_cores: driver.full_cores,
        ..PublishOptions::default()
    };
    let owner = SliceOwner { driver: DRIVER, node: node.name, node_uid: "", generation: 1 };
    let made = slices(inventory, &supply, &options, &owner);
    let read = made.iter().enumerate().filter_map(|(at, slice)| {
        let spec = slice.spec_json();
        read_slice(format!("{at:05}"), &Field::root(&spec)).ok()
    });
    let read = read.collect();
    (supply, read)
}

/// A quantity without loss.
fn exact(nano: u128) -> String {
    if nano.is_multiple_of(ONE) { (nano / ONE).to_string() } else { format!("{nano}n") }
}
