//! Serialized form of a grant that outlives the daemon, and its validation after a restart.
//!
//! Problem: a restarted daemon finds running containers that it had placed. The cpuset in the runtime's store
//! may be older. A cpuset does not show which of its CPUs are exclusive, the scope of shared CPUs, or the
//! order of arrival. Idea: the daemon records each grant, and uses the record as far as the kernel confirms
//! it. Until the runtime has listed its containers, these grants are *expected*: they count as taken, so no
//! other container gets their CPUs.
//!
//! Invariants: a record that the kernel contradicts is not used, because the cpuset was changed since, and
//! the kernel's cpuset applies. A record is not used either if the container's request has changed, or if its
//! CPUs or nodes are no longer available: the container is placed again, as near as possible to its previous
//! place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    hosted::{Cpuset, PlacementNode},
    workload::CgroupPath,
};
use numa_placement::{
    Allocations, ColdStart, ContainerRequest, CpuClass, DeviceCounts, Grant, Holder, MemoryClaim,
    MemoryPriority, PodName, PodRequest, Resources, SharedCpus, engine_name,
    external::{OTHERS, UNPLACED},
    known_name, pools,
};
use numa_topology::set::{CpuSet, NodeSet};

/// Namespace of expected holders. No namespace of Kubernetes starts with `-`.
const EXPECTED: &str = "-expected";

/// The whole grant of a container, its position in the order of arrival, and its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AnyVersionRecord")]
pub struct GrantRecord {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Its position in the order of arrival: lower than that of each later holder.
    pub turn: u64,
    /// The grant.
    grant: Grant,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<RecordedAmounts>,
    /// Whether the record has a version without labels, class, affinity rules, hint, CPU shares and devices.
    #[serde(skip)]
    is_partial: bool,
}

/// Amounts that a container requested when it got its grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedAmounts {
    requests: RecordedAmount,
    limits: RecordedAmount,
    devices: DeviceCounts,
}

/// Huge pages are pairs: inside an untagged enum, serde reads no map with numbers as keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedAmount {
    milli_cpus: Option<u64>,
    memory_bytes: Option<u64>,
    hugepages: Vec<(u64, u64)>,
}

impl RecordedAmount {
    fn of(resources: &Resources) -> Self {
        let Resources { milli_cpus, memory_bytes, hugepages } = resources;
        let hugepages = hugepages.iter().map(|(size, bytes)| (*size, *bytes)).collect();
        Self { milli_cpus: *milli_cpus, memory_bytes: *memory_bytes, hugepages }
    }
}

impl RecordedAmounts {
    fn of(asked: &ContainerRequest) -> Self {
        let ContainerRequest { requests, limits, devices, .. } = asked;
        Self {
            requests: RecordedAmount::of(requests),
            limits: RecordedAmount::of(limits),
            devices: devices.clone(),
        }
    }
}

/// A record of any supported version: a whole grant, or some of its fields.
#[derive(Deserialize)]
struct AnyVersionRecord {
    cgroup: CgroupPath,
    turn: u64,
    grant: Option<Grant>,
    #[serde(default)]
    asked: Option<RecordedAmounts>,
    #[serde(flatten)]
    some: Option<Partial>,
}

/// Fields of a grant in journals up to version 3, and in records of pending containers up to version 2.
#[derive(Deserialize)]
struct Partial {
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
    #[serde(default)]
    cold_start: Option<ColdStart>,
}

impl TryFrom<AnyVersionRecord> for GrantRecord {
    type Error = String;

    fn try_from(read: AnyVersionRecord) -> Result<Self, String> {
        let AnyVersionRecord { cgroup, turn, grant, asked, some } = read;
        let is_partial = grant.is_none();
        let grant = match (grant, some) {
            (Some(grant), _) => grant,
            (None, Some(partial)) => partial.grant()?,
            (None, None) => return Err("it has no grant, nor the fields of an older one".to_owned()),
        };
        Ok(Self { cgroup, turn, grant, asked, is_partial })
    }
}

impl Partial {
    fn grant(self) -> Result<Grant, String> {
        let fixed =
            |name: &str| known_name(name).ok_or_else(|| format!("{name:.40?} is no engine and no policy"));
        Ok(Grant {
            engine: fixed(&self.engine)?,
            policy: fixed(&self.policy)?,
            class: self.class,
            exclusive: self.exclusive,
            shared: self.shared,
            mems: self.mems,
            memory: self.memory,
            pool: self.pool,
            pin_cpus: self.pin_cpus,
            pin_mems: self.pin_mems,
            one_thread_of: self.one_thread_of,
            memory_priority: self.memory_priority,
            cold_start: self.cold_start,
            reason: "it was there before the daemon was started again".to_owned(),
            ..Grant::default()
        })
    }
}

