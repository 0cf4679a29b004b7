use super::*;
use crate::cluster::{model::tests::state, objects::Toleration, state::NodeState};
use numa_placement::{ContainerRequest, PodName};

fn node(name: &str, change: impl Fn(&mut NodeState)) -> PlannedNode {
    let mut state = state();
    change(&mut state);
    let mut view = NodeView::default();
    view.observe_state(&state, 0);
    let allocatable = [(CPU, 14_000), ("memory", 32 << 30), (PODS, 3)];
    let allocatable = allocatable.into_iter().map(|(resource, amount)| (resource.to_owned(), amount));
    PlannedNode::new(name.into(), NodeSums::new(allocatable.collect()), view)
}

fn pod(name: &str, cpus: u64) -> PlannedPod {
    let container = ContainerRequest::guaranteed("main", cpus * 1000, 1 << 30);
    PodRequest::new(PodName::new("default", name), vec![container]).into()
}

fn told(plan: &PodPlan) -> String {
    let refused = plan.refused.iter().map(|group| format!("{} {}", group.count, group.reason));
    let refused: Vec<String> = refused.collect();
    let cpus: Vec<String> = plan.containers.iter().map(|one| one.cpus.to_string()).collect();
    format!(
        "{} {} on {} nodes {} ({})",
        plan.pod,
        cpus.join("+"),
        plan.node.as_deref().unwrap_or("-"),
        plan.numa_nodes,
        refused.join(", ")
    )
}

fn placed(nodes: Vec<PlannedNode>, rule: NodeRule, pods: &[PlannedPod]) -> Vec<String> {
    let report = ClusterPlan::new(nodes, rule, false, 0).place_all(pods);
    assert_eq!(report.placed + report.pending, pods.len() as u64);
    report.pods.iter().map(told).collect()
}

#[test]
fn pods_fill_the_tightest_place_of_the_first_node() {
    let nodes = vec![node("b", |_| {}), node("a", |_| {})];
    let pods = [pod("one", 4), pod("two", 8), pod("three", 2), pod("four", 8), pod("five", 8)];
    assert_eq!(
        placed(nodes, NodeRule::Exact, &pods),
        [
            "default/one 1-2,9-10 on a nodes 0 ()",
            "default/two 4-7,12-15 on a nodes 1 ()",
            "default/three 3,11 on a nodes 0 ()",
            "default/four 4-7,12-15 on b nodes 1 (1 Insufficient cpu)",
            "default/five  on - nodes  (2 Insufficient cpu)",
        ]
    );
}

#[test]
fn reasons_are_grouped_and_explained_on_demand() {
    let mut cordoned = node("c", |_| {});
    cordoned.is_cordoned = true;
    let silent = PlannedNode::new("d".into(), NodeSums::default(), NodeView::default());
    let nodes = vec![node("a", |_| {}), node("b", |_| {}), cordoned, silent];
    let mut plan = ClusterPlan::new(nodes, NodeRule::Exact, true, 0);
    let plan = plan.place(&pod("wide", 9));
    assert_eq!(plan.node, None);
    let told: Vec<_> = plan.refused.iter().map(|group| (group.count, group.reason.as_str())).collect();
    assert_eq!(
        told,
        [
            (2, "NUMA: no node of the machine has the CPUs free together"),
            (1, "NUMA: state unknown"),
            (1, "node(s) were unschedulable"),
        ]
    );
    assert_eq!(plan.refused[0].nodes, ["a", "b"]);
    assert!(plan.refused[0].detail.as_ref().unwrap().contains("9 cpu on node"), "{:?}", plan.refused[0]);
}

#[test]
fn filling_counts_the_copies_that_fit() {
    let report = ClusterPlan::new(vec![node("a", |_| {}), node("b", |_| {})], NodeRule::Exact, false, 0)
        .fill(&pod("copy", 6), 100);
    assert_eq!((report.placed, report.pending), (4, 1));
    let limited =
        ClusterPlan::new(vec![node("a", |_| {})], NodeRule::Exact, false, 0).fill(&pod("copy", 1), 2);
    assert_eq!((limited.placed, limited.pending), (2, 0));

    let mut known = pod("known", 6);
    known.request.name.uid = "u".into();
    let report = ClusterPlan::new(vec![node("a", |_| {})], NodeRule::Exact, false, 0).fill(&known, 2);
    let cpus: Vec<String> = report.pods.iter().map(|pod| pod.containers[0].cpus.to_string()).collect();
    assert_ne!(cpus[0], cpus[1], "copies of a pod of the API are other pods");
}

#[test]
fn other_pods_go_where_the_most_cpu_time_is_free() {
    let mut small = pod("small", 1);
    small.request.qos = numa_placement::QosClass::Burstable;
    let nodes = vec![node("a", |_| {}), node("b", |_| {})];
    let pods = [small.clone(), small];
    let found: Vec<_> = placed(nodes, NodeRule::Exact, &pods);
    assert_eq!(found, ["default/small  on a nodes  ()", "default/small  on b nodes  ()"]);
}

#[test]
fn volcano_chooses_by_the_policy_that_the_pod_names() {
    let policy =
        |name: &'static str| move |state: &mut NodeState| state.kubelet.topology_policy = name.into();
    let nodes = || {
        vec![
            node("n1", policy("best-effort")),
            node("n2", policy("restricted")),
            node("n3", policy("single-numa-node")),
        ]
    };
    let asks = |cpus: u64, policy: &str| {
        let mut pod = pod("p", cpus);
        pod.request.annotations.insert(VOLCANO_POLICY.into(), policy.into());
        pod
    };
    let chosen = |pod: PlannedPod| {
        ClusterPlan::new(nodes(), NodeRule::Volcano, false, 0).place(&pod).node.unwrap_or_else(|| "-".into())
    };
    assert_eq!(chosen(asks(9, "best-effort")), "n1");
    assert_eq!(chosen(asks(9, "restricted")), "n2", "nodes of 8 CPUs: two are needed");
    assert_eq!(chosen(asks(9, "single-numa-node")), "-");
    assert_eq!(chosen(asks(8, "single-numa-node")), "n3");
    assert_eq!(chosen(asks(2, "something")), "-");
}

#[test]
fn tainted_and_cordoned_nodes_take_pods_that_tolerate_that() {
    let mut tainted = node("a", |_| {});
    tainted.taints = vec![Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into() }];
    let mut cordoned = node("b", |_| {});
    cordoned.is_cordoned = true;
    let mut broken = node("c", |_| {});
    broken.is_ready = false;
    let placed = |tolerations: &[(&str, &str)]| {
        let mut pod = pod("p", 2);
        pod.scheduling.tolerations = tolerations
            .iter()
            .map(|(key, operator)| Toleration {
                key: (*key).into(),
                operator: (*operator).into(),
                ..Toleration::default()
            })
            .collect();
        let nodes = vec![tainted.clone(), cordoned.clone(), broken.clone()];
        told(&ClusterPlan::new(nodes, NodeRule::Exact, false, 0).place(&pod))
    };
    assert_eq!(
        placed(&[]),
        "default/p  on - nodes  (1 node(s) had untolerated taint {gpu: yes}, 1 node(s) were not ready, \
         1 node(s) were unschedulable)"
    );
    let elsewhere = "(1 node(s) were not ready, 1 node(s) were unschedulable)";
    assert_eq!(placed(&[("gpu", "Exists")]), format!("default/p 1,9 on a nodes 0 {elsewhere}"));
    assert!(placed(&[("node.kubernetes.io/unschedulable", "Exists")]).starts_with("default/p 1,9 on b "));
}
