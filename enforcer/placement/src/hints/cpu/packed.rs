//! The packed order: as few groups as possible, and those with the fewest CPUs left.
//!
//! Problem: the CPUs of one container should share nodes and caches with each other and share no core with
//! other containers, and the remaining CPUs should stay useful. Idea: take entire free groups as long as they
//! fit, from the largest kind to the smallest, always where the fewest CPUs are free (best fit), ties by id;
//! finally single CPUs. In order:
//!
//! 1. nodes, then sockets; if sockets contain several nodes, sockets, then nodes;
//! 2. with `prefer-align-cpus-by-uncorecache` last-level caches, then the part of one that has exactly the
//!    missing number;
//! 3. cores, unless CPUs must come from different cores;
//! 4. CPUs: those of partly used cores first, or, from different cores, by id in each socket.
//!
//! Inner groups are ordered within their outer ones. If only whole cores are allowed on a machine with uneven
//! cores, the largest cores come first, and larger groups are taken only if they are a multiple of the
//! threads of a core, so that the rest is still whole cores.
//!
//! Cost: O(CPUs + groups log groups) per step. The caller never asks for more than is free.

use super::{CpuOptions, stock::Stock};
use crate::layout::{CpuLayout, Level};
use numa_topology::set::CpuSet;

/// Takes the needed CPUs.
pub(super) fn assign(stock: &mut Stock<'_>, options: CpuOptions) {
    let steps: [fn(&mut Stock<'_>, CpuOptions); 5] = [outer_groups, inner_groups, caches, cores, single_cpus];
    for step in steps {
        if stock.needed() == 0 {
            return;
        }
        step(stock, options);
    }
}

/// Nodes in the order in which they are considered.
pub(super) fn nodes(stock: &Stock<'_>) -> Vec<usize> {
    ordered(stock, Level::Node)
}

/// Nodes and sockets, the larger level first.
fn outer_and_inner(layout: &CpuLayout) -> (Level, Level) {
    if layout.count(Level::Socket) >= layout.count(Level::Node) {
        (Level::Node, Level::Socket)
    } else {
        (Level::Socket, Level::Node)
    }
}

fn ordered(stock: &Stock<'_>, level: Level) -> Vec<usize> {
    let (outer, inner) = outer_and_inner(stock.layout());
    let within = match level {
        _ if level == outer => return stock.order(outer),
        Level::Core => inner,
        Level::Cache => Level::Node,
        Level::Node | Level::Socket => outer,
    };
    stock.order_within(level, within, &ordered(stock, within))
}

fn outer_groups(stock: &mut Stock<'_>, options: CpuOptions) {
    whole_groups(stock, outer_and_inner(stock.layout()).0, options);
}

fn inner_groups(stock: &mut Stock<'_>, options: CpuOptions) {
    whole_groups(stock, outer_and_inner(stock.layout()).1, options);
}

fn whole_groups(stock: &mut Stock<'_>, level: Level, options: CpuOptions) {
    let layout = stock.layout();
    let multiple = if options.full_pcpus_only { layout.threads_per_core() } else { 1 };
    let fits = |group| {
        let cpus = layout.members(level, group);
        stock.is_whole(level, group)
            && stock.cost(cpus) <= stock.needed()
            && cpus.len().is_multiple_of(multiple)
    };
    if (0..layout.count(level)).any(fits) {
        let mut order = ordered(stock, level);
        order.retain(|group| layout.members(level, *group).len().is_multiple_of(multiple));
        take_whole(stock, level, &order);
    }
}

fn take_whole(stock: &mut Stock<'_>, level: Level, order: &[usize]) {
    for group in order {
        let cpus = stock.layout().members(level, *group);
        if stock.needed() > 0 && stock.is_whole(level, *group) && stock.cost(cpus) <= stock.needed() {
            stock.take(cpus);
        }
    }
}

fn caches(stock: &mut Stock<'_>, options: CpuOptions) {
    if !options.align_by_uncore_cache {
        return;
    }
    // The order is computed before whole caches are taken.
    let order = ordered(stock, Level::Cache);
    whole_groups(stock, Level::Cache, options);
    for cache in order {
        if stock.needed() == 0 {
            return;
        }
        if let Some(cpus) = part_of_cache(stock, cache) {
            stock.take(&cpus);
        }
    }
}

/// The first cores of a cache with free CPUs, if their free CPUs are exactly the needed number; for an odd
/// number the last core gives one CPU less.
fn part_of_cache(stock: &Stock<'_>, cache: usize) -> Option<CpuSet> {
    let layout = stock.layout();
    let wanted = stock.needed() + stock.kept(Level::Cache, cache);
    if stock.count(Level::Cache, cache) < wanted {
        return None;
    }
    let free = stock.free().intersection(layout.members(Level::Cache, cache));
    let mut cores: Vec<_> = free
        .iter()
        .filter_map(|cpu| layout.group_index(cpu))
        .map(|group_index| group_index.group(Level::Core))
        .collect();
    cores.sort_unstable();
    cores.dedup();
    cores.sort_by_key(|core| std::cmp::Reverse(stock.kept(Level::Core, *core)));
    let mut cpus = CpuSet::new();
    let mut room = 0;
    for core in cores {
        if room >= wanted {
            break;
        }
        let threads = layout.members(Level::Core, core);
        room += threads.len();
        cpus.extend(&threads.intersection(stock.free()));
    }
    if wanted % 2 == 1 && layout.threads_per_core() > 1 && cpus.len() > wanted {
        let of_begun_core = |cpu| {
            layout
                .group_index(cpu)
                .is_some_and(|group_index| stock.kept(Level::Core, group_index.group(Level::Core)) > 0)
        };
        let spare = cpus.iter().filter(|cpu| !stock.is_kept(*cpu));
        let last = spare.max_by_key(|cpu| (!of_begun_core(*cpu), *cpu))?;
        cpus.remove(last);
    }
    (stock.cost(&cpus) == stock.needed()).then_some(cpus)
}

fn cores(stock: &mut Stock<'_>, options: CpuOptions) {
    if options.distribute_across_cores {
        return;
    }
    let mut order = ordered(stock, Level::Core);
    if options.full_pcpus_only {
        let layout = stock.layout();
        order.sort_by_key(|core| std::cmp::Reverse(layout.members(Level::Core, *core).len()));
    }
    take_whole(stock, Level::Core, &order);
}

fn single_cpus(stock: &mut Stock<'_>, options: CpuOptions) {
    let level = if options.distribute_across_cores { Level::Socket } else { Level::Core };
    let mut chosen = Vec::new();
    for group in ordered(stock, level) {
        let members = stock.layout().members(level, group);
        let free = members.iter().filter(|cpu| stock.free().contains(*cpu) && !stock.is_kept(*cpu));
        chosen.extend(free.take(stock.needed() - chosen.len()));
    }
    stock.take(&chosen.into_iter().collect());
}
