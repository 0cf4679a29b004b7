//! Which nodes a pod may go to by its own words: its node selector and its required node affinity.
//!
//! Invariants: a node is allowed where kube-scheduler's `NodeAffinity` allows it
//! (`k8s.io/component-helpers/scheduling/corev1/nodeaffinity`): terms are alternatives, all of a term has to
//! hold, an empty term holds nowhere, and neither does one with a requirement that cannot be understood: a
//! value that no label can have makes its whole term one, with every operator.

use std::collections::BTreeMap;

/// The one field of a node by which terms choose.
pub const NAME_FIELD: &str = "metadata.name";

/// Nodes that a pod may go to by its own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredNodes {
    /// `spec.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms`.
    pub affinity: AffinityTerms,
}

/// Terms of the required node affinity, or what of the objects around them the pod has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AffinityTerms {
    /// It has no `spec.affinity`.
    #[default]
    NoAffinity,
    /// It has one without `nodeAffinity`.
    NoNodeAffinity,
    /// It has that without a requirement.
    NoRequirement,
    /// The terms, of which one has to hold.
    Terms(Vec<NodeTerm>),
}

/// Requirements that have to hold together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTerm {
    /// `matchExpressions`, of labels.
    pub labels: Vec<NodeRequirement>,
    /// `matchFields`, of the node's name.
    pub fields: Vec<NodeRequirement>,
}

/// A requirement of one label or field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRequirement {
    /// The label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`; of fields one of the first two.
    pub operator: String,
    /// What it is compared with.
    pub values: Vec<String>,
}

impl RequiredNodes {
    /// May the pod go to the node with this name and these labels?
    pub fn allow(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && match &self.affinity {
                AffinityTerms::Terms(terms) => terms.iter().any(|term| term.holds(name, labels)),
                _ => true,
            }
    }

    /// Does every term with a requirement, and there is one, require this node by its name?
    pub fn name_only(&self, node: &str) -> bool {
        let AffinityTerms::Terms(terms) = &self.affinity else { return false };
        let mut terms = terms.iter().filter(|term| !term.is_empty()).peekable();
        terms.peek().is_some() && terms.all(|term| term.names(node))
    }
}

impl NodeTerm {
    /// Has it no requirement? Then it holds nowhere.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Does it require this node by its name?
    pub fn names(&self, node: &str) -> bool {
        self.fields.iter().any(|field| *field == NodeRequirement::of_name(node))
    }

    fn holds(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        !self.is_empty()
            && self.labels.iter().all(|label| label.holds_for_label(labels.get(&label.key)))
            && self.fields.iter().all(|field| field.holds_for_field(name))
    }
}

impl NodeRequirement {
    /// That the node has this name.
    pub fn of_name(node: &str) -> Self {
        Self { key: NAME_FIELD.into(), operator: "In".into(), values: vec![node.to_owned()] }
    }

    fn holds_for_label(&self, label: Option<&String>) -> bool {
        if !is_label_key(&self.key) || !self.values.iter().all(|value| is_label_value(value)) {
            return false;
        }
        let is_listed = |label: &String| self.values.contains(label);
        match (self.operator.as_str(), self.values.as_slice()) {
            ("In", [_, ..]) => label.is_some_and(is_listed),
            ("NotIn", [_, ..]) => !label.is_some_and(is_listed),
            ("Exists", []) => label.is_some(),
            ("DoesNotExist", []) => label.is_none(),
            ("Gt" | "Lt", [bound]) => {
                let (Some(Ok(label)), Ok(bound)) =
                    (label.map(|label| label.parse::<i64>()), bound.parse::<i64>())
                else {
                    return false;
                };
                if self.operator == "Gt" { label > bound } else { label < bound }
            }
            _ => false,
        }
    }

    fn holds_for_field(&self, name: &str) -> bool {
        let field = if self.key == NAME_FIELD { name } else { "" };
        match (self.operator.as_str(), self.values.as_slice()) {
            ("In", [value]) => field == value,
            ("NotIn", [value]) => field != value,
            _ => false,
        }
    }
}

/// Longest value of a label, and longest name of a key behind its prefix.
const LABEL: usize = 63;
/// Longest prefix of a key.
const PREFIX: usize = 253;

/// Can a label have this value? As `IsValidLabelValue` (`k8s.io/apimachinery/pkg/util/validation`).
fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_name(value)
}

/// Can a label have this key? As `IsQualifiedName`.
fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_name(key),
        Some((prefix, name)) => prefix.len() <= PREFIX && is_subdomain(prefix) && is_label_name(name),
    }
}

