//! Reports a process in a cgroup that may be declared, before the next turn is due.
//!
//! The kernel reports by inotify each mkdir(2) and rmdir(2) in a directory, also of cgroups (`vfs_mkdir`,
//! `vfs_rmdir` in `fs/namei.c`). A removed cgroup's directory stays in memory while it is watched, so the
//! watch ends as soon as the parent's event comes.
//!
//! A cgroup is created empty and may stay empty for long. On cgroup v2 the kernel reports its first process
//! as a change of `cgroup.events` (`cgroup_update_populated` in `kernel/cgroup/cgroup.c`), which is watched
//! for cgroups of interest. On v1, or without a watch, new cgroups are polled for a while.
//!
//! All processes of a user share the kernel's limit of watches, and the kubelet, runtimes and systemd are the
//! same user. A user that can create cgroups must exhaust neither theirs nor those of other subtrees. So a
//! directory is watched only if a cgroup of interest may be in it. All watches together take at most a part
//! of the limit ([`WatchLimit`]). Each subtree has a share: half of the watches at the top, and half of its
//! parent's share at each level. Shallow directories come first.
//!
//! Nothing depends on these events: the next turn finds whatever they miss because of too many cgroups, too
//! few watches or a storm of events. Subtrees without watches are degraded by name.

use std::{
    collections::{BTreeMap, VecDeque},
    iter,
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use enforcer_core::{policy::Interest, workload::CgroupPath};
use numa_topology::degraded::Degraded;
use rustix::{
    fs::{
        FileType,
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    },
    io::Errno,
};

use enforcer_host::{HostPath, HostRoot, cgroup::ControllerRoot, cgroup_tree::vanished};

/// Most watches in all: the kernel keeps about a kilobyte for each.
const MOST_WATCHED: usize = 8_192;
/// At most one part of this many of the kernel's limit is taken.
const PART: usize = 8;
/// Watches that every subtree may have, however deep it is.
const SMALLEST_SHARE: usize = 32;
/// Most subtrees that are named as left out.
const MOST_NAMED: usize = 8;
/// Most events taken at a time; the next call takes the rest.
const MOST_EVENTS: usize = 4_096;
/// Most empty cgroups that are remembered.
const MOST_EMPTY: usize = 256;
/// Time after which one of these is forgotten: turns have seen it many times.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// File of cgroup v2 that tells whether the cgroup or one below it has a process.
const EVENTS: &str = "cgroup.events";
/// Room for the events of one read(2).
const BUFFER: usize = 16 * 1024;

/// Limit of the watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimit {
    most: usize,
    /// `fs.inotify.max_user_watches`; `None` where it cannot be read.
    allowed: Option<usize>,
}

impl Default for WatchLimit {
    fn default() -> Self {
        Self { most: MOST_WATCHED, allowed: None }
    }
}

impl WatchLimit {
    /// A part of what the kernel of `host` allows a user.
    pub fn of(host: &HostRoot) -> Self {
        let text = host.proc.join("sys/fs/inotify/max_user_watches").read_text();
        Self::within(text.ok().and_then(|text| text.trim().parse().ok()))
    }

    fn within(allowed: Option<usize>) -> Self {
        // The least that kernels have by default is 8,192.
        Self { most: (allowed.unwrap_or(MOST_WATCHED) / PART).min(MOST_WATCHED), allowed }
    }

    /// Most watches in a subtree at this depth.
    fn share(self, depth: usize) -> usize {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        self.most.checked_shr(depth).unwrap_or(0).max(SMALLEST_SHARE).min(self.most)
    }
}

/// Watches the directories of a hierarchy.
pub struct CgroupWatch {
    root: ControllerRoot,
    limit: WatchLimit,
    /// Watches in each subtree.
    taken: BTreeMap<CgroupPath, usize>,
    /// Subtrees with an exhausted share.
    crowded: BTreeMap<CgroupPath, usize>,
    /// Why the kernel refused a further watch.
    refused: Option<Errno>,
    /// `None` before the first call, or if the kernel has no inotify.
    inotify: Option<OwnedFd>,
    failed: bool,
    by_number: BTreeMap<i32, CgroupPath>,
    by_path: BTreeMap<CgroupPath, i32>,
    /// Cgroups of interest with a watched `cgroup.events`, by number and by path.
    told_by_number: BTreeMap<i32, CgroupPath>,
    told_by_path: BTreeMap<CgroupPath, i32>,
    /// New cgroups of interest without a process and without a watch.
    empty: BTreeMap<CgroupPath, Instant>,
}

/// An event of a directory.
enum TreeEvent {
    Made(CgroupPath),
    Removed(CgroupPath),
    /// The cgroup gained its first process, lost its last one, or was frozen.
    Changed(CgroupPath),
    /// The kernel's queue overflowed.
    Lost,
}

