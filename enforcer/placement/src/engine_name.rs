//! Names of engines and policies, as a grant, the configuration and recordings have them.

use crate::settings::TopologyPolicy;

/// A name of an engine or a policy in the code; an alias, because serde would borrow a `&'static str` from
/// its input.
pub(crate) type FixedName = &'static str;

/// The engine `hints`.
pub const HINTS: &str = "hints";
/// The engine `pools`.
pub const POOLS: &str = "pools";
/// The policy of the engine `pools`.
pub(crate) const POOLS_POLICY: &str = "topology-aware";
/// Engine name of a grant of another owner.
pub const OTHERS: &str = "others";
/// Engine name of what resource claims give a container.
pub const CLAIMS: &str = "claims";
/// Engine name of the grant of a container that runs without a place.
pub const UNPLACED: &str = "none";
/// Name in place of an engine's for what a scheduler has chosen and no engine has given yet.
pub(crate) const CHOSEN: &str = "chosen";

/// Deserializes a name of an engine or a policy.
#[cfg(feature = "serde")]
pub(crate) fn fixed_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<FixedName, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(from)?;
    known_name(&text)
        .ok_or_else(|| serde::de::Error::custom(format!("{text:.40?} is no engine and no policy")))
}

/// The same name as in the code.
pub fn known_name(text: &str) -> Option<FixedName> {
    let others = ["", OTHERS, CLAIMS, UNPLACED, HINTS, POOLS, POOLS_POLICY];
    let policies = TopologyPolicy::ALL.into_iter().map(TopologyPolicy::as_str);
    policies.chain(others).find(|name| *name == text)
}
