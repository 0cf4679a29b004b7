//! Pending containers: answered for, and not yet in a list of the runtime.
//!
//! Problem: a runtime that reconnects lists its containers without the pending ones (containerd with NRI
//! before 0.12). Their grants must stay theirs; and an event about one that has ended must not place it
//! again.
//!
//! Invariant: nothing is granted here.

use std::time::Instant;

use enforcer_core::{
    hosted::{Announced, Cpuset},
    owner::KnownContainer,
    workload::{CgroupPath, printable},
};

use super::{Ledger, roster::ContainerRoster};
use enforcer_act::journal::MADE_WITHIN;

/// A pending container.
#[derive(Debug)]
pub(super) struct PendingContainer {
    /// The container as the runtime will list it.
    one: Announced,
    known: KnownContainer,
    /// Time of the answer.
    answered: Instant,
    /// A runtime has reconnected since and did not list it.
    unlisted: bool,
}

impl PendingContainer {
    pub(super) fn answered(&self) -> Instant {
        self.answered
    }

    fn may_come(&self) -> bool {
        self.answered.elapsed() < MADE_WITHIN
    }
}

impl Ledger {
    /// Marks a container as pending; `own` is its future cpuset, if the answer sets one.
    pub(in crate::engine) fn mark_pending(&mut self, one: &Announced, known: KnownContainer, own: &Cpuset) {
        let Cpuset { cpus, mems } = one.now.clone();
        let now = Cpuset { cpus: own.cpus.clone().or(cpus), mems: own.mems.clone().or(mems) };
        self.roster.pending.retain(|_, making| making.unlisted || making.may_come());
        self.writes.note_own_writes(one.cgroup.clone(), Instant::now());
        let one = Announced { now, ..one.clone() };
        let making = PendingContainer { one, known, answered: Instant::now(), unlisted: false };
        self.roster.pending.insert(making.one.id.clone(), making);
    }

    /// Frees the grants of pending containers that no runtime has listed and that do not exist. No event
    /// would announce their end, as when a runtime dies during a creation. `runs` says whether a cgroup
    /// exists.
    pub(super) fn drop_expired_pending(&mut self, runs: impl Fn(&CgroupPath) -> bool) {
        let over = |_: &String, making: &mut PendingContainer| making.unlisted && !making.may_come();
        let over: Vec<(String, PendingContainer)> = self.roster.pending.extract_if(.., over).collect();
        for (id, PendingContainer { one, .. }) in over {
            if one.cgroup.as_ref().is_none_or(&runs) {
                continue;
            }
            tracing::info!("container {} was never created; its CPUs were released", printable(&id));
            self.ends("turn", &id);
            // It may start yet and is placed then.
            self.roster.ended_lately.remove(&id);
        }
    }
}

impl ContainerRoster {
    /// The listed containers and the pending ones.
    pub(in crate::engine) fn with_pending(
        &mut self,
        mut listed: Vec<(Announced, KnownContainer)>,
    ) -> Vec<(Announced, KnownContainer)> {
        self.pending.retain(|id, making| making.may_come() && !listed.iter().any(|(one, _)| one.id == *id));
        listed.extend(self.pending.values_mut().map(|making| {
            making.unlisted = true;
            (making.one.clone(), making.known.clone())
        }));
        listed
    }

    /// Backdates all answers.
    #[cfg(test)]
    pub(in crate::engine) fn expire_answers(&mut self) {
        let long_ago = Instant::now().checked_sub(MADE_WITHIN).unwrap();
        self.pending.values_mut().for_each(|making| making.answered = long_ago);
    }
}
