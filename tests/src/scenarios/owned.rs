//! Containers of another owner, through the container runtime: the kubelet's static CPU manager has given
//! them CPUs.

use anyhow::Result;

use super::pods::{LIMIT, MEBIBYTES, Node, alone, on_a_node, placing, plan};
use crate::{
    check::Checks,
    cri::{Amounts, FirstLook, Pod},
    ids::Ids,
    kubelet::CpuState,
    product::Metrics,
    wait,
};

/// CPUs that the kubelet gives: one of each node. An engine that places by nodes would not do that.
const GIVEN: &str = "3-4";

/// A container with CPUs of the kubelet stays where the kubelet put it, others leave its CPUs, and a foreign
/// change of its cpuset is reported and left alone. The control: the same container with the same CPUs under
/// policy `none` is placed.
pub(super) fn by_the_kubelet(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let exclusive = Amounts { cpus: GIVEN, ..Amounts::guaranteed(2, MEBIBYTES) };
    let given = Ids::from([3, 4]);

    CpuState { policy: "none", ..CpuState::default() }.write()?;
    let daemon = placing()?;
    let (control, container) = alone(&node.cri, "control", &exclusive)?;
    let look = container.first_look()?;
    checks.holds("the control is placed on one node", look.mems.len() == 1 && look.cpus != given, &look);
    control.remove()?;
    daemon.ends_well(checks)?;

    let mut state = CpuState { policy: "static", shared: "0-7".into(), ..CpuState::default() };
    state.write()?;
    let daemon = placing()?;
    let (_pod_s, sharing) = node.sharing("burstable")?;
    let before = sharing.first_look()?.cpus;
    checks.equal("CPUs of the sharing container, placed beside a static CPU manager", 4, before.len());

    let pod = Pod::run(&node.cri, &plan("exclusive", &exclusive))?;
    state.shared = "0-2,5-7".into();
    state.exclusive.insert(pod.uid(), ("main".to_owned(), GIVEN.to_owned()));
    state.write()?;
    let owned = pod.create("main", &exclusive)?;
    let left = sharing.cgroup.ids("cpuset.cpus.effective")?;
    let gave = left.is_disjoint(&given) && left.is_subset(&before) && !left.is_empty();
    checks.holds("the sharing container left these CPUs before their owner starts", gave, (&before, &left));
    owned.start()?;
    let as_given = FirstLook { pid: 1, cpus: given.clone(), mems: Ids::from([0, 1]) };
    checks.equal("what the owner of the CPUs sees first", as_given, owned.first_look()?);
    owned.update(&Amounts { cpus: "", ..exclusive.clone() })?;
    let cpus = || owned.cgroup.read("cpuset.cpus");
    checks.equal("its cpuset after an update of a kubelet", GIVEN, cpus()?.as_str());

    let metrics = daemon.metrics_after_ticks(2)?;
    let by_kubelet = metrics.sum("numa_enforcer_workloads_by_owner", &[("owner", "kubelet-cpu-manager")]);
    checks.holds("it is one workload of the CPU manager", (by_kubelet - 1.0).abs() < 0.5, by_kubelet);
    checks.equal("its cpuset after two turns", GIVEN, cpus()?.as_str());

    // Another program has changed it: reported, and left alone.
    let warnings = |metrics: &Metrics| metrics.sum("numa_enforcer_findings", &[("severity", "warning")]);
    let warned_before = warnings(&metrics);
    owned.cgroup.write("cpuset.cpus", "2,5")?;
    let warned = wait::until("the difference is found", LIMIT, || {
        let metrics = daemon.metrics_after_ticks(1)?;
        Ok((warnings(&metrics) > warned_before).then_some(()))
    });
    checks.holds("a cpuset that is not what the kubelet gave is found", warned.is_ok(), warned);
    daemon.metrics_after_ticks(2)?;
    checks.equal("and is left alone", "2,5", cpus()?.as_str());
    daemon.ends_well(checks)
}
