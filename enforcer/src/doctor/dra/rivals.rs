//! Programs that give CPUs of this node to containers too.
//!
//! A driver is known by its socket in the kubelet's registry, another program by the name of its process. A
//! process of such a name may be something else, so it is shown as evidence, and nothing is decided by it.

use std::{collections::BTreeSet, fs, path::Path};

use enforcer_core::dra::DRIVER;
use enforcer_host::HostRoot;
use enforcer_report::checks::Check;

/// Most sockets that are looked at.
const MOST: usize = 1000;

/// Names of processes, which the kernel cuts to 15 bytes, and programs.
const PROGRAMS: [(&str, &str); 4] = [
    ("dracpu", "dra-driver-cpu"),
    ("katalyst-agent", "Katalyst"),
    ("koordlet", "Koordinator"),
    ("nri-resource-po", "a resource policy of nri-plugins"),
];

pub(super) fn check(host: &HostRoot, registry: &Path) -> Check {
    found(drivers(registry), programs(host))
}

fn found(drivers: BTreeSet<String>, programs: BTreeSet<&str>) -> Check {
    let name = "dra-rivals";
    let drivers = drivers.into_iter().map(|driver| format!("driver {driver} is registered"));
    let programs = programs.into_iter().map(|program| format!("{program} runs"));
    let all: Vec<String> = drivers.chain(programs).collect();
    if all.is_empty() {
        return Check::ok(
            name,
            "no other driver of CPUs, and no other program that sets cpusets of containers",
        );
    }
    let advice = "the same CPUs would be given twice: keep them to other nodes, or to CPUs that \
                  `placement.available` leaves out";
    Check::degraded(name, all.join(", "), advice)
}

/// Drivers of CPUs by the names of their sockets: `NAME-reg.sock`, `NAME-UID-reg.sock`, `NAME.sock`.
fn drivers(registry: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(registry).into_iter().flatten().take(MOST).flatten();
    let names = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_suffix(".sock")?;
        Some(name.strip_suffix("-reg").or_else(|| name.strip_suffix("@reg")).unwrap_or(name).to_owned())
    });
    names.filter(|name| name.contains("cpu") && name != DRIVER && !name.starts_with('.')).collect()
}

fn programs(host: &HostRoot) -> BTreeSet<&'static str> {
    let processes = host.proc.read_dir().unwrap_or_default().into_iter().map(|(name, _)| name);
    let pids = processes.filter(|name| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    let comms = pids.filter_map(|pid| host.proc.join(pid).join("comm").read_text().ok());
    comms.filter_map(|comm| Some(PROGRAMS.iter().find(|(name, _)| *name == comm.trim())?.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_report::checks::Status;

    #[test]
    fn other_drivers_of_cpus_are_found_by_their_sockets() {
        let registry = tempfile::tempdir().unwrap();
        for name in [
            "numa-enforcer.io@reg.sock",
            "gpu.nvidia.com-reg.sock",
            "dra.cpu-reg.sock",
            "dra.cpu-8f-reg.sock",
            "cpu.txt",
        ] {
            fs::write(registry.path().join(name), "").unwrap();
        }
        let drivers = drivers(registry.path());
        assert_eq!(drivers, ["dra.cpu", "dra.cpu-8f"].map(str::to_owned).into());
        let check = found(drivers, BTreeSet::new());
        assert_eq!(check.status, Status::Degraded);
        assert_eq!(check.detail, "driver dra.cpu is registered, driver dra.cpu-8f is registered");
        assert_eq!(super::drivers(&registry.path().join("none")), BTreeSet::new());
    }

    #[test]
    fn other_programs_are_found_by_their_processes() {
        let root = tempfile::tempdir().unwrap();
        for (pid, comm) in
            [("10", "koordlet\n"), ("11", "nri-resource-po\n"), ("12", "bash\n"), ("self", "dracpu\n")]
        {
            let process = root.path().join("proc").join(pid);
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("comm"), comm).unwrap();
        }
        let programs = programs(&HostRoot::captured(root.path()));
        assert_eq!(programs, BTreeSet::from(["Koordinator", "a resource policy of nri-plugins"]));
        assert_eq!(found(BTreeSet::new(), programs).status, Status::Degraded);
        assert_eq!(found(BTreeSet::new(), BTreeSet::new()).status, Status::Ok);
    }
}
