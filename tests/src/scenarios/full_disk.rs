//! The disk that the daemon records on runs full while containers come and go.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

use super::pods::{LIMIT, MEBIBYTES, Node, alone, cpus, node_of, on_a_node, placing};
use crate::{
    check::Checks,
    cri::Amounts,
    process,
    product::{self, Daemon, STATE},
    wait,
};

/// Longest time that a command takes.
const COMMAND: Duration = Duration::from_secs(30);

/// Containers that come and go until the rest of the journal's last page is full. Each leaves some hundred
/// bytes.
const FILLING: usize = 12;

/// Nothing is set that could not be undone: it is said, every container stays as it is, a new one runs
/// where it likes, and all is as it should be when there is room again.
pub(super) fn of_the_journal(checks: &mut Checks) -> Result<()> {
    // The directory is small before anything is started.
    small_state_directory()?;
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let daemon = placing()?;
    let (_pod_a, a) = node.exclusive("a")?;
    let (_pod_s, sharing) = node.sharing("sharing")?;
    daemon.metrics_after_ticks(2)?;
    checks.equal("with room nothing is missing", None, missing(&daemon)?);

    let filler = fill()?;
    for number in 0..FILLING {
        if missing(&daemon)?.is_some() {
            break;
        }
        let (pod, _container) = alone(&node.cri, &format!("f{number}"), &Amounts::burstable(100, MEBIBYTES))?;
        daemon.metrics_after_ticks(2)?;
        pod.remove()?;
        daemon.metrics_after_ticks(2)?;
    }
    checks.equal("a full disk is degraded by name", Some(1.0), missing(&daemon)?);

    let before = (a.cgroup.cpuset()?, sharing.cgroup.cpuset()?);
    let (_pod_b, b) = node.exclusive("b")?;
    let nothing = (String::new(), String::new());
    checks.equal("the cpuset of one that came meanwhile", nothing.clone(), b.cgroup.cpuset()?);
    daemon.metrics_after_ticks(3)?;
    checks.equal("and some turns later", nothing, b.cgroup.cpuset()?);
    let after = (a.cgroup.cpuset()?, sharing.cgroup.cpuset()?);
    checks.equal("cpusets of those that were there", before, after);

    fs::remove_file(&filler).context("remove the filler")?;
    let placed = wait::until("b has its place", LIMIT, || {
        let own = cpus(&b)?;
        Ok((own.len() == 2 && node_of(&own, &node.machine)?.is_some()).then_some(own))
    });
    checks.holds("with room again b has two CPUs of one node", placed.is_ok(), cpus(&b)?);
    daemon.metrics_after_ticks(2)?;
    checks.equal("and nothing is missing", None, missing(&daemon)?);
    daemon.ends_well(checks)?;

    let restored = product::run(&["restore", "--state-dir", STATE])?;
    checks.equal("exit status of restore", Some(0), restored.status);
    let nothing = (String::new(), String::new());
    checks.equal("the cpuset of a after restore", nothing.clone(), a.cgroup.cpuset()?);
    checks.equal("the cpuset of b after restore", nothing, b.cgroup.cpuset()?);
    Ok(())
}

/// Mounts 16 pages where the daemon keeps its state.
fn small_state_directory() -> Result<()> {
    fs::create_dir_all(STATE).with_context(|| format!("create {STATE}"))?;
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k,mode=0700", "state", STATE]);
    let output = process::run(&mut mount, COMMAND)?;
    ensure!(output.status == Some(0), "mount {STATE}: {}", output.stderr.trim());
    Ok(())
}

/// Takes every page that is left; returns the file that does.
fn fill() -> Result<String> {
    let path = format!("{STATE}/filler");
    let error =
        fs::write(&path, vec![0; 64 << 10]).err().context("64 KiB beside the journal fit into 64 KiB")?;
    ensure!(error.kind() == std::io::ErrorKind::StorageFull, "fill {path}: {error}");
    Ok(path)
}

/// Is the journal missing?
fn missing(daemon: &Daemon) -> Result<Option<f64>> {
    daemon.labelled("numa_enforcer_degraded", &[("feature", "journal")])
}
