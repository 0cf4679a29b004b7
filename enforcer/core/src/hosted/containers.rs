//! The containers of a node, as the runtime reports them: one by one, by id.
//!
//! Problem: pods are placed as a whole, but a runtime creates one container after another, ends them in any
//! order, restarts them under new ids, and sometimes lists all of them again. Idea: remember the known part
//! of each pod, and place the pod again with each container that is created or changed. Existing grants are
//! the `previous` of the request, which the engines keep. Grants are in the [`Allocations`]; this module maps
//! ids and cgroups to holders.
//!
//! A container without a place is not refused: its pod would not start. It is *unplaced*: it runs on all CPUs
//! that no other container has exclusively, and the cause is reported.
//! A container with a cpuset of another owner is *given*: the CPUs in its creation request count as taken,
//! and the daemon never changes it.
//! A container with resource claims is *claiming*: it has what the claims give it, and no engine places or
//! moves it.
//! After a restart of the daemon a container keeps its place as far as that is still a valid answer. The
//! cpuset of its cgroup takes precedence over the one that the runtime has stored: a late answer or a turn
//! may have written it since. The record of its grant ([`GrantRecord`]) tells which of these CPUs are
//! exclusive, as far as the cgroup agrees.
//! A new container with the name of an earlier one of the same pod inherits its grant, unless a process of
//! the earlier one is still running. In this case the earlier one is set *apart*: it keeps its grant as a
//! separate holder until it ends, and the new one gets a place beside it.
//!
//! Terminology: *own* is the result for the container that a call is about, *others* are the changes for
//! other running containers.
//!
//! Cost: that of placing one pod, and a pass over the containers of that pod.

mod previous;
mod recorded;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::previous::{DecidedContainer, LONGEST_DECISION};
use numa_placement::external::UNPLACED;

use super::{external, grant_record::ExpectedContainers};
use crate::{
    dra::ClaimUid,
    hosted::GrantRecord,
    owner::{Owner, Ownership},
    policy::placement::PlacementSettings,
    workload::{CgroupPath, QosClass},
};
use numa_placement::{
    Allocations, Candidate, ContainerRequest, CpuClass, Grant, Holder, Inventory, PodName, PodRequest,
    Rejection, SharedCpus, Trace, Update,
    admission::{give_apart, remove_container, settle_others},
    admit_traced,
    pools::Documents,
    remove, resize_traced, settle_overflow, unspill,
};
use numa_topology::set::{CpuSet, NodeSet};

/// Node on which containers are placed.
#[derive(Debug)]
pub struct PlacementNode<'a> {
    /// Resources of the machine.
    pub inventory: &'a Inventory,
    /// Placement settings.
    pub settings: &'a PlacementSettings,
    /// Current allocations.
    pub allocations: &'a mut Allocations,
}

/// A container as the runtime reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Announced {
    /// Its id, unique on the node.
    pub id: String,
    /// Its cgroup, if the runtime's name of it can be parsed.
    pub cgroup: Option<CgroupPath>,
    /// Its pod, with only this container.
    pub pod: PodRequest,
    /// For a running container: CPUs and memory nodes in the runtime's store; empty if none are set.
    pub now: Cpuset,
    /// Cpuset of its cgroup, if it was read; takes precedence over the stored one.
    pub shown: Option<Cpuset>,
    /// Owner of its cpuset, if that is another controller: the daemon does not change it then.
    pub given: Option<Ownership>,
    /// Resource claims that it names.
    pub named_claims: BTreeSet<ClaimUid>,
    /// What its resource claims give it, if it has any.
    pub claimed: Option<Grant>,
    /// Whether its entry has `enforce = false`: the daemon does not change it, and no CPUs count as its own.
    pub opts_out: bool,
}

/// CPUs and memory nodes to write; absent ones are not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpuset {
    /// CPUs, never empty.
    pub cpus: Option<CpuSet>,
    /// Memory nodes, never empty.
    pub mems: Option<NodeSet>,
}

impl Cpuset {
    /// Is there nothing to write?
    pub const fn is_empty(&self) -> bool {
        self.cpus.is_none() && self.mems.is_none()
    }

