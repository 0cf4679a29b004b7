use super::*;
use crate::{scene::Scene, workload::identify};
use numa_topology::synth::Machine;

fn scene() -> Scene {
    Scene::new(Machine::new().sockets(2).threads(1).build())
}

fn positions(scene: &Scene) -> Vec<Option<usize>> {
    let found = scene.declarations();
    let rule = |one: &Workload| found.rule(&scene.policy, &one.cgroup).map(|(position, _)| position);
    scene.workloads.iter().map(rule).collect()
}

#[test]
fn a_process_counts_by_its_name_and_a_thread_does_not() {
    let scene = scene()
        .workload("/a", "0-7", "0-1")
        .thread("/a", 10, "0-7", 0, (0, 1))
        .workload("/b", "0-7", "0-1")
        .thread("/b", 20, "0-7", 0, (0, 1))
        .declares("command = 'work*'\ncpus = 1");
    assert_eq!(positions(&scene), [Some(0), Some(0)]);
    let mut threads = scene;
    for task in &mut threads.now.tasks {
        task.pid = 1;
    }
    assert_eq!(positions(&threads), [None, None]);
}

#[test]
fn entry_without_a_match_is_listed() {
    let scene = scene()
        .workload("/a", "0-7", "0-1")
        .workload("/b", "0-7", "0-1")
        .declares("cgroup = '/*'\nenforce = false")
        .declares("cgroup = '/none'\ncpus = 1");
    let entries = scene.declarations().entries(&scene.policy, &scene.workloads);
    let told =
        |entry: &DeclaredEntry| (entry.enforce, entry.workloads.iter().map(ToString::to_string).collect());
    let told: Vec<(bool, Vec<String>)> = entries.iter().map(told).collect();
    assert_eq!(told, [(false, vec!["/a".into(), "/b".into()]), (true, Vec::new())]);
}

#[test]
fn a_container_has_the_names_that_its_runtime_told() {
    let path = "/kubepods/podweb/id";
    let mut scene =
        scene().workload(path, "0-7", "0-1").declares("labels = { app = 'web' }\nenforce = false");
    scene.workloads[0].origin = identify(&CgroupPath::new(path)).origin;
    assert_eq!(positions(&scene), [None]);
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    scene.facts.containers.insert("id".into(), KnownContainer { labels, ..KnownContainer::default() });
    assert_eq!(positions(&scene), [Some(0)]);
    let found = scene.declarations();
    assert!(found.opts_out(&CgroupPath::new(path)) && !found.asks_for(&CgroupPath::new(path)));
}

#[test]
fn entry_with_processes_in_cgroups_below_names_the_matching_pattern() {
    let machine = Machine::new().sockets(2).build();
    let scene = Scene::new(machine)
        .workload("/box/db", "0-1", "0")
        .workload("/box/web", "0-1", "0")
        .declared("/box", 2, None)
        .declared("/absent", 2, None);
    let entries = scene.declarations().entries(&scene.policy, &scene.workloads);
    assert_eq!(
        entries[0].below.as_deref(),
        Some(
            "its processes are in cgroups below /box (/box/db and 1 more), which cgroup = \"/box/**\" matches"
        )
    );
    assert_eq!(entries[1].below, None);
    let matched =
        Scene { policy: Scene::new(scene.machine.clone()).declared("/box/**", 2, None).policy, ..scene };
    let entries = matched.declarations().entries(&matched.policy, &matched.workloads);
    assert_eq!((entries[0].workloads.len(), &entries[0].below), (2, &None));
}

#[test]
fn what_is_said_of_a_cgroup_counts_for_those_below_it() {
    let scene = |file: &str, rule: &str| {
        let mut scene = Scene::new(Machine::new().sockets(2).build())
            .workload("/db", "0-1", "0")
            .workload("/db/worker", "0-1", "0")
            .declares(&format!("cgroup = '/db'\nself_placement = '{rule}'"));
        scene.policy.self_placement =
            if file == "override" { SelfPlacement::Override } else { SelfPlacement::Respect };
        scene
    };
    for (file, rule, respects) in [("override", "respect", true), ("respect", "override", false)] {
        let scene = scene(file, rule);
        let of = |path| scene.declarations().respects_self_placement(&scene.policy, &CgroupPath::new(path));
        assert_eq!((of("/db"), of("/db/worker")), (respects, respects), "{file} {rule}");
        assert_eq!(of("/other"), file == "respect");
    }
}

#[test]
fn an_entry_behind_a_wider_one_says_which_entry_has_what_it_names() {
    let scene = scene()
        .workload("/a", "0-7", "0-1")
        .workload("/a/w", "0-7", "0-1")
        .declares("cgroup = '/a*'\ncpus = 1")
        .declares("cgroup = '/a'\ncpus = 1");
    let entries = scene.declarations().entries(&scene.policy, &scene.workloads);
    let name = &scene.policy.workloads[0].name;
    let said = format!("/a is of the entry {name:?}, which comes first");
    assert_eq!(entries[1].below.as_deref(), Some(said.as_str()));
}
