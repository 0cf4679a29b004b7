//! Which CPUs there are.
//!
//! `/sys/devices/system/cpu/{online,present}` (Documentation/admin-guide/cputopology.rst) since
//! 2.6.29; before that `cpuN/online` of each CPU, which the boot CPU may lack. Containers and some
//! Xen domains without sysfs still have `/proc/stat`.

use crate::{
    id::CpuId,
    parse::{ParseError, cmdline, processors, scalar},
    set::CpuSet,
};

use super::{
    TopologyError,
    source::{Source, SourceEffect},
};

/// `NR_CPUS` of the largest x86 configuration.
const CPU_LIMIT: usize = 8192;

const CPUS: SourceEffect = SourceEffect { source: "cpus", effect: "the set of CPUs may be incomplete" };
const ISOLATED: SourceEffect = SourceEffect {
    source: "isolated-cpus",
    effect: "isolated and tickless CPUs are treated like the others",
};

/// The sets of CPUs of a host.
pub(super) struct CpuSets {
    pub online: CpuSet,
    /// Present and not online.
    pub offline: CpuSet,
    pub isolated: CpuSet,
    pub nohz_full: CpuSet,
}

pub(super) fn read(source: &mut Source<'_>) -> Result<CpuSets, TopologyError> {
    let dir = source.files.sys().join("devices/system/cpu");
    let directories: CpuSet = source.numbered(&CPUS, &dir, "cpu").into_iter().map(CpuId).collect();
    let online = online(source, &directories)?;
    let present = source.value(&CPUS, &dir.join("present"), scalar::list::<CpuId>);
    let present = present.unwrap_or(directories).union(&online);
    let isolated = of_kernel_option(source, "isolated", cmdline::isolated_cpus, &present);
    let nohz_full = of_kernel_option(source, "nohz_full", cmdline::tickless_cpus, &present);
    Ok(CpuSets { offline: present.difference(&online), online, isolated, nohz_full })
}

fn online(source: &mut Source<'_>, directories: &CpuSet) -> Result<CpuSet, TopologyError> {
    let dir = source.files.sys().join("devices/system/cpu");
    let listed = source.value(&CPUS, &dir.join("online"), scalar::list::<CpuId>).filter(|l| !l.is_empty());
    let mut online = match listed {
        Some(listed) if directories.is_empty() => listed,
        Some(listed) => {
            let ghosts = listed.difference(directories);
            if !ghosts.is_empty() {
                let path = dir.join("online");
                source.lost(&CPUS, format_args!("{}: no directory for CPUs {ghosts}", path.display()));
            }
            listed.intersection(directories)
        }
        None => directories.iter().filter(|&cpu| is_online(source, cpu)).collect(),
    };
    if online.is_empty() {
        online = of_procfs(source);
    }
    let (count, limit) = (online.len(), CPU_LIMIT);
    match count {
        0 => {
            let proc = source.files.proc();
            Err(TopologyError::NoCpus([dir, proc.join("stat"), proc.join("cpuinfo")]))
        }
        1..=CPU_LIMIT => Ok(online),
        _ => Err(TopologyError::TooManyCpus { path: dir, count, limit }),
    }
}

/// A CPU without the file cannot be taken offline.
fn is_online(source: &mut Source<'_>, cpu: CpuId) -> bool {
    let path = source.files.sys().join(format!("devices/system/cpu/cpu{cpu}/online"));
    source.value(&CPUS, &path, scalar::unsigned) != Some(0)
}

fn of_procfs(source: &mut Source<'_>) -> CpuSet {
    let proc = source.files.proc();
    let stat = source.text(&CPUS, &proc.join("stat")).map(|text| processors::cpus_of_stat(&text));
    let cpus = stat
        .filter(|cpus| !cpus.is_empty())
        .or_else(|| source.text(&CPUS, &proc.join("cpuinfo")).map(|text| processors::cpus_of_cpuinfo(&text)));
    let cpus = cpus.unwrap_or_default();
    if !cpus.is_empty() {
        source.lost(
            &CPUS,
            format_args!("no CPU in {}", source.files.sys().join("devices/system/cpu").display()),
        );
    }
    cpus
}

/// The set of a sysfs file, else of the kernel's command line.
fn of_kernel_option(
    source: &mut Source<'_>,
    file: &str,
    read: fn(&str, &CpuSet) -> Result<Option<CpuSet>, ParseError>,
    present: &CpuSet,
) -> CpuSet {
    let path = source.files.sys().join("devices/system/cpu").join(file);
    if let Some(cpus) = source.value(&ISOLATED, &path, scalar::list::<CpuId>) {
        return cpus.intersection(present);
    }
    let cmdline = source.files.proc().join("cmdline");
    let cpus = source.value(&ISOLATED, &cmdline, |text| read(text, present));
    cpus.flatten().unwrap_or_default()
}
