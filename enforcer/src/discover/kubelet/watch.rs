//! Looks at the kubelet again and again, on a thread of its own.
//!
//! A state file that has changed is seen within [`LOOK`], the first one within [`LOOK_FOR_ONE`], since the kubelet replaces it as a whole; the socket is
//! asked when one has, and in any case every [`ASK`]. Whoever wants to know takes the latest look and waits for
//! nothing.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::policy::KubeletSettings;

use super::{CPU_STATE, MEMORY_STATE, Seen, look};

/// Time between two looks at whether the files have changed: one `stat` each.
const LOOK: Duration = Duration::from_millis(500);
/// The same while there are none, as where no kubelet is.
const LOOK_FOR_ONE: Duration = Duration::from_secs(10);
/// Longest time between two questions to the socket.
const ASK: Duration = Duration::from_secs(10);

/// The latest look; clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Arc<Seen>>>);

impl Watch {
    /// Looks once.
    pub fn first(settings: &KubeletSettings) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(look(settings)))))
    }

    /// Goes on looking on a thread, until nobody can ask for the latest any longer.
    pub fn keep_up(&self, settings: KubeletSettings) -> io::Result<()> {
        if !settings.enabled {
            return Ok(());
        }
        let latest = Arc::downgrade(&self.0);
        thread::Builder::new().name("kubelet".into()).spawn(move || follow(&latest, &settings))?;
        Ok(())
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
    while let Some(latest) = latest.upgrade() {
        let now = stamps(&settings.root_dir);
        if last != Some(now) || asked.elapsed() >= ASK {
            (last, asked) = (Some(now), Instant::now());
            let seen = Arc::new(look(settings));
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
        drop(latest);
        thread::sleep(if now.iter().any(Option::is_some) { LOOK } else { LOOK_FOR_ONE });
    }
}

/// Which file it is, and when it was written: another one is another inode.
fn stamps(root_dir: &Path) -> [Option<(u64, i64, i64, u64)>; 2] {
    [CPU_STATE, MEMORY_STATE].map(|name| {
        let found = root_dir.join(name).metadata().ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
    })
}
