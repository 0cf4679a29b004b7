//! Looks at the kubelet again and again, on a thread of its own.
//!
//! A changed state file is seen within [`LOOK`]; the first file, and the socket, within [`LOOK_FOR_ONE`]. The
//! kubelet replaces files as a whole. The socket is asked after a change, and at least every [`ASK`] if there
//! is a kubelet. Readers take the latest look and never wait.

use std::{
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::policy::KubeletSettings;

use enforcer_host::HostRoot;

use super::{KubeletSnapshot, observe::observed_files, read_snapshot, root};

/// Interval of checks for changed files: one `stat` each.
const LOOK: Duration = Duration::from_millis(500);
/// The same while there are none, as on a node without a kubelet.
const LOOK_FOR_ONE: Duration = Duration::from_secs(10);
/// Longest time between two questions to the socket.
const ASK: Duration = Duration::from_secs(10);
/// Time between two searches for the kubelet's directory while its files are not in the expected one.
const SEARCH: Duration = Duration::from_mins(1);

/// The latest look; clones share it.
#[derive(Debug, Clone, Default)]
pub struct KubeletWatch(Arc<Mutex<Arc<KubeletSnapshot>>>);

impl KubeletWatch {
    /// Looks once.
    pub fn first(settings: &KubeletSettings) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(read_snapshot(settings)))))
    }

    /// Looks until the last clone of the watch is gone: work for a thread of its own. `None` if the settings
    /// disable it.
    pub fn keep_up(&self, settings: KubeletSettings) -> Option<impl FnOnce() + Send + 'static> {
        let latest = Arc::downgrade(&self.0);
        settings.enabled.then_some(move || follow(&latest, &settings))
    }

    /// What was seen last.
    pub fn latest(&self) -> Arc<KubeletSnapshot> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn follow(latest: &Weak<Mutex<Arc<KubeletSnapshot>>>, settings: &KubeletSettings) {
    // Changes since the first look are unknown, so the thread's first look reads everything.
    let mut last = None;
    let mut asked = Instant::now();
    let proc = HostRoot::live().proc;
    let (mut found, mut searched) = (root::of_running(settings, &proc), Instant::now());
    while let Some(latest) = latest.upgrade() {
        let now = FileStamps::read(&found);
        let is_there = now.is_there();
        if !is_there && searched.elapsed() >= SEARCH {
            (found, searched) = (root::of_running(settings, &proc), Instant::now());
        }
        if last != Some(now) || (is_there && asked.elapsed() >= ASK) {
            (last, asked) = (Some(now), Instant::now());
            let seen = Arc::new(read_snapshot(settings));
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
        drop(latest);
        thread::sleep(if is_there { LOOK } else { LOOK_FOR_ONE });
    }
}

/// Inode, time and size of what the kubelet writes, and its socket; a replaced file has another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamps([Option<(u64, i64, i64, u64)>; 4]);

impl FileStamps {
    /// Those of now, by one `stat` each.
    pub fn read(settings: &KubeletSettings) -> Self {
        let [cpus, memory, devices] = observed_files(settings);
        Self([&cpus, &memory, &devices, &settings.podresources].map(|path| {
            let found = path.metadata().ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
        }))
    }

    fn is_there(self) -> bool {
        self.0.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::{
        super::{CPU_STATE, MEMORY_STATE},
        *,
    };

    #[test]
    fn each_file_and_the_socket_is_noticed_when_it_comes_and_when_it_is_another() {
        let dir = tempfile::TempDir::new().unwrap();
        let podresources = dir.path().join("socket");
        let settings = KubeletSettings {
            root_dir: dir.path().to_owned(),
            podresources: podresources.clone(),
            ..KubeletSettings::default()
        };
        let mut before = FileStamps::read(&settings);
        assert!(!before.is_there(), "{before:?}");
        let mut differs = |what: &str| {
            let now = FileStamps::read(&settings);
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
