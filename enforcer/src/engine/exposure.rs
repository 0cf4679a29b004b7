//! Keeps what containers read of their own place true.
//!
//! What a container is given changes with answers to the runtime and with turns; after each, whoever reads something
//! else than what counts now gets the new text. It is taken under the lock of [`Placed`] and written outside of it, behind
//! a lock of its own, so that texts of two threads cannot overtake each other.
//!
//! Must never hold up or fail a container: what cannot be written is degraded until it could be.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use enforcer_core::degraded::Degraded;

use super::placed::Placed;
use crate::enforce::exposed::{ExposeError, Exposed};

/// A handle to what containers read; clones refer to the same. The default exposes nothing.
#[derive(Debug, Clone, Default)]
pub struct Exposure(Option<Arc<Mutex<Files>>>);

#[derive(Debug)]
struct Files {
    exposed: Exposed,
    /// Why the latest change could not be written.
    failure: Option<String>,
}

impl Exposure {
    /// Exposes below this state directory.
    pub fn below(state_dir: &Path) -> Result<Self, ExposeError> {
        let exposed = Exposed::open(state_dir)?;
        Ok(Self(Some(Arc::new(Mutex::new(Files { exposed, failure: None })))))
    }

    /// Of a container that is about to be made and has its place: the directory that is to be mounted.
    pub(super) fn begin(&self, placed: &Placed, id: &str) -> Option<PathBuf> {
        let mut files = self.files()?;
        let (_, text) = placed.lock().exposed(std::iter::once(id)).pop()?;
        let made = files.exposed.begin(id, &text);
        files.note(made)
    }

    /// Lets every container read what it has now.
    pub(super) fn refresh(&self, placed: &Placed) {
        let Some(mut files) = self.files() else { return };
        let texts = placed.lock().exposed(files.exposed.ids());
        let mut outcome = Ok(());
        for (id, text) in texts {
            outcome = outcome.and(files.exposed.refresh(&id, &text));
        }
        files.note(outcome);
    }

    /// A container is gone.
    pub(super) fn end(&self, id: &str) {
        if let Some(mut files) = self.files() {
            let ended = files.exposed.end(id);
            files.note(ended);
        }
    }

    /// Only these containers are there.
    pub(super) fn only(&self, ids: &BTreeSet<String>) {
        if let Some(mut files) = self.files() {
            let gone = files.exposed.only(ids);
            files.note(gone);
        }
    }

    /// What containers do not read.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        let reason = self.files()?.failure.clone()?;
        Some(Degraded::new("exposure", reason, "containers read of their place what it was, or nothing"))
    }

    fn files(&self) -> Option<MutexGuard<'_, Files>> {
        // Whoever panicked left whole texts: each change is a rename.
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Files {
    fn note<T>(&mut self, outcome: Result<T, ExposeError>) -> Option<T> {
        let failure = outcome.as_ref().err().map(ToString::to_string);
        if let Some(failure) = failure.as_ref().filter(|failure| self.failure.as_ref() != Some(failure)) {
            tracing::warn!("{failure}");
        }
        self.failure = failure;
        outcome.ok()
    }
}
