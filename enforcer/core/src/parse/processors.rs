//! The online CPUs as `/proc/stat` and `/proc/cpuinfo` name them, for hosts whose sysfs has none.

use crate::{
    id::CpuId,
    set::{CpuSet, MAX_ID},
};

/// The `cpuN` lines of `/proc/stat`: one per online CPU.
pub fn cpus_of_stat(text: &str) -> CpuSet {
    text.lines().filter_map(|line| line.strip_prefix("cpu")).filter_map(leading_number).collect()
}

/// The `processor` lines of `/proc/cpuinfo`: `processor : 0`, on s390 `processor 0: ...`.
pub fn cpus_of_cpuinfo(text: &str) -> CpuSet {
    let after = text.lines().filter_map(|line| line.strip_prefix("processor"));
    after.filter_map(|rest| leading_number(rest.trim_start_matches([' ', '\t', ':']))).collect()
}

fn leading_number(text: &str) -> Option<CpuId> {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|&id| id <= MAX_ID).map(CpuId)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_forms_of_the_architectures() {
        assert_eq!(cpus_of_stat("cpu  1 2 3\ncpu0 1 2\ncpu3 1 2\nintr 5\n").to_string(), "0,3");
        assert_eq!(cpus_of_cpuinfo("processor\t: 0\nmodel\t: 1\nprocessor\t: 1\n").to_string(), "0-1");
        assert_eq!(cpus_of_cpuinfo("processor 0: version = FF\nprocessor 1: version\n").to_string(), "0-1");
        assert_eq!(cpus_of_cpuinfo("Processor\t: ARMv7\nprocessor\t: 99999999\n").to_string(), "");
    }

    proptest! {
        #[test]
        fn any_text_is_a_set(text in "((cpu|processor)[ 0-9:]*\n){0,9}|\\PC*") {
            let _ = (cpus_of_stat(&text), cpus_of_cpuinfo(&text));
        }
    }
}
