//! The parts of a glob, as the crate `globset` reads them.
//!
//! `*` and `?` match characters, `[a-z]` and `[!a-z]` classes of them, `{a,b}` alternatives, `**` between
//! separators any number of path elements, and `\` makes the next character an ordinary one. A text that
//! `globset` refuses is refused with the same words.
//!
//! Cost: linear in the text, whose nesting is limited.

use std::{iter::Peekable, mem, str::Chars};

use thiserror::Error;

/// Deepest nesting of alternatives.
const DEEPEST: usize = 250;

/// A part of a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GlobToken {
    Char(char),
    /// `?`
    One,
    /// `*`
    Many,
    /// `**/` at the beginning.
    AnyParents,
    /// `/**` at the end.
    AnyBelow,
    /// `/**/`
    AnyBetween,
    /// `[...]`: ranges, both ends included.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// `{...}`
    Alternatives(Vec<Vec<GlobToken>>),
}

/// Why a text is no glob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum GlobFault {
    /// A `[` without its `]`.
    #[error("unclosed character class; missing ']'")]
    UnclosedClass,
    /// A range whose end comes before its beginning.
    #[error("invalid range; '{0}' > '{1}'")]
    InvalidRange(char, char),
    /// A `}` without its `{`.
    #[error("unopened alternate group; missing '{{' (maybe escape '}}' with '[}}]'?)")]
    UnopenedAlternatives,
    /// A `{` without its `}`.
    #[error("unclosed alternate group; missing '}}' (maybe escape '{{' with '[{{]'?)")]
    UnclosedAlternatives,
    /// A `\` at the end.
    #[error("dangling '\\'")]
    DanglingEscape,
    /// Alternatives nested too deep.
    #[error("it is too complicated")]
    TooDeep,
    /// Longer than any glob.
    #[error("it must not be longer than {0} bytes")]
    TooLong(usize),
}

/// Splits a glob into its parts.
pub(super) fn tokens(glob: &str) -> Result<Vec<GlobToken>, GlobFault> {
    let mut reader = TokenReader { chars: glob.chars().peekable(), ..TokenReader::default() };
    while let Some(char) = reader.advance() {
        match char {
            '?' => reader.branch.push(GlobToken::One),
            '*' => reader.star(),
            '[' => reader.class()?,
            '{' => reader.open()?,
            '}' => reader.close()?,
            ',' if !reader.outer.is_empty() => reader.alternatives.push(mem::take(&mut reader.branch)),
            '\\' => {
                let char = reader.advance().ok_or(GlobFault::DanglingEscape)?;
                reader.branch.push(GlobToken::Char(char));
            }
            char => reader.branch.push(GlobToken::Char(char)),
        }
    }
    if reader.outer.is_empty() { Ok(reader.branch) } else { Err(GlobFault::UnclosedAlternatives) }
}

struct TokenReader<'a> {
    chars: Peekable<Chars<'a>>,
    previous: Option<char>,
    current: Option<char>,
    /// Parts of the alternative that is being read, or of the glob.
    branch: Vec<GlobToken>,
    /// Earlier alternatives of the same group.
    alternatives: Vec<Vec<GlobToken>>,
    /// `branch` and `alternatives` of the groups around this one.
    outer: Vec<(Vec<GlobToken>, Vec<Vec<GlobToken>>)>,
}

impl Default for TokenReader<'_> {
    fn default() -> Self {
        Self {
            chars: "".chars().peekable(),
            previous: None,
            current: None,
            branch: Vec::new(),
            alternatives: Vec::new(),
            outer: Vec::new(),
        }
    }
}

impl TokenReader<'_> {
    fn advance(&mut self) -> Option<char> {
        self.previous = self.current;
        self.current = self.chars.next();
        self.current
    }

    fn open(&mut self) -> Result<(), GlobFault> {
        if self.outer.len() == DEEPEST {
            return Err(GlobFault::TooDeep);
        }
        self.outer.push((mem::take(&mut self.branch), mem::take(&mut self.alternatives)));
        Ok(())
    }

    fn close(&mut self) -> Result<(), GlobFault> {
        let (branch, alternatives) = self.outer.pop().ok_or(GlobFault::UnopenedAlternatives)?;
        let last = mem::replace(&mut self.branch, branch);
        let mut group = mem::replace(&mut self.alternatives, alternatives);
        group.push(last);
        self.branch.push(GlobToken::Alternatives(group));
        Ok(())
    }

    /// Behind a `*`: one more crosses separators if it stands between them.
    fn star(&mut self) {
        let before = self.previous;
        if self.chars.peek() != Some(&'*') {
            return self.branch.push(GlobToken::Many);
        }
        self.advance();
        let next = self.chars.peek().copied();
        let is_nested = !self.outer.is_empty();
        if self.branch.is_empty() && matches!(next, None | Some('/')) {
            self.branch.push(GlobToken::AnyParents);
            self.advance();
            return;
        }
        let follows_separator = before == Some('/') || is_nested && matches!(before, Some(',' | '{'));
        let is_last = next.is_none() || is_nested && matches!(next, Some(',' | '}'));
        if self.branch.is_empty() || !follows_separator || !(is_last || next == Some('/')) {
            return self.branch.extend([GlobToken::Many, GlobToken::Many]);
        }
        if next.is_none() || next == Some('/') {
            self.advance();
        }
        // The separator in front is part of it.
        let token = match self.branch.pop() {
            Some(token @ (GlobToken::AnyParents | GlobToken::AnyBelow)) => token,
            _ if is_last => GlobToken::AnyBelow,
            _ => GlobToken::AnyBetween,
        };
        self.branch.push(token);
    }

    /// Behind a `[`: the rest of the class.
    fn class(&mut self) -> Result<(), GlobFault> {
        let negated = matches!(self.chars.peek(), Some('!' | '^'));
        if negated {
            self.advance();
        }
        let mut ranges: Vec<(char, char)> = Vec::new();
        let mut is_range_open = false;
        loop {
            let char = self.advance().ok_or(GlobFault::UnclosedClass)?;
            match ranges.last_mut() {
                Some(_) if char == ']' => break,
                Some(_) if char == '-' && !is_range_open => is_range_open = true,
                Some(range) if is_range_open => {
                    range.1 = char;
                    if range.1 < range.0 {
                        return Err(GlobFault::InvalidRange(range.0, range.1));
                    }
                    is_range_open = false;
                }
                _ => ranges.push((char, char)),
            }
        }
        if is_range_open {
            ranges.push(('-', '-'));
        }
        self.branch.push(GlobToken::Class { negated, ranges });
        Ok(())
    }
}
