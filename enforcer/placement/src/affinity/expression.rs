//! Expressions about a container: a key, an operator, values.
//!
//! For an absent value `Equals`, `In`, `Matches`, `MatchesAny` and `Exists` do not hold, and their opposites
//! do. Globs are compiled once, when the rule is read.

use std::borrow::Cow;

use super::subject::AffinitySubject;
use crate::{document::Scalar, qos::QosClass, settings::glob_matcher::GlobMatcher};

/// Maximum number of values of one expression, and of keys of a joint one.
const VALUE_LIMIT: usize = 64;

/// An expression about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Expression {
    keys: Vec<ContainerKey>,
    /// Separator of the values of several keys.
    separator: String,
    test: Operator,
}

/// Property of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum ContainerKey {
    Container,
    Pod,
    Namespace,
    Qos,
    Label(String),
    /// Known only once the container runs: no container has it when it is placed.
    NotYet,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum Operator {
    OneOf { values: Vec<String>, negated: bool },
    Matches { patterns: Vec<Pattern>, negated: bool },
    Exists { negated: bool },
    Always,
}

/// A glob; two are equal if their texts are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(GlobMatcher);

#[cfg(feature = "serde")]
mod serde_text {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::Pattern;

    impl Serialize for Pattern {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(self.0.text())
        }
    }

    impl<'de> Deserialize<'de> for Pattern {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Self::new(&<Cow<'de, str>>::deserialize(deserializer)?).map_err(de::Error::custom)
        }
    }
}

#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(crate) struct RawExpression {
    #[cfg_attr(feature = "serde", serde(default))]
    key: String,
    operator: String,
    #[cfg_attr(feature = "serde", serde(default))]
    values: Vec<Scalar>,
}

impl RawExpression {
    pub(crate) fn read(&self) -> Result<Expression, String> {
        let Self { key, operator, values } = self;
        let refused = |problem: &str| Err(format!("operator {operator} {problem}"));
        if values.len() > VALUE_LIMIT {
            return refused(&format!("has more than {VALUE_LIMIT} values"));
        }
        let one_of =
            |negated| Operator::OneOf { values: values.iter().map(|v| v.0.clone()).collect(), negated };
        let matches = |negated| {
            let patterns: Result<_, String> = values.iter().map(|value| Pattern::new(&value.0)).collect();
            Ok::<_, String>(Operator::Matches { patterns: patterns?, negated })
        };
        let (needed, test) = match operator.as_str() {
            "Equals" => (Some(1), one_of(false)),
            "NotEqual" => (Some(1), one_of(true)),
            "In" => (None, one_of(false)),
            "NotIn" => (None, one_of(true)),
            "Exists" => (Some(0), Operator::Exists { negated: false }),
            "NotExist" => (Some(0), Operator::Exists { negated: true }),
            "AlwaysTrue" => (None, Operator::Always),
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
            Operator::Always => (Vec::new(), String::new()),
            _ => keys_of(key)?,
        };
        Ok(Expression { keys, separator, test })
    }
}

/// Parses the keys of an expression and the separator of their values: one key, or several as
/// `:SEPARATOR:KEY,KEY`; also `:KEY,KEY` with a colon as separator, and `:KV...` where K separates keys and V
/// separates values, one character each.
fn keys_of(text: &str) -> Result<(Vec<ContainerKey>, String), String> {
    let is_mark = |c: char| c.is_ascii_punctuation() && c != '/';
    let (separator, between, list) = match text.strip_prefix(':') {
        None => return Ok((vec![ContainerKey::read(text)?], String::new())),
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
    let keys: Vec<ContainerKey> = list
        .split(between)
        .take(VALUE_LIMIT)
        .map(|key| ContainerKey::read(key.trim()))
        .collect::<Result<_, _>>()?;
    Ok((keys, separator))
}

impl ContainerKey {
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

    fn value<'a>(&self, of: &AffinitySubject<'a>) -> Option<&'a str> {
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
        let matcher = GlobMatcher::of_paths(text);
        matcher.map(Self).map_err(|fault| format!("error parsing glob '{text}': {fault}"))
    }
}

impl Expression {
    /// An expression that holds for every container.
    pub(crate) const fn always() -> Self {
        Self { keys: Vec::new(), separator: String::new(), test: Operator::Always }
    }

    pub(crate) fn equals(key: ContainerKey, value: &str) -> Self {
        let test = Operator::OneOf { values: vec![value.to_owned()], negated: false };
        Self { keys: vec![key], separator: String::new(), test }
    }

    /// Names of containers, if the expression is only about names.
    pub(crate) fn names(&self) -> &[String] {
        match (&self.test, self.keys.as_slice()) {
            (Operator::OneOf { values, .. }, [ContainerKey::Container]) => values,
            _ => &[],
        }
    }

    /// The value to compare; a joint one exists if all of its parts do.
    fn value<'a>(&self, of: &AffinitySubject<'a>) -> Option<Cow<'a, str>> {
        if let [key] = self.keys.as_slice() {
            return key.value(of).map(Cow::Borrowed);
        }
        let parts: Vec<&str> = self.keys.iter().map(|key| key.value(of)).collect::<Option<_>>()?;
        Some(Cow::Owned(parts.join(&self.separator)))
    }

    pub(crate) fn holds(&self, of: &AffinitySubject<'_>) -> bool {
        match &self.test {
            Operator::Always => true,
            Operator::Exists { negated } => self.value(of).is_some() != *negated,
            Operator::OneOf { values, negated } => {
                let found = self.value(of).is_some_and(|value| values.iter().any(|v| *v == value));
                found != *negated
            }
            Operator::Matches { patterns, negated } => {
                let found = self.value(of).is_some_and(|value| patterns.iter().any(|p| p.0.is_match(&value)));
                found != *negated
            }
        }
    }
}
