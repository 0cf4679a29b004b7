//! Missing sources, and their effects on the page.

use enforcer_core::{audit::Audit, rebalance::RebalanceReport};
use maud::{Markup, html};
use numa_topology::degraded::Degraded;

use super::parts::{name, scrolling, sentence};

pub(super) fn degraded(audit: &Audit, moves: Option<&RebalanceReport>) -> Markup {
    let of_moves = moves.into_iter().flat_map(|moves| &moves.degraded);
    let entries: Vec<&Degraded> =
        audit.degraded.iter().chain(of_moves.filter(|one| !audit.degraded.contains(one))).collect();
    if entries.is_empty() {
        return html! { p { "Everything was seen." } };
    }
    scrolling(
        "Sources that are missing",
        &html! {
            table {
                caption { "Sources that are missing" }
                thead { tr { @for title in ["Source", "Why", "Without it"] { th scope="col" { (title) } } } }
                tbody {
                    @for one in entries {
                        tr {
                            th scope="row" { (name(&one.source)) }
                            td { (sentence(&one.reason)) }
                            td { (sentence(&one.effect)) }
                        }
                    }
                }
            }
        },
    )
}
