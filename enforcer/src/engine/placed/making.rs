//! Containers that a runtime is making: answered for, and in none of its lists yet.
//!
//! A runtime that connects again says which containers there are, and leaves out those that it is making
//! (containerd with NRI before 0.12). What those were given must stay theirs; and what is told of one that
//! has ended meanwhile must not place it anew.
//!
//! Never: anything is given here.

use std::time::Instant;

use enforcer_core::{
    owner::KnownContainer,
    place::{Announced, Cpuset},
    workload::{CgroupPath, printable},
};

use super::State;
use enforcer_act::journal::MADE_WITHIN;

/// One of them.
#[derive(Debug)]
pub(super) struct Making {
    /// As it will be listed.
    one: Announced,
    known: KnownContainer,
    /// When its runtime had the answer.
    answered: Instant,
    /// A runtime has connected again since, and did not list it.
    unlisted: bool,
}

impl Making {
    pub(super) fn answered(&self) -> Instant {
        self.answered
    }

    fn may_come(&self) -> bool {
        self.answered.elapsed() < MADE_WITHIN
    }
}

impl State {
    /// The same container is on its way, and will be set to `own` where that says something.
    pub(in crate::engine) fn makes(&mut self, one: &Announced, known: KnownContainer, own: &Cpuset) {
        let Cpuset { cpus, mems } = one.now.clone();
        let now = Cpuset { cpus: own.cpus.clone().or(cpus), mems: own.mems.clone().or(mems) };
        self.making.retain(|_, making| making.unlisted || making.may_come());
        self.note_answered(one.cgroup.clone(), Instant::now());
        let one = Announced { now, ..one.clone() };
        let making = Making { one, known, answered: Instant::now(), unlisted: false };
        self.making.insert(making.one.id.clone(), making);
    }

    /// A container runs, and is listed from now on.
    pub(in crate::engine) fn runs(&mut self, id: &str) {
        self.making.remove(id);
    }

    /// Has a runtime told of this container, or that it has ended?
    pub(in crate::engine) fn knows(&self, id: &str) -> bool {
        let ended = self.ended_lately.get(id).is_some_and(|at| at.elapsed() < MADE_WITHIN);
        ended || self.names.contains_key(id)
    }

    /// What a runtime lists, and those that it is making.
    pub(in crate::engine) fn with_those_in_the_making(
        &mut self,
        mut listed: Vec<(Announced, KnownContainer)>,
    ) -> Vec<(Announced, KnownContainer)> {
        self.making.retain(|id, making| making.may_come() && !listed.iter().any(|(one, _)| one.id == *id));
        listed.extend(self.making.values_mut().map(|making| {
            making.unlisted = true;
            (making.one.clone(), making.known.clone())
        }));
        listed
    }

    /// Takes back what those have that no runtime has listed and that have not come to be: nobody would ever
    /// say that they have ended, as of a creation that ended with its runtime. `runs` says of a cgroup
    /// whether anybody is there.
    pub(super) fn lapse(&mut self, runs: impl Fn(&CgroupPath) -> bool) {
        let over = |_: &String, making: &mut Making| making.unlisted && !making.may_come();
        let over: Vec<(String, Making)> = self.making.extract_if(.., over).collect();
        for (id, Making { one, .. }) in over {
            if one.cgroup.as_ref().is_none_or(&runs) {
                continue;
            }
            tracing::info!("{} has not come to be: what it was given is free", printable(&id));
            self.ends("turn", &id);
            // It may start yet, and is placed then.
            self.ended_lately.remove(&id);
        }
    }

    /// Everybody was answered for long ago.
    #[cfg(test)]
    pub(in crate::engine) fn answered_long_ago(&mut self) {
        let long_ago = Instant::now().checked_sub(MADE_WITHIN).unwrap();
        self.making.values_mut().for_each(|making| making.answered = long_ago);
    }
}