impl CgroupWatch {
    /// A watch without directories yet.
    pub fn new(root: ControllerRoot, limit: WatchLimit) -> Self {
        Self {
            root,
            limit,
            taken: BTreeMap::new(),
            crowded: BTreeMap::new(),
            refused: None,
            inotify: None,
            failed: false,
            by_number: BTreeMap::new(),
            by_path: BTreeMap::new(),
            told_by_number: BTreeMap::new(),
            told_by_path: BTreeMap::new(),
            empty: BTreeMap::new(),
        }
    }

    /// Readable when there are events for [`Self::appeared`]; `None` before its first call.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(OwnedFd::as_fd)
    }

    /// Whether an empty cgroup must be polled.
    pub fn needs_polling(&self) -> bool {
        !self.empty.is_empty()
    }

    /// Starts over: other cgroups may be of interest now.
    pub fn restart_watches(&mut self) {
        *self = Self::new(self.root.clone(), self.limit);
    }

    /// Subtrees that are not watched, and why.
    pub fn degraded(&self) -> Vec<Degraded> {
        let effect = "what starts in it is placed by the next turn, and not at once";
        let most = self.limit.most;
        let allowed = self.limit.allowed.map_or_else(String::new, |allowed| {
            format!(", a part of fs.inotify.max_user_watches = {allowed}")
        });
        let crowded = self.crowded.iter().map(|(path, share)| {
            let reason = format!("its share of {share} inotify watches is used up: {most} in all{allowed}");
            Degraded::new(format!("cgroup-watch:{path}"), reason, effect)
        });
        let refused = self.refused.map(|error| {
            let reason = format!("inotify_add_watch: {error}; watches are counted by user{allowed}");
            Degraded::new("cgroup-watch", reason, effect)
        });
        crowded.chain(refused).collect()
    }

    /// Whether a process has come to a cgroup of interest since the last call. Processes at the first call do
    /// not count; after a lost event this may be a false alarm.
    pub fn appeared(&mut self, interest: &dyn Fn(&CgroupPath) -> Interest) -> bool {
        if self.inotify.is_none() && !self.begin(interest) {
            return false;
        }
        let mut came = false;
        for told in self.take() {
            match told {
                TreeEvent::Made(path) => came |= self.add(&path, interest, true),
                TreeEvent::Removed(path) => self.remove(&path),
                TreeEvent::Changed(path) => came |= self.is_populated(&path),
                TreeEvent::Lost => {
                    self.restart_watches();
                    return self.begin(interest);
                }
            }
        }
        self.poll_empty() | came
    }

    fn begin(&mut self, interest: &dyn Fn(&CgroupPath) -> Interest) -> bool {
        if self.failed {
            return false;
        }
        match inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
            Ok(inotify) => {
                self.inotify = Some(inotify);
                self.add(&CgroupPath::root(), interest, false);
                true
            }
            Err(error) => {
                tracing::info!("new cgroups are found by the next turn: inotify_init1: {error}");
                self.failed = true;
                false
            }
        }
    }

    /// Watches a cgroup and all below it where one of `interest` may be, and those of interest for their
    /// first process. Returns whether a `new` one has a process already.
    fn add(&mut self, start: &CgroupPath, interest: &dyn Fn(&CgroupPath) -> Interest, new: bool) -> bool {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        let mut came = false;
        // Watch first, then list the children: one created in between is reported or listed, or both.
        let mut pending = VecDeque::from([start.clone()]);
        while let Some(path) = pending.pop_front() {
            let Interest { itself, below } = interest(&path);
            if below && let Some(number) = self.watch(&path, &self.root.dir(&path), flags) {
                if let Some(before) = self.by_path.insert(path.clone(), number) {
                    self.by_number.remove(&before);
                    self.give_back(&path);
                }
                self.by_number.insert(number, path.clone());
                let entries = self.root.dir(&path).read_dir().into_iter().flatten();
                let dirs = entries.filter(|(_, kind)| *kind == FileType::Directory);
                pending.extend(dirs.filter_map(|(name, _)| Some(path.child(name.to_str()?))));
            }
            if !itself {
                continue;
            }
            if self.listen(&path) {
                // A process that came before the watch causes no event.
                came |= new && self.is_populated(&path);
            } else if new && self.empty.len() < MOST_EMPTY {
                self.empty.entry(path).or_insert_with(Instant::now);
            }
        }
        came
    }

    /// Watches `file` of a cgroup, if its subtrees have a watch left.
    fn watch(&mut self, cgroup: &CgroupPath, file: &HostPath, flags: WatchFlags) -> Option<i32> {
        let full = subtrees(cgroup)
            .map(|path| (self.limit.share(path.depth()), path))
            .find(|(share, path)| self.taken.get(path).is_some_and(|taken| taken >= share));
        if let Some((share, path)) = full {
            if self.crowded.len() < MOST_NAMED {
                self.crowded.insert(path, share);
            }
            return None;
        }
        match inotify::add_watch(self.inotify.as_ref()?, file.as_path(), flags) {
            Ok(number) => {
                subtrees(cgroup).for_each(|path| *self.taken.entry(path).or_default() += 1);
                Some(number)
            }
            Err(error) => {
                if error == Errno::NOSPC {
                    self.refused = Some(error);
                }
                None
            }
        }
    }

    /// Releases a watch of that cgroup.
    fn give_back(&mut self, cgroup: &CgroupPath) {
        for path in subtrees(cgroup) {
            let Some(taken) = self.taken.get_mut(&path) else { continue };
            *taken -= 1;
            let taken = *taken;
            if taken == 0 {
                self.taken.remove(&path);
            }
            // Turns find what is missed meanwhile; it is reported while that is likely.
            if self.crowded.get(&path).is_some_and(|share| taken < share / 2) {
                self.crowded.remove(&path);
            }
        }
    }

    /// Watches a cgroup for its first process; false if it cannot be watched.
    fn listen(&mut self, path: &CgroupPath) -> bool {
        if !self.root.v2 {
            return false;
        }
        if self.told_by_path.contains_key(path) {
            return true;
        }
        let file = self.root.dir(path).join(EVENTS);
        let Some(number) = self.watch(path, &file, WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW) else {
            return false;
        };
        self.told_by_number.insert(number, path.clone());
        self.told_by_path.insert(path.clone(), number);
        true
    }

    fn is_populated(&self, path: &CgroupPath) -> bool {
        let text = self.root.dir(path).join(EVENTS).read_text();
        text.is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
    }

    fn remove(&mut self, path: &CgroupPath) {
        self.empty.remove(path);
        let dir = self.by_path.remove(path).inspect(|number| drop(self.by_number.remove(number)));
        let file = self.told_by_path.remove(path).inspect(|number| drop(self.told_by_number.remove(number)));
        for number in dir.into_iter().chain(file) {
            if let Some(inotify) = &self.inotify {
                // It fails if the watch has ended by itself.
                let _ended = inotify::remove_watch(inotify, number);
            }
            self.give_back(path);
        }
    }

    /// The events, in order.
    fn take(&self) -> Vec<TreeEvent> {
        let Some(inotify) = &self.inotify else { return Vec::new() };
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut events = Reader::new(inotify, &mut buffer);
        let mut told = Vec::new();
        // Buffered events are delivered once only.
        while (told.len() < MOST_EVENTS || !events.is_buffer_empty())
            && let Ok(event) = events.next()
        {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told.push(TreeEvent::Lost);
                continue;
            }
            if let Some(path) = self.told_by_number.get(&event.wd()) {
                if event.events().contains(ReadFlags::MODIFY) {
                    told.push(TreeEvent::Changed(path.clone()));
                }
                continue;
            }
            let name = event.file_name().and_then(|name| name.to_str().ok());
            let path = self.by_number.get(&event.wd()).zip(name).map(|(parent, name)| parent.child(name));
            let Some(path) = path.filter(|_| event.events().contains(ReadFlags::ISDIR)) else { continue };
            if event.events().contains(ReadFlags::CREATE) {
                told.push(TreeEvent::Made(path));
            } else if event.events().contains(ReadFlags::DELETE) {
                told.push(TreeEvent::Removed(path));
            }
        }
        told
    }

    fn poll_empty(&mut self) -> bool {
        let Self { root, empty, .. } = self;
        let mut came = false;
        empty.retain(|path, since| match root.dir(path).join(root.files().procs).read_text() {
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

/// The subtrees of a cgroup, from its own up to the whole tree.
fn subtrees(cgroup: &CgroupPath) -> impl Iterator<Item = CgroupPath> + use<> {
    iter::once(cgroup.clone()).chain(cgroup.ancestors())
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
            Self::with(WatchLimit::default())
        }

        fn with(limit: WatchLimit) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = HostRoot::live().at(dir.path());
            let root = ControllerRoot { path, v2: true, mounted_cgroup: "/".into() };
            let mut rig = Self { dir, watch: CgroupWatch::new(root, limit) };
            rig.make("jobs/old");
            rig.enter("jobs/old", "1\n");
            assert!(!rig.appeared(), "earlier cgroups are no news");
            rig
        }

        fn make(&self, path: &str) {
            fs::create_dir_all(self.dir.path().join(path)).unwrap();
        }

        fn enter(&self, path: &str, processes: &str) {
            fs::write(self.dir.path().join(path).join("cgroup.procs"), processes).unwrap();
        }

        fn appeared(&mut self) -> bool {
            self.watch.appeared(&|path| Interest {
                itself: path.as_str().starts_with("/jobs/"),
                below: path.is_root() || path.is_within(&CgroupPath::new("/jobs")),
            })
        }
    }

    #[test]
    fn cgroup_of_interest_is_reported_once_when_it_has_a_process() {
        let mut rig = Rig::new();
        rig.make("jobs/new");
        rig.enter("jobs/new", "");
        assert!(!rig.appeared(), "it is empty");
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
    fn each_first_process_of_an_empty_cgroup_is_reported() {
        let mut rig = Rig::new();
        rig.make("jobs/empty");
        rig.make("other/empty");
        rig.says("jobs/empty", false);
        rig.says("other/empty", false);
        rig.watch.restart_watches();
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
        rig.watch.restart_watches();
        rig.says("jobs/empty", true);
        assert!(!rig.appeared(), "earlier processes are no news");
        fs::remove_dir_all(rig.dir.path().join("jobs/empty")).unwrap();
        assert!(!rig.appeared());
        assert_eq!((rig.watch.told_by_path.len(), rig.watch.told_by_number.len()), (0, 0));
    }

    #[test]
    fn of_more_than_is_taken_at_a_time_nothing_is_lost() {
        let mut rig = Rig::with(WatchLimit { most: 64 * MOST_WATCHED, allowed: None });
        rig.make("jobs/many");
        assert!(!rig.appeared());
        let all = MOST_EVENTS + 500;
        // Without directories, so that no read ends with the buffer.
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
    fn process_that_came_before_the_watch_is_reported() {
        let mut rig = Rig::new();
        rig.make("jobs/made");
        rig.says("jobs/made", true);
        assert!(rig.appeared());
        assert!(rig.watch.empty.is_empty(), "no cgroup is polled any longer");
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

    #[test]
    fn a_directory_that_holds_nothing_of_interest_is_not_watched() {
        let mut rig = Rig::new();
        rig.make("user/a/b/c");
        assert!(!rig.appeared());
        rig.make("user/a/d");
        assert!(!rig.appeared());
        assert!(rig.watch.by_path.keys().all(|path| !path.is_within(&CgroupPath::new("/user"))));
        assert_eq!(rig.watch.by_path.len(), 3, "the root, jobs and jobs/old: {:?}", rig.watch.by_path);
    }

    #[test]
    fn a_subtree_of_many_cgroups_takes_no_watches_of_others_and_is_named() {
        let limit = WatchLimit { most: 256, allowed: Some(2_048) };
        let mut rig = Rig::with(limit);
        rig.make("jobs/crowd");
        for number in 0..400 {
            rig.make(&format!("jobs/crowd/{number:03}"));
        }
        assert!(!rig.appeared());
        let taken = |rig: &Rig, path: &str| rig.watch.taken.get(&CgroupPath::new(path)).copied();
        assert_eq!(taken(&rig, "/jobs/crowd"), Some(limit.share(2)));
        let named = rig.watch.degraded();
        assert!(named.iter().any(|one| one.source == "cgroup-watch:/jobs/crowd"), "{named:?}");
        assert!(named[0].reason.contains("share of 64 inotify watches"), "{named:?}");
        assert!(named[0].reason.contains("fs.inotify.max_user_watches = 2048"), "{named:?}");
        rig.make("jobs/late");
        rig.says("jobs/late", true);
        assert!(rig.appeared(), "another subtree has its share");
        fs::remove_dir_all(rig.dir.path().join("jobs/crowd")).unwrap();
        assert!(!rig.appeared());
        assert_eq!((taken(&rig, "/jobs/crowd"), rig.watch.degraded()), (None, vec![]));
        let all = rig.watch.by_path.len() + rig.watch.told_by_path.len();
        assert_eq!(taken(&rig, "/"), Some(all), "every watch is counted once");
    }

    #[test]
    fn the_limit_is_well_below_what_the_kernel_allows() {
        for (allowed, most) in
            [(Some(8_192), 1_024), (Some(1_048_576), 8_192), (Some(0), 0), (None, 1_024), (Some(4), 0)]
        {
            assert_eq!(WatchLimit::within(allowed).most, most, "{allowed:?}");
        }
        let limit = WatchLimit::within(Some(8_192));
        assert_eq!([0, 1, 2, 5, 6, 99].map(|depth| limit.share(depth)), [1_024, 512, 256, 32, 32, 32]);
        assert_eq!(WatchLimit::within(Some(0)).share(3), 0);
    }
}
