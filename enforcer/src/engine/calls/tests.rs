//! Calls as a runtime makes them, on a machine of two nodes of four CPUs.

use std::{collections::BTreeMap, sync::Arc};

use enforcer_core::{
    hosted::Cpuset,
    model::Model,
    owner::{Claim, ClaimedPod, Kubelet, Owner},
    policy::Policy,
    sample::Sample,
    workload::{CgroupPath, Origin, QosClass, Workload},
};
use numa_placement::Inventory;
use numa_topology::{set::CpuSet, synth::Machine};

mod claims;
mod cold_start;
mod deaths;
mod expected;
mod full_disk;
mod given_up;
mod late;
mod leaving;
mod memory;
mod overtaken;
mod owners;
mod published;
mod running;
mod sandboxes;
mod source;
mod wishes;

use super::{messages::STOPPED, *};
use crate::engine::ForeignOwners;
use enforcer_act::{Actuator as _, cpuset::CpusetTree, fixture::Fixture, journal::MakingRecord};
use enforcer_kernel::waker::Waker;
use enforcer_runtime::nri::{
    RuntimeVersion,
    api::{
        ContainerUpdate, LinuxContainer, LinuxCpu, LinuxMemory, LinuxPodSandbox, OptionalInt, OptionalUint,
    },
};

fn placed(place: bool) -> SharedLedger {
    let mut policy = Policy::default();
    policy.nri.place = place;
    placed_by(&policy)
}

fn placed_by(policy: &Policy) -> SharedLedger {
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let inventory = Inventory::new(machine, Vec::new(), &policy.placement).unwrap();
    let placed = SharedLedger::default();
    placed.apply_policy(Some(Arc::new(inventory)), policy, true);
    placed
}

/// Places containers under these entries.
fn declared(entries: &str) -> (SharedLedger, Policy) {
    let policy: Policy = toml::from_str(&format!("[nri]\nplace = true\n{entries}")).unwrap();
    policy.validate().unwrap();
    (placed_by(&policy), policy)
}

fn pod(name: &str, class: &str) -> PodSandbox {
    PodSandbox {
        id: format!("sandbox-{name}"),
        name: name.into(),
        namespace: "shop".into(),
        linux: Some(LinuxPodSandbox {
            cgroup_parent: format!("/kubepods{class}/pod{name}"),
            ..LinuxPodSandbox::default()
        }),
        ..PodSandbox::default()
    }
}

fn amounts(cpus: u64) -> LinuxResources {
    let cpu = LinuxCpu {
        shares: Some(OptionalUint { value: cpus * 1024 }),
        quota: Some(OptionalInt { value: i64::try_from(cpus * 100_000).unwrap() }),
        period: Some(OptionalUint { value: 100_000 }),
        ..LinuxCpu::default()
    };
    let memory = LinuxMemory { limit: Some(OptionalInt { value: 1 << 30 }) };
    LinuxResources { cpu: Some(cpu), memory: Some(memory), ..LinuxResources::default() }
}

fn subject(name: &str, class: &str, resources: Option<LinuxResources>) -> Box<NriSubject> {
    let linux = LinuxContainer {
        resources,
        cgroups_path: format!("/kubepods{class}/pod{name}/id-{name}"),
        ..LinuxContainer::default()
    };
    let container = Container {
        id: format!("id-{name}"),
        pod_sandbox_id: format!("sandbox-{name}"),
        name: "main".into(),
        linux: Some(linux),
        ..Container::default()
    };
    Box::new(NriSubject { pod: pod(name, class), container })
}

fn ask(placed: &SharedLedger, call: impl FnOnce(Reply) -> NriCall) -> NriAnswer {
    ask_behind(&Gate::default(), placed, call)
}

fn ask_behind(gate: &Gate, placed: &SharedLedger, call: impl FnOnce(Reply) -> NriCall) -> NriAnswer {
    let (reply, mut answer) = Reply::new();
    super::answer(placed, gate, &ResourceFiles::default(), call(reply));
    answer.try_recv().unwrap()
}

fn create(placed: &SharedLedger, name: &str, cpus: u64) -> NriAnswer {
    let subject = subject(name, "", Some(amounts(cpus)));
    ask(placed, |reply| NriCall::Create { subject, reply })
}

fn runs(placed: &SharedLedger, name: &str) {
    super::answer(
        placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Started(subject(name, "", None)),
    );
}

fn cpuset(resources: Option<&LinuxResources>) -> String {
    let cpu = resources.and_then(|resources| resources.cpu.as_ref());
    cpu.map(|cpu| format!("{}/{}", cpu.cpus, cpu.mems)).unwrap_or_default()
}

