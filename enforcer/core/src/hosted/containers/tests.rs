//! Containers that are created, changed, ended and reported again.

use proptest::prelude::*;

use super::*;
use crate::policy::placement::TopologyPolicy;
use numa_placement::{
    ContainerRequest,
    foreign::DECISION,
    samples::{GIB, Host, container, pod, policy},
    settings::Profile,
};
use numa_topology::synth::Machine;

/// A host and its containers.
struct Scene {
    host: Host,
    containers: Containers,
}

impl Scene {
    /// Two nodes of 8 CPUs (0-7, 8-15) and 16 GiB.
    fn new() -> Self {
        let machine = Machine::new().sockets(2).cores(8).threads(1).build();
        let hints = policy(TopologyPolicy::SingleNumaNode);
        Self { host: Host::new(machine, hints), containers: Containers::default() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> T) -> T {
        let Host { inventory, settings, allocations } = &mut self.host;
        act(&mut self.containers, &mut PlacementNode { inventory, settings, allocations })
    }

    fn create(&mut self, pod: &str, id: &str, asked: ContainerRequest) -> CallOutcome {
        let new = announced(pod, id, asked, None);
        self.with(|containers, node| containers.create(node, &new))
    }

    fn resize(&mut self, pod: &str, id: &str, asked: ContainerRequest) -> CallOutcome {
        let changed = announced(pod, id, asked, None);
        self.with(|containers, node| containers.resize(node, changed))
    }

    fn synchronize(&mut self, all: Vec<Announced>) -> CallOutcome {
        self.with(|containers, node| containers.synchronize(node, all, &BTreeSet::new()))
    }

    fn end(&mut self, id: &str) -> CallOutcome {
        self.with(|containers, node| containers.end(node, id))
    }

    fn cpus(&mut self, id: &str) -> String {
        let cpuset = self.with(|containers, node| containers.cpuset(node, id));
        cpuset.map(|cpuset| text(&cpuset)).unwrap_or_default()
    }
}

fn announced(name: &str, id: &str, asked: ContainerRequest, now: Option<&str>) -> Announced {
    let cgroup = Some(CgroupPath::new(&format!("/kubepods/{name}/{id}")));
    let now = Cpuset { cpus: now.map(|cpus| cpus.parse().unwrap()), mems: None };
    Announced {
        id: id.into(),
        cgroup,
        pod: pod(name, vec![asked]),
        now,
        shown: None,
        given: None,
        named_claims: BTreeSet::new(),
        claimed: None,
        opts_out: false,
    }
}

/// The same with an annotation by which a scheduler has chosen these CPUs.
fn decided(name: &str, id: &str, asked: ContainerRequest, cpus: &str) -> Announced {
    let containers = serde_json::json!({&*asked.name: {"cpus": cpus, "nodes": ""}});
    let mut new = announced(name, id, asked, None);
    let decision = serde_json::json!({"node": "n", "containers": containers}).to_string();
    new.pod.annotations.insert(DECISION.into(), decision);
    new
}

fn text(cpuset: &Cpuset) -> String {
    let part = |set: Option<String>| set.unwrap_or_else(|| "-".into());
    let mems = part(cpuset.mems.as_ref().map(ToString::to_string));
    format!("{}/{mems}", part(cpuset.cpus.as_ref().map(ToString::to_string)))
}

fn others(settled: &CallOutcome) -> Vec<(String, String)> {
    settled.others.iter().map(|(id, cpuset)| (id.clone(), text(cpuset))).collect()
}

fn whole(cpus: u64) -> ContainerRequest {
    container("main", cpus * 1000, GIB)
}

fn burstable(name: &str, milli: u64) -> ContainerRequest {
    container(name, milli, 0).without_limits()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, cpus)| ((*id).to_owned(), (*cpus).to_owned())).collect()
}

