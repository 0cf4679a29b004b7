//! Each row of the table, the order between rows, and the effect of a foreign owner on other workloads.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    finding::Rule,
    hosted::Containers,
    scene::Scene,
    turn::{History, RefusalCause},
    workload::{CgroupPath, Origin, QosClass, Workload, identify},
};
use numa_placement::Allocations;
use numa_topology::synth::Machine;

const UID: &str = "0b5a6f8e-1111-2222-3333-444455556666";

fn claim(container: &str, cpus: &str, nodes: &str) -> Claim {
    let nodes: NodeSet = nodes.parse().unwrap();
    let memory = (!nodes.is_empty()).then(|| MemoryBlock { kind: "memory".into(), nodes, bytes: 1 << 30 });
    Claim {
        pod: ClaimedPod::Uid(UID.into()),
        container: Some(container.into()),
        cpus: cpus.parse().unwrap(),
        memory: memory.into_iter().collect(),
        source: "cpu_manager_state".into(),
        ..Claim::default()
    }
}

fn known(container: &str) -> KnownContainer {
    KnownContainer {
        pod_uid: UID.into(),
        namespace: "shop".into(),
        pod: "web".into(),
        container: container.into(),
        ..KnownContainer::default()
    }
}

fn marked(owner: Owner, cpus: Option<&str>) -> KnownContainer {
    let cpus = cpus.map(|cpus| cpus.parse().unwrap());
    let claim = PodClaim { owner, evidence: "annotation".into(), cpus, mems: None, of_pod: false };
    KnownContainer { claim: Some(claim), milli_cpus: Some(64_000), ..known("main") }
}

fn facts(claims: Vec<Claim>, container: Option<KnownContainer>) -> OwnershipFacts {
    let kubelet = Kubelet {
        cpu_policy: Some("static".into()),
        shared_cpus: Some("0-1".parse().unwrap()),
        claims,
        ..Kubelet::default()
    };
    let containers = container.map(|known| ("abc".to_owned(), known)).into_iter().collect();
    OwnershipFacts { kubelet, containers, ..OwnershipFacts::default() }
}

fn policy_none(container: Option<KnownContainer>) -> OwnershipFacts {
    let mut facts = facts(Vec::new(), container);
    facts.kubelet = Kubelet { cpu_policy: Some("none".into()), ..Kubelet::default() };
    facts
}

fn workload(origin: Origin) -> Workload {
    Workload { cgroup: CgroupPath::new("/a"), cgroup_id: None, name: "a".into(), origin }
}

fn container() -> Origin {
    let container_id = Some("abc".to_owned());
    Origin::Pod { pod_uid: UID.into(), qos: QosClass::Guaranteed, container_id, runtime: None }
}

fn unit(name: &str) -> Origin {
    Origin::Unit { unit: name.into() }
}

