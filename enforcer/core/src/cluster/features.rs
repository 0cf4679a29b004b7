//! Labels of a node for node-feature-discovery: what of its state stays as it is while it runs.
//!
//! Invariants: values are valid values of labels. What is not known is absent. Settings that were known stay
//! until others are: a kubelet that starts again is unknown for some seconds, and a label that goes and comes
//! back would move pods.

use std::fmt::Write as _;

use super::state::NodeState;

/// Longest value of a label (`k8s.io/apimachinery/pkg/util/validation`).
const LONGEST: usize = 63;

/// What of a node's state stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFeatures {
    /// Number of NUMA nodes with CPUs.
    cpu_nodes: usize,
    /// Number of NUMA nodes without CPUs.
    memory_only_nodes: usize,
    /// Policy and scope of the kubelet's topology manager.
    topology: Option<(String, String)>,
}

impl NodeFeatures {
    /// Notes a newer state.
    pub fn note(&mut self, state: &NodeState) {
        let nodes = &state.machine.nodes;
        self.memory_only_nodes = nodes.iter().filter(|node| node.cpus.is_empty()).count();
        self.cpu_nodes = nodes.len() - self.memory_only_nodes;
        let (policy, scope) = (&state.kubelet.topology_policy, &state.kubelet.topology_scope);
        if is_value(policy) && is_value(scope) {
            self.topology = Some((policy.clone(), scope.clone()));
        }
    }

    /// A feature file, as the source `local` of node-feature-discovery reads it (`source/local/local.go`).
    /// Names without a domain get that of node-feature-discovery.
    pub fn text(&self) -> String {
        let mut text = String::from("# Written by numa-enforcer, which removes it when it ends.\n");
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a text does not fail.
            let _ = writeln!(text, "numa-enforcer.{name}={value}");
        };
        line("cpu-nodes", &self.cpu_nodes);
        line("memory-only-nodes", &self.memory_only_nodes);
        if let Some((policy, scope)) = &self.topology {
            line("topology-policy", policy);
            line("topology-scope", scope);
        }
        text
    }
}

/// Letters, digits, `-`, `_` and `.`, the first and the last of them a letter or a digit.
fn is_value(text: &str) -> bool {
    let is_inside = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let is_end = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST
        && bytes.iter().copied().all(is_inside)
        && is_end(bytes.first())
        && is_end(bytes.last())
}

#[cfg(test)]
mod tests {
    use numa_topology::{MemoryKind, id::NodeId};
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::state::{MachineNode, MachineState};

    fn state(cpus: &[&str], policy: &str, scope: &str) -> NodeState {
        let nodes = (0..).zip(cpus).map(|(id, cpus)| MachineNode {
            id: NodeId(id),
            cpus: cpus.parse().unwrap(),
            kind: MemoryKind::Dram,
        });
        let mut state = NodeState {
            machine: MachineState { nodes: nodes.collect(), ..MachineState::default() },
            ..NodeState::default()
        };
        (state.kubelet.topology_policy, state.kubelet.topology_scope) = (policy.into(), scope.into());
        state
    }

    #[test]
    fn nodes_are_counted_and_known_settings_stay() {
        let mut features = NodeFeatures::default();
        features.note(&state(&["0-3", "4-7", ""], "", ""));
        let counts = "# Written by numa-enforcer, which removes it when it ends.\n\
                      numa-enforcer.cpu-nodes=2\nnuma-enforcer.memory-only-nodes=1\n";
        assert_eq!(features.text(), counts);
        features.note(&state(&["0-3", "4-7", ""], "single-numa-node", "pod"));
        let all = format!(
            "{counts}numa-enforcer.topology-policy=single-numa-node\nnuma-enforcer.topology-scope=pod\n"
        );
        assert_eq!(features.text(), all);
        for (policy, scope) in [("", ""), ("restricted", ""), ("a\nnode-role=x", "pod"), ("-a", "pod")] {
            features.note(&state(&["0-3", "4-7", ""], policy, scope));
            assert_eq!(features.text(), all, "{policy:?} {scope:?}");
        }
        features.note(&state(&["0-7"], "none", "container"));
        assert!(features.text().ends_with("-policy=none\nnuma-enforcer.topology-scope=container\n"));
    }

    proptest! {
        /// Whatever the kubelet's file says, a line is one label.
        #[test]
        fn each_line_has_a_valid_value(policy in ".{0,70}", scope in "[a-z.]{0,5}") {
            let mut features = NodeFeatures::default();
            features.note(&state(&["0"], &policy, &scope));
            let text = features.text();
            for line in text.lines().skip(1) {
                let (name, value) = line.split_once('=').unwrap();
                prop_assert!(name.starts_with("numa-enforcer.") && is_value(value), "{}", line);
            }
        }
    }
}
