//! The profile `kubelet`: memory of ended init containers is available only to the same set of nodes.

use super::*;

/// Two nodes of four CPUs and 8 GiB: does an init container of one CPU and `init` GiB leave room for these?
fn admits(hints: HintsSettings, init: &[u64], apps: &[(u64, u64)]) -> Result<Vec<String>, RejectionReason> {
    let machine = Machine::new().sockets(2).cores(4).threads(1).memory_gib(8).build();
    let mut host = Host::new(machine, hints);
    let inits = init
        .iter()
        .enumerate()
        .map(|(number, gib)| container(&format!("i{number}"), 1000, gib * GIB).kind(ContainerKind::Init));
    let after = apps.iter().enumerate();
    let after = after.map(|(number, (cpus, gib))| container(&format!("c{number}"), cpus * 1000, gib * GIB));
    let all = inits.chain(after).collect();
    host.admit(&pod("p", all)).map_err(|rejection| rejection.reason)?;
    Ok((0..apps.len()).map(|number| host.place("p", &format!("c{number}")).1).collect())
}

#[test]
fn the_kubelet_keeps_memory_of_init_containers_for_the_same_nodes() {
    let best_effort = || policy(TopologyPolicy::BestEffort);
    for (init, apps, ours, kubelets) in [
        // On the same node: the cases of the kubelet's own tests.
        (&[1, 2][..], &[(1, 3), (1, 4)][..], Some(vec!["0", "0"]), Some(vec!["0", "0"])),
        (&[4, 3], &[(1, 2), (1, 1)], Some(vec!["0", "0"]), Some(vec!["0", "0"])),
        (&[6], &[(1, 7)], Some(vec!["0"]), Some(vec!["0"])),
        (&[6], &[(1, 3), (1, 5)], Some(vec!["0", "0"]), Some(vec!["0", "0"])),
        // On both nodes it blocks other sets, like a promise on one node.
        (&[6], &[(5, 11)], Some(vec!["0-1"]), None),
        (&[1], &[(5, 9)], Some(vec!["0-1"]), None),
    ] {
        let expected =
            |nodes: Option<Vec<&str>>| nodes.map(|nodes| nodes.into_iter().map(String::from).collect());
        assert_eq!(admits(best_effort(), init, apps).ok(), expected(ours), "ours: {init:?} {apps:?}");
        let got = admits(kubelet(TopologyPolicy::BestEffort), init, apps);
        assert_eq!(got.ok(), expected(kubelets), "kubelet: {init:?} {apps:?}");
    }
}
