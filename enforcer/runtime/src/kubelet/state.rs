//! Reads a state file with limits, and names its faults.
//!
//! The kubelet replaces the file as a whole, so every read is complete. Pods choose part of its content
//! (names of containers), so it is treated as hostile.
//!
//! Invariant: only a file that belongs to root (or to the daemon's user) and that no other user may write is
//! read, and a symlink is not followed. The daemon moves containers by what it says. The kubelet makes its
//! files with mode 0600 (`pkg/kubelet/util/store/filestore.go`).

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
};

use enforcer_core::{owner::Claim, workload::printable_within};
use numa_topology::set::CpuSet;
use serde::de::DeserializeOwned;
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

/// Content of a state file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StateFile {
    /// Policy of the manager.
    pub(super) policy: String,
    /// CPUs of the shared pool; of the CPU manager.
    pub(super) shared_cpus: CpuSet,
    /// Grants; without a source yet.
    pub(super) claims: Vec<Claim>,
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
pub(super) fn read(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<StateFile, StateDamage>,
) -> Result<Option<StateFile>, StateError> {
    let unread = |cause: io::Error| ReadError { path: path.to_owned(), cause };
    let text = owned_bytes(path).and_then(written_text).map_err(unread);
    let Some(text) = present(text)? else { return Ok(None) };
    let damaged = |problem| StateError::Damaged { path: path.to_owned(), problem };
    let mut state = parse(&text).map_err(damaged)?;
    for claim in &mut state.claims {
        claim.source = path.display().to_string();
    }
    Ok(Some(state))
}

fn owned_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_ours(OpenOptions::new().read(true), path)?;
    of_one_writer(&file.metadata()?)?;
    read_within(file, SIZE_LIMIT)
}

/// Parses a text with a limit on its values: in JSON each value is the first of a list or an object, or has a
/// comma in front of it.
pub(super) fn document<D: DeserializeOwned>(text: &str) -> Result<D, StateDamage> {
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{' | b',')).count() > MOST_VALUES {
        return Err(StateDamage::TooLarge);
    }
    Ok(serde_json::from_str(text)?)
}

/// A list of CPUs as the kubelet writes it (`k8s.io/utils/cpuset`).
pub(super) fn cpus(text: &str, holder: impl FnOnce() -> String) -> Result<CpuSet, StateDamage> {
    text.parse().map_err(|error: numa_topology::set::ListError| StateDamage::Cpus {
        holder: shortened(&holder()),
        text: shortened(text),
        problem: shortened(&error.to_string()),
    })
}
