//! Finds which needs of a kernel-side feature are not met.
//!
//! A feature states its needs as text (`BTF, tracepoint mark_victim, CAP_BPF and CAP_PERFMON; Linux 5.10`).
//! Some of these can be checked: capabilities, BTF, the kernel's release, its balancer. What cannot be
//! checked is not called missing; the feature's own error is shown beside this.

use enforcer_core::parse::scalar;

use super::{kernel::btf_length, privileges, read};
use enforcer_host::HostRoot;

/// Facts about this host, read once for all features.
#[derive(Debug, Clone, Default)]
pub(super) struct Here {
    /// The mask of effective capabilities; `None` where it cannot be read.
    capabilities: Option<u64>,
    btf: bool,
    balancing: bool,
    /// `None` where the release has no version.
    release: Option<(u32, u32)>,
}

impl Here {
    pub(super) fn read(host: &HostRoot) -> Self {
        Self {
            capabilities: read(host, "self/status").ok().and_then(|status| privileges::effective(&status)),
            btf: btf_length(host.sys.join("kernel/btf/vmlinux").as_path()).is_ok(),
            balancing: host.proc.join("sys/kernel/numa_balancing").exists(),
            release: read(host, "sys/kernel/osrelease").ok().and_then(|text| scalar::release(&text)),
        }
    }

    /// The same text, after the needs that are not met here.
    pub(super) fn advice(&self, needs: &str, without: &str) -> String {
        let missing = self.missing(needs);
        let begin = if missing.is_empty() {
            String::new()
        } else {
            format!("missing here: {}; ", missing.join(", "))
        };
        format!("{begin}needs {needs}; without it {without}")
    }

    /// Needs that are known not to be met.
    fn missing(&self, needs: &str) -> Vec<String> {
        let parts = needs.split([',', ';']).flat_map(|part| part.split(" and ")).map(str::trim);
        // Needs of some machines only are not checked.
        parts.filter(|part| !part.contains("only where")).filter_map(|part| self.lacks(part)).collect()
    }

    fn lacks(&self, need: &str) -> Option<String> {
        let there = match need {
            "BTF" => self.btf,
            "CONFIG_NUMA_BALANCING" => self.balancing,
            _ if need.starts_with("CAP_") => self.capabilities.is_none_or(|mask| privileges::has(mask, need)),
            _ => match need.strip_prefix("Linux ") {
                Some(least) => {
                    let (release, least) = (self.release, scalar::release(least));
                    release.is_none_or(|release| least.is_none_or(|least| release >= least))
                }
                None => true,
            },
        };
        (!there).then(|| need.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_kernel::bpf::Hook;

    /// A machine that has everything.
    fn rich() -> Here {
        Here { capabilities: Some(u64::MAX), btf: true, balancing: true, release: Some((6, 18)) }
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_else() {
        let needs = "BTF, tracepoints a and b, CONFIG_NUMA_BALANCING, CAP_BPF and CAP_PERFMON; Linux 6.7 (x86), 6.9 (arm64)";
        for (here, missing) in [
            (rich(), &[][..]),
            (Here { btf: false, ..rich() }, &["BTF"]),
            (Here { balancing: false, ..rich() }, &["CONFIG_NUMA_BALANCING"]),
            // CAP_BPF is 39, CAP_PERFMON 38, CAP_SYS_ADMIN 21 stands for both.
            (Here { capabilities: Some(1 << 38), ..rich() }, &["CAP_BPF"]),
            (Here { capabilities: Some(1 << 39), ..rich() }, &["CAP_PERFMON"]),
            (Here { capabilities: Some(0), ..rich() }, &["CAP_BPF", "CAP_PERFMON"]),
            (Here { capabilities: Some(1 << 21), ..rich() }, &[]),
            (Here { release: Some((6, 6)), ..rich() }, &["Linux 6.7 (x86)"]),
            (Here { capabilities: None, release: None, ..rich() }, &[]),
        ] {
            assert_eq!(here.missing(needs), missing, "{here:?}");
        }
        let only =
            "perf events, CAP_BPF and CAP_PERFMON; BTF only where the cpuset controller is on cgroup v1";
        assert_eq!(Here { btf: false, ..rich() }.missing(only), [""; 0]);
        let advice = Here { btf: false, ..rich() }.advice("BTF and CAP_BPF", "nothing is seen");
        assert_eq!(advice, "missing here: BTF; needs BTF and CAP_BPF; without it nothing is seen");
        assert_eq!(rich().advice("BTF", "x"), "needs BTF; without it x");
    }

    #[test]
    fn the_needs_of_every_hook_are_understood() {
        for hook in Hook::ALL {
            assert_eq!(rich().missing(hook.needs()), [""; 0], "{hook:?}");
            let poor = Here { capabilities: Some(0), ..rich() }.missing(hook.needs());
            assert!(poor.contains(&"CAP_BPF".to_owned()), "{hook:?}: {poor:?}");
        }
    }
}
