//! Containers that want to be close to each other, or far apart.
//!
//! Problem: a container has rules like "near the cache of my pod" (`affinity`) and "away from the other
//! database" (`anti-affinity`), each with a weight. Which pools does that speak for? Idea: the weight of
//! every rule that matches a container counts for the pool that container is in; a pool is drawn
//! to by itself in full and by every pool above and below it with three quarters less per level, so
//! that a pool which has everybody wanted below it can win against each of them.
//!
//! Both directions count: the rules of the container that is placed, and those of the ones that are
//! there already. So the order of arrival does not matter. A rule that holds for both by its
//! nature (the simple form, colocation) counts once. Without a scope a rule is about the same pod,
//! that is the same name in the same namespace.
//!
//! Must never round: scores are integers, scaled by four to the depth of the tree, so that equal
//! means equal.

use std::{borrow::Cow, collections::BTreeMap};

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;

use super::{annotations::FAMILIES, document::Scalar, tree::PoolTree};
use crate::{
    place::{PodName, PodRequest},
    policy::placement::PoolsSettings,
    workload::{QosClass, printable},
};

/// Greatest weight, and with a minus the smallest.
const WEIGHT_LIMIT: i64 = 1000;
/// Weight of the rules of `colocate_pods` and `colocate_namespaces`.
const COLOCATION_WEIGHT: i64 = 10;
/// Most rules of one container that count.
const RULE_LIMIT: usize = 64;
/// Most values of one expression, and most keys of a joint one.
const VALUE_LIMIT: usize = 64;

/// One container as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its pod.
    pub pod: &'a PodName,
    /// Its name.
    pub container: &'a str,
    /// `QoS` class of its pod.
    pub qos: Option<QosClass>,
    /// Labels of its pod.
    pub labels: &'a BTreeMap<String, String>,
}

/// One rule of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffinityRule {
    /// Containers that it is about at all; those of the same pod when absent.
    scope: Option<Expression>,
    /// Of these, those that it pulls towards.
    wanted: Expression,
    /// How much; away from them when negative.
    weight: i64,
    /// It holds for both sides, and counts once.
    mutual: bool,
}

/// A question to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expression {
    keys: Vec<Key>,
    /// Between the values of several keys.
    separator: String,
    test: Test,
}

/// What of a container is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Container,
    Pod,
    Namespace,
    Qos,
    Label(String),
    /// Known only once the container runs: no container has it when it is placed.
    NotYet,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    OneOf { values: Vec<String>, negated: bool },
    Matches { patterns: Vec<Pattern>, negated: bool },
    Exists { negated: bool },
    Always,
}

/// A glob that is equal to another when its text is.
#[derive(Debug, Clone)]
struct Pattern(GlobMatcher);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.glob() == other.0.glob()
    }
}

impl Eq for Pattern {}

/// The value of the annotation: rules by container.
type Annotation = BTreeMap<String, Vec<Entry>>;

