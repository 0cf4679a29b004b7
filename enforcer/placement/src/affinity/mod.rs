//! Affinity rules as a grant holds them: which containers a container is drawn to, and how strongly.
//!
//! The engine `pools` reads rules from annotations and settings, and computes attraction from them
//! ([`pools::affinity`](crate::pools::affinity)).

mod expression;
mod rule;
mod subject;

pub(crate) use self::expression::{ContainerKey, Expression, RawExpression};
pub use self::{rule::AffinityRule, subject::AffinitySubject};
