//! Online CPUs from `/proc/stat` and `/proc/cpuinfo`, for hosts without CPUs in sysfs, and the core design of
//! each CPU of an Arm machine.

use std::collections::BTreeMap;

use super::ParseError;
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

/// A core design of Arm: implementer and part number of its main ID register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct CoreDesign {
    /// Bits 31-24.
    pub implementer: u64,
    /// Bits 15-4.
    pub part: u64,
}

/// `regs/identification/midr_el1`: `0x00000000410fd850`.
///
/// # Errors
/// If the text is anything else.
pub fn design_of_midr(text: &str) -> Result<CoreDesign, ParseError> {
    let text = super::scalar::bare(text);
    let number = hexadecimal(text).ok_or_else(|| ParseError::new("a main ID register", text))?;
    Ok(CoreDesign { implementer: number >> 24 & 0xff, part: number >> 4 & 0xfff })
}

/// `CPU implementer` and `CPU part` of each processor in `/proc/cpuinfo`.
pub fn designs_of_cpuinfo(text: &str) -> BTreeMap<CpuId, CoreDesign> {
    let mut designs = BTreeMap::new();
    let (mut cpu, mut implementer) = (None, None);
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "processor" => (cpu, implementer) = (leading_number(value.trim()), None),
            "CPU implementer" => implementer = hexadecimal(value.trim()),
            "CPU part" => {
                let design = implementer.zip(hexadecimal(value.trim()));
                let design = design.map(|(implementer, part)| CoreDesign { implementer, part });
                designs.extend(cpu.zip(design));
            }
            _ => {}
        }
    }
    designs
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
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

    #[test]
    fn designs_of_cores_are_implementer_and_part() {
        let design = |part| CoreDesign { implementer: 0x41, part };
        assert_eq!(design_of_midr("0x00000000410fd850\n"), Ok(design(0xd85)));
        assert_eq!(design_of_midr("0x411fd871"), Ok(design(0xd87)), "another revision of it");
        for text in ["", "0x", "410fd850", "0x410fd85g", "0x1410fd850410fd8501"] {
            assert!(design_of_midr(text).is_err(), "{text:?}");
        }
        let text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd87\n\nprocessor\t: 3\n\
                    CPU implementer\t: 0x41\nCPU part\t: 0xd85\n\nprocessor\t: 4\nCPU part\t: 0xd85\n";
        let expected = BTreeMap::from([(CpuId(0), design(0xd87)), (CpuId(3), design(0xd85))]);
        assert_eq!(designs_of_cpuinfo(text), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_a_set(text in "((cpu|processor|CPU part)[ 0-9:x]*\n){0,9}|\\PC*") {
            let _ = (cpus_of_stat(&text), cpus_of_cpuinfo(&text), designs_of_cpuinfo(&text), design_of_midr(&text));
        }
    }
}