    /// The pinned part of a grant, where `taken` are the exclusive CPUs of all holders.
    pub fn of(grant: &Grant, taken: &CpuSet) -> Self {
        let cpus = grant.pin_cpus.then(|| grant.cpus(taken)).filter(|cpus| !cpus.is_empty());
        let mems = grant.pin_mems.then(|| grant.mems(taken)).filter(|mems| !mems.is_empty());
        Self { cpus, mems }
    }

    /// Adds the memory nodes of these GPUs, which a container may use as long as its memory nodes are not
    /// restricted. A restriction must not take them away.
    #[must_use]
    pub fn with_gpu_memory(mut self, gpus: &NodeSet) -> Self {
        if let Some(mems) = &mut self.mems {
            mems.extend(gpus);
        }
        self
    }

    /// Keeps the memory nodes `now` of a running container. Only a turn changes them: it first moves pages
    /// off a node that is removed, and checks whether the write would change memory policies that processes
    /// have set (the kernel rewrites these by position). The nodes are written even if the grant pins none:
    /// the runtime would otherwise write its stored ones. Returns whether a node remains to be added.
    pub fn keep_memory(&mut self, now: &Self) -> bool {
        let missing = self.mems.as_ref().zip(now.mems.as_ref());
        let is_missing = missing.is_some_and(|(wanted, now)| !wanted.is_subset(now));
        self.mems.clone_from(&now.mems);
        is_missing
    }

    /// Does this add CPUs to `now` without removing any? Then it can wait for a turn: no other container gets
    /// CPUs of this one.
    pub fn only_adds_cpus(&self, now: &Self) -> bool {
        let both = self.cpus.as_ref().zip(now.cpus.as_ref());
        both.is_some_and(|(wanted, now)| wanted != now && now.is_subset(wanted))
    }

    /// The parts that differ from `other`.
    fn beside(self, other: &Self) -> Self {
        Self {
            cpus: self.cpus.filter(|cpus| other.cpus.as_ref() != Some(cpus)),
            mems: self.mems.filter(|mems| other.mems.as_ref() != Some(mems)),
        }
    }

    /// This, with the absent parts taken from `other`.
    fn or(self, other: Self) -> Self {
        Self { cpus: self.cpus.or(other.cpus), mems: self.mems.or(other.mems) }
    }
}

/// Result of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallOutcome {
    /// Cpuset of the container itself.
    pub own: Cpuset,
    /// Changed cpusets of other containers, by id.
    pub others: BTreeMap<String, Cpuset>,
    /// Containers without a place, by id, with the cause.
    pub rejections: BTreeMap<String, Rejection>,
    /// Warnings about annotations and settings.
    pub warnings: Vec<String>,
    /// Inputs of the decisions, by id of container.
    pub weighed: BTreeMap<String, DecisionInputs>,
}

/// Request of one container, and the places considered for it.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionInputs {
    /// Its request.
    pub asked: ContainerRequest,
    /// `QoS` class of its pod.
    pub qos: QosClass,
    /// All places, each with the comparison that decided.
    pub candidates: Vec<Candidate>,
}

/// The containers of a node.
#[derive(Debug, Clone, Default)]
pub struct Containers {
    pods: BTreeMap<PodName, KnownPod>,
    holders: BTreeMap<String, Holder>,
    expected: ExpectedContainers,
    /// Containers that have ended while a process of them may still be running.
    departing: BTreeSet<String>,
}

/// Known part of a pod.
#[derive(Debug, Clone)]
struct KnownPod {
    /// Request with all containers that have a place.
    request: PodRequest,
    /// All containers by their name in the pod.
    members: BTreeMap<String, Member>,
}

#[derive(Debug, Clone)]
struct Member {
    id: String,
    cgroup: Option<CgroupPath>,
}

impl Containers {
    /// Adds containers that had a grant before the daemon started, by id. Until the runtime lists its
    /// containers, these grants count as taken.
    pub fn expect(&mut self, allocations: &mut Allocations, records: BTreeMap<String, GrantRecord>) {
        self.expected.add(records, allocations);
    }

    /// Removes expected containers without a cgroup.
    pub fn expect_only(&mut self, allocations: &mut Allocations, is_there: impl Fn(&CgroupPath) -> bool) {
        if self.expected.retain(allocations, is_there) {
            unspill(allocations);
        }
    }

