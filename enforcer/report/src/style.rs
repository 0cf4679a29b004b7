//! How wide the output may be, and whether it may be coloured. The caller knows; nothing here asks.

use std::fmt::{self, Write as _};

use enforcer_core::{audit::AuditVerdict, finding::Severity};

use super::text;

/// Width and colour of output for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// ANSI colours; only on a terminal, and not with `NO_COLOR`.
    pub colour: bool,
}

/// Meaning of a word, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A heading.
    Heading,
    /// As it should be.
    Good,
    /// Worth a look.
    Notice,
    /// Wrong.
    Bad,
    /// Unimportant.
    Quiet,
}

impl Tone {
    const fn sgr(self) -> &'static str {
        match self {
            Self::Heading => "1",
            Self::Good => "32",
            Self::Notice => "33",
            Self::Bad => "1;31",
            Self::Quiet => "2",
        }
    }
}

impl From<Severity> for Tone {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Heading,
            Severity::Warning => Self::Notice,
            Severity::Critical => Self::Bad,
        }
    }
}

impl From<AuditVerdict> for Tone {
    fn from(verdict: AuditVerdict) -> Self {
        match verdict {
            AuditVerdict::Aligned => Self::Good,
            AuditVerdict::Partial | AuditVerdict::Unknown => Self::Notice,
            AuditVerdict::Misaligned => Self::Bad,
        }
    }
}

impl Style {
    /// `text` in the colour of `tone`.
    pub fn paint<T: fmt::Display>(self, tone: Tone, text: T) -> Painted<T> {
        Painted { tone: self.colour.then_some(tone), text }
    }

    /// Writes a heading, with an empty line before it.
    pub fn heading(self, out: &mut String, title: &str) {
        // A string takes whatever is written to it.
        let _ = writeln!(out, "\n{}", self.paint(Tone::Heading, title));
    }

    /// Writes a heading and the lines below it; nothing where there are none.
    pub fn section(self, out: &mut String, title: &str, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        self.heading(out, title);
        for line in lines {
            text::wrap(out, line, self.width, "  ", "      ");
        }
    }
}

/// Text with its colour, which is not part of its width.
#[derive(Debug, Clone, Copy)]
pub struct Painted<T> {
    tone: Option<Tone>,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tone {
            Some(tone) => write!(f, "\u{1b}[{}m{}\u{1b}[0m", tone.sgr(), self.text),
            None => self.text.fmt(f),
        }
    }
}
