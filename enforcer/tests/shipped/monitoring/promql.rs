//! Which series an expression of Prometheus names, and which labels it wants of them.
//!
//! Not a parser: text in quotes and ranges are left out, what is followed by a parenthesis is a function or a
//! grouping, and every other name is a series. What this takes for a name and is none fails the tests, which
//! is the side to err on.

use std::collections::BTreeSet;

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Series with the labels that are matched in their braces.
    pub(crate) series: Vec<(String, Vec<String>)>,
    /// Labels of `by`, `on` and the like.
    pub(crate) grouped: BTreeSet<String>,
}

const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const WORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "atan2"];

/// Reads an expression.
pub(crate) fn read(expression: &str) -> Named {
    let text = bare(expression);
    let mut named = Named::default();
    let mut rest = text.as_str();
    while let Some(begin) = rest.find(|one: char| is_name(one) || one.is_ascii_digit()) {
        rest = &rest[begin..];
        let end = rest.find(|one: char| !is_name(one) && !one.is_ascii_digit()).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after.trim_start();
        if name.starts_with(|one: char| one.is_ascii_digit()) || WORDS.contains(&name) {
            continue;
        }
        if GROUPINGS.contains(&name) {
            if let Some((labels, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                named.grouped.extend(labels.split(',').map(|label| label.trim().to_owned()));
                rest = after;
            }
        } else if !is_call(rest) {
            let braces = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let (matchers, after) = braces.unwrap_or(("", rest));
            let labels = matchers.split(',').filter(|one| !one.trim().is_empty());
            let labels = labels.map(|one| one.trim().split(['=', '!']).next().unwrap().trim().to_owned());
            named.series.push((name.to_owned(), labels.collect()));
            rest = after;
        }
    }
    named
}

/// Does what is behind a name make it a function or an aggregation?
fn is_call(rest: &str) -> bool {
    let word = rest.split(|one: char| !is_name(one)).next().unwrap_or_default();
    rest.starts_with('(') || matches!(word, "by" | "without")
}

fn is_name(one: char) -> bool {
    one.is_ascii_alphabetic() || matches!(one, '_' | ':')
}

/// Without what is in quotes and in brackets.
fn bare(expression: &str) -> String {
    let mut bare = String::new();
    let mut closed_by = None;
    for one in expression.chars() {
        match closed_by {
            Some(end) if one == end => closed_by = None,
            Some(_) => {}
            None => match one {
                '"' | '\'' => closed_by = Some(one),
                '[' => closed_by = Some(']'),
                _ => bare.push(one),
            },
        }
    }
    bare
}

#[test]
fn series_and_labels_of_an_expression() {
    let named = read(
        r#"sum by (instance, le) (rate(a_bucket{kind=~"x,y{", node!="1"}[5m])) > 2e3 * on (job) group_left b:c
           and histogram_quantile(0.99, d) or e offset 5m"#,
    );
    let series = |name: &str, labels: &[&str]| {
        (name.to_owned(), labels.iter().map(|label| (*label).to_owned()).collect())
    };
    assert_eq!(
        named.series,
        [series("a_bucket", &["kind", "node"]), series("b:c", &[]), series("d", &[]), series("e", &[])]
    );
    assert_eq!(named.grouped.iter().collect::<Vec<_>>(), ["instance", "job", "le"]);
}
