//! Keeps the containers' resource files current, and receives the readiness of containers that begin on slow
//! memory.
//!
//! Problem: a container's grant changes with answers to the runtime and with turns. Idea: after each change
//! every container with a changed text gets the new one. The text is built under the lock of [`SharedLedger`]
//! and written without it. A lock of its own keeps texts of two threads in order.
//!
//! Invariant: a container is never held up and never fails because of this. A text that cannot be written is
//! degraded until it is.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Receiver},
    thread,
};

use numa_placement::Holder;
use numa_topology::degraded::Degraded;

use super::placed::SharedLedger;
use enforcer_act::exposed::{ExposeError, ResourceDirs};

/// Handle to the resource files; clones share it. The default exposes nothing.
#[derive(Debug, Clone, Default)]
pub struct ResourceFiles(Option<Arc<Mutex<ResourceFileWriter>>>);

#[derive(Debug)]
struct ResourceFileWriter {
    exposed: ResourceDirs,
    /// Why the latest text could not be written.
    failure: Option<String>,
    /// Why a container's readiness could not be read at the latest look.
    deaf: Option<String>,
}

impl ResourceFiles {
    /// Exposes below this state directory.
    pub fn below(state_dir: &Path) -> Result<Self, ExposeError> {
        let exposed = ResourceDirs::open(state_dir)?;
        Ok(Self(Some(Arc::new(Mutex::new(ResourceFileWriter { exposed, failure: None, deaf: None })))))
    }

    /// Writes the file of a container that is about to be created. Returns the directory to mount.
    pub(super) fn begin(&self, placed: &SharedLedger, id: &str) -> Option<PathBuf> {
        let mut files = self.files()?;
        let (_, text) = placed.lock().exposed(std::iter::once(id)).pop()?;
        let made = files.exposed.begin(id, &text);
        let starting = placed.lock().held.starting(std::iter::once(id));
        if made.is_ok() && !starting.is_empty() {
            let listened = files.exposed.listen(id);
            files.note_heard(listened);
        }
        files.note(made)
    }

    /// Holders that have reported ready, of those that begin on slow memory. Starts listening to the others.
    pub(super) fn ready(&self, placed: &SharedLedger) -> BTreeSet<Holder> {
        let Some(mut files) = self.files() else { return BTreeSet::new() };
        let starting = placed.lock().held.starting(files.exposed.ids());
        let (ready, heard) = files.exposed.hear(&starting.keys().cloned().collect());
        files.note_heard(heard);
        starting.into_iter().filter(|(id, _)| ready.contains(id)).map(|(_, holder)| holder).collect()
    }

    /// Writes every container's current text, one container at a time, so that a creation waits for one file
    /// and not for all.
    pub(super) fn refresh(&self, placed: &SharedLedger) {
        let Some(files) = self.files() else { return };
        let mut texts = placed.lock().exposed(files.exposed.ids());
        texts.retain(|(id, text)| files.exposed.is_stale(id, text));
        drop(files);
        let mut outcome = Ok(());
        for (id, _) in texts {
            let Some(mut files) = self.files() else { return };
            // The grant may have changed meanwhile.
            let text = placed.lock().exposed(std::iter::once(id.as_str())).pop();
            if let Some((_, text)) = text {
                outcome = outcome.and(files.exposed.refresh(&id, &text));
            }
            drop(files);
            // Yields: a waiting thread would not get a lock that is retaken at once.
            thread::yield_now();
        }
        if let Some(mut files) = self.files() {
            files.note(outcome);
        }
    }

    /// Refreshes on each wake-up, until all senders are gone.
    pub(super) fn refresh_when_woken(&self, placed: &SharedLedger, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            self.refresh(placed);
        }
    }

    /// Whether resource files are enabled.
    pub(super) const fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Removes the file of a container that is gone.
    pub(super) fn end(&self, id: &str) {
        if let Some(mut files) = self.files() {
            let ended = files.exposed.end(id);
            files.note(ended);
        }
    }

    /// Keeps the files of these containers only.
    pub(super) fn only(&self, is_there: impl Fn(&str) -> bool) {
        if let Some(mut files) = self.files() {
            let gone = files.exposed.only(is_there);
            files.note(gone);
        }
    }

    /// Files that are not current, and containers that cannot report ready.
    pub(super) fn degraded(&self) -> Vec<Degraded> {
        let Some(files) = self.files() else { return Vec::new() };
        let unread = "containers see stale placement data or none";
        let unheard = "a container that begins on slow memory cannot report ready, or only to this daemon";
        let both =
            [("exposure", &files.failure, unread), ("cold-start-signal", &files.deaf, unheard)].into_iter();
        both.filter_map(|(source, why, effect)| Some(Degraded::new(source, why.clone()?, effect))).collect()
    }

    fn files(&self) -> Option<MutexGuard<'_, ResourceFileWriter>> {
        // Poisoning is ignored: every text is replaced by a rename.
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResourceFileWriter {
    fn note<T>(&mut self, outcome: Result<T, ExposeError>) -> Option<T> {
        let failure = outcome.as_ref().err().map(ToString::to_string);
        if let Some(failure) = failure.as_ref().filter(|failure| self.failure.as_ref() != Some(failure)) {
            tracing::warn!("{failure}");
        }
        self.failure = failure;
        outcome.ok()
    }

    fn note_heard(&mut self, outcome: Result<(), ExposeError>) {
        let deaf = outcome.err().map(|error| error.to_string());
        if let Some(deaf) = deaf.as_ref().filter(|deaf| self.deaf.as_ref() != Some(deaf)) {
            tracing::warn!("{deaf}");
        }
        self.deaf = deaf;
    }
}
