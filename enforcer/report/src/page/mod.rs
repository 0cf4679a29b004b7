//! The audit as one HTML page that needs nothing else: no network, no font, no script of others.
//!
//! A pure function of the audit, and of the moves that were considered, if any: equal input gives equal
//! bytes. It is readable without its script, which only sorts and filters; without colours, because each
//! colour comes with a word or a number; by a screen reader, because each picture has a table beside it; and
//! on paper.
//!
//! Every text from outside (names of cgroups, devices, processes) is hostile. It is escaped twice over: what
//! would not be seen or would reorder the line by `text::escape`, what would be markup by maud. It is cut,
//! it is never part of a script, a style, a URL, an id or the name of an attribute, and the page's
//! Content-Security-Policy lets nothing run but the script with the hash that is written here.
//!
//! Bounded: 2,000 workloads on 64 nodes stay below 3 MB. What is too long or too much is folded into lines
//! that say how much that is; no workload, finding or source is left out without a word.

mod degraded;
mod findings;
mod heat;
mod host;
mod layout;
mod machine;
mod moves;
mod parts;
mod residency;
mod rules;
#[cfg(test)]
mod tests;
mod traffic;
mod workloads;

use enforcer_core::{audit::Audit, rebalance::RebalanceReport};
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use self::machine::standalone as picture;
use super::view;

/// Everything that is styled; hashed in [`POLICY`].
const STYLE: &str = concat!(include_str!("page.css"), include_str!("machine.css"));
/// Sorts and filters the table of workloads; hashed in [`POLICY`].
const SCRIPT: &str = include_str!("page.js");

/// Content security policy: the page may only show itself. Also sent as a header where the page is served.
/// The hashes are of the style and the script; a test computes them.
pub const POLICY: &str = "default-src 'none'; \
     style-src 'sha256-wEs2Fz8ROe4k6WFEgdxzSLR20lx1Dh3PvYnp/nikwAo='; \
     script-src 'sha256-N59ijrUneA3X1KeolpiqFIbO27yOCqXUFfPo0sw88fs='; \
     img-src data:; base-uri 'none'; form-action 'none'";

/// The whole page, ending in a newline.
pub fn render(audit: &Audit, moves: Option<&RebalanceReport>) -> String {
    let title = format!("NUMA audit of {}", parts::name(view::host::name(audit)));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                // Browsers ask for one otherwise.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
                script { (PreEscaped(SCRIPT)) }
            }
            body {
                a.skip href="#main" { "Skip to the audit" }
                header { (host::header(audit, &title)) }
                nav aria-label="Sections" {
                    ul { @for (id, title) in SECTIONS { li {
                        a href={ "#" (id) } { (title) }
                        @if let Some(number) = number(id, audit, moves) { " " span { (number) } }
                    } } }
                }
                main id="main" tabindex="-1" {
                    (section("machine", &host::machine(audit)))
                    (section("by-node", &workloads::table(audit)))
                    (section("traffic", &traffic::traffic(audit)))
                    (section("findings", &findings::findings(audit)))
                    (section("moves", &moves::moves(moves)))
                    (section("unseen", &degraded::degraded(audit, moves)))
                    (section("rules", &rules::rules(audit)))
                }
                footer { p { (audit.tool.name) " " (audit.tool.version) ", schema " (audit.schema_version) } }
            }
        }
    };
    let mut page = page.into_string();
    page.push('\n');
    page
}

/// Sections in their order, with the ids that links lead to.
const SECTIONS: [(&str, &str); 7] = [
    ("machine", "Machine"),
    ("by-node", "Workloads by node"),
    ("traffic", "Traffic between nodes"),
    ("findings", "Findings"),
    ("moves", "What moves would do"),
    ("unseen", "Could not see"),
    ("rules", "What the rules mean"),
];

/// How much there is in a section, where that is a number of things.
fn number(section: &str, audit: &Audit, moves: Option<&RebalanceReport>) -> Option<usize> {
    match section {
        "by-node" => Some(audit.workloads.len()),
        "findings" => Some(audit.findings.len()),
        "moves" => moves.map(|report| report.moves.len()),
        _ => None,
    }
}

fn section(id: &str, content: &Markup) -> Markup {
    let title = SECTIONS.iter().find(|(of, _)| *of == id).map_or("", |(_, title)| *title);
    html! {
        section id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { (title) }
            (content)
        }
    }
}
