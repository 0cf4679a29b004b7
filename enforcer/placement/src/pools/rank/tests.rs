//! The order is total, and its keys decide in turn.

use proptest::prelude::*;

use super::*;
use crate::settings::PoolLevel;

fn demand(class: CpuClass, full: u64, fraction_milli: u64) -> CpuDemand {
    CpuDemand {
        class,
        full,
        fraction_milli,
        limit: CpuLimit::Request,
        isolate: Isolate::No,
        priority: CpuPriority::None,
        because: "",
    }
}

/// A pool that can hold everything.
fn standing(pool: usize) -> PoolScore {
    PoolScore {
        pool,
        depth: 1,
        shared: 8000,
        isolated: 0,
        reserved: 0,
        affinity: 0,
        hints: None,
        level: LevelFit::Shallower,
        priority_fits: true,
        colocated: 0,
        memory: MemoryScore {
            offered: true,
            exact_types: true,
            has_types: true,
            capacity: 64,
            nodes: 1,
            ..MemoryScore::default()
        },
    }
}

/// The better of two, and the key that decided.
fn better(
    demand: &CpuDemand,
    limit: MemoryLimit,
    first: &PoolScore,
    second: &PoolScore,
) -> (usize, &'static str) {
    let order = PoolOrder::new(demand, limit);
    let both = [(first, second), (second, first)].map(|(a, b)| order.compare(a, b));
    assert_eq!(both[0], both[1].reverse());
    let winner = if both[0].is_lt() { first.pool } else { second.pool };
    (winner, order.decided_by(first, second))
}

#[test]
fn each_key_decides_when_those_before_it_are_equal() {
    let exclusive = demand(CpuClass::Exclusive, 2, 0);
    let other = |change: fn(&mut PoolScore)| {
        let mut second = standing(1);
        change(&mut second);
        better(&exclusive, MemoryLimit::Bytes(100), &standing(0), &second)
    };
    assert_eq!(other(|_| ()), (0, "id"));
    assert_eq!(other(|s| s.shared = 1999), (0, "CPUs"));
    assert_eq!(other(|s| s.affinity = 1), (1, "affinity"));
    assert_eq!(other(|s| s.affinity = -1), (0, "affinity"));
    assert_eq!(other(|s| s.memory.offered = false), (0, "memory"));
    assert_eq!(other(|s| s.memory.exact_types = false), (0, "exact memory types"));
    assert_eq!(other(|s| s.memory.capacity = 65), (1, "room up to the memory limit"));
    assert_eq!(other(|s| s.memory.nodes = 2), (0, "number of memory nodes"));
    assert_eq!(other(|s| s.memory.has_types = false), (0, "memory types"));
    assert_eq!(other(|s| s.depth = 2), (1, "depth"));
    assert_eq!(other(|s| s.shared = 9000), (1, "shared CPU time left"));
    // Figures that are irrelevant for exclusive CPUs.
    assert_eq!(other(|s| s.colocated = 3), (0, "id"));
    assert_eq!(other(|s| s.reserved = 3), (0, "id"));
    assert_eq!(other(|s| s.isolated = 3), (0, "id"));
    assert_eq!(other(|s| s.priority_fits = false), (0, "id"));
}

#[test]
fn isolated_cpus_are_better_where_they_are_wanted() {
    let with_isolated = PoolScore { isolated: 2, shared: 0, ..standing(1) };
    let of = |isolate| {
        let demand = CpuDemand { isolate, ..demand(CpuClass::Exclusive, 2, 0) };
        better(&demand, MemoryLimit::Request, &standing(0), &with_isolated)
    };
    assert_eq!(of(Isolate::No), (0, "CPUs"));
    assert_eq!(of(Isolate::Prefer), (1, "CPUs"));
    assert_eq!(of(Isolate::Require), (1, "CPUs"));
    // Without enough of them, ordinary ones are used, unless isolated ones are required.
    let few = PoolScore { isolated: 1, ..standing(1) };
    let neither = PoolScore { isolated: 1, shared: 0, ..standing(0) };
    for (isolate, decided) in
        [(Isolate::Prefer, (1, "CPUs")), (Isolate::Require, (1, "shared CPU time left"))]
    {
        let demand = CpuDemand { isolate, ..demand(CpuClass::Exclusive, 2, 0) };
        assert_eq!(better(&demand, MemoryLimit::Request, &neither, &few), decided);
    }
    // The fraction of a mixed one is shared CPU time all the same.
    let mixed = CpuDemand { isolate: Isolate::Prefer, ..demand(CpuClass::Mixed, 1, 500) };
    assert_eq!(better(&mixed, MemoryLimit::Request, &standing(0), &with_isolated), (0, "CPUs"));
}

