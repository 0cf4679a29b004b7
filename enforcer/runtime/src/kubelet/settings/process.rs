//! The process of the kubelet: what its command line says, and since when it runs.
//!
//! Which process counts is decided in [`super::super::root`]. Of several, as on a host whose containers run
//! kubelets, only one with the directory in use counts, and two of those are none: the daemon could not tell
//! whose settings it publishes. A child of a kubelet looks like it between its clone and its exec, so it does
//! not count.
//!
//! Invariant: what is read belongs to one process. Its start is read before and after the rest, because the
//! kernel gives ids of processes again.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use enforcer_core::policy::KubeletSettings;
use enforcer_host::{HostPath, HostRoot, processes::start_ticks};
use thiserror::Error;

use super::{super::root, command_line::CommandLine};

/// Largest command line that is read, in bytes.
const COMMAND_LINE_LIMIT: u64 = 1 << 20;

/// A kubelet that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningKubelet {
    /// Id of the process, as this process sees it.
    pub pid: u32,
    /// Start in ticks since boot. With `pid` it names the process.
    pub start_ticks: u64,
    /// Start in seconds since 1970; `None` if the time of boot cannot be read. The kernel derives it from the
    /// clock, so it can differ by a second between two reads.
    pub started_at: Option<i64>,
    /// The earliest start by any read of this process: after the clock was set back, files that change have
    /// times that are before the start of the reads before.
    pub(super) earliest_start: Option<i64>,
    pub(super) flags: CommandLine,
    /// Directory that relative paths of its flags begin at.
    pub(super) working_dir: Option<PathBuf>,
    /// Why its paths are not those of this process.
    pub(super) elsewhere: Option<String>,
}

impl RunningKubelet {
    /// The same process as it was read before, whose start does not change when the clock is set.
    #[must_use]
    pub fn as_before(&self, before: &Self) -> Self {
        let starts = [self.earliest_start, before.earliest_start];
        Self { earliest_start: starts.into_iter().flatten().min(), ..before.clone() }
    }
}

/// Why there is no kubelet to read the settings of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoKubelet {
    /// This process sees none.
    #[error("no kubelet runs, or this process cannot see it")]
    Absent,
    /// Several have the same directory.
    #[error("{0} kubelets run with this directory")]
    Several(usize),
}

/// The kubelet that runs with the directory of these settings.
///
/// # Errors
/// There is none, or more than one.
pub fn find(host: &HostRoot, settings: &KubeletSettings) -> Result<RunningKubelet, NoKubelet> {
    let settings = root::of_running(settings, &host.proc);
    let default = KubeletSettings::default().root_dir;
    let mut found: Vec<RunningKubelet> = Vec::new();
    let mut parents = BTreeMap::new();
    for process in root::processes(&host.proc) {
        let Some((kubelet, root_dir)) = read(host, &process) else { continue };
        if *root_dir.as_ref().unwrap_or(&default) == settings.root_dir {
            parents.insert(kubelet.pid, parent(&process));
            found.push(kubelet);
        }
    }
    let is_child = |kubelet: &RunningKubelet| {
        parents.get(&kubelet.pid).copied().flatten().is_some_and(|parent| parents.contains_key(&parent))
    };
    found.retain(|kubelet| !is_child(kubelet));
    match <[RunningKubelet; 1]>::try_from(found) {
        Ok([kubelet]) => Ok(kubelet),
        Err(found) if found.is_empty() => Err(NoKubelet::Absent),
        Err(found) => Err(NoKubelet::Several(found.len())),
    }
}