/// Owner of a workload on CPUs 2-3, and the CPUs and memory nodes that the owner gave it.
fn judged(origin: Origin, facts: &OwnershipFacts, placed: bool, declared: bool) -> (Owner, String) {
    let cpus = "2-3".parse().unwrap();
    let workload = workload(origin);
    let subject = table::OwnershipSubject { workload: &workload, cpus: Some(&cpus), placed, declared };
    let found = table::owner_of(&subject, facts);
    assert_eq!(found.owner == Owner::Unowned, found.evidence.is_empty(), "{found:?}");
    let set = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let given = format!(
        "{}/{}",
        set(found.cpus.map(|cpus| cpus.to_string())),
        set(found.mems.map(|mems| mems.to_string()))
    );
    (found.owner, given)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_row_of_the_table() {
    use Owner::*;

    let with_unit = |name: &str| {
        let setting = UnitSetting { file: "/etc/x".into(), line: "AllowedCPUs=0-3".into() };
        OwnershipFacts { units: BTreeMap::from([(name.to_owned(), setting)]), ..OwnershipFacts::default() }
    };
    let unread = {
        let mut facts = facts(Vec::new(), None);
        facts.kubelet =
            Kubelet { unread: Some("checksum of cpu_manager_state".into()), ..Kubelet::default() };
        facts
    };
    let sandbox = {
        let mut facts = facts(vec![claim("main", "4-5", "")], None);
        facts.containers.insert("other id".into(), known("main"));
        facts
    };
    let vm = || Origin::VirtualMachine { domain: "db".into() };
    let main = || Some(known("main"));
    let (nothing, exclusive) = (OwnershipFacts::default(), || vec![claim("main", "2-3", "")]);
    let memory_by_itself = {
        let mut facts = policy_none(main());
        facts.kubelet.claims = vec![claim("main", "", "1")];
        facts
    };
    for (what, origin, facts, placed, declared, expected) in [
        (
            "exclusive CPUs",
            container(),
            facts(exclusive(), main()),
            false,
            false,
            (KubeletCpuManager, "2-3/-"),
        ),
        (
            "also placed by us",
            container(),
            facts(exclusive(), main()),
            true,
            true,
            (KubeletCpuManager, "2-3/-"),
        ),
        (
            "CPUs and memory",
            container(),
            facts(vec![claim("main", "2-3", "1")], main()),
            false,
            false,
            (KubeletCpuManager, "2-3/1"),
        ),
        ("memory alone", container(), memory_by_itself, false, true, (KubeletMemoryManager, "-/1")),
        (
            "another container of the pod",
            container(),
            facts(exclusive(), Some(known("sidecar"))),
            false,
            true,
            (KubeletSharedPool, "-/-"),
        ),
        (
            "shared, placed by us",
            container(),
            facts(exclusive(), Some(known("s"))),
            true,
            false,
            (NumaEnforcer, "-/-"),
        ),
        (
            "an unreported name, its CPUs",
            container(),
            facts(exclusive(), None),
            false,
            true,
            (KubeletCpuManager, "2-3/-"),
        ),
        (
            "an unreported name, other CPUs",
            container(),
            facts(vec![claim("main", "4-5", "")], None),
            false,
            true,
            (KubeletCpuManager, "-/-"),
        ),
        ("what holds a pod's namespaces", container(), sandbox, false, false, (KubeletSharedPool, "-/-")),
        ("policy none", container(), policy_none(main()), false, true, (NumaEnforcer, "-/-")),
        ("policy none, not declared", container(), policy_none(main()), false, false, (Unowned, "-/-")),
        ("a state that cannot be used", container(), unread.clone(), true, true, (Unknown, "-/-")),
        (
            "koordlet",
            container(),
            policy_none(Some(marked(Koordlet, Some("2-3")))),
            true,
            true,
            (Koordlet, "2-3/-"),
        ),
        ("katalyst", container(), policy_none(Some(marked(Katalyst, None))), false, true, (Katalyst, "-/-")),
        (
            "a DRA driver",
            container(),
            policy_none(Some(marked(DraDriver, Some("6")))),
            false,
            true,
            (DraDriver, "6/-"),
        ),
        ("no kubelet at all", container(), nothing.clone(), false, true, (NumaEnforcer, "-/-")),
        ("libvirt", vm(), nothing.clone(), false, true, (Libvirt, "-/-")),
        ("systemd", unit("db.service"), with_unit("db.service"), false, true, (Systemd, "-/-")),
        ("an instance", unit("db@1.service"), with_unit("db@1.service"), false, true, (Systemd, "-/-")),
        ("its template", unit("db@1.service"), with_unit("db@.service"), false, true, (NumaEnforcer, "-/-")),
        ("another unit", unit("web.service"), with_unit("db.service"), false, true, (NumaEnforcer, "-/-")),
        (
            "a unit beside a static kubelet",
            unit("web.service"),
            facts(exclusive(), None),
            false,
            false,
            (Unowned, "-/-"),
        ),
        (
            "a unit beside a state that cannot be used",
            unit("web.service"),
            unread,
            false,
            true,
            (NumaEnforcer, "-/-"),
        ),
        ("a plain cgroup", Origin::Cgroup, nothing, false, false, (Unowned, "-/-")),
    ] {
        let (owner, given) = judged(origin, &facts, placed, declared);
        assert_eq!((owner, given.as_str()), expected, "{what}");
    }
}

#[test]
fn the_socket_names_pods_by_name() {
    let named = ClaimedPod::Named { namespace: "shop".into(), name: "web".into() };
    let by_name = Claim { pod: named, source: "podresources".into(), ..claim("main", "2-3", "") };
    let found = judged(container(), &facts(vec![by_name], Some(known("main"))), false, false);
    assert_eq!(found, (Owner::KubeletCpuManager, "2-3/-".into()));
}

#[test]
fn what_comes_with_a_container_tells_before_the_list_does() {
    let cpus = |text: &str| Some(text.parse::<CpuSet>().unwrap());
    let owner = |facts: &OwnershipFacts, known: &KnownContainer, asked: Option<CpuSet>, whole| {
        given_at_creation(facts, known, asked.as_ref(), whole).map(|found| found.owner)
    };
    let empty = facts(Vec::new(), None);
    assert_eq!(owner(&empty, &known("main"), cpus("2-3"), Some(2)), Some(Owner::KubeletCpuManager));
    assert_eq!(
        owner(&empty, &known("main"), cpus("0-1,4"), Some(2)),
        None,
        "the shared CPUs of one with two"
    );
    assert_eq!(owner(&empty, &known("main"), cpus("0-1"), None), None, "shared CPUs");
    assert_eq!(owner(&empty, &known("main"), None, Some(2)), None);
    let listed = facts(vec![claim("main", "2-3", "")], None);
    assert_eq!(owner(&listed, &known("main"), None, None), Some(Owner::KubeletCpuManager));
    assert_eq!(owner(&policy_none(None), &known("main"), cpus("2-3"), Some(2)), None);
    assert_eq!(owner(&policy_none(None), &marked(Owner::Koordlet, None), None, None), Some(Owner::Koordlet));
}

#[test]
fn a_mark_names_no_more_cpus_than_whole_ones_are_asked_for() {
    for (cpus, milli, limited) in
        [("0-1", 2000, false), ("0-1", 1999, true), ("0", 999, true), ("5", 3000, false), ("0-62", 0, true)]
    {
        let known = KnownContainer { milli_cpus: Some(milli), ..marked(Owner::DraDriver, Some(cpus)) };
        let facts = policy_none(None);
        let named = facts.excess(&known).map(ToString::to_string);
        assert_eq!(named.as_deref(), limited.then_some(cpus));
        let counts = facts.marked(&known).unwrap();
        assert_eq!((counts.cpus.is_none(), counts.evidence.contains("more")), (limited, limited));
    }
    let asks_for_nothing = KnownContainer { milli_cpus: None, ..marked(Owner::Katalyst, None) };
    assert_eq!(policy_none(None).excess(&asks_for_nothing), None);
}

#[test]
fn the_mark_of_a_pod_is_held_against_what_all_its_containers_ask_for() {
    let of_pod = |container: &str, milli: u64, whole: Option<u64>| {
        let one = marked(Owner::Koordlet, Some("4-6"));
        let claim = one.claim.map(|claim| PodClaim { of_pod: true, ..claim });
        let (milli_cpus, container) = (Some(milli), container.to_owned());
        KnownContainer { container, milli_cpus, pod_milli_cpus: whole, claim, ..one }
    };
    let (main, sidecar) = (of_pod("main", 2000, None), of_pod("sidecar", 1000, None));
    let alone = policy_none(Some(main.clone()));
    assert!(alone.excess(&main).is_some(), "as far as is known, it asks for two");
    // A container is not its own neighbour, even if the facts already list it.
    assert!(alone.excess(&of_pod("main", 2000, None)).is_some());
    let both = policy_none(Some(main.clone()));
    assert_eq!((both.excess(&sidecar), both.marked(&sidecar).unwrap().cpus.is_some()), (None, true));
    let stranger = KnownContainer { pod_uid: "another".into(), ..sidecar.clone() };
    assert!(both.excess(&stranger).is_some(), "requests of other pods do not count");
    let nameless = KnownContainer { pod_uid: String::new(), ..sidecar };
    assert!(policy_none(Some(KnownContainer { pod_uid: String::new(), ..main })).excess(&nameless).is_some());
    let told = policy_none(None);
    assert_eq!(
        told.excess(&of_pod("main", 2000, Some(3000))),
        None,
        "the runtime tells of the pod as a whole"
    );
    let mut own = of_pod("main", 2000, Some(3000));
    own.claim.as_mut().unwrap().of_pod = false;
    assert!(told.excess(&own).is_some(), "it is the mark of one container");
}

#[test]
fn new_container_has_unknown_owner_and_keeps_its_cpus_while_the_kubelet_state_is_unusable() {
    for mut facts in [policy_none(None), OwnershipFacts::default()] {
        facts.kubelet.unread = Some("checksum of memory_manager_state".into());
        let given = |asked: &str, whole| {
            let asked = asked.parse().ok();
            let found = given_at_creation(&facts, &known("main"), asked.as_ref(), whole).unwrap();
            assert_eq!(found.evidence, "checksum of memory_manager_state");
            (found.owner, found.cpus.map(|cpus| cpus.to_string()))
        };
        assert_eq!(given("2-3", Some(2)), (Owner::Unknown, Some("2-3".into())));
        assert_eq!(given("2-5", Some(2)), (Owner::Unknown, None));
        assert_eq!(given("x", None), (Owner::Unknown, None));
    }
}

const PATH: &str = "/kubepods/pod0b5a6f8e-1111-2222-3333-444455556666/abc";

/// A declared container of a pod on CPUs 4-5, with its memory on node 0.
fn scene(facts: OwnershipFacts) -> Scene {
    let machine = Machine::new().sockets(2).threads(1).build();
    let mut scene = Scene::new(machine)
        .workload(PATH, "4-5", "0-1")
        .memory(PATH, &[(0, 300, 0)])
        .declared("/kubepods/**", 2, None)
        .workload("/free", "0-7", "0-1")
        .declared("/free", 2, None);
    scene.workloads[0].origin = identify(&CgroupPath::new(PATH)).origin;
    Scene { facts, ..scene }
}

#[test]
fn another_owner_is_refused_with_evidence_and_its_cpus_are_not_handed_out() {
    let decision = scene(facts(vec![claim("main", "0-2", "")], Some(known("main")))).decide();
    let refusal = &decision.refused[0];
    assert_eq!((refusal.workload.as_str(), refusal.cause), (PATH, RefusalCause::OtherOwner));
    assert_eq!(
        refusal.reason,
        "its cpuset belongs to the kubelet's static CPU manager: cpu_manager_state: CPUs 0-2 for container main"
    );
    assert!(decision.plan.steps.iter().all(|step| step.action.cgroup().as_str() == "/free"), "{decision:?}");
    assert_eq!(decision.aims[&CgroupPath::new("/free")].to_string(), "1", "node 0 has one CPU left");

    // The control: no other controller owns it, so the plan brings it to its memory.
    let decision = scene(policy_none(Some(known("main")))).decide();
    assert_eq!(decision.refused, []);
    assert!(decision.plan.steps.iter().any(|step| step.action.cgroup().as_str() == PATH), "{decision:?}");
}

#[test]
fn an_owner_that_comes_later_takes_back_what_was_given() {
    let mut allocations = Allocations::default();
    scene(OwnershipFacts::default()).decide_with(&History::default(), &mut allocations);
    assert_eq!(allocations.exclusive_cpus().len(), 4);
    let claimed = scene(facts(vec![claim("main", "4-5", "")], Some(known("main"))));
    let decision = claimed.decide_with(&History::default(), &mut allocations);
    assert_eq!(decision.refused.len(), 1);
    assert_eq!(allocations.exclusive_cpus().len(), 4, "two that are claimed and two that are ours");
}

#[test]
fn unknown_owner_takes_nothing_back() {
    let mut allocations = Allocations::default();
    scene(OwnershipFacts::default()).decide_with(&History::default(), &mut allocations);
    let before = allocations.exclusive_cpus();
    let mut facts = OwnershipFacts::default();
    facts.kubelet.unread = Some("checksum of cpu_manager_state".into());
    let decision = scene(facts).decide_with(&History::default(), &mut allocations);
    assert_eq!((decision.refused.len(), before.len()), (1, 4));
    assert_eq!(allocations.exclusive_cpus(), before);
}

#[test]
fn a_cpuset_that_is_not_what_its_owner_gave_is_a_finding() {
    let findings = |claims| {
        let scene = scene(facts(claims, Some(known("main"))));
        let findings = scene.findings().into_iter().filter(|one| one.rule == Rule::OwnerMismatch);
        findings.collect::<Vec<_>>()
    };
    let found = findings(vec![claim("main", "2-3", "0")]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].summary,
        "the kubelet's static CPU manager gave it CPUs 2-3, and it has 4-5; memory nodes 0, and it has 0-1"
    );
    let remedy = found[0].remedy.as_deref().unwrap();
    assert!(remedy.ends_with("cpuset.cpus") && remedy.starts_with("echo 0 > "), "{found:?}");
    assert_eq!(findings(vec![claim("main", "4-5", "0-1")]), []);
    assert_eq!(findings(Vec::new()), [], "a shared pool gives nothing in particular");
}

