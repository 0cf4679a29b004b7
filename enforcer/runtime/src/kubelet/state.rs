//! Reads a state file with limits, and names its faults.
//!
//! The kubelet replaces the file as a whole, so every read is complete. Pods choose part of its content
//! (names of containers), so it is treated as hostile.
//!
//! Invariant: only a file that belongs to root (or to the daemon's user) and that no other user may write is
//! read, and a symlink is not followed. The daemon moves containers by what it says. The kubelet makes its
//! files with mode 0600 (`pkg/kubelet/util/store/filestore.go`).

use std::{
    collections::BTreeMap,
    fs::{Metadata, OpenOptions},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use enforcer_core::workload::printable_within;
use numa_topology::{id::NodeId, set::CpuSet};
use serde::de::{DeserializeOwned, IgnoredAny};
use thiserror::Error;

use enforcer_host::{
    ReadError,
    owned_file::{of_one_writer, open_ours},
    present, read_within, written_text,
};

/// Largest file that is read: 10000 containers take 1 MiB.
const SIZE_LIMIT: u64 = 8 << 20;
/// Most containers of a file; a kubelet runs some hundred.
pub(super) const MOST_CLAIMS: usize = 1 << 14;

/// Most values of a file: [`MOST_CLAIMS`] containers with a list or two each. A file of empty values is
/// small, and large once it is parsed.
pub(super) const MOST_VALUES: usize = 1 << 18;

/// `MAX_NUMNODES` of the kernel at its largest (`CONFIG_NODES_SHIFT` of 10).
pub(super) const MOST_NODES: u32 = 1 << 10;

/// Most unknown fields that are told.
const MOST_UNKNOWN: usize = 4;

/// Text of a state file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateText {
    /// All of it.
    pub(super) text: String,
    /// When the file took its place: the time of its latest change of any kind. The kubelet writes a new
    /// file, syncs it and renames it, and the time of modification is before the last two.
    pub(super) replaced: Option<SystemTime>,
}

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub(super) enum StateError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No kubelet writes this.
    #[error("{path}: {problem}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: StateDamage,
    },
}

/// Fault of the text of a state file.
#[derive(Debug, Error)]
pub(super) enum StateDamage {
    /// Not JSON, or not a form that any version of the kubelet writes.
    #[error("not a state of the kubelet: {0}")]
    Form(String),
    /// The checksum does not fit the content.
    #[error("checksum {0} is not that of its content")]
    Checksum(u64),
    /// An invalid list of CPUs.
    #[error("{holder} has the CPUs `{text}`: {problem}")]
    Cpus {
        /// The holder of the list.
        holder: String,
        /// The list.
        text: String,
        /// The fault.
        problem: String,
    },
    /// No manager wrote it.
    #[error("not a state of the kubelet: it names no policy")]
    NoPolicy,
    /// Containers without their pods.
    #[error("it names containers by their ids, as kubelets before 1.18 did")]
    TooOld,
    /// More than any node has.
    #[error("more than {MOST_CLAIMS} containers")]
    TooMany,
    /// More than any node has.
    #[error("more than {MOST_VALUES} values")]
    TooLarge,
    /// A NUMA node that no machine has.
    #[error("NUMA node {0} is none of any machine's")]
    Node(i64),
    /// CPUs with two owners.
    #[error("CPUs {0} are given away twice or shared at the same time")]
    Twice(CpuSet),
}

impl From<serde_json::Error> for StateDamage {
    fn from(error: serde_json::Error) -> Self {
        Self::Form(shortened(&error.to_string()))
    }
}

/// Names and values in a file may be of any length.
fn shortened(text: &str) -> String {
    printable_within(text, 120)
}

/// The state of a file; `None` if there is no file.
pub(super) fn read<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, StateDamage>,
) -> Result<Option<T>, StateError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let damaged = |problem| StateError::Damaged { path: path.to_owned(), problem };
    Ok(Some(parse(&text.text).map_err(damaged)?))
}

/// The text of a file; `None` if there is no file.
pub(super) fn read_text(path: &Path) -> Result<Option<StateText>, StateError> {
    let unread = |cause: io::Error| ReadError { path: path.to_owned(), cause };
    Ok(present(owned_text(path).map_err(unread))?)
}

fn owned_text(path: &Path) -> io::Result<StateText> {
    let file = open_ours(OpenOptions::new().read(true), path)?;
    let metadata = file.metadata()?;
    of_one_writer(&metadata)?;
    let replaced = changed_at(&metadata);
    Ok(StateText { text: written_text(read_within(file, SIZE_LIMIT)?)?, replaced })
}

/// Time of the latest change of a file or of its name; `None` before 1970.
fn changed_at(metadata: &Metadata) -> Option<SystemTime> {
    let seconds = u64::try_from(metadata.ctime()).ok()?;
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}

/// Parses a text with a limit on its values: in JSON each value is the first of a list or an object, or has a
/// comma in front of it.
pub(super) fn document<D: DeserializeOwned>(text: &str) -> Result<D, StateDamage> {
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{' | b',')).count() > MOST_VALUES {
        return Err(StateDamage::TooLarge);
    }
    Ok(serde_json::from_slice(text.as_bytes())?)
}

/// Names of the outermost fields of a text that are not among the known ones; a few of them. Go reads keys
/// without regard to case.
pub(super) fn unknown_fields(text: &str, known: &[&str]) -> Result<Vec<String>, StateDamage> {
    #[expect(clippy::zero_sized_map_values, reason = "serde reads an object as a map, and no value is kept")]
    let fields: BTreeMap<String, IgnoredAny> = document(text)?;
    let is_unknown = |name: &&String| !known.iter().any(|known| known.eq_ignore_ascii_case(name));
    Ok(fields.keys().filter(is_unknown).take(MOST_UNKNOWN).map(|name| shortened(name)).collect())
}

/// A NUMA node by its number in a file.
pub(super) fn node_id(number: i64) -> Result<NodeId, StateDamage> {
    let node = u32::try_from(number).ok().filter(|node| *node < MOST_NODES);
    node.map(NodeId).ok_or(StateDamage::Node(number))
}

/// A list of CPUs as the kubelet writes it (`k8s.io/utils/cpuset`).
pub(super) fn cpus(text: &str, holder: impl FnOnce() -> String) -> Result<CpuSet, StateDamage> {
    text.parse().map_err(|error: numa_topology::set::ListError| StateDamage::Cpus {
        holder: shortened(&holder()),
        text: shortened(text),
        problem: shortened(&error.to_string()),
    })
}
