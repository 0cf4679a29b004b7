//! The processes of a cgroup and of everything below it.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::HostRoot;

/// Cgroups below the workload's own that are looked into.
const MAX_CGROUPS: usize = 4096;

/// Processes of a cgroup and of those below it, each once.
pub fn processes_in(cgroup: &Path) -> Result<Vec<u32>, String> {
    let mut pending = vec![cgroup.to_owned()];
    let mut processes = Vec::new();
    let mut seen = 0;
    while let Some(dir) = pending.pop() {
        seen += 1;
        let path = dir.join("cgroup.procs");
        match fs::read_to_string(&path) {
            Ok(text) => processes.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok())),
            Err(error) if dir == cgroup => return Err(format!("reading {}: {error}", path.display())),
            // Gone meanwhile, or a threaded cgroup: its parent lists its processes.
            Err(_) => {}
        }
        if seen + pending.len() < MAX_CGROUPS {
            pending.extend(children_of(&dir));
        }
    }
    processes.sort_unstable();
    processes.dedup();
    // Process 0 is one that this process cannot see; to the system call it would be the caller.
    processes.retain(|pid| *pid != 0);
    Ok(processes)
}

/// Effective user of a process as the host counts users: the owner of `/proc/PID`, also of processes that
/// nobody may dump (`task_dump_owner` of fs/proc/base.c). `None` if unknown, as on a captured machine.
pub fn owner_of_process(host: &HostRoot, pid: u32) -> Option<u32> {
    let dir = host.proc.join(pid.to_string());
    let found = fs::metadata(dir.as_path()).ok().filter(|_| !host.captured)?;
    Some(found.uid())
}

/// Start time of a process or thread in ticks since boot, from its `stat`. The name may hold anything; behind
/// it the state is the third field and the start the 22nd (proc(5)).
pub fn start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn children_of(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