    /// Marks a container as ended while a process of it is still running: it keeps its grant until
    /// [`Self::end`], even if the runtime no longer lists it.
    pub fn depart(&mut self, id: &str) {
        if self.holders.contains_key(id) {
            self.departing.insert(id.to_owned());
        }
    }

    /// Id of another container with the same name in the same pod.
    pub fn namesake(&self, new: &Announced) -> Option<&str> {
        let asked = new.pod.containers.first()?;
        let member = self.pods.get(&new.pod.name)?.members.get(&asked.name)?;
        (member.id != new.id).then_some(member.id.as_str())
    }

    /// Sets a container apart: a new one with its name is created while a process of it is still running. It
    /// keeps its grant and its position, as the only container of a separate pod.
    pub fn set_apart(&mut self, allocations: &mut Allocations, id: &str) {
        let Some(holder) = self.holders.get(id).filter(|holder| !holder.is_given()).cloned() else { return };
        let Some(pod) = self.pods.get_mut(holder.pod()) else { return };
        let Some(member) = pod.members.remove(holder.name()) else { return };
        let uid = format!("{}/{id}", holder.pod().uid);
        let apart = Holder::new(holder.pod().clone().with_uid(uid), holder.name().to_owned());
        let mut request = PodRequest { name: apart.pod().clone(), ..pod.request.clone() };
        request.containers.retain(|container| container.name == holder.name());
        pod.request.containers.retain(|container| container.name != holder.name());
        if pod.members.is_empty() {
            self.pods.remove(holder.pod());
        }
        let members = BTreeMap::from([(holder.name().to_owned(), member)]);
        self.pods.insert(apart.pod().clone(), KnownPod { request, members });
        let turn = allocations.arrival_seq(&holder);
        if let Some((turn, grant)) = turn.zip(allocations.release(&holder)) {
            allocations.give_at(apart.clone(), grant, turn);
        }
        self.holders.insert(id.to_owned(), apart);
    }

    /// Cgroups of all known and expected containers, by id.
    pub fn all_cgroups(&self) -> BTreeMap<String, CgroupPath> {
        let known = self.holders.iter().filter_map(|(id, holder)| Some((id, self.cgroup_of(holder)?)));
        let all = known.chain(self.expected.by_id());
        all.map(|(id, cgroup)| (id.clone(), cgroup.clone())).collect()
    }

    /// Is this the cgroup of an expected container?
    pub fn expects(&self, cgroup: &CgroupPath) -> bool {
        self.expected.has(cgroup)
    }

    /// Cgroup of the expected container with this id.
    pub fn expected_cgroup(&self, id: &str) -> Option<&CgroupPath> {
        self.expected.cgroup(id)
    }

    /// Expected containers with their grants.
    pub fn expected(&self) -> impl Iterator<Item = (&CgroupPath, Grant)> {
        self.expected.all()
    }

    /// Records of all grants by container id, for the next daemon.
    pub fn records(&self, allocations: &Allocations) -> BTreeMap<String, GrantRecord> {
        self.holders.keys().filter_map(|id| Some((id.clone(), self.record(allocations, id)?))).collect()
    }

    /// Record of one container's grant.
    pub fn record(&self, allocations: &Allocations, id: &str) -> Option<GrantRecord> {
        let holder = self.holders.get(id)?;
        let cgroup = self.member(holder)?.cgroup.as_ref()?;
        let asked = self.pods.get(holder.pod()).and_then(|pod| pod.request.container(holder.name()));
        let (turn, grant) = (allocations.arrival_seq(holder).unwrap_or(0), allocations.get(holder)?);
        GrantRecord::of(cgroup, turn, grant, asked)
    }

    /// Handles a container that is about to be created, or an expected one that is found running.
    pub fn create(&mut self, node: &mut PlacementNode<'_>, new: &Announced) -> CallOutcome {
        let record = self.expected.take(node.allocations, &new.id);
        let mut settled = self.come(node, new, record.as_ref());
        if record.is_some() {
            let of_pod = || Holder::new(new.pod.name.clone(), String::new());
            let holder = self.holders.get(&new.id).cloned().unwrap_or_else(of_pod);
            let before = self.cpusets(node, &holder);
            let updates = settle_others(node.inventory, node.allocations, holder.pod());
            self.others(&gpus_of(node), updates, &mut settled);
            self.add_changes(node, &holder, &before, &mut settled);
        }
        settled
    }

