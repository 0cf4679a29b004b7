//! Who among those that share CPUs is at home, and who is away.
//!
//! Problem: exclusive CPUs may leave a scope less than was promised in it. Those there must not be
//! slowed down more than by the smaller of two evils, and must not be far from their memory longer than
//! necessary. Idea: those of a scope stand in a row, the oldest first. As many as what is left of the
//! scope holds are *at home*; all behind them are *away*, on the whole shared pool. Who is promised
//! nothing needs no more than a CPU that is left.
//!
//! Who is at home depends on what is given away now and on nothing that was before: when exclusive CPUs
//! come back, exactly those return who went because of them, in whatever order pods come and go. A
//! return takes room from nobody, because the row at home only grows at its end.
//!
//! This never refuses a pod, but for one reason: somebody would have no CPU left at all.
//!
//! Cost: O(holders) set operations of a few words, and their sorting by age; nothing for a return when
//! nobody is away.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Allocations, Grant, Holder, SharedCpus};
use crate::set::CpuSet;

/// A holder of shared CPUs.
struct Judged<'a> {
    holder: &'a Holder,
    grant: &'a Grant,
    shared: &'a SharedCpus,
    /// Exclusive CPUs of all beside whom it runs.
    taken: Cow<'a, CpuSet>,
    /// Its home holds what was promised to it and to those before it.
    fits: bool,
}

/// Sends those away whose home holds less than was promised there, where CPUs that were `moved` are
/// exclusive now. `ended` are the CPUs of those that have ended when a holder starts, none for a holder
/// that has ended itself. The holder for whom nothing is left is the error.
pub(super) fn send_away(
    allocations: &mut Allocations,
    pool: &CpuSet,
    moved: &CpuSet,
    ended: impl Fn(&Holder) -> Option<CpuSet>,
) -> Result<(), Holder> {
    if moved.is_empty() {
        return Ok(());
    }
    let taken = allocations.exclusive_cpus();
    let touched = |shared: &SharedCpus| !shared.reach().is_disjoint(moved);
    let mut away = Vec::new();
    for Judged { holder, grant, shared, taken, fits } in judge(allocations, &taken, touched, ended) {
        let stays = match &shared.refuge {
            None => fits,
            Some(refuge) => left_of(refuge, &taken) > 0,
        };
        if stays {
            continue;
        }
        let wider = shared.reach().union(pool);
        if left_of(&wider, &taken) == 0 {
            return Err(holder.clone());
        }
        // Also where that brings nothing yet: it will when others leave.
        if wider != *shared.reach() {
            away.push((holder.clone(), moved_to(grant, Some(wider))));
        }
    }
    for (holder, grant) in away {
        allocations.give(holder, grant);
    }
    Ok(())
}

/// Lets those return whose home has room for them again.
pub(crate) fn bring_home(allocations: &mut Allocations) {
    let is_away = |grant: &Grant| grant.shared.as_ref().is_some_and(|shared| shared.refuge.is_some());
    if !allocations.iter().any(|(_, grant)| is_away(grant)) {
        return;
    }
    let taken = allocations.exclusive_cpus();
    let judged = judge(allocations, &taken, |_| true, |_| Some(CpuSet::new()));
    let back = judged.into_iter().filter(|one| one.fits && one.shared.refuge.is_some());
    let back: Vec<_> = back.map(|one| (one.holder.clone(), moved_to(one.grant, None))).collect();
    for (holder, grant) in back {
        allocations.give(holder, grant);
    }
}

/// Everybody whose shared CPUs are pinned and of interest, the oldest first. Where somebody is who is at
/// home, all of that home must be of interest.
fn judge<'a>(
    allocations: &'a Allocations,
    taken: &'a CpuSet,
    interesting: impl Fn(&SharedCpus) -> bool + 'a,
    ended: impl Fn(&Holder) -> Option<CpuSet>,
) -> Vec<Judged<'a>> {
    let sharing = allocations
        .in_turn(move |grant| grant.pin_cpus && grant.shared.as_ref().is_some_and(&interesting))
        .filter_map(|(holder, grant)| Some((holder, grant, grant.shared.as_ref()?)));
    let mut rows = BTreeMap::<&CpuSet, u64>::new();
    let judged = sharing.filter_map(|(holder, grant, shared)| {
        let ended = ended(holder)?;
        let taken =
            if ended.is_empty() { Cow::Borrowed(taken) } else { Cow::Owned(taken.difference(&ended)) };
        let promised = rows.entry(&shared.scope).or_default();
        *promised = promised.saturating_add(shared.milli_cpus);
        let needed = if shared.milli_cpus == 0 { 1 } else { *promised };
        let left = u64::try_from(left_of(&shared.scope, &taken)).unwrap_or(u64::MAX);
        let fits = left.saturating_mul(1000) >= needed;
        Some(Judged { holder, grant, shared, taken, fits })
    });
    judged.collect()
}

fn left_of(scope: &CpuSet, taken: &CpuSet) -> usize {
    scope.len() - scope.common(taken)
}

fn moved_to(grant: &Grant, refuge: Option<CpuSet>) -> Grant {
    let shared = grant.shared.clone().map(|shared| SharedCpus { refuge, ..shared });
    Grant { shared, ..grant.clone() }
}
