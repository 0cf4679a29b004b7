use numa_topology::{id::CpuId, set::CpuSet, synth::Machine};
use proptest::prelude::*;

use super::*;
use crate::{
    finding::{Rule, Severity},
    hosted::Containers,
    owner::{KnownContainer, Owner, PodClaim},
    sample::TaskSample,
    scene::Scene,
    workload::{Origin, QosClass},
};

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn interrupt(number: u32, affinity: &str, device: Option<&str>) -> Interrupt {
    Interrupt {
        number,
        name: format!("irq-{number}"),
        identity: Some(format!("PCI-MSIX {number}")),
        affinity: Some(set(affinity)),
        device: device.map(str::to_owned),
        ..Interrupt::default()
    }
}

fn client(cgroup: &str, exclusive: &str, nodes: &str, devices: &[&str]) -> InterruptClient {
    InterruptClient {
        cgroup: Some(CgroupPath::new(cgroup)),
        name: cgroup.to_owned(),
        exclusive: set(exclusive),
        nodes: nodes.parse().unwrap(),
        devices: devices.iter().map(|one| (*one).to_owned()).collect(),
        ..InterruptClient::default()
    }
}

fn set_once(number: u32, original: &str, last: &str) -> SteeredInterrupts {
    [(number, SteeredInterrupt { original: set(original), set: set(last), was: None })].into()
}

/// Two nodes of four CPUs: 0-3 and 4-7.
fn machine() -> Topology {
    Machine::new().sockets(2).cores(4).threads(1).build()
}

fn decided(machine: &Topology, table: &[Interrupt], clients: &[InterruptClient]) -> Vec<(u32, String)> {
    let table = InterruptTable { interrupts: table.to_vec(), ..InterruptTable::default() };
    let steered = SteeredInterrupts::new();
    let inputs = InterruptInputs { machine, table: &table, clients, steered: &steered };
    decide_interrupts(&inputs).into_iter().map(|one| (one.number, one.to.to_string())).collect()
}

#[test]
fn interrupts_leave_exclusive_cpus_and_come_to_the_nodes_of_their_user() {
    let machine = machine();
    let mut rt = client("/rt", "2-3", "0", &["0000:01:00.0"]);
    for (irq, expected) in [
        (interrupt(1, "0-7", None), Some("0-1,4-7")),
        (interrupt(1, "2", None), Some("0-1,4-7")),
        (Interrupt { node: Some(NodeId(0)), ..interrupt(1, "2", None) }, Some("0-1")),
        (interrupt(1, "0-1", None), None),
        // Its own device: local CPUs that no workload has exclusively.
        (interrupt(1, "5", Some("0000:01:00.0")), Some("0-1")),
        (interrupt(1, "1", Some("0000:01:00.0")), None),
        (interrupt(1, "0-7", Some("0000:02:00.0")), Some("0-1,4-7")),
        (Interrupt { affinity: None, ..interrupt(1, "2", None) }, None),
    ] {
        let found = decided(&machine, std::slice::from_ref(&irq), std::slice::from_ref(&rt));
        assert_eq!(found.first().map(|(_, to)| to.as_str()), expected, "{irq:?}");
    }
    rt.on_own_cpus = true;
    assert_eq!(decided(&machine, &[interrupt(1, "0-7", Some("0000:01:00.0"))], &[rt.clone()])[0].1, "2-3");
    // Nothing is left: it stays.
    let all = client("/all", "0-7", "0-1", &[]);
    assert_eq!(decided(&machine, &[interrupt(1, "0-7", None)], &[all]), []);
}

#[test]
fn original_cpus_come_back_when_the_reason_ends() {
    let machine = machine();
    let table = InterruptTable { interrupts: vec![interrupt(9, "0-1", None)], ..InterruptTable::default() };
    let steered_now = set_once(9, "0-3", "0-1");
    let clients = [client("/rt", "2-3", "0", &[])];
    let inputs =
        |clients| InterruptInputs { machine: &machine, table: &table, clients, steered: &steered_now };
    assert_eq!(decide_interrupts(&inputs(&clients)), []);
    let back = decide_interrupts(&inputs(&[]));
    assert!(back[0].gives_back() && back[0].to == set("0-3"), "{back:?}");
    // Another writer has set it meanwhile: its value is the original.
    let mut other = set_once(9, "0-3", "5");
    assert_eq!(decide_interrupts(&InterruptInputs { steered: &other, ..inputs(&[]) }), []);
    // The daemon was killed before it wrote 5: what was there before is its own as well.
    other.get_mut(&9).unwrap().was = Some(set("0-1"));
    assert_eq!(decide_interrupts(&InterruptInputs { steered: &other, ..inputs(&[]) })[0].to, set("0-3"));
}

