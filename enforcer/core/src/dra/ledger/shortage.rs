//! What is short for a claim, and which other claims and containers have it.

use std::{collections::BTreeMap, fmt};

use numa_topology::{id::NodeId, text::printable};

use super::{ClaimLedger, PlaceAmounts, wants::Want};
use crate::dra::{ClaimCapacity, ClaimSupply};

/// Most holders that are named.
const MAX_HOLDERS: usize = 4;

/// Something of a node that other claims hold, or containers without claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The node.
    pub node: NodeId,
    /// What is short.
    pub resource: ClaimCapacity,
    /// Amount that the claim asks for.
    pub asked: u64,
    /// Amount that is free.
    pub free: u64,
    /// Whether the free amount counts whole cores alone, or one named core.
    pub in_cores: bool,
    /// Claims and containers that hold most of it, largest first.
    pub holders: Vec<ShortageHolder>,
    /// Number of further ones.
    pub more_holders: usize,
}

/// A claim or a container that holds something of what is short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortageHolder {
    /// What it is, and its name.
    pub name: String,
    /// Amount that it holds.
    pub amount: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, asked, free, resource, .. } = self;
        let what = match resource {
            ClaimCapacity::Cpu => "CPUs",
            ClaimCapacity::MilliCpu => "thousandths of shared CPUs",
            ClaimCapacity::Memory => "bytes of memory",
            ClaimCapacity::Hugepages(_) => "bytes of huge pages",
        };
        let cores = if self.in_cores { " in whole cores" } else { "" };
        write!(f, "numa{node}: {asked} {what} asked, {free} free{cores}")?;
        for (at, ShortageHolder { name, amount }) in self.holders.iter().enumerate() {
            let held = if at == 0 { ", still held: " } else { ", " };
            write!(f, "{held}{amount} by {}", printable(name))?;
        }
        if self.more_holders > 0 {
            write!(f, ", and {} more", self.more_holders)?;
        }
        Ok(())
    }
}

impl ClaimLedger {
    /// The first amount that is short for these results together.
    pub(super) fn shortage(&self, wants: &[Want], supply: &ClaimSupply) -> Option<Shortage> {
        let mut by_node = BTreeMap::<NodeId, PlaceAmounts>::new();
        for want in wants {
            by_node.entry(want.node).or_default().add(&want.amounts);
        }
        by_node.iter().find_map(|(node, asked)| {
            let budget = supply.node(*node)?;
            let promised = self.promised(*node);
            let short = |resource: ClaimCapacity| {
                let free = budget.capacity.of(resource).saturating_sub(promised.of(resource));
                (asked.of(resource) > free).then_some((resource, free))
            };
            let in_both = || {
                // Where both budgets are published at full size, they are the same CPUs.
                let cpus = budget.cpus.len() as u64;
                let milli = promised.milli_cpus.saturating_add(asked.milli_cpus).div_ceil(1000);
                let left = cpus.saturating_sub(promised.cpus).saturating_sub(milli);
                (asked.cpus > left).then_some((ClaimCapacity::Cpu, left))
            };
            let is_asked = asked.cpus > 0 || asked.milli_cpus > 0;
            let (resource, free) = asked
                .capacities()
                .into_iter()
                .find_map(short)
                .or_else(|| if is_asked { in_both() } else { None })?;
            Some(self.short_of((*node, supply), resource, asked.of(resource), free, false))
        })
    }

    /// A shortage with its holders.
    pub(super) fn short_of(
        &self,
        (node, supply): (NodeId, &ClaimSupply),
        resource: ClaimCapacity,
        asked: u64,
        free: u64,
        in_cores: bool,
    ) -> Shortage {
        let held = |claim: &super::PreparedClaim| {
            let own = claim.results.iter().filter(|result| result.node == node);
            own.fold(0_u64, |sum, result| sum.saturating_add(result.amounts.of(resource)))
        };
        let claims = self.claims().map(|claim| (held(claim), format!("claim {}", claim.full_name())));
        let is_cpus = matches!(resource, ClaimCapacity::Cpu | ClaimCapacity::MilliCpu);
        let containers = supply.holders(node).filter(|_| is_cpus);
        let in_unit = if resource == ClaimCapacity::MilliCpu { 1_000 } else { 1 };
        let containers = containers.map(|(name, cpus)| (cpus * in_unit, format!("container {name}")));
        let mut holders: Vec<(u64, String)> =
            claims.chain(containers).filter(|(amount, _)| *amount > 0).collect();
        holders.sort_by_key(|(amount, _)| std::cmp::Reverse(*amount));
        let more_holders = holders.len().saturating_sub(MAX_HOLDERS);
        holders.truncate(MAX_HOLDERS);
        let holders = holders.into_iter().map(|(amount, name)| ShortageHolder { name, amount }).collect();
        Shortage { node, resource, asked, free, in_cores, holders, more_holders }
    }
}
