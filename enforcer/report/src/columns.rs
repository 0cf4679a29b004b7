//! Tables of the house style: columns of text, no lines.

use comfy_table::{ContentArrangement, Table, presets};

use super::style::Style;

/// An empty table with these titles.
pub(super) fn columns<'a>(style: Style, header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(style.width).unwrap_or(u16::MAX))
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((2, 0));
    }
    table
}

/// Appends a table without the blanks that fill its last column.
pub(super) fn push(out: &mut String, table: &Table) {
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