#[test]
fn each_container_gets_its_own_and_others_shrink_and_grow() {
    let mut scene = Scene::new();
    let shared = scene.create("shared", "s1", burstable("main", 500));
    assert_eq!((text(&shared.own).as_str(), others(&shared)), ("0-7/0", vec![]));
    let first = scene.create("first", "a1", whole(4));
    assert_eq!(text(&first.own), "0-3/0");
    assert_eq!(others(&first), pairs(&[("s1", "4-7/-")]));
    let second = scene.create("second", "b1", whole(8));
    assert_eq!(text(&second.own), "8-15/1");
    assert_eq!(others(&second), vec![]);
    let ended = scene.end("a1");
    assert_eq!((text(&ended.own).as_str(), others(&ended)), ("-/-", pairs(&[("s1", "0-7/-")])));
    assert_eq!(scene.end("a1"), CallOutcome::default());
}

#[test]
fn containers_of_one_pod_come_one_after_another_and_keep_what_they_have() {
    let mut scene = Scene::new();
    let first = scene.create("p", "one", ContainerRequest { name: "one".into(), ..whole(2) });
    let second = scene.create("p", "two", ContainerRequest { name: "two".into(), ..whole(3) });
    assert_eq!((text(&first.own), text(&second.own)), ("0-1/0".into(), "2-4/0".into()));
    assert_eq!(others(&second), vec![]);
    // The first ends; the second keeps its CPUs.
    assert_eq!(others(&scene.end("one")), vec![]);
    assert_eq!(scene.cpus("two"), "2-4/0");
    assert_eq!(scene.host.allocations.iter().count(), 1);
    scene.end("two");
    assert_eq!(scene.host.allocations.iter().count(), 0);
}

#[test]
fn a_container_that_is_restarted_has_another_id_and_what_it_had() {
    let mut scene = Scene::new();
    scene.create("other", "x", whole(2));
    scene.create("p", "old", whole(4));
    assert_eq!(scene.cpus("old"), "2-5/0");
    // The end of the old one was not reported.
    let again = scene.create("p", "new", whole(4));
    assert_eq!((text(&again.own), scene.cpus("old")), ("2-5/0".into(), String::new()));
    assert_eq!(scene.end("old"), CallOutcome::default());
    assert_eq!(scene.host.allocations.iter().count(), 2);
}

#[test]
fn reused_container_id_leaves_no_old_grant() {
    let mut scene = Scene::new();
    scene.create("a", "x", whole(2));
    scene.create("b", "x", whole(2));
    assert_eq!(scene.host.allocations.iter().count(), 1);
    scene.end("x");
    assert_eq!(scene.host.allocations.iter().count(), 0);
}

#[test]
fn a_pod_that_is_made_again_does_not_touch_what_the_one_before_still_has() {
    let of = |uid: &str, id: &str| {
        let new = announced("web-0", id, whole(4), None);
        Announced { pod: PodRequest { name: new.pod.name.clone().with_uid(uid), ..new.pod }, ..new }
    };
    let mut scene = Scene::new();
    let (old, new) = (of("one", "old"), of("two", "new"));
    scene.with(|containers, node| containers.create(node, &old));
    let made = scene.with(|containers, node| containers.create(node, &new));
    assert_eq!((text(&made.own).as_str(), others(&made)), ("4-7/0", vec![]));
    assert_eq!((scene.cpus("old").as_str(), scene.host.allocations.iter().count()), ("0-3/0", 2));
    scene.end("old");
    assert_eq!((scene.cpus("old"), scene.cpus("new")), (String::new(), "4-7/0".into()));
    // The CPUs of the old one are free, and no others.
    assert_eq!(text(&scene.create("other", "x", whole(4)).own), "0-3/0");
    // Both exist when the runtime lists its containers.
    let both = vec![of("one", "old"), new];
    scene.synchronize(both);
    assert_eq!((scene.cpus("new"), scene.cpus("old")), ("4-7/0".into(), "0-3/0".into()));
    assert_eq!(scene.host.allocations.iter().count(), 2);
    let shown: Vec<String> = scene.host.allocations.iter().map(|(holder, _)| holder.to_string()).collect();
    assert_eq!(shown, ["default/web-0/main"; 2], "the uid is for us alone");
}

