//! The threads of each workload.
//!
//! Problem: rules ask for the threads of one workload, and a sample lists those of all. A search through that
//! list for each workload costs the product of both. Idea: sort them by cgroup once for all workloads.
//!
//! Invariant: a thread counts only for the workload of its own cgroup. Cost: one pass over the sample.

use std::collections::BTreeMap;

use crate::{
    sample::{Sample, TaskSample},
    workload::{CgroupPath, Origin, Workload},
};

/// Threads by cgroup or process.
pub(super) struct Threads<'a> {
    all: &'a [TaskSample],
    by_cgroup: BTreeMap<&'a CgroupPath, Vec<&'a TaskSample>>,
}

impl<'a> Threads<'a> {
    /// Sorts the threads of a sample.
    pub(super) fn new(sample: &'a Sample) -> Self {
        let mut by_cgroup: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for task in &sample.tasks {
            if let Some(cgroup) = &task.cgroup {
                by_cgroup.entry(cgroup).or_default().push(task);
            }
        }
        Self { all: &sample.tasks, by_cgroup }
    }

    /// Threads of a workload, in the order of the sample.
    pub(super) fn of(&self, workload: &Workload) -> Vec<&'a TaskSample> {
        match workload.origin {
            Origin::Process { pid, .. } => self.all.iter().filter(|task| task.pid == pid).collect(),
            _ => self.by_cgroup.get(&workload.cgroup).cloned().unwrap_or_default(),
        }
    }
}
