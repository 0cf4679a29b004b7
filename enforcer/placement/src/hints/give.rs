//! Turns a place into a grant: exact CPUs, devices and memory, and what is written.
//!
//! Memory nodes (`cpuset.mems`) are chosen together with the CPUs ([`mems`](super::mems)). Policy `none` has
//! no place: CPUs come from the whole machine, and containers that are not Guaranteed are not pinned to
//! memory nodes.

use std::collections::BTreeMap;

use super::{
    Hint, Mask, NodeIndex, asker::Asker, demand::Demand, device, placing::HintsPlacing, positions,
    question::Alignment,
};
use crate::{
    CpuClass, Grant, MemoryPriority, MemorySource, QosClass, Rejection, RejectionProblem, RejectionReason,
    SharedCpus, Shortage, room::FittingAmount, settings::TopologyPolicy, words,
};
use numa_topology::{
    Topology,
    set::{CpuSet, NodeSet},
};

impl HintsPlacing<'_> {
    /// Grant of a container at this place; without a place (policy `none`) anywhere.
    pub(super) fn grant(
        &mut self,
        asker: Asker<'_>,
        demand: &Demand,
        settled: Option<Alignment>,
    ) -> Result<Grant, Rejection> {
        let Asker { nodes, settings, .. } = asker;
        let merged = settled.map(|settled| settled.merged);
        let mask = merged.and_then(|merged| merged.mask);
        let affinity = mask.map(|mask| nodes.nodes(mask));
        let devices = self.assign_devices(asker, demand, mask)?;
        let exclusive = match demand.exclusive {
            0 => CpuSet::new(),
            count => self.take_cpus(asker, count, affinity.as_ref())?,
        };
        let shared = match demand.shared {
            None => None,
            Some(millis) => Some(self.share(asker, millis, mask)?),
        };
        let cpus = match &shared {
            Some(shared) if exclusive.is_empty() => &shared.scope,
            _ => &exclusive,
        };
        let cpu_nodes = self.inventory.machine.nodes_of(cpus);
        let (memory, mems) = self.memory(asker, demand, settled, &cpu_nodes)?;
        let class = match () {
            () if exclusive.is_empty() => CpuClass::Shared,
            () if exclusive.is_subset(&self.inventory.isolated_cpus) => CpuClass::Isolated,
            () => CpuClass::Exclusive,
        };
        let pin_mems = if settings.is_kubelet() {
            !memory.is_empty()
        } else {
            settings.policy != TopologyPolicy::None || self.pod.qos == QosClass::Guaranteed
        };
        let hint = merged.map(|merged| Hint {
            nodes: merged.mask.map(|mask| nodes.nodes(mask)),
            preferred: merged.preferred,
        });
        Ok(Grant {
            engine: crate::engine_name::HINTS,
            policy: settings.policy.as_str(),
            class,
            reason: reason(settings.policy, class, hint.as_ref(), &mems),
            exclusive,
            shared,
            mems,
            memory_source: (!memory.is_empty()).then_some(MemorySource::Request),
            cold_start: None,
            memory,
            devices,
            hint,
            pool: None,
            pin_cpus: true,
            pin_mems,
            one_thread_of: Vec::new(),
            cpu_shares: None,
            memory_priority: MemoryPriority::of_class(self.pod.qos),
            labels: self.pod.labels.clone(),
            qos: Some(self.pod.qos),
            affinity: Vec::new(),
        })
    }

    /// Devices of each requested kind, near the place.
    fn assign_devices(
        &self,
        asker: Asker<'_>,
        demand: &Demand,
        mask: Option<Mask>,
    ) -> Result<BTreeMap<String, Vec<String>>, Rejection> {
        let assign = |(resource, count): (&String, &u64)| {
            let ids = device::assign(&self.device_stock(asker, resource), *count, mask)?;
            Ok((resource.clone(), ids))
        };
        demand.devices.iter().map(assign).collect()
    }

    /// Shared CPUs of the chosen nodes, and of more nodes if these have no room for the promise.
    fn share(&self, asker: Asker<'_>, millis: u64, mask: Option<Mask>) -> Result<SharedCpus, Rejection> {
        let pool = self.pool(asker);
        let taken = self.accounts.not_shared();
        if pool.is_subset(&taken) {
            let wanted = millis.div_ceil(1000).max(1);
            let nodes = asker.nodes.nodes(asker.nodes.all());
            let room = FittingAmount::together("cpu", nodes.clone(), 0);
            let shortage = Shortage { resource: "cpu".to_owned(), nodes, wanted, available: 0 };
            let rejection =
                Rejection::new(RejectionReason::UnexpectedAdmissionError, RejectionProblem::NoSharedCpu);
            return Err(rejection.short_of(vec![shortage], &[room]));
        }
        let room = self.shared_stock(asker);
        let near = mask.filter(|_| asker.settings.align_all_qos).and_then(|mask| {
            widened(asker.nodes, &self.inventory.machine, mask, |mask| room.fits(mask, millis))
        });
        let scope = match near {
            Some(mask) => pool.intersection(&self.inventory.machine.cpus_of(&asker.nodes.nodes(mask))),
            None => pool,
        };
        let shared = SharedCpus::new(scope, millis).beside_reserved(&self.inventory.reserved_cpus);
        Ok(shared.avoiding_reserved(asker.settings.strict_cpu_reservation))
    }
}

/// The narrowest set with room that contains `mask`, adding the nearest node each time; none if all nodes
/// have too little.
fn widened(nodes: &NodeIndex, machine: &Topology, mask: Mask, fits: impl Fn(Mask) -> bool) -> Option<Mask> {
    let mut mask = mask;
    while !fits(mask) {
        let first = positions(mask).next().and_then(|at| nodes.ids().get(at));
        let distance = |at: usize| {
            let to = nodes.ids().get(at);
            first.zip(to).and_then(|(from, to)| machine.distance(*from, *to)).unwrap_or(u32::MAX)
        };
        let others = || positions(nodes.all() & !mask);
        let complete = others().filter(|at| fits(mask | 1 << at)).min_by_key(|at| (distance(*at), *at));
        let next = complete.or_else(|| others().min_by_key(|at| (distance(*at), *at)))?;
        mask |= 1 << next;
    }
    Some(mask)
}

pub(super) fn is_first_fit(policy: TopologyPolicy) -> bool {
    matches!(policy, TopologyPolicy::NumaManager | TopologyPolicy::NumaManagerBestEffort)
}

fn reason(policy: TopologyPolicy, class: CpuClass, hint: Option<&Hint>, mems: &NodeSet) -> String {
    let cpus = match class {
        CpuClass::Exclusive => "exclusive CPUs",
        CpuClass::Isolated => "isolated CPUs",
        _ => "shared CPUs",
    };
    match hint {
        None => format!("{cpus}; policy none aligns nothing"),
        Some(Hint { nodes: None, .. }) => format!("{cpus}; any node will do"),
        Some(Hint { nodes: Some(nodes), .. }) if is_first_fit(policy) => {
            format!("{cpus} near {} first, which all resources named", words::nodes(nodes))
        }
        Some(Hint { nodes: Some(nodes), preferred: true }) => {
            format!("{cpus} near {}, as few nodes as an empty machine would need", words::nodes(nodes))
        }
        Some(Hint { nodes: Some(nodes), preferred: false }) => format!(
            "{cpus} near {} and memory on {}: what is free does not allow less",
            words::nodes(nodes),
            words::nodes(mems)
        ),
    }
}