#[test]
fn a_managed_interrupt_is_tried_once_and_another_writer_is_not_fought() {
    const SECOND: u64 = 1_000_000_000;
    let machine = machine();
    let mut table = InterruptTable { interrupts: vec![interrupt(9, "2", None)], ..InterruptTable::default() };
    let clients = [client("/rt", "2-3", "0", &[])];
    let steered = SteeredInterrupts::new();
    let inputs = InterruptInputs { machine: &machine, table: &table, clients: &clients, steered: &steered };
    let changes = decide_interrupts(&inputs);
    let mut history = InterruptHistory::default();
    history.note_refused(&changes[0], "write: EIO".into(), true, 0);
    assert!(history.due(changes.clone(), u64::MAX).is_empty());
    history.note_set(9);
    history.note_refused(&changes[0], "write: EINVAL".into(), false, 0);
    assert!(history.due(changes.clone(), 59 * SECOND).is_empty());
    assert_eq!(history.due(changes.clone(), 60 * SECOND).len(), 1);
    // Another interrupt has the number by now.
    table.interrupts[0].identity = Some("other".into());
    history.look(&table, &steered, 0);
    assert_eq!(history.refusals().count(), 0);
    // One foreign value that stays is one write, however often it is seen; after each correction it is
    // another.
    let set_to = set_once(9, "2", "0-1");
    for times in 0..3 {
        for _ in 0..5 {
            assert_eq!(history.refusals().count(), 0, "{times}");
            history.look(&table, &set_to, 0);
            if times == 2 {
                break;
            }
        }
        if times < 2 {
            history.note_set(9);
        }
    }
    assert!(history.due(changes.clone(), 3599 * SECOND).is_empty());
    // The hour is over, and nothing was to be corrected: it is told no longer.
    history.drop_expired(3599 * SECOND);
    assert_eq!(history.refusals().count(), 1);
    history.drop_expired(3600 * SECOND);
    assert_eq!(history.refusals().count(), 0);
    // Only the kernel's choice for a device is managed; each refusal of that kind is final.
    for (device, is_managed) in [(None, false), (Some("0000:01:00.0".to_owned()), true)] {
        let change = InterruptChange { device, ..changes[0].clone() };
        history.note_refused(&change, "write: EPERM".into(), true, 0);
        let refusal = history.refusal(9).unwrap();
        assert_eq!((refusal.is_fixed, refusal.is_managed), (true, is_managed));
        history.drop_expired(u64::MAX);
        assert!(history.due(vec![change], u64::MAX).is_empty());
    }
}

#[test]
fn counts_that_are_of_no_device_or_since_boot_are_left_out() {
    let machine = machine();
    let counted = |affinity, effective: &str, counts: &[(u32, u64)]| Interrupt {
        effective: Some(set(effective)),
        counts: counts.iter().map(|(cpu, count)| (CpuId(*cpu), *count)).collect(),
        ..interrupt(1, affinity, None)
    };
    let clients = [client("/rt", "2-3", "0", &[])];
    let none = SteeredInterrupts::new();
    // CPU 3 was offline at the first reading: what it has counted since boot did not happen between the two.
    for (effective, cpus, foreign) in [("0-3", "0-3", 905), ("0-3", "0-2", 5), ("", "0-3", 0)] {
        let before = InterruptTable {
            interrupts: vec![counted("0-3", effective, &[(2, 10)])],
            cpus: Some(set(cpus)),
            read_ns: 0,
        };
        let now = InterruptTable {
            interrupts: vec![counted("0-3", effective, &[(2, 15), (3, 900)])],
            cpus: Some(set("0-3")),
            read_ns: 10_000_000_000,
        };
        let inputs = InterruptInputs { machine: &machine, table: &now, clients: &clients, steered: &none };
        let found = assess_interrupts(&inputs, Some(&before), &InterruptHistory::default(), None);
        let counted = found.on_exclusive.values().sum::<u64>();
        assert_eq!(counted, foreign, "effective {effective:?}, counted before {cpus}");
        assert_eq!(decide_interrupts(&inputs).is_empty(), effective.is_empty());
    }
}

