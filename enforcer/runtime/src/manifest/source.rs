//! A text that a person wrote, with its name, and what can be said about a place in it.
//!
//! Whatever is wrong is said as a compiler says it, `FILE:LINE:COLUMN: problem`, with the line and a
//! mark below it. Nothing is read that is larger than [`SIZE_LIMIT`], and no long line is quoted.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use enforcer_core::workload::cut_at;
use thiserror::Error;

use enforcer_host::{read_within, written_text};

/// Largest file that is read.
const SIZE_LIMIT: u64 = 4 << 20;

/// Most characters of a line, and of a problem, that are shown.
const SHOWN_LIMIT: usize = 300;

/// A text and where it is from.
#[derive(Debug, Clone)]
pub struct ManifestSource {
    /// Name for messages.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// Why an input was not understood.
#[derive(Debug, Error)]
pub enum InputError {
    /// It could not be read.
    #[error("reading {name}: {cause}")]
    Read {
        /// Which file.
        name: String,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// It says something that cannot be.
    #[error("{place}: {problem}")]
    Invalid {
        /// `FILE:LINE:COLUMN`, or the file alone.
        place: String,
        /// What is wrong.
        problem: String,
        /// The line, with a mark below what is wrong.
        excerpt: Option<String>,
    },
}

/// A place in a text; both count from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextPlace {
    /// Line; 0 when not known.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestProblem {
    /// Where.
    pub at: TextPlace,
    /// What.
    pub text: String,
}

impl ManifestProblem {
    /// At a place.
    pub fn new(at: TextPlace, text: impl Into<String>) -> Self {
        Self { at, text: text.into() }
    }
}

impl ManifestSource {
    /// Reads a file, or standard input for `-`.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        if path.as_os_str() == "-" {
            return Self::of("<stdin>", io::stdin().lock());
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::of(&name, file),
            Err(cause) => Err(InputError::Read { name, cause }),
        }
    }

    fn of(name: &str, reader: impl Read) -> Result<Self, InputError> {
        let text = read_within(reader, SIZE_LIMIT).and_then(written_text);
        let text = text.map_err(|cause| InputError::Read { name: name.to_owned(), cause })?;
        Ok(Self { name: name.to_owned(), text })
    }

    /// Does its name say that it is TOML?
    pub fn is_toml(&self) -> bool {
        Path::new(&self.name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
    }

    /// The error for a problem in this text.
    pub fn error(&self, problem: &ManifestProblem) -> InputError {
        let TextPlace { line, column } = problem.at;
        let place = match line {
            0 => self.name.clone(),
            _ => format!("{}:{line}:{column}", self.name),
        };
        InputError::Invalid { place, problem: shortened(&problem.text), excerpt: self.excerpt(problem.at) }
    }

    /// `3 | the line` and a mark below the place; none where the line is too long to be of use.
    fn excerpt(&self, at: TextPlace) -> Option<String> {
        let line = self.text.lines().nth(at.line.checked_sub(1)?)?;
        let before = at.column.saturating_sub(1);
        if line.chars().count() > SHOWN_LIMIT || before > SHOWN_LIMIT {
            return None;
        }
        let margin = at.line.to_string();
        let blank = " ".repeat(margin.len());
        // A tab stays one, so that the mark stands below what it means.
        let lead: String = line.chars().take(before).map(|c| if c == '\t' { c } else { ' ' }).collect();
        Some(format!("{margin} | {line}\n{blank} | {lead}^"))
    }

    /// Where its lines begin.
    pub fn lines(&self) -> LineIndex<'_> {
        let starts = self.text.match_indices('\n').map(|(at, _)| at + 1);
        LineIndex { text: &self.text, starts: std::iter::once(0).chain(starts).collect() }
    }
}

/// Beginnings of lines: finds the place of a byte without reading the text again.
#[derive(Debug)]
pub struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl LineIndex<'_> {
    /// Characters are counted up to here; in a longer line a column is its byte.
    const COUNTED: usize = 4_096;

    /// The place of a byte.
    pub fn place(&self, byte: usize) -> TextPlace {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).copied().unwrap_or(0);
        let column = match self.text.get(start..byte) {
            Some(before) if before.len() <= Self::COUNTED => before.chars().count() + 1,
            _ => byte.saturating_sub(start) + 1,
        };
        TextPlace { line, column }
    }
}

impl InputError {
    /// The line that is wrong with a mark below the place, in two lines.
    pub fn excerpt(&self) -> Option<&str> {
        match self {
            Self::Invalid { excerpt, .. } => excerpt.as_deref(),
            Self::Read { .. } => None,
        }
    }
}

fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    cut_at(line, SHOWN_LIMIT).into_owned()
}