#[test]
fn replaced_container_keeps_its_grant_while_a_process_runs() {
    for (asked, own) in [(4, "4-7/0"), (2, "4-5/0"), (8, "8-15/1")] {
        let mut scene = Scene::new();
        scene.create("web-0", "old", whole(4));
        let before = scene.with(|containers, node| containers.record(node.allocations, "old")).unwrap();
        let new = announced("web-0", "new", whole(asked), None);
        let namesake = scene.with(|containers, _| containers.namesake(&new).map(str::to_owned));
        assert_eq!(namesake.as_deref(), Some("old"));
        scene.with(|containers, node| {
            containers.depart("old");
            containers.set_apart(node.allocations, "old");
        });
        let made = scene.with(|containers, node| containers.create(node, &new));
        assert_eq!((text(&made.own).as_str(), others(&made)), (own, vec![]), "{asked} CPUs");
        let after = scene.with(|containers, node| containers.record(node.allocations, "old")).unwrap();
        assert_eq!((scene.cpus("old").as_str(), after), ("0-3/0", before), "the record is the same");
        let shown: Vec<String> =
            scene.host.allocations.iter().map(|(holder, _)| holder.to_string()).collect();
        assert_eq!(shown, ["default/web-0/main"; 2]);
        // Both stay when the runtime lists only the new one; the CPUs of the old one are free when it ends.
        scene.synchronize(vec![new]);
        assert_eq!((scene.cpus("old").as_str(), scene.cpus("new").as_str()), ("0-3/0", own));
        scene.end("old");
        assert_eq!((scene.cpus("old").as_str(), scene.cpus("new").as_str()), ("", own));
        scene.end("new");
        assert_eq!(scene.host.allocations.iter().count(), 0);
    }
}

#[test]
fn two_of_one_name_that_are_listed_have_cpus_of_their_own() {
    let old = announced("web-0", "old", whole(4), Some("0-3"));
    let new = announced("web-0", "new", whole(4), None);
    let mut scene = Scene::new();
    scene.synchronize(vec![new.clone(), old.clone()]);
    assert_eq!((scene.cpus("old").as_str(), scene.cpus("new").as_str()), ("0-3/0", "4-7/0"));
    let before = scene.host.allocations.clone();
    scene.synchronize(vec![old, new]);
    assert_eq!(scene.host.allocations, before);
}

#[test]
fn unplaced_container_runs_on_free_cpus_with_a_cause() {
    let mut scene = Scene::new();
    scene.create("a", "a1", whole(6));
    let refused = scene.create("big", "b1", whole(9));
    assert_eq!(text(&refused.own), "6-15/-");
    assert!(refused.rejections["b1"].to_string().contains("cpu"), "{:?}", refused.rejections);
    // It gives way like any other container.
    let next = scene.create("c", "c1", whole(8));
    assert_eq!((text(&next.own).as_str(), others(&next)), ("8-15/1", pairs(&[("b1", "6-7/-")])));
    // A second container of that pod finds a place; the first keeps its CPUs.
    let beside = scene.create("big", "b2", ContainerRequest { name: "side".into(), ..whole(1) });
    assert_eq!((text(&beside.own).as_str(), others(&beside)), ("6/0", pairs(&[("b1", "7/-")])));
}

