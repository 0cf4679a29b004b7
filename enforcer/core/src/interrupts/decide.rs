//! Which CPUs each interrupt should have.
//!
//! An interrupt of a workload's own device goes to CPUs of the nodes of that workload; every other one keeps
//! the CPUs it has, without exclusive ones. Where nothing would be left, it gets the housekeeping CPUs of its
//! device's node, or else all: online, neither exclusive nor isolated. Without any, it stays as it is.

use std::collections::BTreeMap;

use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use super::{Interrupt, InterruptChange, InterruptClient, InterruptInputs};

/// Sets of CPUs that all interrupts share.
struct SharedCpus<'a> {
    inputs: &'a InterruptInputs<'a>,
    online: CpuSet,
    /// Exclusive CPUs of all workloads.
    exclusive: CpuSet,
    housekeeping: CpuSet,
    /// Workloads by the addresses of their devices.
    users: BTreeMap<&'a str, Vec<&'a InterruptClient>>,
}

/// The changes that bring every interrupt where it should be, by number; nothing for those that are there.
pub fn decide_interrupts(inputs: &InterruptInputs<'_>) -> Vec<InterruptChange> {
    let shared = SharedCpus::new(inputs);
    inputs.table.interrupts.iter().filter_map(|interrupt| shared.change(interrupt)).collect()
}

impl<'a> SharedCpus<'a> {
    fn new(inputs: &'a InterruptInputs<'a>) -> Self {
        let online = inputs.machine.online_cpus();
        let exclusive = inputs.clients.iter().fold(CpuSet::new(), |all, one| all.union(&one.exclusive));
        let housekeeping = online.difference(&exclusive).difference(&inputs.machine.isolated_cpus);
        let mut users = BTreeMap::<_, Vec<_>>::new();
        for client in inputs.clients {
            for device in &client.devices {
                users.entry(device.as_str()).or_default().push(client);
            }
        }
        Self { inputs, online, exclusive, housekeeping, users }
    }

    fn change(&self, interrupt: &Interrupt) -> Option<InterruptChange> {
        let from = interrupt.affinity.as_ref()?;
        let steered = self.inputs.steered.get(&interrupt.number).filter(|one| one.has_set(from));
        if steered.is_none() && interrupt.is_of_each_cpu() {
            return None;
        }
        // What another writer has set since is the original from then on.
        let original = steered.map_or(from, |one| &one.original);
        let (to, reason) = match self.of_own_device(interrupt, original) {
            Some(found) => found,
            None => self.away(interrupt, original),
        };
        (to != *from && !to.is_disjoint(&self.online)).then(|| InterruptChange {
            number: interrupt.number,
            name: interrupt.name.clone(),
            identity: interrupt.identity.clone(),
            device: interrupt.device.clone(),
            original: original.clone(),
            from: from.clone(),
            reason: if to == *original {
                "nothing speaks against its original CPUs".to_owned()
            } else {
                reason
            },
            to,
        })
    }

    /// CPUs for an interrupt of a workload's device: those of the workload that asks for it, or shared ones
    /// of its nodes, if there are any.
    fn of_own_device(&self, interrupt: &Interrupt, original: &CpuSet) -> Option<(CpuSet, String)> {
        let users = self.users.get(interrupt.device.as_deref()?)?;
        if let [user] = users[..]
            && user.on_own_cpus
        {
            let others = self.inputs.clients.iter().filter(|other| !std::ptr::eq(*other, user));
            let others = others.fold(CpuSet::new(), |all, one| all.union(&one.exclusive));
            let own = user.exclusive.intersection(&self.online).difference(&others);
            if !own.is_empty() {
                let within = original.intersection(&own);
                let cpus = if within.is_empty() { own } else { within };
                return Some((
                    cpus,
                    format!("its device belongs to {}, which wants it on its CPUs", user.name),
                ));
            }
        }
        let nodes = users.iter().fold(NodeSet::new(), |all, one| all.union(&one.nodes));
        let local = self.housekeeping.intersection(&self.inputs.machine.cpus_of(&nodes));
        if local.is_empty() {
            return None;
        }
        let within = original.intersection(&local);
        let names: Vec<&str> = users.iter().take(3).map(|one| one.name.as_str()).collect();
        let cpus = if within.is_empty() { local } else { within };
        Some((cpus, format!("its device belongs to {}", names.join(", "))))
    }

    /// Its CPUs without exclusive ones.
    fn away(&self, interrupt: &Interrupt, original: &CpuSet) -> (CpuSet, String) {
        let reason = || "it may be handled on exclusive CPUs".to_owned();
        if original.is_disjoint(&self.exclusive) {
            return (original.clone(), reason());
        }
        let left = original.difference(&self.exclusive).intersection(&self.online);
        if !left.is_empty() {
            return (left, reason());
        }
        let of_node = |node: NodeId| self.inputs.machine.node(node).map(|node| &node.cpus);
        let local = interrupt.node.and_then(of_node).map(|cpus| cpus.intersection(&self.housekeeping));
        let free = self.online.difference(&self.exclusive);
        let candidates = local.into_iter().chain([self.housekeeping.clone(), free]);
        let found = candidates.into_iter().find(|cpus| !cpus.is_empty());
        (found.unwrap_or_else(|| original.clone()), reason())
    }
}