fn updates(answer: &NriAnswer) -> Vec<(String, String)> {
    let of = |update: &ContainerUpdate| {
        assert!(update.ignore_failure);
        let resources = update.linux.as_ref().and_then(|linux| linux.resources.as_ref());
        (update.container_id.clone(), cpuset(resources))
    };
    answer.updates.iter().map(of).collect()
}

#[test]
fn a_guaranteed_container_gets_its_cpus_and_others_make_room() {
    let placed = placed(true);
    let shared = subject("shared", "/besteffort", None);
    let shared = ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    let first = create(&placed, "one", 2);
    assert_eq!(cpuset(first.adjust.as_ref()), "0-1/0");
    assert!(!cpuset(shared.adjust.as_ref()).is_empty());
    assert_eq!(updates(&first).len(), 1);
    let ended = ask(&placed, |reply| NriCall::Stop { subject: subject("one", "", None), reply });
    assert_eq!((ended.adjust, ended.updates[0].container_id.as_str()), (None, "id-shared"));
    assert_eq!(placed.lock().held.allocations.iter().count(), 1);
}

#[test]
fn an_update_is_answered_with_our_cpuset_every_time_and_a_larger_request_with_more() {
    let placed = placed(true);
    create(&placed, "one", 2);
    let update = |cpus| {
        let subject = subject("one", "", Some(amounts(2)));
        ask(&placed, |reply| NriCall::Update { subject, wanted: amounts(cpus), reply })
    };
    let own = |cpuset: &str| vec![("id-one".to_owned(), cpuset.to_owned())];
    assert_eq!(updates(&update(2)), own("0-1/0"));
    assert_eq!(updates(&update(4)), own("0-3/0"));
    // It fits nowhere: the container keeps what it has.
    assert_eq!(updates(&update(9)), own("0-3/0"));
}

#[test]
fn what_a_container_would_have_is_kept_until_it_is_recorded() {
    let placed = placed(true);
    let mut asked = amounts(2);
    asked.cpu.as_mut().unwrap().cpus = "0,1,2".into();
    ask(&placed, |reply| NriCall::Create { subject: subject("one", "", Some(asked)), reply });
    let starts = Waker::new().unwrap();
    placed.listen(starts.clone());
    let is_told = || starts.take();
    assert!(!placed.take_early_turn() && !is_told());
    let cgroup = CgroupPath::new("/kubepods/podone/id-one");
    assert_eq!(placed.unrecorded()[&cgroup].cpus.as_ref().unwrap().to_string(), "0-2");
    super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Started(subject("one", "", None)),
    );
    assert!(is_told() && placed.take_early_turn() && !placed.take_early_turn());
    placed.recorded(&[cgroup]);
    super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Started(subject("one", "", None)),
    );
    assert!(!placed.take_early_turn() && placed.unrecorded().is_empty());
    create(&placed, "two", 2);
    super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Removed(subject("two", "", None)),
    );
    assert!(placed.unrecorded().is_empty(), "it ended before its cgroup existed");
}

/// `restore` gives back what the runtime's caller wants now, not what it wanted at the creation.
#[test]
fn what_a_runtime_is_told_to_set_is_what_a_container_would_have_from_then_on() {
    let placed = placed(true);
    let cgroup = CgroupPath::new("/kubepods/podone/id-one");
    let update = |cpus: &str, mems: &str| {
        let mut wanted = amounts(2);
        let cpu = wanted.cpu.as_mut().unwrap();
        (cpu.cpus, cpu.mems) = (cpus.into(), mems.into());
        let subject = subject("one", "", Some(amounts(2)));
        ask(&placed, |reply| NriCall::Update { subject, wanted, reply })
    };
    let of = |cpuset: &Cpuset| {
        let text = |list: Option<String>| list.unwrap_or_default();
        let (cpus, mems) = (cpuset.cpus.as_ref(), cpuset.mems.as_ref());
        (text(cpus.map(ToString::to_string)), text(mems.map(ToString::to_string)))
    };
    create(&placed, "one", 2);
    update("0-5", "");
    assert_eq!(of(&placed.unrecorded()[&cgroup]), ("0-5".into(), String::new()));
    // An update without CPUs, or with an unreadable list, changes nothing.
    update("", "0-1");
    update("all", "");
    assert_eq!(of(&placed.unrecorded()[&cgroup]), ("0-5".into(), "0-1".into()));
    let taken = |written: Result<(), String>| {
        let mut taken = BTreeMap::new();
        let done = placed.renew(|renewed| {
            taken.clone_from(renewed);
            written.clone()
        });
        assert_eq!(done, written);
        taken
    };
    assert!(taken(Ok(())).is_empty(), "only originals in the journal are renewed");
    placed.recorded(std::slice::from_ref(&cgroup));
    let dir = tempfile::tempdir().unwrap();
    let (record, _) = MakingRecord::open(dir.path(), None).unwrap();
    placed.remember(record, BTreeMap::new());
    let answer = update("1,3", "");
    let noted = MakingRecord::left(dir.path(), None).unwrap().made.remove(&cgroup).unwrap();
    assert!(noted.renews && of(&noted.original).0 == "1,3", "before the answer: {noted:?}");
    assert_eq!(updates(&answer), [("id-one".to_owned(), "0-1/0".to_owned())], "it keeps its place");
    assert!(placed.take_early_turn(), "a turn is wanted for the journal");
    // A full disk: the original is offered again, with later changes.
    assert_eq!(of(&taken(Err("full".into()))[&cgroup]), ("1,3".into(), String::new()));
    update("", "1");
    assert_eq!(of(&taken(Ok(()))[&cgroup]), ("1,3".into(), "1".into()));
    assert!(taken(Ok(())).is_empty());
    // While writes are blocked, the original follows the runtime's caller as well.
    placed.block_writes(true);
    update("0,2", "");
    assert_eq!(of(&taken(Ok(()))[&cgroup]), ("0,2".into(), String::new()));
}

