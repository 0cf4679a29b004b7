//! Values of the configuration by their names, as annotations give them.

use std::str::FromStr;

use thiserror::Error;

use super::{CpuPriority, NumaAllocationStrategy, PlacementEngine, PoolLevel, Scope, TopologyPolicy};

/// A text that is not the name of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no such value")]
pub struct UnknownName;

impl FromStr for TopologyPolicy {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name).ok_or(UnknownName)
    }
}

macro_rules! from_names {
    ($($type:ident { $($($name:literal)|+ => $variant:ident),+ })+) => {$(
        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                match name {
                    $($($name)|+ => Ok(Self::$variant),)+
                    _ => Err(UnknownName),
                }
            }
        }
    )+};
}

from_names! {
    PlacementEngine { "hints" => Hints, "pools" | "topology-aware" => Pools }
    Scope { "container" => Container, "pod" => Pod }
    NumaAllocationStrategy {
        "none" => None, "most-allocated" => MostAllocated, "least-allocated" => LeastAllocated
    }
    CpuPriority { "high" => High, "normal" => Normal, "low" => Low, "none" => None }
    PoolLevel {
        "system" => System, "package" | "socket" => Package, "die" => Die, "numa" => Numa,
        "l3cache" | "l3" => L3Cache
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    fn agrees<T: FromStr + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug>(name: &str) -> bool {
        let by_serde = serde_json::from_value::<T>(name.into()).ok();
        assert_eq!(name.parse().ok(), by_serde, "{name}");
        by_serde.is_some()
    }

    #[test]
    fn names_are_those_of_the_configuration() {
        let policies = TopologyPolicy::ALL.map(TopologyPolicy::as_str);
        let others =
            ["hints", "pools", "topology-aware", "container", "pod", "most-allocated", "least-allocated"];
        let wrong = ["", "Pod", "static", "most_allocated", "kubelet"];
        let mut known = 0;
        for name in policies.into_iter().chain(others).chain(wrong) {
            known += usize::from(agrees::<PlacementEngine>(name));
            known += usize::from(agrees::<TopologyPolicy>(name));
            known += usize::from(agrees::<Scope>(name));
            known += usize::from(agrees::<NumaAllocationStrategy>(name));
        }
        // `none` is a policy and a strategy.
        assert_eq!(known, 3 + TopologyPolicy::ALL.len() + 2 + 3);
    }
}