#[test]
fn all_owners_have_words() {
    let words: std::collections::BTreeSet<&str> = Owner::ALL.iter().map(crate::named::Named::name).collect();
    assert_eq!(words.len(), Owner::ALL.len());
    for &owner in Owner::ALL {
        assert_eq!(serde_json::to_value(owner).unwrap(), owner.name());
    }
}

fn any_facts() -> impl Strategy<Value = OwnershipFacts> {
    let cpus = prop::collection::btree_set(0u32..8, 0..4);
    let claims = prop::collection::vec((0..3u8, 0..3u8, cpus), 0..4);
    (claims, prop::option::of("static|none|[a-z]{0,4}"), prop::option::of(".{0,400}"), any::<bool>())
        .prop_map(|(claims, cpu_policy, unread, named)| {
            let claims = claims.into_iter().map(|(pod, container, cpus)| Claim {
                pod: ClaimedPod::Uid(if pod == 0 { UID.into() } else { format!("pod{pod}") }),
                container: (container > 0)
                    .then(|| ["", "main", "sidecar"][usize::from(container)].to_owned()),
                cpus: cpus.into_iter().map(numa_topology::id::CpuId).collect(),
                source: "\u{1b}[2J".into(),
                ..Claim::default()
            });
            let kubelet = Kubelet { cpu_policy, unread, claims: claims.collect(), ..Kubelet::default() };
            let containers = named.then(|| ("abc".to_owned(), known("main"))).into_iter().collect();
            OwnershipFacts { kubelet, containers, ..OwnershipFacts::default() }
        })
}

