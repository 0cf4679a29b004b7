//! Events of the screen: keys, sizes, reports, silence.

use std::time::Duration;

use ratatui::crossterm::event::KeyCode;

use super::report::TopReport;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum TopEvent {
    /// A key was pressed.
    Key(KeyCode),
    /// New size of the terminal, in columns and rows.
    Resized(u16, u16),
    /// A second went by.
    Second,
    /// A report came, from this source.
    Report(Feed, Box<TopReport>),
    /// No report came, and why.
    Silent(String),
    /// End of the program.
    End,
}

/// Source of the reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Feed {
    /// A running daemon, over its control socket.
    Daemon,
    /// This process measures by itself.
    Own {
        /// Why, in some words: `no daemon`.
        because: String,
        /// How often.
        every: Duration,
    },
}
