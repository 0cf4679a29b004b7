//! YAML text as trees, one per document.
//!
//! Invariant: memory does not grow with what a text only claims. Aliases are expanded within limits; depth,
//! nodes and documents are counted; the text itself is limited when it is read.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Options, Spanned, alias_limits, budget, options};

use super::{
    source::{ManifestProblem, ManifestSource, TextPlace},
    tree::{ManifestValue, MapEntry, TreeNode},
};

/// Most documents of one text.
const DOCUMENTS: usize = 20_000;
/// Most values of one text, those that aliases repeat included.
const NODES: usize = 500_000;
/// Most values that aliases may repeat.
const REPEATED: usize = 100_000;
/// Most values of an annotation, and most that aliases may repeat in it: every replica has its own copy.
const ANNOTATION_NODES: usize = 50_000;
const ANNOTATION_REPEATED: usize = 1_000;
/// Deepest nesting.
const DEPTH: usize = 40;

fn limits(nodes: usize, repeated: usize) -> Options {
    options! {
        budget: budget! {
            max_documents: DOCUMENTS,
            max_nodes: nodes,
            max_events: 4 * nodes,
            max_depth: DEPTH,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        alias_limits: alias_limits! { max_total_replayed_events: repeated, max_replay_stack_depth: 16 },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    }
}

/// The documents of a text that are not empty.
pub(super) fn documents(source: &ManifestSource) -> Result<Vec<TreeNode>, ManifestProblem> {
    let documents: Vec<Spanned<TreeVisitor>> =
        serde_saphyr::from_multiple_with_options(&source.text, limits(NODES, REPEATED))
            .map_err(|error| problem(&error))?;
    Ok(documents.into_iter().map(node).filter(|node| !node.is_null()).collect())
}

/// A value of some type, from a text inside another (an annotation); the message has no place.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let limits = limits(ANNOTATION_NODES, ANNOTATION_REPEATED);
    serde_saphyr::from_str_with_options(text, limits).map_err(|error| problem(&error).text)
}

fn problem(error: &serde_saphyr::Error) -> ManifestProblem {
    let at = error.location().map(place).unwrap_or_default();
    let said = error.to_string();
    let mut text = said.lines().next().unwrap_or("not YAML").to_owned();
    // The library says the place behind the problem; here it stands in front.
    if let Some(end) = text.rfind(" at line ") {
        text.truncate(end);
    }
    ManifestProblem::new(at, text)
}

fn place(location: Location) -> TextPlace {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    TextPlace { line: number(location.line()), column: number(location.column()) }
}

fn node(spanned: Spanned<TreeVisitor>) -> TreeNode {
    TreeNode { at: place(spanned.referenced), value: spanned.value.0 }
}

/// What serde builds.
struct TreeVisitor(ManifestValue);

impl<'de> Deserialize<'de> for TreeVisitor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Builder)
    }
}

struct Builder;

impl<'de> Visitor<'de> for Builder {
    type Value = TreeVisitor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list or a map")
    }

    fn visit_unit<E: de::Error>(self) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<TreeVisitor, D::Error> {
        TreeVisitor::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Bool(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Number(value.to_string())))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Number(value.to_string())))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Number(value.to_string())))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Number(value.to_string())))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Number(value.to_string())))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<TreeVisitor, E> {
        Ok(TreeVisitor(ManifestValue::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TreeVisitor, A::Error> {
        let mut nodes = Vec::new();
        while let Some(element) = list.next_element::<Spanned<TreeVisitor>>()? {
            nodes.push(node(element));
        }
        Ok(TreeVisitor(ManifestValue::List(nodes)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TreeVisitor, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let at = place(key.referenced);
            let value = map.next_value::<Spanned<TreeVisitor>>()?;
            entries.push(MapEntry { key: key.value, at, node: node(value) });
        }
        Ok(TreeVisitor(ManifestValue::Map(entries)))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn read(text: &str) -> Result<Vec<TreeNode>, ManifestProblem> {
        documents(&ManifestSource { name: "f.yaml".into(), text: text.into() })
    }

    fn scalar(text: &str) -> String {
        read(&format!("a: {text}\n")).unwrap()[0].get("a").unwrap().scalar("a").unwrap().into_owned()
    }

    #[test]
    fn scalars_keep_what_was_written() {
        for (text, value) in [
            ("2", "2"),
            ("0.5", "0.5"),
            ("\"2\"", "2"),
            ("250m", "250m"),
            ("1e3", "1000"),
            ("yes", "yes"),
            ("true", "true"),
            ("007", "007"),
            ("1Gi", "1Gi"),
        ] {
            assert_eq!(scalar(text), value, "{text}");
        }
    }

    #[test]
    fn every_value_knows_its_place() {
        let documents = read("---\n# nothing\n---\na:\n  - b: 1\n    c: [2, x]\n").unwrap();
        let [document] = &documents[..] else { panic!("{documents:?}") };
        let list = document.get("a").unwrap().list("a").unwrap();
        let c = list[0].get("c").unwrap().list("c").unwrap();
        assert_eq!((c[1].at.line, c[1].at.column), (6, 12));
        assert_eq!(c[1].text("c").unwrap(), "x");
    }

    #[test]
    fn anchors_and_merge_keys_are_expanded() {
        let documents = read("base: &b {cpu: 1}\nuse: *b\nmore:\n  <<: *b\n  memory: 2\n").unwrap();
        assert_eq!(documents[0].find(&["use", "cpu"]).unwrap().count("cpu").unwrap(), 1);
        assert_eq!(documents[0].find(&["more", "cpu"]).unwrap().count("cpu").unwrap(), 1);
    }

    #[test]
    fn keys_are_texts() {
        let documents = read("1: a\ntrue: b\n1.5: d\n").unwrap();
        let keys: Vec<&str> = documents[0].map("m").unwrap().iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["1", "true", "1.5"]);
    }

    #[test]
    fn what_is_not_yaml_has_its_place() {
        for (text, line) in [("a: [1\nb: 2\n", 2), ("a: 1\na: 2\n", 2), ("a: *unknown\n", 1)] {
            let problem = read(text).unwrap_err();
            assert_eq!(problem.at.line, line, "{text:?}: {problem:?}");
            assert!(!problem.text.contains("line ") && !problem.text.is_empty(), "{text:?}: {problem:?}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let one = format!("*a{}", level - 1);
            let ten = [one.as_str(); 10].join(", ");
            let _ = writeln!(laughs, "a{level}: &a{level} [{ten}]");
        }
        assert!(read(&laughs).is_err());
        assert!(read(&"[".repeat(10_000)).is_err());
        assert!(read(&"- ".repeat(10_000)).is_err());
        assert!(read(&"---\na: 1\n".repeat(DOCUMENTS + 1)).is_err());
    }
}
