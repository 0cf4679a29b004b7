//! CPU lists on the kernel command line: `isolcpus=` and `nohz_full=`
//! (Documentation/admin-guide/kernel-parameters.txt), for kernels whose sysfs does not show them.
//!
//! The list format is wider than that of sysfs: `N` is the last CPU, `all` every one, and
//! `0-31:2/4` takes the first 2 of every 4.

use super::{ParseError, scalar::unsigned};
use crate::{id::CpuId, set::CpuSet};

/// CPUs of the last `nohz_full=` that are in `present`, and those of `isolcpus=nohz,...`; `None` without
/// either.
pub fn tickless_cpus(cmdline: &str, present: &CpuSet) -> Result<Option<CpuSet>, ParseError> {
    let listed = value_of(cmdline, "nohz_full").map(|list| cpus_of_list(list, present)).transpose()?;
    let isolated = Isolcpus::of(cmdline).filter(|isolcpus| isolcpus.nohz);
    let isolated = isolated.map(|isolcpus| cpus_of_list(isolcpus.list, present)).transpose()?;
    Ok(match (listed, isolated) {
        (Some(listed), Some(isolated)) => Some(listed.union(&isolated)),
        (listed, isolated) => listed.or(isolated),
    })
}

/// CPUs of the last `isolcpus=` that are in `present`, if it takes them from the scheduler's balancing;
/// `None` without the option. Flags other than `domain` alone do not: `managed_irq` keeps interrupts away,
/// `nohz` the tick (`kernel/sched/isolation.c`).
pub fn isolated_cpus(cmdline: &str, present: &CpuSet) -> Result<Option<CpuSet>, ParseError> {
    let Some(isolcpus) = Isolcpus::of(cmdline) else { return Ok(None) };
    if isolcpus.domain { cpus_of_list(isolcpus.list, present).map(Some) } else { Ok(Some(CpuSet::new())) }
}

/// What an `isolcpus=` says.
struct Isolcpus<'a> {
    domain: bool,
    nohz: bool,
    list: &'a str,
}

impl<'a> Isolcpus<'a> {
    /// The last one. Like the kernel, words before the list that begin with a letter are flags: unknown ones
    /// of letters and `_` are skipped, and with any other the whole option is refused.
    fn of(cmdline: &'a str) -> Option<Self> {
        let mut list = value_of(cmdline, "isolcpus")?;
        let (mut domain, mut nohz, mut managed_irq) = (false, false, false);
        while list.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let (flag, rest) = list.split_once(',').unwrap_or((list, ""));
            match flag {
                "domain" => domain = true,
                "nohz" => nohz = true,
                "managed_irq" => managed_irq = true,
                _ if flag.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') => {}
                _ => return Some(Self { domain: false, nohz: false, list: "" }),
            }
            list = rest;
        }
        Some(Self { domain: domain || !(nohz || managed_irq), nohz, list })
    }
}

/// The value of the last `option=` before what is for the first process.
fn value_of<'a>(cmdline: &'a str, option: &str) -> Option<&'a str> {
    let words = cmdline.split_ascii_whitespace().take_while(|word| *word != "--");
    words
        .filter_map(|word| word.split_once('='))
        .filter(|(name, _)| *name == option)
        .map(|(_, value)| value)
        .last()
}

fn cpus_of_list(list: &str, present: &CpuSet) -> Result<CpuSet, ParseError> {
    let mut cpus = CpuSet::new();
    for element in list.split(',') {
        match element {
            "" => {}
            "all" => cpus = present.clone(),
            range => {
                let found = cpus_of_range(range, present);
                cpus.extend(&found.ok_or_else(|| ParseError::new("a list of CPUs", list))?);
            }
        }
    }
    Ok(cpus)
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
        for (list, cpus) in [
            ("1-3", "1-3"),
            ("2,4", "2,4"),
            ("1 nohz_full=2", "2"),
            ("all", "0-15"),
            ("14-N", "14-15"),
            ("0-15:2/4", "0-1,4-5,8-9,12-13"),
            ("8-999999", "8-15"),
            ("", ""),
        ] {
            let found = tickless_cpus(&format!("ro nohz_full={list} quiet"), &present()).unwrap().unwrap();
            assert_eq!(found.to_string(), cpus, "{list}");
        }
    }

    #[test]
    fn only_isolation_of_domains_isolates() {
        for (value, isolated, tickless) in [
            ("2,4", "2,4", None),
            ("domain,2,4", "2,4", None),
            ("nohz,domain,managed_irq,2,4", "2,4", Some("2,4")),
            ("managed_irq,2-15", "", None),
            ("nohz,2-15", "", Some("2-15")),
            ("nohz,managed_irq,2-15", "", Some("2-15")),
            ("managed_irq,domain,2-15", "2-15", None),
            // Unknown flags are skipped, and say nothing of domains.
            ("io_queue,2-3", "2-3", None),
            ("io_queue,nohz,2-3", "", Some("2-3")),
            ("x", "", None),
            ("nohz", "", Some("")),
            // This is no flag, and the kernel takes nothing of it.
            ("a1,2-3", "", None),
            ("1 isolcpus=managed_irq,2", "", None),
            ("managed_irq,2 isolcpus=1", "1", None),
        ] {
            let cmdline = format!("ro isolcpus={value} quiet");
            let found = isolated_cpus(&cmdline, &present()).unwrap().unwrap();
            assert_eq!(found.to_string(), isolated, "{value}");
            let found = tickless_cpus(&cmdline, &present()).unwrap();
            assert_eq!(found.map(|cpus| cpus.to_string()).as_deref(), tickless, "{value}");
        }
        let both = tickless_cpus("isolcpus=nohz,1 nohz_full=3", &present()).unwrap().unwrap();
        assert_eq!(both.to_string(), "1,3");
    }

    #[test]
    fn without_the_option_there_is_no_answer() {
        for cmdline in ["", "isolcpus", "xisolcpus=1", "nohz_full_=1", "quiet -- isolcpus=1 nohz_full=1"] {
            assert_eq!(isolated_cpus(cmdline, &present()), Ok(None), "{cmdline}");
            assert_eq!(tickless_cpus(cmdline, &present()), Ok(None), "{cmdline}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for value in ["3-1", "1,x", "1:2", "1-4:1/0", "-1"] {
            let error = isolated_cpus(&format!("isolcpus={value}"), &present()).unwrap_err();
            assert_eq!(error.found, value);
        }
    }

    proptest! {
        #[test]
        fn any_value_is_a_subset_of_the_present_cpus(value in "((domain|nohz|x_|b1),){0,2}[0-9N,:/\\-al]{0,20}") {
            for name in ["isolcpus", "nohz_full"] {
                let cmdline = format!("{name}={value}");
                for read in [isolated_cpus, tickless_cpus] {
                    if let Ok(Some(cpus)) = read(&cmdline, &present()) {
                        prop_assert!(cpus.is_subset(&present()));
                    }
                }
            }
        }
    }
}
