//! Looks at the kubelet again and again, on a thread of its own.
//!
//! A state file that has changed is seen within [`LOOK`], since the kubelet replaces it as a whole; the first
//! one, and the socket, within [`LOOK_FOR_ONE`]. The socket is asked when one has changed, and where there is
//! a kubelet at least every [`ASK`]. Whoever wants to know takes the latest look and waits for nothing.

use std::{
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::policy::KubeletSettings;

use super::{CPU_STATE, MEMORY_STATE, PROC, Seen, look, root};

/// Time between two looks at whether the files have changed: one `stat` each.
const LOOK: Duration = Duration::from_millis(500);
/// The same while there are none, as where no kubelet is.
const LOOK_FOR_ONE: Duration = Duration::from_secs(10);
/// Longest time between two questions to the socket.
const ASK: Duration = Duration::from_secs(10);
/// Time between two searches for the directory of a kubelet whose files are not where they are expected.
const SEARCH: Duration = Duration::from_mins(1);

/// The latest look; clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Arc<Seen>>>);

impl Watch {
    /// Looks once.
    pub fn first(settings: &KubeletSettings) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(look(settings)))))
    }

    /// Goes on looking until the last clone of the watch is gone: work for a thread of its own. `None` where
    /// the settings want no look.
    pub fn keep_up(&self, settings: KubeletSettings) -> Option<impl FnOnce() + Send + 'static> {
        let latest = Arc::downgrade(&self.0);
        settings.enabled.then_some(move || follow(&latest, &settings))
    }

    /// What was seen last.
    pub fn latest(&self) -> Arc<Seen> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn follow(latest: &Weak<Mutex<Arc<Seen>>>, settings: &KubeletSettings) {
    // What has changed since the first look is not known, so the first one of the thread is no different.
    let mut last = None;
    let mut asked = Instant::now();
    let (mut found, mut searched) = (root::of_running(settings, Path::new(PROC)), Instant::now());
    while let Some(latest) = latest.upgrade() {
        let now = stamps(&found);
        let is_there = now.iter().any(Option::is_some);
        if !is_there && searched.elapsed() >= SEARCH {
            (found, searched) = (root::of_running(settings, Path::new(PROC)), Instant::now());
        }
        if last != Some(now) || (is_there && asked.elapsed() >= ASK) {
            (last, asked) = (Some(now), Instant::now());
            let seen = Arc::new(look(settings));
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
        drop(latest);
        thread::sleep(if is_there { LOOK } else { LOOK_FOR_ONE });
    }
}

/// Of both state files and of the socket: which file it is, and when it was written; another one is another
/// inode.
fn stamps(settings: &KubeletSettings) -> [Option<(u64, i64, i64, u64)>; 3] {
    let [cpus, memory] = [CPU_STATE, MEMORY_STATE].map(|name| settings.root_dir.join(name));
    [&cpus, &memory, &settings.podresources].map(|path| {
        let found = path.metadata().ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn each_file_and_the_socket_is_noticed_when_it_comes_and_when_it_is_another() {
        let dir = tempfile::TempDir::new().unwrap();
        let podresources = dir.path().join("socket");
        let settings = KubeletSettings {
            root_dir: dir.path().to_owned(),
            podresources: podresources.clone(),
            ..KubeletSettings::default()
        };
        let mut before = stamps(&settings);
        assert_eq!(before, [None; 3]);
        let mut differs = |what: &str| {
            let now = stamps(&settings);
            assert_ne!(now, before, "{what}");
            before = now;
        };
        fs::write(dir.path().join(CPU_STATE), "one").unwrap();
        differs(CPU_STATE);
        fs::write(dir.path().join(MEMORY_STATE), "one").unwrap();
        differs(MEMORY_STATE);
        let first = UnixListener::bind(&podresources).unwrap();
        differs("a kubelet that has no files");
        fs::write(dir.path().join("new"), "another").unwrap();
        fs::rename(dir.path().join("new"), dir.path().join(CPU_STATE)).unwrap();
        differs("another file");
        drop(first);
        fs::remove_file(&podresources).unwrap();
        differs("it went");
    }
}
