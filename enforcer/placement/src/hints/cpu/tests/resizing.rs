//! Resizes of running containers.

use super::*;

#[test]
fn shrinking_keeps_what_must_stay_and_packs_the_rest_around_it() {
    for (layout, held, keep, count, options, expected) in [
        (&d12(), "0-11", "11", 2, PACKED, "5,11"),
        (&d12(), "0-11", "11", 6, PACKED, "1,3,5,7,9,11"),
        (&d12(), "0-11", "11", 1, PACKED, "11"),
        (&d12(), "0-11", "", 2, PACKED, "0,6"),
        (&d12(), "0-11", "", 4, NUMA, "0,2,6,8"),
        (&d80(), "0-79", "39", 20, PACKED, "30-39,70-79"),
        (&d80(), "0-79", "39", 40, PACKED, "20-39,60-79"),
        (&d80(), "5,6,45,46,30,70", "30", 4, PACKED, "5,30,45,70"),
        (&u16_smt(), "0-15", "4-6", 8, UNCORE, "4-7,12-15"),
        (&u16_smt(), "0-15", "4-6", 6, UNCORE, "4-6,12-14"),
        (&u16_smt(), "0-15", "4-6", 4, PACKED, "4-6,12"),
        (&u16_smt(), "0-15", "5", 3, UNCORE, "4-5,13"),
    ] {
        let kept = retain(layout, &cpus(held), &cpus(keep), count, options).unwrap();
        assert_eq!(kept, cpus(expected), "{count} of {held} with {keep}");
    }
}

#[test]
fn growing_keeps_all_and_stays_on_its_nodes() {
    for (layout, held, available, count, options, expected) in [
        (&d80(), "30,70", "0-29,31-39,40-69,71-79", 4, PACKED, "30,31,70,71"),
        (&d80(), "30", "0-29,31-79", 2, PACKED, "30,70"),
        (&d80(), "30", "0-29,31-79", 20, PACKED, "30-39,70-79"),
        (&d80(), "30", "0-29,31-79", 22, PACKED, "20,30-39,60,70-79"),
        (&d80(), "30,70", "0-29,40-69", 22, PACKED, "20-30,60-70"),
        (&d80(), "30,70", "", 2, FULL, "30,70"),
        (&u16_smt(), "4-6", "0-3,7-15", 8, UNCORE, "4-7,12-15"),
    ] {
        let grown = grow(layout, &cpus(held), &cpus(available), count, options).unwrap();
        assert_eq!(grown, cpus(expected), "{held} to {count}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let (d12, all) = (&d12(), &cpus("0-11"));
    let error = |result: Result<CpuSet, CpuError>| result.unwrap_err().to_string();
    assert_eq!(
        error(retain(d12, &cpus("0-5"), &cpus("5-6"), 4, PACKED)),
        "CPUs 5-6 cannot be kept, the container holds 0-5"
    );
    assert_eq!(error(retain(d12, all, &cpus("0-3"), 2, PACKED)), "2 CPUs are too few to keep CPUs 0-3");
    assert_eq!(error(grow(d12, all, &CpuSet::new(), 2, PACKED)), "2 CPUs are too few to keep CPUs 0-11");
    assert_eq!(error(grow(d12, &cpus("0,6"), all, 3, FULL)), "3 CPUs are not whole cores of 2 threads");
    assert_eq!(
        error(grow(d12, &cpus("0"), &cpus("1-3"), usize::MAX, PACKED)),
        format!("not enough cpus available to satisfy request: requested={}, available=4", usize::MAX)
    );
}
