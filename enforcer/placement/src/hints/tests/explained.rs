//! Messages about rejections and about the considered sets of nodes.

use super::*;
use crate::{Trace, admit_traced};

#[test]
fn a_rejection_says_what_was_short_where_and_what_would_fit() {
    let mut host = Host::with(two_nodes(), devices("v.com/gpu", &["1"]), reserved("0-1", single()));
    let mut filler = container("c", 6000, GIB);
    filler.allowed_nodes = Some("1".parse().unwrap());
    host.admit(&pod("x", vec![filler])).unwrap();
    let text = |host: &mut Host, request| {
        let mut rejection = host.admit(&pod("p", vec![request])).unwrap_err();
        // Other tests cover the holders of the missing resources.
        rejection.wording.taken.clear();
        rejection.to_string()
    };
    for (request, said) in [
        (
            container("c", 4000, GIB).device("v.com/gpu", 1),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             2 of 4 cpu on node 1; all of it fits on nodes 0-1, but not aligned",
        ),
        (
            container("c", 7000, GIB),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             6 of 7 cpu on node 0; all of it fits on nodes 0-1, but not aligned",
        ),
        (
            container("c", 1000, 20 * GIB),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             16 GiB of 20 GiB memory on node 0; all of it fits on nodes 0-1, but not aligned",
        ),
        (
            container("c", 1000, GIB).device("v.com/gpu", 2),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             1 of 2 v.com/gpu on node 1; at most 6 cpu on node 0, 16 GiB memory on node 0, \
             1 v.com/gpu on node 1 would fit",
        ),
        (
            container("c", 9000, GIB),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             6 of 9 cpu on node 0; at most 6 cpu on node 0, 16 GiB memory on node 0 would fit",
        ),
    ] {
        assert_eq!(text(&mut host, request), said);
    }
}

#[test]
fn what_needs_more_nodes_than_the_rest_is_what_was_short() {
    let mut host = Host::new(two_nodes(), policy(TopologyPolicy::Restricted));
    let mut text = |request| host.admit(&pod("p", vec![request])).unwrap_err().to_string();
    let cpus = "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
                8 of 10 cpu on node 0; all of it fits on nodes 0-1, but not aligned";
    assert_eq!(text(container("c", 10_000, GIB)), cpus);
    let memory = "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
                  16 GiB of 20 GiB memory on node 0; all of it fits on nodes 0-1, but not aligned";
    assert_eq!(text(container("c", 2000, 20 * GIB)), memory);
}

#[test]
fn whole_cores_are_refused_by_their_own_name() {
    let hints = HintsSettings { full_pcpus_only: true, ..policy(TopologyPolicy::BestEffort) };
    let mut host = Host::with(two_nodes(), vec![], reserved("0", hints));
    let rejection = host.admit(&pod("p", vec![container("c", 3000, GIB)])).unwrap_err();
    assert_eq!(rejection.reason, RejectionReason::SmtAlignmentError);
    assert_eq!(
        rejection.fits.as_deref(),
        Some("2 or 4 CPUs are whole cores, at most 8 cpu on node 1 and 14 on nodes 0-1 would fit")
    );
    let rejection = host.admit(&pod("p", vec![container("c", 16000, GIB)])).unwrap_err();
    assert_eq!(rejection.reason, RejectionReason::SmtAlignmentError);
    assert_eq!((rejection.shortages[0].wanted, rejection.shortages[0].available), (16, 14));
}

#[test]
fn hostile_amounts_are_rejections() {
    let mut host = Host::with(two_nodes(), devices("v.com/gpu", &["1"]), PlacementSettings::default());
    for scope in [Scope::Container, Scope::Pod] {
        host.settings.hints.scope = scope;
        for request in [
            container("c", u64::MAX / 1000 * 1000, u64::MAX),
            container("c", 1000, u64::MAX),
            container("c", 0, 0).device("v.com/gpu", u64::MAX),
            container("c", 0, 0).device("no.such/thing", 1),
        ] {
            let pod =
                pod("p", vec![request.clone(), crate::ContainerRequest { name: "d".into(), ..request }]);
            assert!(host.admit(&pod).is_err());
        }
    }
    assert_eq!(host.allocations, Allocations::default());
}

#[test]
fn every_candidate_is_listed_on_request() {
    let mut host = Host::new(two_nodes(), single());
    host.admit(&pod("a", vec![container("c", 6000, GIB)])).unwrap();
    let mut trace = Trace::wanted();
    let Host { inventory, settings, allocations } = &mut host;
    let request = pod("b", vec![container("c", 4000, GIB)]);
    admit_traced(inventory, settings, allocations, &request, &mut trace).unwrap();
    let (candidates, _) = trace.into_parts();
    let told: Vec<_> = candidates.iter().map(|c| (c.place.as_str(), c.chosen, c.because.as_str())).collect();
    assert_eq!(
        told,
        [
            ("node 1", true, "every resource prefers it"),
            ("node 0", false, "too little cpu"),
            ("nodes 0-1", false, "cpu, memory would need fewer nodes if empty"),
        ]
    );
}

#[test]
fn every_set_of_a_few_nodes_is_told() {
    let machine = Machine::new().sockets(4).cores(2).threads(1).build();
    let Host { inventory, settings, mut allocations } = Host::new(machine, HintsSettings::default());
    let mut trace = crate::Trace::wanted();
    let request = pod("a", vec![container("c", 2000, GIB)]);
    admit_traced(&inventory, &settings, &mut allocations, &request, &mut trace).unwrap();
    let (candidates, _) = trace.into_parts();
    let places: std::collections::BTreeSet<_> = candidates.iter().map(|c| c.place.as_str()).collect();
    assert_eq!((candidates.len(), places.len()), (15, 15), "{places:?}");
    assert_eq!(candidates.iter().filter(|candidate| candidate.chosen).count(), 1);
}
