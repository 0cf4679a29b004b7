//! Events of the screen: keys, sizes, reports, silence.

use std::time::Duration;

use super::report::TopReport;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum TopEvent {
    /// A key was pressed.
    Key(KeyPress),
    /// New size of the terminal, in columns and rows.
    Resized(u16, u16),
    /// A second went by.
    Second,
    /// A report came, from this source.
    Told(Feed, Box<TopReport>),
    /// No report came, and why.
    Silent(String),
    /// End of the program.
    End,
}

/// A key, as far as there is a meaning to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPress {
    /// A character.
    Char(char),
    /// One up.
    Up,
    /// One down.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Control-C.
    Interrupt,
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
