//! The kernel's text about the machine: any text is a value or an error, and a set is never greater than its
//! limit.
#![cfg_attr(feature = "libfuzzer", no_main)]

use enforcer_core::parse::{
    cmdline::{isolated_cpus, tickless_cpus},
    interrupts::{interrupts, per_cpu_count},
    mask::mask,
    meminfo::meminfo,
    processors, scalar,
};
use libfuzzer_sys::fuzz_target;
use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, MAX_ID},
};

fuzz_target!(|text: &str| {
    let _ = scalar::unsigned(text);
    let _ = scalar::signed(text);
    let _ = scalar::hexadecimal(text);
    let _ = scalar::cache_size(text);
    let _ = scalar::distances(text);
    let _ = scalar::list::<NodeId>(text);
    let _ = meminfo(text);
    let _ = interrupts(text);
    let _ = per_cpu_count(text);
    if let Ok(set) = mask::<CpuId>(text) {
        assert!(set.iter().all(|cpu| cpu.0 <= MAX_ID));
    }
    for set in [processors::cpus_of_stat(text), processors::cpus_of_cpuinfo(text)] {
        assert!(set.len() <= text.len());
    }
    let present: CpuSet = (0..64).map(CpuId).collect();
    for cpus in [isolated_cpus(text, &present), tickless_cpus(text, &present)] {
        if let Ok(Some(cpus)) = cpus {
            assert!(cpus.is_subset(&present));
        }
    }
});

/// libFuzzer brings its own. Without it, a build of the workspace compiles the target and links no fuzzer.
#[cfg(not(feature = "libfuzzer"))]
fn main() {}
