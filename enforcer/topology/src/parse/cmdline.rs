//! CPU lists on the kernel command line: `isolcpus=` and `nohz_full=`
//! (Documentation/admin-guide/kernel-parameters.txt), for kernels that do not show them in sysfs.
//!
//! The list format is wider than that of sysfs: `N` is the last CPU, `all` every one, and
//! `0-31:2/4` takes the first 2 of every 4.

use super::{ParseError, scalar::unsigned};
use crate::{id::CpuId, set::CpuSet};

/// CPUs of `nohz_full=` and of `isolcpus=nohz,...` that are in `present`; `None` without either.
///
/// # Errors
/// If an option has a malformed list.
pub fn tickless_cpus(cmdline: &str, present: &CpuSet) -> Result<Option<CpuSet>, ParseError> {
    if !options(cmdline).any(|option| option.nohz) {
        return Ok(None);
    }
    Ok(Some(Isolated::of(cmdline, present)?.nohz.unwrap_or_default()))
}

/// CPUs of `isolcpus=` that are in `present` and excluded from the scheduler's balancing; `None` without the
/// option. Only the flag `domain` excludes them: `managed_irq` keeps interrupts away, `nohz` the tick
/// (`kernel/sched/isolation.c`).
///
/// # Errors
/// If an option has a malformed list.
pub fn isolated_cpus(cmdline: &str, present: &CpuSet) -> Result<Option<CpuSet>, ParseError> {
    if values(cmdline).all(|(name, _)| name != ISOLCPUS) {
        return Ok(None);
    }
    Ok(Some(Isolated::of(cmdline, present)?.domain.unwrap_or_default()))
}

const ISOLCPUS: &str = "isolcpus";
const NOHZ_FULL: &str = "nohz_full";

/// CPUs by kind of isolation, after all options.
#[derive(Debug, Default)]
struct Isolated {
    domain: Option<CpuSet>,
    nohz: Option<CpuSet>,
    managed_irq: Option<CpuSet>,
}

impl Isolated {
    /// Applies the options in order, like the kernel: an option with other CPUs than an earlier option for
    /// the same isolation is refused as a whole (`housekeeping_setup`).
    fn of(cmdline: &str, present: &CpuSet) -> Result<Self, ParseError> {
        let mut isolated = Self::default();
        for option in options(cmdline) {
            let cpus = cpus_of_list(option.list, present)?;
            let kinds = [
                (option.domain, &mut isolated.domain),
                (option.nohz, &mut isolated.nohz),
                (option.managed_irq, &mut isolated.managed_irq),
            ];
            let differs = |(named, known): &(bool, &mut Option<CpuSet>)| {
                *named && known.as_ref().is_some_and(|k| *k != cpus)
            };
            if kinds.iter().any(differs) {
                continue;
            }
            for (_, known) in kinds.into_iter().filter(|(named, _)| *named) {
                *known = Some(cpus.clone());
            }
        }
        Ok(isolated)
    }
}

/// One `isolcpus=` or `nohz_full=` option.
struct Isolation<'a> {
    domain: bool,
    nohz: bool,
    managed_irq: bool,
    list: &'a str,
}

impl<'a> Isolation<'a> {
    /// Parses an `isolcpus=`. Like the kernel, words before the list that begin with a letter are flags.
    /// Unknown flags of letters and `_` are skipped; any other character refuses the whole option.
    fn of_isolcpus(mut list: &'a str) -> Option<Self> {
        let (mut domain, mut nohz, mut managed_irq) = (false, false, false);
        while list.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let (flag, rest) = list.split_once(',').unwrap_or((list, ""));
            match flag {
                "domain" => domain = true,
                "nohz" => nohz = true,
                "managed_irq" => managed_irq = true,
                _ if flag.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') => {}
                _ => return None,
            }
            list = rest;
        }
        Some(Self { domain: domain || !(nohz || managed_irq), nohz, managed_irq, list })
    }
}

/// Every such option that the kernel reads, in its order.
fn options(cmdline: &str) -> impl Iterator<Item = Isolation<'_>> {
    values(cmdline).filter_map(|(name, value)| match name {
        ISOLCPUS => Isolation::of_isolcpus(value),
        NOHZ_FULL => Some(Isolation { domain: false, nohz: true, managed_irq: false, list: value }),
        _ => None,
    })
}

/// Names and values before those for the first process, without the quotes that the kernel removes.
fn values(cmdline: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = cmdline.split_ascii_whitespace().take_while(|word| *word != "--");
    let pairs = words.filter_map(|word| word.trim_matches('"').split_once('='));
    pairs.map(|(name, value)| (name, value.trim_matches('"')))
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
            ("1 nohz_full=2", "1"),
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
            // Unknown flags are skipped and say nothing about domains.
            ("io_queue,2-3", "2-3", None),
            ("io_queue,nohz,2-3", "", Some("2-3")),
            ("x", "", None),
            ("nohz", "", Some("")),
            // This is not a flag, so the kernel ignores the option.
            ("a1,2-3", "", None),
            ("1 isolcpus=managed_irq,2", "1", None),
            ("managed_irq,2 isolcpus=1", "1", None),
            // An option with other CPUs than an earlier one is refused as a whole.
            ("1-2 isolcpus=3", "1-2", None),
            ("1-2 isolcpus=1,2", "1-2", None),
            ("1-2 isolcpus=nohz,domain,3", "1-2", Some("")),
            ("\"1-2\"", "1-2", None),
            // The kernel reads it as a flag.
            ("all", "", None),
        ] {
            let cmdline = format!("ro isolcpus={value} quiet");
            let found = isolated_cpus(&cmdline, &present()).unwrap().unwrap();
            assert_eq!(found.to_string(), isolated, "{value}");
            let found = tickless_cpus(&cmdline, &present()).unwrap();
            assert_eq!(found.map(|cpus| cpus.to_string()).as_deref(), tickless, "{value}");
        }
        let both = tickless_cpus("isolcpus=nohz,1 nohz_full=3", &present()).unwrap().unwrap();
        assert_eq!(both.to_string(), "1");
        let quoted = isolated_cpus("quiet \"isolcpus=1-2\"", &present()).unwrap().unwrap();
        assert_eq!(quoted.to_string(), "1-2");
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