impl GrantRecord {
    /// Record of a grant and its request. Grants of other owners are not recorded: their owners report them
    /// again.
    pub fn of(
        cgroup: &CgroupPath,
        turn: u64,
        grant: &Grant,
        asked: Option<&ContainerRequest>,
    ) -> Option<Self> {
        (is_ours(grant.engine) || grant.engine == UNPLACED).then(|| Self {
            cgroup: cgroup.clone(),
            turn,
            grant: grant.clone(),
            asked: asked.map(RecordedAmounts::of),
            is_partial: false,
        })
    }

    /// Did an engine find a place?
    pub(super) fn is_placed(&self) -> bool {
        is_ours(self.grant.engine)
    }

    /// Is the container's request unchanged?
    pub(super) fn asks_for(&self, asked: &ContainerRequest) -> bool {
        self.asked.as_ref() == Some(&RecordedAmounts::of(asked))
    }

    /// The grant, if it is still a valid answer to this request, given the allocations of other holders.
    pub(super) fn still_answers(
        &self,
        pod: &PodRequest,
        asked: &ContainerRequest,
        node: &PlacementNode<'_>,
    ) -> Option<Grant> {
        let PlacementNode { inventory, allocations, .. } = node;
        let scope = self.grant.shared.as_ref().map(|shared| &shared.scope);
        let later = self.grant.cold_start.iter().map(|start| &start.mems);
        let of_the_machine = [Some(&self.grant.exclusive), scope]
            .into_iter()
            .flatten()
            .all(|cpus| cpus.is_subset(&inventory.allowed_cpus))
            && later
                .fold(self.grant.mems.clone(), |all, more| all.union(more))
                .is_subset(&inventory.machine.memory_nodes());
        let still = self.is_placed()
            && self.asks_for(asked)
            && of_the_machine
            && self.grant.exclusive.is_disjoint(&allocations.exclusive_cpus());
        still.then(|| self.completed(pod, asked, node))
    }

    /// The grant, with fields that an older record lacks taken from the pod.
    fn completed(&self, pod: &PodRequest, asked: &ContainerRequest, node: &PlacementNode<'_>) -> Grant {
        let grant = self.grant.clone();
        if !self.is_partial {
            return grant;
        }
        let affinity = match grant.engine {
            engine_name::POOLS => pools::affinity::rules_of(pod, &asked.name, &node.settings.pools).0,
            _ => Vec::new(),
        };
        Grant { labels: pod.labels.clone(), qos: Some(pod.qos), affinity, ..grant }
    }

    /// Does a container with this cpuset still have the place of the grant? It may have more memory nodes:
    /// they are widened while its pages move.
    pub fn holds(&self, set_to: &Cpuset) -> bool {
        let grant = &self.grant;
        let cpus = |set: &CpuSet| {
            let own = Grant { shared: None, ..grant.clone() }.cpus(&CpuSet::new());
            if grant.shared.is_some() { own.is_subset(set) } else { own == *set }
        };
        let is_away = grant.shared.as_ref().is_some_and(|shared| !shared.fallback_memory.is_empty());
        let mems = |set: &NodeSet| {
            let away = || is_away && !set.is_empty() && set.is_subset(&grant.all_mems());
            !grant.mems.is_empty() && (grant.mems.is_subset(set) || away())
        };
        (!grant.pin_cpus || set_to.cpus.as_ref().is_some_and(cpus))
            && (!grant.pin_mems || set_to.mems.as_ref().is_some_and(mems))
    }

    /// The recorded grant.
    pub(super) fn grant(&self) -> Grant {
        self.grant.clone()
    }

    /// The grant as one of another owner: it counts as taken, and nothing is written.
    fn held(&self) -> Grant {
        let Grant { engine, policy, class, .. } = self.grant;
        Grant {
            engine: OTHERS,
            policy: OTHERS,
            class,
            exclusive: self.grant.exclusive.clone(),
            mems: self.grant.mems.clone(),
            memory: self.grant.memory.clone(),
            devices: self.grant.devices.clone(),
            reason: format!("given by {engine} ({policy}) before the daemon was started again"),
            ..Grant::default()
        }
    }
}

/// Containers from before the daemon started, by id, until the runtime lists its containers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ExpectedContainers(BTreeMap<String, GrantRecord>);

impl ExpectedContainers {
    /// Counts these grants as taken, each at its position, in addition to those expected already.
    pub(super) fn add(&mut self, records: BTreeMap<String, GrantRecord>, allocations: &mut Allocations) {
        for (id, record) in &records {
            allocations.give_at(holder(id), record.held(), record.turn);
        }
        self.0.extend(records);
    }