#[test]
fn interrupts_of_devices_that_may_be_its_own_are_not_foreign() {
    let machine = machine();
    let counted = |device| Interrupt { counts: vec![(CpuId(2), 10)], ..interrupt(1, "2", device) };
    let mut own = client("/rt", "2-3", "0", &["0000:01:00.0"]);
    for (device, lacks_devices, foreign) in [
        (Some("0000:01:00.0"), false, false),
        (Some("0000:02:00.0"), false, true),
        (Some("0000:02:00.0"), true, false),
        (None, true, true),
    ] {
        own.lacks_devices = lacks_devices;
        let before = InterruptTable::default();
        let now = InterruptTable { interrupts: vec![counted(device)], ..InterruptTable::default() };
        let (clients, none) = ([own.clone()], SteeredInterrupts::new());
        let inputs = InterruptInputs { machine: &machine, table: &now, clients: &clients, steered: &none };
        let found = assess_interrupts(&inputs, Some(&before), &InterruptHistory::default(), None);
        assert_eq!(!found.findings.is_empty(), foreign, "{device:?} {lacks_devices}");
        assert_eq!(found.on_exclusive.is_empty(), !foreign, "{device:?} {lacks_devices}");
    }
}

fn task(pid: u32, command: &str, cgroup: &str) -> TaskSample {
    TaskSample {
        tid: pid,
        pid,
        command: command.into(),
        cgroup: Some(CgroupPath::new(cgroup)),
        cpu: None,
        cpus_allowed: None,
        cpu_time_ns: None,
        preferred_node: None,
        faults_by_node: None,
    }
}

#[test]
fn irqbalance_is_roots_or_its_service() {
    let container =
        "/system.slice/docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope";
    for (command, cgroup, owner, found) in [
        ("irqbalance", "/system.slice/irqbalance.service", Some(998), true),
        ("irqbalance", "/user.slice", Some(1000), false),
        ("irqbalance", "/user.slice", Some(0), true),
        ("irqbalance", "/user.slice", None, true),
        ("irqbalance", container, Some(0), true),
        ("irqbalance", container, Some(100_000), false),
        ("irqbalancer", "/system.slice/irqbalance.service", Some(0), false),
    ] {
        let tasks = [task(7, command, cgroup)];
        assert_eq!(irqbalance(&tasks, |_| owner).is_some(), found, "{command} {cgroup} {owner:?}");
    }
}

#[test]
fn network_devices_that_cannot_be_read_are_read_again_and_named() {
    let tasks = [task(7, "db", "/pod/init"), task(8, "db", "/other")];
    let clients = || vec![client("/pod", "2-3", "0", &[]), client("/idle", "1", "0", &[])];
    let mut known = NetworkDevices::default();
    let mut first = clients();
    let degraded = known.add_to(&mut first, &tasks, |_| Err("denied".into())).unwrap();
    assert_eq!(
        (degraded.source.as_str(), degraded.reason.as_str()),
        ("interrupts:network-devices", "/pod: denied")
    );
    assert!(first.iter().all(|one| one.lacks_devices));
    for read in [Ok(vec!["0000:01:00.0".to_owned()]), Err("denied".into())] {
        let mut later = clients();
        assert_eq!(known.add_to(&mut later, &tasks, |_| read.clone()), None, "known once, it stays so");
        assert!(!later[0].lacks_devices && later[0].devices.contains("0000:01:00.0"));
    }
}

