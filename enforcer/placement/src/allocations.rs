//! Allocations: the grants of all holders.
//!
//! All engines share one state. Releasing a grant needs no other undo: everything derived from grants (CPUs
//! taken, memory of a zone) is computed from them and stored nowhere else. The only other state is each
//! holder's position in the order of arrival: of two otherwise equal holders, the later one gives way.
//! Allocations are equal if their grants and their order of arrival are.
//!
//! Changes are made in a [transaction](Allocations::transaction): either all of them apply or none, and the
//! caller gets the list of touched holders. Transactions nest: the changes of an inner one are undone if an
//! outer one fails.
//!
//! Invariant: a holder that a transaction releases and gives a new grant keeps its position. A resize, or a
//! second container of a pod, places the whole pod again without making any holder younger.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{CgroupPath, grant::Grant, pod_name::PodName};
use numa_topology::{set::CpuSet, text::printable};

/// Holder of a grant: a container, or a cgroup outside Kubernetes, which counts as a pod of its own.
///
/// Copies share its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(from = "HolderName"))]
#[cfg_attr(feature = "serde", serde(into = "HolderName"))]
pub struct Holder(Arc<HolderName>);

/// Pod and container of a holder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct HolderName {
    pod: PodName,
    container: String,
}

impl Holder {
    /// A container of a pod.
    pub fn new(pod: PodName, container: String) -> Self {
        Self(Arc::new(HolderName { pod, container }))
    }

    /// A cgroup.
    pub fn cgroup(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::of_cgroup(cgroup), String::new())
    }

    /// Is it a cgroup that no runtime announced?
    pub fn is_cgroup(&self) -> bool {
        self.0.pod.namespace.is_empty()
    }

    /// Its pod.
    pub fn pod(&self) -> &PodName {
        &self.0.pod
    }

    /// Its name in the pod; empty for a cgroup.
    pub fn name(&self) -> &str {
        &self.0.container
    }
}

impl From<HolderName> for Holder {
    fn from(name: HolderName) -> Self {
        Self(Arc::new(name))
    }
}

impl From<Holder> for HolderName {
    fn from(holder: Holder) -> Self {
        Arc::unwrap_or_clone(holder.0)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            HolderName { pod, container } if container.is_empty() => pod.fmt(f),
            HolderName { pod, container } => write!(f, "{pod}/{}", printable(container)),
        }
    }
}

/// Grants by holder. Copies share what they have in common: a scheduler tries a pod on a copy for each node.
#[derive(Debug, Clone, Default)]
pub struct Allocations {
    grants: BTreeMap<Holder, HeldGrant>,
    /// Position of the next new holder.
    next: u64,
    /// State of each touched holder before each open transaction, the outermost first.
    open: Vec<TouchedHolders>,
}

/// Holders that a transaction has touched, and their previous state.
type TouchedHolders = BTreeMap<Holder, Option<HeldGrant>>;

#[derive(Debug, Clone)]
struct HeldGrant {
    grant: Arc<Grant>,
    arrival_seq: u64,
}

impl PartialEq for Allocations {
    fn eq(&self, other: &Self) -> bool {
        self.in_arrival_order(|_| true).eq(other.in_arrival_order(|_| true))
    }
}

impl Allocations {
    /// Records a grant in place of the holder's previous one. A known holder keeps its position.
    pub fn give(&mut self, holder: Holder, grant: Grant) {
        let arrival_seq = self.arrival_seq_in_transaction(&holder).unwrap_or(self.next);
        self.give_at(holder, grant, arrival_seq);
    }

    /// Records a grant for a holder with a known position, from a record.
    pub fn give_at(&mut self, holder: Holder, grant: Grant, arrival_seq: u64) {
        self.next = self.next.max(arrival_seq.saturating_add(1));
        let had = self.grants.insert(holder.clone(), HeldGrant { grant: Arc::new(grant), arrival_seq });
        self.note(holder, had);
    }

    /// Removes the grant of a holder.
    pub fn release(&mut self, holder: &Holder) -> Option<Grant> {
        let had = self.grants.remove(holder)?;
        self.note(holder.clone(), Some(had.clone()));
        Some(Arc::unwrap_or_clone(had.grant))
    }

