//! The words of a configuration and of a synthetic machine: any text is a value that prints as an equal text,
//! or an error.
#![cfg_attr(feature = "libfuzzer", no_main)]

use enforcer_core::{
    policy::{ByteSize, CgroupGlob, HumanDuration},
    workload::CgroupPath,
};
use libfuzzer_sys::fuzz_target;
use numa_topology::synth::Machine;

fuzz_target!(|text: &str| {
    if let Ok(span) = text.parse::<HumanDuration>() {
        assert_eq!(span.to_string().parse().as_ref(), Ok(&span));
    }
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse().as_ref(), Ok(&size));
    }
    if let Ok(machine) = text.parse::<Machine>() {
        assert!(machine.cpu_count() <= 8_192 && machine.node_count() <= 1_024);
    }
    if let Ok(glob) = text.parse::<CgroupGlob>() {
        let _ = glob.matches(&CgroupPath::new(text));
    }
});

/// libFuzzer brings its own. Without it, a build of the workspace compiles the target and links no fuzzer.
#[cfg(not(feature = "libfuzzer"))]
fn main() {}
