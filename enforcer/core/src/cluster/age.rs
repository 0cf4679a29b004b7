//! Age of a published state: is it of the kubelet and of the daemon that run now?
//!
//! Problem: a state stays in the cluster when its daemon has ended, or its node has another kubelet or starts
//! again, and nothing in it says so. Idea: the Node names the version of its kubelet and the boot
//! of its machine, and the daemon renews a lease.
//!
//! Invariants: time is an argument. Only the lease in the namespace that the state names counts. A state that
//! names none is not known to live: each daemon names one, so no lease of the node's name is behind it. A
//! program with rights on leases of another namespace can neither hide that a daemon has ended nor pretend
//! it. One with rights on the object itself can name another namespace, and is then among its
//! [writers](StateObject::writers).

use std::collections::{BTreeMap, BTreeSet};

use super::objects::{LeaseObject, NodeObject, StateOrigin};

/// Namespace of the daemons, unless they were installed into another one.
const NAMESPACE: &str = "numa-enforcer";
/// Seconds without a renewal after which no daemon is behind a lease, whatever duration it names.
const SHORTEST_LEASE: i64 = 60;

/// The leases of a cluster's daemons at one time.
#[derive(Debug, Clone)]
pub struct DaemonLeases<'a> {
    /// By namespace and node.
    leases: BTreeMap<(&'a str, &'a str), &'a LeaseObject>,
    namespaces: BTreeSet<&'a str>,
    /// Whether these are the leases of all daemons.
    has_all: bool,
    /// The time, in seconds since 1970.
    now: i64,
}

/// Whether the daemon of a node lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DaemonLife {
    /// It has renewed its lease in time.
    Alive,
    /// It has not, with the words for it.
    Silent(String),
    /// Its lease is not known.
    Unknown,
}

impl<'a> DaemonLeases<'a> {
    /// These leases at a time in seconds since 1970; `has_all` if there are no others in the cluster.
    pub fn new(leases: impl IntoIterator<Item = &'a LeaseObject>, has_all: bool, now: i64) -> Self {
        let key = |lease: &'a LeaseObject| match lease.namespace.as_str() {
            "" => (NAMESPACE, lease.node.as_str()),
            namespace => (namespace, lease.node.as_str()),
        };
        let leases: BTreeMap<_, _> = leases.into_iter().map(|lease| (key(lease), lease)).collect();
        let namespaces = leases.keys().map(|(namespace, _)| *namespace).collect();
        Self { leases, namespaces, has_all, now }
    }

    /// Why a state of this origin and of this version of the kubelet is older than what it describes; empty
    /// if nothing shows that.
    pub fn outdated(&self, node: &NodeObject, origin: &StateOrigin, kubelet_version: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        let now = &node.kubelet_version;
        if !now.is_empty() && !kubelet_version.is_empty() && now != kubelet_version {
            reasons.push(format!("the kubelet of the node is {now}, that of the state is {kubelet_version}"));
        }
        if let Some(boot) = origin.boot_id.as_deref()
            && !node.boot_id.is_empty()
            && node.boot_id != boot
        {
            reasons.push("the machine of the node has started again since".to_owned());
        }
        if let DaemonLife::Silent(reason) = self.life(&node.name, origin) {
            reasons.push(reason);
        }
        reasons
    }

    /// Does the daemon live that writes the states of this origin?
    pub fn life(&self, node: &str, origin: &StateOrigin) -> DaemonLife {
        let Some(namespace) = origin.lease_namespace.as_deref() else {
            if !self.has_all && self.namespaces.is_empty() {
                return DaemonLife::Unknown;
            }
            let said = "it names no lease, so no daemon is known to be behind it";
            return DaemonLife::Silent(said.to_owned());
        };
        if !self.has_all && !self.namespaces.contains(namespace) {
            return DaemonLife::Unknown;
        }
        let Some(lease) = self.leases.get(&(namespace, node)) else {
            return DaemonLife::Silent("no daemon has a lease for it".to_owned());
        };
        let Some(renewed_at) = lease.renewed_at else {
            return DaemonLife::Silent("its daemon has never renewed its lease".to_owned());
        };
        let since = self.now.saturating_sub(renewed_at);
        if since > i64::from(lease.duration_s).max(SHORTEST_LEASE) {
            return DaemonLife::Silent(format!("its daemon has not renewed its lease for {since} s"));
        }
        DaemonLife::Alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_that_is_not_there_says_something_only_where_all_are_known() {
        let node = NodeObject { name: "a".into(), ..NodeObject::default() };
        let silence = |has_all: bool, named: Option<&str>| {
            let origin = StateOrigin { lease_namespace: named.map(str::to_owned), ..StateOrigin::default() };
            DaemonLeases::new(&[], has_all, 0).outdated(&node, &origin, "")
        };
        assert_eq!(silence(true, Some("prod")), ["no daemon has a lease for it"]);
        assert_eq!(silence(false, Some("prod")), Vec::<String>::new());
        assert_eq!(silence(true, None), ["it names no lease, so no daemon is known to be behind it"]);
        assert_eq!(silence(false, None), Vec::<String>::new());
    }
}
