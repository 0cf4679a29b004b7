//! The older first-fit policy: the first sets of nodes that fit together.

use super::*;

#[test]
fn first_fit_is_strict_for_guaranteed_pods_only() {
    for (policy_of, admitted) in
        [(TopologyPolicy::NumaManager, false), (TopologyPolicy::NumaManagerBestEffort, true)]
    {
        // A device without a node: three of them have no set of nodes in common with any other resource.
        let gpus = devices("v.com/gpu", &["0", "1", ""]);
        let settings = PlacementSettings { hints: policy(policy_of), ..PlacementSettings::default() };
        let mut host = Host::with(two_nodes(), gpus, settings);
        let request = container("c", 2000, GIB).device("v.com/gpu", 3);
        let outcome = host.admit(&pod("one", vec![request.clone()]));
        assert_eq!(outcome.is_ok(), admitted, "{policy_of:?}: {outcome:?}");
        remove(&mut host.allocations, &PodName::new("default", "one"));
        host.admit(&pod("two", vec![request.without_limits()])).unwrap();
        // The first list decides, even if another set is better for all.
        host.admit(&pod("three", vec![container("c", 10_000, GIB)])).unwrap();
        assert_eq!(host.place("three", "c").1, "0-1");
    }
}

#[test]
fn first_fit_is_offered_sets_without_a_node_too_many() {
    for policy_of in
        [TopologyPolicy::NumaManager, TopologyPolicy::NumaManagerBestEffort, TopologyPolicy::BestEffort]
    {
        let mut host = Host::new(two_nodes(), policy(policy_of));
        let most = host.inventory.nodes[0].allocatable(MemoryResource::Memory);
        let mut first = container("c", 1000, most - GIB);
        first.allowed_nodes = Some("0".parse().unwrap());
        host.admit(&pod("first", vec![first])).unwrap();
        // Memory is on node 1 or on both; only the narrowest set is offered, so the CPUs are there.
        let outcome = host.admit(&pod("next", vec![container("c", 1000, 2 * GIB)]));
        assert!(outcome.is_ok(), "{policy_of:?}: {outcome:?}");
        assert_eq!(host.place("next", "c").1, "1", "{policy_of:?}");
        let hint = host.grant("next", "c").hint.clone().unwrap();
        assert!(hint.preferred, "{policy_of:?}: it can hold all");
    }
}
