//! Plans over several workloads, on a kernel in memory of which any step may fail.

use std::{collections::BTreeMap, fs};

use enforcer_core::{
    plan::{Action, OutcomeResult, Plan, Step},
    workload::CgroupPath,
};
use proptest::prelude::*;

use super::{
    Actuator, apply_plan,
    cpuset::ManagedFile,
    fixture::{Fixture, plan, set_cpus, set_mems},
    journal::EntryKey,
    step_effect::{Next, StepEffect, Undo},
};

const CGROUPS: [&str; 4] = ["/a", "/b", "/c", "/d"];

/// What becomes of one of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Refused,
    /// Written, and something else in effect.
    Differs,
    Gone,
    Unfinished,
}

/// Cpusets by cgroup and file; steps meet their fates by number.
struct Memory {
    files: BTreeMap<(CgroupPath, ManagedFile), String>,
    steps: usize,
    fates: BTreeMap<usize, Fate>,
}

impl Memory {
    fn write(&mut self, cgroup: &CgroupPath, file: ManagedFile, text: String) -> Option<String> {
        assert!(!text.is_empty(), "an empty set for {cgroup}");
        let known = self.files.get_mut(&(cgroup.clone(), file))?;
        Some(std::mem::replace(known, text))
    }

    fn remove(&mut self, cgroup: &CgroupPath) {
        self.files.retain(|(other, _), _| other != cgroup);
    }
}

impl Actuator for Memory {
    fn apply(&mut self, step: &Step) -> StepEffect {
        let fate = self.fates.get(&self.steps).copied();
        self.steps += 1;
        let cgroup = step.action.cgroup();
        let nothing = |result, next| StepEffect { result, undo: Vec::new(), next };
        match fate {
            Some(Fate::Refused) => {
                return nothing(OutcomeResult::Failed { error: "no".into() }, Next::RollBack);
            }
            Some(Fate::Gone) => self.remove(cgroup),
            _ => {}
        }
        let (file, text) = match &step.action {
            Action::SetCpus { cpus, .. } => (ManagedFile::Cpus, cpus.to_string()),
            Action::SetMems { mems, .. } => (ManagedFile::Mems, mems.to_string()),
            _ => panic!("neither pages nor partitions here"),
        };
        let Some(before) = self.write(cgroup, file, text.clone()) else {
            return nothing(OutcomeResult::Gone, Next::Gone);
        };
        let undo = vec![Undo { key: EntryKey { cgroup: cgroup.clone(), file, inode: 1 }, before }];
        match fate {
            Some(Fate::Differs) => {
                let result = OutcomeResult::Differs { wanted: text, read_back: "0".into() };
                StepEffect { result, undo, next: Next::RollBack }
            }
            Some(Fate::Unfinished) => {
                StepEffect { result: OutcomeResult::Applied { read_back: text }, undo, next: Next::Pause }
            }
            _ => {
                StepEffect { result: OutcomeResult::Applied { read_back: text }, undo, next: Next::Continue }
            }
        }
    }

    fn undo(&mut self, undo: &Undo) -> Result<(), String> {
        self.write(&undo.key.cgroup, undo.key.file, undo.before.clone());
        Ok(())
    }
}

fn steps(cgroup: usize) -> [Action; 2] {
    [set_mems(CGROUPS[cgroup], "1"), set_cpus(CGROUPS[cgroup], "4-7")]
}

proptest! {
    #[test]
    fn a_group_is_carried_out_as_a_whole_or_not_at_all(
        grouped in 0usize..=4,
        order in Just((0..4).collect::<Vec<usize>>()).prop_shuffle(),
        at in 0usize..9,
        fate in prop::sample::select(vec![Fate::Refused, Fate::Differs, Fate::Gone]),
    ) {
        let files = [ManagedFile::Cpus, ManagedFile::Mems];
        let before = |file| if file == ManagedFile::Cpus { "0-3" } else { "0" }.to_owned();
        let after = |file| if file == ManagedFile::Cpus { "4-7" } else { "1" }.to_owned();
        let all = CGROUPS.iter().flat_map(|path| files.map(|file| (CgroupPath::new(path), file)));
        let mut kernel = Memory {
            files: all.map(|(cgroup, file)| ((cgroup, file), before(file))).collect(),
            steps: 0,
            fates: [(at, fate)].into(),
        };
        let group = order.iter().take(grouped).map(|cgroup| CgroupPath::new(CGROUPS[*cgroup])).collect();
        let wanted = Plan { groups: vec![group], ..plan(order.iter().flat_map(|cgroup| steps(*cgroup))) };
        let done = apply_plan(&wanted, &mut kernel);
        prop_assert_eq!(done.outcomes.len(), 8);

        let hit = order.get(at / 2).copied();
        let in_group = |cgroup: usize| order.iter().take(grouped).any(|member| *member == cgroup);
        for (cgroup, path) in CGROUPS.iter().enumerate() {
            let together = Some(cgroup) == hit || (in_group(cgroup) && hit.is_some_and(in_group));
            let taken_back = fate != Fate::Gone && together;
            for file in files {
                let found = kernel.files.get(&(CgroupPath::new(path), file));
                let expected = match fate {
                    Fate::Gone if Some(cgroup) == hit => None,
                    _ if taken_back => Some(before(file)),
                    _ => Some(after(file)),
                };
                prop_assert_eq!(found, expected.as_ref(), "{} {:?}", path, done.outcomes);
            }
        }
    }
}