#[test]
fn a_resize_that_does_not_fit_takes_nothing_away() {
    let mut scene = Scene::new();
    scene.create("a", "a1", whole(2));
    scene.create("b", "b1", whole(6));
    let same = scene.resize("a", "a1", whole(2));
    assert_eq!((text(&same.own).as_str(), same.rejections.len()), ("0-1/0", 0));
    let grown = scene.resize("a", "a1", whole(4));
    assert_eq!(text(&grown.own), "8-11/1");
    let refused = scene.resize("a", "a1", whole(9));
    assert_eq!((text(&refused.own).as_str(), refused.rejections.len()), ("8-11/1", 1));
    let back = scene.resize("a", "a1", whole(2));
    assert_eq!((text(&back.own).as_str(), back.rejections.len()), ("8-9/1", 0));
    assert_eq!(scene.resize("a", "never seen", whole(1)), CallOutcome::default());
}

#[test]
fn after_a_restart_nothing_that_is_valid_moves() {
    let mut scene = Scene::new();
    let all = vec![
        announced("new", "n", whole(4), None),
        announced("kept", "k", whole(2), Some("5-6")),
        announced("shared", "s", burstable("main", 100), Some("0-15")),
    ];
    let settled = scene.synchronize(all.clone());
    assert_eq!(scene.cpus("k"), "5-6/0");
    assert_eq!(others(&settled), pairs(&[("k", "-/0"), ("n", "0-3/0"), ("s", "4,7/0")]));
    let before = scene.host.allocations.clone();
    // The runtime reconnects: existing grants stay, whatever the runtime has stored.
    let again = scene.synchronize(all);
    assert_eq!((scene.host.allocations == before, again.others.len()), (true, 3));
    // A container that is not listed is removed.
    let left = vec![announced("kept", "k", whole(2), Some("5-6"))];
    scene.synchronize(left);
    assert_eq!(scene.host.allocations.iter().count(), 1);
}

fn cpuset(cpus: &str, mems: &str) -> Cpuset {
    Cpuset { cpus: cpus.parse().ok().filter(|set: &CpuSet| !set.is_empty()), mems: mems.parse().ok() }
}

#[test]
fn what_the_cgroup_shows_counts_more_than_what_the_runtime_has_stored() {
    let mut scene = Scene::new();
    let shown = |one: Announced, cpus| Announced { shown: Some(cpuset(cpus, "0")), ..one };
    // One got its CPUs in an answer that its runtime did not store, the other got none at its creation.
    let moved = shown(announced("a", "a", whole(2), Some("0-1")), "5-6");
    let late = shown(announced("b", "b", whole(2), None), "0-1");
    let settled = scene.synchronize(vec![moved, late]);
    assert_eq!((scene.cpus("a"), scene.cpus("b")), ("5-6/0".into(), "0-1/0".into()));
    // The runtime gets the cpuset, because it would write the stored one otherwise.
    assert_eq!(others(&settled), pairs(&[("a", "5-6/0"), ("b", "0-1/0")]));

    // The stored cpuset is right but the cgroup was changed: the cgroup is corrected too.
    let mut changed = announced("a", "a", whole(2), Some("5-6"));
    (changed.now.mems, changed.shown) = ("0".parse().ok(), Some(cpuset("4-7", "0")));
    let settled = scene.synchronize(vec![changed]);
    assert_eq!(others(&settled), pairs(&[("a", "5-6/-")]));
}

#[test]
fn every_container_of_a_pod_keeps_its_cpus_over_a_restart() {
    let mut scene = Scene::new();
    let named = |name: &str, asked| ContainerRequest { name: name.into(), ..asked };
    let all = vec![
        announced("p", "one", named("one", whole(2)), Some("5-6")),
        announced("p", "two", named("two", whole(2)), Some("1-2")),
    ];
    scene.synchronize(all);
    assert_eq!((scene.cpus("one"), scene.cpus("two")), ("5-6/0".into(), "1-2/0".into()));
}

/// The same host after a restart of the daemon, with only the records.
fn restarted(scene: &Scene) -> Scene {
    let records = scene.containers.records(&scene.host.allocations);
    let mut again = Scene::new();
    again.with(|containers, node| containers.expect(node.allocations, records));
    again
}

