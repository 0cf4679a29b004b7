//! The container runtimes that guests have, by the names that people type: `1.7` is a release line of
//! containerd, as its maintainers call it.
//!
//! Each is Debian's own package with the runc of the same suite. What a node does with a container differs
//! between the lines: the file of configuration, the revision of NRI, how runc turns shares into a weight.

use std::{fmt, str::FromStr};

use anyhow::{Context, Error, Result};

/// What is known of a line.
#[derive(Debug, PartialEq, Eq)]
struct ContainerdEntry {
    name: &'static str,
    suite: &'static str,
    configuration: &'static str,
    about: &'static str,
}

const TABLE: &[ContainerdEntry] = &[
    ContainerdEntry {
        name: "1.7",
        suite: "trixie",
        configuration: include_str!("../guest/containerd-1.toml"),
        about: "Debian 13",
    },
    ContainerdEntry {
        name: "2",
        suite: "sid",
        configuration: include_str!("../guest/containerd-2.toml"),
        about: "Debian unstable: the newest",
    },
];

/// One of the lines that are known here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContainerdPackages(&'static ContainerdEntry);

impl ContainerdPackages {
    /// The one that scenarios with containers run with unless another is asked for.
    pub(crate) const DEFAULT: Self = Self(&TABLE[0]);

    /// The newest one.
    pub(crate) const NEWEST: Self = Self(&TABLE[TABLE.len() - 1]);

    /// All of them, oldest first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(Self)
    }

    /// What one types.
    pub(crate) const fn name(self) -> &'static str {
        self.0.name
    }

    /// Debian's suite that has it; the whole root file system is made of it.
    pub(crate) const fn suite(self) -> &'static str {
        self.0.suite
    }

    /// Text of its file of configuration.
    pub(crate) const fn configuration(self) -> &'static str {
        self.0.configuration
    }

    /// Where it comes from, for people.
    pub(crate) const fn about(self) -> &'static str {
        self.0.about
    }
}

impl fmt::Display for ContainerdPackages {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for ContainerdPackages {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "containerd {}", self.name())
    }
}

impl FromStr for ContainerdPackages {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::all().find(|containerd| containerd.name() == name).with_context(|| {
            let known: Vec<_> = Self::all().map(Self::name).collect();
            format!("no containerd {name:?}: there are {}", known.join(" "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name_alone() {
        for containerd in ContainerdPackages::all() {
            assert_eq!(containerd.name().parse::<ContainerdPackages>().unwrap(), containerd);
        }
        for name in ["", "1", "1.7.24", "2.1", " 2", "all"] {
            let error = name.parse::<ContainerdPackages>().unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}")) && error.contains("1.7 2"), "{error}");
        }
    }

    #[test]
    fn every_line_listens_for_plugins_and_pulls_nothing() {
        for containerd in ContainerdPackages::all() {
            let configuration: toml::Table = containerd.configuration().parse().unwrap();
            let plugins = &configuration["plugins"];
            let nri = &plugins["io.containerd.nri.v1.nri"];
            assert_eq!(nri["disable"].as_bool(), Some(false), "{containerd}");
            assert_eq!(nri["socket_path"].as_str(), Some("/var/run/nri/nri.sock"), "{containerd}");
            let text = containerd.configuration();
            assert!(text.contains("\"localhost/pause:1\"") && !text.contains("registry"), "{containerd}");
        }
    }
}
