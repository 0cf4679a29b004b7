//! Gated pods that stay gated for a reason that no place ends.
//!
//! Problem: a pod that cannot be read, or that the API server never lets change, waits for ever, and
//! its owner sees nothing. Idea: each is told once, and all of them are counted.
//!
//! Invariants: a pod that cannot be read holds no place, unless a patch of a version that could be read may
//! still land. What is kept of a pod is bounded.

use numa_placement::PodName;
use numa_topology::text::printable_within;

use super::{Gate, attempts::BACKOFF};
use crate::cluster::{extender::Extender, view::Millis};

/// Refusals in a row after which a pod is told: the first ones may be of a moment.
const MANY: u32 = 3;
/// Waits after refused patches of a pod: the first, and the longest.
const REFUSED_BACKOFF: (Millis, Millis) = (BACKOFF.0, 300_000);
/// Longest cause that is kept, in bytes.
const WHY: usize = 512;

/// What is known of a pod that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadPod {
    /// Its namespace and name, with its uid; the uid is empty if not even that is known.
    pub name: PodName,
    /// Whether it has a node.
    pub is_bound: bool,
    /// Whether it has the gate.
    pub is_gated: bool,
}

/// A gated pod that nothing but a change of it, or of the cluster's rules, can help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckPod {
    /// Its namespace and name, with its uid.
    pub name: PodName,
    /// Why it stays gated.
    pub why: String,
}

/// A gated pod that cannot be read.
#[derive(Debug)]
pub(super) struct KnownUnread {
    name: PodName,
    why: String,
    is_told: bool,
}

/// Patches of a pod that the API server refused for good, one after another.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    number: u32,
    why: String,
    is_told: bool,
}

impl Refusals {
    pub(super) const fn are_many(&self) -> bool {
        self.number >= MANY
    }
}

impl Gate {
    /// Notes a pod that cannot be read: it is not gone.
    pub fn observe_unread(&mut self, pod: UnreadPod, why: &str, extender: &mut Extender) {
        let UnreadPod { name, is_bound, is_gated } = pod;
        let uid = name.uid.clone();
        if let Some(listing) = &mut self.listing {
            listing.insert(uid.clone());
        }
        if uid.is_empty() {
            return;
        }
        let known = self.gated.remove(&uid);
        if is_bound {
            self.placed.remove(&uid);
            self.claims.remove(&uid);
        }
        if is_bound || !is_gated {
            self.unread.remove(&uid);
            return;
        }
        if known.is_some_and(|known| known.unclear.is_none() && known.sent.is_none()) {
            extender.release_hold(&uid);
            self.nodes.uncount(&uid);
        }
        let is_told = self.unread.get(&uid).is_some_and(|unread| unread.is_told);
        let why = printable_within(why, WHY);
        self.unread.insert(uid, KnownUnread { name, why, is_told });
    }

    /// Notes that the API server has refused a patch: no earlier one is on its way. `for_good` is why, if the
    /// same patch will be refused again.
    pub fn note_refused(&mut self, uid: &str, for_good: Option<&str>, extender: &mut Extender, now: Millis) {
        self.put_off(uid, if for_good.is_some() { REFUSED_BACKOFF } else { BACKOFF }, now);
        let Some(gated) = self.gated.get_mut(uid) else { return };
        if let Some(why) = for_good {
            gated.refusals.number = gated.refusals.number.saturating_add(1);
            gated.refusals.why = printable_within(why, WHY);
        }
        if gated.unclear.is_none() {
            extender.release_hold(uid);
            self.nodes.uncount(uid);
        }
    }

    /// Gated pods that are stuck and have not been told yet.
    pub fn take_stuck(&mut self) -> Vec<StuckPod> {
        let unread = self.unread.values_mut().filter(|unread| !unread.is_told).map(|unread| {
            unread.is_told = true;
            StuckPod { name: unread.name.clone(), why: format!("it cannot be read: {}", unread.why) }
        });
        let mut stuck: Vec<StuckPod> = unread.collect();
        let is_new = |refusals: &Refusals| refusals.are_many() && !refusals.is_told;
        for gated in self.gated.values_mut().filter(|gated| is_new(&gated.refusals)) {
            gated.refusals.is_told = true;
            let name = gated.pod.request.name.clone().with_uid(gated.pod.uid.clone());
            let why = format!("the API server refuses its change: {}", gated.refusals.why);
            stuck.push(StuckPod { name, why });
        }
        stuck
    }
}
