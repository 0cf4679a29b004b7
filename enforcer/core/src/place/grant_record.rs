//! A grant in a form that outlives the daemon, and how far it is believed afterwards.
//!
//! Problem: a daemon that starts again finds containers that run where it had put them. What their runtime
//! has stored may be older than that, and a cpuset alone does not tell which of its CPUs were for that
//! container alone, what the home of one that shares is, or who came first. Idea: what was granted is written
//! down, and believed exactly as far as the kernel still shows it. Until the runtime has said which
//! containers there are, such grants are *expected*: they count as given away, so that nobody else gets their
//! CPUs, and whoever has them is kept there.
//!
//! Never: a record that the kernel contradicts is followed. Somebody has changed the cpuset since, and what
//! it shows counts then. Nor one of a container that asks for something else by now, or whose CPUs or nodes
//! are no longer to be had: that is placed again, as near as it can be to where it was.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Allocations, ColdStart, ContainerRequest, CpuClass, Cpuset, DeviceCounts, Grant, Holder, Inventory,
    MemoryClaim, MemoryPriority, PodName, Resources, SharedCpus, held::OTHERS, hints, pools,
};
use crate::{
    set::{CpuSet, NodeSet},
    workload::CgroupPath,
};

/// Namespace of holders that are expected. No namespace of Kubernetes starts with `-`.
const EXPECTED: &str = "-expected";

/// What a container was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRecord {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Its turn: lower than that of everybody who came later.
    pub turn: u64,
    engine: String,
    policy: String,
    class: CpuClass,
    exclusive: CpuSet,
    shared: Option<SharedCpus>,
    mems: NodeSet,
    memory: Vec<MemoryClaim>,
    pool: Option<String>,
    pin_cpus: bool,
    pin_mems: bool,
    one_thread_of: Vec<CpuSet>,
    memory_priority: MemoryPriority,
    /// Nothing in records of daemons that did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Amounts>,
    /// Nothing where it is on all of its memory already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cold_start: Option<ColdStart>,
}

/// How much a container asked for when it was given its grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Amounts {
    requests: Amount,
    limits: Amount,
    devices: DeviceCounts,
}

/// Of huge pages by pairs: where a record is one of several kinds, serde reads no map whose keys are numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Amount {
    milli_cpus: Option<u64>,
    memory_bytes: Option<u64>,
    hugepages: Vec<(u64, u64)>,
}

impl Amount {
    fn of(resources: &Resources) -> Self {
        let Resources { milli_cpus, memory_bytes, hugepages } = resources;
        let hugepages = hugepages.iter().map(|(size, bytes)| (*size, *bytes)).collect();
        Self { milli_cpus: *milli_cpus, memory_bytes: *memory_bytes, hugepages }
    }
}

impl Amounts {
    fn of(asked: &ContainerRequest) -> Self {
        let ContainerRequest { requests, limits, devices, .. } = asked;
        Self { requests: Amount::of(requests), limits: Amount::of(limits), devices: devices.clone() }
    }
}

impl GrantRecord {
    /// The record of a grant, and of what was asked for it; none of one that no engine gave.
    pub fn of(
        cgroup: &CgroupPath,
        turn: u64,
        grant: &Grant,
        asked: Option<&ContainerRequest>,
    ) -> Option<Self> {
        engine(grant.engine)?;
        Some(Self {
            cgroup: cgroup.clone(),
            turn,
            engine: grant.engine.to_owned(),
            policy: grant.policy.to_owned(),
            class: grant.class,
            exclusive: grant.exclusive.clone(),
            shared: grant.shared.clone(),
            mems: grant.mems.clone(),
            memory: grant.memory.clone(),
            pool: grant.pool.clone(),
            pin_cpus: grant.pin_cpus,
            pin_mems: grant.pin_mems,
            one_thread_of: grant.one_thread_of.clone(),
            memory_priority: grant.memory_priority,
            asked: asked.map(Amounts::of),
            cold_start: grant.cold_start.clone(),
        })
    }

    /// Does the container still ask for the same?
    pub(super) fn asks_for(&self, asked: &ContainerRequest) -> bool {
        self.asked.as_ref() == Some(&Amounts::of(asked))
    }

