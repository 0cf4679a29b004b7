//! What sets the CPUs apart in speed: `devices/cpu_core`, `devices/cpu_atom`, `cpuN/cpu_capacity`,
//! `cpuN/cpufreq` (Documentation/admin-guide/pm/cpufreq.rst and `intel_pstate.rst` beside it).
//!
//! Most machines have some of it and none has all. A file that is not there says nothing; a frequency of 0
//! is how drivers say that they do not know. One CPU answers for the threads of its core and for those
//! with which it shares its cpufreq policy.
//!
//! Types of cores: the event sources of hybrid x86 list their CPUs (`cpu_core`, `cpu_atom`, and
//! `cpu_lowpower` for a third kind that is slower still); kernels in between had
//! `devices/system/cpu/types`. Where none of them is there and capacities differ, the weakest design of core
//! (the part number of `regs/identification/midr_el1`) is of efficiency cores. A list that leaves CPUs out
//! means that they are of the other type: no machine that has such lists has a third.

use std::{collections::BTreeMap, path::Path};

use crate::{
    CoreType, Cpu, CpuKind, EnergyPreference,
    id::CpuId,
    parse::{
        processors::{self, CoreDesign},
        scalar,
    },
    set::CpuSet,
};

use super::source::{Source, SourceEffect};

const FREQUENCY: SourceEffect = SourceEffect {
    source: "cpufreq",
    effect: "the frequencies of some CPUs are not known, their priority may be wrong",
};
const TYPES: SourceEffect =
    SourceEffect { source: "core-types", effect: "which CPUs are of efficiency cores may be incomplete" };

/// Event sources and what their CPUs are (`arch/x86/events/intel/core.c`).
const EVENT_SOURCES: [(&str, CoreType); 3] = [
    ("cpu_core", CoreType::Performance),
    ("cpu_atom", CoreType::Efficiency),
    ("cpu_lowpower", CoreType::Efficiency),
];

/// Beginnings of the names in `devices/system/cpu/types`.
const TYPE_NAMES: [(&str, CoreType); 2] =
    [("intel_core", CoreType::Performance), ("intel_atom", CoreType::Efficiency)];

/// CPUs by the type of their cores.
type Types = BTreeMap<CoreType, CpuSet>;

/// What a CPU says about itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Speed {
    capacity: Option<u32>,
    base_frequency_khz: Option<u64>,
    max_frequency_khz: Option<u64>,
    energy_preference: Option<EnergyPreference>,
}

/// Groups of CPUs of which something is known, by their first CPU.
pub(super) fn read(source: &mut Source<'_>, cpus: &[Cpu]) -> Vec<CpuKind> {
    let online: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
    let speeds = read_speeds(source, cpus, &online);
    let types = read_types(source, &online);
    let types = if types.is_empty() { types_by_capacity(source, &speeds) } else { types };
    let mut kinds = BTreeMap::<_, CpuSet>::new();
    for (speed, cpus) in speeds {
        let mut untyped = cpus.clone();
        for (core_type, of_type) in &types {
            kinds.entry((Some(*core_type), speed)).or_default().extend(&cpus.intersection(of_type));
            untyped = untyped.difference(of_type);
        }
        kinds.entry((None, speed)).or_default().extend(&untyped);
    }
    let kind = |((core_type, speed), cpus): ((Option<CoreType>, Speed), CpuSet)| {
        let Speed { capacity, base_frequency_khz, max_frequency_khz, energy_preference } = speed;
        CpuKind { cpus, core_type, capacity, base_frequency_khz, max_frequency_khz, energy_preference }
    };
    let known = |kind: &CpuKind| kind.is_known() && !kind.cpus.is_empty();
    let mut kinds: Vec<CpuKind> = kinds.into_iter().map(kind).filter(known).collect();
    kinds.sort_by_key(|kind| kind.cpus.first());
    kinds
}

fn read_speeds(source: &mut Source<'_>, cpus: &[Cpu], online: &CpuSet) -> BTreeMap<Speed, CpuSet> {
    let mut open = online.clone();
    let mut speeds = BTreeMap::<Speed, CpuSet>::new();
    for cpu in cpus {
        if !open.contains(cpu.id) {
            continue;
        }
        let dir = source.files.sys().join(format!("devices/system/cpu/cpu{}", cpu.id));
        let speed = read_speed(source, &dir);
        let mut alike = cpu.siblings.clone();
        for list in ["cpufreq/related_cpus", "cpufreq/affected_cpus"] {
            alike.extend(&source.value(&FREQUENCY, &dir.join(list), scalar::spaced).unwrap_or_default());
        }
        alike.insert(cpu.id);
        let alike = alike.intersection(&open);
        open = open.difference(&alike);
        speeds.entry(speed).or_default().extend(&alike);
    }
    speeds
}

fn read_speed(source: &mut Source<'_>, dir: &Path) -> Speed {
    let mut number = |name: &str| {
        let number = source.value(&FREQUENCY, &dir.join(name), scalar::unsigned);
        number.filter(|number| *number > 0)
    };
    let (capacity, base, max) =
        (number("cpu_capacity"), number("cpufreq/base_frequency"), number("cpufreq/cpuinfo_max_freq"));
    let preference = dir.join("cpufreq/energy_performance_preference");
    Speed {
        capacity: capacity.and_then(|capacity| u32::try_from(capacity).ok()),
        base_frequency_khz: base,
        max_frequency_khz: max,
        energy_preference: source.value(&FREQUENCY, &preference, EnergyPreference::parse).flatten(),
    }
}