    /// Removes those without a cgroup; returns whether there was one.
    pub(super) fn retain(
        &mut self,
        allocations: &mut Allocations,
        is_there: impl Fn(&CgroupPath) -> bool,
    ) -> bool {
        let before = self.0.len();
        self.0.retain(|id, record| {
            let stays = is_there(&record.cgroup);
            if !stays {
                allocations.release(&holder(id));
            }
            stays
        });
        self.0.len() < before
    }

    /// Cgroups by container id.
    pub(super) fn by_id(&self) -> impl Iterator<Item = (&String, &CgroupPath)> {
        self.0.iter().map(|(id, record)| (id, &record.cgroup))
    }

    /// Cgroups with their grants.
    pub(super) fn all(&self) -> impl Iterator<Item = (&CgroupPath, Grant)> {
        self.0.values().map(|record| (&record.cgroup, record.grant()))
    }

    /// Cgroup of the container with this id.
    pub(super) fn cgroup(&self, id: &str) -> Option<&CgroupPath> {
        self.0.get(id).map(|record| &record.cgroup)
    }

    /// Is this the cgroup of an expected container?
    pub(super) fn has(&self, cgroup: &CgroupPath) -> bool {
        self.0.values().any(|record| record.cgroup == *cgroup)
    }

    /// Removes a container that has been found or has ended, and returns its record.
    pub(super) fn take(&mut self, allocations: &mut Allocations, id: &str) -> Option<GrantRecord> {
        let record = self.0.remove(id)?;
        allocations.release(&holder(id));
        Some(record)
    }

    /// Removes these containers and returns their records, by id.
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

/// Is it an engine of this project?
fn is_ours(engine: &str) -> bool {
    [engine_name::HINTS, engine_name::POOLS].contains(&engine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::placement::HintsSettings;
    use numa_placement::samples::{self, Host};
    use numa_topology::synth::Machine;

    fn set_to(cpus: &str, mems: &str) -> Cpuset {
        Cpuset { cpus: cpus.parse().ok(), mems: mems.parse().ok() }
    }

    fn record(exclusive: &str, shared: Option<&str>) -> GrantRecord {
        let grant = Grant {
            engine: engine_name::HINTS,
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
    fn a_record_survives_serde_whole() {
        let record = record("4-5", Some("4-7"));
        let text = serde_json::to_string(&record).unwrap();
        let again: GrantRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(again, record, "{text}");
    }

    /// A record in the format of the previous version.
    const PARTIAL: &str = r#"{"cgroup":"/a","turn":3,"engine":"hints","policy":"best-effort",
        "class":"exclusive","exclusive":"4-5","shared":null,"mems":"1","memory":[],"pool":null,"pin_cpus":true,
        "pin_mems":true,"one_thread_of":[],"memory_priority":"guaranteed","asked":{"requests":
        {"milli_cpus":500,"memory_bytes":null,"hugepages":[[2097152,4194304]]},"limits":
        {"milli_cpus":null,"memory_bytes":null,"hugepages":[]},"devices":{"nic":1}}}"#;

    #[test]
    fn a_record_of_the_version_before_is_completed_by_what_its_pod_tells() {
        let record: GrantRecord = serde_json::from_str(PARTIAL).unwrap();
        let grant = record.grant();
        assert_eq!((grant.policy, grant.exclusive.to_string().as_str()), ("best-effort", "4-5"));
        assert!(record.asks_for(&asked()) && record.is_partial);
        let labels = BTreeMap::from([("app".to_owned(), "db".to_owned())]);
        let pod = PodRequest { labels: labels.clone(), ..samples::pod("p", vec![asked()]) };
        let mut host = Host::new(Machine::new().sockets(2).build(), HintsSettings::default());
        let Host { inventory, settings, allocations } = &mut host;
        let grant = record.still_answers(&pod, &asked(), &PlacementNode { inventory, settings, allocations });
        assert_eq!(grant.map(|grant| (grant.labels, grant.qos)), Some((labels, Some(pod.qos))));
    }

    #[test]
    fn what_is_no_record_of_any_version_is_refused_with_words() {
        for (from, to, said) in [
            ("\"hints\"", "\"magic\"", "\"magic\" is no engine and no policy"),
            ("\"engine\"", "\"motor\"", "it has no grant, nor the fields of an older one"),
        ] {
            assert!(PARTIAL.contains(from));
            let error = serde_json::from_str::<GrantRecord>(&PARTIAL.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn what_others_gave_is_not_recorded() {
        let cgroup = CgroupPath::new("/a");
        for engine in [OTHERS, ""] {
            assert_eq!(GrantRecord::of(&cgroup, 0, &Grant { engine, ..Grant::default() }, None), None);
        }
    }

    #[test]
    fn expected_container_counts_as_taken_and_is_never_written() {
        let mut allocations = Allocations::default();
        let records = BTreeMap::from([("x".to_owned(), record("4-5", None))]);
        let mut expected = ExpectedContainers::default();
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
