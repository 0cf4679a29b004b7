//! Containers that share CPUs or have soft memory promises, beside exclusive CPUs and firm promises.

use super::*;

#[test]
fn ended_init_containers_take_no_cpu_from_sharing_containers() {
    use ContainerKind::{App, Init, Sidecar};
    let whole = || container("whole", 16_000, GIB);
    let part = || container("part", 500, GIB);
    for (first, second, admitted) in [
        (part().kind(Init), whole().kind(App), true),
        (part().kind(Init), whole().kind(Init), true),
        (whole().kind(Init), part().kind(App), true),
        (whole().kind(Init), part().kind(Sidecar), true),
        (part().kind(Sidecar), whole().kind(Init), false),
        (part().kind(Sidecar), whole().kind(App), false),
        (whole().kind(Sidecar), part().kind(App), false),
    ] {
        let kinds = (first.kind, second.kind);
        let mut host = Host::new(two_nodes(), policy(TopologyPolicy::BestEffort));
        let outcome = host.admit(&pod("p", vec![first, second]));
        assert_eq!(outcome.is_ok(), admitted, "{kinds:?}: {outcome:?}");
    }
    // Others run beside the init container.
    let mut host = Host::new(two_nodes(), policy(TopologyPolicy::BestEffort));
    host.admit(&pod("other", vec![part()])).unwrap();
    host.admit(&pod("p", vec![whole().kind(Init), part()])).unwrap_err();
}

#[test]
fn a_squeezed_neighbour_gets_the_whole_shared_pool() {
    let mut host = Host::new(two_nodes(), single());
    host.admit(&pod("a", vec![container("c", 500, GIB).without_limits()])).unwrap();
    host.admit(&pod("b", vec![container("c", 500, GIB).without_limits()])).unwrap();
    assert_eq!(host.place("a", "c").0, "0-3,8-11");
    let admission = host.admit(&pod("g", vec![container("c", 8000, GIB)])).unwrap();
    assert_eq!(host.place("a", "c").0, "4-7,12-15");
    let update = &admission.updates[0];
    assert_eq!(update.cpus.as_ref().unwrap().to_string(), "4-7,12-15");
    let before = host.allocations.clone();
    let rejection = host.admit(&pod("h", vec![container("c", 8000, GIB)])).unwrap_err();
    assert_eq!(rejection.reason, RejectionReason::UnexpectedAdmissionError);
    assert!(rejection.to_string().contains("default/a/c would have no CPU left"), "{rejection}");
    assert_eq!(host.allocations, before);
}

#[test]
fn displaced_container_moves_back_when_there_is_room_again() {
    let mut host = Host::new(two_nodes(), single());
    for (name, millis) in [("old", 3000), ("young", 3000)] {
        host.admit(&pod(name, vec![container("c", millis, GIB).without_limits()])).unwrap();
    }
    host.settings.hints.policy = TopologyPolicy::BestEffort;
    let home = |host: &Host| [host.place("old", "c").0, host.place("young", "c").0];
    let before = host.allocations.clone();
    let [first, second] = home(&host);
    assert_eq!([first.as_str(), second.as_str()], ["0-3,8-11", "4-7,12-15"]);
    host.admit(&pod("g", vec![container("c", 8000, GIB)])).unwrap();
    host.admit(&pod("h", vec![container("c", 7000, GIB)])).unwrap();
    assert_eq!(home(&host), ["15", "15"]);
    assert!(host.grant("old", "c").why().contains("on all shared CPUs as long as"));
    // Half of the CPUs are free: the container with this scope moves back, the other runs there too.
    let of = |name: &str| PodName::new("default", name);
    let updates = remove(&mut host.allocations, &of("h"));
    assert_eq!(updates.len(), 2, "{updates:?}");
    assert_eq!(home(&host), ["4-7,12-15", "4-7,12-15"]);
    let updates = remove(&mut host.allocations, &of("g"));
    let told: Vec<_> =
        updates.iter().map(|update| (update.holder.to_string(), update.cpus.clone())).collect();
    let cpus = |text: &str| Some(text.parse::<CpuSet>().unwrap());
    assert_eq!(told, [("default/old/c".to_owned(), cpus("0-3,8-11"))]);
    assert_eq!(host.allocations, before);
}

#[test]
fn the_youngest_of_a_scope_go_and_the_oldest_of_them_return_first() {
    let mut host = Host::new(two_nodes(), single());
    let of = |name: &str| PodName::new("default", name);
    let limited = |name: &str, millis| {
        let mut own = container("c", millis, 0).without_limits();
        own.allowed_nodes = Some("0".parse().unwrap());
        pod(name, vec![own])
    };
    for (name, millis) in [("a", 3000), ("b", 3000), ("c", 1000), ("idle", 0)] {
        host.admit(&limited(name, millis)).unwrap();
    }
    let away = |host: &Host| {
        let all = ["a", "b", "c", "idle"].into_iter();
        let holder = |name: &str| Holder::new(of(name), "c".into());
        let shared = |name| host.allocations.get(&holder(name))?.shared.as_ref();
        all.filter(|name| shared(name).is_some_and(|shared| shared.fallback_cpus.is_some()))
            .collect::<String>()
    };
    let exclusive = |name: &str, cpus: u64| {
        let mut own = container("c", cpus * 1000, GIB);
        own.allowed_nodes = Some("0".parse().unwrap());
        pod(name, vec![own])
    };
    host.admit(&exclusive("x", 2)).unwrap();
    assert_eq!(away(&host), "c");
    // `c` alone would have room beside `a`, but earlier containers come first.
    host.admit(&exclusive("y", 2)).unwrap();
    assert_eq!(away(&host), "bc");
    host.admit(&exclusive("z", 4)).unwrap();
    assert_eq!(away(&host), "abcidle");
    remove(&mut host.allocations, &of("y"));
    assert_eq!(away(&host), "abc");
    remove(&mut host.allocations, &of("z"));
    assert_eq!(away(&host), "c");
    // Room that another sharing pod leaves counts as well.
    remove(&mut host.allocations, &of("b"));
    assert_eq!(away(&host), "");
}

#[test]
fn soft_promises_of_memory_give_way_to_a_guaranteed_pod() {
    let mut host = Host::with(
        two_nodes(),
        devices("v.com/gpu", &["0"]),
        PlacementSettings { hints: single(), ..Default::default() },
    );
    host.admit(&pod("a", vec![container("c", 500, 10 * GIB).without_limits()])).unwrap();
    assert_eq!(host.place("a", "c").1, "0");
    let admission =
        host.admit(&pod("g", vec![container("c", 1000, 12 * GIB).device("v.com/gpu", 1)])).unwrap();
    assert_eq!(host.place("g", "c").1, "0");
    assert_eq!(admission.updates[0].mems.as_ref().unwrap().to_string(), "0-1");
    assert_eq!(host.grant("a", "c").memory[0].zone.to_string(), "0-1");
}
