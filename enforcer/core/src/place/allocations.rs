//! What is given away.
//!
//! One state is shared by all engines. It is ordered by holder: equal allocations are equal values,
//! whatever the order they were made in. Releasing is forgetting; nothing else has to be undone,
//! because everything that is derived from grants (CPUs taken, memory of a zone) is computed from
//! them and stored nowhere else. Beside them only each holder's turn is kept, that is who came first:
//! of two that are otherwise equal, the younger one gives way.
//!
//! Changes are made in a [transaction](Allocations::transaction): either all of them stay or none,
//! and what was touched is known afterwards.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{Grant, PodName};
use crate::{
    set::CpuSet,
    workload::{CgroupPath, printable},
};

/// Who holds a grant: a container, or a cgroup outside Kubernetes, which counts as a pod of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    pod: PodName,
    container: String,
}

impl Holder {
    /// A container of a pod.
    pub fn new(pod: PodName, container: String) -> Self {
        Self { pod, container }
    }

    /// A cgroup.
    pub fn cgroup(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::of_cgroup(cgroup), String::new())
    }

    /// Is it a cgroup that no runtime announced?
    pub fn is_cgroup(&self) -> bool {
        self.pod.namespace.is_empty()
    }

    /// Its pod.
    pub fn pod(&self) -> &PodName {
        &self.pod
    }

    /// Its name in the pod; empty for a cgroup.
    pub fn name(&self) -> &str {
        &self.container
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { pod, container } if container.is_empty() => pod.fmt(f),
            Self { pod, container } => write!(f, "{pod}/{}", printable(container)),
        }
    }
}

/// Grants by holder.
#[derive(Debug, Clone, Default)]
pub struct Allocations {
    grants: BTreeMap<Holder, Given>,
    /// The turn of the next holder.
    next: u64,
    /// While a transaction is open: what each touched holder had when it began.
    before: Option<BTreeMap<Holder, Option<Given>>>,
}

#[derive(Debug, Clone)]
struct Given {
    grant: Grant,
    turn: u64,
}

impl PartialEq for Allocations {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Allocations {
    /// Notes what a holder is given, in place of what it had.
    pub fn give(&mut self, holder: Holder, grant: Grant) {
        let turn = self.grants.get(&holder).map_or(self.next, |given| given.turn);
        self.next = self.next.max(turn.saturating_add(1));
        let had = self.grants.insert(holder.clone(), Given { grant, turn });
        self.note(holder, had);
    }

    /// Takes back what a holder was given.
    pub fn release(&mut self, holder: &Holder) -> Option<Grant> {
        let had = self.grants.remove(holder)?;
        self.note(holder.clone(), Some(had.clone()));
        Some(had.grant)
    }

    /// Takes back what the containers of a pod were given, by name of container.
    pub fn release_pod(&mut self, pod: &PodName) -> BTreeMap<String, Grant> {
        let holders: Vec<Holder> = self.of_pod(pod).map(|(holder, _)| holder.clone()).collect();
        let released = holders.iter().filter_map(|holder| {
            let grant = self.release(holder)?;
            Some((holder.name().to_owned(), grant))
        });
        released.collect()
    }

    /// Forgets every holder for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&Holder) -> bool) {
        let gone: Vec<Holder> = self.grants.keys().filter(|holder| !stays(holder)).cloned().collect();
        for holder in &gone {
            self.release(holder);
        }
    }

    /// What a holder was given.
    pub fn get(&self, holder: &Holder) -> Option<&Grant> {
        self.grants.get(holder).map(|given| &given.grant)
    }

    /// The turn of a holder: lower than that of everybody who came later.
    pub fn turn(&self, holder: &Holder) -> Option<u64> {
        self.grants.get(holder).map(|given| given.turn)
    }

    /// All of them, in order of holder.
    pub fn iter(&self) -> impl Iterator<Item = (&Holder, &Grant)> {
        self.grants.iter().map(|(holder, given)| (holder, &given.grant))
    }

    /// All of them with the turns of their holders, in order of holder.
    pub(super) fn with_turns(&self) -> impl Iterator<Item = (&Holder, u64, &Grant)> {
        self.grants.iter().map(|(holder, given)| (holder, given.turn, &given.grant))
    }

    /// What was given, as [`Self::with_turns`] tells it.
    pub(super) fn of_turns(given: impl Iterator<Item = (Holder, u64, Grant)>) -> Self {
        let grants: BTreeMap<_, _> =
            given.map(|(holder, turn, grant)| (holder, Given { grant, turn })).collect();
        let next = grants.values().map(|given| given.turn.saturating_add(1)).max().unwrap_or(0);
        Self { grants, next, before: None }
    }

