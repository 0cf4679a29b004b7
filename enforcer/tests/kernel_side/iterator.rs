//! The threads that the task iterator lists against those that `/proc` lists.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{agreement::read_tasks, permitted};

fn tasks_of_proc() -> BTreeSet<u32> {
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    entries("/proc".into())
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .flat_map(|entry| entries(format!("{}/task", entry.path().display())))
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .collect()
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
