//! A document as a tree with the place of every value.
//!
//! Manifests have hundreds of fields of which few matter here, unknown kinds, and lists of both. A typed
//! reader would either refuse the rest or lose the places. So text becomes a tree first, and the values that
//! matter are taken out of it by name. A `null` counts as absent.

use std::borrow::Cow;

use enforcer_core::workload::cut_at;
use serde_json::Value;

use super::source::{ManifestProblem, TextPlace};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TreeNode {
    /// Where it is.
    pub(super) at: TextPlace,
    /// What it is.
    pub(super) value: ManifestValue,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ManifestValue {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, in decimal.
    Number(String),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<TreeNode>),
    /// Values by key, in the order of the text; no key is there twice.
    Map(Vec<MapEntry>),
}

/// A value of a map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MapEntry {
    /// Its key.
    pub(super) key: String,
    /// Where the key is.
    pub(super) at: TextPlace,
    /// The value.
    pub(super) node: TreeNode,
}

impl TreeNode {
    /// Is there nothing?
    pub(super) const fn is_null(&self) -> bool {
        matches!(self.value, ManifestValue::Null)
    }

    /// The value as JSON; a number that JSON does not have is text.
    pub(super) fn to_json(&self) -> Value {
        match &self.value {
            ManifestValue::Null => Value::Null,
            ManifestValue::Bool(flag) => Value::Bool(*flag),
            ManifestValue::Number(text) => {
                text.parse().map_or_else(|_other| Value::String(text.clone()), Value::Number)
            }
            ManifestValue::Text(text) => Value::String(text.clone()),
            ManifestValue::List(nodes) => Value::Array(nodes.iter().map(Self::to_json).collect()),
            ManifestValue::Map(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect()
            }
        }
    }

    /// Is it nothing, or a list or a map of nothing?
    pub(super) const fn is_empty(&self) -> bool {
        match &self.value {
            ManifestValue::Null => true,
            ManifestValue::List(nodes) => nodes.is_empty(),
            ManifestValue::Map(entries) => entries.is_empty(),
            ManifestValue::Bool(_) | ManifestValue::Number(_) | ManifestValue::Text(_) => false,
        }
    }

    /// The value of a key; none when this is no map, or there is none, or it is `null`.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let ManifestValue::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node).filter(|node| !node.is_null())
    }

    /// The value of a key of a key.
    pub(super) fn find(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The entries of a map; `what` names it in the message otherwise.
    pub(super) fn map(&self, what: &str) -> Result<&[MapEntry], ManifestProblem> {
        match &self.value {
            ManifestValue::Map(entries) => Ok(entries),
            ManifestValue::Null => Ok(&[]),
            _ => Err(self.not(what, "a map")),
        }
    }

    /// The values of a list.
    pub(super) fn list(&self, what: &str) -> Result<&[Self], ManifestProblem> {
        match &self.value {
            ManifestValue::List(nodes) => Ok(nodes),
            ManifestValue::Null => Ok(&[]),
            _ => Err(self.not(what, "a list")),
        }
    }

    /// A text.
    pub(super) fn text(&self, what: &str) -> Result<&str, ManifestProblem> {
        match &self.value {
            ManifestValue::Text(text) => Ok(text),
            _ => Err(self.not(what, "text")),
        }
    }

    /// A text, or a number as one: `cpu: 2` and `cpu: "2"` are the same.
    pub(super) fn scalar(&self, what: &str) -> Result<Cow<'_, str>, ManifestProblem> {
        match &self.value {
            ManifestValue::Text(text) | ManifestValue::Number(text) => Ok(Cow::Borrowed(text)),
            ManifestValue::Bool(value) => Ok(Cow::Borrowed(if *value { "true" } else { "false" })),
            _ => Err(self.not(what, "text or a number")),
        }
    }

    /// A whole number from 0.
    pub(super) fn count(&self, what: &str) -> Result<u64, ManifestProblem> {
        match &self.value {
            ManifestValue::Number(number) => number.parse().ok(),
            _ => None,
        }
        .ok_or_else(|| self.not(what, "a whole number"))
    }

    /// Refuses every key but these: for files of our own, where another one is a slip of the pen.
    pub(super) fn only(&self, what: &str, known: &[&str]) -> Result<(), ManifestProblem> {
        match self.map(what)?.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            None => Ok(()),
            Some(entry) => {
                let known = known.join(", ");
                Err(ManifestProblem::new(
                    entry.at,
                    format!("{what} has no field `{}`; expected {known}", cut(&entry.key)),
                ))
            }
        }
    }

    /// A value that must be there.
    pub(super) fn must(&self, what: &str, key: &str) -> Result<&Self, ManifestProblem> {
        self.get(key).ok_or_else(|| ManifestProblem::new(self.at, format!("{what} has no `{key}`")))
    }

    /// The problem that this is something else.
    pub(super) fn not(&self, what: &str, expected: &str) -> ManifestProblem {
        let found = match &self.value {
            ManifestValue::Null => Cow::Borrowed("nothing"),
            ManifestValue::Bool(value) => Cow::Owned(format!("`{value}`")),
            ManifestValue::Number(text) | ManifestValue::Text(text) => Cow::Owned(format!("`{}`", cut(text))),
            ManifestValue::List(_) => Cow::Borrowed("a list"),
            ManifestValue::Map(_) => Cow::Borrowed("a map"),
        };
        ManifestProblem::new(self.at, format!("{what}: {expected} is expected, not {found}"))
    }
}

/// A text that is short enough for a message.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    cut_at(text, 60)
}
