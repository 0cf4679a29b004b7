//! Root and capabilities, from the `CapEff` of `/proc/self/status` (capabilities(7)).

use enforcer_report::checks::Check;

/// A capability that the program uses.
struct Used {
    /// Its number in `linux/capability.h`.
    bit: u32,
    name: &'static str,
    /// Its use.
    purpose: &'static str,
    need: PrivilegeNeed,
}

/// On which hosts a capability is used.
#[derive(Clone, Copy)]
enum PrivilegeNeed {
    /// On all.
    Always,
    /// On those with a kernel before this one.
    Before((u32, u32)),
    /// On hosts that configure it.
    Configured,
}

const fn used(bit: u32, name: &'static str, need: PrivilegeNeed, purpose: &'static str) -> Used {
    Used { bit, name, purpose, need }
}

const USED: [Used; 7] = [
    used(39, "CAP_BPF", PrivilegeNeed::Always, "loading the eBPF programs and the task iterator"),
    used(
        38,
        "CAP_PERFMON",
        PrivilegeNeed::Always,
        "attaching eBPF programs to the kernel's functions and clock",
    ),
    used(
        19,
        "CAP_SYS_PTRACE",
        PrivilegeNeed::Always,
        "finding and moving the pages of other users' processes",
    ),
    used(1, "CAP_DAC_OVERRIDE", PrivilegeNeed::Always, "writing cgroup files that belong to others"),
    used(
        23,
        "CAP_SYS_NICE",
        PrivilegeNeed::Before((6, 2)),
        "giving back the affinities that other users' threads have set, before Linux 6.2",
    ),
    used(
        24,
        "CAP_SYS_RESOURCE",
        PrivilegeNeed::Before((5, 11)),
        "the locked-memory limit, before Linux 5.11",
    ),
    used(
        21,
        "CAP_SYS_ADMIN",
        PrivilegeNeed::Configured,
        "workload.partition and memory.demotion.backend = \"damos\"",
    ),
];

impl Used {
    /// Whether this mask lacks it.
    const fn is_lacking(&self, mask: u64) -> bool {
        mask >> self.bit & 1 == 0
    }

    /// Whether a host with this kernel needs it under every configuration.
    fn is_wanted(&self, kernel: Option<(u32, u32)>) -> bool {
        match self.need {
            PrivilegeNeed::Always => true,
            PrivilegeNeed::Before(version) => kernel.is_none_or(|kernel| kernel < version),
            PrivilegeNeed::Configured => false,
        }
    }

    fn check(&self, advice: &str) -> Check {
        let name = self.name.to_lowercase().replace('_', "-");
        let detail = format!("{} is for {}", self.name, self.purpose);
        match self.need {
            PrivilegeNeed::Configured => Check::absent(name, detail, "only where one of these is configured"),
            PrivilegeNeed::Always | PrivilegeNeed::Before(_) => Check::missing(name, detail, advice),
        }
    }
}

/// The mask of effective capabilities in the text of `/proc/self/status`.
pub(super) fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Whether the mask has the capability of this name. Unused ones count as present, and `CAP_SYS_ADMIN`
/// includes all that BPF takes, as in the kernel.
#[cfg(feature = "bpf")]
pub(super) fn has(mask: u64, name: &str) -> bool {
    let bit = |name: &str| USED.iter().find(|used| used.name == name).map(|used| !used.is_lacking(mask));
    let stands_in = matches!(name, "CAP_BPF" | "CAP_PERFMON") && bit("CAP_SYS_ADMIN") == Some(true);
    stands_in || bit(name) != Some(false)
}

/// `status`: the text of `/proc/self/status`, or why it is unreadable; `kernel`: the version of the kernel,
/// if known.
pub(super) fn checks(status: Result<String, String>, kernel: Option<(u32, u32)>) -> Vec<Check> {
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
    let wanted = || USED.iter().filter(|used| used.is_wanted(kernel));
    let (all, lacks) = (wanted().count(), wanted().filter(|used| used.is_lacking(effective)).count());
    let user = format!("effective uid {uid}, {} of {all} capabilities that are used", all - lacks);
    let mut checks = vec![match lacks {
        0 => Check::ok("privileges", user),
        _ => Check::degraded("privileges", user, advice),
    }];
    let lacking = USED.iter().filter(|used| used.is_lacking(effective));
    let told =
        lacking.filter(|used| used.is_wanted(kernel) || matches!(used.need, PrivilegeNeed::Configured));
    checks.extend(told.map(|used| used.check(advice)));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_report::checks::Status;

    fn on(kernel: Option<(u32, u32)>, effective: &str) -> Vec<Check> {
        let status = format!("Name:\tx\nUid:\t0\t1000\t0\t0\nCapEff:\t{effective}\nSeccomp:\t0\n");
        checks(Ok(status), kernel)
    }

    fn of(effective: &str) -> Vec<Check> {
        on(Some((6, 12)), effective)
    }

    #[test]
    fn root_has_everything() {
        let checks = of("000001ffffffffff");
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].status, Status::Ok);
        assert_eq!(checks[0].detail, "effective uid 1000, 4 of 4 capabilities that are used");
    }

    #[test]
    fn what_is_lacking_is_named() {
        // All but CAP_BPF (39) and CAP_SYS_PTRACE (19).
        let names: Vec<String> = of("0000017ffff7ffff").into_iter().map(|check| check.name).collect();
        assert_eq!(names, ["privileges", "cap-bpf", "cap-sys-ptrace"]);
        assert_eq!(of("0").len(), 6);
    }

    #[test]
    fn a_capability_that_this_kernel_does_not_ask_for_is_not_missing() {
        let told = |kernel| -> Vec<(String, Status)> {
            on(kernel, "0").into_iter().map(|check| (check.name, check.status)).collect()
        };
        let missing = |name: &str| (name.to_owned(), Status::Missing);
        for (kernel, nice, resource) in [
            (Some((5, 10)), true, true),
            (Some((6, 1)), true, false),
            (Some((6, 2)), false, false),
            (Some((6, 18)), false, false),
            (None, true, true),
        ] {
            let told = told(kernel);
            assert_eq!(told.contains(&missing("cap-sys-nice")), nice, "{kernel:?} {told:?}");
            assert_eq!(told.contains(&missing("cap-sys-resource")), resource, "{kernel:?} {told:?}");
            assert!(told.contains(&("cap-sys-admin".to_owned(), Status::Absent)), "{kernel:?} {told:?}");
        }
        // Without these two, nothing that 6.12 asks for is lacking: bits 23 and 24.
        let checks = of("000001fffe7fffff");
        assert_eq!((checks.len(), checks[0].status), (1, Status::Ok));
    }

    #[test]
    fn nonsense_is_missing_and_not_root() {
        for checks in [of("zzz"), of(""), checks(Ok(String::new()), None), checks(Err("gone".into()), None)] {
            assert_eq!(checks.len(), 1);
            assert_eq!(checks[0].status, Status::Missing);
        }
    }
}
