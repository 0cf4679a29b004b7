//! CPU lists on the kernel command line: `isolcpus=` and `nohz_full=`
//! (Documentation/admin-guide/kernel-parameters.txt), for kernels whose sysfs does not show them.
//!
//! The list format is wider than that of sysfs: `N` is the last CPU, `all` every one, and
//! `0-31:2/4` takes the first 2 of every 4.

use super::{ParseError, scalar::unsigned};
use crate::{id::CpuId, set::CpuSet};

/// CPUs of the last `option=` on the command line that are in `present`; `None` without one.
///
/// Leading flags of `isolcpus=` (`domain`, `nohz`, `managed_irq`) are skipped.
pub fn cpus_of_option(cmdline: &str, option: &str, present: &CpuSet) -> Result<Option<CpuSet>, ParseError> {
    let value = cmdline
        .split_ascii_whitespace()
        .take_while(|word| *word != "--")
        .filter_map(|word| word.split_once('=').filter(|(name, _)| *name == option))
        .last();
    let Some((_, value)) = value else { return Ok(None) };
    let mut cpus = CpuSet::new();
    for element in value.split(',') {
        let error = || ParseError::new("a list of CPUs", value);
        match element {
            "" | "domain" | "nohz" | "managed_irq" => {}
            "all" => cpus = present.clone(),
            range => cpus = cpus.union(&cpus_of_range(range, present).ok_or_else(error)?),
        }
    }
    Ok(Some(cpus))
}

fn cpus_of_range(range: &str, present: &CpuSet) -> Option<CpuSet> {
    let last_present = present.iter().last().map(|cpu| cpu.0);
    let number = |text: &str| match text {
        "N" => last_present,
        digits => u32::try_from(unsigned(digits).ok()?).ok(),
    };
    let (range, group) = match range.split_once(':') {
        Some((range, group)) => {
            let (used, size) = group.split_once('/')?;
            (range, Some((number(used)?, number(size).filter(|&size| size > 0)?)))
        }
        None => (range, None),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    if last < first {
        return None;
    }
    let wanted =
        |id: u32| (first..=last).contains(&id) && group.is_none_or(|(used, size)| (id - first) % size < used);
    Some(present.iter().filter(|cpu: &CpuId| wanted(cpu.0)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn present() -> CpuSet {
        "0-15".parse().unwrap()
    }

    #[test]
    fn reads_the_forms_of_the_manual() {
        for (cmdline, cpus) in [
            ("ro isolcpus=1-3 quiet", "1-3"),
            ("isolcpus=nohz,domain,managed_irq,2,4", "2,4"),
            ("isolcpus=1 isolcpus=2", "2"),
            ("isolcpus=all", "0-15"),
            ("isolcpus=14-N", "14-15"),
            ("isolcpus=0-15:2/4", "0-1,4-5,8-9,12-13"),
            ("isolcpus=8-999999", "8-15"),
            ("isolcpus=", ""),
        ] {
            let found = cpus_of_option(cmdline, "isolcpus", &present()).unwrap().unwrap();
            assert_eq!(found.to_string(), cpus, "{cmdline}");
        }
    }

    #[test]
    fn without_the_option_there_is_no_answer() {
        for cmdline in ["", "isolcpus", "xisolcpus=1", "nohz_full=1", "quiet -- isolcpus=1"] {
            assert_eq!(cpus_of_option(cmdline, "isolcpus", &present()), Ok(None), "{cmdline}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for value in ["3-1", "x", "1:2", "1-4:1/0", "-1"] {
            let error = cpus_of_option(&format!("isolcpus={value}"), "isolcpus", &present()).unwrap_err();
            assert_eq!(error.found, value);
        }
    }

    proptest! {
        #[test]
        fn any_value_is_a_subset_of_the_present_cpus(value in "[0-9N,:/\\-al]{0,20}") {
            if let Ok(Some(cpus)) = cpus_of_option(&format!("isolcpus={value}"), "isolcpus", &present()) {
                prop_assert!(cpus.is_subset(&present()));
            }
        }
    }
}
