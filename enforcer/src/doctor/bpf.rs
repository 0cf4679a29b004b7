//! The kernel side: attaches each hook for a moment, and reads each iterator.

use enforcer_host::HostRoot;
use enforcer_report::checks::Check;

/// Without the feature there is nothing to try.
#[cfg(not(feature = "bpf"))]
pub(super) fn checks(_host: &HostRoot) -> Vec<Check> {
    vec![Check::missing("bpf", "not built in", "build with the feature `bpf`, which is on by default")]
}

/// Tries the hooks on the hierarchy that the readers would use.
#[cfg(feature = "bpf")]
pub(super) fn checks(host: &HostRoot) -> Vec<Check> {
    use super::needs::Here;
    use enforcer_host::{cgroup::CgroupLayout, lockdown, topology::read_topology};
    use enforcer_kernel::bpf::{AttachOptions, CgroupAxis, Programs, TaskIterator, VmaError, VmaIterator};

    let cgroups = match CgroupLayout::read(host) {
        Ok(layout) if !layout.cpuset.v2 => CgroupAxis::Cpuset,
        _ => CgroupAxis::Unified,
    };
    let (cpu_node, cpus, nodes) = match read_topology(host) {
        Ok((machine, _)) => {
            let cpus = machine.online_cpus().union(&machine.offline_cpus);
            (machine.node_of_cpu(), cpus, machine.nodes.iter().map(|node| node.id).collect())
        }
        Err(error) => return vec![Check::missing("bpf", error.to_string(), "mount /sys")],
    };
    let (programs, _) = Programs::attach(&AttachOptions::new(cpu_node, cgroups));
    let here = Here::read(host);
    let mut checks: Vec<Check> = programs.hooks().iter().map(|state| hook(state, &here)).collect();
    checks.push(match TaskIterator::open(cgroups, cpus, &nodes).and_then(|iterator| iterator.read()) {
        Ok(tasks) => Check::ok(TaskIterator::SOURCE, format!("listed {} threads", tasks.len())),
        Err(error) => Check::missing(
            TaskIterator::SOURCE,
            lockdown::explained(host, format!("{:#}", anyhow::Error::new(error))),
            &here.advice("BTF, CAP_BPF and CAP_PERFMON", TaskIterator::EFFECT),
        ),
    });
    checks.push(match VmaIterator::open().and_then(|iterator| iterator.read(std::process::id())) {
        Ok(mappings) => Check::ok(VmaIterator::SOURCE, format!("listed {} mappings", mappings.len())),
        Err(error) => {
            // Older kernels are not at fault.
            let check = if matches!(error, VmaError::NoFilter(_)) { Check::absent } else { Check::missing };
            let reason = lockdown::explained(host, format!("{:#}", anyhow::Error::new(error)));
            let advice = here.advice("Linux 6.1, BTF, CAP_BPF and CAP_PERFMON", VmaIterator::EFFECT);
            check(VmaIterator::SOURCE.to_owned(), reason, &advice)
        }
    });
    checks
}

#[cfg(feature = "bpf")]
fn hook(state: &enforcer_kernel::bpf::HookState, here: &super::needs::Here) -> Check {
    use enforcer_kernel::bpf::Hook;

    let name = state.hook.source();
    match &state.absent {
        None => match state.instead.as_ref().zip(state.effect_of_instead()) {
            Some((reason, effect)) => Check::degraded(name, reason.clone(), effect),
            None => Check::ok(name, "attached and detached again"),
        },
        Some(reason) => {
            let advice = here.advice(state.hook.needs(), state.hook.effect());
            // Most virtual machines have no such counters, and older kernels no such tracepoints: that is no
            // fault.
            let usual = state.hook == Hook::Hardware || state.is_newer_than_the_kernel();
            let check = if usual { Check::absent } else { Check::missing };
            check(name.to_owned(), reason.clone(), &advice)
        }
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use enforcer_kernel::bpf::{Hook, HookState};
    use enforcer_report::checks::Status;

    #[test]
    fn a_hook_that_is_absent_says_why_and_what_it_needs() {
        let hook = |state: &HookState| super::hook(state, &super::super::needs::Here::default());
        let attached = hook(&HookState { hook: Hook::RunTime, absent: None, instead: None });
        assert_eq!((attached.name.as_str(), attached.status), ("bpf:run-time", Status::Ok));
        let instead = hook(&HookState { hook: Hook::RunTime, absent: None, instead: Some("EACCES".into()) });
        assert_eq!((instead.status, instead.detail.as_str()), (Status::Degraded, "EACCES"));
        assert!(instead.advice.unwrap().contains("every context switch"));
        let absent = hook(&HookState { hook: Hook::Placement, absent: Some("EPERM".into()), instead: None });
        assert_eq!((absent.status, absent.detail.as_str()), (Status::Missing, "EPERM"));
        let advice = absent.advice.unwrap();
        assert!(
            advice.starts_with("missing here: BTF; needs BTF, ") && advice.contains("CAP_BPF"),
            "{advice}"
        );
        let usual = hook(&HookState { hook: Hook::Hardware, absent: Some("ENOENT".into()), instead: None });
        assert_eq!((usual.name.as_str(), usual.status), ("bpf:hardware", Status::Absent));
    }
}
