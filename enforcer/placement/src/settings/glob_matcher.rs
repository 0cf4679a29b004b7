//! A compiled glob.
//!
//! Problem: configurations and annotations of pods have globs, which are hostile, and every turn asks them
//! about every cgroup. Idea: a glob becomes a list of instructions over bytes, in which every way without a
//! byte leads forward; so one pass over the states, in their order, is a step of all ways at once. The
//! literal beginning, which most texts already differ from, is compared as bytes.
//!
//! Invariants: a text matches as with the crate `globset`, which tests compare. Nothing is guessed and taken
//! back.
//! Cost: time is the length of the text by that of the glob at most; no memory is allocated for a match.

use std::fmt;

use super::glob_tokens::{GlobFault, GlobToken, tokens};

/// Maximum length of a glob in bytes.
pub(super) const LONGEST: usize = 1024;
/// States of the longest glob: a byte of it makes two at most, and the end is one more.
const WORDS: usize = (2 * LONGEST + 1).div_ceil(64);

/// A glob that texts are compared with; two are equal when their texts and separators are.
#[derive(Clone)]
pub(crate) struct GlobMatcher {
    text: String,
    /// Only `**` and what is written match `/`.
    has_separator: bool,
    /// Every match begins so.
    literal: String,
    /// The rest.
    program: Vec<GlobStep>,
    classes: Vec<ByteSet>,
}

/// Matches one byte unless it is said otherwise.
#[derive(Debug, Clone, Copy)]
enum GlobStep {
    Byte(u8),
    /// Any byte; not `/` if the flag is set.
    One(bool),
    /// Any number of such bytes.
    Many(bool),
    /// A byte of the class with this number.
    Class(u16),
    /// Goes on behind this one and at another place.
    Fork(u16),
    /// Goes on at another place.
    Jump(u16),
    /// Whatever is left matches.
    Rest,
    /// Matches the end.
    End,
}

/// Bits by byte.
type ByteSet = [u64; 4];

impl GlobMatcher {
    /// Compiles an untrusted glob over paths: `*`, `?` match no `/`.
    pub(crate) fn of_paths(text: &str) -> Result<Self, GlobFault> {
        Self::new(text, true)
    }

    /// Compiles an untrusted glob over names.
    pub(crate) fn of_names(text: &str) -> Result<Self, GlobFault> {
        Self::new(text, false)
    }

    fn new(text: &str, has_separator: bool) -> Result<Self, GlobFault> {
        if text.len() > LONGEST {
            return Err(GlobFault::TooLong(LONGEST));
        }
        let tokens = tokens(text)?;
        let literal = tokens.iter().map_while(|token| match token {
            GlobToken::Char(char) => Some(*char),
            _ => None,
        });
        let literal: String = literal.collect();
        let rest = &tokens[literal.chars().count()..];
        let mut matcher =
            Self { text: text.to_owned(), has_separator, literal, program: Vec::new(), classes: Vec::new() };
        if let [GlobToken::AnyParents] = &tokens[..] {
            matcher.program.push(GlobStep::Many(false));
        } else {
            matcher.add(rest);
        }
        match (tokens.last(), matcher.program.last_mut()) {
            (
                Some(GlobToken::Many | GlobToken::AnyBelow | GlobToken::AnyParents),
                Some(last @ GlobStep::Many(false)),
            ) => *last = GlobStep::Rest,
            _ => matcher.program.push(GlobStep::End),
        }
        matcher.program.shrink_to_fit();
        Ok(matcher)
    }

    /// As written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Does the whole text match?
    pub(crate) fn is_match(&self, text: &str) -> bool {
        let Some(rest) = text.as_bytes().strip_prefix(self.literal.as_bytes()) else { return false };
        let words = self.program.len().div_ceil(64);
        let mut states = [0; WORDS];
        states[0] = 1;
        for byte in rest {
            let mut next = [0; WORDS];
            match self.step(&mut states[..words], &mut next[..words], Some(*byte)) {
                Some(all_match) => return all_match,
                None => states[..words].copy_from_slice(&next[..words]),
            }
        }
        self.step(&mut states[..words], &mut [], None).unwrap_or(false)
    }

