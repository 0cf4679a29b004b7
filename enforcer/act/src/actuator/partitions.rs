//! The files of partitions: what those below may have, and whether a cgroup is the root of one.
//!
//! As with cpusets, the journal is written first and the file is read back. A partition that the kernel does
//! not grant is ended at once. Otherwise it could become valid later, when another program changes a cgroup
//! above it. A refused partition fails no other step of the workload: exclusive CPUs are useful without one.

use enforcer_core::{
    named::Named as _,
    partition::{Partition, PartitionState},
    plan::OutcomeResult,
    turn::Partitioned,
    workload::CgroupPath,
};
use numa_topology::set::CpuSet;

use super::{LiveActuator, Next, StepEffect, Undo, text};
use crate::{
    cpuset::{ManagedFile, OpenCpuset},
    journal::EntryKey,
};

impl LiveActuator {
    /// Sets what partitions below a cgroup may have; nothing is a value like any other here.
    pub(super) fn set_exclusive(
        &mut self,
        cgroup: &CgroupPath,
        cpus: &CpuSet,
        undo: &mut Vec<Undo>,
    ) -> Result<OutcomeResult, String> {
        let cpuset = self.tree.open(cgroup).map_err(text)?;
        let is_wanted = |text: &str| text.trim().parse().ok().as_ref() == Some(cpus);
        let before = cpuset.read(ManagedFile::Exclusive).map_err(text)?;
        if !is_wanted(&before) {
            // The kernel takes a write of no bytes for none.
            self.write(cgroup, &cpuset, ManagedFile::Exclusive, before, &format!("{cpus}\n"), undo)?;
        }
        let now = cpuset.read(ManagedFile::Exclusive).map_err(text)?;
        let read_back = now.trim().to_owned();
        Ok(if is_wanted(&now) {
            OutcomeResult::Applied { read_back }
        } else {
            OutcomeResult::Differs { wanted: cpus.to_string(), read_back }
        })
    }

    /// Begins or ends the partition of a cgroup.
    pub(super) fn set_partition(&mut self, cgroup: &CgroupPath, kind: Partition) -> StepEffect {
        let mut undo = Vec::new();
        let result = self.begin_or_end(cgroup, kind, &mut undo);
        let result = result.unwrap_or_else(|error| OutcomeResult::Failed { error });
        StepEffect { result, undo, next: Next::Continue }
    }

    fn begin_or_end(
        &mut self,
        cgroup: &CgroupPath,
        kind: Partition,
        undo: &mut Vec<Undo>,
    ) -> Result<OutcomeResult, String> {
        let cpuset = self.tree.open(cgroup).map_err(text)?;
        let before = state(&cpuset)?;
        if !before.is(kind) {
            // What was in effect can be written back; that it was not, cannot.
            let original = format!("{}\n", before.kind);
            self.write(cgroup, &cpuset, ManagedFile::Partition, original, kind.name(), undo)?;
        }
        let now = state(&cpuset)?;
        let Some(invalid) = &now.invalid else {
            let read_back = now.kind.to_string();
            return Ok(if now.is(kind) {
                OutcomeResult::Applied { read_back }
            } else {
                OutcomeResult::Differs { wanted: kind.to_string(), read_back }
            });
        };
        let ended = cpuset.write(ManagedFile::Partition, Partition::Member.name());
        let ended = ended.map_or_else(|error| format!("; {error}"), |()| String::new());
        let read_back = format!("{} invalid ({invalid}){ended}{}", now.kind, meaning(invalid));
        Ok(OutcomeResult::Differs { wanted: kind.to_string(), read_back })
    }

    /// Cgroups with partition files to restore.
    pub(super) fn with_partition_files(&self) -> Partitioned {
        let with = |file| {
            let keys = self.journal.entries().keys().filter(move |key| key.file == file);
            keys.map(|key| key.cgroup.clone()).collect()
        };
        Partitioned { begun: with(ManagedFile::Partition), exclusive: with(ManagedFile::Exclusive) }
    }

    /// Does this file hold its value from before the partition?
    pub(super) fn is_as_before(&self, key: &EntryKey, cpuset: &OpenCpuset) -> bool {
        let original = self.journal.entries().get(key).map(|entry| entry.original.trim());
        is_of_partitions(key.file)
            && cpuset.read(key.file).is_ok_and(|now| original.is_some_and(|original| original == now.trim()))
    }
}

/// Is it about partitions, and not about what the cgroup may use?
pub(super) fn is_of_partitions(file: ManagedFile) -> bool {
    matches!(file, ManagedFile::Exclusive | ManagedFile::Partition)
}