#[test]
fn daemon_that_may_not_place_only_learns_names() {
    let placed = placed(false);
    assert_eq!(create(&placed, "one", 2), NriAnswer::default());
    assert_eq!(placed.lock().held.allocations.iter().count(), 0);
    let origin = Origin::Pod {
        pod_uid: "one".into(),
        qos: QosClass::Guaranteed,
        container_id: Some("id-one".into()),
        runtime: None,
    };
    let cgroup = CgroupPath::new("/kubepods/podone/id-one");
    let mut workloads = [Workload { cgroup, cgroup_id: None, name: "pod-one/id-one".into(), origin }];
    placed.rename(&mut workloads);
    assert!(placed.unrecorded().is_empty(), "nothing was set");
    assert_eq!(workloads[0].name, "shop/one/main");
    assert_eq!(placed.take_report().unwrap().containers, 1);
}

/// A kubelet with a static CPU manager that has given CPUs 2-3 to one pod's container.
fn static_kubelet(placed: &SharedLedger, claimed: &[(&str, &str)]) {
    let claims = claimed.iter().map(|(uid, cpus)| Claim {
        pod: ClaimedPod::Uid((*uid).to_owned()),
        container: Some("main".into()),
        cpus: cpus.parse().unwrap(),
        source: "cpu_manager_state".into(),
        ..Claim::default()
    });
    let kubelet =
        Kubelet { cpu_policy: Some("static".into()), claims: claims.collect(), ..Kubelet::default() };
    placed.set_foreign_owners(ForeignOwners { kubelet, ..ForeignOwners::default() });
}

/// A container as a kubelet with a static CPU manager sends it.
fn with_cpus(name: &str, class: &str, cpus: u64, list: &str) -> Box<NriSubject> {
    let mut resources = amounts(cpus);
    resources.cpu.as_mut().unwrap().cpus = list.into();
    let mut subject = subject(name, class, Some(resources));
    subject.pod.uid = name.into();
    subject
}

fn workload_of(name: &str) -> Workload {
    let origin = Origin::Pod {
        pod_uid: name.into(),
        qos: QosClass::Guaranteed,
        container_id: Some(format!("id-{name}")),
        runtime: None,
    };
    let cgroup = CgroupPath::new(&format!("/kubepods/pod{name}/id-{name}"));
    Workload { cgroup, cgroup_id: None, name: name.into(), origin }
}

#[test]
fn what_the_kubelet_gave_is_left_alone_and_others_leave_it() {
    let placed = placed(true);
    static_kubelet(&placed, &[]);
    let shared = subject("shared", "/besteffort", None);
    let shared = ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    assert_eq!(cpuset(shared.adjust.as_ref()), "0-3/0");
    // The CPUs come with the container; the kubelet's checkpoint has not been read yet.
    let given =
        ask(&placed, |reply| NriCall::Create { subject: with_cpus("exclusive", "", 2, "1-2"), reply });
    assert_eq!(given.adjust, None);
    assert_eq!(updates(&given), [("id-shared".to_owned(), "0,3/".to_owned())]);
    let again = ask(&placed, |reply| NriCall::Update {
        subject: with_cpus("exclusive", "", 2, "1-2"),
        wanted: amounts(2),
        reply,
    });
    assert_eq!(again, NriAnswer::default());
    // Its CPUs are those of the shared pool, so it shares.
    let sharing =
        ask(&placed, |reply| NriCall::Create { subject: with_cpus("s", "/burstable", 1, "0,3-7"), reply });
    assert!(!cpuset(sharing.adjust.as_ref()).is_empty());
    assert_eq!(placed.lock().held.allocations.exclusive_cpus().to_string(), "1-2");
    let ended = ask(&placed, |reply| NriCall::Stop { subject: with_cpus("exclusive", "", 2, ""), reply });
    assert!(updates(&ended).contains(&("id-shared".to_owned(), "0-3/".to_owned())), "{ended:?}");

    // The control: the same container without a static CPU manager.
    let alone = self::placed(true);
    let ours = ask(&alone, |reply| NriCall::Create { subject: with_cpus("exclusive", "", 2, "1-2"), reply });
    assert_eq!(
        cpuset(ours.adjust.as_ref()).split('/').next().map(|cpus| cpus.parse::<CpuSet>().unwrap().len()),
        Some(2)
    );
}

