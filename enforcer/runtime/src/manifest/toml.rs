//! TOML text as a tree, an alternative to YAML for this program's own files.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    source::{LineIndex, ManifestProblem, ManifestSource},
    tree::{ManifestValue, MapEntry, TreeNode},
};

/// The document of a text.
pub(super) fn document(source: &ManifestSource) -> Result<TreeNode, ManifestProblem> {
    let lines = source.lines();
    let table = DeTable::parse(&source.text).map_err(|error| {
        let at = error.span().map(|span| lines.place(span.start)).unwrap_or_default();
        ManifestProblem::new(at, error.message())
    })?;
    let at = lines.place(table.span().start);
    Ok(TreeNode { at, value: map(&lines, table.get_ref()) })
}

fn map(lines: &LineIndex<'_>, table: &DeTable<'_>) -> ManifestValue {
    let entry = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| MapEntry {
        key: key.get_ref().to_string(),
        at: lines.place(key.span().start),
        node: node(lines, value),
    };
    ManifestValue::Map(table.iter().map(entry).collect())
}

fn node(lines: &LineIndex<'_>, value: &Spanned<DeValue<'_>>) -> TreeNode {
    let at = lines.place(value.span().start);
    let value = match value.get_ref() {
        DeValue::String(text) => ManifestValue::Text(text.to_string()),
        DeValue::Integer(number) => ManifestValue::Number(number.to_string()),
        DeValue::Float(number) => ManifestValue::Number(number.to_string()),
        DeValue::Boolean(value) => ManifestValue::Bool(*value),
        DeValue::Datetime(time) => ManifestValue::Text(time.to_string()),
        DeValue::Array(values) => {
            ManifestValue::List(values.iter().map(|value| node(lines, value)).collect())
        }
        DeValue::Table(table) => map(lines, table),
    };
    TreeNode { at, value }
}
