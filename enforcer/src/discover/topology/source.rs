//! Files of one host, read for one purpose, with a list of what was wrong with them.
//!
//! A file that is absent is an answer (`None`). A file that is there and cannot be read, or whose
//! text is not what the kernel writes, is left out too, and becomes a [`Degraded`] entry with its
//! path and value. A broken machine may have thousands of such files, so the entries per subject are
//! bounded and the rest is counted.

use std::{collections::BTreeMap, fmt, path::Path};

use enforcer_core::{degraded::Degraded, id::Id, parse, parse::ParseError, set::IdSet};

use crate::host::{self, HostRoot, ReadError};

/// No attribute file of sysfs is longer; node and CPU lists of the largest machines are below it.
const ATTRIBUTE_LIMIT: u64 = 1 << 18;

/// Entries per subject that are spelled out.
const ENTRIES: usize = 8;

/// What a group of files is read for: name and price of its loss.
pub(super) struct Subject {
    /// [`Degraded::source`].
    pub source: &'static str,
    /// [`Degraded::effect`].
    pub effect: &'static str,
}

/// Reads below one root and keeps the complaints.
pub(super) struct Source<'a> {
    pub root: &'a HostRoot,
    degraded: Vec<Degraded>,
    counts: BTreeMap<&'static str, (usize, &'static str)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(root: &'a HostRoot) -> Self {
        Self { root, degraded: Vec::new(), counts: BTreeMap::new() }
    }

    /// Everything that was lost.
    pub(super) fn into_degraded(mut self) -> Vec<Degraded> {
        for (source, (count, effect)) in &self.counts {
            if let Some(more) = count.checked_sub(ENTRIES).filter(|&more| more > 0) {
                self.degraded.push(Degraded::new(*source, format!("{more} more like these"), *effect));
            }
        }
        self.degraded
    }

    /// Notes a loss.
    pub(super) fn lost(&mut self, subject: &Subject, reason: impl fmt::Display) {
        let count = &mut self.counts.entry(subject.source).or_insert((0, subject.effect)).0;
        *count += 1;
        if *count <= ENTRIES {
            self.degraded.push(Degraded::new(subject.source, reason.to_string(), subject.effect));
        }
    }

    /// The text of a file.
    pub(super) fn text(&mut self, subject: &Subject, path: &Path) -> Option<String> {
        let text = host::present(host::read_text_within(path, ATTRIBUTE_LIMIT));
        self.ok(subject, text).flatten()
    }

    /// The value of a file.
    pub(super) fn value<T>(
        &mut self,
        subject: &Subject,
        path: &Path,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Option<T> {
        let text = self.text(subject, path)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.lost(subject, format_args!("{}: {error}", path.display()));
                None
            }
        }
    }

    /// A set of ids from the first of the list files that gives one, else from the first mask file.
    pub(super) fn ids<T: Id>(
        &mut self,
        subject: &Subject,
        dir: &Path,
        lists: &[&str],
        masks: &[&str],
    ) -> Option<IdSet<T>> {
        for name in lists {
            if let Some(ids) = self.value(subject, &dir.join(name), parse::scalar::list) {
                return Some(ids);
            }
        }
        masks.iter().find_map(|name| self.value(subject, &dir.join(name), parse::mask::mask))
    }

    /// The names in a directory; none where it is absent.
    pub(super) fn names(&mut self, subject: &Subject, dir: &Path) -> Vec<String> {
        let names = host::list_dir(dir);
        self.ok(subject, names).flatten().unwrap_or_default()
    }

    /// The numbers N of the entries `prefixN` of a directory, ascending.
    pub(super) fn numbered(&mut self, subject: &Subject, dir: &Path, prefix: &str) -> Vec<u32> {
        let names = self.names(subject, dir);
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| number_after(name, prefix)).collect();
        numbers.sort_unstable();
        numbers
    }

    fn ok<T>(&mut self, subject: &Subject, result: Result<T, ReadError>) -> Option<T> {
        result.map_err(|error| self.lost(subject, error)).ok()
    }
}

/// The N of `prefixN`, written as the kernel writes it.
pub(super) fn number_after(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits && number <= enforcer_core::set::MAX_ID).then_some(number)
}
