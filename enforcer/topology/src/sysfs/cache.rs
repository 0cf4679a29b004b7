//! Groups of CPUs behind one last-level cache, from `cpuN/cache/indexM`
//! (Documentation/ABI/testing/sysfs-devices-system-cpu).
//!
//! The last level is the highest data or unified cache of each CPU. On a hybrid machine that may be
//! level 3 for some and level 2 for others. One CPU answers for all that share its cache.

use std::path::{Path, PathBuf};

use crate::{
    Cpu, Llc,
    parse::scalar::{bare, cache_size, unsigned},
    set::CpuSet,
};

use super::source::{Source, SourceEffect};

const CACHE: SourceEffect =
    SourceEffect { source: "cache", effect: "some CPUs are in no last-level cache group" };

/// No machine has more than five levels and two caches per level.
const INDEX_LIMIT: usize = 16;

pub(super) fn read(source: &mut Source<'_>, cpus: &[Cpu]) -> Vec<Llc> {
    let mut open: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
    let mut llcs = Vec::new();
    for cpu in cpus {
        if !open.contains(cpu.id) {
            continue;
        }
        if let Some(llc) = last_level(source, cpu, &open) {
            open = open.difference(&llc.cpus);
            llcs.push(llc);
        }
    }
    if llcs.is_empty() {
        let path = source.files.sys().join("devices/system/cpu");
        source.lost(&CACHE, format_args!("{}: no CPU has a cache directory", path.display()));
    }
    llcs
}

fn last_level(source: &mut Source<'_>, cpu: &Cpu, open: &CpuSet) -> Option<Llc> {
    let dir = source.files.sys().join(format!("devices/system/cpu/cpu{}/cache", cpu.id));
    let indexes = source.numbered(&CACHE, &dir, "index");
    let mut best: Option<(u32, PathBuf)> = None;
    for index in indexes.into_iter().take(INDEX_LIMIT) {
        let dir = dir.join(format!("index{index}"));
        let Some(level) = data_level(source, &dir) else { continue };
        if best.as_ref().is_none_or(|(highest, _)| level > *highest) {
            best = Some((level, dir));
        }
    }
    let (level, dir) = best?;
    let files: [(&[&str], &[&str]); 2] = [(&["shared_cpu_list"], &[]), (&[], &["shared_cpu_map"])];
    let mut shared = files.into_iter().filter_map(|(lists, masks)| source.ids(&CACHE, &dir, lists, masks));
    // Some firmware leaves the map at zero. The threads of a core share all of its caches.
    let shared = shared.find(|shared: &CpuSet| !shared.is_empty());
    let mut cpus = shared.unwrap_or_else(|| cpu.siblings.clone()).intersection(open);
    cpus.insert(cpu.id);
    Some(Llc { level, size_bytes: source.value(&CACHE, &dir.join("size"), cache_size), cpus })
}

/// The level of a cache that holds data; `type` is absent where firmware does not give it.
fn data_level(source: &mut Source<'_>, dir: &Path) -> Option<u32> {
    let level = source.value(&CACHE, &dir.join("level"), unsigned)?;
    let kind = source.text(&CACHE, &dir.join("type"));
    let holds_data = kind.is_none_or(|kind| bare(&kind) != "Instruction");
    u32::try_from(level).ok().filter(|_| holds_data)
}
