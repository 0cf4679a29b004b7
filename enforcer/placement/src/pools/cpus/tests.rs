//! The table of the reference allocator's own tests, and properties for any machine.

use proptest::prelude::*;

use super::*;
use numa_topology::id::CpuId;

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn sets(lists: &[&str]) -> Vec<CpuSet> {
    lists.iter().map(|list| cpus(list)).collect()
}

/// Two packages of two nodes, 20 cores of two threads each: thread k and thread k + 40 are a core.
fn machine() -> CpuGroups {
    CpuGroups {
        packages: sets(&["0-19,40-59", "20-39,60-79"]),
        dies: sets(&["0-19,40-59", "20-39,60-79"]),
        nodes: sets(&["0-9,40-49", "10-19,50-59", "20-29,60-69", "30-39,70-79"]),
        cores: (0..40).map(|core| [core, core + 40].into_iter().map(CpuId).collect()).collect(),
        ..CpuGroups::default()
    }
}

fn in_fours(ranges: &[(u32, u32)]) -> Vec<CpuSet> {
    let starts = ranges.iter().flat_map(|&(first, last)| (first..=last).step_by(4));
    starts.map(|start| (start..start + 4).map(CpuId).collect()).collect()
}

fn clustered() -> CpuGroups {
    let mut clusters = sets(&["20,22,24,26", "21,23,25,27"]);
    clusters.extend(in_fours(&[(0, 19), (28, 39), (40, 59), (60, 79)]));
    clusters.sort_by_key(CpuSet::first);
    CpuGroups { clusters, ..machine() }
}

/// The same machine with slow cores, which have one thread each.
fn hybrid() -> CpuGroups {
    let slow = cpus("16-19,36-39,56-59,76-79");
    let mut cores = machine().cores;
    cores.retain(|core| core.is_disjoint(&slow));
    cores.extend(slow.iter().map(|cpu| CpuSet::from_iter([cpu])));
    CpuGroups { cores, slow, ..clustered() }
}

const FIRST: &str = "0-19,40-59";
const BOTH: &str = "0-79";
const NONE: CpuPriority = CpuPriority::None;

#[test]
fn whole_cores_come_before_halves_whether_caches_are_known_or_not() {
    // Two nodes of two cores each: one and a half cores of each are free, another container has the other
    // half.
    let unknown = CpuGroups {
        packages: sets(&["0-3,8-11"]),
        dies: sets(&["0-3,8-11"]),
        nodes: sets(&["0-3,8-11"]),
        cores: (0..4).map(|core| [core, core + 8].into_iter().map(CpuId).collect()).collect(),
        ..CpuGroups::default()
    };
    let known = CpuGroups { caches: sets(&["0-1,8-9", "2-3,10-11"]), ..unknown.clone() };
    for groups in [unknown, known] {
        let take = |from: &str, count| pick(&groups, &cpus(from), count, NONE).unwrap().to_string();
        assert_eq!(take("0-1,8,2-3,10", 4), "0,2,8,10");
        assert_eq!(take("0-1,8,2-3,10", 2), "0,8");
        assert_eq!(take("0-1,9,2-3,10", 3).len(), "1,9,0".len());
        let five = pick(&groups, &cpus("0-1,8,2-3,10"), 5, NONE).unwrap();
        assert!(cpus("0,2,8,10").is_subset(&five), "{five}");
    }
}

#[test]
fn too_few_are_no_cpus_and_exactly_enough_are_all() {
    let from = cpus("2-3,10-14,20");
    assert_eq!(pick(&machine(), &from, 9, NONE), None);
    assert_eq!(pick(&machine(), &from, 8, NONE), Some(from.clone()));
    assert_eq!(pick(&machine(), &from, 0, NONE), Some(CpuSet::new()));
}