#[test]
fn unfinished_workload_fails_no_other_and_is_undone_with_its_group() {
    let group = || vec![["/a", "/b"].map(CgroupPath::new).into()];
    for (fates, unfinished, mems) in [
        (vec![(0, Fate::Unfinished)], 1, ["1", "1"]),
        (vec![(0, Fate::Unfinished), (2, Fate::Refused)], 0, ["0", "0"]),
    ] {
        let files = ["/a", "/b"].map(|path| {
            [ManagedFile::Cpus, ManagedFile::Mems].map(|file| ((CgroupPath::new(path), file), "0".to_owned()))
        });
        let files = files.into_iter().flatten().collect();
        let mut kernel = Memory { files, steps: 0, fates: fates.into_iter().collect() };
        let actions = steps(0).into_iter().chain(steps(1));
        let done = apply_plan(&Plan { groups: group(), ..plan(actions) }, &mut kernel);
        assert_eq!(done.unfinished.len(), unfinished, "{done:?}");
        let found =
            ["/a", "/b"].map(|path| kernel.files[&(CgroupPath::new(path), ManagedFile::Mems)].as_str());
        assert_eq!(found, mems, "{done:?}");
    }
}

#[test]
fn a_cgroup_that_ends_on_the_way_is_no_error_for_the_others() {
    let host = Fixture::new(true);
    for path in ["/a", "/b", "/ended"] {
        host.cgroup(path, "0-3\n", "0\n");
    }
    let mut actuator = host.actuator();
    fs::remove_dir_all(host.path("/ended")).unwrap();
    let group = ["/a", "/b", "/ended"].map(CgroupPath::new).into();
    let actions =
        [set_cpus("/ended", "2"), set_mems("/ended", "0"), set_cpus("/a", "1"), set_cpus("/b", "2-3")];
    let done = apply_plan(&Plan { groups: vec![group], ..plan(actions) }, &mut actuator);
    let results: Vec<_> = done.outcomes.iter().map(|outcome| &outcome.result).collect();
    assert_eq!(results[0], &OutcomeResult::Gone);
    assert!(matches!(results[1], OutcomeResult::Skipped { .. }), "{results:?}");
    assert_eq!((host.read("/a", "cpuset.cpus"), host.read("/b", "cpuset.cpus")), ("1".into(), "2-3".into()));
}

#[test]
fn what_one_of_a_group_cannot_have_is_taken_back_from_all() {
    let host = Fixture::new(true);
    for path in ["/gives", "/takes", "/else"] {
        host.cgroup(path, "0-3\n", "0\n");
    }
    fs::remove_file(host.path("/takes").join("cpuset.cpus")).unwrap();
    let mut actuator = host.actuator();
    let group = ["/gives", "/takes"].map(CgroupPath::new).into();
    let actions = [set_cpus("/gives", "1-3"), set_cpus("/else", "3"), set_cpus("/takes", "0")];
    let done = apply_plan(&Plan { groups: vec![group], ..plan(actions) }, &mut actuator);
    assert!(matches!(done.outcomes[0].result, OutcomeResult::RolledBack { error: None, .. }), "{done:?}");
    assert_eq!(
        (host.read("/gives", "cpuset.cpus"), host.read("/else", "cpuset.cpus")),
        ("0-3\n".into(), "3".into())
    );
    assert_eq!(actuator.journal().entries().len(), 1, "a file that holds its original again has no entry");
}