    /// Adds a container that has its grant already, and changes nothing.
    pub(crate) fn take_over(&mut self, there: &Announced) {
        let Some(asked) = there.pod.containers.first().cloned() else { return };
        let holder = Holder::new(there.pod.name.clone(), asked.name.clone());
        self.note(&holder, there, there.seen());
        if let Some(pod) = self.pods.get_mut(holder.pod()) {
            pod.request.containers.push(asked);
        }
    }

    /// Adds a container with its record from before the daemon started, if there is one. The record is used
    /// as far as the kernel confirms it; its position in the order of arrival is always used.
    fn come(
        &mut self,
        node: &mut PlacementNode<'_>,
        new: &Announced,
        record: Option<&GrantRecord>,
    ) -> CallOutcome {
        let had = record.filter(|record| record.holds(new.set_to()) && record.is_placed());
        let Some(asked) = new.pod.containers.first().cloned() else { return CallOutcome::default() };
        if let Some(ownership) = &new.given {
            return self.give_up(node, &new.id, &asked.name, new.cgroup.as_ref(), ownership);
        }
        if new.opts_out {
            return self.end(node, &new.id);
        }
        if let Some(grant) = &new.claimed {
            let mut settled = self.hold_claimed(node, &new.id, &asked.name, new.cgroup.as_ref(), grant);
            let weighed = DecisionInputs { asked, qos: new.pod.qos, candidates: Vec::new() };
            settled.weighed.insert(new.id.clone(), weighed);
            return settled;
        }
        let holder = Holder::new(new.pod.name.clone(), asked.name.clone());
        let mut settled = CallOutcome::default();
        // This id may have been another container before.
        if self.holders.get(&new.id).is_some_and(|known| *known != holder) {
            settled = self.end(node, &new.id);
        }
        // A container of that name has ended, reported or not: a running one was set apart before.
        let replaced = self.member(&holder).map(|member| member.id.clone());
        if let Some(old) = replaced.filter(|old| *old != new.id) {
            if self.departing.remove(&old) {
                // No other container can have its CPUs yet, so the new one inherits them.
                self.holders.remove(&old);
            } else {
                settled.others.extend(self.end(node, &old).others);
            }
        }
        let previous = had.map(GrantRecord::grant).or_else(|| new.seen()).or_else(|| new.decided(node));
        self.note(&holder, new, previous);
        let before = self.cpusets(node, &holder);
        let answer = had.and_then(|had| had.still_answers(&new.pod, &asked, node));
        match (answer, record.map(|record| record.turn)) {
            (Some(grant), turn) => self.adopt(node, &holder, asked, (grant, turn.unwrap_or(0))),
            (None, turn) => {
                if let Some(turn) = turn.filter(|_| node.allocations.get(&holder).is_none()) {
                    // It is placed again and keeps its position.
                    let nothing = Grant { engine: UNPLACED, policy: UNPLACED, ..Grant::default() };
                    node.allocations.give_at(holder.clone(), nothing, turn);
                }
                self.place(node, &holder, asked, None, &mut settled);
            }
        }
        self.add_changes(node, &holder, &before, &mut settled);
        settled
    }

    /// Marks the cpuset of a container as another owner's: the CPUs that the owner gave count as taken, the
    /// daemon's own grant is released, and the daemon no longer changes the container. If the owner is
    /// unknown, its current CPUs stay taken.
    pub fn give_up(
        &mut self,
        node: &mut PlacementNode<'_>,
        id: &str,
        name: &str,
        cgroup: Option<&CgroupPath>,
        ownership: &Ownership,
    ) -> CallOutcome {
        let holder = Holder::given(id, name);
        let grant = external::given(ownership, &holder, node.inventory, node.allocations);
        let known = self.holders.get(id).cloned();
        let nothing_new = ownership.owner == Owner::Unknown || node.allocations.get(&holder) == Some(&grant);
        if known.as_ref() == Some(&holder) && nothing_new {
            return CallOutcome::default();
        }
        let (cgroup, mut settled) = self.leave_other(node, id, &holder, cgroup);
        let disbelieved = ownership.cpus.as_ref().map(|named| named.difference(&grant.exclusive));
        if let Some(cpus) = disbelieved.filter(|cpus| !cpus.is_empty()) {
            let why =
                "they are set aside or a resource claim has them, or other containers would have none left";
            settled
                .warnings
                .push(format!("{name} has a mark with the CPUs {cpus}, which do not count as taken: {why}"));
        }
        self.stand_apart(node, id, (holder, grant), cgroup, &mut settled);
        settled
    }

