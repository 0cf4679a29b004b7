//! A rule of a container about others.

use super::{expression::Expression, subject::AffinitySubject};

/// One rule of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AffinityRule {
    /// Containers that it can apply to; those of the same pod when absent.
    pub(crate) scope: Option<Expression>,
    /// Containers of the scope that it attracts to.
    pub(crate) wanted: Expression,
    /// Strength; negative for repulsion.
    pub(crate) weight: i64,
    /// Whether it applies in both directions and counts once.
    pub(crate) mutual: bool,
    /// Whether it comes from a setting: it has no effect beside rules written for a container.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub(crate) implicit: bool,
}

impl AffinityRule {
    /// Does the rule of `owner` attract it to `other`? Never to itself.
    pub(crate) fn concerns(&self, owner: &AffinitySubject<'_>, other: &AffinitySubject<'_>) -> bool {
        let in_scope = match &self.scope {
            None => owner.pod == other.pod,
            Some(scope) => scope.holds(other),
        };
        in_scope && (owner.pod, owner.container) != (other.pod, other.container) && self.wanted.holds(other)
    }
}
