//! What a cluster's hardening takes away from a pod: the filter of system calls, the label of AppArmor or
//! SELinux, and the view of other processes.
//!
//! A refusal shows as EPERM or EACCES elsewhere, whichever of these causes it. These lines name the causes:
//! the container's own settings, as the kernel has them below `/proc/self`.

use std::io;

use super::read;
use enforcer_host::HostRoot;
use enforcer_kernel::linux::Linux;
use enforcer_report::checks::Check;

/// Name of the link to the first namespace of processes (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
const FIRST_PIDS: &str = "pid:[4026531836]";

/// SELinux types that may do what a process may do without SELinux, of `container-selinux`, of the reference
/// policy, and of Bottlerocket.
const UNCONFINED_TYPES: [&str; 5] = ["spc_t", "super_t", "unconfined_t", "unconfined_service_t", "initrc_t"];

pub(super) fn checks(host: &HostRoot) -> Vec<Check> {
    // Where several modules are stacked, the second is that of the first of them.
    let label = ["self/attr/apparmor/current", "self/attr/current"].map(|path| read(host, path).ok());
    let pids = host.proc.join("self/ns/pid").read_link();
    vec![
        filter(read(host, "self/status"), Linux::probe()),
        security_label(label.into_iter().flatten().next().as_deref()),
        processes(pids.map(|link| link.to_string_lossy().into_owned()).as_deref()),
    ]
}

/// `Seccomp` of `/proc/self/status`: 0 none, 1 strict, 2 a filter. What a filter refuses can only be tried.
fn filter(status: Result<String, String>, moves: io::Result<()>) -> Check {
    let name = "seccomp";
    let mode = status.map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        line.map(|mode| mode.trim().to_owned()).unwrap_or_default()
    });
    match (mode.as_deref(), moves) {
        (Err(error), _) => Check::degraded(name, error.as_str(), "mount /proc"),
        (Ok("" | "0"), _) => Check::ok(name, "no filter of system calls"),
        (Ok(_), Ok(())) => Check::ok(name, "a filter of system calls is set, and allows move_pages(2)"),
        (Ok(_), Err(error)) => Check::degraded(
            name,
            format!("a filter of system calls is set, and refuses move_pages(2): {error}"),
            "the default profile of a container runtime refuses it, and on some also bpf(2) and perf_event_open(2): \
             use the daemon's own (numa-enforcer install-seccomp DIR, seccompProfile of type Localhost)",
        ),
    }
}

/// The label of this process: `NAME (MODE)` or `unconfined` of AppArmor, `USER:ROLE:TYPE:LEVEL` of SELinux.
fn security_label(label: Option<&str>) -> Check {
    let name = "security-label";
    let label =
        label.map(|label| label.trim_end_matches(['\n', '\0']).trim()).filter(|label| !label.is_empty());
    let Some(label) = label else {
        return Check::ok(name, "none: neither AppArmor nor SELinux confines this process");
    };
    let detail = label.escape_debug().to_string();
    if label.starts_with("unconfined") || label.ends_with("(complain)") || label.ends_with("(unconfined)") {
        return Check::ok(name, detail);
    }
    match label.split(':').nth(2) {
        Some(kind) if UNCONFINED_TYPES.contains(&kind) => Check::ok(name, detail),
        Some(_) => Check::degraded(
            name,
            format!("SELinux: {detail}"),
            "it may refuse the cgroup files, other processes and the kubelet's directory: in a pod set seLinuxOptions \
             to type spc_t, on Bottlerocket super_t",
        ),
        None => Check::degraded(
            name,
            format!("AppArmor: {detail}"),
            "profiles of container runtimes refuse writes below /sys and looks at other processes, which `run --mode \
             enforce` needs: set appArmorProfile to type Unconfined",
        ),
    }
}

/// Whether processes of the whole host are seen, by the link `/proc/self/ns/pid`.
fn processes(link: Option<&str>) -> Check {
    let name = "processes";
    match link {
        Some(FIRST_PIDS) => Check::ok(name, "those of the whole host are seen"),
        Some(other) => Check::degraded(
            name,
            format!("/proc/self/ns/pid is {other}: only processes of this container are seen"),
            "in a pod set hostPID: true; without it, where tasks run and where their memory is stays unknown",
        ),
        None => Check::degraded(name, "/proc/self/ns/pid cannot be read", "mount /proc"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_report::checks::Status;

    #[test]
    fn filter_that_refuses_what_is_needed_is_named() {
        let refused = || Err(io::Error::from_raw_os_error(1));
        for (status, moves, expected) in [
            ("Seccomp:\t0\n", Ok(()), Status::Ok),
            // Refused without a filter: the line `move-pages` says so.
            ("Seccomp:\t0\n", refused(), Status::Ok),
            ("Seccomp:\t2\n", Ok(()), Status::Ok),
            ("Seccomp:\t2\n", refused(), Status::Degraded),
            // Built without it.
            ("Name:\tx\n", Ok(()), Status::Ok),
        ] {
            let check = filter(Ok(status.to_owned()), moves);
            assert_eq!(check.status, expected, "{status}: {check:?}");
        }
        assert_eq!(filter(Err("gone".into()), Ok(())).status, Status::Degraded);
    }

    #[test]
    fn label_that_confines_is_named_with_its_module() {
        for (label, status, part) in [
            (None, Status::Ok, "neither"),
            (Some(""), Status::Ok, "neither"),
            (Some("unconfined\n"), Status::Ok, "unconfined"),
            (Some("cri-containerd.apparmor.d (enforce)\n"), Status::Degraded, "AppArmor: cri-containerd"),
            (Some("mine (complain)\n"), Status::Ok, "mine"),
            (Some("system_u:system_r:container_t:s0:c1,c2\0"), Status::Degraded, "SELinux: system_u"),
            (Some("system_u:system_r:spc_t:s0\0"), Status::Ok, "spc_t"),
            (Some("system_u:system_r:super_t:s0"), Status::Ok, "super_t"),
            (Some("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023"), Status::Ok, "unconfined_t"),
            (Some("a\x1b[31m (enforce)"), Status::Degraded, "\\u{1b}"),
        ] {
            let check = security_label(label);
            assert_eq!(check.status, status, "{label:?}: {check:?}");
            assert!(check.detail.contains(part), "{label:?}: {check:?}");
        }
    }

    #[test]
    fn own_namespace_of_processes_is_named() {
        assert_eq!(processes(Some(FIRST_PIDS)).status, Status::Ok);
        assert_eq!(processes(Some("pid:[4026532198]")).status, Status::Degraded);
        assert_eq!(processes(None).status, Status::Degraded);
    }

    #[test]
    fn this_process_has_a_line_for_each() {
        let names: Vec<_> = checks(&HostRoot::live()).into_iter().map(|check| check.name).collect();
        assert_eq!(names, ["seccomp", "security-label", "processes"]);
    }
}