    /// Gives a container what its resource claims have, in place of what an engine gave it.
    pub fn hold_claimed(
        &mut self,
        node: &mut PlacementNode<'_>,
        id: &str,
        name: &str,
        cgroup: Option<&CgroupPath>,
        grant: &Grant,
    ) -> CallOutcome {
        let holder = Holder::claiming(id, name);
        let (cgroup, mut settled) = self.leave_other(node, id, &holder, cgroup);
        self.stand_apart(node, id, (holder, grant.clone()), cgroup, &mut settled);
        settled.own = self.cpuset(node, id).unwrap_or_default();
        settled
    }

    /// Releases what a container has as another holder; returns its cgroup beside what changes by that.
    fn leave_other(
        &mut self,
        node: &mut PlacementNode<'_>,
        id: &str,
        holder: &Holder,
        cgroup: Option<&CgroupPath>,
    ) -> (Option<CgroupPath>, CallOutcome) {
        let known = self.holders.get(id).cloned();
        let cgroup = cgroup.cloned().or_else(|| self.member(known.as_ref()?)?.cgroup.clone());
        let is_other = known.is_some_and(|known| known != *holder);
        let settled = if is_other { self.end(node, id) } else { CallOutcome::default() };
        (cgroup, settled)
    }

    /// Holds a container as the only one of a pod that no engine knows.
    fn stand_apart(
        &mut self,
        node: &mut PlacementNode<'_>,
        id: &str,
        (holder, grant): (Holder, Grant),
        cgroup: Option<CgroupPath>,
        settled: &mut CallOutcome,
    ) {
        let updates = give_apart(node.inventory, node.allocations, &holder, grant);
        let request = PodRequest {
            name: holder.pod().clone(),
            qos: QosClass::Guaranteed,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            documents: Documents::default(),
            containers: Vec::new(),
            previous: BTreeMap::new(),
            undescribed: None,
        };
        let members = BTreeMap::from([(holder.name().to_owned(), Member { id: id.to_owned(), cgroup })]);
        self.pods.insert(holder.pod().clone(), KnownPod { request, members });
        self.holders.insert(id.to_owned(), holder);
        self.others(&gpus_of(node), updates, settled);
    }

    /// Changes the amounts of a container. If they do not fit, it keeps its grant. An unknown container is
    /// not placed: its creation was not reported.
    pub fn resize(&mut self, node: &mut PlacementNode<'_>, changed: Announced) -> CallOutcome {
        let mut settled = CallOutcome::default();
        let Some(holder) = self.holders.get(&changed.id).cloned() else { return settled };
        if let Some(ownership) = &changed.given {
            return self.give_up(node, &changed.id, holder.name(), None, ownership);
        }
        if changed.opts_out {
            return self.end(node, &changed.id);
        }
        if let Some(grant) = &changed.claimed {
            return self.hold_claimed(node, &changed.id, holder.name(), None, grant);
        }
        if holder.is_given() || holder.is_claiming() {
            return settled;
        }
        let Some(asked) = changed.pod.containers.into_iter().next() else { return settled };
        let before = self.cpusets(node, &holder);
        let had = self.pods.get(holder.pod()).and_then(|pod| pod.request.container(holder.name())).cloned();
        // The runtime reports amounts with every update; usually they are unchanged.
        if had.as_ref().is_none_or(|had| had.requests != asked.requests || had.limits != asked.limits) {
            self.place(node, &holder, asked, had, &mut settled);
        }
        self.add_changes(node, &holder, &before, &mut settled);
        settled
    }