#[test]
fn what_turns_out_to_be_the_kubelets_is_given_up() {
    let placed = placed(true);
    let mut one = subject("one", "", Some(amounts(2)));
    one.pod.uid = "one".into();
    let ours = ask(&placed, |reply| NriCall::Create { subject: one, reply });
    assert_eq!(cpuset(ours.adjust.as_ref()), "0-1/0");
    static_kubelet(&placed, &[("one", "4-5")]);
    let workloads = [workload_of("one")];
    let (_, owners) =
        placed.owners(&workloads, &Sample::default(), &Model::default(), &Policy::default(), |_| ());
    assert_eq!(owners.of(&workloads[0]).map(|ownership| ownership.owner), Some(Owner::KubeletCpuManager));
    assert_eq!(placed.lock().held.allocations.exclusive_cpus().to_string(), "4-5");
    let update = ask(&placed, |reply| NriCall::Update {
        subject: with_cpus("one", "", 2, "4-5"),
        wanted: amounts(2),
        reply,
    });
    assert_eq!(update, NriAnswer::default());
}

#[test]
fn a_synchronisation_finds_what_the_kubelet_gave() {
    let placed = placed(true);
    static_kubelet(&placed, &[("a", "0-1")]);
    let (a, b) = (with_cpus("a", "", 2, "0-1"), subject("b", "", Some(amounts(2))));
    let answer = ask(&placed, |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: vec![a.pod, b.pod],
        containers: vec![a.container, b.container],
        reply,
    });
    assert_eq!(updates(&answer), [("id-b".to_owned(), "2-3/0".to_owned())]);
    let update = ask(&placed, |reply| NriCall::Update {
        subject: with_cpus("a", "", 2, "0-1"),
        wanted: amounts(2),
        reply,
    });
    assert_eq!(update, NriAnswer::default());
    let noted: Vec<_> = placed.unrecorded().into_keys().collect();
    assert_eq!(
        noted,
        [CgroupPath::new("/kubepods/podb/id-b")],
        "a cpuset of the kubelet is not restored either"
    );
}

#[test]
fn what_the_runtime_says_there_is_replaces_what_was_known() {
    let placed = placed(true);
    create(&placed, "gone", 2);
    create(&placed, "stays", 2);
    runs(&placed, "gone");
    let NriSubject { pod, mut container } = *subject("stays", "", Some(amounts(2)));
    // The runtime's stored cpuset differs from the grant.
    let stored = container.linux.as_mut().unwrap().resources.as_mut().unwrap().cpu.as_mut().unwrap();
    (stored.cpus, stored.mems) = ("0-7".into(), String::new());
    let mut stopped = container.clone();
    (stopped.id, stopped.state) = ("old".into(), STOPPED);
    let orphan = Container { id: "orphan".into(), ..Container::default() };
    let answer = ask(&placed, |reply| NriCall::Synchronize {
        runtime: RuntimeVersion { name: "containerd".into(), ..RuntimeVersion::default() },
        pods: vec![pod],
        containers: vec![container, stopped, orphan],
        reply,
    });
    assert_eq!(updates(&answer), [("id-stays".to_owned(), "2-3/0".to_owned())]);
    assert_eq!(placed.lock().held.allocations.iter().count(), 1);
    let report = placed.take_report().unwrap();
    assert_eq!((report.containers, report.late), (1, 0));
    assert!(matches!(report.link, RuntimeLink::Up { name, .. } if name == "containerd"));
}

