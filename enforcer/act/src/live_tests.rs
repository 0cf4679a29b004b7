//! Against the kernel's own cpuset files: only they refuse what does not fit.

use std::{fs, path::PathBuf};

use enforcer_core::plan::{Action, Outcome, OutcomeResult};

use super::{
    Journal, LiveActuator, apply_plan,
    cpuset::CpusetTree,
    fixture::{plan, set_cpus, set_mems},
    pages::{PageBudget, PageMoveLimits, Stop},
    restore::restore,
};
use enforcer_host::{HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::linux::Linux;

/// A cgroup of our own with one below it, removed at the end.
struct Scratch {
    layout: CgroupLayout,
    name: String,
    state: tempfile::TempDir,
}

impl Scratch {
    /// `None`, with the reason printed, where there is nothing to test against.
    fn new(test: &str) -> Option<Self> {
        let skip = |reason: &str| println!("skipped: {reason}");
        let layout = CgroupLayout::read(&HostRoot::live()).map_err(|error| skip(&error.to_string())).ok()?;
        let name = format!("/numa-enforcer-test-{test}-{}", std::process::id());
        let scratch = Self { layout, name, state: tempfile::tempdir().unwrap() };
        if let Err(error) = fs::create_dir_all(scratch.dir("/below")) {
            skip(&format!("cannot make a cgroup (not root?): {error}"));
            return None;
        }
        if !scratch.dir("/below").join("cpuset.cpus").exists() {
            skip("the cpuset controller is not enabled at the root");
            return None;
        }
        if fs::read_to_string(scratch.layout.cpuset.path.as_path().join("cpuset.cpus")).ok()?.trim() == "0" {
            skip("one CPU");
            return None;
        }
        Some(scratch)
    }

    fn dir(&self, below: &str) -> PathBuf {
        self.layout.cpuset.path.as_path().join(&self.name[1..]).join(below.trim_start_matches('/'))
    }

    fn cgroup(&self, below: &str) -> String {
        format!("{}{below}", self.name)
    }

    fn set(&self, below: &str, file: &str, value: &str) {
        fs::write(self.dir(below).join(file), value).unwrap();
    }

    fn contents(&self) -> Vec<String> {
        ["", "/below"]
            .into_iter()
            .flat_map(|below| {
                ["cpuset.cpus", "cpuset.mems", "cpuset.memory_migrate"].map(|file| (below, file))
            })
            .map(|(below, file)| fs::read_to_string(self.dir(below).join(file)).unwrap_or_default())
            .collect()
    }

    fn apply(&self, actions: impl IntoIterator<Item = Action>) -> Vec<Outcome> {
        let journal = Journal::open(self.state.path()).unwrap();
        let mut actuator = LiveActuator::new(
            &HostRoot::live(),
            &self.layout,
            journal,
            Box::new(Linux),
            PageBudget::new(PageMoveLimits::default(), Stop::default()),
        );
        apply_plan(&plan(actions), &mut actuator).outcomes
    }

    fn restore(&self) {
        let tree = CpusetTree::new(&self.layout.cpuset.path, self.layout.cpuset.v2);
        let mut journal = Journal::open(self.state.path()).unwrap();
        let report = restore(&tree, None, &mut journal);
        assert!(report.is_complete(), "{report:?}");
        assert!(journal.entries().is_empty());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for below in ["/below", ""] {
            if let Err(error) = fs::remove_dir(self.dir(below)) {
                println!("{}: {error}", self.dir(below).display());
            }
        }
    }
}

#[test]
fn an_empty_cpuset_is_set_and_emptied_again() {
    let Some(scratch) = Scratch::new("empty") else { return };
    let before = scratch.contents();
    let top = scratch.cgroup("");
    let outcomes = scratch.apply([set_mems(&top, "0"), set_cpus(&top, "1")]);
    for outcome in &outcomes {
        assert!(matches!(outcome.result, OutcomeResult::Applied { .. }), "{outcome:?}");
    }
    assert_ne!(scratch.contents(), before);
    scratch.restore();
    assert_eq!(scratch.contents(), before);
}

#[test]
fn two_levels_are_put_back_in_an_order_that_the_kernel_takes() {
    let Some(scratch) = Scratch::new("order") else { return };
    let (top, below) = (scratch.cgroup(""), scratch.cgroup("/below"));
    // Wide to narrow, and disjoint: {0} to {1} on both levels.
    for (originals, steps) in [
        ("0-1", [set_cpus(&below, "0"), set_cpus(&top, "0")]),
        ("0", [set_cpus(&top, "0-1"), set_cpus(&below, "1")]),
    ] {
        scratch.set("", "cpuset.cpus", "0-1");
        scratch.set("/below", "cpuset.cpus", originals);
        scratch.set("", "cpuset.cpus", originals);
        let before = scratch.contents();
        for outcome in scratch.apply(steps) {
            assert!(matches!(outcome.result, OutcomeResult::Applied { .. }), "{outcome:?}");
        }
        if originals == "0" {
            let outcome = scratch.apply([set_cpus(&top, "1")]).remove(0);
            assert!(matches!(outcome.result, OutcomeResult::Applied { .. }), "{outcome:?}");
        }
        assert_ne!(scratch.contents(), before);
        scratch.restore();
        assert_eq!(scratch.contents(), before);
    }
}

#[test]
fn what_the_kernel_refuses_is_said_and_the_earlier_steps_are_taken_back() {
    let Some(scratch) = Scratch::new("refused") else { return };
    let before = scratch.contents();
    let top = scratch.cgroup("");
    let outcomes = scratch.apply([set_mems(&top, "0"), set_cpus(&top, "8000")]);
    assert!(matches!(outcomes[0].result, OutcomeResult::RolledBack { error: None, .. }), "{outcomes:?}");
    assert!(
        matches!(&outcomes[1].result, OutcomeResult::Failed { error }
            if error.contains("cpuset.cpus") && error.contains("8000")),
        "{outcomes:?}"
    );
    assert_eq!(scratch.contents(), before);
}
