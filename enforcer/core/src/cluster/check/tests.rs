use super::*;
use crate::cluster::{
    model::tests::state,
    objects::{PodArrival, PodScheduling, StateOrigin},
    state::{HeldContainer, HeldMemory, InexactSource},
};
use numa_placement::{PodName, PodRequest};

const NOW: i64 = 10_000;

/// Objects of one node `a`; without a change nothing is found.
struct OneNode {
    node: NodeObject,
    state: StateObject,
    pods: Vec<PodObject>,
    leases: Vec<LeaseObject>,
}

impl OneNode {
    fn new() -> Self {
        let node = NodeObject {
            name: "a".into(),
            uid: "node-uid".into(),
            kubelet_version: "v1.36.2".into(),
            is_ready: true,
            ..NodeObject::default()
        };
        let mut content = state();
        content.pods.push(holds("p", &[("main", "1-2,9-10")]));
        content.shared_cpus = "0,3-8,11-15".parse().unwrap();
        content.kubelet.memory_policy = "None".into();
        let state = StateObject {
            name: "a".into(),
            api_version: "numa-enforcer.io/v1alpha1".into(),
            origin: StateOrigin {
                owner_uid: Some("node-uid".into()),
                lease_namespace: Some("numa-enforcer".into()),
                boot_id: None,
            },
            writers: vec![FIELD_MANAGER.into()],
            unknown_fields: Vec::new(),
            state: Ok(content),
        };
        let lease = lease("numa-enforcer", "a", NOW - 20);
        Self { node, state, pods: vec![pod("p", 4)], leases: vec![lease] }
    }

    fn content(&mut self) -> &mut NodeState {
        self.state.state.as_mut().unwrap()
    }

    fn found(&self) -> Vec<String> {
        let states = BTreeMap::from([(self.state.name.clone(), self.state.clone())]);
        let cluster = CheckedCluster {
            nodes: std::slice::from_ref(&self.node),
            states: &states,
            pods: &self.pods,
            leases: &self.leases,
            has_all_leases: false,
            now: NOW,
        };
        let found = check(cluster).findings.into_iter().map(|one| {
            let pod = one.pod.map(|pod| format!(" {pod}")).unwrap_or_default();
            format!("{} {}{pod}: {}", one.finding.as_str(), one.node, one.reason)
        });
        found.collect()
    }
}

fn lease(namespace: &str, node: &str, renewed_at: i64) -> LeaseObject {
    let (namespace, node) = (namespace.to_owned(), node.to_owned());
    LeaseObject { namespace, node, renewed_at: Some(renewed_at), duration_s: 60 }
}

fn holds(uid: &str, containers: &[(&str, &str)]) -> HeldPod {
    let containers = containers.iter().map(|(name, cpus)| HeldContainer {
        name: (*name).into(),
        cpus: cpus.parse().unwrap(),
        ..HeldContainer::default()
    });
    HeldPod {
        uid: uid.into(),
        namespace: "d".into(),
        name: uid.into(),
        mirror_of: None,
        containers: containers.collect(),
    }
}

fn pod(uid: &str, cpus: u64) -> PodObject {
    let main = ContainerRequest::guaranteed("main", cpus * 1_000, 1 << 30);
    PodObject {
        uid: uid.into(),
        mirror_of: None,
        node: Some("a".into()),
        phase: PodPhase::Running,
        arrival: PodArrival { at: NOW - 1_000, version: 1 },
        ended_at: None,
        ended_init: Vec::new(),
        scheduling: PodScheduling::default(),
        counted: None,
        request: PodRequest::new(PodName::new("d", uid).with_uid(uid), vec![main]),
    }
}

/// What is found after a change.
fn after(change: impl FnOnce(&mut OneNode)) -> Vec<String> {
    let mut objects = OneNode::new();
    change(&mut objects);
    objects.found()
}

#[test]
fn nothing_is_found_where_everything_agrees() {
    assert_eq!(after(|_| {}), Vec::<String>::new());
    assert_eq!(after(|objects| objects.leases.clear()), Vec::<String>::new(), "leases are not known");
    let burstable = |objects: &mut OneNode| {
        let mut other = pod("q", 2);
        other.request.qos = QosClass::Burstable;
        objects.pods.push(other);
    };
    assert_eq!(after(burstable), Vec::<String>::new());
}

#[test]
fn nodes_without_states_and_states_without_nodes_are_named() {
    let found = after(|objects| objects.state.name = "b".into());
    assert_eq!(found, ["missing a: no state is published", "foreign b: there is no Node of this name"]);
    let windows = after(|objects| (objects.state.name, objects.node.is_foreign_system) = ("b".into(), true));
    assert_eq!(windows, ["foreign b: there is no Node of this name"]);
}