#[test]
fn pending_container_keeps_its_place_across_a_reconnect_that_does_not_list_it() {
    let state = tempfile::tempdir().unwrap();
    let placed = placed(true);
    let exposure = ResourceFiles::below(state.path()).unwrap();
    let folder = state.path().join("exposed/id-one");
    let again = || {
        let (reply, mut answer) = Reply::new();
        let call = NriCall::Synchronize {
            runtime: RuntimeVersion::default(),
            pods: Vec::new(),
            containers: Vec::new(),
            reply,
        };
        super::answer(&placed, &Gate::default(), &exposure, call);
        updates(&answer.try_recv().unwrap())
    };
    let (reply, mut answer) = Reply::new();
    let subject_of_one = subject("one", "", Some(amounts(2)));
    super::answer(&placed, &Gate::default(), &exposure, NriCall::Create { subject: subject_of_one, reply });
    assert_eq!(cpuset(answer.try_recv().unwrap().adjust.as_ref()), "0-1/0");
    assert_eq!((again(), again()), (vec![], vec![]), "it is set to what it was given");
    assert!(folder.exists(), "the runtime is about to mount it");
    assert_eq!(cpuset(create(&placed, "two", 2).adjust.as_ref()), "2-3/0", "no other gets its CPUs");
    runs(&placed, "two");
    runs(&placed, "one");
    again();
    assert_eq!(
        (placed.lock().held.allocations.iter().count(), folder.exists()),
        (0, false),
        "both have ended"
    );
}

/// The runtime lists these containers as running, with `stored` CPUs.
fn synchronize(placed: &SharedLedger, names: &[&str], stored: &str) -> NriAnswer {
    let subjects: Vec<NriSubject> = names.iter().map(|name| *with_cpus(name, "", 2, stored)).collect();
    let (pods, containers) = subjects.into_iter().map(|one| (one.pod, one.container)).unzip();
    ask(placed, |reply| NriCall::Synchronize { runtime: RuntimeVersion::default(), pods, containers, reply })
}

#[test]
fn a_restart_adopts_what_cgroups_show_and_not_what_the_runtime_has_stored() {
    for v2 in [true, false] {
        let host = Fixture::new(v2);
        host.cgroup("/kubepods/podone/id-one", "2-3\n", "0\n");
        let placed = placed(true);
        placed.adopt(CpusetTree::new(&host.layout.cpuset.path, v2), BTreeMap::new());
        let answer = synchronize(&placed, &["one"], "0-1");
        // The runtime is told, or it would write its stored cpuset again.
        assert_eq!(updates(&answer), [("id-one".to_owned(), "2-3/0".to_owned())]);
        // From now on the runtime writes on our behalf, so the former cpuset is recorded.
        let (cgroup, before) = placed.unrecorded().pop_first().unwrap();
        assert_eq!(cgroup.as_str(), "/kubepods/podone/id-one");
        assert_eq!(before.cpus.unwrap().to_string(), "2-3");
        assert!(placed.take_early_turn());
    }
}

#[test]
fn a_restart_keeps_what_was_granted_from_others_and_releases_what_is_gone() {
    let host = Fixture::new(true);
    let tree = || CpusetTree::new(&host.layout.cpuset.path, true);
    let before = placed(true);
    for (name, cpus) in [("one", "0-1\n"), ("two", "2-3\n"), ("gone", "4-5\n"), ("other", "7\n")] {
        create(&before, name, 2);
        if name != "gone" {
            host.cgroup(&format!("/kubepods/pod{name}/id-{name}"), cpus, "0\n");
        }
    }
    let mut actuator = host.actuator();
    actuator.note_grants(before.regranted().unwrap()).unwrap();
    assert!(before.regranted().is_none(), "nothing has changed since");
    drop(actuator);

    let placed = placed(true);
    placed.adopt(tree(), host.journal().grants().clone());
    // One container has ended, and another writer has changed another one.
    assert_eq!(placed.lock().held.allocations.exclusive_cpus().to_string(), "0-3");
    placed.expect_only(&[workload_of("one"), workload_of("two")]);
    assert_eq!(placed.lock().held.allocations.exclusive_cpus().to_string(), "0-3");
    placed.expect_only(&[workload_of("two")]);
    assert_eq!(placed.lock().held.allocations.exclusive_cpus().to_string(), "2-3");
    let answer = synchronize(&placed, &["two"], "2-3");
    assert_eq!(updates(&answer), [("id-two".to_owned(), "2-3/0".to_owned())]);
    assert_eq!(placed.regranted().unwrap().keys().collect::<Vec<_>>(), ["id-two"]);
}

#[test]
fn a_runtime_that_was_there_and_is_not_is_missed_and_one_that_never_was_is_not() {
    let placed = placed(true);
    let down = || NriCall::Down("connecting to /n: absent".into());
    super::answer(&placed, &Gate::default(), &ResourceFiles::default(), down());
    assert_eq!(placed.degraded(), None);
    create(&placed, "one", 2);
    super::answer(&placed, &Gate::default(), &ResourceFiles::default(), down());
    let degraded = placed.degraded().unwrap();
    assert_eq!((degraded.source.as_str(), degraded.reason.as_str()), ("nri", "connecting to /n: absent"));
    // Grants stay: the container runs.
    assert_eq!(placed.lock().held.allocations.iter().count(), 1);
}

