//! Containers that a runtime is making: answered for, and in none of its lists yet.
//!
//! A runtime that connects again says which containers there are, and leaves out those that it is making (containerd with NRI before
//! 0.12). What those were given must stay theirs; and what is told of one that has ended meanwhile must not place it anew.
//!
//! Never: anything is given here.

use std::time::Instant;

use enforcer_core::{
    owner::KnownContainer,
    place::{Announced, Cpuset},
};

use super::State;
use crate::enforce::journal::MADE_WITHIN;

impl State {
    /// The same container is on its way, and will be set to `own` where that says something.
    pub(in crate::engine) fn makes(&mut self, one: &Announced, known: KnownContainer, own: &Cpuset) {
        let Cpuset { cpus, mems } = one.now.clone();
        let now = Cpuset { cpus: own.cpus.clone().or(cpus), mems: own.mems.clone().or(mems) };
        self.making.retain(|_, (.., answered)| answered.elapsed() < MADE_WITHIN);
        self.making.insert(one.id.clone(), (Announced { now, ..one.clone() }, known, Instant::now()));
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
        self.making.retain(|_, (.., answered)| answered.elapsed() < MADE_WITHIN);
        self.making.retain(|id, _| !listed.iter().any(|(one, _)| one.id == *id));
        listed.extend(self.making.values().map(|(one, known, _)| (one.clone(), known.clone())));
        listed
    }
}
