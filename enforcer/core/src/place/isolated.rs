//! Isolated CPUs (`isolcpus=`): which container may have which CPUs, answered in one place.
//!
//! Problem: the kernel balances no load on isolated CPUs: threads stay where they are put, several on one CPU
//! beside an idle one. Idea: CPUs are of two kinds, and a container has CPUs of one kind. Ordinary containers
//! never get an isolated CPU, neither shared nor exclusive; one that asks for isolated CPUs gets nothing
//! else.
//!
//! Invariants: exclusive CPUs are never mixed of both kinds; on a machine with isolated CPUs the last
//! ordinary one is not given away, so that the others have a CPU to share.

use super::{ContainerRequest, Inventory};
use crate::{policy::DeclaredClass, set::CpuSet};

impl Inventory {
    /// CPUs that may be shared, were none of them exclusive; reserved ones included.
    pub(crate) fn shareable_cpus(&self) -> CpuSet {
        self.allowed_cpus.difference(&self.isolated_cpus)
    }

    /// CPUs of one kind: isolated ones or the others.
    pub(super) fn cpus_of_kind(&self, isolated: bool) -> CpuSet {
        if isolated { self.isolated_cpus.clone() } else { self.shareable_cpus() }
    }

    /// CPUs of one kind that may be exclusive, were none of them taken.
    pub(super) fn exclusive_cpus(&self, isolated: bool) -> CpuSet {
        let cpus = self.cpus_of_kind(isolated).difference(&self.reserved_cpus);
        match self.kept_shared().filter(|_| !isolated) {
            Some(kept) => cpus.difference(&kept),
            None => cpus,
        }
    }

    /// The ordinary CPU that stays shared beside isolated ones; none where reserved CPUs are shared anyway,
    /// or no CPU is isolated.
    pub(super) fn kept_shared(&self) -> Option<CpuSet> {
        let shareable = self.shareable_cpus();
        let kept = !self.isolated_cpus.is_empty() && shareable.is_disjoint(&self.reserved_cpus);
        shareable.first().filter(|_| kept).map(|lowest| CpuSet::from_iter([lowest]))
    }

    /// Are all of these CPUs isolated, and is there any?
    pub(crate) fn are_isolated(&self, cpus: &CpuSet) -> bool {
        !cpus.is_empty() && cpus.is_subset(&self.machine.isolated_cpus)
    }
}

impl ContainerRequest {
    /// Does it ask for isolated CPUs?
    pub(super) fn wants_isolated(&self) -> bool {
        self.wishes.class == Some(DeclaredClass::Isolated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::placement::PlacementSettings, topology::synth::Machine};

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