#[test]
fn counts_between_two_readings_become_findings_with_a_remedy() {
    let machine = machine();
    let counted = |number, device, counts: &[(u32, u64)]| Interrupt {
        counts: counts.iter().map(|(cpu, count)| (CpuId(*cpu), *count)).collect(),
        ..interrupt(number, "0-7", device)
    };
    let device = Some("0000:01:00.0");
    let before = InterruptTable {
        interrupts: vec![counted(1, None, &[(0, 50), (2, 100)]), counted(2, device, &[(5, 7)])],
        ..InterruptTable::default()
    };
    let now = InterruptTable {
        interrupts: vec![counted(1, None, &[(0, 60), (2, 150)]), counted(2, device, &[(1, 3), (5, 107)])],
        read_ns: 10_000_000_000,
        ..InterruptTable::default()
    };
    let clients = [client("/rt", "2-3", "0", &["0000:01:00.0"])];
    let steered = SteeredInterrupts::new();
    let inputs = InterruptInputs { machine: &machine, table: &now, clients: &clients, steered: &steered };
    let history = InterruptHistory::default();
    let found = assess_interrupts(&inputs, Some(&before), &history, None);
    assert_eq!(found.by_node, BTreeMap::from([(NodeId(0), 63), (NodeId(1), 100)]));
    assert_eq!(found.on_exclusive, BTreeMap::from([(NodeId(0), 50)]));
    let rules: Vec<Rule> = found.findings.iter().map(|one| one.rule).collect();
    assert_eq!(rules, [Rule::ExclusiveCpuInterrupts, Rule::RemoteInterrupts]);
    let [exclusive, remote] = &found.findings[..] else { panic!() };
    assert_eq!(exclusive.severity, Severity::Warning);
    assert_eq!(exclusive.summary, "1 interrupt is handled on its exclusive CPUs 2-3, 5 per second");
    assert_eq!(exclusive.remedy.as_deref(), Some("echo 0-1,4-7 > /proc/irq/1/smp_affinity_list"));
    assert_eq!(exclusive.evidence[0].value, "interrupt 1 (irq-1): 50 on CPU 2 in 10 s");
    assert_eq!(remote.remedy.as_deref(), Some("echo 0-1 > /proc/irq/2/smp_affinity_list"));
    assert_eq!(found.workloads[0].local, ["interrupt 2 (irq-2): 3 on CPU 1 in 10 s"]);
    // irqbalance is not fought, and a refusal is named.
    let beside = assess_interrupts(&inputs, Some(&before), &history, Some(77));
    assert!(beside.findings[0].obstacle.as_ref().unwrap().starts_with("irqbalance (process 77)"));
    let mut history = history;
    let change = decide_interrupts(&inputs).swap_remove(0);
    let change = InterruptChange { device: Some("0000:03:00.0".into()), ..change };
    history.note_refused(&change, "write: EIO".into(), true, 0);
    let managed = assess_interrupts(&inputs, Some(&before), &history, None);
    assert!(managed.findings[0].obstacle.as_ref().unwrap().contains("manages the CPUs of interrupt 1"));
    // Since boot nothing is known about now but where they are sent.
    let once = assess_interrupts(&inputs, None, &InterruptHistory::default(), None);
    assert_eq!(once.findings[0].severity, Severity::Info);
    assert!(once.by_node.is_empty());
    let mut moved = now.clone();
    moved.interrupts[0].effective = Some(set("0"));
    let inputs = InterruptInputs { table: &moved, ..inputs };
    let once = assess_interrupts(&inputs, None, &InterruptHistory::default(), None);
    assert_eq!(once.findings.iter().filter(|one| one.rule == Rule::ExclusiveCpuInterrupts).count(), 0);
}

fn cpus() -> impl Strategy<Value = CpuSet> {
    prop::collection::vec(0u32..12, 0..6).prop_map(|ids| ids.into_iter().map(CpuId).collect())
}