fn is_label_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LABEL && is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().copied().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|part| {
        let ends = [part.bytes().next(), part.bytes().next_back()];
        ends.iter().all(|byte| byte.is_some_and(is_lower))
            && part.bytes().all(|byte| is_lower(byte) || byte == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeRequirement {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        NodeRequirement { key: key.into(), operator: operator.into(), values }
    }

    fn labels() -> BTreeMap<String, String> {
        [("zone", "a"), ("cores", "64"), ("odd", "x1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    #[test]
    fn operators_are_those_of_kubernetes() {
        for (key, operator, values, holds) in [
            ("zone", "In", &["b", "a"][..], true),
            ("zone", "In", &["b"], false),
            ("none", "In", &["a"], false),
            ("zone", "In", &[], false),
            ("zone", "NotIn", &["b"], true),
            ("zone", "NotIn", &["a"], false),
            ("none", "NotIn", &["a"], true),
            ("zone", "NotIn", &[], false),
            ("zone", "Exists", &[], true),
            ("zone", "Exists", &["a"], false),
            ("none", "DoesNotExist", &[], true),
            ("zone", "DoesNotExist", &[], false),
            ("cores", "Gt", &["63"], true),
            ("cores", "Gt", &["64"], false),
            ("cores", "Lt", &["65"], true),
            ("cores", "Lt", &["65", "66"], false),
            ("odd", "Gt", &["1"], false),
            ("cores", "Gt", &["x"], false),
            ("none", "Lt", &["5"], false),
            ("zone", "Later", &["a"], false),
            // One value that no label can have, and the requirement is not understood.
            ("zone", "In", &["a", "in valid"], false),
            ("zone", "NotIn", &["b", "-b"], false),
            ("none", "NotIn", &["b."], false),
            ("zone", "NotIn", &[""], true),
            ("cores", "Gt", &["-1"], false),
            ("cores", "Gt", &["+1"], false),
            ("example.org/none", "NotIn", &["a"], true),
            ("Example.org/none", "NotIn", &["a"], false),
            ("example..org/none", "DoesNotExist", &[], false),
            ("no ne", "DoesNotExist", &[], false),
            ("", "DoesNotExist", &[], false),
        ] {
            let term = NodeTerm { labels: vec![requirement(key, operator, values)], fields: Vec::new() };
            assert_eq!(term.holds("n", &labels()), holds, "{key} {operator} {values:?}");
        }
        for (value, is_one) in [("x".repeat(63), true), ("x".repeat(64), false)] {
            let term = NodeTerm { labels: vec![requirement("zone", "NotIn", &[&value])], fields: Vec::new() };
            assert_eq!(term.holds("n", &labels()), is_one, "{value}");
        }
        for (key, operator, values, holds) in [
            (NAME_FIELD, "In", &["n"][..], true),
            (NAME_FIELD, "In", &["m"], false),
            (NAME_FIELD, "In", &["n", "m"], false),
            (NAME_FIELD, "NotIn", &["m"], true),
            (NAME_FIELD, "Exists", &[], false),
            ("metadata.uid", "In", &["n"], false),
        ] {
            let term = NodeTerm { labels: Vec::new(), fields: vec![requirement(key, operator, values)] };
            assert_eq!(term.holds("n", &labels()), holds, "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_one_holds_nowhere() {
        let zone = |zone| NodeTerm {
            labels: vec![requirement("zone", "In", &[zone])],
            fields: vec![NodeRequirement::of_name("n")],
        };
        let of = |terms: Vec<NodeTerm>| RequiredNodes {
            affinity: AffinityTerms::Terms(terms),
            ..RequiredNodes::default()
        };
        assert!(RequiredNodes::default().allow("n", &labels()));
        assert!(of(vec![zone("b"), zone("a")]).allow("n", &labels()));
        assert!(!of(vec![zone("a")]).allow("m", &labels()), "its name is another one");
        assert!(!of(vec![NodeTerm::default()]).allow("n", &labels()));
        assert!(!of(Vec::new()).allow("n", &labels()));
        let invalid = || NodeTerm { labels: vec![requirement("zone", "NotIn", &["?"])], fields: Vec::new() };
        assert!(!of(vec![invalid()]).allow("n", &labels()));
        assert!(of(vec![invalid(), zone("a")]).allow("n", &labels()), "a term beside it counts");
        let mut selected = of(vec![zone("a")]);
        selected.selector = labels();
        assert!(selected.allow("n", &labels()));
        selected.selector.insert("zone".into(), "b".into());
        assert!(!selected.allow("n", &labels()));
    }

    #[test]
    fn name_is_required_if_every_term_with_a_requirement_has_it() {
        let named =
            |node: &str| NodeTerm { labels: Vec::new(), fields: vec![NodeRequirement::of_name(node)] };
        let names = |terms: Vec<NodeTerm>| {
            let of = RequiredNodes { affinity: AffinityTerms::Terms(terms), ..RequiredNodes::default() };
            of.name_only("n")
        };
        assert!(names(vec![named("n"), NodeTerm::default(), named("n")]));
        assert!(!names(vec![named("n"), named("m")]));
        let other = NodeTerm { labels: vec![requirement("zone", "Exists", &[])], fields: Vec::new() };
        assert!(!names(vec![named("n"), other]));
        assert!(!names(vec![NodeTerm::default()]));
        assert!(!RequiredNodes::default().name_only("n"));
        let mut never = named("m");
        never.fields.push(NodeRequirement::of_name("n"));
        assert!(names(vec![named("n"), never]), "that one holds nowhere");
    }
}