/// Id of the process that started it; `None` if it cannot be read.
fn parent(process: &HostPath) -> Option<u32> {
    let status = process.join("status").read_text().ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The process and the directory that its command line names; `None` if it has ended meanwhile.
fn read(host: &HostRoot, process: &HostPath) -> Option<(RunningKubelet, Option<PathBuf>)> {
    let started = || start_ticks(&process.join("stat").read_text().ok()?);
    let start_ticks = started()?;
    let command_line = process.join("cmdline").read_text_within(COMMAND_LINE_LIMIT).ok()?;
    let started_at = started_at(host, start_ticks);
    let kubelet = RunningKubelet {
        pid: process.as_path().file_name()?.to_str()?.parse().ok()?,
        start_ticks,
        started_at,
        earliest_start: started_at,
        flags: CommandLine::parse(&command_line),
        working_dir: process.join("cwd").read_link(),
        elsewhere: elsewhere(&host.proc, process),
    };
    (started()? == start_ticks).then(|| (kubelet, root::named(&command_line)))
}

/// Time of the start in seconds since 1970: that of boot plus the ticks since then.
fn started_at(host: &HostRoot, start_ticks: u64) -> Option<i64> {
    let stat = host.proc.join("stat").read_text().ok()?;
    let boot: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let since_boot = start_ticks.checked_div(rustix::param::clock_ticks_per_second())?;
    i64::try_from(boot.checked_add(since_boot)?).ok()
}

/// Why the files that the process names are not found by the same paths here: another root directory, or a
/// mount namespace that is neither that of the host's first process nor our own. `/proc/PID/root` is not gone
/// through: what a path means there is the business of that process. Links that cannot be read say nothing.
fn elsewhere(proc: &HostPath, process: &HostPath) -> Option<String> {
    if let Some(root) = process.join("root").read_link().filter(|root| root != Path::new("/")) {
        return Some(format!("the kubelet has the root directory {}", root.display()));
    }
    let namespace = |process: &HostPath| process.join("ns/mnt").read_link();
    let theirs = namespace(process)?;
    let known: Vec<PathBuf> = ["self", "1"].iter().filter_map(|id| namespace(&proc.join(id))).collect();
    let is_known = known.is_empty() || known.contains(&theirs);
    (!is_known).then(|| "the kubelet has a mount namespace of its own".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    const ROOT: &str = "Name:\tkubelet\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";

    /// A `/proc` with kubelets.
    struct ProcTree(tempfile::TempDir);

    impl ProcTree {
        fn new() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(tree.path("self/ns")).unwrap();
            fs::write(tree.path("stat"), "cpu 1 2\nbtime 1700000000\nprocesses 9\n").unwrap();
            tree
        }

        fn path(&self, below: &str) -> PathBuf {
            self.0.path().join("proc").join(below)
        }

        fn add(&self, pid: u32, words: &[&str]) {
            fs::create_dir_all(self.path(&format!("{pid}/ns"))).unwrap();
            let write =
                |name: &str, text: &str| fs::write(self.path(&format!("{pid}/{name}")), text).unwrap();
            write("comm", "kubelet\n");
            write("status", ROOT);
            write("cmdline", &(words.join("\0") + "\0"));
            let zeros = "0 ".repeat(18);
            write("stat", &format!("{pid} (kube) let) S {zeros}1234 0 0\n"));
        }

        fn link(&self, name: &str, target: &str) {
            let _ = fs::remove_file(self.path(name));
            symlink(target, self.path(name)).unwrap();
        }

        fn find(&self, settings: &KubeletSettings) -> Result<RunningKubelet, NoKubelet> {
            find(&HostRoot::live_below(self.0.path()), settings)
        }
    }

    #[test]
    fn a_kubelet_has_a_start_and_flags() {
        let tree = ProcTree::new();
        let default = KubeletSettings::default();
        assert_eq!(tree.find(&default), Err(NoKubelet::Absent));
        tree.add(77, &["/usr/bin/kubelet", "--config=/etc/kubelet.yaml"]);
        let kubelet = tree.find(&default).unwrap();
        assert_eq!((kubelet.pid, kubelet.start_ticks), (77, 1234));
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(kubelet.started_at, i64::try_from(1_700_000_000 + 1234 / ticks).ok());
        assert_eq!(kubelet.flags.value("config"), Some("/etc/kubelet.yaml"));
        fs::remove_file(tree.path("stat")).unwrap();
        assert_eq!(tree.find(&default).unwrap().started_at, None);
        fs::write(tree.path("77/comm"), "kubectl\n").unwrap();
        assert_eq!(tree.find(&default), Err(NoKubelet::Absent));
    }

    #[test]
    fn of_several_the_one_with_the_directory_counts() {
        let tree = ProcTree::new();
        let default = KubeletSettings::default();
        tree.add(77, &["kubelet"]);
        tree.add(78, &["kubelet", "--root-dir=/nonexistent"]);
        assert_eq!(tree.find(&default).unwrap().pid, 77);
        let other = KubeletSettings { root_dir: "/nonexistent".into(), ..default.clone() };
        assert_eq!(tree.find(&other).unwrap().pid, 78);
        let none = KubeletSettings { root_dir: "/none".into(), ..default.clone() };
        assert_eq!(tree.find(&none), Err(NoKubelet::Absent));
        tree.add(79, &["kubelet", "--root-dir=/var/lib/kubelet"]);
        assert_eq!(tree.find(&default), Err(NoKubelet::Several(2)));
    }

    #[test]
    fn a_child_that_has_not_called_exec_yet_does_not_count() {
        let tree = ProcTree::new();
        let child_of = |pid: u32, parent: u32| {
            tree.add(pid, &["kubelet"]);
            fs::write(tree.path(&format!("{pid}/status")), format!("{ROOT}PPid:\t{parent}\n")).unwrap();
        };
        child_of(77, 1);
        child_of(78, 77);
        let default = KubeletSettings::default();
        assert_eq!(tree.find(&default).unwrap().pid, 77);
        child_of(78, 1);
        assert_eq!(tree.find(&default), Err(NoKubelet::Several(2)));
    }

    #[test]
    fn a_kubelet_with_other_paths_is_named() {
        let tree = ProcTree::new();
        tree.add(77, &["kubelet"]);
        let elsewhere = || tree.find(&KubeletSettings::default()).unwrap().elsewhere;
        assert_eq!(elsewhere(), None);
        tree.link("77/root", "/");
        tree.link("77/ns/mnt", "mnt:[1]");
        tree.link("self/ns/mnt", "mnt:[1]");
        assert_eq!(elsewhere(), None);
        tree.link("self/ns/mnt", "mnt:[2]");
        assert_eq!(elsewhere().unwrap(), "the kubelet has a mount namespace of its own");
        fs::create_dir_all(tree.path("1/ns")).unwrap();
        tree.link("1/ns/mnt", "mnt:[1]");
        assert_eq!(elsewhere(), None, "it is that of the host, and the daemon is in a container");
        tree.link("77/root", "/chroot");
        assert_eq!(elsewhere().unwrap(), "the kubelet has the root directory /chroot");
    }
}
