//! The kernels that guests boot, by the names that people type: `6.12` is a series, as kernel.org calls it.
//!
//! Each is Debian's own kernel for clouds, the newest of the series in a suite that carries it. Stable
//! suites keep theirs for years; the rolling ones do not, so the newest series names all suites that it is
//! in or will be in. No minor release is written down: it would be gone from the mirrors in weeks.

use std::{fmt, str::FromStr};

use anyhow::{Context, Error, Result};

/// What is known of a series.
#[derive(Debug, PartialEq, Eq)]
struct SeriesEntry {
    name: &'static str,
    /// Debian's suites that may have it; the first that has is taken.
    suites: &'static [&'static str],
    about: &'static str,
}

/// The oldest that the kernel side is made for, Debian's releases, a long-term one and the newest.
const TABLE: &[SeriesEntry] = &[
    SeriesEntry { name: "5.10", suites: &["bullseye"], about: "Debian 11" },
    SeriesEntry { name: "6.1", suites: &["bookworm"], about: "Debian 12" },
    SeriesEntry { name: "6.12", suites: &["trixie"], about: "Debian 13" },
    SeriesEntry { name: "6.18", suites: &["trixie-backports"], about: "backported to Debian 13" },
    SeriesEntry { name: "7.2", suites: &["forky", "sid", "trixie-backports"], about: "Debian testing" },
];

/// One of the series that are known here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Series(&'static SeriesEntry);

impl Series {
    /// The one that every scenario runs on.
    pub(crate) const DEFAULT: Self = Self(&TABLE[2]);

    /// The one that differs most from it: plays `eyes-*` too in every run.
    pub(crate) const SECOND: Self = Self(&TABLE[0]);

    /// All of them, oldest first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(Self)
    }

    /// What one types.
    pub(crate) const fn name(self) -> &'static str {
        self.0.name
    }

    /// Debian's suites that may have it, in the order in which they are asked.
    pub(crate) const fn suites(self) -> &'static [&'static str] {
        self.0.suites
    }

    /// Where it comes from, for people.
    pub(crate) const fn about(self) -> &'static str {
        self.0.about
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Series {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::all().find(|series| series.name() == name).with_context(|| {
            let known: Vec<_> = Self::all().map(Self::name).collect();
            format!("no kernel {name:?}: there are {}", known.join(" "))
        })
    }
}

/// Several series: `all`, or names with commas between them. Each is there once, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernels(Vec<Series>);

impl Kernels {
    /// Oldest first.
    pub(crate) fn as_slice(&self) -> &[Series] {
        &self.0
    }
}

impl FromStr for Kernels {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self> {
        if list == "all" {
            return Ok(Self(Series::all().collect()));
        }
        let named: Vec<Series> = list.split(',').map(|name| name.trim().parse()).collect::<Result<_>>()?;
        Ok(Self(Series::all().filter(|series| named.contains(series)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_found_by_its_whole_name_alone() {
        for series in Series::all() {
            assert_eq!(series.name().parse::<Series>().unwrap(), series);
        }
        for name in ["", "6", "6.", "6.1.0", "6.13", " 6.1", "all", "v6.1", "-1", "6.12\0"] {
            let error = name.parse::<Series>().unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}")) && error.contains("5.10 6.1 6.12"), "{error}");
        }
    }

    #[test]
    fn lists_are_put_in_order_and_name_each_kernel_once() {
        for (list, wanted) in [
            ("all", &["5.10", "6.1", "6.12", "6.18", "7.2"][..]),
            ("7.2,6.1", &["6.1", "7.2"]),
            ("6.1, 6.1", &["6.1"]),
            ("6.12", &["6.12"]),
        ] {
            let names: Vec<_> =
                list.parse::<Kernels>().unwrap().as_slice().iter().map(|series| series.name()).collect();
            assert_eq!(names, wanted, "{list}");
        }
        for list in ["", ",", "6.1,", "6.1,all", "6.1;7.2", "6.1,9.9"] {
            assert!(list.parse::<Kernels>().is_err(), "{list}");
        }
    }

    #[test]
    fn the_kernels_of_every_run_differ_and_each_has_a_suite() {
        assert_eq!((Series::DEFAULT.name(), Series::SECOND.name()), ("6.12", "5.10"));
        assert!(Series::all().all(|series| !series.suites().is_empty()));
    }
}
