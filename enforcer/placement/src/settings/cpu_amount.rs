//! CPUs in the configuration: as a list, as all but a list, or as a quantity.
//!
//! `cpuset:0-3`, `exclude-cpuset:0-1`, `0-3` or `0,4` name CPUs; `750m` and `2` are amounts, as
//! Kubernetes writes them.

use std::{fmt, str::FromStr};

use thiserror::Error;

use numa_topology::text::beginning;

use numa_topology::{quantity::milli_cpus, set::CpuSet};

/// A set of CPUs: these, or all but these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuChoice {
    /// Exactly these CPUs.
    Only(CpuSet),
    /// All CPUs except these.
    AllBut(CpuSet),
}

/// A set of CPUs, or a number of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuAmount {
    /// A set of CPUs.
    Named(CpuChoice),
    /// An amount, in thousandths of a CPU.
    Milli(u64),
}

/// Why a text is neither a set of CPUs nor an amount.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CpuAmountError {
    /// Neither CPUs nor an amount.
    #[error("`{0}` is neither CPUs (cpuset:0-3, exclude-cpuset:0-1, 0-3) nor an amount (750m, 2)")]
    Unknown(String),
    /// An amount, where only a set of CPUs is allowed.
    #[error("`{0}` is an amount, where CPUs are to be named (cpuset:0-3, exclude-cpuset:0-1, 0-3)")]
    NotNamed(String),
}

impl CpuChoice {
    /// The CPUs of `cpus` that it selects.
    #[must_use]
    pub fn of(&self, cpus: &CpuSet) -> CpuSet {
        match self {
            Self::Only(named) => cpus.intersection(named),
            Self::AllBut(named) => cpus.difference(named),
        }
    }
}

impl FromStr for CpuChoice {
    type Err = CpuAmountError;

    fn from_str(text: &str) -> Result<Self, CpuAmountError> {
        match text.parse()? {
            CpuAmount::Named(choice) => Ok(choice),
            CpuAmount::Milli(_) => Err(CpuAmountError::NotNamed(beginning(text))),
        }
    }
}

impl FromStr for CpuAmount {
    type Err = CpuAmountError;

    fn from_str(text: &str) -> Result<Self, CpuAmountError> {
        let unknown = || CpuAmountError::Unknown(beginning(text));
        let named = |list: &str, choice: fn(CpuSet) -> CpuChoice| {
            list.parse().ok().map(|cpus| Self::Named(choice(cpus)))
        };
        let text = text.trim();
        let amount = if let Some(rest) = text.strip_prefix("cpuset:") {
            named(rest, CpuChoice::Only)
        } else if let Some(rest) = text.strip_prefix("exclude-cpuset:") {
            named(rest, CpuChoice::AllBut)
        } else if text.contains(['-', ',']) {
            named(text, CpuChoice::Only)
        } else {
            milli_cpus(text).map(Self::Milli)
        };
        amount.ok_or_else(unknown)
    }
}

impl fmt::Display for CpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(cpus) => write!(f, "cpuset:{cpus}"),
            Self::AllBut(cpus) => write!(f, "exclude-cpuset:{cpus}"),
        }
    }
}

impl fmt::Display for CpuAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(choice) => choice.fmt(f),
            Self::Milli(milli) if milli % 1000 == 0 => write!(f, "{}", milli / 1000),
            Self::Milli(milli) => write!(f, "{milli}m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_amounts_are_told_apart() {
        for (text, read) in [
            ("cpuset:0-3", "cpuset:0-3"),
            ("cpuset:2", "cpuset:2"),
            ("exclude-cpuset:0,4", "exclude-cpuset:0,4"),
            ("0-3", "cpuset:0-3"),
            ("750m", "750m"),
            ("2", "2"),
            ("2000m", "2"),
            ("1.5", "1500m"),
        ] {
            assert_eq!(text.parse::<CpuAmount>().unwrap().to_string(), read);
        }
        for text in ["", "x", "cpuset:x", "3-1", "-1", "1.2.3"] {
            assert!(text.parse::<CpuAmount>().is_err(), "{text}");
        }
    }
    #[test]
    fn where_cpus_are_to_be_named_an_amount_is_refused() {
        let read = |text: &str| text.parse::<CpuChoice>().map(|choice| choice.to_string());
        for text in ["cpuset:0-3", "cpuset:2", "exclude-cpuset:0,4"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        for text in ["2", "750m"] {
            assert_eq!(read(text), Err(CpuAmountError::NotNamed(text.to_owned())));
        }
        assert_eq!(read("x"), Err(CpuAmountError::Unknown("x".to_owned())));
    }
}
