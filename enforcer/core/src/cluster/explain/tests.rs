use super::*;
use crate::cluster::{
    model::tests::state,
    objects::Taint,
    plan::{ClusterPlan, NodeRule, NodeSums, PODS, amounts_of},
    state::NodeState,
    view::NodeView,
};
use numa_placement::{ContainerRequest, PodName, PodRequest};

/// A pod of a node: name, CPUs, priority.
type Hosted<'a> = (&'a str, u64, i32);

fn asks(name: &str, cpus: u64) -> PodRequest {
    let container = ContainerRequest::guaranteed("main", cpus * 1000, 1 << 30);
    PodRequest::new(PodName::new("shop", name).with_uid(name), vec![container])
}

fn pod(cpus: u64, priority: i32) -> PlannedPod {
    let mut pod: PlannedPod = asks("asking", cpus).into();
    pod.scheduling.priority = priority;
    pod
}

/// A node of 7 free cores with these pods on it, one after another: NUMA node 0 has 6 CPUs, node 1 has 8.
fn host(name: &str, pods: &[Hosted<'_>], change: impl Fn(&mut NodeState)) -> HostNode {
    let mut state = state();
    change(&mut state);
    let mut view = NodeView::default();
    view.observe_state(&state, 0);
    let allocatable = [(CPU, 14_000), ("memory", 32 << 30), (PODS, 20)];
    let allocatable = allocatable.into_iter().map(|(resource, amount)| (resource.to_owned(), amount));
    let mut sums = NodeSums::new(allocatable.collect());
    let mut hosted = Vec::new();
    for (name, cpus, priority) in pods {
        let request = asks(name, *cpus);
        view.observe_bound(name, &request);
        let amounts = amounts_of(&request);
        sums.add(&amounts);
        let (name, uid) = (format!("shop/{name}"), (*name).to_owned());
        hosted.push(HostedPod { name, uid, priority: *priority, is_static: false, amounts });
    }
    HostNode { node: PlannedNode::new(name.into(), sums, view), pods: hosted }
}

fn told(node: &ExplainedNode) -> String {
    let short = node.shortages.iter().map(|short| {
        let on = short.numa_nodes.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        format!("{} {}/{} on {on}", short.resource, short.free, short.wanted)
    });
    let pods: Vec<&str> = node.room.pods.iter().map(|pod| pod.pod.as_str()).collect();
    let NodeRoom { outcome, is_smallest, needs_higher_priority, .. } = node.room;
    let flags = match (is_smallest, needs_higher_priority) {
        _ if outcome != RoomOutcome::Pods => "",
        (true, false) => "",
        (true, true) => " higher",
        (false, true) => " higher, not smallest",
        (false, false) => " not smallest",
    };
    let short: Vec<String> = short.collect();
    format!("{}: {}; {outcome:?} {}{flags}", node.node, short.join(", "), pods.join("+"))
}

/// The explanation of a pod of one node.
fn of_one(host: HostNode, pod: &PlannedPod) -> (String, String) {
    let explained = explain(&[host], pod, 0);
    assert_eq!((explained.fits.len(), explained.refused.len()), (0, 1), "{explained:?}");
    (explained.refused[0].reason.clone(), told(&explained.refused[0].nodes[0]))
}

#[test]
fn smallest_set_of_pods_that_makes_room_is_found() {
    let none = |_: &mut NodeState| {};
    // `a` and `c` fill node 0, `b` and `d` node 1.
    let pods = [("a", 4, 0), ("b", 4, 0), ("c", 2, 0), ("d", 4, 0)];
    for (wanted, expected) in [
        (2, "n: cpu 0/2000 on -, cpu 0/2000 on 0; Pods shop/c"),
        (6, "n: cpu 0/6000 on -, cpu 0/6000 on 0; Pods shop/c+shop/a"),
        (8, "n: cpu 0/8000 on -, cpu 0/8000 on 0; Pods shop/b+shop/d"),
    ] {
        let (_, told) = of_one(host("n", &pods, none), &pod(wanted, 0));
        assert_eq!(told, expected, "{wanted}");
    }
    let (reason, told) = of_one(host("n", &pods, none), &pod(9, 0));
    assert_eq!((reason.as_str(), told.ends_with("; NoPlace ")), ("Insufficient cpu", true), "{told}");
}

#[test]
fn pods_of_lower_or_equal_priority_come_first() {
    let none = |_: &mut NodeState| {};
    let pods = [("a", 4, 9), ("b", 4, 5), ("c", 2, 9), ("d", 4, 9)];
    let room = |wanted, priority| of_one(host("n", &pods, none), &pod(wanted, priority)).1;
    assert!(room(4, 5).ends_with("; Pods shop/b"), "{}", room(4, 5));
    assert!(room(4, 4).ends_with("; Pods shop/b higher"), "{}", room(4, 4));
    assert!(room(8, 5).ends_with("; Pods shop/b+shop/d higher"), "{}", room(8, 5));
    assert!(room(8, 9).ends_with("; Pods shop/b+shop/d"), "{}", room(8, 9));
}

#[test]
fn static_pods_and_the_pod_itself_never_leave() {
    let mut filled = host("n", &[("a", 6, 0), ("b", 8, 0)], |_| {});
    filled.pods[1].is_static = true;
    let (_, told) = of_one(filled.clone(), &pod(6, 0));
    assert!(told.ends_with("; Pods shop/a"), "{told}");
    let (_, told) = of_one(filled.clone(), &pod(8, 0));
    assert!(told.ends_with("; NoPlace "), "{told}");
    filled.pods[0].uid = "asking".into();
    let (_, told) = of_one(filled, &pod(6, 0));
    assert!(told.ends_with("; NoPlace "), "{told}");
}

#[test]
fn large_sets_are_irreducible_and_say_so() {
    let pods: Vec<String> = (0..14).map(|at| format!("p{at:02}")).collect();
    let pods: Vec<Hosted<'_>> = pods.iter().map(|name| (name.as_str(), 1, 0)).collect();
    let filled = host("n", &pods, |_| {});
    let explained = explain(std::slice::from_ref(&filled), &pod(8, 0), 0);
    let room = &explained.refused[0].nodes[0].room;
    assert_eq!((room.outcome, room.pods.len(), room.is_smallest), (RoomOutcome::Pods, 8, false), "{room:?}");
    let uids: Vec<&str> = room.pods.iter().map(|pod| pod.pod.trim_start_matches("shop/")).collect();
    assert!(matches!(filled.node.view.filter_without(&uids, &asks("x", 8), 0), Verdict::Fits(_)));
    for left in &uids {
        let fewer: Vec<&str> = uids.iter().filter(|uid| uid != &left).copied().collect();
        let verdict = filled.node.view.filter_without(&fewer, &asks("x", 8), 0);
        assert!(matches!(verdict, Verdict::Refused(..)), "{left} is in vain");
    }
    let four = explain(std::slice::from_ref(&filled), &pod(4, 0), 0);
    let room = &four.refused[0].nodes[0].room;
    assert_eq!((room.pods.len(), room.is_smallest), (4, true), "no set of three does, {room:?}");
    let amounts = amounts_of(&pod(2, 0).request);
    let asking = pod(2, 0);
    let short = RoomSearch::new(&filled, &asking, &amounts, 0, 3).run();
    assert_eq!((short.outcome, short.pods.len(), short.is_smallest), (RoomOutcome::Pods, 2, false));
}

#[test]
fn what_a_scheduler_counts_beyond_the_containers_decides_as_well() {
    let free = host("free", &[("a", 2, 0)], |_| {});
    let mut asking = pod(2, 0);
    assert_eq!(explain(std::slice::from_ref(&free), &asking, 0).fits.len(), 1);
    // A pod with an overhead of its runtime class.
    asking.counted = Some([(CPU.to_owned(), 12_001)].into());
    let explained = explain(std::slice::from_ref(&free), &asking, 0);
    assert_eq!((explained.fits.len(), &*explained.refused[0].reason), (0, "Insufficient cpu"));
    let short = &explained.refused[0].nodes[0].shortages[0];
    assert_eq!((short.wanted, short.free), (12_001, 12_000));
    let plan =
        |pod: &PlannedPod| ClusterPlan::new(vec![free.node.clone()], NodeRule::Exact, false, 0).place(pod);
    assert_eq!(plan(&asking).node, None);
    assert_eq!(plan(&pod(2, 0)).node.as_deref(), Some("free"));
}

#[test]
fn nodes_are_grouped_as_schedulers_do() {
    let none = |_: &mut NodeState| {};
    let mut cordoned = host("cordoned", &[], none);
    cordoned.node.is_cordoned = true;
    let mut tainted = host("tainted", &[], none);
    tainted.node.taints = vec![Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into() }];
    let mut silent = host("silent", &[], none);
    silent.node.view = NodeView::default();
    let nodes = [
        host("far", &[("a", 4, 0), ("b", 4, 0), ("c", 2, 7)], none),
        host("near", &[("a", 2, 0), ("b", 5, 0)], none),
        cordoned,
        tainted,
        silent,
        host("free", &[("a", 2, 0)], none),
        host("cores", &[], |state| {
            state.kubelet.cpu_options.insert("full-pcpus-only".into(), "true".into());
        }),
    ];
    let explained = explain(&nodes, &pod(7, 0), 0);
    let fits: Vec<_> = explained.fits.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(fits, ["free"]);
    let groups = explained.refused.iter().map(|group| {
        let nodes: Vec<String> = group.nodes.iter().map(told).collect();
        format!("{} {}: {}", group.count, group.reason, nodes.join(" | "))
    });
    insta::assert_snapshot!(groups.collect::<Vec<_>>().join("\n"));
}

#[test]
fn pods_without_a_place_of_their_own_are_refused_by_sums_alone() {
    let mut small = pod(5, 0);
    small.request.qos = numa_placement::QosClass::Burstable;
    let filled = host("n", &[("a", 6, 0), ("b", 4, 0)], |_| {});
    let (reason, told) = of_one(filled.clone(), &small);
    assert_eq!((reason.as_str(), told.as_str()), ("Insufficient cpu", "n: cpu 4000/5000 on -; Pods shop/b"));
    small.request.containers[0].requests.milli_cpus = Some(4_000);
    let explained = explain(&[filled], &small, 0);
    assert_eq!(explained.fits, [FittingNode { node: "n".into(), numa_nodes: None }]);
}
