//! `[dra]`: the driver for claims of Dynamic Resource Allocation.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use numa_placement::settings::refusal::{Relation, at_odds, quoted, refused};
use numa_topology::{id::NodeId, set::CpuSet, size::ByteSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NriSettings, PolicyError, can_be_opened};
use crate::dra::{AccountingMode, BudgetOptions, DeviceModel, MissingAmounts};

/// The driver for claims of Dynamic Resource Allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own in the file")]
pub struct DraSettings {
    /// Offer the NUMA nodes of this machine as devices, and prepare claims for the kubelet.
    pub enabled: bool,
    /// What is offered where the API server cannot share a device out by amounts.
    pub fallback: DraFallback,
    /// How CPUs of claims are kept apart from those that pods request.
    pub accounting: AccountingMode,
    /// Percent of each node's CPUs that claims may have exclusively, 0 to 100.
    #[serde(deserialize_with = "super::whole::within::<_, _, 0, 100>")]
    #[schemars(range(max = 100))]
    pub exclusive_percent: u8,
    /// CPUs that are kept out of the node's allocatable ones for claims; all of these, and no others, become
    /// exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_cpus: Option<CpuSet>,
    /// Give exclusive CPUs in whole cores.
    pub full_cores: bool,
    /// Offer exclusive and shared CPUs of a node at full size each; a claim may then be refused when its pod
    /// starts.
    pub overlap: bool,
    /// Memory of each node that claims do not get.
    pub reserve_memory: ByteSize,
    /// Let several pods have the exclusive CPUs of one claim.
    pub share_exclusive: bool,
    /// A claim without amounts of a device that has some.
    pub without_amounts: MissingAmounts,
    /// Give containers the variable `DRA_CPUSET_*` too, which `KubeVirt` reads.
    pub kubevirt_variable: bool,
    /// Prepare no claim as long as the container runtime does not tell its containers (NRI), also after the
    /// grace of 20 s: a container that starts without the link gets its CPUs late.
    pub require_nri: bool,
    /// Write into the status of claims whether the memory accesses of their containers stay on their nodes.
    pub claim_conditions: bool,
    /// Give containers files that say which NUMA node and CPUs their claims have (KEP-5304).
    pub device_metadata: bool,
    /// Directory of the Container Device Interface, which the container runtime reads.
    pub cdi_dir: PathBuf,
    /// Nodes with a budget of their own.
    #[serde(rename = "node", skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<DraNodeSettings>,
}

/// Budget of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DraNodeSettings {
    /// Number of the node.
    pub id: u32,
    /// Number of its CPUs that claims may have exclusively.
    pub exclusive_cpus: u32,
}

/// What is offered where the API server cannot share a device out by amounts (`DRAConsumableCapacity`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraFallback {
    /// A device for each core.
    #[default]
    Cores,
    /// A device for each node, for one claim.
    WholeNodes,
    /// Nothing.
    None,
}

impl DraFallback {
    /// The shape of the devices; `None` if nothing is offered.
    pub const fn model(self) -> Option<DeviceModel> {
        match self {
            Self::Cores => Some(DeviceModel::Cores),
            Self::WholeNodes => Some(DeviceModel::WholeNodes),
            Self::None => None,
        }
    }
}

impl Default for DraSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            fallback: DraFallback::Cores,
            accounting: AccountingMode::Mirrored,
            exclusive_percent: 75,
            dedicated_cpus: None,
            full_cores: false,
            overlap: false,
            reserve_memory: ByteSize(0),
            share_exclusive: false,
            without_amounts: MissingAmounts::Refuse,
            kubevirt_variable: false,
            require_nri: false,
            claim_conditions: false,
            device_metadata: false,
            cdi_dir: "/var/run/cdi".into(),
            nodes: Vec::new(),
        }
    }
}

impl DraSettings {
    /// The budgets of claims.
    pub fn budgets(&self) -> BudgetOptions {
        let of_node = |node: &DraNodeSettings| (NodeId(node.id), u64::from(node.exclusive_cpus));
        BudgetOptions {
            exclusive_percent: self.exclusive_percent,
            exclusive_cpus: self.nodes.iter().map(of_node).collect::<BTreeMap<_, _>>(),
            dedicated_cpus: self.dedicated_cpus.clone(),
            full_cores: self.full_cores,
            overlap: self.overlap,
            reserve_memory_bytes: self.reserve_memory.0,
            ..BudgetOptions::default()
        }
    }

    /// Checks the directory and the budgets, and that containers can be bound to their claims.
    pub(super) fn validate(&self, nri: &NriSettings) -> Result<(), PolicyError> {
        can_be_opened(&self.cdi_dir)
            .map_err(|problem| refused("dra.cdi_dir", quoted(&self.cdi_dir.to_string_lossy()), problem))?;
        if self.exclusive_percent > 100 {
            return Err(refused("dra.exclusive_percent", self.exclusive_percent, "at most 100 is expected"));
        }
        let mut ids = BTreeSet::new();
        if let Some(twice) = self.nodes.iter().find(|node| !ids.insert(node.id)) {
            return Err(refused("dra.node.id", twice.id, "the node has two budgets"));
        }
        if self.accounting == AccountingMode::Dedicated && self.dedicated_cpus.is_none() {
            let relation = Relation::excludes("the CPUs that are dedicated to claims are not named");
            let none = ("dra.dedicated_cpus", "\"\"");
            return Err(at_odds(("dra.accounting", "\"dedicated\""), relation, none));
        }
        for (key, is_on) in [("nri.enabled", nri.enabled), ("nri.place", nri.place)] {
            if self.enabled && !is_on {
                let relation = Relation::excludes("no container would get what its claims have");
                return Err(at_odds(("dra.enabled", true), relation, (key, false)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_relations_are_checked() {
        let off = NriSettings::default();
        let on = NriSettings { place: true, ..NriSettings::default() };
        let enabled = DraSettings { enabled: true, ..DraSettings::default() };
        assert_eq!(DraSettings::default().validate(&off), Ok(()));
        assert_eq!(enabled.validate(&on), Ok(()));
        let refused = enabled.validate(&off).unwrap_err().to_string();
        assert!(refused.contains("dra.enabled") && refused.contains("nri.place"), "{refused}");

        let node = DraNodeSettings { id: 1, exclusive_cpus: 4 };
        for (key, settings) in [
            ("dra.cdi_dir", DraSettings { cdi_dir: "cdi".into(), ..enabled.clone() }),
            ("dra.exclusive_percent", DraSettings { exclusive_percent: 101, ..enabled.clone() }),
            ("dra.node.id", DraSettings { nodes: vec![node.clone(), node.clone()], ..enabled.clone() }),
            ("dra.accounting", DraSettings { accounting: AccountingMode::Dedicated, ..enabled.clone() }),
        ] {
            let refused = settings.validate(&on).unwrap_err().to_string();
            assert!(refused.contains(key), "{key}: {refused}");
        }
    }

    #[test]
    fn a_node_of_its_own_overrides_the_percent() {
        let nodes = vec![DraNodeSettings { id: 1, exclusive_cpus: 4 }];
        let budgets = DraSettings { nodes, ..DraSettings::default() }.budgets();
        assert_eq!((budgets.exclusive_percent, budgets.exclusive_cpus[&NodeId(1)]), (75, 4));
    }
}
