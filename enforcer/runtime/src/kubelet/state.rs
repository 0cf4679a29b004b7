//! Reading a state file: how much, what may be wrong with it, and how that is said.
//!
//! The kubelet writes a file anew in place of the old one, so that it is whole whenever it is read. It
//! belongs to root, but what is in it comes from pods (names of containers): it is read as something hostile.

use std::{
    io,
    path::{Path, PathBuf},
};

use enforcer_core::{owner::Claim, set::CpuSet, workload::printable_within};
use serde::de::DeserializeOwned;
use thiserror::Error;

use enforcer_host::{ReadError, present, read_bytes, written_text};

/// Largest file that is read: 10000 containers take 1 MiB.
const SIZE_LIMIT: u64 = 8 << 20;
/// Most containers of a file; a kubelet runs some hundred.
pub(super) const MOST_CLAIMS: usize = 1 << 14;

/// Most values of a file: of [`MOST_CLAIMS`] containers with a list or two. A file of nothing but empty ones
/// is small, and large once it is read.
pub(super) const MOST_VALUES: usize = 1 << 18;

/// What a state file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Policy of the manager.
    pub(super) policy: String,
    /// CPUs that nobody has for itself; of the CPU manager.
    pub(super) shared_cpus: CpuSet,
    /// What is given away; no source in them yet.
    pub(super) claims: Vec<Claim>,
}

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub(super) enum StateError {
    /// Not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Not what a kubelet writes.
    #[error("{path}: {problem}", path = path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What about it.
        problem: Damage,
    },
}

/// What is wrong with the text of a state file.
#[derive(Debug, Error)]
pub(super) enum Damage {
    /// No JSON, or another form than any version of the kubelet writes.
    #[error("not a state of the kubelet: {0}")]
    Form(String),
    /// The checksum is that of another content.
    #[error("checksum {0} is not that of its content")]
    Checksum(u64),
    /// A list of CPUs that is none.
    #[error("{whose} has the CPUs `{text}`: {problem}")]
    Cpus {
        /// Whose list.
        whose: String,
        /// The list.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// Whatever it is, no manager wrote it.
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
    /// CPUs that two have.
    #[error("CPUs {0} are given away twice or shared at the same time")]
    Twice(CpuSet),
}

impl From<serde_json::Error> for Damage {
    fn from(error: serde_json::Error) -> Self {
        Self::Form(shortened(&error.to_string()))
    }
}

/// Names and values of a file are as long as their writer likes.
fn shortened(text: &str) -> String {
    printable_within(text, 120)
}

/// The state of a file; `None` where there is none.
pub(super) fn read(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<State, Damage>,
) -> Result<Option<State>, StateError> {
    let unread = |cause: io::Error| ReadError { path: path.to_owned(), cause };
    let text = read_bytes(path, SIZE_LIMIT).and_then(written_text).map_err(unread);
    let Some(text) = present(text)? else { return Ok(None) };
    let damaged = |problem| StateError::Damaged { path: path.to_owned(), problem };
    let mut state = parse(&text).map_err(damaged)?;
    for claim in &mut state.claims {
        claim.source = path.display().to_string();
    }
    Ok(Some(state))
}

/// The document of a text that does not hold too much: each value of JSON is the first of a list or an object
/// or has a comma in front of it.
pub(super) fn document<D: DeserializeOwned>(text: &str) -> Result<D, Damage> {
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{' | b',')).count() > MOST_VALUES {
        return Err(Damage::TooLarge);
    }
    Ok(serde_json::from_str(text)?)
}

/// A list of CPUs as the kubelet writes it (`k8s.io/utils/cpuset`).
pub(super) fn cpus(text: &str, whose: impl FnOnce() -> String) -> Result<CpuSet, Damage> {
    text.parse().map_err(|error: enforcer_core::set::ListError| Damage::Cpus {
        whose: shortened(&whose()),
        text: shortened(text),
        problem: shortened(&error.to_string()),
    })
}
