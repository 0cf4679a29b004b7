//! What several sections of the page are made of: names and sentences that are cut, tables that scroll.

use maud::{Markup, html};

use super::heat;
use crate::{
    text,
    view::{self, workload::WorkloadRow},
};

/// Columns of a name.
const NAME: usize = 60;
/// Most columns of the text that makes a name unique.
const DISTINCT: usize = 40;
/// Columns of a path or a sentence.
const SENTENCE: usize = 400;

/// A table that may be wider than the page: it scrolls by itself, with the keyboard too.
pub(super) fn scrolling(label: &str, table: &Markup) -> Markup {
    html! { div.wide role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// A table that may be longer than a screen as well: its head stays in sight.
pub(super) fn tall(label: &str, table: &Markup) -> Markup {
    html! { div.wide.tall role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// A table of so many rows, of which a few more would fill the screen.
pub(super) fn region(rows: usize, label: &str, table: &Markup) -> Markup {
    if rows > heat::SPACIOUS { tall(label, table) } else { scrolling(label, table) }
}

/// A name or a path from outside.
pub(super) fn name(name: &str) -> String {
    text::fit(name, NAME)
}

/// A workload by its name, and what tells it from others of the name.
pub(super) fn called(row: &WorkloadRow<'_>) -> String {
    let distinct = row.distinct.as_ref().map(|distinct| text::fit(distinct, DISTINCT));
    view::distinct::called(&name(&row.workload.name), distinct.as_deref())
}

/// A sentence with names from outside in it.
pub(super) fn sentence(sentence: &str) -> String {
    text::fit(sentence, SENTENCE)
}