#[test]
fn a_limit_that_no_pool_holds_takes_the_pool_with_most() {
    let of = |limit| CpuDemand { limit, ..demand(CpuClass::Shared, 0, 1000) };
    let decide = |limit, first: i64, second: i64| {
        let [a, b] = [(0, first), (1, second)].map(|(pool, shared)| PoolScore { shared, ..standing(pool) });
        better(&of(CpuLimit::Milli(limit)), MemoryLimit::Request, &a, &b)
    };
    assert_eq!(decide(80_000, 8000, 30_000), (1, "room up to the CPU limit"));
    assert_eq!(decide(20_000, 8000, 30_000), (1, "room up to the CPU limit"));
    // Both hold it: more is no better beyond the limit.
    assert_eq!(decide(5000, 8000, 30_000), (1, "shared CPU time left"));
    assert_eq!(decide(5000, 8000, 8000), (0, "id"));
}

#[test]
fn without_a_limit_the_configured_level_counts() {
    let demand =
        CpuDemand { limit: CpuLimit::Unlimited(PoolLevel::Package), ..demand(CpuClass::Shared, 0, 1000) };
    let [exact, more, deeper, shallower] = [
        PoolScore { level: LevelFit::Exact, ..standing(0) },
        PoolScore { level: LevelFit::Exact, shared: 9000, ..standing(1) },
        PoolScore { level: LevelFit::Deeper, shared: 9000, depth: 3, ..standing(2) },
        PoolScore { level: LevelFit::Shallower, shared: 20_000, ..standing(3) },
    ];
    let mut all = [shallower, deeper, exact, more];
    PoolOrder::new(&demand, MemoryLimit::Request).sort(&mut all);
    assert_eq!(all.map(|standing| standing.pool), [1, 0, 2, 3]);
}

#[test]
fn hints_that_speak_for_two_pools_leave_it_to_the_deeper_one() {
    let demand = demand(CpuClass::Shared, 0, 500);
    let score = |pool, product, depth| PoolScore { hints: Some(product), depth, ..standing(pool) };
    let [none, half, full] = [0, 500_000, 1_000_000].map(HintScore::of);
    let decide = |a: &PoolScore, b: &PoolScore| better(&demand, MemoryLimit::Bytes(1000), a, b);
    assert_eq!(decide(&score(0, half, 2), &score(1, full, 0)), (1, "topology hints"));
    let larger =
        PoolScore { memory: MemoryScore { capacity: 1000, ..standing(0).memory }, ..score(0, full, 0) };
    assert_eq!(decide(&larger, &score(1, full, 2)), (1, "depth of the pools that hints speak for"));
    // If no hint scores either, memory decides.
    let larger = PoolScore { hints: Some(none), ..larger };
    assert_eq!(decide(&larger, &score(1, none, 2)), (0, "room up to the memory limit"));
}

#[test]
fn memory_limits_choose_pools_with_room() {
    let demand = demand(CpuClass::Shared, 0, 500);
    let with = |pool, capacity, depth| PoolScore {
        memory: MemoryScore { capacity, ..standing(0).memory },
        depth,
        ..standing(pool)
    };
    let decide = |limit| better(&demand, limit, &with(0, 10, 2), &with(1, 40, 0)).0;
    assert_eq!(decide(MemoryLimit::Request), 0);
    assert_eq!(decide(MemoryLimit::Bytes(10)), 0);
    assert_eq!(decide(MemoryLimit::Bytes(11)), 1);
}

#[test]
fn shared_containers_go_where_fewer_are_and_reserved_ones_where_each_has_more() {
    let crowded = PoolScore { colocated: 2, shared: 20_000, reserved: 3000, ..standing(0) };
    let lonely = PoolScore { reserved: 2000, ..standing(1) };
    let shared = demand(CpuClass::Shared, 0, 500);
    assert_eq!(better(&shared, MemoryLimit::Request, &crowded, &lonely), (1, "number of containers"));
    let reserved = demand(CpuClass::Reserved, 0, 500);
    let key = "reserved CPU time left for each container";
    assert_eq!(better(&reserved, MemoryLimit::Request, &crowded, &lonely), (1, key));
    let short = PoolScore { reserved: 100, ..lonely };
    assert_eq!(better(&reserved, MemoryLimit::Request, &crowded, &short), (0, "CPUs"));
}