    /// The grant, if it is still an answer to what the container asks for, beside what is given to others.
    pub(super) fn still_answers(
        &self,
        asked: &ContainerRequest,
        inventory: &Inventory,
        allocations: &Allocations,
    ) -> Option<Grant> {
        let scope = self.shared.as_ref().map(|shared| &shared.scope);
        let later = self.cold_start.iter().map(|start| &start.mems);
        let of_the_machine = [Some(&self.exclusive), scope]
            .into_iter()
            .flatten()
            .all(|cpus| cpus.is_subset(&inventory.allowed_cpus))
            && later
                .fold(self.mems.clone(), |all, more| all.union(more))
                .is_subset(&inventory.machine.memory_nodes());
        let still = self.asks_for(asked)
            && of_the_machine
            && self.exclusive.is_disjoint(&allocations.exclusive_cpus());
        still.then(|| self.grant())
    }

    /// Is a container that is set to this still where the grant had put it? Memory nodes may be more: they
    /// are widened while its pages move.
    pub fn holds(&self, set_to: &Cpuset) -> bool {
        let cpus = |set: &CpuSet| {
            let own = Grant { shared: None, ..self.grant() }.cpus(&CpuSet::new());
            if self.shared.is_some() { own.is_subset(set) } else { own == *set }
        };
        let mems = |set: &NodeSet| !self.mems.is_empty() && self.mems.is_subset(set);
        (!self.pin_cpus || set_to.cpus.as_ref().is_some_and(cpus))
            && (!self.pin_mems || set_to.mems.as_ref().is_some_and(mems))
    }

    /// The grant again, as far as it was recorded.
    pub(super) fn grant(&self) -> Grant {
        Grant {
            engine: engine(&self.engine).unwrap_or(OTHERS),
            class: self.class,
            exclusive: self.exclusive.clone(),
            shared: self.shared.clone(),
            mems: self.mems.clone(),
            memory: self.memory.clone(),
            pool: self.pool.clone(),
            pin_cpus: self.pin_cpus,
            pin_mems: self.pin_mems,
            one_thread_of: self.one_thread_of.clone(),
            memory_priority: self.memory_priority,
            cold_start: self.cold_start.clone(),
            reason: "it was there before the daemon was started again".to_owned(),
            ..Grant::default()
        }
    }

    /// The same as somebody else's: it counts, and nothing is set because of it.
    fn held(&self) -> Grant {
        let reason =
            format!("given by {} ({}) before the daemon was started again", self.engine, self.policy);
        Grant {
            engine: OTHERS,
            policy: OTHERS,
            class: self.class,
            exclusive: self.exclusive.clone(),
            mems: self.mems.clone(),
            memory: self.memory.clone(),
            reason,
            ..Grant::default()
        }
    }
}

/// Containers that were there before the daemon was, by id, until their runtime says who is there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Expected(BTreeMap<String, GrantRecord>);

impl Expected {
    /// Counts these as given away, in the order in which they were given, besides those that are expected by
    /// now.
    pub(super) fn add(&mut self, records: BTreeMap<String, GrantRecord>, allocations: &mut Allocations) {
        let mut in_turn: Vec<_> = records.iter().collect();
        in_turn.sort_by_key(|(_, record)| record.turn);
        for (id, record) in in_turn {
            allocations.give(holder(id), record.held());
        }
        self.0.extend(records);
    }

    /// Forgets those whose cgroup is gone.
    pub(super) fn retain(&mut self, allocations: &mut Allocations, is_there: impl Fn(&CgroupPath) -> bool) {
        self.0.retain(|id, record| {
            let stays = is_there(&record.cgroup);
            if !stays {
                allocations.release(&holder(id));
            }
            stays
        });
    }

    /// The cgroup of each, and what it was granted.
    pub(super) fn all(&self) -> impl Iterator<Item = (&CgroupPath, Grant)> {
        self.0.values().map(|record| (&record.cgroup, record.grant()))
    }

    /// The cgroup of the one with this id.
    pub(super) fn cgroup(&self, id: &str) -> Option<&CgroupPath> {
        self.0.get(id).map(|record| &record.cgroup)
    }

    /// Is this the cgroup of one of them?
    pub(super) fn has(&self, cgroup: &CgroupPath) -> bool {
        self.0.values().any(|record| record.cgroup == *cgroup)
    }

    /// This one is here, or has ended, and is not expected any longer: what was known of it.
    pub(super) fn take(&mut self, allocations: &mut Allocations, id: &str) -> Option<GrantRecord> {
        let record = self.0.remove(id)?;
        allocations.release(&holder(id));
        Some(record)
    }

