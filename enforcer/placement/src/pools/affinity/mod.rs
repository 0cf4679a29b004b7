//! Affinity: containers that should be close to each other, or far apart.
//!
//! Problem: a container has rules like "near the cache of my pod" (`affinity`) and "away from the other
//! database" (`anti-affinity`), each with a weight. How do they score pools? Idea: the weight of every rule
//! that matches a container counts for the pool of that container. A pool gets the full weight, and every
//! pool above and below it three quarters of it per level, so that a pool with all matching containers below
//! it can win against each of them.
//!
//! Both directions count: the rules of the container that is placed, and those of existing ones. So the order
//! of arrival does not matter. A mutual rule (the simple form, colocation) counts once. A rule without a
//! scope is about the same pod: the same name in the same namespace.
//!
//! Invariant: no rounding: scores are integers, scaled by four to the depth of the tree, so that equal means
//! equal.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    annotations::{FAMILIES, shown_problem},
    tree::PoolTree,
};
pub use crate::affinity::{AffinityRule, AffinitySubject};
use crate::{
    PodName, PodRequest,
    affinity::{ContainerKey, Expression, RawExpression},
    document::{Document, Scalar},
    settings::PoolsSettings,
};
use numa_topology::text::printable;

/// Maximum absolute weight.
const WEIGHT_LIMIT: i64 = 1000;
/// Weight of the rules of `colocate_pods` and `colocate_namespaces`.
const COLOCATION_WEIGHT: i64 = 10;
/// Maximum number of names in one warning.
const SHOWN_LIMIT: usize = 8;
/// Maximum number of rules of one container.
const RULE_LIMIT: usize = 64;

/// Value of the annotation: rules by container.
type Annotation = BTreeMap<String, Vec<AffinityEntry>>;

/// An element of a container's list: a name (the simple form) or a rule (the full form).
#[derive(Debug, Clone)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(untagged, expecting = "the name of a container or {scope, match, weight} was expected")
)]
#[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "entries are read by serde"))]
enum AffinityEntry {
    Rule(FullRule),
    Name(Scalar),
}

#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(deny_unknown_fields))]
struct FullRule {
    scope: Option<RawExpression>,
    #[cfg_attr(feature = "serde", serde(rename = "match"))]
    wanted: RawExpression,
    weight: Option<i64>,
}

/// Rules of a container: those of its pod's annotations, else those of the settings; and warnings about
/// ignored annotations.
pub fn rules_of(
    pod: &PodRequest,
    container: &str,
    settings: &PoolsSettings,
) -> (Vec<AffinityRule>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut rules = Vec::new();
    for (key, sign, read) in annotations(pod) {
        let outcome = read.and_then(|annotation: Annotation| explicit_rules(&annotation, container, sign));
        match outcome {
            Ok(found) => rules.extend(found),
            Err(problem) => warnings.push(format!("annotation {key}: {}, ignored", shown_problem(&problem))),
        }
    }
    if rules.len() > RULE_LIMIT {
        warnings.push(format!("{} affinity rules, the first {RULE_LIMIT} count", rules.len()));
        rules.truncate(RULE_LIMIT);
    }
    if rules.is_empty() {
        rules = implicit_rules(&pod.name, settings);
    }
    (rules, warnings)
}

/// Warning about containers in a pod's rules that the pod does not have; rules with a scope may mean other
/// pods.
pub fn strangers(pod: &PodRequest) -> Vec<String> {
    let of_one = |(key, _, read): (String, i64, Result<Annotation, String>)| {
        let annotation = read.ok()?;
        let names = annotation.iter().flat_map(|(owner, list)| {
            std::iter::once(owner.clone()).chain(list.iter().flat_map(AffinityEntry::names))
        });
        let unknown: BTreeSet<String> = names.filter(|name| pod.container(name).is_none()).collect();
        let shown: Vec<String> = unknown.iter().take(SHOWN_LIMIT).map(|name| printable(name)).collect();
        let more = if unknown.len() > SHOWN_LIMIT { ", ..." } else { "" };
        (!shown.is_empty()).then(|| {
            format!("annotation {key}: the pod has no container {}{more}, ignored", shown.join(", "))
        })
    };
    annotations(pod).into_iter().filter_map(of_one).collect()
}

/// The annotations in effect, with the sign of their weights.
fn annotations(pod: &PodRequest) -> Vec<(String, i64, Result<Annotation, String>)> {
    let counting = |(kind, sign)| {
        let keys = FAMILIES.map(|family| format!("{family}/{kind}"));
        let key = keys.into_iter().find(|key| pod.documents.contains_key(key))?;
        let read = pod.documents[&key].as_ref().map_err(Clone::clone).and_then(Document::read);
        Some((key, sign, read))
    };
    [("affinity", 1), ("anti-affinity", -1)].into_iter().filter_map(counting).collect()
}

