//! One file of the kubelet's configuration as a tree of JSON.
//!
//! The kubelet reads YAML or JSON and checks version and kind (`pkg/kubelet/kubeletconfig/configfiles`). The
//! files belong to root, and are treated as hostile all the same.
//!
//! Invariants: memory does not grow with what a text only claims: size, depth, values and aliases are limited
//! before a tree is made. A text that this reader and the kubelet's could understand differently (a second
//! document, a key that occurs twice, a number that JSON does not have) is refused, and never guessed.

use std::fmt;

use enforcer_core::workload::printable_within;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::{Options, alias_limits, budget, options};
use thiserror::Error;

/// Largest text in bytes; a configuration with every field takes some KiB.
pub(super) const SIZE_LIMIT: usize = 1 << 20;
/// Most values of one text.
const VALUES: usize = 1 << 15;
/// Most values that aliases may repeat.
const REPEATED: usize = 1 << 12;
/// Deepest nesting; the configuration itself nests 5 levels.
const DEPTH: usize = 32;

/// API version of the configuration.
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Its kind.
const KIND: &str = "KubeletConfiguration";

/// Fault of a document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentFault {
    /// Larger than any configuration.
    #[error("longer than {SIZE_LIMIT} bytes")]
    TooLong,
    /// More values than any configuration has.
    #[error("more than {VALUES} values")]
    TooMany,
    /// Not UTF-8.
    #[error("not UTF-8")]
    Encoding,
    /// Neither JSON nor YAML, or beyond the limits of this reader.
    #[error("not a document: {0}")]
    Syntax(String),
    /// Not a map.
    #[error("not a map of fields")]
    NoMap,
    /// The API version is another one, or is missing.
    #[error("apiVersion is {0:?}, not {API_VERSION}")]
    ApiVersion(String),
    /// The kind is another one, or is missing.
    #[error("kind is {0:?}, not {KIND}")]
    Kind(String),
}

/// Parses the bytes of a file, and checks version and kind.
///
/// # Errors
/// The fault; the kubelet would not have started with such a file, or could have read it differently.
pub fn parse_document(bytes: &[u8]) -> Result<Map<String, Value>, DocumentFault> {
    let Value::Object(fields) = tree(bytes)? else { return Err(DocumentFault::NoMap) };
    let field = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    if field("apiVersion") != API_VERSION {
        return Err(DocumentFault::ApiVersion(printable_within(field("apiVersion"), 80)));
    }
    if field("kind") != KIND {
        return Err(DocumentFault::Kind(printable_within(field("kind"), 80)));
    }
    Ok(fields)
}

/// Parses JSON within the limits.
///
/// # Errors
/// The fault.
pub(super) fn json(bytes: &[u8]) -> Result<Value, DocumentFault> {
    let tree: Result<StrictTree, _> = serde_json::from_slice(bounded(bytes)?.as_bytes());
    tree.map(|tree| tree.0).map_err(|error| syntax(&error.to_string()))
}

fn tree(bytes: &[u8]) -> Result<Value, DocumentFault> {
    let text = bounded(bytes)?;
    // The kubelet tries JSON first where a text begins like JSON.
    if text.trim_start().starts_with('{')
        && let Ok(tree) = serde_json::from_slice::<StrictTree>(text.as_bytes())
    {
        return Ok(tree.0);
    }
    let tree: Result<StrictTree, _> = serde_saphyr::from_str_with_options(text, limits());
    tree.map(|tree| tree.0).map_err(|error| syntax(&error.to_string()))
}

/// The text, if its size and the number of its values are within the limits. In JSON each value is the first
/// of a list or a map, or has a comma in front of it.
fn bounded(bytes: &[u8]) -> Result<&str, DocumentFault> {
    if bytes.len() > SIZE_LIMIT {
        return Err(DocumentFault::TooLong);
    }
    if bytes.iter().filter(|byte| matches!(byte, b'[' | b'{' | b',')).count() > VALUES {
        return Err(DocumentFault::TooMany);
    }
    std::str::from_utf8(bytes).map_err(|_not_utf8| DocumentFault::Encoding)
}

fn syntax(text: &str) -> DocumentFault {
    DocumentFault::Syntax(printable_within(text.lines().next().unwrap_or_default(), 120))
}

fn limits() -> Options {
    options! {
        budget: budget! {
            max_documents: 1,
            max_nodes: VALUES,
            max_events: 4 * VALUES,
            max_depth: DEPTH,
            max_aliases: 100,
            max_anchors: 100,
        },
        alias_limits: alias_limits! { max_total_replayed_events: REPEATED, max_replay_stack_depth: 8 },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    }
}

