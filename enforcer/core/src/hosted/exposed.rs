//! Text of the file in which a container can read its own placement.
//!
//! The names are those of the topology-aware policy's `resources.sh`, so that scripts work with either. All
//! names are always present, with empty values if there is nothing, so that sourcing the file again
//! overwrites old values.
//! left of before.

use std::fmt::Write;

use numa_placement::{CpuClass, Grant, pools::tree::MemoryNodes};
use numa_topology::{Topology, set::CpuSet};

/// The file for a grant on this machine, where `taken` are the exclusive CPUs of all holders.
pub fn exposed(grant: &Grant, taken: &CpuSet, machine: &Topology) -> String {
    let none = CpuSet::new();
    let shared = grant.cpus(taken).difference(&grant.exclusive);
    let (exclusive, isolated) = match grant.class {
        CpuClass::Isolated => (&none, &grant.exclusive),
        _ => (&grant.exclusive, &none),
    };
    let mems = grant.mems(taken);
    let kinds = MemoryNodes::of(machine.nodes.iter().filter(|node| mems.contains(node.id)));
    let mut text = String::new();
    for (name, list) in [
        ("SHARED_CPUS", shared.to_string()),
        ("EXCLUSIVE_CPUS", exclusive.to_string()),
        ("ISOLATED_CPUS", isolated.to_string()),
        ("ALL_MEMS", mems.to_string()),
        ("DRAM_MEMS", kinds.dram.to_string()),
        ("PMEM_MEMS", kinds.pmem.to_string()),
        ("HBM_MEMS", kinds.hbm.to_string()),
    ] {
        // Lists contain only digits, commas and dashes, so nothing needs quoting.
        let _infallible = writeln!(text, "{name}=\"{list}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use numa_placement::SharedCpus;
    use numa_topology::{MemoryKind, synth::Machine};

    fn lines(grant: &Grant, taken: &str) -> Vec<String> {
        let machine = Machine::new().sockets(2).memory_beside_each(64 << 30, MemoryKind::Pmem).build();
        exposed(grant, &taken.parse().unwrap(), &machine).lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_kind_of_cpu_and_of_memory_has_its_name() {
        let exclusive = Grant {
            class: CpuClass::Exclusive,
            exclusive: "0-1".parse().unwrap(),
            mems: "0,2".parse().unwrap(),
            ..Grant::default()
        };
        assert_eq!(
            lines(&exclusive, "0-1"),
            [
                "SHARED_CPUS=\"\"",
                "EXCLUSIVE_CPUS=\"0-1\"",
                "ISOLATED_CPUS=\"\"",
                "ALL_MEMS=\"0,2\"",
                "DRAM_MEMS=\"0\"",
                "PMEM_MEMS=\"2\"",
                "HBM_MEMS=\"\"",
            ]
        );
        let isolated = Grant { class: CpuClass::Isolated, ..exclusive.clone() };
        assert_eq!(lines(&isolated, "0-1")[1..3], ["EXCLUSIVE_CPUS=\"\"", "ISOLATED_CPUS=\"0-1\""]);
        let scope = SharedCpus::new("0-7".parse().unwrap(), 500);
        let mixed = Grant { class: CpuClass::Mixed, shared: Some(scope), ..exclusive };
        assert_eq!(lines(&mixed, "0-3")[..2], ["SHARED_CPUS=\"4-7\"", "EXCLUSIVE_CPUS=\"0-1\""]);
    }
}