/// Meaning of the kernel's reason for an invalid partition (`perr_strings` in kernel/cgroup/cpuset.c).
fn meaning(invalid: &str) -> &'static str {
    if invalid.contains("not permitted") {
        "; it takes CAP_SYS_ADMIN, which the daemon keeps only if it has it and a partition is declared when it starts"
    } else {
        ""
    }
}

fn state(cpuset: &OpenCpuset) -> Result<PartitionState, String> {
    let said = cpuset.read(ManagedFile::Partition).map_err(text)?;
    said.parse().map_err(|error| {
        format!("reading {}: {error}", cpuset.path().join(ManagedFile::Partition.name()).display())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use enforcer_core::plan::Action;

    use super::*;
    use crate::{
        actuator::Actuator,
        apply_plan,
        cpuset::CpusetTree,
        fixture::{Fixture, plan, set_cpus},
        restore,
    };

    fn host() -> Fixture {
        let host = Fixture::new(true);
        for cgroup in ["/pods", "/pods/a"] {
            host.cgroup(cgroup, "\n", "\n");
            fs::write(host.path(cgroup).join("cpuset.cpus.exclusive"), "\n").unwrap();
            fs::write(host.path(cgroup).join("cpuset.cpus.partition"), "member\n").unwrap();
        }
        host
    }

    fn exclusive(cgroup: &str, cpus: &str) -> Action {
        Action::SetExclusive { cgroup: CgroupPath::new(cgroup), cpus: cpus.parse().unwrap() }
    }

    fn partition(cgroup: &str, kind: Partition) -> Action {
        Action::SetPartition { cgroup: CgroupPath::new(cgroup), kind }
    }

    #[test]
    fn partitions_are_journalled_and_put_back_in_an_order_that_the_kernel_takes() {
        let host = host();
        let before = host.contents();
        let mut actuator = host.actuator();
        let steps = [
            set_cpus("/pods/a", "2-3"),
            exclusive("/pods", "2-3"),
            partition("/pods/a", Partition::Isolated),
        ];
        let applied = apply_plan(&plan(steps), &mut actuator);
        assert!(applied.outcomes.iter().all(|one| matches!(one.result, OutcomeResult::Applied { .. })));
        assert_eq!(host.read("/pods/a", "cpuset.cpus.partition"), "isolated");
        let set = ["/pods", "/pods/a"].map(CgroupPath::new);
        let of = |cgroup: &CgroupPath| [cgroup.clone()].into();
        assert_eq!(actuator.partitioned(), Partitioned { begun: of(&set[1]), exclusive: of(&set[0]) });
        assert_eq!(set.map(|cgroup| actuator.has_set(&cgroup)), [false, true], "it is not ours to widen");
        drop(actuator);
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let report = restore::restore(&tree, Some("boot-1"), &mut host.journal());
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(host.contents(), before);
    }

    #[test]
    fn what_is_as_before_is_forgotten() {
        let host = host();
        let mut actuator = host.actuator();
        let begin = [exclusive("/pods", "2-3"), partition("/pods/a", Partition::Root)];
        apply_plan(&plan(begin), &mut actuator);
        let end = [partition("/pods/a", Partition::Member), exclusive("/pods", "")];
        let applied = apply_plan(&plan(end), &mut actuator);
        assert!(applied.outcomes.iter().all(|one| matches!(one.result, OutcomeResult::Applied { .. })));
        assert_eq!(actuator.partitioned().all().len(), 2);
        actuator.tidy(&|_| true).unwrap();
        assert_eq!(actuator.partitioned(), Partitioned::default());
    }

    #[test]
    fn a_file_that_is_not_there_or_not_understood_fails_that_step_alone() {
        let host = host();
        fs::remove_file(host.path("/pods").join("cpuset.cpus.exclusive")).unwrap();
        fs::write(host.path("/pods/a").join("cpuset.cpus.partition"), "what\n").unwrap();
        let steps =
            [exclusive("/pods", "2"), partition("/pods/a", Partition::Isolated), set_cpus("/pods/a", "2")];
        let applied = apply_plan(&plan(steps), &mut host.actuator());
        let results: Vec<&OutcomeResult> = applied.outcomes.iter().map(|one| &one.result).collect();
        assert!(
            matches!(
                results[..],
                [OutcomeResult::Failed { .. }, OutcomeResult::Failed { .. }, OutcomeResult::Applied { .. }]
            ),
            "{results:?}"
        );
        assert_eq!(host.read("/pods/a", "cpuset.cpus"), "2");
    }
}
