//! Containers with resource claims.

use enforcer_core::dra::{
    ClaimAllocation, ClaimContext, ClaimLedger, ClaimSupply, ClaimUid, LedgerLimits, MissingAmounts,
    PrepareDecision, cdi::WrittenClaim,
};
use enforcer_report::claims::ClaimCallTotals;
use enforcer_runtime::nri::api::{CdiDevice, HugepageLimit};
use serde_json::{Value, json};

use super::*;
use crate::dra::ClaimPlaces as _;

/// A claim of these amounts on a node, for the pod with this name.
fn allocation((name, node, pod): (&str, u32, &str), consumed: &Value) -> ClaimAllocation {
    let uid = format!("uid-{name}");
    let object = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": uid},
        "status": {
            "reservedFor": [{"resource": "pods", "name": pod, "uid": format!("pod-{pod}")}],
            "allocation": {"devices": {"results": [{
                "request": "place", "driver": "numa-enforcer.io", "pool": "n1",
                "device": format!("ne-numa{node}"), "shareID": "share", "consumedCapacity": consumed,
            }], "config": [{"source": "FromClaim", "opaque": {
                "driver": "numa-enforcer.io",
                "parameters": {
                    "apiVersion": "numa-enforcer.io/v1alpha1", "kind": "NumaClaimConfig", "quota": "remove",
                },
            }}]}},
        },
    });
    let missing = MissingAmounts::Refuse;
    let context = ClaimContext { driver: "numa-enforcer.io", pool: "n1", uid: &uid, missing };
    ClaimAllocation::read(&object, &context).unwrap()
}

fn prepare(ledger: &mut ClaimLedger, supply: &ClaimSupply, claim: &ClaimAllocation) -> PrepareDecision {
    let none = CpuSet::new();
    let limits = LedgerLimits { now: 0, share_exclusive: false, interrupt_cpus: &none };
    ledger.prepare(claim, supply, &limits).unwrap()
}

/// A ledger with such a claim.
fn with_claim(
    mut ledger: ClaimLedger,
    supply: &ClaimSupply,
    of: (&str, u32, &str),
    consumed: &Value,
) -> ClaimLedger {
    assert_eq!(prepare(&mut ledger, supply, &allocation(of, consumed)), PrepareDecision::Prepared);
    ledger
}

