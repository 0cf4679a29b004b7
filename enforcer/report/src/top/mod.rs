//! `top`: the host as it is now, on a terminal.
//!
//! ```text
//! TopReport, keys, size --> TopState (what is shown) --> draw (cells)
//! ```
//!
//! Both arrows are pure functions. [`TopState`] is the latest report, the order, the filter, the selection
//! and a bounded history; [`draw`] makes cells of it and keeps nothing. `cli/top` asks the daemon, reads keys
//! and owns the terminal. Neither function panics, whatever the size of the terminal, the keys, and the names
//! from outside: every text goes through `report::text` first.
//!
//! No meaning is in colour alone: verdicts are words, and the selection is marked.

mod action;
mod columns;
mod event;
mod history;
mod layout;
mod order;
mod pages;
mod report;
mod sort;
mod state;
mod update;
mod view;

pub use self::{
    action::TopAction,
    event::{Feed, TopEvent},
    layout::height_for,
    report::{TOP_SCHEMA_VERSION, TopReport, TopTurn},
    sort::Sort,
    state::{TopState, TopView},
    view::{draw, to_text},
};

#[cfg(test)]
pub(crate) mod tests;