    /// Removes an ended container and releases its grant. A second call has no effect.
    pub fn end(&mut self, node: &mut PlacementNode<'_>, id: &str) -> CallOutcome {
        let mut settled = CallOutcome::default();
        self.expected.take(node.allocations, id);
        self.departing.remove(id);
        let Some(holder) = self.holders.remove(id) else { return settled };
        let before = self.cpusets(node, &holder);
        let updates = match self.pods.get_mut(holder.pod()) {
            Some(pod) => {
                pod.members.remove(holder.name());
                pod.request.containers.retain(|container| container.name != holder.name());
                if pod.members.is_empty() {
                    self.pods.remove(holder.pod());
                    remove(node.allocations, holder.pod())
                } else {
                    remove_container(node.allocations, &holder)
                }
            }
            None => remove(node.allocations, holder.pod()),
        };
        self.others(&gpus_of(node), updates, &mut settled);
        self.add_changes(node, &holder, &before, &mut settled);
        settled.own = Cpuset::default();
        settled
    }

    /// Replaces the list of containers by the runtime's. Containers that are missing in `all` are removed,
    /// except expected ones with an `awaited` cgroup, which the runtime is creating. Existing grants stay.
    /// Containers without a grant, and those that another owner no longer owns, are placed, starting with
    /// those that can keep their CPUs. `others` has every container with a cpuset that differs from its
    /// grant.
    pub fn synchronize(
        &mut self,
        node: &mut PlacementNode<'_>,
        all: Vec<Announced>,
        awaited: &BTreeSet<CgroupPath>,
    ) -> CallOutcome {
        let mut settled = CallOutcome::default();
        let there: BTreeSet<&str> = all.iter().map(|one| one.id.as_str()).collect();
        self.departing.retain(|id| !there.contains(id.as_str()));
        let is_gone = |id: &&String| !there.contains(id.as_str()) && !self.departing.contains(*id);
        let gone: Vec<String> = self.holders.keys().filter(is_gone).cloned().collect();
        for id in gone {
            // Changes for other containers are computed below.
            self.end(node, &id);
        }
        let set_to = |one: &Announced| (one.id.clone(), (one.now.clone(), one.shown.clone()));
        let set_to: BTreeMap<String, (Cpuset, Option<Cpuset>)> = all.iter().map(set_to).collect();
        let is_over = |id: &str, cgroup: &CgroupPath| set_to.contains_key(id) || !awaited.contains(cgroup);
        let records = self.expected.take_all(node.allocations, is_over);
        let mut coming = Vec::new();
        let placed = |holder: &Holder| !holder.is_given() && !holder.is_claiming();
        let ours = |one: &Announced| self.holders.get(&one.id).is_some_and(placed);
        let stands_apart = |one: &Announced| one.given.is_some() || one.claimed.is_some() || one.opts_out;
        for one in all.into_iter().filter(|one| stands_apart(one) || !ours(one)) {
            let record = records.get(&one.id);
            let holds = record.is_some_and(|record| record.is_placed() && record.holds(one.set_to()));
            let asked = one.pod.containers.first();
            let again = !asked.zip(record).is_some_and(|(asked, record)| holds && record.asks_for(asked));
            let is_new = !holds && one.kept_cpus().is_none();
            coming.push((is_new, again, record.map_or(u64::MAX, |record| record.turn), record, one));
        }
        // Containers with a valid record come first, then those with CPUs to keep, each in order of arrival.
        coming.sort_by_key(|(is_new, again, turn, ..)| (*is_new, *again, *turn));
        for (.., record, one) in coming {
            let namesake = self.namesake(&one).map(str::to_owned);
            let runs = |id: &String| set_to.contains_key(id) || self.departing.contains(id);
            if let Some(old) = namesake.filter(runs) {
                self.set_apart(node.allocations, &old);
            }
            let placed = self.come(node, &one, record);
            settled
                .rejections
                .extend(placed.rejections.into_iter().filter(|(rejected, _)| *rejected == one.id));
            settled.warnings.extend(placed.warnings);
            settled.weighed.extend(placed.weighed);
        }
        // Only after all were added: before that, shared CPUs look emptier than they are.
        settle_overflow(node.inventory, node.allocations);
        let taken = node.allocations.exclusive_cpus();
        let gpus = gpus_of(node);
        for (id, holder) in &self.holders {
            let Some(grant) = node.allocations.get(holder) else { continue };
            let wanted = Cpuset::of(grant, &taken).with_gpu_memory(&gpus);
            let mut other = wanted.clone();
            if let Some((stored, shown)) = set_to.get(id) {
                // Both must match: the runtime writes its stored cpuset at the next update.
                let in_cgroup = wanted.clone().beside(shown.as_ref().unwrap_or(stored));
                other = wanted.beside(stored).or(in_cgroup);
            }
            if !other.is_empty() {
                settled.others.insert(id.clone(), other);
            }
        }
        settled
    }

