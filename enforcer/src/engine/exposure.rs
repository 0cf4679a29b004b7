//! Keeps what containers read of their own place true, and hears what those say that begin on slow memory.
//!
//! What a container is given changes with answers to the runtime and with turns; after each, whoever reads
//! something else than what counts now gets the new text. It is taken under the lock of [`Placed`] and
//! written outside of it, behind a lock of its own, so that texts of two threads cannot overtake each other.
//!
//! Must never hold up or fail a container: what cannot be written is degraded until it could be.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Receiver},
    thread,
};

use enforcer_core::{degraded::Degraded, place::Holder};

use super::placed::Placed;
use enforcer_act::exposed::{ExposeError, Exposed};

/// A handle to what containers read; clones refer to the same. The default exposes nothing.
#[derive(Debug, Clone, Default)]
pub struct Exposure(Option<Arc<Mutex<Files>>>);

#[derive(Debug)]
struct Files {
    exposed: Exposed,
    /// Why the latest change could not be written.
    failure: Option<String>,
    /// Why somebody could not be heard at the latest look.
    deaf: Option<String>,
}

impl Exposure {
    /// Exposes below this state directory.
    pub fn below(state_dir: &Path) -> Result<Self, ExposeError> {
        let exposed = Exposed::open(state_dir)?;
        Ok(Self(Some(Arc::new(Mutex::new(Files { exposed, failure: None, deaf: None })))))
    }

    /// Of a container that is about to be made and has its place: the directory that is to be mounted.
    pub(super) fn begin(&self, placed: &Placed, id: &str) -> Option<PathBuf> {
        let mut files = self.files()?;
        let (_, text) = placed.lock().exposed(std::iter::once(id)).pop()?;
        let made = files.exposed.begin(id, &text);
        let starting = placed.lock().starting(std::iter::once(id));
        if made.is_ok() && !starting.is_empty() {
            let listened = files.exposed.listen(id);
            files.note_heard(listened);
        }
        files.note(made)
    }

    /// Who of those that begin on slow memory has said that it is ready. The others are listened to from now
    /// on.
    pub(super) fn ready(&self, placed: &Placed) -> BTreeSet<Holder> {
        let Some(mut files) = self.files() else { return BTreeSet::new() };
        let starting = placed.lock().starting(files.exposed.ids());
        let (ready, heard) = files.exposed.hear(&starting.keys().cloned().collect());
        files.note_heard(heard);
        starting.into_iter().filter(|(id, _)| ready.contains(id)).map(|(_, holder)| holder).collect()
    }

    /// Lets every container read what it has now. One at a time, so that who is made meanwhile waits for one
    /// file and not for those of all.
    pub(super) fn refresh(&self, placed: &Placed) {
        let Some(files) = self.files() else { return };
        let mut texts = placed.lock().exposed(files.exposed.ids());
        texts.retain(|(id, text)| files.exposed.is_stale(id, text));
        drop(files);
        let mut outcome = Ok(());
        for (id, _) in texts {
            let Some(mut files) = self.files() else { return };
            // It may be another one by now.
            let text = placed.lock().exposed(std::iter::once(id.as_str())).pop();
            if let Some((_, text)) = text {
                outcome = outcome.and(files.exposed.refresh(&id, &text));
            }
            drop(files);
            // Whoever waits would not get the lock of a thread that takes it again at once.
            thread::yield_now();
        }
        if let Some(mut files) = self.files() {
            files.note(outcome);
        }
    }

    /// Refreshes whenever it is woken, until nobody is left who could.
    pub(super) fn refresh_when_woken(&self, placed: &Placed, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            self.refresh(placed);
        }
    }

    /// Is anything exposed at all?
    pub(super) const fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// A container is gone.
    pub(super) fn end(&self, id: &str) {
        if let Some(mut files) = self.files() {
            let ended = files.exposed.end(id);
            files.note(ended);
        }
    }

    /// Only these containers are there.
    pub(super) fn only(&self, is_there: impl Fn(&str) -> bool) {
        if let Some(mut files) = self.files() {
            let gone = files.exposed.only(is_there);
            files.note(gone);
        }
    }

    /// What containers do not read, and who is not heard.
    pub(super) fn degraded(&self) -> Vec<Degraded> {
        let Some(files) = self.files() else { return Vec::new() };
        let unread = "containers read of their place what it was, or nothing";
        let unheard = "a container that begins on slow memory cannot say that it is ready, or is believed only by this daemon";
        let both =
            [("exposure", &files.failure, unread), ("cold-start-signal", &files.deaf, unheard)].into_iter();
        both.filter_map(|(source, why, effect)| Some(Degraded::new(source, why.clone()?, effect))).collect()
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

    fn note_heard(&mut self, outcome: Result<(), ExposeError>) {
        let deaf = outcome.err().map(|error| error.to_string());
        if let Some(deaf) = deaf.as_ref().filter(|deaf| self.deaf.as_ref() != Some(deaf)) {
            tracing::warn!("{deaf}");
        }
        self.deaf = deaf;
    }
}