#[test]
fn states_of_others_are_foreign() {
    for (change, expected) in [
        (
            (|objects| objects.state.origin.owner_uid = Some("old".into())) as fn(&mut OneNode),
            "foreign a: it belongs to the Node with uid old, and the node has node-uid",
        ),
        (
            |objects| objects.state.api_version = "numa-enforcer.io/v2".into(),
            "foreign a: its version is numa-enforcer.io/v2, known is numa-enforcer.io/v1alpha1",
        ),
        (
            |objects| objects.state.unknown_fields = vec!["cells".into()],
            "foreign a: its field \"cells\" is of an unknown version",
        ),
        (
            |objects| objects.state.writers.push("kubectl".into()),
            "foreign a: the field manager \"kubectl\" has written it",
        ),
    ] {
        assert_eq!(after(change), [expected]);
    }
}

#[test]
fn outdated_states_are_stale() {
    for (change, expected) in [
        (
            (|objects| objects.node.kubelet_version = "v1.37.0".into()) as fn(&mut OneNode),
            "stale a: the kubelet of the node is v1.37.0, that of the state is v1.36.2",
        ),
        (
            |objects| {
                (objects.state.origin.boot_id, objects.node.boot_id) = (Some("b1".into()), "b2".into());
            },
            "stale a: the machine of the node has started again since",
        ),
        (
            |objects| objects.leases[0].renewed_at = Some(NOW - 90),
            "stale a: its daemon has not renewed its lease for 90 s",
        ),
        (|objects| objects.leases[0].renewed_at = None, "stale a: its daemon has never renewed its lease"),
        (|objects| objects.leases[0].node = "b".into(), "stale a: no daemon has a lease for it"),
        (
            |objects| {
                objects.pods.push(pod("q", 2));
                objects.pods[1].phase = PodPhase::Pending;
            },
            "stale a d/q: was bound 1000 s ago, and the state does not cover it",
        ),
    ] {
        assert_eq!(after(change), [expected]);
    }
    let same = after(|objects| {
        (objects.state.origin.boot_id, objects.node.boot_id) = (Some("b1".into()), "b1".into());
    });
    assert_eq!(same, Vec::<String>::new());
    let young = |objects: &mut OneNode| {
        objects.pods.push(pod("q", 2));
        objects.pods[1].arrival.at = NOW - 60;
    };
    assert_eq!(after(young), Vec::<String>::new());
}

#[test]
fn unusable_states_are_one_finding_with_words() {
    for (change, expected) in [
        (
            (|objects| objects.content().memory[0].free = -5) as fn(&mut OneNode),
            "inexact a: it contradicts itself: memory.free is -5, below 0",
        ),
        (
            |objects| {
                let pods = (0..2_000).map(|uid| holds(&uid.to_string(), &[]));
                objects.content().pods = pods.collect();
            },
            "inexact a: it contradicts itself: pods has 2000 entries or bytes, at most 1024 are allowed",
        ),
        (
            |objects| objects.state.state = Err("missing field `revision`".into()),
            "inexact a: it is no state: missing field `revision`",
        ),
        (
            |objects| {
                objects.content().exact = false;
                objects.content().inexact = vec![InexactSource::new("machine", "a CPU has no node")];
            },
            "inexact a: machine: a CPU has no node",
        ),
    ] {
        assert_eq!(after(change), [expected]);
    }
}

#[test]
fn what_no_pod_needs_is_leaked() {
    assert_eq!(
        after(|objects| objects.pods.clear()),
        ["leaked a d/p: holds CPUs 1-2,9-10, and the API has no such pod"]
    );
    let ended = |since: i64| {
        after(move |objects| {
            (objects.pods[0].phase, objects.pods[0].ended_at) = (PodPhase::Ended, Some(NOW - since));
        })
    };
    assert_eq!(ended(200), Vec::<String>::new());
    assert_eq!(ended(400), ["leaked a d/p: holds CPUs 1-2,9-10, and ended 400 s ago"]);
    let moved = after(|objects| objects.pods[0].node = Some("b".into()));
    assert_eq!(moved, ["leaked a d/p: holds CPUs 1-2,9-10, and is bound to node b"]);
    let init = |has_ended: bool| {
        after(move |objects| {
            objects.content().pods = vec![holds("p", &[("init", "1-3,9-10"), ("main", "1-2,9-10")])];
            objects.content().shared_cpus = "0,4-8,11-15".parse().unwrap();
            objects.pods[0].ended_init = has_ended.then(|| "init".to_owned()).into_iter().collect();
        })
    };
    assert_eq!(init(false), Vec::<String>::new());
    assert_eq!(init(true), ["leaked a d/p: its init container init has ended and keeps CPUs 3"]);
    let two = after(|objects| {
        let held = [("first", "1-3,9-10"), ("second", "1-3,9-10"), ("main", "1-2,9-10")];
        objects.content().pods = vec![holds("p", &held)];
        objects.content().shared_cpus = "0,4-8,11-15".parse().unwrap();
        objects.pods[0].ended_init = vec!["first".into(), "second".into()];
    });
    assert_eq!(
        two,
        ["first", "second"]
            .map(|name| format!("leaked a d/p: its init container {name} has ended and keeps CPUs 3"))
    );
}

