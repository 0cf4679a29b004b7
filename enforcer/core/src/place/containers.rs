//! The containers of a node, as a runtime announces them: one by one, by id.
//!
//! Problem: pods are placed as a whole, but a runtime makes one container after another, ends them in any
//! order, restarts them under new ids, and sometimes says again what there is. Idea: remember of each pod
//! what is known of it by now, and place it anew with each container that comes or changes; what was given
//! already is its `previous`, which the engines keep. Grants stay in the [`Allocations`]: here is only which
//! id and which cgroup belong to which holder.
//!
//! A container that has no place is not turned away: its pod would not start. It is *unplaced*: it runs on
//! whatever nobody has for itself, so that exclusive CPUs of others stay theirs, and it is said why.
//!
//! A container whose cpuset is somebody else's is *given*: what it came with counts as taken, and it is never
//! set.
//!
//! After a restart of the daemon a container stays where it is as far as that is still a valid answer. What
//! its cgroup shows counts more than what its runtime has stored: an answer that was too late, or a turn, may
//! have set it since. Which of these CPUs are its own is told by the record of its grant ([`GrantRecord`]),
//! as far as the cgroup agrees.
//!
//! A container that comes with the name of one of the same pod goes on with what that one had, unless a
//! process of it runs still. Then that one is set *apart*: it keeps what it was given as a holder of its own
//! until it ends, and the new one is placed beside it.
//!
//! Terminology. *Own* is what the container gets that the call is about, *others* is what changes for
//! containers that run.
//!
//! Cost: that of placing one pod, and a look at the containers of that pod.

mod recorded;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Allocations, Candidate, ContainerRequest, CpuClass, Grant, GrantRecord, Holder, Inventory, PodName,
    PodRequest, Rejection, SharedCpus, Trace, Update,
    admission::{give_apart, remove_container, settle_home},
    admit, bring_home,
    grant_record::Expected,
    held,
    pools::Documents,
    remove, resize,
};
use crate::{
    owner::{Owner, Ownership},
    policy::placement::PlacementSettings,
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, QosClass},
};

/// Engine of a grant that no engine gave.
pub const UNPLACED: &str = "none";

/// The node on which containers are placed.
#[derive(Debug)]
pub struct Node<'a> {
    /// What the machine has.
    pub inventory: &'a Inventory,
    /// How pods are placed.
    pub settings: &'a PlacementSettings,
    /// What is given away.
    pub allocations: &'a mut Allocations,
}

/// A container that a runtime tells of.
#[derive(Debug, Clone, PartialEq)]
pub struct Announced {
    /// Its id, unique on the node.
    pub id: String,
    /// Its cgroup, where the runtime's name of it is understood.
    pub cgroup: Option<CgroupPath>,
    /// Its pod, with this container alone.
    pub pod: PodRequest,
    /// CPUs and memory nodes that it has been set to, for one that runs, as its runtime has stored them;
    /// empty where it was not.
    pub now: Cpuset,
    /// What its cgroup is set to, where that was looked at; it counts more than what is stored.
    pub shown: Option<Cpuset>,
    /// Whose cpuset it is, if it is another's: then it is left alone.
    pub given: Option<Ownership>,
    /// It is declared to be left alone: it is set to nothing, and takes nothing from anybody.
    pub opts_out: bool,
}

/// CPUs and memory nodes to be set; what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpuset {
    /// CPUs, never empty.
    pub cpus: Option<CpuSet>,
    /// Memory nodes, never empty.
    pub mems: Option<NodeSet>,
}

impl Cpuset {
    /// Nothing to be set.
    pub const fn is_empty(&self) -> bool {
        self.cpus.is_none() && self.mems.is_none()
    }

    /// What a grant pins, when `taken` are the exclusive CPUs of all.
    pub fn of(grant: &Grant, taken: &CpuSet) -> Self {
        let cpus = grant.pin_cpus.then(|| grant.cpus(taken)).filter(|cpus| !cpus.is_empty());
        let mems = grant.pin_mems.then(|| grant.mems(taken)).filter(|mems| !mems.is_empty());
        Self { cpus, mems }
    }