    /// Takes every state over a byte or, without one, to the end. Tells the answer if it is known.
    fn step(&self, states: &mut [u64], next: &mut [u64], byte: Option<u8>) -> Option<bool> {
        let mut is_any_left = false;
        for word in 0..states.len() {
            let mut left = states[word];
            while left != 0 {
                let at = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                let mut also = |at: usize| {
                    states[at / 64] |= 1 << (at % 64);
                    if at / 64 == word {
                        left |= 1 << (at % 64);
                    }
                };
                let (goes, to) = match self.program[at] {
                    GlobStep::Byte(own) => (byte == Some(own), at + 1),
                    GlobStep::One(within) => (byte.is_some_and(|byte| !(within && byte == b'/')), at + 1),
                    GlobStep::Class(number) => {
                        let class = &self.classes[usize::from(number)];
                        (byte.is_some_and(|byte| has(class, byte)), at + 1)
                    }
                    GlobStep::Many(within) => {
                        also(at + 1);
                        (byte.is_some_and(|byte| !(within && byte == b'/')), at)
                    }
                    GlobStep::Fork(other) => {
                        also(at + 1);
                        also(usize::from(other));
                        continue;
                    }
                    GlobStep::Jump(other) => {
                        also(usize::from(other));
                        continue;
                    }
                    GlobStep::Rest => return Some(true),
                    GlobStep::End if byte.is_none() => return Some(true),
                    GlobStep::End => continue,
                };
                if goes {
                    next[to / 64] |= 1 << (to % 64);
                    is_any_left = true;
                }
            }
        }
        (!is_any_left).then_some(false)
    }

    fn add(&mut self, tokens: &[GlobToken]) {
        let within = self.has_separator;
        for token in tokens {
            match token {
                GlobToken::Char(char) => {
                    let mut buffer = [0; 4];
                    self.program.extend(char.encode_utf8(&mut buffer).bytes().map(GlobStep::Byte));
                }
                GlobToken::One => self.program.push(GlobStep::One(within)),
                GlobToken::Many => self.program.push(GlobStep::Many(within)),
                GlobToken::AnyBelow => self.program.extend([GlobStep::Byte(b'/'), GlobStep::Many(false)]),
                GlobToken::AnyParents => {
                    // Nothing, a separator, or what ends with one: the last is also that separator.
                    let end = self.at() + 3;
                    self.program.extend([GlobStep::Fork(end), GlobStep::Many(false), GlobStep::Byte(b'/')]);
                }
                GlobToken::AnyBetween => {
                    let end = self.at() + 4;
                    self.program.extend([
                        GlobStep::Byte(b'/'),
                        GlobStep::Fork(end),
                        GlobStep::Many(false),
                        GlobStep::Byte(b'/'),
                    ]);
                }
                GlobToken::Class { negated, ranges } => self.add_class(*negated, ranges),
                GlobToken::Alternatives(branches) => self.add_alternatives(branches),
            }
        }
    }

    /// Those of them that match something; none are nothing.
    fn add_alternatives(&mut self, branches: &[Vec<GlobToken>]) {
        let mut fork = None;
        let mut jumps = Vec::new();
        for branch in branches {
            let before = self.program.len();
            // Where the alternative in front ends, and where this one begins unless it is the first.
            if fork.is_some() {
                self.program.push(GlobStep::Jump(0));
            }
            let start = self.program.len();
            self.program.push(GlobStep::Fork(0));
            self.add(branch);
            if self.program.len() == start + 1 {
                self.program.truncate(before);
                continue;
            }
            if let Some(fork) = fork.replace(start) {
                self.program[fork] = GlobStep::Fork(index(start));
                jumps.push(before);
            }
        }
        // The last one has no other beside it.
        let end = self.at();
        if let Some(last) = fork {
            self.program[last] = GlobStep::Jump(index(last + 1));
        }
        for jump in jumps {
            self.program[jump] = GlobStep::Jump(end);
        }
    }

    /// Bytes one by one: of a range between longer characters, its last byte to its first one.
    fn add_class(&mut self, negated: bool, ranges: &[(char, char)]) {
        let mut class = ByteSet::default();
        let mut put = |from: u8, to: u8| {
            for byte in from..=to {
                class[usize::from(byte / 64)] |= 1 << (byte % 64);
            }
        };
        for (from, to) in ranges {
            let (mut first, mut second) = ([0; 4], [0; 4]);
            let (from, to) =
                (from.encode_utf8(&mut first).as_bytes(), to.encode_utf8(&mut second).as_bytes());
            from.iter().chain(to).for_each(|byte| put(*byte, *byte));
            if let ([.., last], [first, ..]) = (from, to)
                && from != to
            {
                put(*last, *first);
            }
        }
        if negated {
            class = class.map(|bits| !bits);
        }
        self.program.push(GlobStep::Class(index(self.classes.len())));
        self.classes.push(class);
    }

    /// Index of the next instruction.
    fn at(&self) -> u16 {
        index(self.program.len())
    }
}

