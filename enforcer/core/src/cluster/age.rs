//! Age of a published state: is it of the kubelet and of the daemon that run now?
//!
//! Problem: a state stays in the cluster when its daemon has ended, or its node has another kubelet or starts
//! again, and nothing in it says so. Idea: the Node names the version of its kubelet and the boot
//! of its machine, and the daemon renews a lease.
//!
//! Invariants: time is an argument. Only the lease in the namespace of the daemon counts: that which the
//! state names, else the namespace of the chart, else the only one that has leases of daemons. A program
//! with rights in another namespace can neither hide that a daemon has ended nor pretend it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    objects::{LeaseObject, NodeObject, StateObject},
    state::NodeState,
};

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

impl<'a> DaemonLeases<'a> {
    /// These leases at a time in seconds since 1970; `has_all` if there are no others in the cluster.
    pub fn new(leases: &'a [LeaseObject], has_all: bool, now: i64) -> Self {
        let namespace = |lease: &'a LeaseObject| match lease.namespace.as_str() {
            "" => NAMESPACE,
            namespace => namespace,
        };
        let namespaces = leases.iter().map(namespace).collect();
        let leases = leases.iter().map(|lease| ((namespace(lease), lease.node.as_str()), lease)).collect();
        Self { leases, namespaces, has_all, now }
    }

    /// Why the state is older than what it describes; empty if nothing shows that.
    pub fn outdated(&self, node: &NodeObject, object: &StateObject, state: &NodeState) -> Vec<String> {
        let mut reasons = Vec::new();
        let (now, published) = (&node.kubelet_version, &state.kubelet.version);
        if !now.is_empty() && !published.is_empty() && now != published {
            reasons.push(format!("the kubelet of the node is {now}, that of the state is {published}"));
        }
        if let Some(boot) = object.boot_id.as_deref()
            && !node.boot_id.is_empty()
            && node.boot_id != boot
        {
            reasons.push("the machine of the node has started again since".to_owned());
        }
        reasons.extend(self.silence(node, object));
        reasons
    }

    /// Why no daemon is behind the state; `None` if there is one, or its lease is not known.
    fn silence(&self, node: &NodeObject, object: &StateObject) -> Option<String> {
        let namespace = self.namespace(object)?;
        let Some(lease) = self.leases.get(&(namespace, &node.name)) else {
            return Some("no daemon has a lease for it".to_owned());
        };
        let Some(renewed_at) = lease.renewed_at else {
            return Some("its daemon has never renewed its lease".to_owned());
        };
        let since = self.now.saturating_sub(renewed_at);
        (since > i64::from(lease.duration_s).max(SHORTEST_LEASE))
            .then(|| format!("its daemon has not renewed its lease for {since} s"))
    }

    /// Namespace of the lease of the daemon that writes this state; `None` if its leases are not known.
    fn namespace<'b>(&'b self, object: &'b StateObject) -> Option<&'b str> {
        if let Some(named) = object.lease_namespace.as_deref() {
            return (self.has_all || self.namespaces.contains(named)).then_some(named);
        }
        let only = (self.namespaces.len() == 1).then(|| self.namespaces.first().copied()).flatten();
        self.namespaces.get(NAMESPACE).copied().or(only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_that_is_not_there_says_something_only_where_all_are_known() {
        let node = NodeObject { name: "a".into(), ..NodeObject::default() };
        let silence = |has_all: bool, named: Option<&str>| {
            let object = StateObject {
                name: "a".into(),
                api_version: String::new(),
                owner_uid: None,
                lease_namespace: named.map(str::to_owned),
                boot_id: None,
                writers: Vec::new(),
                unknown_fields: Vec::new(),
                state: Ok(NodeState::default()),
            };
            DaemonLeases::new(&[], has_all, 0).outdated(&node, &object, &NodeState::default())
        };
        assert_eq!(silence(true, Some("prod")), ["no daemon has a lease for it"]);
        assert_eq!(silence(false, Some("prod")), Vec::<String>::new());
        assert_eq!(silence(true, None), Vec::<String>::new(), "a daemon without leases has written it");
    }
}
