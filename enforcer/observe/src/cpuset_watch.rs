//! Reports writes to cpusets that are ours, between two samples.
//!
//! The kernel reports each write(2) to a file by inotify (`fsnotify_modify` in `vfs_write`,
//! `fs/read_write.c`), also for files of cgroups. It does not report its own changes, as when a parent is
//! narrowed: the next sample finds these. A file that cannot be watched, because
//! `fs.inotify.max_user_watches` is used up, is read every second.
//!
//! A removed cgroup causes no event either, and its files stay in memory while they are watched:
//! [`CpusetWatch::follow`] drops it. A new cgroup counts as written once, because writes since the latest
//! sample are unknown.
//!
//! The writer is unknown here: the daemon's own writes are reported as well.

use std::{
    collections::BTreeMap,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use enforcer_core::workload::CgroupPath;
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};

use enforcer_host::{HostPath, cgroup::CgroupLayout};

/// Interval of reads of a file that cannot be watched.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Room for the events of one read(2): several hundred, since those of files have no name.
const BUFFER: usize = 8 * 1024;

/// Cgroups with cpusets that are ours, with the kernel's id of each.
pub type KeptCgroups = BTreeMap<CgroupPath, Option<u64>>;

/// Watches cpuset files.
pub struct CpusetWatch {
    layout: CgroupLayout,
    inotify: io::Result<OwnedFd>,
    kept: BTreeMap<(CgroupPath, Option<u64>), Vec<CpusetFileWatch>>,
    read: Instant,
    /// A new cgroup is watched.
    new: bool,
}

enum CpusetFileWatch {
    /// Watched; its events have this number.
    Told(i32),
    /// Polled. No text if it is unreadable: it is gone, or the sample will report it.
    Read { path: HostPath, text: Option<String> },
}

impl CpusetWatch {
    /// A watch without files yet.
    pub fn new(layout: CgroupLayout) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(io::Error::from);
        if let Err(error) = &inotify {
            tracing::info!("writes to cpusets are looked for once a second: inotify_init1: {error}");
        }
        Self { layout, inotify, kept: BTreeMap::new(), read: Instant::now(), new: false }
    }

    /// Watches the cpusets of these cgroups only.
    pub fn follow(&mut self, cgroups: &KeptCgroups) {
        let Self { layout, inotify, kept, new, .. } = self;
        let is_kept = |cgroup: &CgroupPath, id: &Option<u64>| cgroups.get(cgroup) == Some(id);
        for ((cgroup, id), watches) in kept.iter() {
            if !is_kept(cgroup, id) {
                for watch in watches {
                    watch.end(inotify.as_ref());
                }
            }
        }
        kept.retain(|(cgroup, id), _| is_kept(cgroup, id));
        for (cgroup, id) in cgroups {
            kept.entry((cgroup.clone(), *id)).or_insert_with(|| {
                *new = true;
                let (dir, files) = (layout.cpuset.dir(cgroup), layout.cpuset.files());
                [files.cpus, files.mems]
                    .map(|file| CpusetFileWatch::begin(inotify.as_ref(), dir.join(file)))
                    .into()
            });
        }
    }

    /// Readable when there are events for [`Self::written`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().ok().map(OwnedFd::as_fd)
    }

    /// Whether a file must be polled.
    pub fn needs_polling(&self) -> bool {
        self.kept.values().flatten().any(|watch| matches!(watch, CpusetFileWatch::Read { .. }))
    }

    /// Whether a cpuset was written since the last call.
    pub fn written(&mut self) -> bool {
        let told = self.inotify.as_ref().is_ok_and(take_events) | std::mem::take(&mut self.new);
        let due = self.read.elapsed() >= READ_EVERY;
        if due {
            self.read = Instant::now();
        }
        // No short circuit, so that each write is reported once.
        let watches = self.kept.values_mut().flatten().filter(|_| due);
        watches.fold(told, |any, watch| watch.has_another_text() | any)
    }
}

/// Takes all events, whichever file they are of.
fn take_events(inotify: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut events = Reader::new(inotify, &mut buffer);
    let mut any = false;
    // Ends when the queue is empty, which has a limit in a storm, too.
    while let Ok(event) = events.next() {
        // The end of a watch is an event as well.
        any |= !event.events().contains(ReadFlags::IGNORED);
    }
    any
}

impl CpusetFileWatch {
    fn begin(inotify: Result<&OwnedFd, &io::Error>, path: HostPath) -> Self {
        let told = inotify.ok().map(|inotify| {
            inotify::add_watch(inotify, path.as_path(), WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW)
        });
        match told {
            Some(Ok(number)) => Self::Told(number),
            other => {
                if let Some(Err(error)) = other.filter(|told| *told != Err(Errno::NOENT)) {
                    tracing::debug!("reading {} once a second: inotify_add_watch: {error}", path.display());
                }
                let text = path.read_text().ok();
                Self::Read { path, text }
            }
        }
    }

    fn end(&self, inotify: Result<&OwnedFd, &io::Error>) {
        if let (Self::Told(number), Ok(inotify)) = (self, inotify) {
            // It fails if the watch has ended by itself.
            let _ended = inotify::remove_watch(inotify, *number);
        }
    }

