//! A table of numbers from node to node, shaded by how large they are.
//!
//! The number is in the cell, so the shade says nothing that cannot be read; a cell of a node with itself has
//! a frame. A table and no picture: it can be read by a screen reader with its row and column, copied, and
//! searched.

use maud::{Markup, html};
use numa_topology::id::NodeId;

/// Largest matrix that is drawn, in nodes.
pub(super) const MOST_NODES: usize = 64;

/// Cells of more nodes are small.
pub(super) const SPACIOUS: usize = 16;

/// Shades beside none.
const LEVELS: u64 = 5;

/// Shade of `value` on a scale that ends at `most`: 0 for nothing, else 1 to 5.
pub(super) fn level(value: u64, most: u64) -> u8 {
    let level = u128::from(value.min(most)) * u128::from(LEVELS);
    u8::try_from(level.div_ceil(u128::from(most.max(1)))).unwrap_or(0)
}

/// The table; `cell` gives the text and the shade of a row and a column, or nothing.
pub(super) fn matrix(
    caption: &str,
    (from, to): (&str, &str),
    nodes: &[NodeId],
    cell: impl Fn(usize, usize) -> Option<(String, u8)>,
) -> Markup {
    html! {
        table.heat.dense[nodes.len() > SPACIOUS] {
            caption { (caption) }
            thead { tr {
                th scope="col" { (from) " \\ " (to) }
                @for node in nodes { th scope="col" { (node.0) } }
            } }
            tbody {
                @for (row, node) in nodes.iter().enumerate() {
                    tr {
                        th scope="row" { (node.0) }
                        @for column in 0..nodes.len() { (shaded(row == column, cell(row, column))) }
                    }
                }
            }
        }
    }
}

fn shaded(is_same: bool, cell: Option<(String, u8)>) -> Markup {
    let Some((text, level)) = cell else { return html! { td {} } };
    html! {
        @if is_same { td class={ "h" (level) " own" } { (text) } }
        @else { td class={ "h" (level) } { (text) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_seen_and_the_most_is_darkest() {
        for (value, most, shade) in [
            (0, 0, 0),
            (0, 10, 0),
            (1, 1000, 1),
            (200, 1000, 1),
            (201, 1000, 2),
            (1000, 1000, 5),
            (2000, 1000, 5),
            (u64::MAX, u64::MAX, 5),
        ] {
            assert_eq!(level(value, most), shade, "{value} of {most}");
        }
    }
}
