//! Chooses CPUs of a set, so that they are close together and leave large groups free.
//!
//! Problem: choose `count` CPUs out of `from` as exclusive CPUs of one container. Idea: take the largest
//! entirely free units that are not larger than the missing number, then smaller ones:
//!
//! 1. whole packages;
//! 2. whole clusters, of one kind of core;
//! 3. whole last-level caches of the tightest die, then package, that has enough of them; missing CPUs then
//!    come from one more cache, which is split; then partly used caches. Never more than one package in this
//!    step;
//! 4. whole cores, from one package, die and node if one has enough;
//! 5. single threads: packages in use first, then cores with the fewest free siblings.
//!
//! A priority asks for faster or slower CPUs: units with more of them come first, and if there are two kinds
//! of cores, only one kind is used as long as it has enough. Low priority takes the package with the fewest
//! slow CPUs that has enough. Ties go to the lowest CPU id, so equal input gives equal output.
//!
//! Cost: O(groups) set operations of a few words each, and one sort of the free CPUs.

mod groups;
mod speed;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

pub(super) use self::groups::CpuGroups;
use crate::settings::CpuPriority;
use numa_topology::{Topology, set::CpuSet};

/// `count` CPUs out of `from`; `None` if there are fewer.
pub(super) fn pick(groups: &CpuGroups, from: &CpuSet, count: usize, priority: CpuPriority) -> Option<CpuSet> {
    let available = from.len();
    if available <= count {
        return (available == count).then(|| from.clone());
    }
    let mut pick = CpuPicking { groups, free: from.clone(), picked: CpuSet::new(), missing: count, priority };
    pick.keep_to_one_kind();
    pick.whole_packages();
    pick.whole_clusters();
    pick.caches();
    pick.keep_close();
    pick.whole_cores();
    pick.threads();
    Some(pick.picked)
}

/// Are some CPUs faster or slower than others, so that a priority has a meaning?
pub(super) fn are_of_several_kinds(machine: &Topology) -> bool {
    let speed::Speeds { fast, slow } = speed::Speeds::of(machine);
    !fast.is_empty() || !slow.is_empty()
}

/// Number of CPUs in `cpus` that best match the priority on this machine: if no CPU is fast, ordinary ones
/// do.
pub(super) fn best_for(groups: &CpuGroups, cpus: &CpuSet, priority: CpuPriority) -> usize {
    let high = priority == CpuPriority::High && groups.fast.is_empty();
    of_priority(groups, cpus, if high { CpuPriority::Normal } else { priority })
}

/// Number of CPUs in `cpus` that match the priority.
fn of_priority(groups: &CpuGroups, cpus: &CpuSet, priority: CpuPriority) -> usize {
    match priority {
        CpuPriority::High => cpus.common(&groups.fast),
        CpuPriority::Low => cpus.common(&groups.slow),
        CpuPriority::Normal => cpus.len() - cpus.common(&groups.fast) - cpus.common(&groups.slow),
        CpuPriority::None => cpus.len(),
    }
}

/// A choice in progress.
struct CpuPicking<'a> {
    groups: &'a CpuGroups,
    /// CPUs that can still be taken.
    free: CpuSet,
    picked: CpuSet,
    /// Number of CPUs that are still missing.
    missing: usize,
    priority: CpuPriority,
}

impl<'a> CpuPicking<'a> {
    fn take(&mut self, cpus: &CpuSet) {
        self.picked.extend(cpus);
        self.free = self.free.difference(cpus);
        self.missing = self.missing.saturating_sub(cpus.len());
    }

    /// Match of CPUs with the priority: more matching ones, then more of the next best.
    fn fit(&self, cpus: &CpuSet) -> Reverse<(usize, usize)> {
        use CpuPriority::{High, Low, None, Normal};
        let (first, second) = match self.priority {
            High => (High, Normal),
            Normal => (Normal, Low),
            Low => (Low, Normal),
            None => return Reverse((0, 0)),
        };
        let count = |priority| of_priority(self.groups, cpus, priority);
        Reverse((count(first), count(second)))
    }

