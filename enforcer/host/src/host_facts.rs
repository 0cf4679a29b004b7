//! The host's own description, for the head of the audit. What cannot be read is `None`.

use enforcer_core::audit::AuditedHost;

use crate::{HostRoot, cgroup::CgroupLayout};

/// Reads the facts.
pub fn read_host(host: &HostRoot, layout: &CgroupLayout) -> AuditedHost {
    AuditedHost { cgroup_version: Some(layout.version.to_string()), ..read_host_without_cgroups(host) }
}

/// The same for a host where no cgroup hierarchy was found.
pub fn read_host_without_cgroups(host: &HostRoot) -> AuditedHost {
    let line = |path: &str| {
        let text = host.proc.join(path).read_text().ok()?;
        Some(text.trim().to_owned()).filter(|line| !line.is_empty())
    };
    AuditedHost {
        hostname: line("sys/kernel/hostname"),
        kernel: line("sys/kernel/osrelease"),
        boot_id: line("sys/kernel/random/boot_id"),
        cpu_model: line("cpuinfo").as_deref().and_then(cpu_model),
        cgroup_version: None,
    }
}

/// The first `model name` (x86), `cpu` (POWER) or `CPU implementer` (Arm) of cpuinfo.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim_end() == name && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    };
    field("model name").or_else(|| field("cpu")).or_else(|| field("Hardware")).or_else(|| {
        let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("Arm implementer {implementer} part {part}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_says_what_it_is() {
        let live = HostRoot::live();
        let facts = read_host(&live, &CgroupLayout::read(&live).unwrap());
        assert!(facts.kernel.is_some_and(|kernel| kernel.contains('.')));
        assert!(facts.hostname.is_some());
        assert!(facts.cgroup_version.is_some());
    }

    #[test]
    fn a_tree_without_proc_is_all_none() {
        let nowhere = HostRoot::captured(std::path::Path::new("/nonexistent"));
        assert_eq!(read_host_without_cgroups(&nowhere), AuditedHost::default());
    }

    #[test]
    fn finds_the_model_on_several_architectures() {
        for (cpuinfo, model) in [
            (
                "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) CPU\n",
                Some("Intel(R) Xeon(R) CPU"),
            ),
            ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", Some("POWER9, altivec supported")),
            (
                "processor\t: 0\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n",
                Some("Arm implementer 0x48 part 0xd01"),
            ),
            ("garbage\n:\nmodel name:\n", None),
            ("", None),
        ] {
            assert_eq!(cpu_model(cpuinfo).as_deref(), model);
        }
    }
}
