//! Cpuset partitions: CPUs that the kernel gives to one cgroup and takes from all others.
//!
//! A cpuset alone keeps away only workloads that are confined themselves. Unconfined tasks, the rest of the
//! system included, may still run on the same CPUs. A partition root has its CPUs exclusively: they leave the
//! effective cpusets of all other cgroups.
//!
//! Facts (Documentation/admin-guide/cgroup-v2.rst, and tried on 6.12): since 6.7 a partition may be anywhere
//! in the tree if every cgroup above it has these CPUs in `cpuset.cpus.exclusive`; its own file may be empty
//! and is then its `cpuset.cpus`. A write of an impossible partition is accepted and reads back as `isolated
//! invalid (reason)`. Changing `cpuset.cpus` of a live partition does not always change the effective set, so
//! it is ended first. v1 has none.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::named::Named as _;
use crate::parse::ParseError;

/// Kinds of partitions.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Partition {
    /// No partition: the cgroup is in that of the one above it.
    #[default]
    Member,
    /// Exclusive CPUs with load balancing among them.
    Root,
    /// Exclusive CPUs without load balancing: a task stays where it was put.
    Isolated,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Content of `cpuset.cpus.partition`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionState {
    /// Requested kind.
    pub kind: Partition,
    /// Reason why it is not in effect, in the kernel's words; `None` if it is.
    pub invalid: Option<String>,
}

impl PartitionState {
    /// Is this kind in effect?
    pub fn is(&self, kind: Partition) -> bool {
        self.kind == kind && self.invalid.is_none()
    }
}

impl FromStr for PartitionState {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let kinds = [Partition::Member, Partition::Root, Partition::Isolated];
        let kind = kinds.into_iter().find(|one| one.name() == kind);
        let invalid = match rest.trim() {
            "" => Some(None),
            other => other.strip_prefix("invalid").map(|reason| {
                let reason = reason.trim().trim_start_matches('(').trim_end_matches(')');
                Some(if reason.is_empty() { "invalid" } else { reason }.chars().take(200).collect())
            }),
        };
        match (kind, invalid) {
            (Some(kind), Some(invalid)) => Ok(Self { kind, invalid }),
            _ => Err(ParseError::new("member, root or isolated", text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        for (text, kind, invalid) in [
            ("member\n", Partition::Member, None),
            ("root\n", Partition::Root, None),
            ("isolated", Partition::Isolated, None),
            (
                "isolated invalid (Invalid cpu list in cpuset.cpus.exclusive)\n",
                Partition::Isolated,
                Some("Invalid cpu list in cpuset.cpus.exclusive"),
            ),
            ("root invalid\n", Partition::Root, Some("invalid")),
        ] {
            let state: PartitionState = text.parse().unwrap();
            assert_eq!((state.kind, state.invalid.as_deref()), (kind, invalid), "{text:?}");
            assert_eq!(state.is(kind), invalid.is_none());
        }
        for text in ["", "roots", "root valid", "isolated  valid"] {
            assert!(text.parse::<PartitionState>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _state = text.parse::<PartitionState>();
        }
    }
}