    /// None of these is expected any longer: what was known of them, by id.
    pub(super) fn take_all(
        &mut self,
        allocations: &mut Allocations,
        is_over: impl Fn(&str, &CgroupPath) -> bool,
    ) -> BTreeMap<String, GrantRecord> {
        let over = self.0.extract_if(.., |id, record| is_over(id, &record.cgroup));
        over.inspect(|(id, _)| drop(allocations.release(&holder(id)))).collect()
    }
}

fn holder(id: &str) -> Holder {
    Holder::new(PodName::new(EXPECTED, id), String::new())
}

/// The engine of that name.
fn engine(name: &str) -> Option<&'static str> {
    [hints::HintsEngine::NAME, pools::ENGINE].into_iter().find(|engine| *engine == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_to(cpus: &str, mems: &str) -> Cpuset {
        Cpuset { cpus: cpus.parse().ok(), mems: mems.parse().ok() }
    }

    fn record(exclusive: &str, shared: Option<&str>) -> GrantRecord {
        let grant = Grant {
            engine: hints::HintsEngine::NAME,
            exclusive: exclusive.parse().unwrap(),
            shared: shared.map(|scope| SharedCpus::new(scope.parse().unwrap(), 500)),
            mems: "1".parse().unwrap(),
            pin_cpus: true,
            pin_mems: true,
            ..Grant::default()
        };
        GrantRecord::of(&CgroupPath::new("/a"), 3, &grant, Some(&asked())).unwrap()
    }

    fn asked() -> ContainerRequest {
        let requests = Resources {
            milli_cpus: Some(500),
            memory_bytes: None,
            hugepages: BTreeMap::from([(2 << 20, 4 << 20)]),
        };
        ContainerRequest { requests, devices: DeviceCounts::from([("nic".into(), 1)]), ..Default::default() }
    }

    #[test]
    fn a_record_is_believed_as_far_as_the_kernel_shows_it() {
        for (exclusive, shared, cpus, mems, holds) in [
            ("4-5", None, "4-5", "1", true),
            ("4-5", None, "4-5", "0-1", true),
            ("4-5", None, "4-5", "0", false),
            ("4-5", None, "4-6", "1", false),
            ("4-5", None, "4", "1", false),
            ("", Some("4-7"), "6-7", "1", true),
            ("", Some("4-7"), "6-7", "0", false),
            ("4-5", Some("4-7"), "4-5,7", "1", true),
            ("4-5", Some("4-7"), "5-7", "1", false),
        ] {
            let record = record(exclusive, shared);
            assert_eq!(record.holds(&set_to(cpus, mems)), holds, "{exclusive} {shared:?}: {cpus}/{mems}");
        }
        assert!(!record("4-5", None).holds(&Cpuset::default()), "it has no cpuset of its own");
    }

    #[test]
    fn a_record_survives_serde_and_gives_the_same_grant() {
        let record = record("4-5", Some("4-7"));
        let text = serde_json::to_string(&record).unwrap();
        let again: GrantRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(again, record, "{text}");
        assert_eq!(again.grant().exclusive.to_string(), "4-5");
    }

    #[test]
    fn what_no_engine_gave_is_not_recorded() {
        let cgroup = CgroupPath::new("/a");
        for engine in [OTHERS, super::super::UNPLACED, ""] {
            assert_eq!(GrantRecord::of(&cgroup, 0, &Grant { engine, ..Grant::default() }, None), None);
        }
    }

    #[test]
    fn who_is_expected_counts_and_is_never_set() {
        let mut allocations = Allocations::default();
        let records = BTreeMap::from([("x".to_owned(), record("4-5", None))]);
        let mut expected = Expected::default();
        expected.add(records, &mut allocations);
        assert_eq!(allocations.exclusive_cpus().to_string(), "4-5");
        assert!(allocations.iter().all(|(_, grant)| Cpuset::of(grant, &CpuSet::new()).is_empty()));
        expected.retain(&mut allocations, |cgroup| cgroup.as_str() == "/a");
        assert_eq!(allocations.iter().count(), 1);
        expected.retain(&mut allocations, |_| false);
        assert_eq!(
            (allocations.iter().count(), expected.take_all(&mut allocations, |_, _| true).len()),
            (0, 0)
        );
    }
}