proptest! {
    /// For any facts: a claim of the kubelet is never the daemon's, no step changes a foreign workload, no
    /// other workload gets a claimed CPU, and evidence is short and printable.
    #[test]
    fn foreign_cpusets_are_never_written(facts in any_facts()) {
        let scene = scene(facts.clone());
        let owners = scene.owners(&Containers::default());
        let mut allocations = Allocations::default();
        let decision = scene.decide_with(&History::default(), &mut allocations);
        for workload in &scene.workloads {
            let Some(ownership) = owners.foreign(workload) else { continue };
            let evidence = &ownership.evidence;
            prop_assert!(evidence.chars().count() <= 301 && !evidence.contains(char::is_control));
            let touched = decision.plan.steps.iter().any(|step| *step.action.cgroup() == workload.cgroup);
            prop_assert!(!touched, "{ownership:?}");
        }
        let claimed = facts.kubelet.claims.iter().fold(CpuSet::new(), |all, claim| all.union(&claim.cpus));
        for (holder, grant) in allocations.iter().filter(|(holder, _)| holder.is_cgroup()) {
            prop_assert!(grant.exclusive.is_disjoint(&claimed), "{holder} {}", grant.exclusive);
        }
    }
}

#[test]
fn the_daemons_own_container_and_pod_are_left_alone_and_its_unit_is_not() {
    let pod = |container: &str, uid: &str| {
        let slice = format!("/kubepods.slice/kubepods-pod{uid}.slice");
        let path = CgroupPath::new(&format!("{slice}/cri-containerd-{}.scope", container.repeat(64)));
        let identity = crate::workload::identify(&path);
        Workload { cgroup: path, cgroup_id: None, name: identity.name, origin: identity.origin }
    };
    let (own, beside, other) =
        (pod("a", "0f2b9a31_6a1d"), pod("b", "0f2b9a31_6a1d"), pod("c", "1f2b9a31_6a1d"));
    let mut facts = policy_none(None);
    let owner = |facts: &OwnershipFacts, workload: &Workload, placed| {
        let subject = table::OwnershipSubject { workload, cpus: None, placed, declared: true };
        table::owner_of(&subject, facts).owner
    };
    assert_eq!(owner(&facts, &own, true), Owner::NumaEnforcer, "it is not known where the daemon runs");
    facts.own_cgroup = Some(own.cgroup.child("init"));
    for placed in [false, true] {
        assert_eq!(owner(&facts, &own, placed), Owner::DaemonItself);
        assert_eq!(owner(&facts, &beside, placed), Owner::DaemonItself);
        assert_eq!(owner(&facts, &other, placed), Owner::NumaEnforcer);
    }
    let service =
        Workload { cgroup: CgroupPath::new("/system.slice/x.service"), ..workload(unit("x.service")) };
    facts.own_cgroup = Some(service.cgroup.clone());
    assert_eq!(owner(&facts, &service, false), Owner::NumaEnforcer);
}

