//! Files of one host, read for one purpose, with a list of what was wrong with them.
//!
//! An absent file is an answer (`None`). An unreadable file, or a text that the kernel does not write, is
//! left out too, and becomes a [`Degraded`] entry with its path and value. A broken machine may have
//! thousands of such files: those that differ in numbers alone are one entry, the entries per subject are
//! bounded, and the rest is counted.

use std::{collections::BTreeMap, fmt, io, path::Path};

use super::files::MachineFiles;
use crate::{
    degraded::Degraded,
    id::Id,
    parse::{self, ParseError},
    set::IdSet,
};

/// No attribute file of sysfs is longer; node and CPU lists of the largest machines are below it.
const ATTRIBUTE_LIMIT: u64 = 1 << 18;

/// Entries per subject that are spelled out.
const ENTRIES: usize = 8;

/// What a group of files is read for: name and price of its loss.
pub(super) struct SourceEffect {
    /// [`Degraded::source`].
    pub source: &'static str,
    /// [`Degraded::effect`].
    pub effect: &'static str,
}

/// Reads below one root and keeps the complaints.
pub(super) struct Source<'a> {
    pub files: &'a dyn MachineFiles,
    losses: Vec<Loss>,
    /// Losses that are unlike those that are spelled out, by subject.
    more: BTreeMap<&'static str, (usize, &'static str)>,
}

/// What was lost, first once and then in the same words but for the numbers.
struct Loss {
    source: &'static str,
    effect: &'static str,
    reason: String,
    shape: String,
    alike: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(files: &'a dyn MachineFiles) -> Self {
        Self { files, losses: Vec::new(), more: BTreeMap::new() }
    }

    /// Everything that was lost.
    pub(super) fn into_degraded(self) -> Vec<Degraded> {
        let of_loss = |Loss { source, effect, reason, alike, .. }: Loss| {
            let alike = if alike > 0 { format!("; {alike} more like this") } else { String::new() };
            Degraded::new(source, format!("{reason}{alike}"), effect)
        };
        let more = self.more.into_iter().map(|(source, (count, effect))| {
            Degraded::new(source, format!("{count} more like these"), effect)
        });
        self.losses.into_iter().map(of_loss).chain(more).collect()
    }

    /// Notes a loss. Losses that differ in numbers alone are one entry: a machine has many files of a sort.
    pub(super) fn lost(&mut self, subject: &SourceEffect, reason: impl fmt::Display) {
        let SourceEffect { source, effect } = *subject;
        let reason = reason.to_string();
        let shape = shape(&reason);
        let same = |loss: &&mut Loss| loss.source == source && loss.shape == shape;
        if let Some(loss) = self.losses.iter_mut().find(same) {
            loss.alike += 1;
        } else if self.losses.iter().filter(|loss| loss.source == source).count() < ENTRIES {
            self.losses.push(Loss { source, effect, reason, shape, alike: 0 });
        } else {
            self.more.entry(source).or_insert((0, effect)).0 += 1;
        }
    }

    /// The text of a file.
    pub(super) fn text(&mut self, subject: &SourceEffect, path: &Path) -> Option<String> {
        let text = self.files.text(path, ATTRIBUTE_LIMIT);
        self.ok(subject, path, text)
    }

    /// The value of a file.
    pub(super) fn value<T>(
        &mut self,
        subject: &SourceEffect,
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
        subject: &SourceEffect,
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
    pub(super) fn names(&mut self, subject: &SourceEffect, dir: &Path) -> Vec<String> {
        let names = self.files.names(dir);
        self.ok(subject, dir, names).unwrap_or_default()
    }

    /// The numbers N of the entries `prefixN` of a directory, ascending.
    pub(super) fn numbered(&mut self, subject: &SourceEffect, dir: &Path, prefix: &str) -> Vec<u32> {
        let names = self.names(subject, dir);
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| number_after(name, prefix)).collect();
        numbers.sort_unstable();
        numbers
    }

    fn ok<T>(&mut self, subject: &SourceEffect, path: &Path, read: io::Result<Option<T>>) -> Option<T> {
        read.unwrap_or_else(|cause| {
            self.lost(subject, format_args!("reading {}: {cause}", path.display()));
            None
        })
    }
}

/// A text without its numbers.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if c != '#' || !shape.ends_with('#') {
            shape.push(c);
        }
    }
    shape
}

/// The N of `prefixN`, written as the kernel writes it.
pub(super) fn number_after(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits && number <= crate::set::MAX_ID).then_some(number)
}