#[test]
fn priorities_other_than_normal_come_before_depth() {
    let without = PoolScore { priority_fits: false, depth: 2, ..standing(0) };
    let of = |priority| {
        let demand = CpuDemand { priority, ..demand(CpuClass::Exclusive, 1, 0) };
        better(&demand, MemoryLimit::Request, &without, &standing(1)).0
    };
    assert_eq!(
        [CpuPriority::High, CpuPriority::Low, CpuPriority::Normal, CpuPriority::None].map(of),
        [1, 1, 0, 0]
    );
}

fn any_standing() -> impl Strategy<Value = PoolScore> {
    let ordinary = (any::<bool>(), any::<bool>());
    let memory = (any::<bool>(), ordinary, any::<bool>(), any::<bool>(), 0u64..4, 0usize..3).prop_map(
        |(offered, (wholly_ordinary, mostly_ordinary), exact_types, has_types, capacity, nodes)| {
            MemoryScore { offered, wholly_ordinary, mostly_ordinary, exact_types, has_types, capacity, nodes }
        },
    );
    let level = prop::sample::select(vec![LevelFit::Shallower, LevelFit::Deeper, LevelFit::Exact]);
    let hints = prop::option::of((0u32..3).prop_map(HintScore::of));
    let amounts = (-2i64..4).prop_map(|cpus| cpus * 1000);
    let figures = (amounts.clone(), -1i64..4, amounts, -2i64..3, 0usize..3);
    (0usize..4, figures, hints, level, any::<bool>(), 0usize..3, memory).prop_map(
        |(
            pool,
            (shared, isolated, reserved, affinity, depth),
            hints,
            level,
            priority_fits,
            colocated,
            memory,
        )| {
            PoolScore {
                pool,
                depth,
                shared,
                isolated,
                reserved,
                affinity,
                hints,
                level,
                priority_fits,
                colocated,
                memory,
            }
        },
    )
}

fn any_demand() -> impl Strategy<Value = CpuDemand> {
    let class =
        vec![CpuClass::Shared, CpuClass::Exclusive, CpuClass::Mixed, CpuClass::Reserved, CpuClass::Preserved];
    let limit = vec![CpuLimit::Request, CpuLimit::Milli(1500), CpuLimit::Unlimited(PoolLevel::Numa)];
    let isolate = vec![Isolate::No, Isolate::Prefer, Isolate::Require];
    let priority = vec![CpuPriority::High, CpuPriority::Normal, CpuPriority::Low, CpuPriority::None];
    let choice = (
        prop::sample::select(class),
        prop::sample::select(limit),
        prop::sample::select(isolate),
        prop::sample::select(priority),
    );
    (choice, 0u64..3, prop::sample::select(vec![0u64, 500])).prop_map(
        |((class, limit, isolate, priority), full, fraction_milli)| CpuDemand {
            limit,
            isolate,
            priority,
            ..demand(class, full, fraction_milli)
        },
    )
}

fn any_limit() -> impl Strategy<Value = MemoryLimit> {
    prop::sample::select(vec![MemoryLimit::Request, MemoryLimit::Bytes(2)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_is_a_total_order(
        demand in any_demand(), limit in any_limit(),
        a in any_standing(), b in any_standing(), c in any_standing(),
    ) {
        let order = PoolOrder::new(&demand, limit);
        prop_assert_eq!(order.compare(&a, &b), order.compare(&b, &a).reverse());
        prop_assert_eq!(order.compare(&a, &a), Ordering::Equal);
        prop_assert_eq!(order.decided_by(&a, &b), order.decided_by(&b, &a));
        if a.pool != b.pool {
            prop_assert!(order.compare(&a, &b).is_ne());
        }
        if order.compare(&a, &b).is_le() && order.compare(&b, &c).is_le() {
            prop_assert!(order.compare(&a, &c).is_le());
            // Equal only if all are.
            if order.compare(&a, &c).is_eq() {
                prop_assert!(order.compare(&a, &b).is_eq());
            }
        }
    }

    #[test]
    fn the_order_of_input_does_not_matter(
        demand in any_demand(), limit in any_limit(),
        mut pools in proptest::collection::vec(any_standing(), 1..12),
        seed in any::<prop::sample::Index>(),
    ) {
        pools.iter_mut().enumerate().for_each(|(index, standing)| standing.pool = index);
        let order = PoolOrder::new(&demand, limit);
        let mut other = pools.clone();
        other.reverse();
        let middle = seed.index(other.len());
        other.rotate_left(middle);
        order.sort(&mut pools);
        order.sort(&mut other);
        for best in 0..=pools.len() {
            let mut partly = other.clone();
            partly.reverse();
            order.sort_best(&mut partly, best);
            prop_assert_eq!(&partly[..best], &pools[..best]);
        }
        prop_assert_eq!(pools, other);
    }
}