    /// Cgroups and holders of all containers, including given ones.
    pub fn cgroups(&self) -> impl Iterator<Item = (&CgroupPath, &Holder)> {
        self.holders.values().filter_map(|holder| Some((self.cgroup_of(holder)?, holder)))
    }

    /// Cgroup of a container, if the runtime's name of it could be parsed.
    pub fn cgroup(&self, id: &str) -> Option<&CgroupPath> {
        self.cgroup_of(self.holders.get(id)?)
    }

    /// Cgroup of a holder.
    pub fn cgroup_of(&self, holder: &Holder) -> Option<&CgroupPath> {
        self.member(holder)?.cgroup.as_ref()
    }

    /// Holder with this container id.
    pub fn holder(&self, id: &str) -> Option<&Holder> {
        self.holders.get(id)
    }

    /// The cpuset that a container should have.
    pub fn cpuset(&self, node: &PlacementNode<'_>, id: &str) -> Option<Cpuset> {
        let grant = node.allocations.get(self.holders.get(id)?)?;
        let cpuset = Cpuset::of(grant, &node.allocations.exclusive_cpus());
        Some(cpuset.with_gpu_memory(&gpus_of(node)))
    }

    fn member(&self, holder: &Holder) -> Option<&Member> {
        self.pods.get(holder.pod())?.members.get(holder.name())
    }

    fn note(&mut self, holder: &Holder, new: &Announced, previous: Option<Grant>) {
        let pod = self.pods.entry(holder.pod().clone()).or_insert_with(|| {
            let request = PodRequest { containers: Vec::new(), ..new.pod.clone() };
            KnownPod { request, members: BTreeMap::new() }
        });
        let known = std::mem::take(&mut pod.request.containers);
        let previous = previous.map(|grant| (holder.name().to_owned(), grant));
        pod.request =
            PodRequest { containers: known, previous: previous.into_iter().collect(), ..new.pod.clone() };
        let member = Member { id: new.id.clone(), cgroup: new.cgroup.clone() };
        pod.members.insert(holder.name().to_owned(), member);
        self.holders.insert(new.id.clone(), holder.clone());
    }

    /// Keeps the grant from before the restart, and its position. Its CPUs counted as taken in between, so no
    /// other container has to move.
    fn adopt(
        &mut self,
        node: &mut PlacementNode<'_>,
        holder: &Holder,
        asked: ContainerRequest,
        (grant, turn): (Grant, u64),
    ) {
        if let Some(pod) = self.pods.get_mut(holder.pod()) {
            pod.request.containers.push(asked);
            pod.request.previous.clear();
        }
        node.allocations.give_at(holder.clone(), grant, turn);
    }