    /// The same with memory of these GPUs, which a container may use where nothing is written of its memory
    /// nodes: what is written instead must not take it away.
    #[must_use]
    pub fn with_gpu_memory(mut self, gpus: &NodeSet) -> Self {
        if let Some(mems) = &mut self.mems {
            mems.extend(gpus);
        }
        self
    }

    /// Leaves the memory nodes of a container that runs and is set to `now` as they are. Only a turn changes
    /// them: before a node goes it moves the pages there, and before any write it asks what that would change
    /// of the memory policies that processes have set, which the kernel rewrites by position. They are named
    /// also where none are wanted: a runtime writes what it has stored otherwise. Returns whether a node is
    /// missing until then.
    pub fn keep_memory(&mut self, now: &Self) -> bool {
        let missing = self.mems.as_ref().zip(now.mems.as_ref());
        let is_missing = missing.is_some_and(|(wanted, now)| !wanted.is_subset(now));
        self.mems.clone_from(&now.mems);
        is_missing
    }

    /// Does this add CPUs to those of a container that is set to `now`, and take none? Then it can wait for a
    /// turn: no other container is to have what this one has.
    pub fn only_adds_cpus(&self, now: &Self) -> bool {
        let both = self.cpus.as_ref().zip(now.cpus.as_ref());
        both.is_some_and(|(wanted, now)| wanted != now && now.is_subset(wanted))
    }

    /// Of this, what is different from `other`.
    fn beside(self, other: &Self) -> Self {
        Self {
            cpus: self.cpus.filter(|cpus| other.cpus.as_ref() != Some(cpus)),
            mems: self.mems.filter(|mems| other.mems.as_ref() != Some(mems)),
        }
    }

    /// This, and of the other what this leaves open.
    fn or(self, other: Self) -> Self {
        Self { cpus: self.cpus.or(other.cpus), mems: self.mems.or(other.mems) }
    }
}

/// What came of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settled {
    /// For the container itself.
    pub own: Cpuset,
    /// For others, by id.
    pub others: BTreeMap<String, Cpuset>,
    /// Containers that have no place, by id, and why.
    pub rejections: BTreeMap<String, Rejection>,
    /// What was ignored or looks wrong in annotations and settings.
    pub warnings: Vec<String>,
    /// How it was decided about containers that were placed or not, by id.
    pub weighed: BTreeMap<String, Weighed>,
}

/// What was asked for one container, and which places were considered for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    /// What it asked for.
    pub asked: ContainerRequest,
    /// `QoS` class of its pod.
    pub qos: QosClass,
    /// Every place, and the comparison that decided.
    pub candidates: Vec<Candidate>,
}

/// The containers of a node.
#[derive(Debug, Clone, Default)]
pub struct Containers {
    pods: BTreeMap<PodName, Pod>,
    holders: BTreeMap<String, Holder>,
    expected: Expected,
    /// Those that end, and of which a process may still run.
    departing: BTreeSet<String>,
}

/// What is known of a pod.
#[derive(Debug, Clone)]
struct Pod {
    /// With all containers that have a place.
    request: PodRequest,
    /// Every container by its name in the pod.
    members: BTreeMap<String, Member>,
}

#[derive(Debug, Clone)]
struct Member {
    id: String,
    cgroup: Option<CgroupPath>,
}

impl Containers {
    /// Containers that were granted something before the daemon was started, by id, and that still have it or
    /// will: until their runtime says which containers there are, it counts as given away.
    pub fn expect(&mut self, allocations: &mut Allocations, records: BTreeMap<String, GrantRecord>) {
        self.expected.add(records, allocations);
    }

    /// Forgets those that are expected and whose cgroup is gone.
    pub fn expect_only(&mut self, allocations: &mut Allocations, is_there: impl Fn(&CgroupPath) -> bool) {
        if self.expected.retain(allocations, is_there) {
            bring_home(allocations);
        }
    }

    /// A container ends, and a process of it runs still: it keeps what it has until [`Self::end`], also where
    /// its runtime does not list it any longer.
    pub fn depart(&mut self, id: &str) {
        if self.holders.contains_key(id) {
            self.departing.insert(id.to_owned());
        }
    }

    /// The container under another id that has the name of this one in the same pod.
    pub fn namesake(&self, new: &Announced) -> Option<&str> {
        let asked = new.pod.containers.first()?;
        let member = self.pods.get(&new.pod.name)?.members.get(&asked.name)?;
        (member.id != new.id).then_some(member.id.as_str())
    }