/// One element of a container's list: a name (the simple form) or a rule (the full one).
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Entry {
    Rule(FullRule),
    Name(Scalar),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FullRule {
    scope: Option<RawExpression>,
    #[serde(rename = "match")]
    wanted: RawExpression,
    weight: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpression {
    #[serde(default)]
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<Scalar>,
}

/// The rules of a container: those of its pod's annotations, else those of the settings; and what of
/// the annotations was ignored.
pub fn rules_of(
    pod: &PodRequest,
    container: &str,
    settings: &PoolsSettings,
) -> (Vec<AffinityRule>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut rules = Vec::new();
    for (kind, sign) in [("affinity", 1), ("anti-affinity", -1)] {
        let keys = FAMILIES.map(|family| format!("{family}/{kind}"));
        let Some(key) = keys.into_iter().find(|key| pod.documents.contains_key(key)) else { continue };
        let read = pod.documents[&key].as_ref().map_err(Clone::clone).and_then(|document| document.read());
        let outcome = read.and_then(|annotation: Annotation| explicit_rules(&annotation, container, sign));
        match outcome {
            Ok(found) => rules.extend(found),
            Err(problem) => warnings.push(format!("annotation {key}: {}", printable(&problem))),
        }
    }
    if rules.len() > RULE_LIMIT {
        warnings.push(format!(
            "container {} has {} affinity rules, the first {RULE_LIMIT} count",
            printable(container),
            rules.len()
        ));
        rules.truncate(RULE_LIMIT);
    }
    if rules.is_empty() {
        rules = implicit_rules(&pod.name, settings);
    }
    (rules, warnings)
}

fn explicit_rules(annotation: &Annotation, container: &str, sign: i64) -> Result<Vec<AffinityRule>, String> {
    let mut rules = Vec::new();
    for (owner, entry) in annotation.iter().flat_map(|(owner, list)| list.iter().map(move |e| (owner, e))) {
        match entry {
            Entry::Name(Scalar(other)) => {
                let partner = if owner == container {
                    other
                } else if other == container {
                    owner
                } else {
                    continue;
                };
                rules.push(AffinityRule {
                    scope: None,
                    wanted: Expression::equals(Key::Container, partner),
                    weight: sign,
                    mutual: true,
                });
            }
            Entry::Rule(rule) if owner == container => rules.push(rule.read(sign)?),
            // Someone else's; read all the same, so that a mistake is reported whoever is placed.
            Entry::Rule(rule) => drop(rule.read(sign)?),
        }
    }
    rules.dedup();
    Ok(rules)
}

fn implicit_rules(pod: &PodName, settings: &PoolsSettings) -> Vec<AffinityRule> {
    let everybody = Expression { keys: Vec::new(), separator: String::new(), test: Test::Always };
    let same_namespace = Expression::equals(Key::Namespace, &pod.namespace);
    let rule =
        |scope| AffinityRule { scope, wanted: everybody.clone(), weight: COLOCATION_WEIGHT, mutual: true };
    let of_pod = settings.colocate_pods.then(|| rule(None));
    let of_namespace = settings.colocate_namespaces.then(|| rule(Some(same_namespace)));
    of_pod.into_iter().chain(of_namespace).collect()
}

impl FullRule {
    fn read(&self, sign: i64) -> Result<AffinityRule, String> {
        let weight = match self.weight {
            None | Some(0) => sign,
            // An anti-affinity is one whichever sign its weight is written with.
            Some(weight) if sign < 0 => -weight.saturating_abs(),
            Some(weight) => weight,
        };
        Ok(AffinityRule {
            scope: self.scope.as_ref().map(RawExpression::read).transpose()?,
            wanted: self.wanted.read()?,
            weight: weight.clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT),
            mutual: false,
        })
    }
}

impl RawExpression {
    fn read(&self) -> Result<Expression, String> {
        let Self { key, operator, values } = self;
        let refused = |problem: &str| Err(format!("operator {operator} {problem}"));
        if values.len() > VALUE_LIMIT {
            return refused(&format!("has more than {VALUE_LIMIT} values"));
        }
        let one_of = |negated| Test::OneOf { values: values.iter().map(|v| v.0.clone()).collect(), negated };
        let matches = |negated| {
            let patterns: Result<_, String> = values.iter().map(|value| Pattern::new(&value.0)).collect();
            Ok::<_, String>(Test::Matches { patterns: patterns?, negated })
        };
        let (needed, test) = match operator.as_str() {
            "Equals" => (Some(1), one_of(false)),
            "NotEqual" => (Some(1), one_of(true)),
            "In" => (None, one_of(false)),
            "NotIn" => (None, one_of(true)),
            "Exists" => (Some(0), Test::Exists { negated: false }),
            "NotExist" => (Some(0), Test::Exists { negated: true }),
            "AlwaysTrue" => (None, Test::Always),
            "Matches" => (Some(1), matches(false)?),
            "MatchesNot" => (Some(1), matches(true)?),
            "MatchesAny" => (None, matches(false)?),
            "MatchesNone" => (None, matches(true)?),
            _ => return refused("is not known"),
        };
        if needed.is_some_and(|needed| values.len() != needed) {
            return refused(&format!("takes {} values, not {}", needed.unwrap_or(0), values.len()));
        }
        let (keys, separator) = match test {
            Test::Always => (Vec::new(), String::new()),
            _ => keys_of(key)?,
        };
        Ok(Expression { keys, separator, test })
    }
}

/// The keys of an expression, and what goes between their values: one key, or several as
/// `:SEPARATOR:KEY,KEY`; also `:KEY,KEY` with a colon between the values, and `:KV...` where K is one
/// character between keys and V one between values.
fn keys_of(text: &str) -> Result<(Vec<Key>, String), String> {
    let is_mark = |c: char| c.is_ascii_punctuation() && c != '/';
    let (separator, between, list) = match text.strip_prefix(':') {
        None => return Ok((vec![Key::read(text)?], String::new())),
        Some(joint) => match joint.split_once(':') {
            Some((separator, list)) => (separator.to_owned(), ',', list),
            None => match (joint.chars().next(), joint.chars().nth(1)) {
                (Some(key), Some(value)) if is_mark(key) && is_mark(value) => {
                    (value.to_string(), key, &joint[key.len_utf8() + value.len_utf8()..])
                }
                _ => (":".to_owned(), ',', joint),
            },
        },
    };
    let keys: Vec<Key> =
        list.split(between).take(VALUE_LIMIT).map(|key| Key::read(key.trim())).collect::<Result<_, _>>()?;
    Ok((keys, separator))
}

impl Key {
    fn read(text: &str) -> Result<Self, String> {
        let of_container = |key: &str| match key {
            "io.kubernetes.container.name" => Self::Container,
            "io.kubernetes.pod.name" => Self::Pod,
            "io.kubernetes.pod.namespace" => Self::Namespace,
            _ => Self::Label(key.to_owned()),
        };
        Ok(match text {
            "name" => Self::Container,
            "namespace" | "pod/namespace" => Self::Namespace,
            "qosclass" | "pod/qosclass" => Self::Qos,
            "pod/name" => Self::Pod,
            "id" | "pod/id" | "pod/uid" | "uid" => Self::NotYet,
            _ => match (text.strip_prefix("labels/"), text.strip_prefix("pod/labels/")) {
                (Some(label), _) => of_container(label),
                (None, Some(label)) => Self::Label(label.to_owned()),
                (None, None) => return Err(format!("key `{text}` is not known")),
            },
        })
    }

    fn value<'a>(&self, of: &Subject<'a>) -> Option<&'a str> {
        match self {
            Self::Container => Some(of.container),
            Self::Pod => Some(&of.pod.name),
            Self::Namespace => Some(&of.pod.namespace),
            Self::Qos => of.qos.map(|qos| match qos {
                QosClass::Guaranteed => "Guaranteed",
                QosClass::Burstable => "Burstable",
                QosClass::BestEffort => "BestEffort",
            }),
            Self::Label(label) => of.labels.get(label).map(String::as_str),
            Self::NotYet => None,
        }
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self, String> {
        let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
        glob.map(|glob| Self(glob.compile_matcher())).map_err(|error| error.to_string())
    }
}