fn explicit_rules(annotation: &Annotation, container: &str, sign: i64) -> Result<Vec<AffinityRule>, String> {
    let mut rules = Vec::new();
    for (owner, entry) in annotation.iter().flat_map(|(owner, list)| list.iter().map(move |e| (owner, e))) {
        match entry {
            AffinityEntry::Name(Scalar(other)) => {
                let partner = if owner == container {
                    other
                } else if other == container {
                    owner
                } else {
                    continue;
                };
                rules.push(AffinityRule {
                    scope: None,
                    wanted: Expression::equals(ContainerKey::Container, partner),
                    weight: sign,
                    mutual: true,
                    implicit: false,
                });
            }
            AffinityEntry::Rule(rule) if owner == container => rules.push(rule.read(sign)?),
            // Rules of another container; parsed too, so that a mistake is reported for every container.
            AffinityEntry::Rule(rule) => drop(rule.read(sign)?),
        }
    }
    rules.dedup();
    Ok(rules)
}

fn implicit_rules(pod: &PodName, settings: &PoolsSettings) -> Vec<AffinityRule> {
    let same_namespace = Expression::equals(ContainerKey::Namespace, &pod.namespace);
    let rule = |scope| AffinityRule {
        scope,
        wanted: Expression::always(),
        weight: COLOCATION_WEIGHT,
        mutual: true,
        implicit: true,
    };
    let of_pod = settings.colocate_pods.then(|| rule(None));
    let of_namespace = settings.colocate_namespaces.then(|| rule(Some(same_namespace)));
    of_pod.into_iter().chain(of_namespace).collect()
}

impl AffinityEntry {
    /// Containers of the same pod that it names.
    fn names(&self) -> Vec<String> {
        match self {
            Self::Name(Scalar(name)) => vec![name.clone()],
            Self::Rule(FullRule { scope: None, wanted, .. }) => {
                wanted.read().map(|wanted| wanted.names().to_vec()).unwrap_or_default()
            }
            Self::Rule(_) => Vec::new(),
        }
    }
}

impl FullRule {
    fn read(&self, sign: i64) -> Result<AffinityRule, String> {
        let weight = match self.weight {
            None | Some(0) => sign,
            // An anti-affinity is negative whichever sign its weight has.
            Some(weight) if sign < 0 => -weight.saturating_abs(),
            Some(weight) => weight,
        };
        Ok(AffinityRule {
            scope: self.scope.as_ref().map(RawExpression::read).transpose()?,
            wanted: self.wanted.read()?,
            weight: weight.clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT),
            mutual: false,
            implicit: false,
        })
    }
}

/// Attraction between two containers, by the rules of both; negative if they should be apart. If one of them
/// has its own rules, those of the settings have no effect between them.
pub(crate) fn attraction(
    (one, rules_of_one): (&AffinitySubject<'_>, &[AffinityRule]),
    (other, rules_of_other): (&AffinitySubject<'_>, &[AffinityRule]),
) -> i64 {
    let own = rules_of_one.iter().chain(rules_of_other).any(|rule| !rule.implicit);
    let sum = |rules: &[AffinityRule], owner, other, mutual: bool| {
        let counting = rules.iter().filter(|rule| rule.mutual == mutual && !(own && rule.implicit));
        let count = counting.filter(|rule| rule.concerns(owner, other));
        count.fold(0i64, |sum, rule| sum.saturating_add(rule.weight))
    };
    let both = match sum(rules_of_one, one, other, true) {
        0 => sum(rules_of_other, other, one, true),
        mutual => mutual,
    };
    both.saturating_add(sum(rules_of_one, one, other, false)).saturating_add(sum(
        rules_of_other,
        other,
        one,
        false,
    ))
}

/// Score of each pool if `drawn[x]` attracts to pool x: the sum of `drawn[x] * 0.75^distance` over the pool
/// itself and all above and below it, times four to the maximum depth.
pub fn score(tree: &PoolTree, drawn: &[i64]) -> Vec<i64> {
    let greatest = tree.pools().iter().map(|pool| pool.depth).max().unwrap_or(0);
    let share = |distance: usize| {
        let power =
            |base: i64, exponent: usize| base.saturating_pow(u32::try_from(exponent).unwrap_or(u32::MAX));
        power(3, distance).saturating_mul(power(4, greatest.saturating_sub(distance)))
    };
    let mut scores = vec![0i64; tree.pools().len()];
    for (pool, drawn) in tree.pools().iter().zip(drawn).filter(|(_, drawn)| **drawn != 0) {
        let above = std::iter::successors(pool.parent, |above| tree.pool(*above).parent);
        for other in tree.subtree(pool.id).chain(above) {
            let distance = pool.depth.abs_diff(tree.pool(other).depth);
            scores[other] = scores[other].saturating_add(drawn.saturating_mul(share(distance)));
        }
    }
    scores
}
