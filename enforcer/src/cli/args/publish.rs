//! Arguments of `publish`, and names of the objects that a node publishes.

use std::path::PathBuf;

use clap::ValueEnum;
use enforcer_core::cluster::exported::ExportedKind;

/// Arguments of `publish`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
docs/node-state.md has the objects and what they say.

Exit codes: 0 printed, written or equal, 1 --diff shows a difference, 2 the
node cannot be read, or the API server refuses or does not answer, 64 wrong
usage

Examples:
  numa-enforcer publish --once --print own
  numa-enforcer publish --once --print nrt -o json
  numa-enforcer publish --once --print nrt --diff
  numa-enforcer publish --once --config /etc/numa-enforcer.toml")]
pub struct PublishArgs {
    /// Look once, and end; `run` publishes on every change.
    #[arg(long, required = true)]
    pub once: bool,
    /// Print this object, and write nothing; no API server is asked.
    ///
    /// What only the API server knows is missing then: the version of the kubelet, names of some pods,
    /// devices that are not healthy.
    #[arg(long, value_enum, value_name = "OBJECT")]
    pub print: Option<PublishedName>,
    /// Show how the objects in the cluster differ, and write nothing.
    ///
    /// With --print that object alone, else all that the configuration publishes. Metadata, and the revision
    /// of a state, are not compared.
    #[arg(long)]
    pub diff: bool,
    /// How to show objects.
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub output: YamlOrJson,
    /// Configuration (TOML) as for `run`: its cluster and kubelet [default: built in]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Take a captured machine (see `capture`); --config names the files
    /// of its kubelet.
    #[arg(long, value_name = "DIR", requires = "print", conflicts_with = "diff")]
    pub root: Option<PathBuf>,
}

/// Output of `publish`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum YamlOrJson {
    /// For people, and for kubectl.
    Yaml,
    /// For programs.
    Json,
}

/// Objects that a node may publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PublishedName {
    /// `NumaNodeState`, the exact one.
    Own,
    /// `NodeResourceTopology` of scheduler-plugins.
    Nrt,
    /// `Numatopology` of Volcano.
    Numatopology,
}

/// Objects of other schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportedName {
    /// `NodeResourceTopology` of scheduler-plugins.
    Nrt,
    /// `Numatopology` of Volcano.
    Numatopology,
}

impl From<ExportedName> for ExportedKind {
    fn from(name: ExportedName) -> Self {
        match name {
            ExportedName::Nrt => Self::Nrt,
            ExportedName::Numatopology => Self::Numatopology,
        }
    }
}
