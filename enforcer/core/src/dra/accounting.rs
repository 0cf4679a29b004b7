//! Whether what claims may take fits the amounts that the node has for pods.
//!
//! Problem: without a mapping between them, a scheduler counts the amounts of a node and those of its devices
//! apart, and can give the same CPUs twice. Idea: how that is avoided is configured, and this compares the
//! published sums with the node's. Memory and huge pages are part of the node's allocatable amounts in every
//! mode, because the kubelet limits all pods together to these.
//!
//! The shell calls [`accounting_findings`] for `doctor` and after each change of the supply.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClaimCapacity, ClaimSupply};

/// How the CPUs of claims are kept apart from those of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccountingMode {
    /// They are not among the node's allocatable CPUs.
    Dedicated,
    /// Pods repeat their claims in their requests.
    Mirrored,
    /// The scheduler maps the one to the other.
    Mapped,
}

/// Amounts of a node, as its object has them: thousandths of a CPU, bytes.
#[derive(Debug, Clone, Copy)]
pub struct NodeTotals<'a> {
    /// `status.capacity`.
    pub capacity: &'a BTreeMap<String, u64>,
    /// `status.allocatable`.
    pub allocatable: &'a BTreeMap<String, u64>,
}

/// More is published than the node has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountingFinding {
    /// Resource of the node.
    pub resource: String,
    /// Published amount.
    pub published: u64,
    /// Amount that the node has for it.
    pub room: u64,
    /// What that means.
    pub effect: &'static str,
}

/// What does not fit, in order of the resources.
pub fn accounting_findings(
    mode: AccountingMode,
    supply: &ClaimSupply,
    node: &NodeTotals<'_>,
) -> Vec<AccountingFinding> {
    let mut published = BTreeMap::<String, u64>::new();
    for budget in supply.nodes() {
        for capacity in budget.capacity.capacities() {
            let scale = if capacity == ClaimCapacity::Cpu { 1000 } else { 1 };
            let Some(name) = capacity.node_resource() else { continue };
            let sum = published.entry(name).or_default();
            *sum = sum.saturating_add(budget.capacity.of(capacity).saturating_mul(scale));
        }
    }
    let amount = |amounts: &BTreeMap<String, u64>, name: &str| amounts.get(name).copied().unwrap_or(0);
    let finding = |(resource, published): (String, u64)| {
        let allocatable = amount(node.allocatable, &resource);
        let is_apart = mode == AccountingMode::Dedicated && resource == "cpu";
        let (room, effect) = if is_apart {
            let room = amount(node.capacity, &resource).saturating_sub(allocatable);
            (room, "the kubelet keeps fewer CPUs from requests than claims may take: some can be given twice")
        } else {
            (
                allocatable,
                "claims may take more than all requests of the node: pods with claims can be refused",
            )
        };
        (published > room).then_some(AccountingFinding { resource, published, room, effect })
    };
    published.into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dra::{BudgetOptions, ledger::samples::supply};

    fn amounts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
    }

    fn found(mode: AccountingMode, allocatable_milli: u64, memory: u64) -> Vec<(String, u64, u64)> {
        let line = "sockets:2 cores:8 threads:2 memory:16GiB";
        let supply = supply(line, &BudgetOptions::default(), "");
        let capacity = amounts(&[("cpu", 32_000), ("memory", 32 << 30)]);
        let allocatable = amounts(&[("cpu", allocatable_milli), ("memory", memory)]);
        let node = NodeTotals { capacity: &capacity, allocatable: &allocatable };
        let findings = accounting_findings(mode, &supply, &node);
        findings.into_iter().map(|finding| (finding.resource, finding.published, finding.room)).collect()
    }

    #[test]
    fn dedicated_cpus_are_those_that_the_kubelet_keeps() {
        assert_eq!(found(AccountingMode::Dedicated, 8_000, 32 << 30), []);
        assert_eq!(found(AccountingMode::Dedicated, 30_000, 32 << 30), [("cpu".into(), 24_000, 2_000)]);
    }

    #[test]
    fn other_amounts_are_among_the_allocatable_ones() {
        for mode in [AccountingMode::Mirrored, AccountingMode::Mapped] {
            assert_eq!(found(mode, 30_000, 32 << 30), []);
            assert_eq!(found(mode, 8_000, 32 << 30), [("cpu".into(), 24_000, 8_000)]);
        }
        let short = found(AccountingMode::Dedicated, 8_000, 30 << 30);
        assert_eq!(short, [("memory".into(), 32 << 30, 30 << 30)]);
    }
}
