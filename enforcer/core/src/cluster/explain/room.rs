//! The smallest set of pods that would make room on a node if they left.
//!
//! Idea: pods of the same or a lower priority come first; others only where these are not enough. If the
//! node does not take the pod without all of them, no set does. Else sets of one, two and three are tried,
//! lowest priority and smallest holder first. Beyond that all of them leave, and one after another may stay,
//! highest priority first, as long as the place is left: what remains is a set of which none is in vain, and
//! a smaller one may exist.
//!
//! Invariant: a set that is returned was tried as a whole. A static pod never leaves: its kubelet starts it
//! again.
//!
//! Cost: as many admissions as are allowed, beside three for each candidate; there are at most
//! [`CANDIDATES`].

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    super::{
        plan::{Amounts, PlannedPod},
        view::{Millis, Verdict},
    },
    HostNode, HostedPod, NodeRoom, RoomOutcome, RoomPod,
};

/// Largest set that is searched for exactly.
const EXACT: usize = 3;
/// Most pods that may leave: a node has 110 to 500.
const CANDIDATES: usize = 512;

/// A search on one node.
pub(super) struct RoomSearch<'a> {
    host: &'a HostNode,
    pod: &'a PlannedPod,
    amounts: &'a Amounts,
    now: Millis,
    /// Number of sets that may still be tried.
    trials: Cell<usize>,
}

/// The node's answer without some of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    Fits,
    Refused,
    Unknown,
}

impl<'a> RoomSearch<'a> {
    pub(super) const fn new(
        host: &'a HostNode,
        pod: &'a PlannedPod,
        amounts: &'a Amounts,
        now: Millis,
        trials: usize,
    ) -> Self {
        Self { host, pod, amounts, now, trials: Cell::new(trials) }
    }

    pub(super) fn run(self) -> NodeRoom {
        let all = self.candidates();
        let priority = self.pod.scheduling.priority;
        let lower: Vec<&HostedPod> = all.iter().filter(|pod| pod.priority <= priority).copied().collect();
        let mut last = Trial::Refused;
        for pods in [&lower, &all] {
            last = self.without(pods);
            if last == Trial::Fits {
                return self.smallest(pods);
            }
        }
        let is_unknown = last == Trial::Unknown;
        NodeRoom::of(if is_unknown { RoomOutcome::Unknown } else { RoomOutcome::NoPlace })
    }

    /// Pods that hold something of what is asked for: lowest priority first, then the smallest holder.
    fn candidates(&self) -> Vec<&'a HostedPod> {
        let HostNode { node, pods } = self.host;
        let mut held = BTreeMap::<&str, usize>::new();
        for (holder, grant) in node.view.allocations().iter() {
            *held.entry(&holder.pod().uid).or_default() += grant.exclusive.len();
        }
        let short: BTreeSet<String> =
            node.sums.shortages(self.amounts).map(|shortage| shortage.resource).collect();
        let is_counted = |pod: &HostedPod| pod.amounts.keys().any(|resource| short.contains(resource));
        let may_help = |pod: &&HostedPod| held.contains_key(pod.uid.as_str()) || is_counted(pod);
        let is_itself = |pod: &HostedPod| pod.uid == self.pod.request.name.uid && !pod.uid.is_empty();
        let pods = pods.iter().filter(may_help).filter(|pod| !pod.is_static && !is_itself(pod));
        let mut pods: Vec<&HostedPod> = pods.collect();
        pods.sort_by_key(|pod| (pod.priority, held.get(pod.uid.as_str()).copied(), &pod.name, &pod.uid));
        pods.truncate(CANDIDATES);
        pods
    }

    fn without(&self, gone: &[&HostedPod]) -> Trial {
        let HostNode { node, .. } = self.host;
        let sums = node.sums.without(gone.iter().map(|pod| &pod.amounts));
        if sums.shortages(self.amounts).next().is_some() {
            return Trial::Refused;
        }
        let uids: Vec<&str> = gone.iter().map(|pod| pod.uid.as_str()).collect();
        match node.view.filter_without(&uids, &self.pod.request, self.now) {
            Verdict::NotConcerned | Verdict::Fits(_) => Trial::Fits,
            Verdict::Refused(..) => Trial::Refused,
            Verdict::Unknown(_) => Trial::Unknown,
        }
    }

    /// The smallest set of these pods, all of which together make room.
    fn smallest(&self, pods: &[&'a HostedPod]) -> NodeRoom {
        for size in 1..=EXACT.min(pods.len()) {
            match self.first_of(size, pods, &mut Vec::new()) {
                Ok(Some(found)) => return self.room(&found, true),
                Ok(None) => {}
                Err(OutOfTrials) => return self.room(&self.irreducible(pods), false),
            }
        }
        let found = self.irreducible(pods);
        // No set of fewer makes room.
        let is_smallest = found.len() <= EXACT + 1;
        self.room(&found, is_smallest)
    }

    /// The first set of a size that makes room, in the order of the pods.
    fn first_of(
        &self,
        size: usize,
        pods: &[&'a HostedPod],
        chosen: &mut Vec<&'a HostedPod>,
    ) -> Result<Option<Vec<&'a HostedPod>>, OutOfTrials> {
        if size == 0 {
            self.trials.set(self.trials.get().checked_sub(1).ok_or(OutOfTrials)?);
            return Ok((self.without(chosen) == Trial::Fits).then(|| chosen.clone()));
        }
        for (at, pod) in pods.iter().enumerate() {
            chosen.push(pod);
            let found = self.first_of(size - 1, pods.get(at + 1..).unwrap_or_default(), chosen)?;
            chosen.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// A set of which no pod is in vain.
    fn irreducible(&self, pods: &[&'a HostedPod]) -> Vec<&'a HostedPod> {
        let mut gone = pods.to_vec();
        let mut may_stay = pods.to_vec();
        may_stay.sort_by_key(|pod| Reverse(pod.priority));
        for pod in may_stay {
            let fewer: Vec<&HostedPod> = gone.iter().filter(|other| other.uid != pod.uid).copied().collect();
            if self.without(&fewer) == Trial::Fits {
                gone = fewer;
            }
        }
        gone
    }

    fn room(&self, pods: &[&HostedPod], is_smallest: bool) -> NodeRoom {
        let needs_higher_priority = pods.iter().any(|pod| pod.priority > self.pod.scheduling.priority);
        let pods = pods.iter().map(|pod| RoomPod { pod: pod.name.clone(), priority: pod.priority });
        NodeRoom { outcome: RoomOutcome::Pods, pods: pods.collect(), is_smallest, needs_higher_priority }
    }
}

/// No further set may be tried.
struct OutOfTrials;
