//! A killed daemon leaves nothing in the kernel: programs, maps and links are its file descriptors, and none
//! is pinned (docs/adr/0008).
//!
//! The kernel's own lists of ids tell, as bpftool prints them. What attaches is a process of its own: this
//! test's binary, started for `leftovers::holder` alone.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use aya::{
    maps::loaded_maps,
    programs::{loaded_links, loaded_programs},
};
use enforcer_kernel::bpf::{Programs, TaskIterator};
use numa_topology::id::NodeId;

use crate::{axis, options, permitted, possible, possible_nodes, refused};

/// The kernel frees in its own time, after a grace period of RCU; what is not gone by then stays.
const PATIENCE: Duration = Duration::from_mins(5);
const KILLED: i32 = 9;

/// Attaches, says so, and stays.
#[test]
#[ignore = "a process of the tests below"]
fn holder() {
    let (programs, degraded) = Programs::attach(&options(|_| NodeId(0)));
    let iterator = TaskIterator::open(axis().0, possible(), &possible_nodes());
    println!("\nholds: {:?} {degraded:?} {}", programs.hooks().len(), iterator.is_ok());
    let _until_killed = std::io::stdin().read(&mut [0]);
}

/// Ids of what is in the kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    programs: BTreeSet<u32>,
    pub(crate) maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

impl Ids {
    /// Of every process; none where the kernel does not list them for this one.
    fn loaded() -> Option<Self> {
        // What goes away while the list is read is no error.
        let programs = loaded_programs().flatten().map(|info| info.id()).collect::<BTreeSet<_>>();
        let maps = loaded_maps().flatten().map(|info| info.id()).collect();
        let links = loaded_links().flatten().map(|info| info.id()).collect();
        (!programs.is_empty()).then_some(Self { programs, maps, links })
    }

    /// Those that a process has open.
    pub(crate) fn held_by(pid: u32) -> Self {
        let mut ids = Self::default();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten() {
            let Ok(text) = fs::read_to_string(entry.path()) else { continue };
            let field = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
                line.trim().parse::<u32>().ok()
            };
            // The file of a link names its program too.
            ids.links.extend(field("link_id"));
            ids.programs.extend(field("prog_id"));
            ids.maps.extend(field("map_id"));
        }
        ids
    }

    fn also_in(&self, others: &Self) -> Self {
        let both = |own: &BTreeSet<u32>, others: &BTreeSet<u32>| own.intersection(others).copied().collect();
        Self {
            programs: both(&self.programs, &others.programs),
            maps: both(&self.maps, &others.maps),
            links: both(&self.links, &others.links),
        }
    }
}

/// A process that has attached what it may, and the end of its output that keeps it from blocking.
fn start() -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "--nocapture", "leftovers::holder"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("holds:") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended before it attached anything");
    }
    println!("{line}");
    (child, stdout)
}

#[test]
fn nothing_stays_behind_when_it_is_killed() {
    if !permitted() {
        return;
    }
    let (mut child, _stdout) = start();
    let held = Ids::held_by(child.id());
    let before = Ids::loaded();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(KILLED));
    let Some(before) = before.filter(|_| !held.programs.is_empty()) else {
        return refused("nothing could be attached, or the kernel does not list it");
    };
    // Control: it was all there, and the lists show it.
    assert_eq!(held.also_in(&before), held);
    assert!(!held.maps.is_empty() && !held.links.is_empty(), "{held:?}");

    let begun = Instant::now();
    loop {
        // An empty list is nothing left, too.
        let left = held.also_in(&Ids::loaded().unwrap_or_default());
        if left == Ids::default() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "still there: {left:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
