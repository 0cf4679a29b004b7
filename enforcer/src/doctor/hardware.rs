//! The hardware: counters for memory accesses, memory tiers, HMAT.

use enforcer_host::HostRoot;
use enforcer_report::checks::Check;

/// Tiers and HMAT only matter where there is more than one kind of memory.
const NOT_NEEDED: &str = "needed only on machines with slow or fast memory besides DRAM";

pub(super) fn checks(host: &HostRoot) -> Vec<Check> {
    vec![pmu(host), tiers(host), hmat(host)]
}

/// Event sources of the CPU's own counters: `cpu` (x86), `cpu_core` (hybrid x86), `armv8*` (Arm),
/// `ibs_op` (AMD sampling), from `/sys/bus/event_source/devices`.
fn pmu(host: &HostRoot) -> Check {
    let found: Vec<String> = names(host, "bus/event_source/devices")
        .into_iter()
        .filter(|name| {
            matches!(name.as_str(), "cpu" | "cpu_core" | "ibs_op")
                || name.starts_with("armv8")
                || name.starts_with("arm_spe")
        })
        .collect();
    if found.is_empty() {
        let detail = "/sys/bus/event_source/devices has no cpu, cpu_core, armv8* or ibs_op";
        let advice = "usual in virtual machines: their host must pass the counters through; remote traffic is then estimated, not counted";
        return Check::absent("pmu", detail, advice);
    }
    Check::ok("pmu", found.join(", "))
}

fn tiers(host: &HostRoot) -> Check {
    let tiers: Vec<String> = names(host, "devices/virtual/memory_tiering")
        .into_iter()
        .filter(|name| name.starts_with("memory_tier"))
        .collect();
    if tiers.is_empty() {
        return Check::absent("memory-tiers", "/sys/devices/virtual/memory_tiering has none", NOT_NEEDED);
    }
    Check::ok("memory-tiers", tiers.join(", "))
}

fn hmat(host: &HostRoot) -> Check {
    let nodes: Vec<String> = names(host, "devices/system/node")
        .into_iter()
        .filter(|name| name.starts_with("node"))
        .filter(|name| {
            host.sys.join("devices/system/node").join(name).join("access0/initiators/read_latency").exists()
        })
        .collect();
    if nodes.is_empty() {
        return Check::absent("hmat", "no node has access0/initiators/read_latency", NOT_NEEDED);
    }
    Check::ok("hmat", format!("latency and bandwidth of {}", nodes.join(", ")))
}

/// Names in a directory below `/sys`, sorted; a directory that is not there has none.
fn names(host: &HostRoot, path: &str) -> Vec<String> {
    host.sys.join(path).list_dir().ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use enforcer_report::checks::Status;

    fn statuses(directories: &[&str]) -> Vec<Status> {
        let root = tempfile::tempdir().unwrap();
        for directory in directories {
            fs::create_dir_all(root.path().join("sys").join(directory)).unwrap();
        }
        checks(&HostRoot::captured(root.path())).iter().map(|check| check.status).collect()
    }

    #[test]
    fn what_is_there_is_found() {
        assert_eq!(statuses(&[]), [Status::Absent, Status::Absent, Status::Absent]);
        assert_eq!(statuses(&["bus/event_source/devices/software"])[0], Status::Absent);
        for pmu in ["cpu", "cpu_core", "armv8_pmuv3_0", "ibs_op"] {
            assert_eq!(statuses(&[&format!("bus/event_source/devices/{pmu}")])[0], Status::Ok, "{pmu}");
        }
        let rich = statuses(&[
            "devices/virtual/memory_tiering/memory_tier4",
            "devices/system/node/node2/access0/initiators/read_latency",
        ]);
        assert_eq!(rich, [Status::Absent, Status::Ok, Status::Ok]);
    }
}