#[test]
fn recorded_grants_count_as_taken_until_the_runtime_lists_its_containers() {
    let mut scene = Scene::new();
    scene.create("a", "a", whole(2));
    scene.create("b", "b", whole(2));
    let mut again = restarted(&scene);
    assert_eq!(again.host.allocations.exclusive_cpus().to_string(), "0-3");
    assert!(again.containers.expects(&CgroupPath::new("/kubepods/a/a")));
    again.with(|containers, node| {
        containers.expect_only(node.allocations, |cgroup| *cgroup == CgroupPath::new("/kubepods/b/b"));
    });
    assert_eq!(again.host.allocations.exclusive_cpus().to_string(), "2-3");
    assert_eq!(text(&again.create("c", "c", whole(4)).own), "0-1,4-5/0");
    let b = Announced { shown: Some(cpuset("2-3", "0")), ..announced("b", "b", whole(2), None) };
    again.synchronize(vec![b]);
    assert_eq!((again.cpus("b"), again.host.allocations.iter().count()), ("2-3/0".into(), 1));
    assert!(!again.containers.expects(&CgroupPath::new("/kubepods/b/b")));
}

#[test]
fn pending_container_keeps_its_grant_until_it_is_created_or_ends() {
    let mut scene = Scene::new();
    scene.create("a", "a", whole(2));
    let a = CgroupPath::new("/kubepods/a/a");
    let awaiting = || {
        let mut again = restarted(&scene);
        // Another container is created with the CPUs that were granted to the pending one.
        let other = Announced { shown: Some(cpuset("0-1", "0")), ..announced("b", "b", whole(2), None) };
        let awaited = BTreeSet::from([a.clone()]);
        again.with(|containers, node| containers.synchronize(node, vec![other], &awaited));
        assert_eq!((again.cpus("b").as_str(), again.containers.expects(&a)), ("2-3/0", true));
        again
    };
    let mut comes = awaiting();
    let shown = Announced { shown: Some(cpuset("0-1", "0")), ..announced("a", "a", whole(2), None) };
    let settled = comes.with(|containers, node| containers.create(node, &shown));
    assert_eq!((text(&settled.own), comes.containers.expects(&a)), ("0-1/0".into(), false));
    assert_eq!(comes.host.allocations.exclusive_cpus().to_string(), "0-3");
    let mut ends = awaiting();
    ends.end("a");
    assert_eq!(ends.host.allocations.exclusive_cpus().to_string(), "2-3");
    let mut control = restarted(&scene);
    control.synchronize(Vec::new());
    assert!(!control.containers.expects(&a), "only awaited containers are expected");
}

#[test]
fn a_record_that_the_kernel_contradicts_is_not_followed() {
    let mut scene = Scene::new();
    scene.create("a", "a", whole(2));
    let mut again = restarted(&scene);
    let a = Announced { shown: Some(cpuset("10-11", "1")), ..announced("a", "a", whole(2), Some("0-1")) };
    again.synchronize(vec![a]);
    assert_eq!(again.cpus("a"), "10-11/1");
}

#[test]
fn restart_places_containers_again_after_a_changed_request_or_lost_cpus() {
    let mut scene = Scene::new();
    scene.create("a", "a", whole(2));
    scene.create("b", "b", whole(2));
    scene.create("s", "s", burstable("main", 500));
    let shown = |id: &str, asked, cpus| Announced {
        shown: Some(cpuset(cpus, "0")),
        ..announced(id, id, asked, None)
    };
    // One was resized in between: it keeps all of its CPUs.
    let mut again = restarted(&scene);
    let all = vec![
        shown("a", whole(3), "0-1"),
        shown("b", whole(2), "2-3"),
        shown("s", burstable("main", 500), "4-7"),
    ];
    again.synchronize(all.clone());
    assert_eq!([again.cpus("a"), again.cpus("b"), again.cpus("s")], ["0-1,4/0", "2-3/0", "5-7/0"]);
    // A later resize still has the previous request.
    assert_eq!(text(&again.resize("b", "b", whole(2)).own), "2-3/0");

    // CPUs of one container are reserved for the system now.
    let mut again = restarted(&scene);
    again.host.inventory.allowed_cpus = "1-15".parse().unwrap();
    again.synchronize(all[1..].to_vec());
    let a = shown("a", whole(2), "0-1");
    let mut rest = all[1..].to_vec();
    rest.push(a);
    again.synchronize(rest);
    assert_eq!(again.cpus("b"), "2-3/0");
    assert!(!again.cpus("a").starts_with("0-1"), "{}", again.cpus("a"));
}