    /// Another container comes with the name of this one, and a process of this one runs still: it keeps what
    /// it has, and its turn, as if it were the only container of another pod.
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
        self.pods.insert(apart.pod().clone(), Pod { request, members });
        let turn = allocations.turn(&holder);
        if let Some((turn, grant)) = turn.zip(allocations.release(&holder)) {
            allocations.give_at(apart.clone(), grant, turn);
        }
        self.holders.insert(id.to_owned(), apart);
    }

    /// The cgroup of each container that is known or expected, by id.
    pub fn all_cgroups(&self) -> BTreeMap<String, CgroupPath> {
        let known = self.holders.iter().filter_map(|(id, holder)| Some((id, self.cgroup_of(holder)?)));
        let all = known.chain(self.expected.by_id());
        all.map(|(id, cgroup)| (id.clone(), cgroup.clone())).collect()
    }

    /// Is this the cgroup of a container that is expected?
    pub fn expects(&self, cgroup: &CgroupPath) -> bool {
        self.expected.has(cgroup)
    }

    /// The cgroup of the container with this id, if it is expected.
    pub fn expected_cgroup(&self, id: &str) -> Option<&CgroupPath> {
        self.expected.cgroup(id)
    }

    /// Those that are expected, and what each was granted.
    pub fn expected(&self) -> impl Iterator<Item = (&CgroupPath, Grant)> {
        self.expected.all()
    }

    /// What each container was granted, by id, for the next daemon.
    pub fn records(&self, allocations: &Allocations) -> BTreeMap<String, GrantRecord> {
        self.holders.keys().filter_map(|id| Some((id.clone(), self.record(allocations, id)?))).collect()
    }

    /// The same of one.
    pub fn record(&self, allocations: &Allocations, id: &str) -> Option<GrantRecord> {
        let holder = self.holders.get(id)?;
        let cgroup = self.member(holder)?.cgroup.as_ref()?;
        let asked = self.pods.get(holder.pod()).and_then(|pod| pod.request.container(holder.name()));
        let (turn, grant) = (allocations.turn(holder).unwrap_or(0), allocations.get(holder)?);
        GrantRecord::of(cgroup, turn, grant, asked)
    }

    /// A container is about to be made, or runs and was expected.
    pub fn create(&mut self, node: &mut Node<'_>, new: &Announced) -> Settled {
        let record = self.expected.take(node.allocations, &new.id);
        let mut settled = self.come(node, new, record.as_ref());
        if record.is_some() {
            let updates = settle_home(node.allocations, &new.pod.name);
            self.others(&gpus_of(node), updates, &mut settled);
        }
        settled
    }

    /// One comes, or is found, of which this was recorded before the daemon was started. The record is
    /// followed as far as the kernel shows it; its turn counts in any case.
    fn come(&mut self, node: &mut Node<'_>, new: &Announced, record: Option<&GrantRecord>) -> Settled {
        let had = record.filter(|record| record.holds(new.set_to()) && record.is_placed());
        let Some(asked) = new.pod.containers.first().cloned() else { return Settled::default() };
        if let Some(ownership) = &new.given {
            return self.give_up(node, &new.id, &asked.name, new.cgroup.as_ref(), ownership);
        }
        if new.opts_out {
            return self.end(node, &new.id);
        }
        let holder = Holder::new(new.pod.name.clone(), asked.name.clone());
        let mut settled = Settled::default();
        // Whoever it was before, it is no longer.
        if self.holders.get(&new.id).is_some_and(|known| *known != holder) {
            settled = self.end(node, &new.id);
        }
        // One of that name has ended, whether that was told or not: one that runs was set apart before.
        let replaced = self.member(&holder).map(|member| member.id.clone());
        if let Some(old) = replaced.filter(|old| *old != new.id) {
            if self.departing.remove(&old) {
                // Nobody else may have its CPUs yet, so the container that follows it goes on with them.
                self.holders.remove(&old);
            } else {
                settled.others.extend(self.end(node, &old).others);
            }
        }
        self.note(&holder, new, had.map(GrantRecord::grant));
        let before = self.cpusets(node, &holder);
        let answer = had.and_then(|had| had.still_answers(&new.pod, &asked, node));
        match (answer, record.map(|record| record.turn)) {
            (Some(grant), turn) => self.adopt(node, &holder, asked, (grant, turn.unwrap_or(0))),
            (None, turn) => {
                if let Some(turn) = turn.filter(|_| node.allocations.get(&holder).is_none()) {
                    // It is placed anew, and came when it came.
                    let nothing = Grant { engine: UNPLACED, policy: UNPLACED, ..Grant::default() };
                    node.allocations.give_at(holder.clone(), nothing, turn);
                }
                self.place(node, &holder, asked, None, &mut settled);
            }
        }
        self.settle(node, &holder, &before, &mut settled);
        settled
    }

    /// The cpuset of a container is somebody else's: what it was given there is taken, and it is left alone.
    /// What we had given it is free. Nothing is learnt from not knowing whose it is: what it has by now stays
    /// taken.
    pub fn give_up(
        &mut self,
        node: &mut Node<'_>,
        id: &str,
        name: &str,
        cgroup: Option<&CgroupPath>,
        ownership: &Ownership,
    ) -> Settled {
        let holder = Holder::given(id, name);
        let grant = held::given(ownership, &holder, node.inventory, node.allocations);
        let known = self.holders.get(id).cloned();
        let nothing_new = ownership.owner == Owner::Unknown || node.allocations.get(&holder) == Some(&grant);
        if known.as_ref() == Some(&holder) && nothing_new {
            return Settled::default();
        }
        let cgroup = cgroup.cloned().or_else(|| self.member(known.as_ref()?)?.cgroup.clone());
        let mut settled =
            if known.is_some_and(|known| known != holder) { self.end(node, id) } else { Settled::default() };
        let disbelieved = ownership.cpus.as_ref().map(|named| named.difference(&grant.exclusive));
        if let Some(cpus) = disbelieved.filter(|cpus| !cpus.is_empty()) {
            let why = "they are set aside, or other containers would have none left";
            settled
                .warnings
                .push(format!("{name} has a mark with the CPUs {cpus}, which do not count as taken: {why}"));
        }
        let updates = give_apart(node.inventory, node.allocations, &holder, grant);
        let request = PodRequest {
            name: holder.pod().clone(),
            qos: QosClass::Guaranteed,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            documents: Documents::default(),
            containers: Vec::new(),
            previous: BTreeMap::new(),
        };
        let members = BTreeMap::from([(name.to_owned(), Member { id: id.to_owned(), cgroup })]);
        self.pods.insert(holder.pod().clone(), Pod { request, members });
        self.holders.insert(id.to_owned(), holder.clone());
        self.others(&gpus_of(node), updates, &mut settled);
        settled
    }

    /// Somebody wants other amounts for a container. If they cannot be had it keeps what it has. One that
    /// is not known is not placed: it was never created here.
    pub fn resize(&mut self, node: &mut Node<'_>, changed: Announced) -> Settled {
        let mut settled = Settled::default();
        let Some(holder) = self.holders.get(&changed.id).cloned() else { return settled };
        if let Some(ownership) = &changed.given {
            return self.give_up(node, &changed.id, holder.name(), None, ownership);
        }
        if changed.opts_out {
            return self.end(node, &changed.id);
        }
        if holder.is_given() {
            return settled;
        }
        let Some(asked) = changed.pod.containers.into_iter().next() else { return settled };
        let before = self.cpusets(node, &holder);
        let had = self.pods.get(holder.pod()).and_then(|pod| pod.request.container(holder.name())).cloned();
        // The runtime tells amounts again with every update; they are mostly the same.
        if had.as_ref().is_none_or(|had| had.requests != asked.requests || had.limits != asked.limits) {
            self.place(node, &holder, asked, had, &mut settled);
        }
        self.settle(node, &holder, &before, &mut settled);
        settled
    }

    /// A container has ended; what it had is free. Another time is no change.
    pub fn end(&mut self, node: &mut Node<'_>, id: &str) -> Settled {
        let mut settled = Settled::default();
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
        self.settle(node, &holder, &before, &mut settled);
        settled.own = Cpuset::default();
        settled
    }

    /// The runtime says what there is: that is all there is, but for those that are expected in `awaited`
    /// cgroups, which it is making. What was given here stays; who has nothing, and who is not somebody
    /// else's any longer, is placed, those first whose CPUs can stay theirs. `others` has everybody who is
    /// not set as it should be.
    pub fn synchronize(
        &mut self,
        node: &mut Node<'_>,
        all: Vec<Announced>,
        awaited: &BTreeSet<CgroupPath>,
    ) -> Settled {
        let mut settled = Settled::default();
        let there: BTreeSet<&str> = all.iter().map(|one| one.id.as_str()).collect();
        self.departing.retain(|id| !there.contains(id.as_str()));
        let is_gone = |id: &&String| !there.contains(id.as_str()) && !self.departing.contains(*id);
        let gone: Vec<String> = self.holders.keys().filter(is_gone).cloned().collect();
        for id in gone {
            // What changes for others is found below.
            self.end(node, &id);
        }
        let set_to = |one: &Announced| (one.id.clone(), (one.now.clone(), one.shown.clone()));
        let set_to: BTreeMap<String, (Cpuset, Option<Cpuset>)> = all.iter().map(set_to).collect();
        let is_over = |id: &str, cgroup: &CgroupPath| set_to.contains_key(id) || !awaited.contains(cgroup);
        let records = self.expected.take_all(node.allocations, is_over);
        let mut coming = Vec::new();
        let ours = |one: &Announced| self.holders.get(&one.id).is_some_and(|holder| !holder.is_given());
        for one in all.into_iter().filter(|one| one.given.is_some() || one.opts_out || !ours(one)) {
            let record = records.get(&one.id);
            let holds = record.is_some_and(|record| record.is_placed() && record.holds(one.set_to()));
            let asked = one.pod.containers.first();
            let again = !asked.zip(record).is_some_and(|(asked, record)| holds && record.asks_for(asked));
            let is_new = !holds && one.kept_cpus().is_none();
            coming.push((is_new, again, record.map_or(u64::MAX, |record| record.turn), record, one));
        }
        // Those first that need not be placed again, then those that have CPUs to keep; each in its turn.
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
        // Only now: until all have come, a home looks emptier than it is.
        bring_home(node.allocations);
        let taken = node.allocations.exclusive_cpus();
        let gpus = gpus_of(node);
        for (id, holder) in &self.holders {
            let Some(grant) = node.allocations.get(holder) else { continue };
            let wanted = Cpuset::of(grant, &taken).with_gpu_memory(&gpus);
            let mut other = wanted.clone();
            if let Some((stored, shown)) = set_to.get(id) {
                // Both are to be as wanted: the runtime writes what it has stored at the next update.
                let in_cgroup = wanted.clone().beside(shown.as_ref().unwrap_or(stored));
                other = wanted.beside(stored).or(in_cgroup);
            }
            if !other.is_empty() {
                settled.others.insert(id.clone(), other);
            }
        }
        settled
    }

    /// Each container's cgroup and who it is, those that are given included.
    pub fn cgroups(&self) -> impl Iterator<Item = (&CgroupPath, &Holder)> {
        self.holders.values().filter_map(|holder| Some((self.cgroup_of(holder)?, holder)))
    }

    /// The cgroup of a container, where the runtime's name of it was understood.
    pub fn cgroup(&self, id: &str) -> Option<&CgroupPath> {
        self.cgroup_of(self.holders.get(id)?)
    }

    /// The same by who it is.
    pub fn cgroup_of(&self, holder: &Holder) -> Option<&CgroupPath> {
        self.member(holder)?.cgroup.as_ref()
    }

    /// Which container has this id.
    pub fn holder(&self, id: &str) -> Option<&Holder> {
        self.holders.get(id)
    }

    /// What a container shall be set to.
    pub fn cpuset(&self, node: &Node<'_>, id: &str) -> Option<Cpuset> {
        let grant = node.allocations.get(self.holders.get(id)?)?;
        let cpuset = Cpuset::of(grant, &node.allocations.exclusive_cpus());
        Some(cpuset.with_gpu_memory(&gpus_of(node)))
    }

    fn member(&self, holder: &Holder) -> Option<&Member> {
        self.pods.get(holder.pod())?.members.get(holder.name())
    }

    fn note(&mut self, holder: &Holder, new: &Announced, had: Option<Grant>) {
        let pod = self.pods.entry(holder.pod().clone()).or_insert_with(|| {
            let request = PodRequest { containers: Vec::new(), ..new.pod.clone() };
            Pod { request, members: BTreeMap::new() }
        });
        let known = std::mem::take(&mut pod.request.containers);
        let seen = || {
            let mems = new.set_to().mems.clone().unwrap_or_default();
            Some(Grant { exclusive: new.kept_cpus()?.clone(), mems, ..Grant::default() })
        };
        let previous = had.or_else(seen).map(|grant| (holder.name().to_owned(), grant));
        pod.request =
            PodRequest { containers: known, previous: previous.into_iter().collect(), ..new.pod.clone() };
        let member = Member { id: new.id.clone(), cgroup: new.cgroup.clone() };
        pod.members.insert(holder.name().to_owned(), member);
        self.holders.insert(new.id.clone(), holder.clone());
    }

    /// It keeps what it was given before the daemon was started again, and its turn. Its CPUs counted as
    /// taken meanwhile, so nobody has to make room.
    fn adopt(
        &mut self,
        node: &mut Node<'_>,
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

    /// Places a pod with `asked` in it. If that cannot be, it stays as it was: with what the container `had`,
    /// or unplaced.
    fn place(
        &mut self,
        node: &mut Node<'_>,
        holder: &Holder,
        asked: ContainerRequest,
        had: Option<ContainerRequest>,
        settled: &mut Settled,
    ) {
        let Some(pod) = self.pods.get_mut(holder.pod()) else { return };
        let mut weighed = Weighed { asked: asked.clone(), qos: pod.request.qos, candidates: Vec::new() };
        let at = pod.request.containers.iter().position(|container| container.name == holder.name());
        if let Some(at) = at {
            pod.request.containers[at] = asked;
        } else {
            // In the order of arrival: an unplaced one may have come before those that have a place.
            let turn = |name: &str| {
                let holder = Holder::new(holder.pod().clone(), name.to_owned());
                node.allocations.turn(&holder).unwrap_or(u64::MAX)
            };
            let own = turn(holder.name());
            let before = pod.request.containers.iter().take_while(|other| turn(&other.name) <= own);
            let position = before.count();
            pod.request.containers.insert(position, asked);
        }
        let unplaced: Vec<(Holder, u64, Grant)> = node
            .allocations
            .with_turns()
            .filter(|(other, _, grant)| other.pod() == holder.pod() && grant.engine == UNPLACED)
            .filter(|(other, ..)| *other != holder)
            .map(|(other, turn, grant)| (other.clone(), turn, grant.clone()))
            .collect();
        for (other, ..) in &unplaced {
            node.allocations.release(other);
        }
        let known = node.allocations.of_pod(holder.pod()).next().is_some();
        let mut trace = Trace::wanted();
        let place = if known { resize } else { admit };
        let outcome = place(node.inventory, node.settings, node.allocations, &pod.request, &mut trace);
        let (candidates, warnings) = trace.into_parts();
        settled.warnings.extend(warnings);
        // Of a pod that is aligned as a whole they are without a name.
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

    /// Adds the changes of the pod's other containers, and what the container itself shall have.
    fn settle(
        &self,
        node: &Node<'_>,
        holder: &Holder,
        before: &BTreeMap<String, Cpuset>,
        settled: &mut Settled,
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

    /// What the containers of the holder's pod shall have, by id.
    fn cpusets(&self, node: &Node<'_>, holder: &Holder) -> BTreeMap<String, Cpuset> {
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

    fn others(&self, gpus: &NodeSet, updates: Vec<Update>, settled: &mut Settled) {
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
    /// CPUs and memory nodes that it is set to, as far as anybody can tell.
    pub fn set_to(&self) -> &Cpuset {
        self.shown.as_ref().unwrap_or(&self.now)
    }

    /// Its CPUs, if they look like exclusive ones that it was given: as many as it asks for, all whole.
    fn kept_cpus(&self) -> Option<&CpuSet> {
        let whole = self.pod.containers.first()?.whole_cpus()?;
        self.set_to().cpus.as_ref().filter(|cpus| cpus.len() as u64 == whole)
    }
}

/// What nobody has for itself, for as long as there is any.
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

fn gpus_of(node: &Node<'_>) -> NodeSet {
    node.inventory.machine.gpu_memory_nodes()
}

#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;
