//! Containers as a kubelet makes them, with a real container runtime.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    cgroup::Cgroup,
    check::Checks,
    containerd::{Containerd, NRI},
    cri::{Amounts, Cri, FirstLook, Plan, Pod, Qos},
    ids::Ids,
};

/// Memory of each container.
const MEBIBYTES: i64 = 64;

/// Is the runtime what a node has, and does a container tell where it may run before it does anything else?
/// Every other scenario of this group stands on that.
pub(super) fn containerd(checks: &mut Checks) -> Result<()> {
    let outcome = life_of_containers(checks);
    if outcome.is_err() || !checks.passed() {
        println!("containerd printed:\n{}", Containerd::printed());
    }
    outcome
}

fn life_of_containers(checks: &mut Checks) -> Result<()> {
    checks.holds("no socket for plugins before", !Path::new(NRI).exists(), NRI);
    let (containerd, cri) = Containerd::start()?;
    let (name, version) = cri.version()?;
    checks.equal("name of the runtime", "containerd", name.as_str());
    checks.note("its version", &version);
    checks.holds("it listens for plugins", Path::new(NRI).exists(), NRI);

    let amounts = Amounts::guaranteed(2, MEBIBYTES);
    let plan = Plan { name: "first", annotations: &[], containers: &[amounts.clone(), amounts.clone()] };
    let pod = Pod::run(&cri, &plan)?;
    checks.equal("cgroups of pods", Qos::Guaranteed.parent(), parent(&pod.cgroup));
    let container = pod.start("main", &amounts)?;
    let everywhere = FirstLook { pid: 1, cpus: (0..4).collect(), mems: Ids::from([0, 1]) };
    checks.equal("what its process sees first, not placed", everywhere, container.first_look()?);
    let pid = container.pid()?;
    checks.equal("its CPU time in each period", "200000 100000", &container.cgroup.read("cpu.max")?);
    checks.equal("its memory", (MEBIBYTES << 20).to_string(), container.cgroup.read("memory.max")?);
    checks.equal("how much rather than others it is killed", "-997", &oom_score_adj(pid)?);

    // The control of that look: a cpuset that is there from the beginning is seen.
    let placed = pod.start("placed", &Amounts { cpus: "2-3", mems: "1", ..amounts.clone() })?;
    let on_node_1 = FirstLook { pid: 1, cpus: Ids::from([2, 3]), mems: Ids::from([1]) };
    checks.equal("what a process sees first, placed by the kubelet", on_node_1, placed.first_look()?);

    placed.update(&Amounts { cpu_limit: 1000, cpus: "0", mems: "0", ..amounts })?;
    checks.equal("its CPU time after an update", "100000 100000", &placed.cgroup.read("cpu.max")?);
    checks.equal("its cpuset after an update", ("0".to_owned(), "0".to_owned()), placed.cgroup.cpuset()?);

    let containerd = containerd.restart(&cri)?;
    checks.equal("its process after a restart of the runtime", pid, container.pid()?);
    let both = BTreeMap::from([container.id(), placed.id()].map(|id| (id.to_owned(), true)));
    checks.equal("what the restarted runtime knows to run", both, cri.containers()?);

    placed.stop()?;
    let (gone, still) = (placed.cgroup.clone(), container.cgroup.clone());
    placed.remove()?;
    checks.equal("cgroups after one was removed", (false, true), (gone.exists(), still.exists()));
    remove(checks, &cri, pod)?;
    containerd.stop()
}

/// A pod goes with everything in it.
fn remove(checks: &mut Checks, cri: &Cri, pod: Pod) -> Result<()> {
    let cgroup = pod.cgroup.clone();
    pod.remove()?;
    checks.holds("the cgroup of a pod that was removed", !cgroup.exists(), cgroup.path());
    checks.equal("what is left", (0, 0), (cri.pods()?.len(), cri.containers()?.len()));
    Ok(())
}

fn parent(pod: &Cgroup) -> &str {
    pod.path().rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn oom_score_adj(pid: u32) -> Result<String> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    Ok(text.trim().to_owned())
}
