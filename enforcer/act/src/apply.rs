//! Carries out a plan: in order, and per workload, or per group of them, all or nothing.
//!
//! When a step fails, or the kernel does something else, the earlier writes of the same workload and its
//! group in this plan are undone in reverse order, and their later steps are not tried. Other workloads go
//! on. Moved pages stay where they are. A workload that ends meanwhile fails no other workload.
//!
//! When the daemon is told to end, the remaining steps are not tried and nothing is undone. Every prefix of
//! the steps leaves each workload with CPUs and memory that it may use: steps that free a CPU come before
//! steps that give it out exclusively.
//!
//! A plan is decided once, and its steps may take long. An answer to a container runtime meanwhile is newer
//! than the steps of that workload: its remaining steps are not tried, and an undo of its group leaves it
//! alone. Steps of other workloads go on, because the answer took their new places into account. No undo
//! gives back CPUs that are exclusive to another workload by then ([`roll_back`]).

use std::collections::{BTreeMap, BTreeSet};

use super::{
    actuator::Actuator,
    claims::CurrentClaims,
    roll_back::{Failed, OVERTAKEN, roll_back},
    step_effect::{Next, Undo},
};
use enforcer_core::{
    plan::{Outcome, OutcomeResult, Plan},
    workload::CgroupPath,
};

/// Progress of a workload or a group, or the reason why it stopped.
#[derive(Default)]
struct Progress {
    /// Step's index in the outcomes, and a write it made.
    undo: Vec<(usize, Undo)>,
    failed: Option<String>,
}

/// A plan that was carried out.
#[derive(Debug, Default)]
pub struct Applied {
    /// One per step, in the order of the plan.
    pub outcomes: Vec<Outcome>,
    /// Workloads with more to do than one plan may: to be gone on with at once, not after a cool-down.
    pub unfinished: BTreeSet<CgroupPath>,
}

/// Carries out the steps in order.
pub fn apply_plan(plan: &Plan, actuator: &mut dyn Actuator) -> Applied {
    apply_plan_beside(plan, actuator, &|_: &CgroupPath| false)
}

/// Carries out the steps in order, but for those of workloads of which something newer is settled; that is
/// asked before each step, and before writes are taken back.
pub fn apply_plan_beside(plan: &Plan, actuator: &mut dyn Actuator, settled: &dyn CurrentClaims) -> Applied {
    let mut unfinished = BTreeSet::new();
    let mut left = BTreeSet::new();
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(plan.steps.len());
    // A group is known by its first member, which no other group has.
    let group_of: BTreeMap<&CgroupPath, &CgroupPath> = plan
        .groups
        .iter()
        .filter_map(|group| Some((group, group.first()?)))
        .flat_map(|(group, first)| group.iter().map(move |member| (member, first)))
        .collect();
    let mut groups: BTreeMap<&CgroupPath, Progress> = BTreeMap::new();
    let mut ended: BTreeMap<&CgroupPath, String> = BTreeMap::new();
    actuator.begin();
    for (index, step) in plan.steps.iter().enumerate() {
        let cgroup = step.action.cgroup();
        let progress = groups.entry(group_of.get(cgroup).copied().unwrap_or(cgroup)).or_default();
        if progress.failed.is_none()
            && !ended.contains_key(cgroup)
            && let Some(because) = left_alone(actuator.is_stopped(), settled.is_overtaken(cgroup))
        {
            unfinished.insert(cgroup.clone());
            ended.insert(cgroup, because);
        }
        if let Some(because) = progress.failed.as_ref().or_else(|| ended.get(cgroup)) {
            let result = OutcomeResult::Skipped { because: because.clone() };
            outcomes.push(Outcome { step: step.clone(), result });
            continue;
        }
        let effect = actuator.apply(step);
        progress.undo.extend(effect.undo.into_iter().map(|undo| (index, undo)));
        outcomes.push(Outcome { step: step.clone(), result: effect.result });
        match effect.next {
            Next::Continue => {}
            Next::Pause => {
                unfinished.insert(cgroup.clone());
                let because = format!("step {} is not finished; goes on with the next turn", index + 1);
                ended.insert(cgroup, because);
            }
            Next::Gone => {
                ended.insert(cgroup, "the cgroup has ended".to_owned());
            }
            Next::RollBack => {
                let group = plan.groups.iter().find(|group| group.contains(cgroup));
                let group = group.map_or_else(|| [cgroup].into(), |group| group.iter().collect());
                let failed = Failed { index, because: format!("step {} failed", index + 1), group };
                let undo = std::mem::take(&mut progress.undo);
                left.extend(roll_back(undo, &failed, actuator, settled, &mut outcomes));
                progress.failed = Some(failed.because);
            }
        }
    }
    // A workload that was undone with its group has no unfinished steps.
    unfinished.retain(|cgroup| {
        let progress = groups.get(group_of.get(cgroup).copied().unwrap_or(cgroup));
        progress.is_none_or(|progress| progress.failed.is_none())
    });
    unfinished.extend(left);
    Applied { outcomes, unfinished }
}