proptest! {
    #[test]
    fn decisions_hold_on_any_host(
        affinities in prop::collection::vec((cpus(), prop::option::of(0usize..3)), 1..8),
        exclusive in prop::collection::vec((cpus(), any::<bool>(), prop::option::of(0usize..3)), 0..4),
        isolated in cpus(),
    ) {
        // CPUs 8-11 are offline or were never there.
        let mut machine = machine();
        machine.isolated_cpus = isolated;
        let devices = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"];
        let mut taken = CpuSet::new();
        let clients: Vec<InterruptClient> = exclusive.into_iter().enumerate().map(|(at, (cpus, on_own_cpus, device))| {
            let cpus = cpus.difference(&taken);
            taken.extend(&cpus);
            let nodes = machine.nodes_of(&cpus);
            InterruptClient {
                cgroup: None,
                name: at.to_string(),
                nodes,
                exclusive: cpus,
                devices: device.map(|at| devices[at].to_owned()).into_iter().collect(),
                on_own_cpus,
                ..InterruptClient::default()
            }
        }).collect();
        let mut table = InterruptTable::default();
        for (number, (affinity, device)) in (0..).zip(affinities) {
            let device = device.map(|at| devices[at]);
            table.interrupts.push(Interrupt { affinity: Some(affinity), ..interrupt(number, "", device) });
        }
        let online = machine.online_cpus();
        let mut originals = table.clone();
        let mut steered = SteeredInterrupts::new();
        let none = SteeredInterrupts::new();
        let inputs = InterruptInputs { machine: &machine, table: &table, clients: &clients, steered: &none };
        let changes = decide_interrupts(&inputs);
        for change in &changes {
            prop_assert!(!change.to.is_disjoint(&online), "{change:?}");
            prop_assert!(change.to.is_subset(&online), "{change:?}");
        }
        let mut after = table.clone();
        for change in changes {
            after.interrupts[change.number as usize].affinity = Some(change.to.clone());
            steered.insert(change.number, SteeredInterrupt { original: change.original, set: change.to, was: Some(change.from) });
        }
        let free = online.difference(&taken);
        for one in &after.interrupts {
            let users: Vec<_> =
                clients.iter().filter(|client| one.device.as_ref().is_some_and(|at| client.devices.contains(at))).collect();
            let own = match users[..] {
                [user] if user.on_own_cpus => user.exclusive.clone(),
                _ => CpuSet::new(),
            };
            let foreign = taken.difference(&own);
            let affinity = one.affinity.as_ref().unwrap();
            prop_assert!(free.is_empty() || affinity.is_disjoint(&foreign), "{one:?} {clients:?}");
        }
        let inputs = InterruptInputs { table: &after, steered: &steered, ..inputs };
        prop_assert_eq!(decide_interrupts(&inputs), []);
        let inputs = InterruptInputs { clients: &[], ..inputs };
        for change in decide_interrupts(&inputs) {
            prop_assert!(change.gives_back());
            after.interrupts[change.number as usize].affinity = Some(change.to);
        }
        // An original without an online CPU cannot be written back: the kernel would refuse it.
        let is_kept = |one: &Interrupt| one.affinity.as_ref().is_some_and(|affinity| affinity.is_disjoint(&online));
        for (was, one) in originals.interrupts.iter_mut().zip(&after.interrupts) {
            if is_kept(was) {
                was.affinity.clone_from(&one.affinity);
            }
        }
        prop_assert_eq!(after, originals);
    }
}

fn exclusive_of(scene: &Scene) -> Vec<(String, bool)> {
    let clients = declared_clients(
        &scene.machine,
        &scene.workloads,
        &scene.now,
        &scene.model(),
        &scene.policy,
        &scene.declarations(),
        &scene.owners(&Containers::default()),
    );
    clients.into_iter().map(|one| (one.exclusive.to_string(), one.is_marked)).collect()
}

#[test]
fn declared_cpus_are_exclusive_as_far_as_the_daemon_gives_them() {
    for (path, keys, cpuset, expected) in [
        ("/rt", "cpus = 2", "2-3", Some("2-3")),
        ("/rt", "cpus = 3", "2-3", None),
        ("/rt", "cpus = 2\nclass = 'shared'", "2-3", None),
        // Slurm owns it.
        ("/system.slice/slurmstepd.scope/job_7", "cpus = 2", "2-3", None),
    ] {
        let scene = Scene::new(machine()).workload(path, cpuset, "0");
        let mut scene = scene.declares(&format!("cgroup = '{path}'\n{keys}"));
        scene.now_mut(path).cpus = Some(set(cpuset));
        let expected: Vec<_> = expected.map(|cpus| (cpus.to_owned(), false)).into_iter().collect();
        assert_eq!(exclusive_of(&scene), expected, "{path}: {keys}");
    }
}

#[test]
fn marked_cpus_are_exclusive_while_the_cpuset_agrees_and_are_no_reason_to_write() {
    for (cpuset, expected) in [("2-3", Some("2-3")), ("0-7", None), ("2", None)] {
        let mut scene = Scene::new(machine()).workload("/pod/c1", cpuset, "0");
        scene.workloads[0].origin = Origin::Pod {
            pod_uid: "u1".into(),
            qos: QosClass::Guaranteed,
            container_id: Some("c1".into()),
            runtime: None,
        };
        let claim = PodClaim {
            owner: Owner::Koordlet,
            evidence: "an annotation".into(),
            cpus: Some(set("2-3")),
            mems: None,
            of_pod: false,
        };
        let known = KnownContainer {
            pod_uid: "u1".into(),
            milli_cpus: Some(2000),
            claim: Some(claim),
            ..KnownContainer::default()
        };
        scene.facts.containers.insert("c1".into(), known);
        let expected: Vec<_> = expected.map(|cpus| (cpus.to_owned(), true)).into_iter().collect();
        assert_eq!(exclusive_of(&scene), expected, "{cpuset}");
    }
}