/// Programs are shorter than that (`WORDS`).
fn index(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

fn has(class: &ByteSet, byte: u8) -> bool {
    class[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
}

impl PartialEq for GlobMatcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.has_separator) == (&other.text, other.has_separator)
    }
}

impl Eq for GlobMatcher {}

impl fmt::Debug for GlobMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlobMatcher({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use globset::GlobBuilder;
    use proptest::prelude::*;

    use super::*;

    /// As the crate whose meaning this module keeps.
    fn reference(glob: &str, has_separator: bool) -> Result<globset::GlobMatcher, String> {
        let glob = GlobBuilder::new(glob).literal_separator(has_separator).build();
        glob.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
    }

    fn agree(glob: &str, has_separator: bool, texts: &[&str]) -> Result<(), TestCaseError> {
        let own = GlobMatcher::new(glob, has_separator).map_err(|fault| fault.to_string());
        match (own, reference(glob, has_separator)) {
            (Ok(own), Ok(reference)) => {
                prop_assert!(own.program.len() <= 2 * glob.len() + 1, "{glob:?}: {:?}", own.program);
                for text in texts {
                    prop_assert_eq!(own.is_match(text), reference.is_match(text), "{:?} on {:?}", glob, text);
                }
            }
            (own, reference) => prop_assert_eq!(own.err(), reference.err(), "{:?}", glob),
        }
        Ok(())
    }

    #[test]
    fn special_places_of_stars_are_those_of_globset() {
        let texts =
            ["", "/", "a", "a/", "/a", "a/b", "/a/b", "a/x/b", "/a/x/y/b", "a//b", "ab", "axb", "a,/b"];
        for glob in [
            "**",
            "**/",
            "/**",
            "/**/",
            "**/b",
            "/**/b",
            "a/**",
            "a/**/b",
            "a**",
            "a**b",
            "**b",
            "***",
            "/***",
            "**/**/b",
            "/**/**",
            "a/**/**",
            "a/**/**/b",
            "{**,x}",
            "{**/b,x}",
            "{a/**,x}",
            "{a/**}b",
            "{a/**/b}",
            "{a\\,**}",
            "a\\/**",
            "{a,\\{**}b",
            "{a,{b,/**}}",
            "{/**,a}",
            "[/]**",
            "?**",
            "{{},a}",
            "{}",
            "{,}a",
            "{,a}b",
            "{{,},a}",
            "{*,a}b",
            "{a,*}",
            "*{a,b}*",
            "[!/]",
            "[!a]",
            "[]a]",
            "[]-a]",
            "[--/]",
            "[a-]",
            "[^-]",
        ] {
            for has_separator in [false, true] {
                agree(glob, has_separator, &texts).unwrap();
            }
        }
    }

    #[test]
    fn faults_are_said_as_globset_says_them() {
        for glob in [
            "[", "[a", "[!", "[]", "[b-a]", "[a-\\]", "{a", "{{a}", "a}", "}", "\\", "a\\", "{\\}", "[[]{",
            "[é-z]",
        ] {
            assert!(reference(glob, true).is_err(), "{glob}");
            agree(glob, true, &[]).unwrap();
        }
    }

    #[test]
    fn the_longest_globs_have_a_state_for_each_part() {
        for part in ["{,}", "{a,b}", "**/", "/**", "/**/", "é", "*", "?", "[a-z]", "{a}", "{*,/**/}"] {
            let glob = part.repeat(LONGEST / part.len());
            let matcher = GlobMatcher::of_paths(&glob).unwrap();
            assert!(matcher.program.len() <= WORDS * 64, "{part}: {}", matcher.program.len());
            let _any = matcher.is_match(&"a/".repeat(2_000));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn texts_match_as_with_globset(
            glob in r"([ab/\-é*?,!\^\[\]\{\}\\]|\*\*|/\*\*/|\{a,|[ab/]){0,14}",
            texts in proptest::collection::vec("[ab/é,-]{0,10}", 8),
            has_separator: bool,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            agree(&glob, has_separator, &texts)?;
        }
    }

    proptest! {
        // Long expressions take `globset` long.
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn long_globs_match_as_with_globset(
            glob in proptest::collection::vec("(a|b|/|é|\\?|\\*|[ab]{6}|/\\*\\*/|\\{a,b/\\*,\\*\\*\\}|\\[a-é\\])", 1..40),
            text in "[ab/é]{0,40}",
            has_separator: bool,
        ) {
            agree(&glob.concat(), has_separator, &[&text])?;
        }
    }
}