    fn has_another_text(&mut self) -> bool {
        let Self::Read { path, text } = self else { return false };
        let now = path.read_text().ok();
        let differs = now != *text;
        *text = now;
        differs
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use enforcer_host::{
        HostRoot,
        cgroup::{CgroupVersion, ControllerRoot},
    };

    struct Rig {
        dir: tempfile::TempDir,
        watch: CpusetWatch,
    }

    impl Rig {
        fn new(inotify: bool) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let cpuset = ControllerRoot {
                path: HostRoot::live().at(dir.path()),
                v2: true,
                mounted_cgroup: "/".into(),
            };
            let layout = CgroupLayout {
                version: CgroupVersion::V2,
                cpuset,
                memory: None,
                hugetlb: None,
                systemd: None,
                unified: None,
            };
            let mut watch = CpusetWatch::new(layout);
            if !inotify {
                watch.inotify = Err(io::Error::from_raw_os_error(24));
            }
            let rig = Self { dir, watch };
            for cgroup in ["a", "b"] {
                fs::create_dir(rig.dir.path().join(cgroup)).unwrap();
                rig.write(cgroup, "cpuset.cpus", "0-3\n");
                rig.write(cgroup, "cpuset.mems", "0\n");
            }
            rig
        }

        fn write(&self, cgroup: &str, file: &str, text: &str) {
            fs::write(self.dir.path().join(cgroup).join(file), text).unwrap();
        }

        /// Asks a second later.
        fn written(&mut self) -> bool {
            self.watch.read -= READ_EVERY;
            self.watch.written()
        }
    }

    fn kept(cgroups: &[(&str, u64)]) -> KeptCgroups {
        cgroups.iter().map(|(path, id)| (CgroupPath::new(path), Some(*id))).collect()
    }

    #[test]
    fn a_write_to_what_is_kept_is_told_once_and_others_are_not() {
        for inotify in [true, false] {
            let mut rig = Rig::new(inotify);
            rig.watch.follow(&kept(&[("/a", 1)]));
            assert!(rig.written(), "it is new; inotify: {inotify}");
            assert!(!rig.written(), "inotify: {inotify}");
            assert_eq!((rig.watch.descriptor().is_some(), rig.watch.needs_polling()), (inotify, !inotify));
            for (file, text) in [("cpuset.cpus", "1\n"), ("cpuset.mems", "1\n")] {
                rig.write("a", file, text);
                assert!(rig.written(), "{file}, inotify: {inotify}");
                assert!(!rig.written(), "{file}, inotify: {inotify}");
            }
            rig.write("b", "cpuset.cpus", "1\n");
            assert!(!rig.written(), "inotify: {inotify}");
            rig.watch.follow(&kept(&[("/b", 2)]));
            assert!(rig.written(), "it is new; inotify: {inotify}");
            rig.write("a", "cpuset.cpus", "2\n");
            assert!(!rig.written(), "no longer kept; inotify: {inotify}");
            rig.write("b", "cpuset.cpus", "2\n");
            assert!(rig.written(), "inotify: {inotify}");
        }
    }

    #[test]
    fn a_cgroup_that_was_made_again_is_watched_anew() {
        for inotify in [true, false] {
            let mut rig = Rig::new(inotify);
            rig.watch.follow(&kept(&[("/a", 1)]));
            fs::rename(rig.dir.path().join("a"), rig.dir.path().join("old")).unwrap();
            fs::create_dir(rig.dir.path().join("a")).unwrap();
            rig.write("a", "cpuset.cpus", "0-3\n");
            rig.written();
            rig.watch.follow(&kept(&[("/a", 2)]));
            rig.written();
            rig.write("old", "cpuset.cpus", "1\n");
            assert!(!rig.written(), "inotify: {inotify}");
            rig.write("a", "cpuset.cpus", "1\n");
            assert!(rig.written(), "inotify: {inotify}");
        }
    }

    #[test]
    fn files_that_cannot_be_watched_are_read_once_a_second() {
        let mut rig = Rig::new(false);
        rig.watch.follow(&kept(&[("/a", 1)]));
        rig.written();
        rig.write("a", "cpuset.cpus", "1\n");
        rig.watch.read = Instant::now();
        assert!(!rig.watch.written(), "not yet");
        assert!(rig.written());
    }

    #[test]
    fn the_kernels_own_files_are_told() {
        let Ok(layout) = CgroupLayout::read(&HostRoot::live()) else { return };
        let name = format!("numa-enforcer-test-watch-{}", std::process::id());
        let dir = layout.cpuset.path.as_path().join(&name);
        if fs::create_dir(&dir).is_err() || !dir.join("cpuset.mems").exists() {
            let _ = fs::remove_dir(&dir);
            println!("skipped: cannot make a cgroup with a cpuset (not root?)");
            return;
        }
        let mut watch = CpusetWatch::new(layout);
        watch.follow(&kept(&[(&format!("/{name}"), 1)]));
        let all_told = watch.kept.values().flatten().all(|watch| matches!(watch, CpusetFileWatch::Told(_)));
        watch.written();
        let before = watch.written();
        let written = fs::write(dir.join("cpuset.mems"), "0");
        let told = watch.written();
        fs::remove_dir(&dir).unwrap();
        written.unwrap();
        assert!(all_told && !before && told);
    }
}