    /// Those for which `counts` is true, in order of their turns.
    pub fn in_turn<'a>(
        &'a self,
        counts: impl Fn(&Grant) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a Holder, &'a Grant)> {
        let mut given: Vec<_> = self.grants.iter().filter(|(_, given)| counts(&given.grant)).collect();
        given.sort_unstable_by_key(|(_, given)| given.turn);
        given.into_iter().map(|(holder, given)| (holder, &given.grant))
    }

    /// Those of a pod, in order of container name.
    pub fn of_pod<'a>(&'a self, pod: &'a PodName) -> impl Iterator<Item = (&'a Holder, &'a Grant)> {
        let first = Holder::new(pod.clone(), String::new());
        let from_first = self.grants.range(first..).map(|(holder, given)| (holder, &given.grant));
        from_first.take_while(move |(holder, _)| holder.pod() == pod)
    }

    /// CPUs that somebody has for itself.
    pub fn exclusive_cpus(&self) -> CpuSet {
        let mut taken = CpuSet::new();
        for given in self.grants.values() {
            taken.extend(&given.grant.exclusive);
        }
        taken
    }

    /// Makes changes that stay only if `change` succeeds. On success: its result, and what each
    /// holder that was touched had before. Transactions do not nest.
    pub fn transaction<T, E>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<(T, BTreeMap<Holder, Option<Grant>>), E> {
        self.before = Some(BTreeMap::new());
        let result = change(self);
        let before = self.before.take().unwrap_or_default();
        match result {
            Ok(value) => {
                let had = before.into_iter().map(|(holder, had)| (holder, had.map(|given| given.grant)));
                Ok((value, had.collect()))
            }
            Err(error) => {
                self.put_back(before);
                Err(error)
            }
        }
    }

    fn put_back(&mut self, before: BTreeMap<Holder, Option<Given>>) {
        for (holder, had) in before {
            match had {
                Some(given) => self.grants.insert(holder, given),
                None => self.grants.remove(&holder),
            };
        }
    }

    fn note(&mut self, holder: Holder, had: Option<Given>) {
        if let Some(before) = &mut self.before {
            before.entry(holder).or_insert(had);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pod: &str, container: &str) -> Holder {
        Holder::new(PodName::new("default", pod), container.into())
    }

    fn with(cpus: &str) -> Grant {
        Grant { exclusive: cpus.parse().unwrap(), ..Grant::default() }
    }

    #[test]
    fn a_failed_transaction_leaves_no_trace() {
        let mut allocations = Allocations::default();
        allocations.give(holder("a", "one"), with("0-1"));
        let before = allocations.clone();
        let failed: Result<((), _), &str> = allocations.transaction(|allocations| {
            allocations.give(holder("b", "one"), with("2"));
            allocations.give(holder("a", "one"), with("3"));
            allocations.give(holder("a", "one"), with("4"));
            allocations.release(&holder("a", "one"));
            Err("no")
        });
        assert_eq!(failed.unwrap_err(), "no");
        assert_eq!(allocations, before);
    }

    #[test]
    fn a_transaction_tells_what_was_there_before() {
        let mut allocations = Allocations::default();
        allocations.give(holder("a", "one"), with("0-1"));
        let ((), before) = allocations
            .transaction(|allocations| {
                allocations.give(holder("a", "one"), with("3"));
                allocations.give(holder("a", "two"), with("4"));
                Ok::<_, ()>(())
            })
            .unwrap();
        assert_eq!(before[&holder("a", "one")], Some(with("0-1")));
        assert_eq!(before[&holder("a", "two")], None);
        assert_eq!(allocations.exclusive_cpus().to_string(), "3-4");
    }

    #[test]
    fn turns_tell_who_came_first_also_after_a_change_and_a_failure() {
        let mut allocations = Allocations::default();
        let (one, two, three) = (holder("z", "one"), holder("a", "two"), holder("m", "three"));
        for holder in [&one, &two, &one] {
            allocations.give(holder.clone(), with("0"));
        }
        let failed: Result<((), _), ()> = allocations.transaction(|allocations| {
            allocations.release(&one);
            allocations.give(one.clone(), with("1"));
            allocations.give(three.clone(), with("2"));
            Err(())
        });
        assert_eq!(failed, Err(()));
        assert!(allocations.turn(&one) < allocations.turn(&two));
        assert_eq!(allocations.turn(&three), None);
        allocations.release(&one);
        allocations.give(one.clone(), with("1"));
        assert!(allocations.turn(&one) > allocations.turn(&two));
    }

    #[test]
    fn a_pod_is_released_as_a_whole_and_alone() {
        let mut allocations = Allocations::default();
        for (pod, container, cpus) in [("a", "x", "0"), ("a", "y", "1"), ("ab", "x", "2"), ("b", "x", "3")] {
            allocations.give(holder(pod, container), with(cpus));
        }
        let released = allocations.release_pod(&PodName::new("default", "a"));
        assert_eq!(released.keys().collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(allocations.exclusive_cpus().to_string(), "2-3");
    }
}