#[test]
fn fast_cpus_come_first_and_others_of_the_same_package_next() {
    let groups = CpuGroups { fast: cpus("2,5,8,15,17,42,45,48,55,57"), ..machine() };
    let from = cpus("2-3,10-25");
    assert_eq!(pick(&groups, &from, 4, CpuPriority::High).unwrap().to_string(), "2-3,15,17");
}

#[test]
fn whole_clusters_are_taken() {
    for (from, count, taken) in [
        (FIRST, 4, "0-3"),
        (FIRST, 8, "0-7"),
        (FIRST, 16, "0-15"),
        (FIRST, 40, "0-19,40-59"),
        (BOTH, 44, "0-20,22,24,26,40-59"),
        (BOTH, 48, "0-27,40-59"),
    ] {
        assert_eq!(pick(&clustered(), &cpus(from), count, NONE), Some(cpus(taken)), "{count} of {from}");
    }
}

#[test]
fn kinds_of_cores_are_not_mixed() {
    use CpuPriority::{Low, Normal};
    let few = "16-19,36-37,56-59,76-79";
    for (priority, from, count, taken) in [
        (Normal, FIRST, 4, "0-3"),
        (Normal, FIRST, 8, "0-7"),
        (Normal, FIRST, 32, "0-15,40-55"),
        (Low, FIRST, 4, "16-19"),
        (Low, FIRST, 8, "16-19,56-59"),
        (Low, few, 2, "36-37"),
        (Low, few, 6, "36-37,76-79"),
    ] {
        assert_eq!(pick(&hybrid(), &cpus(from), count, priority), Some(cpus(taken)), "{count} of {from}");
    }
}

#[test]
fn caches_are_split_last_and_only_as_few_as_needed() {
    let caches =
        sets(&["0-4,40-44", "5-9,45-49", "10-14,50-54", "15-19,55-59", "20-29,60-69", "30-39,70-79"]);
    let groups = CpuGroups { caches, ..machine() };
    for (from, count, taken) in [
        // One whole cache, and a part of one more.
        (FIRST, 12, "0-5,40-45"),
        // A part of an unused cache, as whole cores.
        (FIRST, 4, "0-1,40-41"),
        // No unused cache is small enough, so partly used ones together.
        ("0-3,5-9,45-49", 12, "0-1,5-9,45-49"),
        // No package has enough: caches do not matter.
        ("0-19,20-29", 25, "0-24"),
    ] {
        assert_eq!(pick(&groups, &cpus(from), count, NONE), Some(cpus(taken)), "{count} of {from}");
    }
}

#[test]
fn whole_cores_come_from_one_node_and_odd_threads_from_a_used_core() {
    for (from, count, taken) in [
        ("0-3,12-19,52-59", 4, "12-13,52-53"),
        ("0-19,40-50", 1, "11"),
        ("0-19,40-50", 3, "0-1,40"),
        ("8-11,48-51", 6, "8-10,48-50"),
    ] {
        assert_eq!(pick(&machine(), &cpus(from), count, NONE), Some(cpus(taken)), "{count} of {from}");
    }
}

proptest! {
    #[test]
    fn as_many_as_asked_for_and_only_from_what_is_there(
        from in proptest::collection::btree_set(0u32..80, 0..80),
        count in 0usize..90,
        kind in 0usize..4,
        priority in 0usize..4,
    ) {
        use CpuPriority::{High, Low, None, Normal};
        let caches = in_fours(&[(0, 19), (20, 39), (40, 59), (60, 79)]);
        let groups = &[machine(), clustered(), hybrid(), CpuGroups { caches, ..machine() }][kind];
        let from: CpuSet = from.into_iter().map(CpuId).collect();
        let picked = pick(groups, &from, count, [High, Normal, Low, None][priority]);
        match picked {
            Some(picked) => {
                prop_assert_eq!(picked.len(), count);
                prop_assert!(picked.is_subset(&from));
            }
            Option::None => prop_assert!(from.len() < count),
        }
    }
}