    /// If there are slow cores: only those, or only the others, as long as there are enough.
    fn keep_to_one_kind(&mut self) {
        let slow = &self.groups.slow;
        if slow.is_empty() || self.priority == CpuPriority::None {
            return;
        }
        let low = self.priority == CpuPriority::Low;
        let kind = if low { self.free.intersection(slow) } else { self.free.difference(slow) };
        if kind.len() < self.missing {
            return;
        }
        self.free = kind;
        if low {
            let packages: Vec<&CpuSet> = self.groups.packages.iter().collect();
            if let Some(package) = self.tightest(&packages, |package| package.common(&self.free)) {
                self.free = self.free.intersection(package);
            }
        }
    }

    /// Units that are entirely free and not too large, best first.
    fn idle(&self, units: &'a [CpuSet]) -> Vec<&'a CpuSet> {
        let fits = |unit: &&CpuSet| unit.is_subset(&self.free) && unit.len() <= self.missing;
        let mut idle: Vec<&CpuSet> = units.iter().filter(fits).collect();
        idle.sort_by_key(|unit| self.fit(unit));
        idle
    }

    /// The domain with the fewest CPUs among those with enough.
    fn tightest(&self, domains: &[&'a CpuSet], has: impl Fn(&CpuSet) -> usize) -> Option<&'a CpuSet> {
        let enough = domains.iter().map(|domain| (has(domain), *domain));
        enough.filter(|(has, _)| *has >= self.missing).min_by_key(|(has, _)| *has).map(|(_, domain)| domain)
    }

    fn take_whole(&mut self, units: Vec<&CpuSet>) {
        for unit in units {
            if unit.len() <= self.missing {
                self.take(unit);
            }
        }
    }

    fn whole_packages(&mut self) {
        self.take_whole(self.idle(&self.groups.packages));
    }

    fn whole_clusters(&mut self) {
        let mut idle = self.idle(&self.groups.clusters);
        let packages: Vec<&CpuSet> = self.groups.packages.iter().collect();
        if let Some(package) = self.tightest(&packages, |package| within(&idle, package)) {
            idle.retain(|cluster| cluster.is_subset(package));
        }
        self.take_whole(idle);
    }

    fn caches(&mut self) {
        let caches = &self.groups.caches;
        if caches.len() < 2 || self.missing < 2 {
            return;
        }
        let whole: Vec<&CpuSet> = caches.iter().filter(|cache| cache.is_subset(&self.free)).collect();
        let domains: [Vec<&CpuSet>; 2] =
            [self.groups.dies.iter().collect(), self.groups.packages.iter().collect()];
        let found =
            domains.iter().find_map(|domains| self.tightest(domains, |domain| within(&whole, domain)));
        if let Some(domain) = found {
            return self.out_of_caches(whole.into_iter().filter(|cache| cache.is_subset(domain)).collect());
        }
        let partly = |domain: &CpuSet| {
            let inside = caches.iter().filter(|cache| cache.is_subset(domain));
            inside.map(|cache| cache.common(&self.free)).sum()
        };
        let whole_cores = |domain: &CpuSet| within(&self.idle(&self.groups.cores), domain);
        let found = domains.iter().find_map(|domains| self.tightest(domains, whole_cores));
        let found = found.or_else(|| domains.iter().find_map(|domains| self.tightest(domains, partly)));
        if let Some(domain) = found {
            self.out_of_caches(caches.iter().filter(|cache| cache.is_subset(domain)).collect());
        }
    }

    /// Takes CPUs of caches that together have enough: whole caches first, then whole cores of those with the
    /// most, then caches with the most free CPUs, and finally a part of the remaining one with the fewest.
    fn out_of_caches(&mut self, mut caches: Vec<&CpuSet>) {
        caches.sort_by_key(|cache| self.fit(cache));
        self.take_whole(caches.iter().copied().filter(|cache| cache.is_subset(&self.free)).collect());
        self.cores_out_of(&caches);
        while self.missing > 0 {
            let free = caches.iter().map(|cache| cache.intersection(&self.free)).filter(|f| !f.is_empty());
            let free: Vec<CpuSet> = free.collect();
            let holds_rest = free.iter().filter(|free| free.len() >= self.missing).min_by_key(|f| f.len());
            if let Some(last) = holds_rest {
                let groups = self.groups;
                let mut inner = CpuPicking {
                    groups,
                    free: last.clone(),
                    picked: CpuSet::new(),
                    missing: self.missing,
                    priority: self.priority,
                };
                inner.whole_cores();
                inner.threads();
                self.take(&inner.picked);
                return;
            }
            let Some(largest) = free.iter().max_by_key(|free| (free.len(), Reverse(free.first()))) else {
                return;
            };
            self.take(largest);
        }
    }

    /// Takes whole cores as long as there are any, to avoid half cores beside threads of other containers:
    /// all of the rest from the smallest cache that has them, else from the largest.
    fn cores_out_of(&mut self, caches: &[&CpuSet]) {
        while self.missing > 0 {
            let idle = self.idle(&self.groups.cores);
            let in_cores = |cache: &CpuSet| within(&idle, cache);
            let rest = self.missing - self.missing % self.groups.cores.first().map_or(1, CpuSet::len).max(1);
            let holds_rest = caches.iter().filter(|cache| rest > 0 && in_cores(cache) >= rest);
            let best = holds_rest.min_by_key(|cache| (in_cores(cache), cache.first())).copied();
            let most =
                || caches.iter().max_by_key(|cache| (in_cores(cache), Reverse(cache.first()))).copied();
            let Some(cache) = best.or_else(most).filter(|cache| in_cores(cache) > 0) else { return };
            self.take_whole(idle.into_iter().filter(|core| core.is_subset(cache)).collect());
        }
    }

    /// Without a priority: only the package, then die, then node that has enough whole cores, else enough
    /// CPUs.
    fn keep_close(&mut self) {
        if self.priority != CpuPriority::None || self.missing == 0 {
            return;
        }
        for level in [&self.groups.packages, &self.groups.dies, &self.groups.nodes] {
            let domains: Vec<&CpuSet> = level.iter().collect();
            let idle: Vec<&CpuSet> = self.idle(&self.groups.cores);
            let close = self.tightest(&domains, |domain| within(&idle, domain));
            let close = close.or_else(|| self.tightest(&domains, |domain| domain.common(&self.free)));
            if let Some(domain) = close {
                self.free = self.free.intersection(domain);
            }
        }
    }

    fn whole_cores(&mut self) {
        self.take_whole(self.idle(&self.groups.cores));
    }

    fn threads(&mut self) {
        if self.missing == 0 {
            return;
        }
        let mut packages: Vec<(&CpuSet, CpuSet)> =
            self.groups.packages.iter().map(|package| (package, package.intersection(&self.free))).collect();
        packages.sort_by_key(|(package, free)| (package.is_disjoint(&self.picked), self.fit(free)));
        for (_, free) in packages {
            let cores = self.groups.cores.iter().filter(|core| !core.is_disjoint(&free));
            let mut threads = Vec::with_capacity(free.len());
            for core in cores {
                let left = core.intersection(&free);
                let key = |cpu| (self.fit(&CpuSet::from_iter([cpu])), left.len(), core.first(), cpu);
                threads.extend(left.iter().map(key));
            }
            threads.sort_unstable();
            let chosen: CpuSet = threads.into_iter().take(self.missing).map(|(.., cpu)| cpu).collect();
            self.take(&chosen);
        }
    }
}

/// Number of CPUs of the units within a domain.
fn within(units: &[&CpuSet], domain: &CpuSet) -> usize {
    units.iter().filter(|unit| unit.is_subset(domain)).map(|unit| unit.len()).sum()
}
