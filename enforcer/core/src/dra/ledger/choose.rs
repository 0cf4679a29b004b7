//! Which CPUs a claim gets.
//!
//! Idea: the placement engine chooses, from what it is shown. It is shown one last-level cache if the CPUs
//! fit behind one: the one with the fewest free CPUs, and before that one with enough free cores. Cores are
//! whole as long as there are such. Where the claim asks for it, CPUs that serve interrupts come last.
//! Invariant: equal ledgers and claims get equal CPUs.

use std::cmp::Reverse;

use numa_placement::{
    CpuLayout,
    hints::cpu::{CpuOptions, assign},
};
use numa_topology::set::CpuSet;

use super::{ClaimLedger, PreparedResult, Shortage, wants::Want};
use crate::dra::{
    ClaimAllocation, ClaimCapacity, ClaimCores, ClaimIrqs, ClaimOptions, ClaimPack, ClaimSupply,
};

impl ClaimLedger {
    /// CPUs for each result. Named cores are taken first, whatever the order of results. CPUs that the claim
    /// `had` are its own again, if there are enough of them.
    pub(super) fn choose(
        &self,
        claim: &ClaimAllocation,
        wants: Vec<Want>,
        supply: &ClaimSupply,
        (interrupt_cpus, had): (&CpuSet, &CpuSet),
    ) -> Result<Vec<PreparedResult>, Shortage> {
        debug_assert_eq!(claim.results.len(), wants.len());
        let mut taken = self.exclusive_cpus();
        let mut chosen = vec![CpuSet::new(); wants.len()];
        let mut order: Vec<(usize, &Want)> = wants.iter().enumerate().collect();
        order.sort_by_key(|(at, want)| (want.core.is_none(), *at));
        for (at, want) in order {
            let Some(budget) = supply.node(want.node) else { continue };
            let free = budget.exclusive_pool.difference(&taken);
            let cpus = match &want.core {
                Some(core) if core.is_subset(&free) => Ok(core.clone()),
                Some(core) => Err(core.common(&free)),
                None => {
                    let count = usize::try_from(want.amounts.cpus).unwrap_or(usize::MAX);
                    let pick = |free: &CpuSet| {
                        pick(supply.layout(), free, count, want.result.options, interrupt_cpus)
                    };
                    let again = free.intersection(had);
                    if again.is_empty() { pick(&free) } else { pick(&again).or_else(|_few| pick(&free)) }
                }
            };
            let cpus = cpus.map_err(|free| {
                let in_cores = want.core.is_some() || want.result.options.cores() == ClaimCores::Full;
                self.short_of(
                    (want.node, supply),
                    ClaimCapacity::Cpu,
                    want.amounts.cpus,
                    free as u64,
                    in_cores,
                )
            })?;
            taken.extend(&cpus);
            chosen[at] = cpus;
        }
        let prepared = |(want, cpus): (Want, CpuSet)| PreparedResult {
            result: want.result,
            node: want.node,
            amounts: want.amounts,
            cpus,
        };
        Ok(wants.into_iter().zip(chosen).map(prepared).collect())
    }
}

/// `count` of the free CPUs; if there are too few, how many there are.
fn pick(
    layout: &CpuLayout,
    free: &CpuSet,
    count: usize,
    claim: ClaimOptions,
    interrupt_cpus: &CpuSet,
) -> Result<CpuSet, usize> {
    if count == 0 {
        return Ok(CpuSet::new());
    }
    let is_full = claim.cores() == ClaimCores::Full;
    let options = CpuOptions {
        full_pcpus_only: is_full,
        distribute_across_cores: claim.pack() == ClaimPack::Spread,
        align_by_uncore_cache: claim.pack() == ClaimPack::L3,
        ..CpuOptions::default()
    };
    let usable = |free: &CpuSet| if is_full { whole_cores(layout, free) } else { free.clone() };
    let quiet = usable(&free.difference(interrupt_cpus));
    let free = usable(free);
    let shown = if claim.irqs() == ClaimIrqs::Away && quiet.len() >= count { quiet } else { free };
    let from = if options.align_by_uncore_cache { behind_one_cache(layout, &shown, count) } else { None };
    let too_few = shown.len();
    assign(layout, &from.unwrap_or(shown), count, options).map_err(|_refusal| too_few)
}