impl Expression {
    fn equals(key: Key, value: &str) -> Self {
        let test = Test::OneOf { values: vec![value.to_owned()], negated: false };
        Self { keys: vec![key], separator: String::new(), test }
    }

    /// The value in question; a joint one is there when all of its parts are.
    fn value<'a>(&self, of: &Subject<'a>) -> Option<Cow<'a, str>> {
        if let [key] = self.keys.as_slice() {
            return key.value(of).map(Cow::Borrowed);
        }
        let parts: Vec<&str> = self.keys.iter().map(|key| key.value(of)).collect::<Option<_>>()?;
        Some(Cow::Owned(parts.join(&self.separator)))
    }

    fn holds(&self, of: &Subject<'_>) -> bool {
        match &self.test {
            Test::Always => true,
            Test::Exists { negated } => self.value(of).is_some() != *negated,
            Test::OneOf { values, negated } => {
                let found = self.value(of).is_some_and(|value| values.iter().any(|v| *v == value));
                found != *negated
            }
            Test::Matches { patterns, negated } => {
                let found =
                    self.value(of).is_some_and(|value| patterns.iter().any(|p| p.0.is_match(&*value)));
                found != *negated
            }
        }
    }
}

impl AffinityRule {
    /// Does the rule of `owner` pull it towards `other`? Never towards itself.
    fn concerns(&self, owner: &Subject<'_>, other: &Subject<'_>) -> bool {
        let in_scope = match &self.scope {
            None => owner.pod == other.pod,
            Some(scope) => scope.holds(other),
        };
        in_scope && (owner.pod, owner.container) != (other.pod, other.container) && self.wanted.holds(other)
    }
}

/// How much two containers draw each other, by the rules of both; negative when they should be apart.
pub fn attraction(
    (one, rules_of_one): (&Subject<'_>, &[AffinityRule]),
    (other, rules_of_other): (&Subject<'_>, &[AffinityRule]),
) -> i64 {
    let sum = |rules: &[AffinityRule], owner, other, mutual: bool| {
        let count = rules.iter().filter(|rule| rule.mutual == mutual && rule.concerns(owner, other));
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

/// What each pool is worth when `drawn[x]` draws towards pool x: the sum of `drawn[x] * 0.75^distance`
/// over the pool itself and all above and below it, times four to the greatest depth.
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