#[test]
fn a_cgroup_leads_to_its_container() {
    let mut scene = Scene::new();
    scene.create("p", "one", whole(1));
    let known: Vec<String> =
        scene.containers.cgroups().map(|(path, holder)| format!("{path} {holder}")).collect();
    assert_eq!(known, ["/kubepods/p/one default/p/main"]);
    assert!(scene.containers.holder("one").is_some() && scene.containers.holder("two").is_none());
}

#[derive(Debug, Clone)]
pub(super) enum Act {
    Create(u8, u8, u64),
    Resize(u8, u64),
    End(u8),
    Synchronize(Vec<u8>),
}

pub(super) fn any_act() -> impl Strategy<Value = Act> {
    // CPUs in steps of half a CPU.
    prop_oneof![
        4 => (0u8..4, 0u8..10, 0u64..20).prop_map(|(pod, id, halves)| Act::Create(pod, id, halves)),
        2 => (0u8..10, 0u64..20).prop_map(|(id, halves)| Act::Resize(id, halves)),
        2 => (0u8..10).prop_map(Act::End),
        1 => prop::collection::vec(0u8..10, 0..6).prop_map(Act::Synchronize),
    ]
}

proptest! {
    /// For any sequence of calls: every existing container has a grant and no other has, exclusive CPUs
    /// belong to one container, and applying the answers yields the cpusets of the grants.
    #[test]
    fn answers_add_up_to_the_state(acts in prop::collection::vec(any_act(), 1..40)) {
        let mut scene = Scene::new();
        let mut set = BTreeMap::<String, Cpuset>::new();
        let mut asked = BTreeMap::<String, Announced>::new();
        for act in acts {
            let follow = |set: &mut BTreeMap<String, Cpuset>, id: &str, new: Cpuset| {
                let had = set.entry(id.to_owned()).or_default();
                had.cpus = new.cpus.or(had.cpus.take());
                had.mems = new.mems.or(had.mems.take());
            };
            let settled = match act {
                Act::Create(pod, id, halves) => {
                    let (id, name) = (format!("c{id}"), format!("n{id}"));
                    if asked.contains_key(&id) {
                        continue;
                    }
                    let new = announced(&format!("p{pod}"), &id, container(&name, halves * 500, GIB / 4), None);
                    asked.insert(id.clone(), new.clone());
                    let settled = scene.with(|containers, node| containers.create(node, &new));
                    follow(&mut set, &id, settled.own.clone());
                    settled
                }
                Act::Resize(id, halves) => {
                    let id = format!("c{id}");
                    let Some(known) = asked.get(&id) else { continue };
                    let mut changed = known.clone();
                    let name = changed.pod.containers[0].name.clone();
                    changed.pod.containers = vec![container(&name, halves * 500, GIB / 4)];
                    let settled = scene.with(|containers, node| containers.resize(node, changed));
                    follow(&mut set, &id, settled.own.clone());
                    settled
                }
                Act::End(id) => {
                    let id = format!("c{id}");
                    asked.remove(&id);
                    set.remove(&id);
                    scene.end(&id)
                }
                Act::Synchronize(ids) => {
                    asked.retain(|id, _| ids.iter().any(|stays| *id == format!("c{stays}")));
                    set.retain(|id, _| asked.contains_key(id));
                    let now = |id: &String| set.get(id).cloned().unwrap_or_default();
                    let all = asked.iter().map(|(id, one)| Announced { now: now(id), ..one.clone() }).collect();
                    scene.synchronize(all)
                }
            };
            for (id, cpuset) in settled.others {
                follow(&mut set, &id, cpuset);
            }
            prop_assert_eq!(set.keys().collect::<Vec<_>>(), asked.keys().collect::<Vec<_>>());
            prop_assert_eq!(scene.host.allocations.iter().count(), asked.len());
            for (id, had) in &set {
                let wanted = scene.with(|containers, node| containers.cpuset(node, id)).unwrap();
                prop_assert_eq!(had.cpus.as_ref(), wanted.cpus.as_ref().or(had.cpus.as_ref()), "cpus of {}", id);
                prop_assert_eq!(had.mems.as_ref(), wanted.mems.as_ref().or(had.mems.as_ref()), "mems of {}", id);
            }
            let mut exclusive = CpuSet::new();
            for (_, grant) in scene.host.allocations.iter() {
                prop_assert!(exclusive.is_disjoint(&grant.exclusive));
                exclusive.extend(&grant.exclusive);
            }
        }
    }

    /// Containers with the cpuset of their grant keep it over a restart, whatever the runtime has stored and
    /// in whatever order it reports them.
    #[test]
    fn restart_moves_no_container(acts in prop::collection::vec(any_act(), 1..30), reversed: bool) {
        let mut scene = Scene::new();
        let mut asked = BTreeMap::<String, Announced>::new();
        for act in acts {
            match act {
                Act::Create(pod, id, halves) => {
                    let (id, name) = (format!("c{id}"), format!("n{id}"));
                    let new = announced(&format!("p{pod}"), &id, container(&name, halves * 500, GIB / 4), None);
                    if asked.contains_key(&id) {
                        continue;
                    }
                    scene.with(|containers, node| containers.create(node, &new));
                    asked.insert(id, new);
                }
                Act::End(id) => {
                    asked.remove(&format!("c{id}"));
                    scene.end(&format!("c{id}"));
                }
                Act::Resize(..) | Act::Synchronize(_) => {}
            }
        }
        let unplaced = scene.host.allocations.iter().any(|(_, grant)| grant.engine == UNPLACED);
        // A container without a place may find one now.
        if unplaced {
            return Ok(());
        }
        let mut again = restarted(&scene);
        prop_assert_eq!(again.host.allocations.exclusive_cpus(), scene.host.allocations.exclusive_cpus());
        let mut all = Vec::new();
        for (id, one) in asked {
            let shown = scene.with(|containers, node| containers.cpuset(node, &id));
            all.push(Announced { shown, ..one });
        }
        if reversed {
            all.reverse();
        }
        again.synchronize(all.clone());
        for one in all {
            let found = again.with(|containers, node| containers.cpuset(node, &one.id));
            prop_assert_eq!(found, one.shown, "{}", one.id);
        }
    }
}

