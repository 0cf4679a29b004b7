//! Values of an expression.

use std::{cmp::Ordering, rc::Rc};

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Text(Rc<str>),
    List(Rc<[Value]>),
    /// In thousand-millionths.
    Quantity(u128),
    Version(Rc<Semver>),
    /// `device` itself.
    Device,
    /// `device.attributes` or `device.capacity`.
    Domains(Entries),
    /// The entries of one domain.
    Domain(Entries, Rc<str>),
    /// What `.?` gives.
    Optional(Option<Rc<Value>>),
}

/// A map of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entries {
    Attributes,
    Capacity,
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Name of its type, for errors.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Quantity(_) => "quantity",
            Self::Version(_) => "semver",
            Self::Device | Self::Domains(_) | Self::Domain(..) => "map",
            Self::Optional(_) => "optional",
        }
    }

    /// Order of two values of one ordered type.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Int(other)) => Some(one.cmp(other)),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }
}

/// A semantic version (semver.org).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Semver {
    /// Major, minor, patch.
    pub(super) numbers: [u64; 3],
    /// Identifiers of the pre-release.
    before: Vec<Identifier>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Semver {
    /// The version of a text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.split_once('+').map_or(text, |(version, _build)| version);
        let (numbers, before) = text.split_once('-').map_or((text, None), |(one, other)| (one, Some(other)));
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let has_zero = text.len() > 1 && text.starts_with('0');
            text.parse::<u64>().ok().filter(|_| is_number && !has_zero)
        };
        let mut parts = numbers.split('.').map(number);
        let numbers = [parts.next()??, parts.next()??, parts.next()??];
        if parts.next().is_some() {
            return None;
        }
        let identifier = |text: &str| {
            let is_fit =
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            is_fit.then(|| number(text).map_or_else(|| Identifier::Word(text.to_owned()), Identifier::Number))
        };
        let before = before.map(|before| before.split('.').map(identifier).collect::<Option<Vec<_>>>());
        Some(Self { numbers, before: before.map_or(Some(Vec::new()), |known| known)? })
    }
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        // A release comes after its pre-releases.
        let is_release = |version: &Self| version.before.is_empty();
        let key = self.numbers.cmp(&other.numbers);
        key.then(is_release(self).cmp(&is_release(other))).then_with(|| self.before.cmp(&other.before))
    }
}
