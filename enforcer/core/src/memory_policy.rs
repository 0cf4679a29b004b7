//! A memory policy (`set_mempolicy(2)`, `mbind(2)`): nodes from which the kernel may take pages for a task or
//! a mapping.
//!
//! Parsed from the kernel's numbers or from the words of `numa_maps` (`mpol_to_str` in mm/mempolicy.c), and
//! printed in these words. Flags (`static`, `relative`, `balancing`) are left out: they say how the nodes
//! change with the cpuset, not what they are now.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::parse::{ParseError, scalar};
use numa_topology::set::NodeSet;

/// How the nodes of a policy are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum PolicyMode {
    /// No policy: the node of the CPU that touches a page first.
    Default,
    /// One node first, then others.
    Preferred,
    /// These nodes and no others.
    Bind,
    /// Round robin over these nodes.
    Interleave,
    /// The node of the CPU that touches a page first, set explicitly.
    Local,
    /// Any of these nodes first (5.15).
    PreferredMany,
    /// Round robin with weights (6.9).
    WeightedInterleave,
    /// A mode that is newer than this program.
    Unknown,
}

impl PolicyMode {
    /// The mode with the kernel's number.
    pub fn from_number(mode: u16) -> Self {
        MODES.get(usize::from(mode)).map_or(Self::Unknown, |(mode, _)| *mode)
    }

    /// The kernel's number of the mode; `None` for one that is newer than this program.
    pub fn number(self) -> Option<u16> {
        let at = MODES.iter().position(|(mode, _)| *mode == self)?;
        u16::try_from(at).ok()
    }
}

/// Modes in the order of the kernel's numbers (`MPOL_` of include/uapi/linux/mempolicy.h), with the words of
/// `numa_maps`.
const MODES: [(PolicyMode, &str); 7] = [
    (PolicyMode::Default, "default"),
    (PolicyMode::Preferred, "prefer"),
    (PolicyMode::Bind, "bind"),
    (PolicyMode::Interleave, "interleave"),
    (PolicyMode::Local, "local"),
    (PolicyMode::PreferredMany, "prefer (many)"),
    (PolicyMode::WeightedInterleave, "weighted interleave"),
];

/// A policy with its nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryPolicy {
    /// The mode.
    pub mode: PolicyMode,
    /// The nodes; empty for modes without nodes.
    pub nodes: NodeSet,
}

impl MemoryPolicy {
    /// The default policy.
    pub fn none() -> Self {
        Self { mode: PolicyMode::Default, nodes: NodeSet::new() }
    }

    /// Does it spread pages over several nodes on purpose?
    pub fn spreads(&self) -> bool {
        matches!(self.mode, PolicyMode::Interleave | PolicyMode::WeightedInterleave) && self.nodes.len() > 1
    }

    /// The policy with the kernel's number; `None` for a mode that is newer than this program.
    pub fn from_number(mode: u16, nodes: NodeSet) -> Option<Self> {
        let mode = PolicyMode::from_number(mode);
        let nodes =
            if matches!(mode, PolicyMode::Default | PolicyMode::Local) { NodeSet::new() } else { nodes };
        (mode != PolicyMode::Unknown).then_some(Self { mode, nodes })
    }

    /// Parses the beginning of a text, as `numa_maps` has it behind the address.
    pub fn parse_start(text: &str) -> Result<Self, ParseError> {
        let unknown = || ParseError::new("a memory policy", text);
        // The longest first: `prefer (many)` begins like `prefer`.
        let fits = |(mode, name): &(PolicyMode, &str)| Some((*mode, text.strip_prefix(name)?));
        let (mode, rest) = MODES.iter().rev().find_map(fits).ok_or_else(unknown)?;
        let rest =
            rest.split_ascii_whitespace().next().filter(|_| !rest.starts_with(' ')).unwrap_or_default();
        let (flags, nodes) = rest.split_once(':').unwrap_or((rest, ""));
        if !flags.is_empty() && !flags.starts_with('=') {
            return Err(unknown());
        }
        let nodes = if nodes.is_empty() { NodeSet::new() } else { scalar::list(nodes)? };
        Ok(Self { mode, nodes })
    }

    /// The only nodes that new pages may come from; `None` if other nodes are used when these are full.
    pub fn bound_to(&self) -> Option<&NodeSet> {
        (self.mode == PolicyMode::Bind && !self.nodes.is_empty()).then_some(&self.nodes)
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = MODES.iter().find(|(mode, _)| *mode == self.mode).map_or("", |(_, name)| name);
        f.write_str(name)?;
        if self.nodes.is_empty() { Ok(()) } else { write!(f, ":{}", self.nodes) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        for (text, number, shown) in [
            ("default file=/bind:0 N0=1", 0, "default"),
            ("default", 0, "default"),
            ("prefer:1 anon=1", 1, "prefer:1"),
            ("bind:0-1 heap", 2, "bind:0-1"),
            ("bind=static:0", 2, "bind:0"),
            ("bind=static|balancing:3 N3=1", 2, "bind:3"),
            ("interleave=relative:0,2", 3, "interleave:0,2"),
            ("local", 4, "local"),
            ("prefer (many):0-1 anon=5", 5, "prefer (many):0-1"),
            ("weighted interleave:0-1 anon=5", 6, "weighted interleave:0-1"),
        ] {
            let policy = MemoryPolicy::parse_start(text).unwrap();
            assert_eq!(policy.to_string(), shown, "{text}");
            let same = MemoryPolicy::from_number(number, policy.nodes.clone());
            assert_eq!(same.as_ref(), Some(&policy), "{text}");
            assert_eq!(policy.mode.number(), Some(number), "{text}");
            assert_eq!(policy.bound_to().is_some(), number == 2, "{text}");
        }
        assert_eq!(MemoryPolicy::from_number(7, NodeSet::new()), None);
    }

    #[test]
    fn refuses_what_is_none() {
        for text in ["", " default", "bound:0", "bind:x", "defaults", "bind0", "bind:0-99999999"] {
            assert!(MemoryPolicy::parse_start(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_policy_or_an_error(text in any::<String>(), rest in "[ =:a-z0-9,-]{0,12}") {
            let _ = MemoryPolicy::parse_start(&text);
            let _ = MemoryPolicy::parse_start(&format!("bind{rest}"));
        }
    }
}
