//! Tells that somebody has come to a cgroup that may be declared, before the next turn is due.
//!
//! The kernel tells by inotify of each mkdir(2) and rmdir(2) in a directory, and those of cgroups are no
//! exception (`vfs_mkdir`, `vfs_rmdir` in `fs/namei.c`). The directory of a removed cgroup stays in memory
//! for as long as it is watched, so it is let go as soon as its parent tells of it.
//!
//! A cgroup is made empty, and may be empty for long. On cgroup v2 the kernel tells when somebody comes to
//! it, as a change of `cgroup.events` (`cgroup_update_populated` in `kernel/cgroup/cgroup.c`), which is
//! watched of those of interest. On v1, and where that cannot be watched, those that were made since are
//! looked into for a while.
//!
//! Nothing depends on it: what is not told, because there are too many cgroups, too few watches or a storm of
//! events, is found by the next turn as ever.

use std::{
    collections::BTreeMap,
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use enforcer_core::workload::CgroupPath;
use rustix::fs::{
    FileType,
    inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
};

use crate::host::{cgroup::ControllerRoot, cgroup_tree::vanished, read_dir, read_text};

/// Most directories that are watched: the kernel keeps about a kilobyte for each.
const MOST_WATCHED: usize = 8_192;
/// Most events that are taken at a time; the rest is taken at the next.
const MOST_EVENTS: usize = 4_096;
/// Most cgroups that are remembered because nobody is in them yet.
const MOST_EMPTY: usize = 256;
/// Time after which one of these is forgotten: a turn has seen it many times.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// File of cgroup v2 that says whether anybody is in a cgroup, or below it.
const EVENTS: &str = "cgroup.events";
/// Room for the events of one read(2).
const BUFFER: usize = 16 * 1024;

/// Watches the directories of a hierarchy.
pub struct CgroupWatch {
    root: ControllerRoot,
    /// None until somebody asks, or where the kernel gives none.
    inotify: Option<OwnedFd>,
    failed: bool,
    by_number: BTreeMap<i32, CgroupPath>,
    by_path: BTreeMap<CgroupPath, i32>,
    /// Those of interest of which it is told when somebody comes, by both again.
    told_by_number: BTreeMap<i32, CgroupPath>,
    told_by_path: BTreeMap<CgroupPath, i32>,
    /// Made since, of interest, and without a process when it was looked at; it is not told of them.
    empty: BTreeMap<CgroupPath, Instant>,
}

/// What was told of a directory.
enum Told {
    Made(CgroupPath),
    Removed(CgroupPath),
    /// Somebody has come, or the last one has gone, or it was frozen.
    Changed(CgroupPath),
    /// The kernel had no room for what came then.
    Lost,
}

impl CgroupWatch {
    /// Watches nothing yet.
    pub fn new(root: ControllerRoot) -> Self {
        Self {
            root,
            inotify: None,
            failed: false,
            by_number: BTreeMap::new(),
            by_path: BTreeMap::new(),
            told_by_number: BTreeMap::new(),
            told_by_path: BTreeMap::new(),
            empty: BTreeMap::new(),
        }
    }

    /// Readable when there is something that [`Self::appeared`] has not taken; `None` before that was first
    /// asked.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(OwnedFd::as_fd)
    }

    /// Is there somebody of whom it is not told?
    pub fn must_be_asked(&self) -> bool {
        !self.empty.is_empty()
    }

    /// Other cgroups may be of interest from now on.
    pub fn begin_anew(&mut self) {
        *self = Self::new(self.root.clone());
    }

    /// Has somebody come to a cgroup that `may` be declared since this was asked before? Whoever is there
    /// when it is first asked is no news; where the kernel has lost some of it, that may be so.
    pub fn appeared(&mut self, may: &dyn Fn(&CgroupPath) -> bool) -> bool {
        if self.inotify.is_none() && !self.begin(may) {
            return false;
        }
        let mut came = false;
        for told in self.take() {
            match told {
                Told::Made(path) => came |= self.add(&path, may, true),
                Told::Removed(path) => self.remove(&path),
                Told::Changed(path) => came |= self.is_populated(&path),
                Told::Lost => {
                    self.begin_anew();
                    return self.begin(may);
                }
            }
        }
        self.somebody_came() | came
    }

    fn begin(&mut self, may: &dyn Fn(&CgroupPath) -> bool) -> bool {
        if self.failed {
            return false;
        }
        match inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
            Ok(inotify) => {
                self.inotify = Some(inotify);
                self.add(&CgroupPath::root(), may, false);
                true
            }
            Err(error) => {
                tracing::info!("new cgroups are found by the next turn: inotify_init1: {error}");
                self.failed = true;
                false
            }
        }
    }

    /// Watches a cgroup and all below it, and of those that `may` be declared also whether somebody is there.
    /// Returns whether somebody is in one of these, where they are `new`.
    fn add(&mut self, start: &CgroupPath, may: &dyn Fn(&CgroupPath) -> bool, new: bool) -> bool {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        let mut came = false;
        // Watched before its children are listed: whoever is made in between is told, or listed, or both.
        let mut pending = vec![start.clone()];
        while let Some(path) = pending.pop() {
            let Some(inotify) = &self.inotify else { return came };
            if self.by_path.len() < MOST_WATCHED
                && let Ok(number) = inotify::add_watch(inotify, self.root.dir(&path), flags)
            {
                self.by_number.insert(number, path.clone());
                self.by_path.insert(path.clone(), number);
                let entries = read_dir(&self.root.dir(&path)).into_iter().flatten();
                let dirs = entries.filter(|(_, kind)| *kind == FileType::Directory);
                pending.extend(dirs.filter_map(|(name, _)| Some(path.child(name.to_str()?))));
            }
            if !may(&path) {
                continue;
            }
            if self.listen(&path) {
                // Who came before it was watched is not told.
                came |= new && self.is_populated(&path);
            } else if new && self.empty.len() < MOST_EMPTY {
                self.empty.entry(path).or_insert_with(Instant::now);
            }
        }
        came
    }

    /// Has it told when somebody comes to a cgroup; false where it is not.
    fn listen(&mut self, path: &CgroupPath) -> bool {
        let Some(inotify) = self.inotify.as_ref().filter(|_| self.root.v2) else { return false };
        if self.told_by_path.contains_key(path) {
            return true;
        }
        let file = self.root.dir(path).join(EVENTS);
        let flags = WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW;
        let room = self.told_by_path.len() < MOST_WATCHED;
        let Some(Ok(number)) = room.then(|| inotify::add_watch(inotify, file, flags)) else { return false };
        self.told_by_number.insert(number, path.clone());
        self.told_by_path.insert(path.clone(), number);
        true
    }

    fn is_populated(&self, path: &CgroupPath) -> bool {
        let text = read_text(&self.root.dir(path).join(EVENTS));
        text.is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
    }

    fn remove(&mut self, path: &CgroupPath) {
        self.empty.remove(path);
        let Some(inotify) = &self.inotify else { return };
        let dir = self.by_path.remove(path).inspect(|number| drop(self.by_number.remove(number)));
        let file = self.told_by_path.remove(path).inspect(|number| drop(self.told_by_number.remove(number)));
        for number in dir.into_iter().chain(file) {
            // It fails where the watch has ended by itself.
            let _ended = inotify::remove_watch(inotify, number);
        }
    }

    /// What was told, in order.
    fn take(&self) -> Vec<Told> {
        let Some(inotify) = &self.inotify else { return Vec::new() };
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut events = Reader::new(inotify, &mut buffer);
        let mut told = Vec::new();
        // What is in the buffer is told once.
        while (told.len() < MOST_EVENTS || !events.is_buffer_empty())
            && let Ok(event) = events.next()
        {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told.push(Told::Lost);
                continue;
            }
            if let Some(path) = self.told_by_number.get(&event.wd()) {
                if event.events().contains(ReadFlags::MODIFY) {
                    told.push(Told::Changed(path.clone()));
                }
                continue;
            }
            let name = event.file_name().and_then(|name| name.to_str().ok());
            let path = self.by_number.get(&event.wd()).zip(name).map(|(parent, name)| parent.child(name));
            let Some(path) = path.filter(|_| event.events().contains(ReadFlags::ISDIR)) else { continue };
            if event.events().contains(ReadFlags::CREATE) {
                told.push(Told::Made(path));
            } else if event.events().contains(ReadFlags::DELETE) {
                told.push(Told::Removed(path));
            }
        }
        told
    }

    fn somebody_came(&mut self) -> bool {
        let Self { root, empty, .. } = self;
        let mut came = false;
        empty.retain(|path, since| match read_text(&root.dir(path).join(root.files().procs)) {
            Ok(text) if !text.trim().is_empty() => {
                came = true;
                false
            }
            Err(error) if vanished(&error.cause) => false,
            _ => since.elapsed() < FORGOTTEN_AFTER,
        });
        came
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    struct Rig {
        dir: tempfile::TempDir,
        watch: CgroupWatch,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = ControllerRoot { path: dir.path().into(), v2: true, mounted_cgroup: "/".into() };
            let mut rig = Self { dir, watch: CgroupWatch::new(root) };
            rig.make("jobs/old");
            rig.enter("jobs/old", "1\n");
            assert!(!rig.appeared(), "what was there before is no news");
            rig
        }

        fn make(&self, path: &str) {
            fs::create_dir_all(self.dir.path().join(path)).unwrap();
        }

        fn enter(&self, path: &str, processes: &str) {
            fs::write(self.dir.path().join(path).join("cgroup.procs"), processes).unwrap();
        }

        fn appeared(&mut self) -> bool {
            self.watch.appeared(&|path| path.as_str().starts_with("/jobs/"))
        }
    }

    #[test]
    fn a_cgroup_of_interest_is_told_once_when_somebody_is_in_it() {
        let mut rig = Rig::new();
        rig.make("jobs/new");
        rig.enter("jobs/new", "");
        assert!(!rig.appeared(), "nobody is in it yet");
        rig.enter("jobs/new", "7\n");
        assert!(rig.appeared());
        assert!(!rig.appeared());
        rig.make("other/new");
        rig.enter("other/new", "7\n");
        assert!(!rig.appeared(), "it is of no interest");
    }

    #[test]
    fn whole_branches_that_come_and_go_are_followed() {
        let mut rig = Rig::new();
        rig.make("jobs/a/b/c");
        rig.enter("jobs/a/b/c", "7\n");
        assert!(rig.appeared(), "it was made before its parent was watched");
        rig.make("jobs/a/b/d");
        rig.enter("jobs/a/b/d", "8\n");
        assert!(rig.appeared());
        let watched = rig.watch.by_path.len();
        fs::remove_dir_all(rig.dir.path().join("jobs/a")).unwrap();
        assert!(!rig.appeared());
        assert_eq!((rig.watch.by_path.len(), rig.watch.by_number.len()), (watched - 4, watched - 4));
        assert!(rig.watch.empty.is_empty());
    }

    impl Rig {
        fn says(&self, path: &str, populated: bool) {
            let text = format!("populated {}\nfrozen 0\n", u8::from(populated));
            fs::write(self.dir.path().join(path).join(EVENTS), text).unwrap();
        }

        fn is_told(&self) -> bool {
            let mut fds = [PollFd::new(self.watch.inotify.as_ref().unwrap(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
        }
    }

    #[test]
    fn who_comes_to_a_cgroup_that_was_empty_is_told_each_time() {
        let mut rig = Rig::new();
        rig.make("jobs/empty");
        rig.make("other/empty");
        rig.says("jobs/empty", false);
        rig.says("other/empty", false);
        rig.watch.begin_anew();
        assert!(rig.watch.descriptor().is_none());
        assert!(!rig.appeared() && !rig.is_told());
        for time in 1..=2 {
            rig.says("other/empty", true);
            assert!(!rig.is_told() && !rig.appeared(), "it is of no interest");
            rig.says("jobs/empty", true);
            assert!(rig.is_told() && rig.appeared(), "time {time}");
            assert!(!rig.is_told() && !rig.appeared(), "time {time}");
            rig.says("jobs/empty", false);
            assert!(!rig.appeared(), "the last one has gone, time {time}");
        }
        rig.watch.begin_anew();
        rig.says("jobs/empty", true);
        assert!(!rig.appeared(), "who is there at the beginning is no news");
        fs::remove_dir_all(rig.dir.path().join("jobs/empty")).unwrap();
        assert!(!rig.appeared());
        assert_eq!((rig.watch.told_by_path.len(), rig.watch.told_by_number.len()), (0, 0));
    }

    #[test]
    fn of_more_than_is_taken_at_a_time_nothing_is_lost() {
        let mut rig = Rig::new();
        rig.make("jobs/many");
        assert!(!rig.appeared());
        let all = MOST_EVENTS + 500;
        // No directory, so that what is taken does not end with a buffer.
        rig.enter("jobs/many", "");
        for number in 0..all {
            rig.make(&format!("jobs/many/{number:05}"));
        }
        while rig.is_told() {
            assert!(!rig.appeared());
        }
        let told = rig.watch.by_path.keys().filter(|path| path.as_str().starts_with("/jobs/many/"));
        assert_eq!(told.count(), all);
    }

    #[test]
    fn who_came_before_its_cgroup_was_watched_is_told() {
        let mut rig = Rig::new();
        rig.make("jobs/made");
        rig.says("jobs/made", true);
        assert!(rig.appeared());
        assert!(rig.watch.empty.is_empty(), "nothing is looked into any longer");
    }

    #[test]
    fn no_more_are_remembered_than_are_of_use() {
        let mut rig = Rig::new();
        for number in 0..MOST_EMPTY + 10 {
            rig.make(&format!("jobs/new{number}"));
        }
        assert!(!rig.appeared());
        assert!(rig.watch.empty.len() <= MOST_EMPTY);
    }
}