fn cpus_of(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn no_claims() -> ClaimLedger {
    ClaimLedger::new("n1", "boot")
}

/// Holds a claim `a` of the pod `one`: two CPUs of node 1, and memory.
fn claim_a(placed: &SharedLedger) -> CpuSet {
    let supply = placed.supply().unwrap();
    let consumed = json!({"numa-enforcer.io/cpu": "2", "numa-enforcer.io/memory": "64Mi"});
    let ledger = with_claim(no_claims(), &supply, ("a", 1, "one"), &consumed);
    placed.hold(&ledger, &supply).unwrap();
    ledger.exclusive_cpus()
}

/// A container that names the claim `a`, as containerd passes it on.
fn naming(name: &str) -> Box<NriSubject> {
    let mut subject = subject(name, "", Some(amounts(2)));
    subject.pod.uid = format!("pod-{name}");
    subject.container.env = vec!["NUMA_ENFORCER_CLAIM_uid-a=0-7;0".into()];
    subject
}

fn quota(resources: Option<&LinuxResources>) -> Option<i64> {
    Some(resources?.cpu.as_ref()?.quota?.value)
}

#[test]
fn a_container_gets_what_its_claim_has_and_no_other_container_does() {
    let placed = placed(true);
    let shared = subject("shared", "/besteffort", None);
    ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    let cpus = claim_a(&placed);
    assert!(placed.take_early_turn(), "containers that share leave the CPUs");
    let on_shared = placed.lock().cpuset("id-shared").unwrap().cpus.unwrap();
    assert!(on_shared.is_disjoint(&cpus), "{on_shared} and {cpus}");
    // Six CPUs of eight are left.
    let other = create(&placed, "other", 6).adjust;
    assert_eq!(cpuset(other.as_ref()).split('/').next().unwrap(), "0-3,6-7", "the claim has {cpus}");

    let one = ask(&placed, |reply| NriCall::Create { subject: naming("one"), reply }).adjust;
    assert_eq!(cpuset(one.as_ref()), format!("{cpus}/1"));
    assert_eq!(quota(one.as_ref()), Some(-1));
    runs(&placed, "one");
    // The runtime would write what the kubelet stored.
    let updated = ask(&placed, |reply| NriCall::Update { subject: naming("one"), wanted: amounts(2), reply });
    let own = updated.updates[0].linux.as_ref().unwrap().resources.as_ref();
    assert_eq!((cpuset(own), quota(own)), (format!("{cpus}/1"), Some(-1)));
    // It keeps them over a new list, and by the name of a device.
    let NriSubject { pod, mut container } = *naming("one");
    container.env.clear();
    container.cdi_devices = vec![CdiDevice { name: "numa-enforcer.io/place=claim-uid-a".into() }];
    let runtime = RuntimeVersion::default();
    ask(&placed, |reply| NriCall::Synchronize {
        runtime,
        pods: vec![pod],
        containers: vec![container],
        reply,
    });
    assert_eq!(placed.lock().cpuset("id-one").unwrap().cpus, Some(cpus));
}

#[test]
fn a_container_of_another_pod_gets_nothing_of_a_claim_that_it_names() {
    let placed = placed(true);
    let cpus = claim_a(&placed);
    let answer = ask(&placed, |reply| NriCall::Create { subject: naming("thief"), reply }).adjust;
    let got: CpuSet = cpuset(answer.as_ref()).split('/').next().unwrap().parse().unwrap();
    assert_eq!(got.len(), 2, "it has a place as any other");
    assert!(got.is_disjoint(&cpus), "{got} and {cpus}");
    assert_eq!((quota(answer.as_ref()), placed.lock().claims.spoofed), (None, 1));
    for _ in 0..2 {
        assert_eq!(placed.unconfirmed().len(), 1, "the pod may be added to the claim at any time");
    }
    runs(&placed, "thief");
    ask(&placed, |reply| NriCall::Stop { subject: naming("thief"), reply });
    super::answer(&placed, &Gate::default(), &ResourceFiles::default(), NriCall::Removed(naming("thief")));
    assert_eq!(placed.unconfirmed().len(), 0, "its container is gone");
}

#[test]
fn mark_beside_claims_counts_only_with_cpus_that_its_container_may_have() {
    let placed = placed(true);
    let cpus = claim_a(&placed);
    let free = cpus_of("4-7").difference(&cpus);
    let marked = |name: &str, cpus: &str| {
        let mut subject = subject(name, "", Some(amounts(2)));
        subject.container.env = vec![format!("DRA_CPUSET_x={cpus}")];
        subject
    };
    let mut unnamed = subject("unnamed", "", Some(amounts(2)));
    unnamed.pod.annotations.insert("katalyst.kubewharf.io/qos_level".into(), "dedicated_cores".into());
    for subject in [marked("thief", &cpus.to_string()), marked("greedy", "0-7"), unnamed] {
        let name = subject.pod.name.clone();
        let answer = ask(&placed, |reply| NriCall::Create { subject, reply }).adjust;
        let got = cpus_of(cpuset(answer.as_ref()).split('/').next().unwrap());
        assert!(got.len() == 2 && got.is_disjoint(&cpus), "{name}: {got} and {cpus}");
        assert!(cpus.is_subset(&placed.supply().unwrap().cpus()), "the claim keeps its CPUs");
        let stopped = super::subject(&name, "", Some(amounts(2)));
        ask(&placed, |reply| NriCall::Stop { subject: stopped, reply });
    }
    let honest = marked("honest", &free.to_string());
    let answer = ask(&placed, |reply| NriCall::Create { subject: honest, reply }).adjust;
    assert!(["", "/"].contains(&&*cpuset(answer.as_ref())), "another controller sets its CPUs");
}

#[test]
fn container_with_the_variable_of_a_claim_that_it_may_not_have_yet_gets_the_claim_later() {
    let placed = placed(true);
    let supply = placed.supply().unwrap();
    let mut lost = no_claims();
    let written = WrittenClaim { cpus: cpus_of("6-7"), ..WrittenClaim::default() };
    lost.recover(ClaimUid::parse("uid-a").unwrap(), &written, &supply);
    placed.hold_all(&lost, &supply);
    let with_variables = || {
        let mut subject = naming("one");
        subject.container.env.push("DRA_CPUSET_uid-a=6-7".into());
        subject
    };
    let one = ask(&placed, |reply| NriCall::Create { subject: with_variables(), reply }).adjust;
    let got = cpus_of(cpuset(one.as_ref()).split('/').next().unwrap());
    assert!(!got.is_empty() && got.is_disjoint(&written.cpus), "{got}");
    runs(&placed, "one");
    let whole = with_claim(lost, &supply, ("a", 1, "one"), &json!({"numa-enforcer.io/cpu": "2"}));
    placed.hold(&whole, &supply).unwrap();
    assert_eq!(placed.lock().cpuset("id-one").unwrap().cpus, Some(written.cpus));
}

#[test]
fn cpus_of_a_container_go_to_no_claim() {
    let placed = placed(true);
    let before = placed.supply().unwrap();
    create(&placed, "one", 3);
    let consumed = json!({"numa-enforcer.io/cpu": "3"});
    // Decided before the container came.
    let late = with_claim(no_claims(), &before, ("a", 0, "two"), &consumed);
    let taken = placed.hold(&late, &before).unwrap_err();
    assert!(!taken.is_empty() && placed.lock().claims.place("id-one").is_none());
    let now = placed.supply().unwrap();
    let too_late = allocation(("a", 0, "two"), &consumed);
    let PrepareDecision::Wait(shortage) = prepare(&mut no_claims(), &now, &too_late) else {
        panic!("the container has them")
    };
    let said = "numa0: 3 CPUs asked, 0 free, still held: 3 by container shop/one/main";
    assert_eq!(shortage.to_string(), said);
    let in_time = with_claim(no_claims(), &now, ("a", 1, "two"), &consumed);
    assert_eq!(placed.hold(&in_time, &now), Ok(()));
    assert!(in_time.exclusive_cpus().is_disjoint(&before.node(numa_topology::id::NodeId(0)).unwrap().cpus));
}

#[test]
fn a_container_changes_with_its_claims() {
    let placed = placed(true);
    let supply = placed.supply().unwrap();
    let near = json!({"numa-enforcer.io/milliCpu": "500"});
    let ledger = with_claim(no_claims(), &supply, ("a", 1, "one"), &near);
    placed.hold(&ledger, &supply).unwrap();
    let one = ask(&placed, |reply| NriCall::Create { subject: naming("one"), reply }).adjust;
    assert_eq!((cpuset(one.as_ref()), quota(one.as_ref())), ("4-7/".into(), None));
    runs(&placed, "one");
    let both = with_claim(ledger, &supply, ("b", 1, "two"), &json!({"numa-enforcer.io/cpu": "2"}));
    placed.hold(&both, &supply).unwrap();
    let left = cpus_of("4-7").difference(&both.exclusive_cpus());
    assert_eq!(placed.lock().cpuset("id-one").unwrap().cpus, Some(left));
    // Both are given up while it runs: the CPUs are those of all.
    let mut none = both;
    for uid in ["uid-a", "uid-b"] {
        none.unprepare(&ClaimUid::parse(uid).unwrap()).unwrap();
    }
    placed.hold_all(&none, &supply);
    assert_eq!(placed.lock().cpuset("id-one").unwrap().cpus, Some(cpus_of("0-7")));
}

#[test]
fn limits_of_huge_pages_are_at_least_what_a_claim_has() {
    let machine = Machine::new().sockets(2).cores(4).threads(1).hugepages(2 << 20, 64).build();
    let policy: Policy = toml::from_str("nri.place = true").unwrap();
    let inventory = Inventory::new(machine, Vec::new(), &policy.placement).unwrap();
    let placed = SharedLedger::default();
    placed.apply_policy(Some(Arc::new(inventory)), &policy, true);
    let supply = placed.supply().unwrap();
    let consumed = json!({"numa-enforcer.io/hugepages2Mi": "8Mi"});
    let ledger = with_claim(no_claims(), &supply, ("a", 0, "one"), &consumed);
    placed.hold(&ledger, &supply).unwrap();
    let mut subject = naming("one");
    let resources = subject.container.linux.as_mut().unwrap().resources.as_mut().unwrap();
    resources.hugepage_limits = vec![HugepageLimit { page_size: "2MB".into(), limit: 4 << 20 }];
    let adjust = ask(&placed, |reply| NriCall::Create { subject, reply }).adjust.unwrap();
    assert_eq!(adjust.hugepage_limits, [HugepageLimit { page_size: "2MB".into(), limit: 8 << 20 }]);
    assert_eq!(cpuset(Some(&adjust)), "0-3/0");
    runs(&placed, "one");
    let limits = |wanted: LinuxResources| {
        let answer =
            ask(&placed, |reply| NriCall::Update { subject: naming("one"), wanted, reply }).updates.remove(0);
        answer.linux.unwrap().resources.unwrap().hugepage_limits
    };
    assert_eq!(limits(amounts(2)), [], "an update without limits changes none");
    let large = HugepageLimit { page_size: "2MB".into(), limit: 16 << 20 };
    assert_eq!(limits(LinuxResources { hugepage_limits: vec![large.clone()], ..amounts(2) }), [large]);
}

#[test]
fn a_claim_keeps_its_cpus_between_two_of_its_containers() {
    let placed = placed(true);
    let cpus = claim_a(&placed);
    ask(&placed, |reply| NriCall::Create { subject: naming("one"), reply });
    runs(&placed, "one");
    ask(&placed, |reply| NriCall::Stop { subject: naming("one"), reply });
    super::answer(&placed, &Gate::default(), &ResourceFiles::default(), NriCall::Removed(naming("one")));
    assert_eq!(placed.lock().held.allocations.exclusive_cpus(), cpus);
    let other = create(&placed, "other", 6).adjust;
    let got = cpus_of(cpuset(other.as_ref()).split('/').next().unwrap());
    assert!(got.len() == 6 && got.is_disjoint(&cpus), "{got} and {cpus}");
    let again = ask(&placed, |reply| NriCall::Create { subject: naming("one"), reply }).adjust;
    assert_eq!(cpuset(again.as_ref()), format!("{cpus}/1"));
}

#[test]
fn a_container_that_no_turn_has_moved_leaves_the_cpus_when_the_container_of_the_claim_comes() {
    let host = Fixture::new(true);
    let placed = placed(true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    let shared = subject("shared", "/besteffort", None);
    ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    // The runtime has written it, and no turn has since the claim was prepared.
    host.cgroup(&source::cgroup_of("shared", "/besteffort"), "0-7\n", "0-1\n");
    let cpus = claim_a(&placed);
    let answer = ask(&placed, |reply| NriCall::Create { subject: naming("one"), reply });
    assert_eq!(cpuset(answer.adjust.as_ref()), format!("{cpus}/1"));
    let told = updates(&answer);
    let [(id, set)] = told.as_slice() else { panic!("{told:?}") };
    let on = cpus_of(set.split('/').next().unwrap());
    assert!(id == "id-shared" && !on.is_empty() && on.is_disjoint(&cpus), "{id} {on}");
}

#[test]
fn published_inputs_have_each_exclusive_cpu_once() {
    let placed = placed(true);
    let cpus = claim_a(&placed);
    let mut second = naming("one");
    second.container.id = "id-two".into();
    second.container.name = "two".into();
    for subject in [naming("one"), second] {
        ask(&placed, |reply| NriCall::Create { subject, reply });
    }
    let state = placed.lock();
    let held = state.held.allocations.iter().filter(|(_, grant)| !grant.exclusive.is_empty()).count();
    assert_eq!(held, 3, "the claim and both of its containers");
    let allocations = state.allocations_without_repeats();
    let once: Vec<_> = allocations.iter().filter(|(_, grant)| !grant.exclusive.is_empty()).collect();
    assert_eq!((once.len(), &once[0].1.exclusive), (1, &cpus));
}

/// Eight CPUs on two nodes with huge pages, and a claim `a` of the pod `one`: two CPUs of node 1 and 8 MiB of
/// huge pages.
fn with_hugepages() -> (Fixture, SharedLedger, CpuSet) {
    let host = Fixture::new(true);
    let machine = Machine::new().sockets(2).cores(4).threads(1).hugepages(2 << 20, 64).build();
    let policy: Policy = toml::from_str("nri.place = true").unwrap();
    let inventory = Inventory::new(machine, Vec::new(), &policy.placement).unwrap();
    let placed = SharedLedger::default();
    placed.apply_policy(Some(Arc::new(inventory)), &policy, true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    let supply = placed.supply().unwrap();
    let consumed = json!({"numa-enforcer.io/cpu": "2", "numa-enforcer.io/hugepages2Mi": "8Mi"});
    let ledger = with_claim(no_claims(), &supply, ("a", 1, "one"), &consumed);
    placed.hold(&ledger, &supply).unwrap();
    (host, placed, ledger.exclusive_cpus())
}

/// The container of the claim, whose pod asked for no huge pages.
fn without_hugepages() -> Box<NriSubject> {
    let mut subject = naming("one");
    let resources = subject.container.linux.as_mut().unwrap().resources.as_mut().unwrap();
    resources.hugepage_limits = vec![HugepageLimit { page_size: "2MB".into(), limit: 0 }];
    subject
}

fn limit(bytes: u64) -> Vec<HugepageLimit> {
    vec![HugepageLimit { page_size: "2MB".into(), limit: bytes }]
}

/// `CPUs/NODES`, the quota and the limits of huge pages of a container in an answer.
fn told_of(answer: &NriAnswer, id: &str) -> Option<(String, Option<i64>, Vec<HugepageLimit>)> {
    let update = answer.updates.iter().find(|update| update.container_id == id)?;
    let resources = update.linux.as_ref()?.resources.as_ref();
    Some((cpuset(resources), quota(resources), resources?.hugepage_limits.clone()))
}

#[test]
fn a_container_of_a_claim_has_its_huge_pages_during_a_pause_and_no_quota_after_it() {
    let (host, placed, cpus) = with_hugepages();
    let gate = Gate::default();
    gate.close(None);
    let create = |subject| ask_behind(&gate, &placed, |reply| NriCall::Create { subject, reply });
    let adjust = create(without_hugepages()).adjust.unwrap();
    assert_eq!(adjust.hugepage_limits, limit(8 << 20), "the pod was promised them");
    assert_eq!(
        (cpuset(Some(&adjust)), quota(Some(&adjust))),
        (String::new(), None),
        "its CPUs are no place yet"
    );
    runs(&placed, "one");
    host.cgroup(&source::cgroup_of("one", ""), "0-7\n", "0-1\n");
    gate.close(None);
    let other = || subject("other", "/besteffort", None);
    assert_eq!(told_of(&create(other()), "id-one"), None);

    gate.open();
    let call =
        || ask_behind(&gate, &placed, |reply| NriCall::Stop { subject: subject("x", "", None), reply });
    assert_eq!(told_of(&call(), "id-one"), None, "no turn has set its CPUs");
    let on_nodes = |mems: &str| {
        host.cgroup(&source::cgroup_of("one", ""), &format!("{cpus}\n"), &format!("{mems}\n"));
    };
    on_nodes("0-1");
    let expected = (format!("{cpus}/0-1"), Some(-1), Vec::new());
    assert_eq!(told_of(&call(), "id-one"), Some(expected), "the pages are for a turn");
    assert_eq!(told_of(&call(), "id-one"), None, "once");
    // A quota that is lifted stays so during the next pause.
    gate.close(None);
    let subject = without_hugepages();
    let updated = ask_behind(&gate, &placed, |reply| NriCall::Update { subject, wanted: amounts(2), reply });
    assert_eq!(told_of(&updated, "id-one").unwrap().1, Some(-1));
}

#[test]
fn a_turn_lifts_a_quota_on_a_node_where_no_call_comes() {
    let (host, placed, cpus) = with_hugepages();
    let gate = Gate::default();
    gate.close(None);
    ask_behind(&gate, &placed, |reply| NriCall::Create { subject: without_hugepages(), reply });
    runs(&placed, "one");
    let cgroup = source::cgroup_of("one", "");
    host.cgroup(&cgroup, "0-7\n", "0-1\n");
    let quota = host.layout.cpuset.path.as_path().join(cgroup.trim_start_matches('/')).join("cpu.max");
    std::fs::write(&quota, "200000 100000\n").unwrap();
    let lifted = |is_paused: bool| {
        placed.lock().freeze(is_paused);
        placed.lift_quotas();
        std::fs::read_to_string(&quota).unwrap() == "max"
    };
    assert!(!lifted(false), "no turn has set its CPUs");
    host.cgroup(&cgroup, &format!("{cpus}\n"), "0-1\n");
    assert!(!lifted(true), "enforcement is paused");
    assert!(lifted(false));
    placed.lock().freeze(false);
    // The runtime's own value is replaced with its next update.
    let updated =
        ask(&placed, |reply| NriCall::Update { subject: without_hugepages(), wanted: amounts(2), reply });
    assert_eq!(told_of(&updated, "id-one").unwrap().1, Some(-1));
}

#[test]
fn a_container_that_was_created_without_the_link_gets_its_limits_with_the_list() {
    let (host, placed, cpus) = with_hugepages();
    host.cgroup(&source::cgroup_of("one", ""), "0-7\n", "0-1\n");
    let NriSubject { pod, container } = *without_hugepages();
    let answer = ask(&placed, |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: vec![pod],
        containers: vec![container],
        reply,
    });
    let (set, quota, limits) = told_of(&answer, "id-one").unwrap();
    assert_eq!((set.split('/').next(), quota, limits), (Some(&*cpus.to_string()), Some(-1), limit(8 << 20)));
}

#[test]
fn remote_accesses_of_a_claim_are_those_of_its_own_containers_by_their_cpu_time() {
    use enforcer_core::model::{Model, Traffic, TrafficSource, WorkloadModel};
    let placed = placed(true);
    claim_a(&placed);
    let mut second = naming("one");
    second.container.id = "id-two".into();
    second.container.name = "two".into();
    second.container.linux.as_mut().unwrap().cgroups_path = "/kubepods/podone/id-two".into();
    for subject in [naming("one"), second, naming("thief")] {
        ask(&placed, |reply| NriCall::Create { subject, reply });
    }
    let mut model = Model::default();
    for (path, remote, used, samples) in [
        ("/kubepods/podone/id-one", 0.8, 3.0, 1_000),
        ("/kubepods/podone/id-two", 0.0, 1.0, 1_000),
        ("/kubepods/podthief/id-thief", 1.0, 100.0, 1_000),
    ] {
        let traffic = Some(Traffic::new(remote, TrafficSource::HintFaults, samples));
        let figures = WorkloadModel { traffic, cpus_used: Some(used), ..WorkloadModel::default() };
        model.workloads.insert(CgroupPath::new(path), figures);
    }
    placed.note_remote_accesses(&model);
    let remote = placed.remote_accesses();
    let uid = ClaimUid::parse("uid-a").unwrap();
    assert_eq!(remote.keys().collect::<Vec<_>>(), [&uid]);
    assert!((remote[&uid] - 0.6).abs() < 1e-9, "{remote:?}");
    for figures in model.workloads.values_mut() {
        figures.traffic.as_mut().unwrap().samples = 5;
    }
    placed.note_remote_accesses(&model);
    assert!(placed.remote_accesses().is_empty(), "too few observations say nothing");
}

#[test]
fn container_that_the_kubelet_gave_cpus_uses_no_claim_and_that_is_told() {
    let placed = placed(true);
    let cpus = claim_a(&placed);
    ask(&placed, |reply| NriCall::Create { subject: naming("one"), reply });
    let uses = || (placed.claims_report(ClaimCallTotals::default()).containers, placed.unused());
    assert_eq!(uses(), (1, BTreeMap::new()));
    static_kubelet(&placed, &[]);
    let mut subject = naming("two");
    subject.pod.uid = "pod-one".into();
    let resources = subject.container.linux.as_mut().unwrap().resources.as_mut().unwrap();
    resources.cpu.as_mut().unwrap().cpus = "0-1".into();
    ask(&placed, |reply| NriCall::Create { subject, reply });
    let (containers, unused) = uses();
    assert_eq!(containers, 1, "the other one alone");
    let note = &unused[&ClaimUid::parse("uid-a").unwrap()];
    assert!(
        note.starts_with("shop/two/main is not on the CPUs of the claim: its cpuset belongs to"),
        "{note}"
    );
    assert!(placed.supply().unwrap().cpus().is_disjoint(&cpus_of("0-1")), "the claim has {cpus}");
}
