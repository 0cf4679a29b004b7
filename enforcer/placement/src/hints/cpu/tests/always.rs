//! Properties for every machine, however uneven, and for every request.

use proptest::prelude::*;

use super::*;
use numa_topology::set::NodeSet;

/// Machines with offline CPUs, cores of different sizes, several nodes in a socket or the other way
/// round, sparse node ids.
fn any_machine(threads: u32) -> impl Strategy<Value = CpuLayout> {
    let shape = (1u32..4, 1u32..4, 1u32..5, 1..=threads, any::<bool>(), 1u32..40);
    (shape, proptest::collection::vec(proptest::bool::weighted(0.9), 200)).prop_map(|(shape, online)| {
        let (outer, inner, cores, threads, sockets_in_nodes, step) = shape;
        let all = outer * inner * cores;
        let places = (0..all * threads).filter(|cpu| online[*cpu as usize % 200]).map(|cpu| {
            let core = cpu % all;
            let (small, large) = (core / cores, core / cores / inner);
            let (socket, node) = if sockets_in_nodes { (small, large) } else { (large, small) };
            CpuPlace { id: CpuId(cpu), core, socket, node: NodeId(node * step), llc: core / 2 }
        });
        CpuLayout::new(places.collect())
    })
}

fn any_options() -> impl Strategy<Value = CpuOptions> {
    prop::array::uniform5(any::<bool>()).prop_map(|[full, numa, cores, socket, uncore]| CpuOptions {
        full_pcpus_only: full,
        distribute_across_numa: numa,
        distribute_across_cores: cores,
        align_by_socket: socket,
        align_by_uncore_cache: uncore,
    })
}

fn some_of(cpus: &CpuSet, chosen: u128) -> CpuSet {
    cpus.iter().filter(|cpu| chosen >> (cpu.0 % 128) & 1 == 1).collect()
}

/// CPUs of whole cores only.
fn whole_cores(layout: &CpuLayout, cpus: &CpuSet) -> CpuSet {
    let whole = layout.cores.iter().filter(|(_, core)| core.is_subset(cpus));
    whole.flat_map(|(_, core)| core.iter().collect::<Vec<_>>()).collect()
}

proptest! {
    #[test]
    fn as_many_as_asked_for_of_those_available(
        layout in any_machine(4),
        chosen in any::<u128>(),
        count in 0usize..70,
        options in any_options(),
    ) {
        let available = some_of(&layout.all(), chosen);
        let mut with_unknown = available.clone();
        with_unknown.insert(CpuId(5000));
        match assign(&layout, &with_unknown, count, options) {
            Ok(taken) => {
                prop_assert!(taken.is_subset(&available));
                prop_assert_eq!(taken.len(), count);
            }
            Err(CpuError::NotEnough { requested, available: had }) => {
                prop_assert_eq!((requested, had), (count, available.len()));
                prop_assert!(count > had);
            }
            Err(CpuError::NotWholeCores { threads, .. }) => {
                prop_assert!(options.full_pcpus_only && count % threads != 0);
            }
            Err(CpuError::TooFewWholeCores { .. }) => {
                prop_assert!(options.full_pcpus_only && count > available.len());
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn the_order_in_which_cpus_are_read_does_not_matter(
        layout in any_machine(3),
        chosen in any::<u128>(),
        count in 0usize..40,
        options in any_options(),
    ) {
        let available = some_of(&layout.all(), chosen);
        let backwards = CpuLayout::new(layout.cpus.iter().rev().copied().collect());
        prop_assert_eq!(&backwards, &layout);
        prop_assert_eq!(assign(&backwards, &available, count, options), assign(&layout, &available, count, options));
    }

    #[test]
    fn whole_cores_are_whole(
        layout in any_machine(2),
        chosen in any::<u128>(),
        cores in 0usize..30,
        options in any_options(),
    ) {
        let options = CpuOptions { full_pcpus_only: true, distribute_across_cores: false, ..options };
        let available = whole_cores(&layout, &some_of(&layout.all(), chosen));
        let count = cores * layout.threads_per_core();
        let taken = assign(&layout, &available, count, options);
        if count > available.len() {
            prop_assert!(taken.is_err());
        } else {
            let taken = taken.unwrap();
            prop_assert_eq!(&whole_cores(&layout, &taken), &taken);
        }
    }

    #[test]
    fn equal_nodes_give_equal_parts(nodes in 1u32..9, cores in 1u32..5, count in 1usize..64, full in any::<bool>()) {
        let layout = machine(nodes * cores * 2, |cpu| {
            let core = cpu % (nodes * cores);
            (core, core / cores, core / cores, core / cores)
        });
        let options = CpuOptions { full_pcpus_only: full, ..NUMA };
        let group = if full { 2 } else { 1 };
        let count = (count * group).min(layout.cpus.len());
        let taken = assign(&layout, &layout.all(), count, options).unwrap();
        let parts: Vec<usize> = layout.nodes.iter().map(|(_, cpus)| cpus.common(&taken)).collect();
        let used: Vec<usize> = parts.into_iter().filter(|part| *part > 0).collect();
        prop_assert_eq!(used.len(), count.div_ceil(cores as usize * 2));
        let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
        prop_assert!(most - least <= group, "{:?}", used);
    }

    #[test]
    fn the_chosen_nodes_give_all_that_they_can(
        layout in any_machine(4),
        sets in any::<[u128; 4]>(),
        count in 0usize..40,
        options in any_options(),
    ) {
        let [available, reserved, reusable] = [sets[0], sets[1], sets[2]].map(|set| some_of(&layout.all(), set));
        let options = CpuOptions { align_by_socket: false, ..options };
        let nodes = layout.nodes.iter().map(|(node, _)| *node);
        let affinity: NodeSet = nodes.filter(|node| sets[3] >> (node.0 % 128) & 1 == 1).collect();
        let pick = CpuPick {
            available: &available,
            reserved: &reserved,
            reusable: &reusable,
            affinity: Some(&affinity),
            count,
        };
        if let Ok(taken) = assign_near(&layout, &pick, options) {
            let pool = available.union(&reusable).difference(&reserved);
            prop_assert!(taken.is_subset(&pool));
            prop_assert_eq!(taken.len(), count);
            let of_nodes = layout.cpus.iter().filter(|cpu| affinity.contains(cpu.node));
            let near: CpuSet = of_nodes.map(|cpu| cpu.id).collect();
            prop_assert_eq!(taken.common(&near), pool.common(&near).min(count));
        }
    }

    #[test]
    fn resizing_keeps_what_must_stay(
        layout in any_machine(4),
        sets in any::<[u128; 2]>(),
        count in 0usize..40,
        options in any_options(),
    ) {
        let held = some_of(&layout.all(), sets[0]);
        let keep = some_of(&held, sets[1]);
        let shrunk = retain(&layout, &held, &keep, count, options);
        let possible = (keep.len()..=held.len()).contains(&count);
        prop_assert!(options.full_pcpus_only || shrunk.is_ok() == possible);
        if let Ok(shrunk) = shrunk {
            prop_assert_eq!(shrunk.len(), count);
            prop_assert!(keep.is_subset(&shrunk) && shrunk.is_subset(&held));
        }
        let grown = grow(&layout, &keep, &held, count, options);
        prop_assert!(options.full_pcpus_only || grown.is_ok() == possible);
        if let Ok(grown) = grown {
            prop_assert_eq!(grown.len(), count);
            prop_assert!(keep.is_subset(&grown) && grown.is_subset(&held));
        }
    }
}
