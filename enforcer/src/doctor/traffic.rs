//! Sources of traffic figures on this host, the most trusted first, and why a source is silent.
//!
//! Nothing is tried here: the hooks were tried already.

use enforcer_core::sample::HostSettings;
use numa_topology::degraded::source;

use enforcer_report::checks::{Check, Status};

/// `hooks` are the checks of the kernel side.
pub(super) fn checks(hooks: &[Check], settings: &HostSettings) -> Vec<Check> {
    let off = settings.silent_faults().filter(|_| settings.takes_hinting_faults() == Some(false));
    let faults = off.map(|entry| entry.reason).or_else(|| silent(hooks, source::HINT_FAULTS));
    vec![
        of(
            "traffic:hardware",
            silent(hooks, source::HARDWARE),
            "trusted most: accesses to DRAM that the CPU counts, where a workload has 100 overflows",
        ),
        of(
            "traffic:hint-faults",
            faults,
            "trusted next: NUMA hinting faults, where 100 pages of a workload faulted",
        ),
        placement(silent(hooks, "bpf:run-time")),
    ]
}

fn of(name: &str, silent: Option<String>, used: &str) -> Check {
    match silent {
        None => Check::ok(name, used),
        Some(reason) => {
            Check::absent(name, format!("silent: {reason}"), "remote traffic comes from the next source")
        }
    }
}

/// The estimate always exists; threads supply the time where the programs do not.
fn placement(silent: Option<String>) -> Check {
    let name = "traffic:placement";
    let used = "trusted least, always there: an estimate from run time per node and residency";
    match silent {
        None => Check::ok(name, used),
        Some(reason) => Check::degraded(
            name,
            used,
            &format!("run time is that of threads on the CPU where they were last seen: {reason}"),
        ),
    }
}

/// Why a hook is silent; without the whole kernel side, why that is missing.
fn silent(hooks: &[Check], name: &str) -> Option<String> {
    let named = |name: &str| hooks.iter().find(|check| check.name == name);
    let check = named(name).or_else(|| named(source::BPF))?;
    // A degraded hook still counts, in another way.
    (!matches!(check.status, Status::Ok | Status::Degraded)).then(|| check.detail.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(hooks: &[Check], numa_balancing: u32) -> Vec<(String, Status, String)> {
        let settings = HostSettings { numa_balancing: Some(numa_balancing), ..HostSettings::default() };
        checks(hooks, &settings).into_iter().map(|check| (check.name, check.status, check.detail)).collect()
    }

    fn hooks() -> Vec<Check> {
        [source::HARDWARE, source::HINT_FAULTS, "bpf:run-time"].map(|name| Check::ok(name, "attached")).into()
    }

    #[test]
    fn sources_come_in_order_of_trust() {
        let found = seen(&hooks(), 1);
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["traffic:hardware", "traffic:hint-faults", "traffic:placement"]);
        assert!(found.iter().all(|(_, status, _)| *status == Status::Ok), "{found:?}");
    }

    #[test]
    fn a_silent_source_says_why() {
        let mut some = hooks();
        some[0] = Check::absent(source::HARDWARE, "no such counter", "");
        some[1] = Check::missing(source::HINT_FAULTS, "EPERM", "");
        some[2] = Check::missing("bpf:run-time", "EMFILE", "");
        let found = seen(&some, 1);
        let told: Vec<_> = found.iter().map(|(_, status, detail)| (*status, detail.as_str())).collect();
        assert_eq!(
            told[..2],
            [(Status::Absent, "silent: no such counter"), (Status::Absent, "silent: EPERM")]
        );
        assert_eq!(told[2].0, Status::Degraded);
        let advice = checks(&some, &HostSettings::default())[2].advice.clone().unwrap();
        assert!(advice.contains("EMFILE"), "{advice}");

        let off = &seen(&hooks(), 0)[1];
        assert!(off.2.contains("/proc/sys/kernel/numa_balancing is 0"), "{off:?}");
        let none = seen(&[Check::missing("bpf", "not built in", "")], 1);
        assert!(none[..2].iter().all(|(.., detail)| detail == "silent: not built in"), "{none:?}");
    }
}
