//! Isolated CPUs (`isolcpus=`): decides in one place which containers may use them.
//!
//! Problem: the kernel does not balance load on isolated CPUs: threads stay where they are, several on one
//! CPU beside an idle one. Idea: there are two kinds of CPUs, and a container has CPUs of one kind. Ordinary
//! containers never get an isolated CPU, neither shared nor exclusive; a container that requests isolated
//! CPUs gets no others.
//!
//! Invariants: exclusive CPUs are never of both kinds. On a machine with isolated CPUs the last ordinary CPU
//! is never exclusive, so that sharing containers have a CPU.

use super::{ContainerRequest, Inventory};
use crate::settings::DeclaredClass;
use numa_topology::{id::CpuId, set::CpuSet};

impl Inventory {
    /// CPUs that may be shared, apart from exclusive ones; including reserved ones.
    pub fn shareable_cpus(&self) -> CpuSet {
        self.allowed_cpus.difference(&self.isolated_cpus)
    }

    /// CPUs of one kind: isolated or ordinary ones.
    pub fn cpus_of_kind(&self, isolated: bool) -> CpuSet {
        if isolated { self.isolated_cpus.clone() } else { self.shareable_cpus() }
    }

    /// CPUs of one kind that may be exclusive, apart from taken ones.
    pub fn exclusive_cpus(&self, isolated: bool) -> CpuSet {
        let cpus = self.cpus_of_kind(isolated).difference(&self.reserved_cpus);
        match self.kept_shared().filter(|_| !isolated) {
            Some(kept) => cpus.difference(&kept),
            None => cpus,
        }
    }

    /// The ordinary CPU that stays shared beside isolated ones; `None` if reserved CPUs are shared anyway, or
    /// if no CPU is isolated.
    pub(crate) fn kept_shared(&self) -> Option<CpuSet> {
        let shareable = self.shareable_cpus();
        let kept = !self.isolated_cpus.is_empty() && shareable.is_disjoint(&self.reserved_cpus);
        shareable.first().filter(|_| kept).map(|lowest| CpuSet::from_iter([lowest]))
    }

    /// Is a workload with these CPUs, and with threads on `used`, pinned to isolated CPUs on purpose? True if
    /// all of its CPUs are isolated. Also true if some are, threads of it run there, and it is not merely
    /// allowed all CPUs of a node: the kernel's balancer puts no thread on an isolated CPU.
    pub fn is_pinned_to_isolated(&self, cpus: &CpuSet, used: impl IntoIterator<Item = CpuId>) -> bool {
        let machine = &self.machine;
        let isolated = cpus.intersection(&machine.isolated_cpus);
        let has_node = |node: &numa_topology::Node| {
            let ordinary = node.cpus.difference(&machine.isolated_cpus);
            !ordinary.is_empty() && ordinary.is_subset(cpus)
        };
        !isolated.is_empty()
            && (isolated == *cpus
                || used.into_iter().any(|cpu| isolated.contains(cpu)) && !machine.nodes.iter().any(has_node))
    }
}

impl ContainerRequest {
    /// Does it request isolated CPUs?
    pub(crate) fn wants_isolated(&self) -> bool {
        self.wishes.class == Some(DeclaredClass::Isolated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PlacementSettings;
    use numa_topology::synth::Machine;

    #[test]
    fn cpus_of_both_kinds_are_pinned_where_threads_run_on_isolated_ones() {
        let machine = Machine::new().sockets(2).cores(4).threads(1).isolated("2-3").build();
        let inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap();
        for (cpus, used, pinned) in [
            ("2-3", None, true),
            ("1-3", Some(2), true),
            // Its threads are on the ordinary one, or the CPU is not one of its own.
            ("1-3", None, false),
            ("1-2", Some(3), false),
            // All CPUs of a node, or all CPUs.
            ("0-3", Some(2), false),
            ("0-7", Some(2), false),
            ("0-1", None, false),
            ("", None, false),
        ] {
            let found = inventory.is_pinned_to_isolated(&cpus.parse().unwrap(), used.map(CpuId));
            assert_eq!(found, pinned, "{cpus} {used:?}");
        }
    }

    #[test]
    fn last_ordinary_cpu_stays_shared_beside_isolated_ones() {
        for (isolated, reserved, ordinary, alone) in [
            ("1-3", "", "", "1-3"),
            ("2-3", "", "1", "2-3"),
            ("2-3", "reserved.cpus = 'cpuset:1'", "0", "2-3"),
            ("", "", "0-3", ""),
            ("0-3", "", "", "0-3"),
        ] {
            let machine = Machine::new().cores(4).threads(1).isolated(isolated).build();
            let settings: PlacementSettings = toml::from_str(reserved).unwrap();
            let inventory = Inventory::new(machine, Vec::new(), &settings).unwrap();
            let of = |isolated| inventory.exclusive_cpus(isolated).to_string();
            assert_eq!((of(false), of(true)), (ordinary.into(), alone.into()), "{isolated} {reserved}");
        }
    }
}
