//! Amounts that a claim takes of a NUMA node.

use std::collections::BTreeMap;

use super::ClaimCapacity;

/// Amounts of the resources of a NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceAmounts {
    /// CPUs for exclusive use.
    pub cpus: u64,
    /// Thousandths of shared CPUs.
    pub milli_cpus: u64,
    /// Bytes of ordinary memory.
    pub memory_bytes: u64,
    /// Bytes of huge pages by size of the page; entries are not 0.
    pub hugepages: BTreeMap<u64, u64>,
}

impl PlaceAmounts {
    /// Amount of one capacity.
    pub fn of(&self, capacity: ClaimCapacity) -> u64 {
        match capacity {
            ClaimCapacity::Cpu => self.cpus,
            ClaimCapacity::MilliCpu => self.milli_cpus,
            ClaimCapacity::Memory => self.memory_bytes,
            ClaimCapacity::Hugepages(size) => self.hugepages.get(&size).copied().unwrap_or(0),
        }
    }

    /// Sets the amount of one capacity.
    pub fn set(&mut self, capacity: ClaimCapacity, amount: u64) {
        match capacity {
            ClaimCapacity::Cpu => self.cpus = amount,
            ClaimCapacity::MilliCpu => self.milli_cpus = amount,
            ClaimCapacity::Memory => self.memory_bytes = amount,
            ClaimCapacity::Hugepages(size) if amount == 0 => drop(self.hugepages.remove(&size)),
            ClaimCapacity::Hugepages(size) => drop(self.hugepages.insert(size, amount)),
        }
    }

    /// Capacities of which there is something, in their order.
    pub fn capacities(&self) -> Vec<ClaimCapacity> {
        let fixed = [ClaimCapacity::Cpu, ClaimCapacity::MilliCpu, ClaimCapacity::Memory];
        let sizes = self.hugepages.keys().map(|size| ClaimCapacity::Hugepages(*size));
        fixed.into_iter().chain(sizes).filter(|capacity| self.of(*capacity) > 0).collect()
    }

    /// Adds amounts; a sum that does not fit stays at the greatest number.
    pub fn add(&mut self, other: &Self) {
        for capacity in other.capacities() {
            self.set(capacity, self.of(capacity).saturating_add(other.of(capacity)));
        }
    }

    /// Does it have memory of any kind?
    pub fn has_memory(&self) -> bool {
        self.memory_bytes > 0 || !self.hugepages.is_empty()
    }
}
