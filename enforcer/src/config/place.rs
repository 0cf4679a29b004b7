//! Where in a configuration file something is, and how that is shown.
//!
//! A value that is refused only in the whole is known by its key (`workload[2].unit`), so the key is looked
//! up in the text again. What is shown is one line with marks below, as a compiler does it.

use std::ops::Range;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// Most characters of the file that a message quotes.
pub(super) const QUOTED_LIMIT: usize = 200;

/// The bytes of the value of a key, be it there under its own name or one that the schema calls the same;
/// where it is not there, of what it would be in. Where what is `refused` of a table is the name of an entry
/// (in quotes), of that name.
pub(super) fn span_of(text: &str, key: &str, refused: &str, schema: &Value) -> Option<Range<usize>> {
    found(text, key, refused, schema).map(|found| found.span)
}

/// The bytes of the value of a key, where the file has it.
pub(super) fn written_span(text: &str, key: &str, schema: &Value) -> Option<Range<usize>> {
    found(text, key, "", schema).filter(|found| found.is_key).map(|found| found.span)
}

struct KeySpan {
    span: Range<usize>,
    /// It is the value of the key, and not of what the key would be in.
    is_key: bool,
}

fn found(text: &str, key: &str, refused: &str, schema: &Value) -> Option<KeySpan> {
    let enclosing = |span: Option<Range<usize>>| span.map(|span| KeySpan { span, is_key: false });
    let document = DeTable::parse(text).ok()?;
    let mut found = None;
    let mut value: Option<&DeValue<'_>> = None;
    for part in key.split('.') {
        let (name, indices) = part.split_once('[').map_or((part, None), |(name, rest)| (name, Some(rest)));
        let table = value.map_or(Some(document.get_ref()), DeValue::as_table);
        let called = |is: &dyn Fn(&str) -> bool| table?.iter().find(|(key, _)| is(key.get_ref()));
        let own = called(&|written| written == name);
        let Some((named, next)) = own.or_else(|| called(&|written| is_same(schema, written, name))) else {
            return enclosing(found);
        };
        // A table that is only opened by the names of its keys has no place of its own.
        let span = next.span();
        found = Some(if span.is_empty() { named.span() } else { span });
        value = Some(next.get_ref());
        for index in indices.into_iter().flat_map(|indices| indices.trim_end_matches(']').split("][")) {
            let entry = index.parse().ok().and_then(|index: usize| value?.as_array()?.get(index));
            let Some(entry) = entry else { return enclosing(found) };
            found = Some(entry.span());
            value = Some(entry.get_ref());
        }
    }
    let names = value.and_then(DeValue::as_table).into_iter().flatten().map(|(name, _)| name);
    let named = names.into_iter().find(|name| format!("{:?}", name.get_ref()) == refused);
    named.map(toml::Spanned::span).or(found).map(|span| KeySpan { span, is_key: true })
}

/// Is what is written another name of a key?
fn is_same(schema: &Value, written: &str, name: &str) -> bool {
    let mut tables = schema["$defs"].as_object().into_iter().flat_map(|tables| tables.values());
    tables.any(|table| table["properties"][written]["x-same-as"] == name)
}

/// Line and column, both from 1.
pub(super) fn position(text: &str, at: usize) -> Option<(usize, usize)> {
    let before = text.get(..at)?;
    let number = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    Some((number, column))
}

/// The line where it begins, with a margin (`3 | `) and marks below. None where the line is too long to be of
/// use.
pub(super) fn excerpt(text: &str, span: Range<usize>) -> Option<String> {
    let (number, column) = position(text, span.start)?;
    let line = text.split('\n').nth(number - 1)?.trim_end_matches('\r');
    let length = line.chars().count();
    if length > QUOTED_LIMIT {
        return None;
    }
    let marked = text.get(span)?.lines().next().unwrap_or("").chars().count();
    let marks = "^".repeat(marked.min((length + 1).saturating_sub(column)).max(1));
    let margin = " ".repeat(number.to_string().len());
    let indent = " ".repeat(column - 1);
    Some(format!("{margin} |\n{number} | {line}\n{margin} | {indent}{marks}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "interval = \"0s\"\n\n[nri]\nindex = 100\n\n[[workload]]\nname = \"a\"\nunit = \"x\" # é\n\n\
         [[workload]]\nname = \"b\"\ndevices = [\"eth0\", \"\"]\nlabels = { a = \"b\" }\n";

    #[test]
    fn a_key_is_found_where_it_is_or_would_be() {
        for (key, refused, shown) in [
            ("interval", "", "1 | interval = \"0s\"\n  |            ^^^^"),
            ("nri.index", "", "4 | index = 100\n  |         ^^^"),
            ("nri.socket", "", "3 | [nri]\n  | ^^^^^"),
            ("workload[0].unit", "", "8 | unit = \"x\" # é\n  |        ^^^"),
            ("workload[0].cpus", "", "6 | [[workload]]\n  | ^^^^^^^^^^^^"),
            ("workload[1]", "\"x\"", "10 | [[workload]]\n   | ^^^^^^^^^^^^"),
            ("workload[1].devices[1]", "\"\"", "12 | devices = [\"eth0\", \"\"]\n   |                    ^^"),
            ("workload[1].labels", "{}", "13 | labels = { a = \"b\" }\n   |          ^^^^^^^^^^^"),
            ("workload[1].labels", "\"a\"", "13 | labels = { a = \"b\" }\n   |            ^"),
        ] {
            let excerpt = span_of(TEXT, key, refused, &Value::Null).and_then(|span| excerpt(TEXT, span));
            assert!(excerpt.as_ref().is_some_and(|lines| lines.ends_with(shown)), "{key}: {excerpt:?}");
        }
        assert_eq!(span_of(TEXT, "mode", "", &Value::Null), None);
        assert_eq!(span_of("[", "mode", "", &Value::Null), None);
        let written = |key| written_span(TEXT, key, &Value::Null).and_then(|span| TEXT.get(span));
        assert_eq!(written("nri.index"), Some("100"));
        assert_eq!(written("workload[0].unit"), Some("\"x\""));
        for absent in ["nri.socket", "workload[0].cpus", "workload[2]", "metrics.listen", "mode"] {
            assert_eq!(written(absent), None, "{absent}");
        }
    }

    #[test]
    fn what_is_marked_is_in_the_line() {
        for span in [0..0, 0..500, 14..16, 15..15, 16..17] {
            let lines = excerpt("interval = \"0s\"\n\n", span.clone());
            let widest = lines.iter().flat_map(|lines| lines.lines()).map(str::len).max();
            assert!(
                widest.is_none_or(|widest| widest <= "1 | interval = \"0s\" ".len()),
                "{span:?} {lines:?}"
            );
        }
    }
}
