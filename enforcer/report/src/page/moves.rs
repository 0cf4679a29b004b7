//! What `plan --rebalance` would do now: each move with its cost and gain, and each misplaced workload that
//! stays.
//!
//! Nothing was moved for this page. Without a sample there is nothing to weigh.

use enforcer_core::rebalance::{Move, RebalanceReport, UnmovedWorkload};
use maud::{Markup, html};

use super::parts::{name, scrolling, sentence};
use crate::{
    rebalance_text::{cpus, seconds, summary},
    units,
};

/// Workloads that stay, listed with a reason each; further ones are named together.
const REASONS: usize = 200;
/// Moves with a row.
const ROWS: usize = 500;

pub(super) fn moves(report: Option<&RebalanceReport>) -> Markup {
    let Some(report) = report else {
        return html! {
            p {
                "Not considered: that needs a sample (" code { "audit --sample 10s -o html" } "), and in the daemon "
                code { "rebalance.enabled" } "."
            }
        };
    };
    let (shown, more) = report.moves.split_at(report.moves.len().min(ROWS));
    html! {
        p { (summary(report)) ". Nothing was moved." }
        @if !shown.is_empty() {
            (scrolling("Moves", &html! {
                table {
                    caption { "Moves; those of one number are made together" }
                    thead { tr {
                        @for title in ["Number", "Workload", "To node", "CPUs", "Memory", "Remote", "Why"] {
                            th scope="col" { (title) }
                        }
                    } }
                    tbody { @for one in shown { (row(one)) } }
                }
            }))
        }
        @if !more.is_empty() { p { "and " (units::count(more.len(), "more move")) "; plan --rebalance has all" } }
        (staying(&report.left))
    }
}

fn row(one: &Move) -> Markup {
    html! {
        tr {
            td.n { (one.group) }
            th scope="row" { (name(one.workload.as_str())) }
            td.n { (one.to.0) }
            td {
                (cpus(&one.cpus_from))
                @match &one.cpus_to { Some(to) => { " to " (cpus(to)) } None => { ", as they are" } }
            }
            td {
                @if one.bytes > 0 { (units::bytes(one.bytes)) ", about " (seconds(one.seconds)) }
                @else { "stays" }
            }
            td { (units::measured(one.now.remote_ratio)) " to " (units::measured(one.then.remote_ratio)) }
            td { (sentence(&one.reason)) }
        }
    }
}

fn staying(left: &[UnmovedWorkload]) -> Markup {
    if left.is_empty() {
        return html! {};
    }
    let (shown, more) = left.split_at(left.len().min(REASONS));
    let names: Vec<String> = more.iter().map(|one| name(one.workload.as_str())).collect();
    html! {
        h3 { "What stays" }
        ul { @for one in shown { li { (name(one.workload.as_str())) ": " (sentence(&one.reason)) } } }
        @if !names.is_empty() { p { "and " (units::count(names.len(), "more workload")) ": " (names.join(", ")) } }
    }
}