#[test]
fn jobs_and_instances_belong_to_their_controller_also_where_they_are_declared() {
    let lxc = LxcController { owner: Owner::Proxmox, evidence: "/etc/pve/lxc".into() };
    let setting = UnitSetting { file: "db.service".into(), line: "AllowedCPUs=0-3".into() };
    let none = OwnershipFacts::default();
    let facts = OwnershipFacts {
        lxc: Some(lxc),
        units: [
            ("db.service", &setting),
            ("systemd-nspawn@a.service", &setting),
            ("docker-x.scope", &setting),
        ]
        .map(|(unit, setting)| (unit.to_owned(), setting.clone()))
        .into(),
        ..OwnershipFacts::default()
    };
    let owner = |path: &str, facts: &OwnershipFacts| {
        let identity = identify(&CgroupPath::new(path));
        let workload = Workload {
            cgroup: identity.cgroup,
            cgroup_id: None,
            name: identity.name,
            origin: identity.origin,
        };
        let subject = OwnershipSubject { workload: &workload, cpus: None, placed: false, declared: true };
        owner_of(&subject, facts)
    };
    for (path, found, without) in [
        ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", Owner::Slurm, Owner::Slurm),
        ("/nomad.slice/share.slice/a.web.scope", Owner::Nomad, Owner::Nomad),
        ("/lxc/104", Owner::Proxmox, Owner::NumaEnforcer),
        ("/lxc.payload.web", Owner::Proxmox, Owner::NumaEnforcer),
        ("/system.slice/db.service", Owner::Systemd, Owner::NumaEnforcer),
        ("/system.slice/db.service/libpod-payload-abc", Owner::Systemd, Owner::NumaEnforcer),
        ("/machine.slice/systemd-nspawn@a.service/payload", Owner::Systemd, Owner::NumaEnforcer),
        // What a runtime asked systemd for is the container's own.
        ("/system.slice/docker-x.scope", Owner::NumaEnforcer, Owner::NumaEnforcer),
    ] {
        assert_eq!(owner(path, &facts).owner, found, "{path}");
        assert_eq!(owner(path, &none).owner, without, "{path}");
    }
    let refusal = owner("/lxc/104", &facts).refusal();
    assert_eq!(refusal, "its cpuset belongs to Proxmox VE: /etc/pve/lxc: instance 104 in /lxc/104");
}