/// A tree out of JSON or YAML. Unlike `Value`, it takes no number for `null`, which would reset a field, and
/// no key twice: Go merges the maps of both.
struct StrictTree(Value);

impl<'de> Deserialize<'de> for StrictTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonBuilder).map(Self)
    }
}

struct JsonBuilder;

impl<'de> Visitor<'de> for JsonBuilder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        let number = serde_json::Number::from_f64(value);
        number.map(Value::Number).ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(StrictTree(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let StrictTree(value) = map.next_value()?;
            if fields.insert(key, value).is_some() {
                return Err(de::Error::custom("a key occurs twice"));
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    fn fault(bytes: &[u8]) -> DocumentFault {
        parse_document(bytes).unwrap_err()
    }

    #[test]
    fn yaml_and_json_give_one_tree() {
        let yaml = format!("{HEAD}maxPods: 30\nevictionHard: {{memory.available: 1Gi}}\nfeatureGates:\n");
        let json = "{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": \"KubeletConfiguration\",
            \"maxPods\": 30, \"evictionHard\": {\"memory.available\": \"1Gi\"}, \"featureGates\": null}";
        assert_eq!(parse_document(yaml.as_bytes()), parse_document(json.as_bytes()));
        assert_eq!(parse_document(yaml.as_bytes()).unwrap()["maxPods"], 30);
    }

    #[test]
    fn another_kind_is_refused_by_name() {
        let other = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n";
        assert_eq!(fault(other.as_bytes()), DocumentFault::ApiVersion("kubelet.config.k8s.io/v1".into()));
        let other = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: CredentialProviderConfig\n";
        assert_eq!(fault(other.as_bytes()), DocumentFault::Kind("CredentialProviderConfig".into()));
        assert_eq!(fault(b"maxPods: 1\n"), DocumentFault::ApiVersion(String::new()));
        assert_eq!(fault(b"- 1\n"), DocumentFault::NoMap);
        assert_eq!(fault(b"just text"), DocumentFault::NoMap);
        assert!(parse_document(b"").is_err());
    }

    #[test]
    fn a_text_with_two_meanings_is_refused() {
        for text in [
            "cpuManagerPolicy: none\ncpuManagerPolicy: static\n",
            "cpuManagerPolicy: .nan\n",
            "maxPods: .inf\n",
            "maxPods: 1\n---\nmaxPods: 2\n",
            "featureGates: {A: true, A: false}\n",
            "cpuManagerPolicy: *unknown\n",
            "a: [1\n",
        ] {
            let fault = fault(format!("{HEAD}{text}").as_bytes());
            assert!(matches!(fault, DocumentFault::Syntax(_)), "{text}: {fault:?}");
        }
        let twice = br#"{"kubeletconfig": {"maxPods": 1}, "kubeletconfig": {}}"#;
        assert!(matches!(json(twice).unwrap_err(), DocumentFault::Syntax(_)));
        assert!(matches!(fault(twice), DocumentFault::Syntax(_)));
    }

    #[test]
    fn hostile_texts_are_refused() {
        let mut laughs = format!("{HEAD}a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let one = format!("*a{}", level - 1);
            let ten = [one.as_str(); 10].join(", ");
            let _ = writeln!(laughs, "a{level}: &a{level} [{ten}]");
        }
        assert!(matches!(fault(laughs.as_bytes()), DocumentFault::Syntax(_)));
        for deep in ["[".repeat(10_000), "- ".repeat(10_000), "a: {".repeat(10_000), "{\"a\":".repeat(10_000)]
        {
            assert!(matches!(fault(deep.as_bytes()), DocumentFault::Syntax(_)), "{}", &deep[..4]);
        }
        assert_eq!(fault(&vec![b'#'; 10 << 20]), DocumentFault::TooLong);
        assert_eq!(fault("[],".repeat(VALUES).as_bytes()), DocumentFault::TooMany);
        assert!(parse_document("- 1\n".repeat(VALUES + 1).as_bytes()).is_err());
        assert_eq!(fault(b"kind: \xff\n"), DocumentFault::Encoding);
        assert!(parse_document(b"kind: \x00\n").is_err());
        let long = fault(format!("apiVersion: {}\n", "x".repeat(10_000)).as_bytes());
        assert!(long.to_string().len() < 200, "{long}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_document_or_a_fault(
            text in "([a-z]|[-:,&*!|>%#'\"{}\\[\\]~. 0-9]|\n|\t){0,60}", bytes: Vec<u8>,
        ) {
            let _ = parse_document(&bytes);
            let text = format!("{HEAD}{text}");
            if let Err(fault) = parse_document(text.as_bytes()) {
                prop_assert!(fault.to_string().chars().count() < 200);
            }
        }
    }
}
