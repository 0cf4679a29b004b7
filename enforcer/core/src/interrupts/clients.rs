//! Workloads whose CPUs or devices interrupts should heed, as far as the host itself shows them. Grants of
//! containers are added by the daemon, which has them.

use std::collections::BTreeSet;

use numa_topology::{Topology, set::CpuSet};

use super::{InterruptClient, OwnInterrupts};
use crate::{
    declarations::Declarations,
    model::{Model, WorkloadModel},
    owner::Owner,
    owners::Owners,
    policy::{DeclaredClass, Policy, WorkloadRule},
    sample::{Sample, TaskSample},
    workload::{Origin, Workload, identify},
};

/// The declared workloads with devices or with CPUs of their own, and those to which another controller has
/// given exclusive CPUs.
pub fn declared_clients(
    machine: &Topology,
    workloads: &[Workload],
    sample: &Sample,
    model: &Model,
    policy: &Policy,
    declarations: &Declarations,
    owners: &Owners,
) -> Vec<InterruptClient> {
    let client = |workload: &Workload| {
        if matches!(workload.origin, Origin::Process { .. }) {
            return None;
        }
        let figures = model.of(workload)?;
        let rule = declarations.rule(policy, &workload.cgroup).map(|(_, rule)| rule);
        let devices = rule.map(|rule| devices(machine, rule)).unwrap_or_default();
        let declared = rule.filter(|rule| is_exclusive(rule, workload));
        let given = owners.of(workload).filter(|owned| {
            matches!(
                owned.owner,
                Owner::KubeletCpuManager | Owner::DraDriver | Owner::Koordlet | Owner::Katalyst
            )
        });
        let exclusive = match (given.and_then(|owned| owned.cpus.clone()), declared) {
            (Some(cpus), _) => cpus,
            (None, Some(_)) => own_cpus(machine, sample, workload, figures),
            (None, None) => CpuSet::new(),
        };
        (!exclusive.is_empty() || !devices.is_empty()).then(|| InterruptClient {
            cgroup: Some(workload.cgroup.clone()),
            name: workload.name.clone(),
            nodes: figures.cpu_nodes.clone(),
            exclusive,
            devices,
            on_own_cpus: rule.is_some_and(|rule| rule.interrupts == Some(OwnInterrupts::Cpus)),
        })
    };
    workloads.iter().filter_map(client).collect()
}

/// irqbalance outside of containers: it distributes interrupts itself, so the daemon sets none beside it.
pub fn irqbalance(tasks: &[TaskSample]) -> Option<u32> {
    let is_it = |task: &&TaskSample| {
        task.command == "irqbalance"
            && task.cgroup.as_ref().is_none_or(|cgroup| {
                // A container can give its processes any name.
                !matches!(identify(cgroup).origin, Origin::Pod { .. } | Origin::Container { .. })
            })
    };
    tasks.iter().find(is_it).map(|task| task.pid)
}

/// Addresses of the devices that an entry names.
fn devices(machine: &Topology, rule: &WorkloadRule) -> BTreeSet<String> {
    let named = rule.devices.iter().filter_map(|name| {
        machine.devices.iter().find(|one| one.address == *name || one.names.iter().any(|other| other == name))
    });
    named.map(|device| device.address.clone()).collect()
}

/// Does the entry give the workload CPUs that no other one has? Containers of pods are in the ledger.
fn is_exclusive(rule: &WorkloadRule, workload: &Workload) -> bool {
    rule.enforce
        && !matches!(workload.origin, Origin::Pod { .. })
        && matches!(rule.class, None | Some(DeclaredClass::Exclusive | DeclaredClass::Isolated))
}

/// The CPUs that a workload has apart from others: those that its cpuset names, or isolated ones that it is
/// kept to. All CPUs of the machine are none.
fn own_cpus(machine: &Topology, sample: &Sample, workload: &Workload, figures: &WorkloadModel) -> CpuSet {
    let cpus = figures.cpus.clone().unwrap_or_default();
    let named = sample.cgroups.get(&workload.cgroup).and_then(|seen| seen.cpus.as_ref());
    let is_named = named.is_some_and(|named| !named.is_empty());
    let is_isolated = !cpus.is_empty() && cpus.is_subset(&machine.isolated_cpus);
    let is_all = machine.online_cpus().is_subset(&cpus);
    if (is_named || is_isolated) && !is_all { cpus } else { CpuSet::new() }
}