/// Why a step that could be tried is not.
fn left_alone(is_stopped: bool, is_overtaken: bool) -> Option<String> {
    if is_stopped {
        return Some("the daemon is told to end".to_owned());
    }
    is_overtaken.then(|| format!("{OVERTAKEN}; goes on with the next turn"))
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs, os::unix::fs::symlink};

    use enforcer_core::plan::{Action, Step};

    use super::*;
    use crate::{
        DryRunActuator,
        fixture::{Fixture, plan, set_cpus, set_mems},
        step_effect::StepEffect,
    };

    fn results(applied: &Applied) -> Vec<&OutcomeResult> {
        applied.outcomes.iter().map(|outcome| &outcome.result).collect()
    }

    fn applied(read_back: &str) -> OutcomeResult {
        OutcomeResult::Applied { read_back: read_back.into() }
    }

    #[test]
    fn writes_both_files_and_journals_what_was_there() {
        for v2 in [false, true] {
            let host = Fixture::new(v2);
            host.cgroup("/a/b", "0-3\n", "\n");
            let mut actuator = host.actuator();
            let done = apply_plan(&plan([set_mems("/a/b", "1"), set_cpus("/a/b", "2-3")]), &mut actuator);
            assert_eq!(results(&done), [&applied("1"), &applied("2-3")]);
            assert_eq!(host.read("/a/b", "cpuset.cpus"), "2-3");
            let originals: Vec<_> =
                actuator.journal().entries().values().map(|entry| entry.original.as_str()).collect();
            assert_eq!(originals, if v2 { vec!["\n", "0-3\n"] } else { vec!["\n", "0-3\n", "0\n"] });
            if !v2 {
                assert_eq!(host.read("/a/b", "cpuset.memory_migrate"), "1");
            }
        }
    }

    #[test]
    fn what_is_already_so_is_not_written() {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-1,2-3\n", "1\n");
        let mut actuator = host.actuator();
        let done = apply_plan(&plan([set_cpus("/a", "0-3")]), &mut actuator);
        assert_eq!(host.read("/a", "cpuset.cpus"), "0-1,2-3\n");
        assert!(actuator.journal().entries().is_empty());
        assert_eq!(results(&done), [&applied("0-1,2-3")]);
    }

    #[test]
    fn a_dry_run_writes_nothing() {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-3\n", "0-1\n");
        let before = host.contents();
        let done = apply_plan(&plan([set_mems("/a", "1")]), &mut DryRunActuator);
        assert_eq!(results(&done), [&OutcomeResult::DryRun]);
        assert_eq!(host.contents(), before);
    }

    #[test]
    fn a_failed_step_takes_back_its_workload_and_leaves_the_others() {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-3\n", "0-1\n");
        host.cgroup("/b", "0-3\n", "0-1\n");
        fs::remove_file(host.path("/a").join("cpuset.cpus")).unwrap();
        let before = host.contents();
        let steps = [set_mems("/a", "1"), set_mems("/b", "1"), set_cpus("/a", "2-3"), set_mems("/a", "0")];
        let done = apply_plan(&plan(steps), &mut host.actuator());
        let results = results(&done);
        assert_eq!(results[0], &OutcomeResult::RolledBack { because: "step 3 failed".into(), error: None });
        assert_eq!(results[1], &applied("1"));
        assert!(
            matches!(results[2], OutcomeResult::Failed { error } if error.contains("cpuset.cpus")),
            "{results:?}"
        );
        assert_eq!(results[3], &OutcomeResult::Skipped { because: "step 3 failed".into() });
        assert!(!host.path("/a").join("cpuset.cpus").exists(), "a missing file must not be made");
        let changed: Vec<_> = before
            .into_iter()
            .zip(host.contents())
            .filter(|(was, is)| was != is)
            .map(|pair| pair.1.0)
            .collect();
        assert_eq!(changed, [host.path("/b").join("cpuset.mems")]);
    }

    #[test]
    fn writes_of_one_file_are_taken_back_in_reverse() {
        let host = Fixture::new(false);
        host.cgroup("/a", "0-3\n", "0\n");
        fs::remove_file(host.path("/a").join("cpuset.cpus")).unwrap();
        let before = host.contents();
        let steps = [set_mems("/a", "0-1"), set_mems("/a", "1"), set_cpus("/a", "2-3")];
        apply_plan(&plan(steps), &mut host.actuator());
        assert_eq!(host.contents(), before);
    }

    #[test]
    fn another_value_in_effect_is_a_difference_and_is_taken_back() {
        let host = Fixture::new(true);
        host.cgroup("/a", "\n", "\n");
        fs::write(host.path("/a").join("cpuset.cpus.effective"), "0-1\n").unwrap();
        let before = host.contents();
        let mut actuator = host.actuator();
        let done = apply_plan(&plan([set_cpus("/a", "1-2")]), &mut actuator);
        let differs = OutcomeResult::Differs {
            wanted: "1-2".into(),
            read_back: "1-2, in effect: 0-1; taken back".into(),
        };
        assert_eq!(results(&done), [&differs]);
        assert_eq!(host.contents(), before);
        assert!(
            actuator.journal().entries().is_empty(),
            "restore must not undo what others write from now on"
        );
    }

    #[test]
    fn an_earlier_plans_original_outlives_a_rollback() {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-3\n", "0-1\n");
        let mut actuator = host.actuator();
        apply_plan(&plan([set_mems("/a", "1")]), &mut actuator);
        fs::remove_file(host.path("/a").join("cpuset.cpus")).unwrap();
        apply_plan(&plan([set_mems("/a", "0"), set_cpus("/a", "1")]), &mut actuator);
        let originals: Vec<_> = actuator.journal().entries().values().map(|entry| &entry.original).collect();
        assert_eq!(originals, ["0-1\n"]);
    }

    #[test]
    fn hostile_paths_are_refused_and_nothing_is_written() {
        let host = Fixture::new(true);
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("cpuset.cpus"), "0-3\n").unwrap();
        host.cgroup("/a", "0-3\n", "0\n");
        symlink(outside.path(), host.path("/link")).unwrap();
        fs::remove_file(host.path("/a").join("cpuset.mems")).unwrap();
        symlink(outside.path().join("cpuset.cpus"), host.path("/a").join("cpuset.mems")).unwrap();
        let up = format!("/a/../../..{}", outside.path().display());
        let actions: Vec<Action> = vec![
            set_cpus(&up, "1"),
            set_cpus("/link", "1"),
            set_mems("/a", "1"),
            set_cpus("/", "1"),
            set_cpus("/gone", "1"),
            set_cpus("/nul\0byte", "1"),
        ];
        let done = apply_plan(&plan(actions), &mut host.actuator());
        for outcome in &done.outcomes {
            let cgroup = outcome.step.action.cgroup().as_str();
            // A cgroup that is not there has ended; `..` never leaves the hierarchy.
            let ended = cgroup == "/gone" || cgroup == CgroupPath::new(&up).as_str();
            let refused = matches!(outcome.result, OutcomeResult::Failed { .. });
            assert!(if ended { outcome.result == OutcomeResult::Gone } else { refused }, "{outcome:?}");
        }
        assert_eq!(fs::read_to_string(outside.path().join("cpuset.cpus")).unwrap(), "0-3\n");
    }

    #[test]
    fn an_empty_set_is_never_written() {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-3\n", "0\n");
        let before = host.contents();
        let done = apply_plan(&plan([set_cpus("/a", "")]), &mut host.actuator());
        assert!(matches!(done.outcomes[0].result, OutcomeResult::Failed { .. }));
        assert_eq!(host.contents(), before);
    }

    /// Is told to stop after one step.
    #[derive(Default)]
    struct Stopped {
        steps: usize,
    }

    impl Actuator for Stopped {
        fn is_stopped(&self) -> bool {
            self.steps == 1
        }

        fn apply(&mut self, _step: &Step) -> StepEffect {
            self.steps += 1;
            StepEffect { result: applied("some"), undo: Vec::new(), next: Next::Continue }
        }

        fn undo(&mut self, undo: &Undo) -> Result<(), String> {
            panic!("nothing is to be taken back: {undo:?}");
        }
    }

    #[test]
    fn a_stop_ends_the_plan_between_two_steps_and_takes_nothing_back() {
        let steps = [set_mems("/a", "0-1"), set_mems("/a", "1"), set_mems("/b", "1")];
        let done = apply_plan(&plan(steps), &mut Stopped::default());
        let skipped = OutcomeResult::Skipped { because: "the daemon is told to end".into() };
        assert_eq!(results(&done), [&applied("some"), &skipped, &skipped]);
        assert_eq!(done.unfinished, [CgroupPath::new("/a"), CgroupPath::new("/b")].into());
    }

    #[test]
    fn what_is_newer_than_the_plan_is_not_written_over() {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-3\n", "0-1\n");
        host.cgroup("/b", "0-3\n", "0-1\n");
        let steps = [set_mems("/a", "1"), set_cpus("/b", "3"), set_cpus("/a", "2-3"), set_mems("/b", "1")];
        let wanted = Plan { groups: vec![["/a", "/b"].map(CgroupPath::new).into()], ..plan(steps) };
        let mut actuator = host.actuator();
        // Once the first step is written.
        let settled = |cgroup: &CgroupPath| cgroup.as_str() == "/a" && host.read("/a", "cpuset.mems") == "1";
        let done = apply_plan_beside(&wanted, &mut actuator, &settled);
        let because = "a container runtime was told something newer; goes on with the next turn";
        let skipped = OutcomeResult::Skipped { because: because.into() };
        assert_eq!(results(&done), [&applied("1"), &applied("3"), &skipped, &applied("1")]);
        assert_eq!(host.read("/a", "cpuset.cpus"), "0-3\n");
        assert_eq!(done.unfinished, [CgroupPath::new("/a")].into());
    }

    #[test]
    fn a_group_that_is_taken_back_leaves_what_a_runtime_was_told_meanwhile() {
        let host = Fixture::new(true);
        for path in ["/s", "/t", "/a"] {
            host.cgroup(path, "0-7\n", "0\n");
        }
        fs::write(host.path("/a").join("cpuset.cpus.effective"), "0\n").unwrap();
        let steps = [set_cpus("/s", "2-7"), set_cpus("/t", "2-7"), set_cpus("/a", "0-1")];
        let group = ["/s", "/t", "/a"].map(CgroupPath::new).into();
        let wanted = Plan { groups: vec![group], ..plan(steps) };
        // Before the last step an answer gives 2-3 to another container, and the runtime writes /s as it was
        // told.
        let told = Cell::new(false);
        let settled = |cgroup: &CgroupPath| {
            if cgroup.as_str() == "/a" && !told.replace(true) {
                fs::write(host.path("/s").join("cpuset.cpus"), "4-7\n").unwrap();
            }
            cgroup.as_str() == "/s" && told.get()
        };
        let mut actuator = host.actuator();
        let done = apply_plan_beside(&wanted, &mut actuator, &settled);
        assert_eq!(host.read("/s", "cpuset.cpus"), "4-7\n");
        assert_eq!(["/t", "/a"].map(|path| host.read(path, "cpuset.cpus")), ["0-7\n", "0-7\n"]);
        let because = "step 3 failed; not taken back: a container runtime was told something newer";
        assert_eq!(results(&done)[0], &OutcomeResult::Skipped { because: because.into() });
        let because = "step 3 failed".to_owned();
        assert_eq!(results(&done)[1], &OutcomeResult::RolledBack { because, error: None });
        assert!(matches!(results(&done)[2], OutcomeResult::Differs { .. }), "{done:?}");
        assert_eq!(done.unfinished, [CgroupPath::new("/s")].into());
        let open: Vec<_> = actuator.journal().entries().keys().map(|key| key.cgroup.as_str()).collect();
        assert_eq!(open, ["/s"], "its original can be put back");
    }

    #[test]
    fn a_failed_step_of_one_of_whom_a_runtime_was_told_meanwhile_is_not_taken_back() {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-7\n", "0\n");
        fs::write(host.path("/a").join("cpuset.cpus.effective"), "0\n").unwrap();
        let settled = |_: &CgroupPath| host.read("/a", "cpuset.cpus") == "0-1";
        let done = apply_plan_beside(&plan([set_cpus("/a", "0-1")]), &mut host.actuator(), &settled);
        let read_back = "0-1, in effect: 0; not taken back: a container runtime was told something newer";
        let differs = OutcomeResult::Differs { wanted: "0-1".into(), read_back: read_back.into() };
        assert_eq!(results(&done), [&differs]);
        assert_eq!(host.read("/a", "cpuset.cpus"), "0-1");
    }

    /// Says of every step that there is more to do.
    struct Endless;

    impl Actuator for Endless {
        fn apply(&mut self, _step: &Step) -> StepEffect {
            StepEffect { result: applied("some"), undo: Vec::new(), next: Next::Pause }
        }

        fn undo(&mut self, undo: &Undo) -> Result<(), String> {
            panic!("nothing is to be taken back: {undo:?}");
        }
    }

    #[test]
    fn a_step_that_is_not_finished_ends_its_workload_for_now() {
        let steps = [set_mems("/a", "0-1"), set_mems("/a", "1"), set_mems("/b", "1")];
        let done = apply_plan(&plan(steps), &mut Endless);
        assert!(matches!(results(&done)[1], OutcomeResult::Skipped { .. }), "{done:?}");
        assert_eq!(results(&done)[2], &applied("some"));
        assert_eq!(done.unfinished, [CgroupPath::new("/a"), CgroupPath::new("/b")].into());
    }
}
