use enforcer_core::plan::{Action, Step};
use proptest::prelude::*;

use super::*;
use crate::{
    fixture::{Fixture, plan, set_cpus, set_mems},
    journal::EntryKey,
    step_effect::StepEffect,
};

const GROUP: [&str; 4] = ["/a", "/b", "/c", "/d"];

/// CPUs that are exclusive, by workload.
struct Exclusive(BTreeMap<CgroupPath, CpuSet>);

impl CurrentClaims for Exclusive {
    fn is_overtaken(&self, _cgroup: &CgroupPath) -> bool {
        false
    }

    fn exclusive_to(&self, cpus: Option<&CpuSet>, among: &BTreeSet<&CgroupPath>) -> Option<String> {
        let mut others = self.0.iter().filter(|(cgroup, _)| !among.contains(cgroup));
        let is_hit = |own: &CpuSet| cpus.map_or(!own.is_empty(), |cpus| !cpus.is_disjoint(own));
        others.find(|(_, own)| is_hit(own)).map(|(cgroup, _)| cgroup.to_string())
    }
}

/// What each workload is set to.
struct Files(BTreeMap<CgroupPath, CpuSet>);

impl Actuator for Files {
    fn apply(&mut self, _step: &Step) -> StepEffect {
        panic!("everything is applied already")
    }

    fn undo(&mut self, undo: &Undo) -> Result<(), String> {
        self.0.insert(undo.key.cgroup.clone(), undo.before.parse().unwrap());
        Ok(())
    }
}

fn cpus_of(bits: u8) -> CpuSet {
    (0..8).filter(|cpu| bits & (1 << cpu) != 0).map(numa_topology::id::CpuId).collect()
}

proptest! {
    #[test]
    fn nothing_is_taken_back_onto_cpus_that_are_exclusive_to_another(
        // Each CPU is exclusive to one of the group, to an outsider, or to none.
        owners in prop::collection::vec(0usize..6, 8),
        before in prop::collection::vec(1u8.., 4),
        // Number of workloads of the group with steps applied before one failed.
        begun in 1usize..=4,
    ) {
        let owned_by = |owner: usize| -> u8 {
            (0..8).filter(|cpu| owners[*cpu] == owner).fold(0, |bits, cpu| bits | (1 << cpu))
        };
        let paths = GROUP.map(CgroupPath::new);
        let outsider = owned_by(4);
        let mut exclusive: BTreeMap<_, _> =
            paths.iter().enumerate().map(|(at, path)| (path.clone(), cpus_of(owned_by(at)))).collect();
        let given = exclusive.clone();
        exclusive.insert(CgroupPath::new("/outsider"), cpus_of(outsider));
        let undo: Vec<_> = paths
            .iter()
            .enumerate()
            .take(begun)
            .map(|(at, path)| {
                let key = EntryKey { cgroup: path.clone(), file: ManagedFile::Cpus, inode: 1 };
                (at, Undo { key, before: cpus_of(before[at]).to_string() })
            })
            .collect();
        let has = |at: usize| if at < begun { given[&paths[at]].clone() } else { cpus_of(before[at]) };
        let mut files = Files(paths.iter().enumerate().map(|(at, path)| (path.clone(), has(at))).collect());
        let failed =
            Failed { index: 4, because: "step 5 failed".into(), group: paths.iter().collect() };
        let mut outcomes: Vec<Outcome> = GROUP
            .iter()
            .map(|path| {
                let step = Step { action: set_cpus(path, "0"), reason: String::new() };
                Outcome { step, result: OutcomeResult::Applied { read_back: String::new() } }
            })
            .collect();
        let unfinished = roll_back(undo, &failed, &mut files, &Exclusive(exclusive), &mut outcomes);
        prop_assert!(unfinished.is_empty());
        let is_kept = |at: usize| matches!(outcomes[at].result, OutcomeResult::Skipped { .. });
        for (at, path) in paths.iter().enumerate() {
            let set_to = &files.0[path];
            if is_kept(at) {
                prop_assert_eq!(set_to, &given[path]);
                continue;
            }
            prop_assert_eq!(set_to, &cpus_of(before[at]));
            if at >= begun {
                continue;
            }
            prop_assert!(set_to.is_disjoint(&cpus_of(outsider)));
            for other in (0..4).filter(|other| *other != at && is_kept(*other)) {
                prop_assert!(set_to.is_disjoint(&given[&paths[other]]), "{:?}", outcomes);
            }
        }
        // Without the outsider the group returns as a whole.
        if before.iter().take(begun).all(|bits| bits & outsider == 0) {
            prop_assert!((0..4).all(|at| !is_kept(at)), "{:?}", outcomes);
        }
    }
}

#[test]
fn a_workload_whose_cpus_are_exclusive_by_now_keeps_what_it_was_given() {
    for before in ["0-7\n", "\n"] {
        let host = Fixture::new(true);
        host.cgroup("/a", before, "0\n");
        host.cgroup("/b", "0-3\n", "0\n");
        std::fs::remove_file(host.path("/b").join("cpuset.cpus")).unwrap();
        let steps: [Action; 4] =
            [set_mems("/a", "0-1"), set_cpus("/a", "4-7"), set_mems("/b", "1"), set_cpus("/b", "1")];
        let group = ["/a", "/b"].map(CgroupPath::new).into();
        let wanted = enforcer_core::plan::Plan { groups: vec![group], ..plan(steps) };
        let exclusive = Exclusive([(CgroupPath::new("/new"), "0-1".parse().unwrap())].into());
        let mut actuator = host.actuator();
        let done = crate::apply_plan_beside(&wanted, &mut actuator, &exclusive);
        assert_eq!(["cpuset.cpus", "cpuset.mems"].map(|file| host.read("/a", file)), ["4-7", "0-1"]);
        assert_eq!(host.read("/b", "cpuset.mems"), "0\n", "its own is taken back");
        assert!(done.unfinished.is_empty(), "it is not gone on with at once: {done:?}");
        let had = if before == "\n" { "all CPUs" } else { "CPUs 0-7" };
        let because =
            format!("step 4 failed; not taken back: of {had}, which it had, some are exclusive to /new");
        for outcome in done.outcomes.iter().take(2) {
            assert_eq!(outcome.result, OutcomeResult::Skipped { because: because.clone() });
        }
        let open: Vec<_> = actuator.journal().entries().keys().map(|key| key.cgroup.as_str()).collect();
        assert_eq!(open, ["/a", "/a"], "restore puts its originals back");
    }
}