#[test]
fn a_late_answer_is_counted_and_what_was_decided_stays() {
    let placed = placed(true);
    let (reply, answer) = Reply::new();
    drop(answer);
    super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Create { subject: subject("one", "", Some(amounts(2))), reply },
    );
    assert_eq!(placed.take_report().unwrap().late, 1);
    assert_eq!(placed.lock().held.allocations.iter().count(), 1);
}

#[test]
fn an_id_that_comes_again_in_another_cgroup_is_another_container() {
    let placed = placed(true);
    create(&placed, "one", 2);
    let mut again = subject("two", "", Some(amounts(2)));
    again.container.id = "id-one".into();
    ask(&placed, |reply| NriCall::Create { subject: again, reply });
    let there: Vec<_> = placed.decisions().all().into_iter().filter(|one| !one.subject.ended).collect();
    assert_eq!(there.len(), 1, "{there:?}");
    assert!(there[0].subject.name.contains("two"), "{there:?}");
    assert_eq!(placed.lock().held.allocations.iter().count(), 1);
}

#[test]
fn unplaced_container_is_reported_until_it_has_ended() {
    let placed = placed(true);
    let refused = create(&placed, "big", 9);
    assert_eq!(cpuset(refused.adjust.as_ref()), "0-7/");
    assert!(placed.take_report().unwrap().unplaced["id-big"].contains("cpu"));
    super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Removed(subject("big", "", None)),
    );
    let report = placed.take_report().unwrap();
    assert_eq!((report.unplaced.len(), report.containers), (0, 0));
    assert_eq!(placed.lock().held.allocations.iter().count(), 0);
}

#[test]
fn while_paused_nothing_is_set_but_what_was_set_before() {
    let (placed, gate) = (placed(true), Gate::default());
    let shared = subject("shared", "/besteffort", None);
    ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    assert_eq!(cpuset(create(&placed, "one", 2).adjust.as_ref()), "0-1/0");
    let set = |placed: &SharedLedger, id: &str| {
        let cpuset = placed.lock().cpuset(id).unwrap_or_default();
        cpuset.cpus.map(|cpus| cpus.to_string()).unwrap_or_default()
    };
    let shared = set(&placed, "id-shared");

    gate.close(None);
    let ask = |call: &dyn Fn(Reply) -> NriCall| ask_behind(&gate, &placed, call);
    let made = ask(&|reply| NriCall::Create { subject: subject("two", "", Some(amounts(2))), reply });
    assert_eq!(made, NriAnswer::default());
    let update = |name: &str, cpus| {
        let answer = ask(&|reply| NriCall::Update {
            subject: subject(name, "", Some(amounts(2))),
            wanted: amounts(cpus),
            reply,
        });
        updates(&answer)
    };
    let before = |cpuset: &str| vec![("id-one".to_owned(), cpuset.to_owned())];
    // It gets more only when the pause is over.
    assert_eq!(update("one", 4), before("0-1/0"));
    assert_eq!(update("two", 2), [], "it was never set to anything");
    let ended = ask(&|reply| NriCall::Stop { subject: subject("two", "", None), reply });
    assert_eq!(ended, NriAnswer::default());
    assert_eq!(set(&placed, "id-shared"), shared);

    gate.open();
    assert_ne!(update("one", 4), before("0-1/0"));
    assert_eq!(set(&placed, "id-two"), "", "a container that ended meanwhile has nothing");
    let answer = ask(&|reply| NriCall::Create { subject: subject("three", "", Some(amounts(2))), reply });
    assert!(!cpuset(answer.adjust.as_ref()).is_empty());
}

#[test]
fn a_daemon_that_ends_and_restores_tells_nothing_and_knows_when_it_last_did() {
    let (placed, gate) = (placed(true), Gate::default());
    assert_eq!(placed.retire(), None, "no runtime was told anything");
    let placed_again = self::placed(true);
    create(&placed_again, "one", 2);
    assert!(placed_again.retire().is_some(), "its runtime creates it now");
    gate.close(None);
    let update = ask_behind(&gate, &placed_again, |reply| NriCall::Update {
        subject: subject("one", "", Some(amounts(2))),
        wanted: amounts(2),
        reply,
    });
    assert_eq!(update, NriAnswer::default(), "its original is being restored");
}