/// Empty where no list is there. CPUs that two lists claim are of no type.
fn read_types(source: &mut Source<'_>, online: &CpuSet) -> Types {
    let mut lists = listed_by_event_sources(source);
    if lists.is_empty() {
        lists = listed_by_types(source);
    }
    let mut types = Types::new();
    let (mut all, mut twice) = (CpuSet::new(), CpuSet::new());
    for (core_type, cpus) in lists {
        twice.extend(&all.intersection(&cpus));
        all.extend(&cpus);
        types.entry(core_type).or_default().extend(&cpus.intersection(online));
    }
    if !twice.is_empty() {
        source.lost(&TYPES, format_args!("CPUs {twice} are listed with two types of cores"));
    }
    if let [only] = types.keys().copied().collect::<Vec<_>>()[..] {
        let other = match only {
            CoreType::Performance => CoreType::Efficiency,
            CoreType::Efficiency => CoreType::Performance,
        };
        types.insert(other, online.difference(&all));
    }
    for cpus in types.values_mut() {
        *cpus = cpus.difference(&twice);
    }
    types
}

fn listed_by_event_sources(source: &mut Source<'_>) -> Vec<(CoreType, CpuSet)> {
    let devices = source.files.sys().join("devices");
    let list = |(name, core_type): (&str, CoreType)| {
        let cpus = source.value(&TYPES, &devices.join(name).join("cpus"), scalar::list::<CpuId>)?;
        Some((core_type, cpus))
    };
    EVENT_SOURCES.into_iter().filter_map(list).collect()
}

fn listed_by_types(source: &mut Source<'_>) -> Vec<(CoreType, CpuSet)> {
    let dir = source.files.sys().join("devices/system/cpu/types");
    let names = source.names(&TYPES, &dir);
    let list = |name: String| {
        let (_, core_type) = TYPE_NAMES.into_iter().find(|(begin, _)| name.starts_with(begin))?;
        let cpus = source.ids(&TYPES, &dir.join(name), &["cpulist"], &["cpumap"])?;
        Some((core_type, cpus))
    };
    names.into_iter().filter_map(list).collect()
}

/// The weakest of several designs is of efficiency cores. Where nothing tells the designs, capacities are cut
/// where they are farthest apart: cores of one design differ a little.
fn types_by_capacity(source: &mut Source<'_>, speeds: &BTreeMap<Speed, CpuSet>) -> Types {
    let mut by_capacity = BTreeMap::<u32, CpuSet>::new();
    for (speed, cpus) in speeds {
        if let Some(capacity) = speed.capacity {
            by_capacity.entry(capacity).or_default().extend(cpus);
        }
    }
    if by_capacity.len() < 2 {
        return Types::new();
    }
    let all = by_capacity.values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let weakest = designs(source, &all)
        .map_or_else(|| below_the_gap(&by_capacity), |designs| weakest_design(&by_capacity, &designs));
    let others = all.difference(&weakest);
    if others.is_empty() {
        return Types::new();
    }
    Types::from([(CoreType::Efficiency, weakest), (CoreType::Performance, others)])
}

/// CPUs of the slowest design, by its fastest CPU.
fn weakest_design(by_capacity: &BTreeMap<u32, CpuSet>, designs: &BTreeMap<CpuId, CoreDesign>) -> CpuSet {
    let mut strongest = BTreeMap::<CoreDesign, (u32, CpuSet)>::new();
    for (capacity, cpus) in by_capacity {
        for cpu in cpus.iter() {
            let Some(design) = designs.get(&cpu) else { continue };
            let (most, of_design) = strongest.entry(*design).or_default();
            *most = (*most).max(*capacity);
            of_design.insert(cpu);
        }
    }
    let least = strongest.values().map(|(most, _)| *most).min();
    let weakest = strongest.into_values().filter(|(most, _)| Some(*most) == least);
    weakest.fold(CpuSet::new(), |all, (_, cpus)| all.union(&cpus))
}

/// CPUs below the largest gap between two capacities; the lower one of equal gaps.
fn below_the_gap(by_capacity: &BTreeMap<u32, CpuSet>) -> CpuSet {
    let capacities: Vec<u32> = by_capacity.keys().copied().collect();
    let gaps = capacities.windows(2).map(|pair| (pair[1] - pair[0], std::cmp::Reverse(pair[1])));
    let above = gaps.max().map_or(0, |(_, std::cmp::Reverse(above))| above);
    let below = by_capacity.range(..above).map(|(_, cpus)| cpus);
    below.fold(CpuSet::new(), |all, cpus| all.union(cpus))
}

/// The design of each of these CPUs, if it is known of all.
fn designs(source: &mut Source<'_>, cpus: &CpuSet) -> Option<BTreeMap<CpuId, CoreDesign>> {
    let mut design = |cpu: CpuId| {
        let path = format!("devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        Some((cpu, source.value(&TYPES, &source.files.sys().join(path), processors::design_of_midr)?))
    };
    let registers: Option<BTreeMap<_, _>> = cpus.iter().map(&mut design).collect();
    registers.or_else(|| {
        let text = source.text(&TYPES, &source.files.proc().join("cpuinfo"))?;
        let listed = processors::designs_of_cpuinfo(&text);
        cpus.iter().all(|cpu| listed.contains_key(&cpu)).then_some(listed)
    })
}