/// Free CPUs behind the last-level cache that suits best; none if the CPUs do not fit behind one.
fn behind_one_cache(layout: &CpuLayout, free: &CpuSet, count: usize) -> Option<CpuSet> {
    let caches = layout.llcs.iter().map(|(_, cache)| cache.intersection(free));
    let fitting = caches.filter(|own| own.len() >= count);
    fitting.min_by_key(|own| (Reverse(whole_cores(layout, own).len() >= count), own.len(), own.first()))
}

/// CPUs of cores that are free as a whole.
fn whole_cores(layout: &CpuLayout, free: &CpuSet) -> CpuSet {
    let mut whole = CpuSet::new();
    let cores = layout.cores.iter().map(|(_, core)| core);
    cores.filter(|core| core.is_subset(free)).for_each(|core| whole.extend(core));
    whole
}

#[cfg(test)]
mod tests {
    use numa_topology::synth::Machine;
    use serde_json::json;

    use super::*;
    use crate::dra::field::Field;

    fn layout(line: &str) -> CpuLayout {
        CpuLayout::of(&line.parse::<Machine>().unwrap().build())
    }

    fn options(fields: &serde_json::Value) -> ClaimOptions {
        ClaimOptions::read_recorded(&Field::root(fields)).unwrap()
    }

    fn picked(line: &str, free: &str, count: usize, fields: &serde_json::Value, interrupts: &str) -> String {
        let picked =
            pick(&layout(line), &free.parse().unwrap(), count, options(fields), &interrupts.parse().unwrap());
        picked.map_or_else(|few| format!("only {few}"), |cpus| cpus.to_string())
    }

    #[test]
    fn cores_are_whole_and_behind_one_cache() {
        let none = json!({});
        // Two caches of four cores; CPU n and CPU n + 8 are one core.
        let line = "sockets:1 cores:8 threads:2 l3:2";
        assert_eq!(picked(line, "0-15", 4, &none, ""), "0-1,8-9");
        // The cache with fewer free CPUs is used up first.
        assert_eq!(picked(line, "0-7,10-15", 4, &none, ""), "2-3,10-11");
        // Half cores of the first cache would suffice, whole cores of the second do.
        assert_eq!(picked(line, "0-3,4-7,12-15", 4, &none, ""), "4-5,12-13");
        // They fit behind the larger cache alone, though the smaller is whole.
        assert_eq!(picked(line, "0-1,8-9,4-7,12-15", 6, &none, ""), "4-6,12-14");
        assert_eq!(picked(line, "0-15", 10, &none, ""), "0-4,8-12");
        assert_eq!(picked(line, "0-3", 5, &none, ""), "only 4");
    }

    #[test]
    fn options_change_the_choice() {
        let line = "sockets:1 cores:8 threads:2 l3:2";
        assert_eq!(picked(line, "0-7,8", 4, &json!({"cores": "full"}), ""), "only 2");
        assert_eq!(picked(line, "0-7,8-9", 4, &json!({"cores": "full"}), ""), "0-1,8-9");
        assert_eq!(picked(line, "0-15", 4, &json!({"pack": "spread"}), ""), "0-3");
        assert_eq!(picked(line, "0-15", 4, &json!({"irqs": "away"}), "0,8"), "1-2,9-10");
        assert_eq!(picked(line, "0-15", 4, &json!({}), "0,8"), "0-1,8-9");
        assert_eq!(picked(line, "0-3", 4, &json!({"irqs": "away"}), "0-1"), "0-3");
    }
}
