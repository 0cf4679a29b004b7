//! The task iterator against `/proc`.

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt as _, path::Path};

use enforcer::observe::bpf::{TaskIterator, TaskRecord};
use enforcer_core::set::CpuSet;

use crate::{axis, own_cgroup, permitted, possible, refused, thread_id};

fn tasks_of_proc() -> BTreeSet<u32> {
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    entries("/proc".into())
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .flat_map(|entry| entries(format!("{}/task", entry.path().display())))
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .collect()
}

/// Field of `/proc/thread-self/stat` by its number in `proc_pid_stat(5)`.
fn stat_field(number: usize) -> String {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_comm = &stat[stat.rfind(')').unwrap() + 2..];
    after_comm.split(' ').nth(number - 3).unwrap().to_owned()
}

fn status_field(name: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line[name.len() + 1..].trim().to_owned()
}

fn read_tasks() -> Option<Vec<TaskRecord>> {
    match TaskIterator::open(axis().0, possible()) {
        Ok(tasks) => Some(tasks.read().unwrap()),
        Err(error) => {
            refused(&error.to_string());
            None
        }
    }
}

#[test]
fn the_iterator_lists_the_threads_that_proc_lists() {
    if !permitted() {
        return;
    }
    let before = tasks_of_proc();
    let Some(tasks) = read_tasks() else { return };
    let after = tasks_of_proc();
    let seen: BTreeSet<u32> = tasks.iter().map(|task| task.tid).collect();
    assert_eq!(seen.len(), tasks.len(), "no thread comes twice");
    assert!(tasks.is_sorted_by_key(|task| task.tid));
    let lived_through: BTreeSet<u32> = before.intersection(&after).copied().collect();
    // Some kernels of managed virtual machines hide the host's own init from BPF.
    let hidden = |tid: &&u32| !seen.contains(&1) && Path::new(&format!("/proc/1/task/{tid}")).exists();
    let missing: Vec<&u32> = lived_through.difference(&seen).filter(|tid| !hidden(tid)).collect();
    assert!(missing.is_empty(), "threads that lived all the time are missing: {missing:?}");
    let born_and_gone = seen.iter().filter(|tid| !before.contains(tid) && !after.contains(tid)).count();
    assert!(born_and_gone * 20 <= seen.len(), "{born_and_gone} of {} are not in /proc", seen.len());
}

#[test]
fn the_iterator_agrees_with_proc_about_this_thread() {
    if !permitted() {
        return;
    }
    let voluntary: u64 = status_field("voluntary_ctxt_switches").parse().unwrap();
    let Some(tasks) = read_tasks() else { return };
    let tid = thread_id();
    let task = tasks.iter().find(|task| task.tid == tid).unwrap();
    assert_eq!(task.pid, std::process::id());
    assert_eq!(task.command, fs::read_to_string("/proc/thread-self/comm").unwrap().trim());
    assert_eq!(task.cpus_allowed, Some(status_field("Cpus_allowed_list").parse::<CpuSet>().unwrap()));
    assert!(possible().contains(task.cpu.unwrap()));
    assert_eq!(task.policy.to_string(), stat_field(41));
    assert_eq!(task.state, 0, "the reader runs while it is read");
    assert!(!task.kernel_thread);
    assert!(task.run_ns > 0);
    assert!((voluntary..voluntary + 1_000).contains(&task.voluntary_switches));
    let (_, mount) = axis();
    assert_eq!(task.cgroup, Some(fs::metadata(mount.join(own_cgroup())).unwrap().ino()));
}