#[test]
fn an_end_of_unknown_time_and_a_broken_pod_leak_nothing() {
    let unknown = after(|objects| objects.pods[0].phase = PodPhase::Ended);
    assert_eq!(unknown, Vec::<String>::new(), "a node that was lost ends its pods at another time");
    let huge = after(|objects| {
        let memory = |nodes: &str| HeldMemory {
            nodes: nodes.parse().unwrap(),
            resource: "memory".into(),
            bytes: i64::MAX,
        };
        objects.content().pods[0].containers[0].memory = vec![memory("0"), memory("1")];
        objects.pods.clear();
    });
    assert!(huge[0].starts_with("inexact a: "), "{huge:?}");
}

#[test]
fn a_state_that_is_not_exact_accuses_no_pod() {
    let inexact = after(|objects| {
        objects.content().exact = false;
        objects.content().inexact = vec![InexactSource::new("cpu_manager_state", "it cannot be read")];
        objects.pods.push(pod("q", 2));
    });
    assert_eq!(inexact, ["inexact a: cpu_manager_state: it cannot be read"]);
    let lost = after(|objects| {
        objects.node.is_ready = false;
        objects.pods.push(pod("q", 2));
    });
    assert_eq!(lost, Vec::<String>::new(), "pods of daemon sets are bound to nodes that are away");
}

#[test]
fn a_mirror_that_names_the_uid_of_another_pod_hides_nothing() {
    let found = after(|objects| {
        let mut false_mirror = pod("q", 0);
        (false_mirror.mirror_of, false_mirror.node) = (Some("p".into()), Some("b".into()));
        objects.pods.push(false_mirror);
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn what_is_gone_at_the_second_look_is_no_finding() {
    let report = |pods: &[&str]| {
        let finding = |pod: &&str| ClusterFinding {
            finding: ClusterFindingKind::Leaked,
            node: "a".into(),
            pod: Some((*pod).to_owned()),
            reason: format!("after {} s", pods.len()),
        };
        let findings = pods.iter().map(finding).collect();
        ClusterCheckReport { schema_version: 1, nodes: 1, states: 1, pods: 0, findings }
    };
    let lasting = report(&["p", "r"]).lasting(&report(&["p", "q", "s"]));
    assert_eq!(lasting.findings.iter().map(|one| one.pod.as_deref()).collect::<Vec<_>>(), [Some("p")]);
}

#[test]
fn running_pods_without_their_resources_are_uncovered() {
    let running = after(|objects| objects.pods.push(pod("q", 2)));
    assert_eq!(running, ["uncovered a d/q: runs, and the state does not have what it holds"]);
    let short = after(|objects| objects.pods[0] = pod("p", 6));
    assert_eq!(short, ["uncovered a d/p: container main asks for 6 CPUs and holds 4"]);
    let mirror = after(|objects| {
        objects.content().pods[0].uid = "hash".into();
        objects.pods[0].mirror_of = Some("hash".into());
    });
    assert_eq!(mirror, Vec::<String>::new(), "a static pod has two uids");
}

#[test]
fn only_the_lease_of_the_daemon_that_writes_the_state_counts() {
    let with = |named: Option<&str>, leases: &[(&str, i64)]| {
        after(|objects| {
            objects.state.origin.lease_namespace = named.map(str::to_owned);
            objects.leases = leases.iter().map(|(namespace, at)| lease(namespace, "a", *at)).collect();
        })
    };
    let (old, new) = (NOW - 3_600, NOW - 10);
    let ended = &["stale a: its daemon has not renewed its lease for 3600 s"][..];
    let unnamed = &["stale a: it names no lease, so no daemon is known to be behind it"][..];
    for (named, leases, expected) in [
        (Some("prod"), &[("prod", old), ("other", new)][..], ended),
        (Some("prod"), &[("prod", new), ("other", old)], &[]),
        (Some("prod"), &[("numa-enforcer", old)], &[]),
        (None, &[("numa-enforcer", old), ("other", new)], unnamed),
        (None, &[("numa-enforcer", new)], unnamed),
        (None, &[("prod", new)], unnamed),
        (None, &[], &[]),
    ] {
        assert_eq!(with(named, leases), expected, "{named:?} {leases:?}");
    }
}
