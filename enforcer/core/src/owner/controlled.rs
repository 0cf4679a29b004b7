//! Cgroups that controllers of jobs and of instances make, by their paths.
//!
//! Problem: Slurm, Nomad, Flux, LXD, Incus and Proxmox VE set the cpusets of what they run, and set them
//! again whenever a job or an instance comes or goes. None of them leaves a mark in the cgroup. Idea: each
//! names its cgroups in its own way. Containers of plain LXC have the same names as those of LXD, so of them
//! the host's files tell whether a controller is there ([`LxcController`]).
//!
//! Sources: Slurm: `slurm.schedmd.com/cgroup_v2.html`, and `uid_N/job_N` of the plugin for cgroup v1. Nomad:
//! client/lib/cgroupslib. Flux: units of flux-core's `sdexec`, with `AllowedCPUs=` in the instance of systemd
//! of its user. LXD and Incus: `deviceTaskBalance` (cmd/incusd/devices.go), which writes the cpuset of every
//! running container, with limits or without. Proxmox VE: `rebalance_lxc_containers` of pvestatd.
//!
//! Invariants: a name can only take a workload away from the daemon. What is below such a cgroup is the
//! controller's as well: a write there stands only until the cgroup above becomes smaller.

use serde::{Deserialize, Serialize};

use super::{Owner, Ownership};
use crate::workload::CgroupPath;

/// A controller of all LXC containers of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LxcController {
    /// Which one.
    pub owner: Owner,
    /// Path that shows it.
    pub evidence: String,
}

impl LxcController {
    /// Paths on a host that show a controller, the first one that exists: sockets of the daemons, and the
    /// folder with the containers of Proxmox VE.
    pub const PATHS: [(&str, Owner); 5] = [
        ("/var/lib/incus/unix.socket", Owner::Incus),
        ("/run/incus/unix.socket", Owner::Incus),
        ("/var/snap/lxd/common/lxd/unix.socket", Owner::Lxd),
        ("/var/lib/lxd/unix.socket", Owner::Lxd),
        ("/etc/pve/lxc", Owner::Proxmox),
    ];
}

/// The controller of a cgroup, if it is one's of a job or an instance.
pub(super) fn controller_of(cgroup: &CgroupPath, lxc: Option<&LxcController>) -> Option<Ownership> {
    let names: Vec<&str> = cgroup.relative().split('/').collect();
    let found = slurm_job(&names)
        .or_else(|| nomad_task(&names))
        .or_else(|| flux_job(&names))
        .or_else(|| lxc_instance(&names, lxc?));
    found.map(|(owner, what)| Ownership::of(owner, format!("{what} in {cgroup}")))
}

/// `.../slurmstepd.scope/job_N`, with several nodes of a host `NODE_slurmstepd.scope`; with cgroup v1
/// `/slurm/uid_N/job_N` or `/slurm_NODE/...`.
fn slurm_job(names: &[&str]) -> Option<(Owner, String)> {
    let is_of_slurm = |above: &[&str]| match above {
        [.., scope] if *scope == "slurmstepd.scope" || scope.ends_with("_slurmstepd.scope") => true,
        [root, user] => (*root == "slurm" || root.starts_with("slurm_")) && user.starts_with("uid_"),
        _ => false,
    };
    let at = names.iter().position(|name| numbered(name, "job_"))?;
    let job = names.get(at)?.strip_prefix("job_")?;
    is_of_slurm(names.get(..at)?).then(|| (Owner::Slurm, format!("job {job}")))
}

/// Anything below `/nomad.slice`; with cgroup v1 below `/nomad`.
fn nomad_task(names: &[&str]) -> Option<(Owner, String)> {
    let (["nomad.slice" | "nomad"], [.., last]) = names.split_at_checked(1)? else { return None };
    let task = last.trim_end_matches(".scope");
    let what = match task.split_once('.') {
        Some((allocation, task)) if !task.is_empty() => format!("allocation {allocation}, task {task}"),
        _ => task.to_owned(),
    };
    Some((Owner::Nomad, what))
}

/// `imp-shell-RANK-JOB.service` of a user's service manager.
fn flux_job(names: &[&str]) -> Option<(Owner, String)> {
    let above = names.iter().position(|name| name.starts_with("user@") && name.ends_with(".service"))?;
    let mut jobs = names.get(above..)?.iter().filter_map(|name| {
        let (rank, job) = name.strip_prefix("imp-shell-")?.strip_suffix(".service")?.split_once('-')?;
        (!job.is_empty() && is_number(rank)).then_some(job)
    });
    jobs.next_back().map(|job| (Owner::Flux, format!("job {job}")))
}

/// `lxc.payload.NAME`, or `/lxc/NAME`.
fn lxc_instance(names: &[&str], lxc: &LxcController) -> Option<(Owner, String)> {
    let payload = names.iter().find_map(|name| name.strip_prefix("lxc.payload."));
    let plain = || match names {
        ["lxc", name, ..] => Some(*name),
        _ => None,
    };
    let name = payload.or_else(plain)?;
    Some((lxc.owner, format!("{}: instance {name}", lxc.evidence)))
}

fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOCATION: &str = "416baca9-bc05-d4c4-29f0-d0feec4e355c";

    #[test]
    fn cgroups_of_controllers_are_known_by_their_paths() {
        let incus = LxcController { owner: Owner::Incus, evidence: "/var/lib/incus/unix.socket".into() };
        for (path, owner, said) in [
            ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", Owner::Slurm, "job 7 in /system"),
            ("/system.slice/n1_slurmstepd.scope/job_12", Owner::Slurm, "job 12"),
            ("/slurm/uid_1000/job_3/step_batch", Owner::Slurm, "job 3"),
            ("/slurm_n2/uid_0/job_3", Owner::Slurm, "job 3"),
            ("/nomad.slice/reserve.slice/ID.web.scope", Owner::Nomad, "allocation ID, task web"),
            ("/nomad.slice/ID.web.scope", Owner::Nomad, "allocation ID, task web"),
            ("/nomad/share/ID.web.api", Owner::Nomad, "task web.api"),
            (
                "/user.slice/user-64.slice/user@64.service/app.slice/imp-shell-0-fABc.service",
                Owner::Flux,
                "job fABc",
            ),
            ("/lxc.payload.web", Owner::Incus, "/var/lib/incus/unix.socket: instance web"),
            ("/lxc.payload.web/system.slice/a.service", Owner::Incus, "instance web"),
            ("/lxc/104/ns", Owner::Incus, "instance 104"),
        ] {
            let path = CgroupPath::new(&path.replace("ID", ALLOCATION));
            let found = controller_of(&path, Some(&incus)).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(found.owner, owner, "{path}");
            assert!(found.evidence.contains(&said.replace("ID", ALLOCATION)), "{}", found.evidence);
        }
        for path in [
            "/",
            "/nomad.slice",
            "/slurm/uid_0",
            "/system.slice/slurmstepd.scope/system",
            "/system.slice/a.service/job_7",
            "/uid_0/job_7",
            "/system.slice/imp-shell-0-f.service",
            "/user.slice/user@1.service/imp-shell-x-f.service",
            "/lxc",
            "/lxc.monitor.web",
        ] {
            assert_eq!(controller_of(&CgroupPath::new(path), Some(&incus)), None, "{path}");
        }
        assert_eq!(controller_of(&CgroupPath::new("/lxc.payload.web"), None), None, "plain LXC writes once");
    }
}