#[test]
fn each_call_is_explained_and_so_is_what_it_changed_for_others() {
    use enforcer_report::decision::DecisionState::{Changed, Placed as Given, Released, Unplaced};

    let placed = placed(true);
    let shared = subject("shared", "/besteffort", None);
    ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    create(&placed, "one", 2);
    create(&placed, "big", 9);
    ask(&placed, |reply| NriCall::Stop { subject: subject("one", "", None), reply });
    let told = |name: &str| {
        let all = placed.decisions().all();
        all.into_iter().find(|one| one.subject.name == format!("shop/{name}/main")).unwrap()
    };
    let states = |name: &str| told(name).records.iter().map(|one| one.state).collect::<Vec<_>>();
    assert_eq!(states("one"), [Given, Released]);
    assert_eq!(states("big"), [Unplaced, Changed], "it shares what is left, which is more now");
    assert_eq!(states("shared"), [Given, Changed, Changed]);
    assert!(told("one").subject.ended && !told("shared").subject.ended);

    let first = &told("one").records[0];
    assert_eq!((first.by.as_str(), first.considered.asked.milli_cpus), ("create", Some(2000)));
    assert_eq!(
        first.considered.placement.as_ref().map(|given| given.cpus.to_string()).as_deref(),
        Some("0-1")
    );
    assert!(first.considered.candidates.iter().any(|one| one.chosen && one.place == "node 0"), "{first:?}");
    assert_eq!(first.updates[0].container, "shop/shared/main");
    let refused = &told("big").records[0];
    assert!(refused.reason.contains("cpu") && !refused.considered.candidates.is_empty(), "{refused:?}");
    let changed = &told("shared").records[1];
    assert!(changed.reason.contains("`create` about shop/one/main"), "{}", changed.reason);
}

#[test]
fn a_container_is_placed_as_its_entry_declares() {
    let entries = "[[workload]]\nname = 'gold'\nnamespace = 'shop'\nlabels = { tier = 'gold' }\n\
         cpus = 3\nclass = 'exclusive'\nnuma_nodes = '1'\n";
    let (placed, _) = declared(entries);
    let mut gold = subject("gold", "/burstable", Some(amounts(1)));
    gold.pod.labels.insert("tier".into(), "gold".into());
    let answer = ask(&placed, |reply| NriCall::Create { subject: gold, reply });
    assert_eq!(cpuset(answer.adjust.as_ref()), "4-6/1");
    // The control: the same pod without the label.
    let plain = subject("plain", "/burstable", Some(amounts(1)));
    let answer = ask(&placed, |reply| NriCall::Create { subject: plain, reply });
    assert_eq!(cpuset(answer.adjust.as_ref()), "0-3/0");
}

#[test]
fn profile_kubelet_ignores_what_is_declared_for_pods_but_that_they_are_left_alone() {
    let kubelet = "[placement.hints]\nprofile = 'kubelet'\n";
    let entry = "[[workload]]\nname = 'one'\npod = 'one'\ncpus = 3\nnuma_nodes = '1'\n";
    let (plain, _) = declared(kubelet);
    let (placed, _) = declared(&format!("{kubelet}{entry}"));
    let expected = cpuset(create(&plain, "one", 2).adjust.as_ref());
    assert_eq!(cpuset(create(&placed, "one", 2).adjust.as_ref()), expected);
    // The control: under the other profile the entry counts.
    let (ours, _) = declared(entry);
    assert_ne!(cpuset(create(&ours, "one", 2).adjust.as_ref()), expected);
    let (placed, _) = declared(&format!("{kubelet}{entry}enforce = false\n"));
    assert_eq!(create(&placed, "one", 2), NriAnswer::default());
}

#[test]
fn a_container_that_is_declared_to_be_left_alone_gets_no_answer_and_gives_back_what_it_had() {
    let (placed, mut policy) =
        declared("[[workload]]\nname = 'alone'\npod = 'one'\ncontainer = 'main'\nenforce = false\n");
    assert_eq!(create(&placed, "one", 2), NriAnswer::default());
    let update = |placed: &SharedLedger| {
        let subject = subject("one", "", Some(amounts(2)));
        ask(placed, |reply| NriCall::Update { subject, wanted: amounts(2), reply })
    };
    assert_eq!(update(&placed), NriAnswer::default());
    assert_eq!(cpuset(create(&placed, "two", 2).adjust.as_ref()), "0-1/0");

    // It was placed before the configuration was reloaded.
    let entry = policy.workloads.clone();
    policy.workloads.clear();
    let placed = placed_by(&policy);
    assert_eq!(cpuset(create(&placed, "one", 2).adjust.as_ref()), "0-1/0");
    policy.workloads = entry;
    placed.owners(&[workload_of("one")], &Sample::default(), &Model::default(), &policy, |_| ());
    assert!(placed.lock().held.allocations.exclusive_cpus().is_empty());
    assert_eq!(update(&placed), NriAnswer::default());
}