#[test]
fn a_container_that_is_declared_to_be_left_alone_is_set_to_nothing_and_takes_nothing() {
    let mut scene = Scene::new();
    let shared = scene.create("shared", "s1", burstable("main", 500));
    assert_eq!(text(&shared.own), "0-7/0");
    let alone = Announced { opts_out: true, ..announced("alone", "a1", whole(4), None) };
    let created = scene.with(|containers, node| containers.create(node, &alone));
    assert_eq!(created, CallOutcome::default());
    assert_eq!(scene.cpus("a1"), "");
    // A placed container with a later `enforce = false` releases its grant.
    scene.create("first", "f1", whole(4));
    let first = Announced { opts_out: true, ..announced("first", "f1", whole(4), None) };
    let shared = announced("shared", "s1", burstable("main", 500), None);
    scene.synchronize(vec![shared.clone(), first.clone()]);
    assert_eq!((scene.cpus("f1").as_str(), scene.cpus("s1").as_str()), ("", "0-7/0"));
    scene.create("first", "f1", whole(4));
    let resized = scene.with(|containers, node| containers.resize(node, first));
    assert_eq!((text(&resized.own).as_str(), others(&resized)), ("-/-", pairs(&[("s1", "0-7/-")])));
}

#[test]
fn container_without_foreign_owner_is_placed_at_the_next_runtime_list() {
    let mut scene = Scene::new();
    let given = |cpus: Option<&str>| Announced {
        given: Some(Ownership {
            cpus: cpus.map(|cpus| cpus.parse().unwrap()),
            ..Ownership::of(Owner::Unknown, "memory_manager_state")
        }),
        ..announced("given", "g1", whole(2), None)
    };
    scene.with(|containers, node| containers.create(node, &given(Some("0-1"))));
    // An unknown owner frees nothing.
    let resized = scene.with(|containers, node| containers.resize(node, given(None)));
    assert_eq!(
        (resized, scene.host.allocations.exclusive_cpus().to_string()),
        (CallOutcome::default(), "0-1".into())
    );
    let shared = scene.create("shared", "s1", burstable("main", 500));
    assert_eq!(text(&shared.own), "2-7/0");
    let all = vec![
        announced("given", "g1", whole(2), None),
        announced("shared", "s1", burstable("main", 500), None),
    ];
    scene.synchronize(all);
    assert_eq!((scene.cpus("g1").as_str(), scene.cpus("s1").as_str()), ("0-1/0", "2-7/0"));
    assert_eq!(scene.host.allocations.iter().count(), 2);
    assert_eq!(scene.containers.cgroups().count(), 2);
    scene.end("g1");
    assert_eq!(scene.cpus("s1"), "0-7/0");
}

