//! Root and capabilities, from the `CapEff` of `/proc/self/status` (capabilities(7)).

use crate::report::checks::Check;

/// Capabilities that something here uses: number in `linux/capability.h`, name, what for.
const USED: [(u32, &str, &str); 6] = [
    (39, "CAP_BPF", "loading the eBPF programs and the task iterator"),
    (38, "CAP_PERFMON", "attaching eBPF programs to the kernel's functions and clock"),
    (21, "CAP_SYS_ADMIN", "kernels before 5.8, which know neither CAP_BPF nor CAP_PERFMON"),
    (19, "CAP_SYS_PTRACE", "finding and moving the pages of other users' processes"),
    (23, "CAP_SYS_NICE", "giving back the affinities that other users' threads have set, before Linux 6.2"),
    (1, "CAP_DAC_OVERRIDE", "writing cgroup files that belong to others"),
];

/// The mask of effective capabilities in the text of `/proc/self/status`.
pub(super) fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Is the capability of this name in the mask? One that nothing here uses counts as there, and
/// `CAP_SYS_ADMIN` as all that BPF takes, as in the kernel.
#[cfg(feature = "bpf")]
pub(super) fn has(mask: u64, name: &str) -> bool {
    let bit =
        |name: &str| USED.iter().find(|(_, used, _)| *used == name).map(|(bit, ..)| mask >> bit & 1 == 1);
    let stands_in = matches!(name, "CAP_BPF" | "CAP_PERFMON") && bit("CAP_SYS_ADMIN") == Some(true);
    stands_in || bit(name) != Some(false)
}

/// `status`: the text of `/proc/self/status`, or why it could not be read.
pub(super) fn checks(status: Result<String, String>) -> Vec<Check> {
    let advice = "run as root, or give the capabilities (systemd: AmbientCapabilities=)";
    let status = match status {
        Ok(status) => status,
        Err(error) => return vec![Check::missing("privileges", error, advice)],
    };
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default()
    };
    let Some(effective) = effective(&status) else {
        let detail = format!("/proc/self/status: CapEff `{}` is not a mask", field("CapEff:"));
        return vec![Check::missing("privileges", detail, advice)];
    };
    let uid = field("Uid:").split_whitespace().nth(1).unwrap_or("unknown");
    let lacks = USED.iter().filter(|(bit, ..)| effective >> bit & 1 == 0).count();
    let user =
        format!("effective uid {uid}, {} of {} capabilities that are used", USED.len() - lacks, USED.len());
    let mut checks = vec![match lacks {
        0 => Check::ok("privileges", user),
        _ => Check::degraded("privileges", user, advice),
    }];
    checks.extend(USED.iter().filter(|(bit, ..)| effective >> bit & 1 == 0).map(|(_, name, purpose)| {
        Check::missing(name.to_lowercase().replace('_', "-"), format!("{name} is for {purpose}"), advice)
    }));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::checks::Status;

    fn of(effective: &str) -> Vec<Check> {
        checks(Ok(format!("Name:\tx\nUid:\t0\t1000\t0\t0\nCapEff:\t{effective}\nSeccomp:\t0\n")))
    }

    #[test]
    fn root_has_everything() {
        let checks = of("000001ffffffffff");
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].status, Status::Ok);
        assert_eq!(checks[0].detail, "effective uid 1000, 6 of 6 capabilities that are used");
    }

    #[test]
    fn what_is_lacking_is_named() {
        // All but CAP_BPF (39) and CAP_SYS_PTRACE (19).
        let names: Vec<String> = of("0000017ffff7ffff").into_iter().map(|check| check.name).collect();
        assert_eq!(names, ["privileges", "cap-bpf", "cap-sys-ptrace"]);
        assert_eq!(of("0").len(), 7);
    }

    #[test]
    fn nonsense_is_missing_and_not_root() {
        for checks in [of("zzz"), of(""), checks(Ok(String::new())), checks(Err("gone".into()))] {
            assert_eq!(checks.len(), 1);
            assert_eq!(checks[0].status, Status::Missing);
        }
    }
}
