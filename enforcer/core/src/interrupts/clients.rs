//! Workloads whose CPUs or devices interrupts should heed, as far as the host itself shows them. Grants of
//! containers are added by the daemon, which has them.

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::{Topology, degraded::Degraded, set::CpuSet};

use super::{InterruptClient, OwnInterrupts};
use crate::{
    declarations::Declarations,
    model::{Model, WorkloadModel},
    owner::Owner,
    owners::Owners,
    policy::{DeclaredClass, Policy, WorkloadRule},
    sample::{Sample, TaskSample},
    workload::{CgroupPath, Origin, Workload, printable},
};

/// The declared workloads with devices, or with CPUs of their own as the daemon gives them, and those to
/// which another controller has given exclusive CPUs.
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
        let owned = owners.of(workload);
        let owner = owned.map(|owned| owned.owner);
        let is_marked = matches!(owner, Some(Owner::DraDriver | Owner::Koordlet | Owner::Katalyst));
        let given = owned.and_then(|owned| owned.cpus.clone());
        let exclusive = match owner {
            Some(Owner::KubeletCpuManager) => given,
            // Any user that may create pods can write a mark.
            _ if is_marked => given.filter(|cpus| figures.cpus.as_ref() == Some(cpus)),
            Some(Owner::NumaEnforcer) => rule.filter(|rule| is_exclusive(rule, workload)).and_then(|rule| {
                let asked = usize::try_from(rule.cpus?.get()).ok()?;
                Some(own_cpus(machine, sample, workload, figures)).filter(|cpus| cpus.len() == asked)
            }),
            _ => None,
        };
        let exclusive = exclusive.unwrap_or_default();
        (!exclusive.is_empty() || !devices.is_empty()).then(|| InterruptClient {
            cgroup: Some(workload.cgroup.clone()),
            name: workload.name.clone(),
            nodes: figures.cpu_nodes.clone(),
            exclusive,
            devices,
            lacks_devices: false,
            on_own_cpus: rule.is_some_and(|rule| rule.interrupts == Some(OwnInterrupts::Cpus)),
            is_marked,
        })
    };
    workloads.iter().filter_map(client).collect()
}

/// irqbalance: it distributes interrupts itself, so the daemon sets none beside it. Any user can give a
/// process this name, but only root of the host can set interrupts, in a container or not; `owner`
/// returns the user of a process, where it is known.
pub fn irqbalance(tasks: &[TaskSample], owner: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let service = CgroupPath::new("/system.slice/irqbalance.service");
    let is_it = |task: &&TaskSample| {
        let is_of_service = || task.cgroup.as_ref().is_some_and(|cgroup| cgroup.is_within(&service));
        task.command == "irqbalance" && (is_of_service() || owner(task.pid).is_none_or(|uid| uid == 0))
    };
    tasks.iter().find(is_it).map(|task| task.pid)
}

/// Network devices by workload, kept from turn to turn.
#[derive(Debug, Default)]
pub struct NetworkDevices(BTreeMap<CgroupPath, BTreeSet<String>>);

impl NetworkDevices {
    /// Adds to each client with exclusive CPUs the devices in the network namespace of its processes, which
    /// `read` returns of one process. Those that cannot be read are read again the next time; the first such
    /// client is named.
    pub fn add_to(
        &mut self,
        clients: &mut [InterruptClient],
        tasks: &[TaskSample],
        read: impl Fn(u32) -> Result<Vec<String>, String>,
    ) -> Option<Degraded> {
        let mut unread = None;
        for client in clients.iter_mut().filter(|one| !one.exclusive.is_empty()) {
            let Some(cgroup) = &client.cgroup else { continue };
            if !self.0.contains_key(cgroup) {
                let is_in =
                    |task: &&TaskSample| task.cgroup.as_ref().is_some_and(|own| own.is_within(cgroup));
                match tasks.iter().find(is_in).map(|task| read(task.pid)) {
                    Some(Ok(devices)) => {
                        self.0.insert(cgroup.clone(), devices.into_iter().collect());
                    }
                    Some(Err(reason)) => {
                        let reason = format!("{}: {reason}", printable(&client.name));
                        unread.get_or_insert(reason);
                    }
                    // It runs nothing that would tell.
                    None => {}
                }
            }
            match self.0.get(cgroup) {
                Some(devices) => client.devices.extend(devices.iter().cloned()),
                None => client.lacks_devices = true,
            }
        }
        self.0.retain(|cgroup, _| clients.iter().any(|one| one.cgroup.as_ref() == Some(cgroup)));
        unread.map(|reason| {
            Degraded::new(
                "interrupts:network-devices",
                reason,
                "interrupts of PCI devices are not counted on exclusive CPUs of workloads whose network devices are unknown",
            )
        })
    }
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
