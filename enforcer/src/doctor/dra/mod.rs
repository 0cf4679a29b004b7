//! The driver for claims: whether the kubelet, the container runtime and the daemon can meet on this node,
//! and whether nothing else gives the same CPUs away.
//!
//! Only where `dra.enabled` is set. Whether the runtime is connected, and which mode the daemon has, is known
//! to the daemon alone, so that is asked; everything else is read.

mod accounting;
mod rivals;
#[cfg(test)]
mod tests;

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use enforcer_core::{
    dra::DRIVER,
    policy::{Mode, Policy},
};
use enforcer_host::HostRoot;
use enforcer_report::{
    checks::Check,
    runtime::RuntimeLink,
    status::{LatestTurn, StatusReport},
};
use enforcer_runtime::kubelet::in_use;

use super::writable;

/// Longest path of a socket that a program can connect to, in bytes (`sun_path` of unix(7)).
const LONGEST_SOCKET_PATH: usize = 107;

/// Advice about a directory that the daemon has to write.
const WRITABLE: &str = "run as root; in a container, mount it writable, at the path that it has on the node";

/// What the running daemon says of itself, or why it does not.
pub(super) type DaemonAnswer = Result<StatusReport, String>;

pub(super) fn checks(host: &HostRoot, policy: &Policy, answer: &DaemonAnswer) -> Vec<Check> {
    let mut checks = daemon(policy.mode, answer);
    checks.extend(directories(policy, &in_use(&policy.kubelet).root_dir));
    checks.push(rivals::check(host, &policy.kubelet.root_dir.join("plugins_registry")));
    checks.push(accounting::check(host, policy));
    checks
}

/// The daemon, and its link to the runtime.
fn daemon(configured: Mode, answer: &DaemonAnswer) -> Vec<Check> {
    let name = "dra-daemon";
    let report = match answer {
        Ok(report) => report,
        Err(reason) => {
            let detail = format!("{reason}; mode of the configuration: {configured}");
            let advice = "a running daemon prepares claims, in mode enforce";
            return vec![Check::degraded(name, detail, advice)];
        }
    };
    let Some(turn) = &report.latest else {
        let advice = "ask again when it is ready";
        return vec![Check::degraded(name, "the daemon has not ended its first turn", advice)];
    };
    vec![driver(name, report.pid, turn), link(turn.runtime.as_ref())]
}

fn driver(name: &str, pid: u32, turn: &LatestTurn) -> Check {
    if turn.mode == Mode::Observe {
        let detail = format!("process {pid} runs in mode observe: there is no driver");
        return Check::missing(
            name,
            detail,
            "start it with --mode enforce: until then pods with claims wait",
        );
    }
    let is_ours = |source: &str| source == "dra" || source.starts_with("dra:");
    let faults = turn.degraded.iter().filter(|one| is_ours(&one.source));
    let faults: Vec<_> = faults.map(|one| format!("{}: {}", one.source, one.reason)).collect();
    if faults.is_empty() {
        return Check::ok(name, format!("process {pid} runs in mode enforce"));
    }
    Check::degraded(name, faults.join("; "), "docs/dra.md, \"What may go wrong\", has causes")
}

fn link(link: Option<&RuntimeLink>) -> Check {
    let name = "dra-nri";
    let down = match link {
        Some(RuntimeLink::Up { name: runtime, version }) => {
            return Check::ok(name, format!("connected to {runtime} {version}"));
        }
        Some(RuntimeLink::Down { reason }) => reason.clone(),
        Some(RuntimeLink::Untried) | None => "the daemon has not tried to connect".to_owned(),
    };
    Check::missing(
        name,
        down,
        "containers get what their claims have over NRI: switch it on in the runtime (docs/kubernetes.md), and in \
         a container mount its socket",
    )
}

/// The directories of the sockets, and that of the Container Device Interface. `root` is the one of the
/// kubelet that runs.
fn directories(policy: &Policy, root: &Path) -> Vec<Check> {
    let named = &policy.kubelet.root_dir;
    if root != named {
        let detail = format!(
            "the kubelet's directory is {}, and kubelet.root_dir is {}",
            root.display(),
            named.display()
        );
        let advice = "the kubelet looks for drivers in its own directory alone: set kubelet.root_dir to it";
        return vec![Check::missing("dra-registry", detail, advice)];
    }
    let registry = root.join("plugins_registry");
    let registry = if registry.exists() {
        of_socket("dra-registry", &registry, &format!("{DRIVER}@reg.sock"))
    } else {
        let advice = "a kubelet makes it when it starts: name its directory in kubelet.root_dir; in a container, \
                      mount it at the same path";
        Check::missing("dra-registry", format!("{} does not exist", registry.display()), advice)
    };
    let plugin = of_socket("dra-plugin", &root.join("plugins").join(DRIVER), "dra.sock");
    vec![registry, plugin, directory("dra-cdi", &policy.dra.cdi_dir)]
}

fn of_socket(name: &str, dir: &Path, socket: &str) -> Check {
    let path = dir.join(socket);
    let length = path.as_os_str().len();
    if length > LONGEST_SOCKET_PATH {
        let detail = format!("{} has {length} bytes", path.display());
        let advice = format!(
            "a kubelet connects to paths of {LONGEST_SOCKET_PATH} bytes at most: choose a shorter --root-dir"
        );
        return Check::missing(name, detail, &advice);
    }
    match fs::metadata(dir).map(|metadata| metadata.permissions().mode() & 0o7777) {
        Ok(mode) if mode & 0o022 != 0 => {
            let detail = format!("others may write {} (mode {mode:04o})", dir.display());
            Check::missing(name, detail, "they could replace the socket by theirs: chmod go-w")
        }
        _ => directory(name, dir),
    }
}

/// Whether files can be made there. The daemon makes a missing directory.
fn directory(name: &str, dir: &Path) -> Check {
    let nearest = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let shown = nearest.display();
    if !nearest.is_dir() {
        return Check::missing(name, format!("{shown} is not a directory"), "choose another");
    }
    match writable(nearest) {
        Ok(()) if nearest == dir => Check::ok(name, format!("{shown} may be written")),
        Ok(()) => Check::ok(name, format!("{} can be made", dir.display())),
        Err(error) => Check::missing(name, format!("{shown} may not be written: {error}"), WRITABLE),
    }
}