    /// Removes the grants of a pod's containers; returns them by name of container.
    pub(crate) fn release_pod(&mut self, pod: &PodName) -> BTreeMap<String, Grant> {
        let holders: Vec<Holder> = self.of_pod(pod).map(|(holder, _)| holder.clone()).collect();
        let released = holders.iter().filter_map(|holder| {
            let grant = self.release(holder)?;
            Some((holder.name().to_owned(), grant))
        });
        released.collect()
    }

    /// Removes every holder for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&Holder) -> bool) {
        let gone: Vec<Holder> = self.grants.keys().filter(|holder| !stays(holder)).cloned().collect();
        for holder in &gone {
            self.release(holder);
        }
    }

    /// Grant of a holder.
    pub fn get(&self, holder: &Holder) -> Option<&Grant> {
        self.grants.get(holder).map(|given| &*given.grant)
    }

    /// Position of a holder in the order of arrival: lower than that of all later holders.
    pub fn arrival_seq(&self, holder: &Holder) -> Option<u64> {
        self.grants.get(holder).map(|given| given.arrival_seq)
    }

    /// Position of a holder that has a grant, or had one before an open transaction.
    fn arrival_seq_in_transaction(&self, holder: &Holder) -> Option<u64> {
        let had = || self.open.iter().find_map(|touched| touched.get(holder)?.as_ref());
        self.grants.get(holder).or_else(had).map(|given| given.arrival_seq)
    }

    /// All grants, in order of holder.
    pub fn iter(&self) -> impl Iterator<Item = (&Holder, &Grant)> {
        self.grants.iter().map(|(holder, given)| (holder, &*given.grant))
    }

    /// All grants with the positions of their holders, in order of holder.
    pub fn with_arrival_seqs(&self) -> impl Iterator<Item = (&Holder, u64, &Grant)> {
        self.grants.iter().map(|(holder, given)| (holder, given.arrival_seq, &*given.grant))
    }

    /// Allocations with these grants, in the form of [`Self::with_arrival_seqs`].
    #[cfg(feature = "serde")]
    pub(crate) fn from_arrival_seqs(given: impl Iterator<Item = (Holder, u64, Grant)>) -> Self {
        let grants: BTreeMap<_, _> = given
            .map(|(holder, arrival_seq, grant)| (holder, HeldGrant { grant: Arc::new(grant), arrival_seq }))
            .collect();
        let next = grants.values().map(|given| given.arrival_seq.saturating_add(1)).max().unwrap_or(0);
        Self { grants, next, open: Vec::new() }
    }

    /// Holders for which `counts` is true, in order of arrival.
    pub fn in_arrival_order<'a>(
        &'a self,
        counts: impl Fn(&Grant) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a Holder, &'a Grant)> {
        let mut given: Vec<_> = self.grants.iter().filter(|(_, given)| counts(&given.grant)).collect();
        // A stable sort: for equal positions, which a record may have, the order of holders decides.
        given.sort_by_key(|(_, given)| given.arrival_seq);
        given.into_iter().map(|(holder, given)| (holder, &*given.grant))
    }

    /// Grants of a pod, in order of container name.
    pub fn of_pod<'a>(&'a self, pod: &'a PodName) -> impl Iterator<Item = (&'a Holder, &'a Grant)> {
        let first = Holder::new(pod.clone(), String::new());
        let from_first = self.grants.range(first..).map(|(holder, given)| (holder, &*given.grant));
        from_first.take_while(move |(holder, _)| holder.pod() == pod)
    }

    /// All exclusive CPUs.
    pub fn exclusive_cpus(&self) -> CpuSet {
        let mut taken = CpuSet::new();
        for given in self.grants.values() {
            taken.extend(&given.grant.exclusive);
        }
        taken
    }

    /// Applies changes only if `change` succeeds and every outer transaction does too. On success returns its
    /// result, and the previous grant of each touched holder.
    ///
    /// # Errors
    /// That of `change`; nothing is changed then.
    pub fn transaction<T, E>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<(T, BTreeMap<Holder, Option<Grant>>), E> {
        let next = self.next;
        self.open.push(TouchedHolders::new());
        let result = change(self);
        let touched = self.open.pop().unwrap_or_default();
        match result {
            Ok(value) => {
                if let Some(outer) = self.open.last_mut() {
                    for (holder, had) in &touched {
                        outer.entry(holder.clone()).or_insert_with(|| had.clone());
                    }
                }
                let had = touched
                    .into_iter()
                    .map(|(holder, had)| (holder, had.map(|given| Arc::unwrap_or_clone(given.grant))));
                Ok((value, had.collect()))
            }
            Err(error) => {
                self.put_back(touched);
                self.next = next;
                Err(error)
            }
        }
    }

    fn put_back(&mut self, touched: TouchedHolders) {
        for (holder, had) in touched {
            match had {
                Some(given) => self.grants.insert(holder, given),
                None => self.grants.remove(&holder),
            };
        }
    }

    fn note(&mut self, holder: Holder, had: Option<HeldGrant>) {
        if let Some(touched) = self.open.last_mut() {
            touched.entry(holder).or_insert(had);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn a_holder_keeps_its_turn_over_a_change_and_loses_it_with_its_end() {
        let mut allocations = Allocations::default();
        let (one, two, three) = (holder("z", "one"), holder("a", "two"), holder("m", "three"));
        for holder in [&one, &two, &one] {
            allocations.give(holder.clone(), with("0"));
        }
        let again = |allocations: &mut Allocations| {
            allocations.release(&one);
            allocations.give(one.clone(), with("1"));
            allocations.give(three.clone(), with("2"));
        };
        let failed: Result<((), _), ()> = allocations.transaction(|allocations| {
            again(allocations);
            Err(())
        });
        assert_eq!(failed, Err(()));
        assert_eq!(allocations.arrival_seq(&three), None);
        let kept: Result<((), _), ()> = allocations.transaction(|allocations| {
            again(allocations);
            Ok(())
        });
        assert!(kept.is_ok());
        assert!(allocations.arrival_seq(&one) < allocations.arrival_seq(&two), "a resize is no arrival");
        allocations.release(&one);
        allocations.give(one.clone(), with("1"));
        assert!(allocations.arrival_seq(&one) > allocations.arrival_seq(&three), "it has come anew");
    }

    #[test]
    fn allocations_of_another_order_of_arrival_are_others() {
        let order = |pods: [&str; 2]| {
            let mut allocations = Allocations::default();
            for pod in pods {
                allocations.give(holder(pod, "one"), with("0"));
            }
            allocations
        };
        assert_eq!(order(["a", "b"]), order(["a", "b"]));
        assert_ne!(order(["a", "b"]), order(["b", "a"]));
    }

    /// A change of allocations, or a transaction with changes inside.
    #[derive(Debug, Clone)]
    enum Step {
        Give(u8, u32),
        Release(u8),
        Within(Vec<Self>, bool),
    }

    fn any_steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u8..5, 0u32..64).prop_map(|(pod, cpu)| Step::Give(pod, cpu)),
            2 => (0u8..5).prop_map(Step::Release),
        ];
        let step = step.prop_recursive(4, 40, 6, |inner| {
            (prop::collection::vec(inner, 0..6), any::<bool>())
                .prop_map(|(steps, stay)| Step::Within(steps, stay))
        });
        prop::collection::vec(step, 1..10)
    }

    /// Applies steps. A failed transaction leaves no trace, whatever its inner ones did.
    fn carry_out(allocations: &mut Allocations, steps: &[Step]) -> Result<(), TestCaseError> {
        for step in steps {
            match step {
                Step::Give(pod, cpu) => {
                    allocations.give(holder(&format!("p{pod}"), "c"), with(&cpu.to_string()));
                }
                Step::Release(pod) => drop(allocations.release(&holder(&format!("p{pod}"), "c"))),
                Step::Within(steps, stays) => {
                    let before = allocations.clone();
                    let outcome = allocations.transaction(|allocations| {
                        carry_out(allocations, steps).map_err(Some)?;
                        stays.then_some(()).ok_or(None)
                    });
                    match outcome {
                        Ok(((), had)) => {
                            for (holder, had) in had {
                                prop_assert_eq!(before.get(&holder), had.as_ref());
                                if let (Some(was), Some(is)) =
                                    (before.arrival_seq(&holder), allocations.arrival_seq(&holder))
                                {
                                    prop_assert_eq!(was, is, "{} has arrived once", holder);
                                }
                            }
                        }
                        Err(Some(problem)) => return Err(problem),
                        Err(None) => prop_assert_eq!(&*allocations, &before),
                    }
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_rollback_undoes_what_inner_transactions_kept(steps in any_steps()) {
            let mut allocations = Allocations::default();
            carry_out(&mut allocations, &steps)?;
            prop_assert!(allocations.open.is_empty());
        }
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