#[test]
fn cpus_that_a_scheduler_has_chosen_are_kept_as_far_as_the_engine_allows() {
    let mut scene = Scene::new();
    let settled = |scene: &mut Scene, new: &Announced| {
        scene.with(|containers, node| containers.create(node, new));
        scene.cpus(&new.id)
    };
    assert_eq!(settled(&mut scene, &decided("a", "1", whole(2), "8-9")), "8-9/1");
    assert_eq!(settled(&mut scene, &announced("control", "2", whole(2), None)), "0-1/0");
    // Whichever of the two comes first, each gets its own.
    assert_eq!(settled(&mut scene, &decided("c", "4", whole(2), "12-13")), "12-13/1");
    assert_eq!(settled(&mut scene, &decided("b", "3", whole(2), "10-11")), "10-11/1");
    let unwished = settled(&mut scene, &announced("control", "5", whole(2), None));
    scene.end("5");
    assert_ne!(unwished, "4-5/0");
    // Taken, on two NUMA nodes, too many, too few, none, no list, unknown.
    for (at, wish) in ["8-9", "7,14", "4-6", "4", "", "x", "99-100"].into_iter().enumerate() {
        let new = decided(&format!("wish-{at}"), "wish", whole(2), wish);
        assert_eq!(settled(&mut scene, &new), unwished, "{wish}");
        scene.end("wish");
    }
    let mut long = decided("long", "long", whole(2), "4-5");
    long.pod.annotations.get_mut(DECISION).unwrap().push_str(&" ".repeat(LONGEST_DECISION));
    assert_eq!(settled(&mut scene, &long), unwished);
    scene.end("long");
    scene.host.settings.hints.profile = Profile::Kubelet;
    assert_eq!(settled(&mut scene, &decided("k", "k", whole(2), "4-5")), unwished);
    scene.end("k");
    scene.host.settings.hints.profile = Profile::Enforcer;
    assert_eq!(settled(&mut scene, &decided("k", "k", whole(2), "4-5")), "4-5/0", "it is free");
}