#[test]
fn resource_files_of_a_container_and_of_those_that_make_room_stay_current() {
    let state = tempfile::tempdir().unwrap();
    let placed = placed(true);
    let exposure = ResourceFiles::below(state.path()).unwrap();
    let (gate, dir) = (Gate::default(), state.path().join("exposed"));
    let ask = |call: &dyn Fn(Reply) -> NriCall| {
        let (reply, mut answer) = Reply::new();
        super::answer(&placed, &gate, &exposure, call(reply));
        exposure.refresh(&placed);
        answer.try_recv()
    };
    let read = |id: &str| {
        let text = std::fs::read_to_string(dir.join(id).join("resources.sh")).unwrap_or_default();
        text.lines().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let shared =
        ask(&|reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply }).unwrap();
    assert_eq!(shared.mounts[0].destination, "/.numa-enforcer");
    assert_eq!(shared.mounts[0].source, dir.join("id-shared").to_str().unwrap());
    assert!(shared.mounts[0].options.contains(&"ro".to_owned()));
    let before = read("id-shared");
    ask(&|reply| NriCall::Create { subject: subject("one", "", Some(amounts(2))), reply }).unwrap();
    assert_eq!(read("id-one"), ["SHARED_CPUS=\"\"", "EXCLUSIVE_CPUS=\"0-1\""]);
    let squeezed = read("id-shared");
    assert_ne!(squeezed, before);

    // While enforcement is paused no cpuset changes, so neither do the files.
    gate.close(None);
    ask(&|reply| NriCall::Stop { subject: subject("one", "", None), reply }).unwrap();
    assert_eq!(read("id-shared"), squeezed);
    gate.open();
    ask(&|reply| NriCall::Stop { subject: subject("one", "", None), reply }).unwrap();
    assert_eq!(read("id-shared"), before);
    let removed = |_: Reply| NriCall::Removed(subject("one", "", None));
    assert!(ask(&removed).is_err(), "no caller waits for an answer");
    assert!(!dir.join("id-one").exists() && dir.join("id-shared").exists());
}

#[test]
fn container_that_makes_room_reads_it_without_a_turn() {
    let state = tempfile::tempdir().unwrap();
    let exposure = ResourceFiles::below(state.path()).unwrap();
    let (calls, receiver) = mpsc::channel(8);
    let mut answers = Vec::new();
    for subject in [subject("shared", "/besteffort", None), subject("one", "", Some(amounts(2)))] {
        let (reply, answer) = Reply::new();
        calls.try_send(NriCall::Create { subject, reply }).unwrap();
        answers.push(answer);
    }
    drop(calls);
    answer_calls(&placed(true), &Gate::default(), &exposure, receiver);
    assert!(answers.iter_mut().all(|answer| answer.try_recv().is_ok()));
    let text = std::fs::read_to_string(state.path().join("exposed/id-shared/resources.sh")).unwrap();
    assert!(text.starts_with("SHARED_CPUS=\"2-3\""), "{text}");
}

#[test]
fn a_container_whose_directory_cannot_be_made_starts_without() {
    let state = tempfile::tempdir().unwrap();
    let placed = placed(true);
    let exposure = ResourceFiles::below(state.path()).unwrap();
    std::fs::write(state.path().join("exposed/id-one"), "in the way").unwrap();
    let (reply, mut answer) = Reply::new();
    let subject = subject("one", "", Some(amounts(2)));
    super::answer(&placed, &Gate::default(), &exposure, NriCall::Create { subject, reply });
    let answer = answer.try_recv().unwrap();
    assert_eq!((cpuset(answer.adjust.as_ref()).as_str(), answer.mounts), ("0-1/0", vec![]));
    assert!(exposure.degraded()[0].reason.contains("exposed/id-one"));
}

#[test]
fn while_nothing_can_be_recorded_no_answer_sets_anything() {
    let placed = placed(true);
    assert_eq!(cpuset(create(&placed, "one", 2).adjust.as_ref()), "0-1/0");
    placed.block_writes(true);
    assert_eq!(create(&placed, "two", 2), NriAnswer::default());
    // An update to its own cpuset, or the runtime would write its stored one.
    let update = |placed: &SharedLedger| {
        let subject = subject("one", "", Some(amounts(2)));
        updates(&ask(placed, |reply| NriCall::Update { subject, wanted: amounts(4), reply }))
    };
    assert_eq!(update(&placed), [("id-one".to_owned(), "0-1/0".to_owned())]);
    placed.block_writes(false);
    assert_ne!(update(&placed), [("id-one".to_owned(), "0-1/0".to_owned())]);
}