    /// Places a pod including `asked`. On failure the pod is unchanged: the container keeps `had`, or is
    /// unplaced.
    fn place(
        &mut self,
        node: &mut PlacementNode<'_>,
        holder: &Holder,
        asked: ContainerRequest,
        had: Option<ContainerRequest>,
        settled: &mut CallOutcome,
    ) {
        let Some(pod) = self.pods.get_mut(holder.pod()) else { return };
        let mut weighed =
            DecisionInputs { asked: asked.clone(), qos: pod.request.qos, candidates: Vec::new() };
        let at = pod.request.containers.iter().position(|container| container.name == holder.name());
        if let Some(at) = at {
            pod.request.containers[at] = asked;
        } else {
            // In order of arrival: an unplaced container may be older than placed ones.
            let turn = |name: &str| {
                let holder = Holder::new(holder.pod().clone(), name.to_owned());
                node.allocations.arrival_seq(&holder).unwrap_or(u64::MAX)
            };
            let own = turn(holder.name());
            let before = pod.request.containers.iter().take_while(|other| turn(&other.name) <= own);
            let position = before.count();
            pod.request.containers.insert(position, asked);
        }
        let unplaced: Vec<(Holder, u64, Grant)> = node
            .allocations
            .with_arrival_seqs()
            .filter(|(other, _, grant)| other.pod() == holder.pod() && grant.engine == UNPLACED)
            .filter(|(other, ..)| *other != holder)
            .map(|(other, turn, grant)| (other.clone(), turn, grant.clone()))
            .collect();
        for (other, ..) in &unplaced {
            node.allocations.release(other);
        }
        let known = node.allocations.of_pod(holder.pod()).next().is_some();
        let mut trace = Trace::wanted();
        let place = if known { resize_traced } else { admit_traced };
        let outcome = place(node.inventory, node.settings, node.allocations, &pod.request, &mut trace);
        let (candidates, warnings) = trace.into_parts();
        settled.warnings.extend(warnings);
        // Candidates of a pod that is aligned as a whole have no container name.
        let of_it = |one: &Candidate| one.container.is_empty() || one.container == holder.name();
        weighed.candidates = candidates.into_iter().filter(of_it).collect();
        if let Some(member) = pod.members.get(holder.name()) {
            settled.weighed.insert(member.id.clone(), weighed);
        }
        pod.request.previous.clear();
        for (other, turn, grant) in unplaced {
            node.allocations.give_at(other, grant, turn);
        }
        let rejection = match outcome {
            Ok(admission) => return self.others(&gpus_of(node), admission.updates, settled),
            Err(rejection) => rejection,
        };
        match had.zip(at) {
            Some((had, at)) => pod.request.containers[at] = had,
            None => pod.request.containers.retain(|container| container.name != holder.name()),
        }
        if node.allocations.get(holder).is_none_or(|grant| grant.engine == UNPLACED) {
            node.allocations.give(holder.clone(), left_over(node.inventory, &rejection));
        }
        if let Some(member) = pod.members.get(holder.name()) {
            settled.rejections.insert(member.id.clone(), rejection);
        }
    }

    /// Adds the changes for other containers of the pod, and the cpuset of the container itself.
    fn add_changes(
        &self,
        node: &PlacementNode<'_>,
        holder: &Holder,
        before: &BTreeMap<String, Cpuset>,
        settled: &mut CallOutcome,
    ) {
        for (id, mut cpuset) in self.cpusets(node, holder) {
            if self.holders.get(&id) == Some(holder) {
                settled.own = cpuset;
                continue;
            }
            if let Some(had) = before.get(&id) {
                cpuset = cpuset.beside(had);
            }
            if !cpuset.is_empty() {
                settled.others.insert(id, cpuset);
            }
        }
    }

    /// Cpusets of the containers of the holder's pod, by id.
    fn cpusets(&self, node: &PlacementNode<'_>, holder: &Holder) -> BTreeMap<String, Cpuset> {
        let taken = node.allocations.exclusive_cpus();
        let gpus = gpus_of(node);
        let members = self.pods.get(holder.pod()).into_iter().flat_map(|pod| &pod.members);
        members
            .filter_map(|(name, member)| {
                let grant = node.allocations.get(&Holder::new(holder.pod().clone(), name.clone()))?;
                Some((member.id.clone(), Cpuset::of(grant, &taken).with_gpu_memory(&gpus)))
            })
            .collect()
    }

    fn others(&self, gpus: &NodeSet, updates: Vec<Update>, settled: &mut CallOutcome) {
        for Update { holder, cpus, mems } in updates {
            if let Some(member) = self.member(&holder) {
                let cpus = cpus.filter(|cpus| !cpus.is_empty());
                let cpuset = Cpuset { cpus, mems }.with_gpu_memory(gpus);
                settled.others.insert(member.id.clone(), cpuset);
            }
        }
    }
}

impl Announced {
    /// Its current CPUs and memory nodes, as far as known.
    pub fn set_to(&self) -> &Cpuset {
        self.shown.as_ref().unwrap_or(&self.now)
    }
}

/// All CPUs that no other container has exclusively, if there are any.
fn left_over(inventory: &Inventory, rejection: &Rejection) -> Grant {
    let scope = inventory.shareable_cpus();
    Grant {
        engine: UNPLACED,
        policy: UNPLACED,
        class: CpuClass::Shared,
        shared: Some(SharedCpus::new(scope, 0)),
        pin_cpus: true,
        reason: rejection.to_string(),
        ..Grant::default()
    }
}

fn gpus_of(node: &PlacementNode<'_>) -> NodeSet {
    node.inventory.machine.gpu_memory_nodes()
}

#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;
