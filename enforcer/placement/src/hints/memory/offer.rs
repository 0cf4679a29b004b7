//! Sets of nodes that memory offers.
//!
//! If sets are listed, every set with room. Otherwise a threshold over the room of each node: it can be too
//! low if other promises could move out of the way, never too high. For huge pages it is the sum of single
//! nodes, which may exceed what can be promised on them together; then nodes are added. A threshold cannot
//! express the rule for groups; under it, single nodes, groups in use and runs of unused nodes are offered.

use super::{
    MemoryStock,
    fullness::Fullness,
    stock::{now, when_empty},
};
use crate::{
    MemoryResource,
    hints::{
        MAX_ENUMERATED_NODES, Mask, MaskHint, Need, Offer, Offers, Table, Threshold, narrowest::narrowest,
        positions,
    },
};

/// Offers of memory for this request: one for each of its resources.
pub fn offer(stock: &MemoryStock<'_>, wanted: &[(MemoryResource, u64)]) -> Offers {
    if !stock.nodes.is_listed() && stock.groups.is_none() {
        let offer = threshold(stock, wanted);
        return wanted.iter().map(|(resource, _)| (resource.to_string(), offer.clone())).collect();
    }
    let hints = hints(stock, wanted, 0);
    let scored = |resource: MemoryResource| {
        let fullness = Fullness::of(stock, resource);
        let score =
            |hint: &MaskHint| MaskHint { score: fullness.score(hint.mask.unwrap_or_default()), ..*hint };
        Offer::Listed(hints.iter().map(score).collect())
    };
    wanted.iter().map(|(resource, _)| (resource.to_string(), scored(*resource))).collect()
}

/// Hints for the sets of nodes with room that contain `base`, without scores. On a machine with many nodes,
/// only the sets of the rule for groups.
pub(super) fn hints(stock: &MemoryStock<'_>, wanted: &[(MemoryResource, u64)], base: Mask) -> Vec<MaskHint> {
    if wanted.is_empty() {
        return Vec::new();
    }
    if stock.nodes.len() <= MAX_ENUMERATED_NODES && (stock.nodes.is_listed() || stock.groups.is_some()) {
        let has: Vec<(Table, u64)> =
            wanted.iter().map(|(resource, bytes)| (stock.capacity_on_sets(*resource), *bytes)).collect();
        let free: Vec<(Table, u64)> =
            wanted.iter().map(|(resource, bytes)| (stock.free_on_sets(*resource), *bytes)).collect();
        let enough =
            |tables: &[(Table, u64)], mask| tables.iter().all(|(table, amount)| table.at(mask) >= *amount);
        let does = |mask| mask & base == base && enough(&free, mask) && stock.allowed(mask);
        return crate::hints::listed::list(stock.nodes.len(), |mask| enough(&has, mask), does);
    }
    let width = narrowest(&needs(stock, wanted, when_empty));
    let hint =
        |mask: Mask| MaskHint { mask: Some(mask), preferred: width == Some(mask.count_ones()), score: 0 };
    let does = |mask: &Mask| mask & base == base && stock.allowed(*mask) && stock.fits(*mask, wanted);
    group_masks(stock).into_iter().filter(does).map(hint).collect()
}

/// Room on each node, and the needed amount.
fn threshold(stock: &MemoryStock<'_>, wanted: &[(MemoryResource, u64)]) -> Offer {
    match narrowest(&needs(stock, wanted, when_empty)) {
        Some(width) => Offer::Threshold(Threshold { needs: needs(stock, wanted, now), width, must: 0 }),
        None => Offer::Listed(Vec::new()),
    }
}

fn needs(
    stock: &MemoryStock<'_>,
    wanted: &[(MemoryResource, u64)],
    on: fn(&MemoryStock<'_>, Mask, MemoryResource) -> u64,
) -> Vec<Need> {
    let nodes = 0..stock.nodes.len();
    let free = |resource| nodes.clone().map(|node| on(stock, stock.apart(node), resource)).collect();
    wanted.iter().map(|(resource, bytes)| Need { free: free(*resource), amount: *bytes }).collect()
}

/// On a machine with many nodes, the sets to check under the rule for groups: single nodes, groups in use,
/// runs of unused nodes.
fn group_masks(stock: &MemoryStock<'_>) -> Vec<Mask> {
    let Some(groups) = &stock.groups else { return Vec::new() };
    let nodes = stock.nodes.len();
    let unused: Vec<usize> = (0..nodes).filter(|node| groups.unused(stock.zone(1 << node))).collect();
    let run = |run: &[usize]| run.iter().fold(0, |mask: Mask, node| mask | 1 << node);
    let runs = (2..=unused.len()).flat_map(|width| unused.windows(width)).map(run);
    let mut masks: Vec<Mask> = (0..nodes).map(|node| 1 << node).collect();
    masks.extend(groups.several().filter_map(|zone| stock.mask(zone)).chain(runs));
    masks.sort_by_key(|mask| mask.count_ones());
    masks
}

/// The narrowest set with room that contains `base`; of equally narrow ones, that with the lowest nodes.
pub(super) fn best(
    stock: &MemoryStock<'_>,
    wanted: &[(MemoryResource, u64)],
    base: Mask,
) -> Option<MaskHint> {
    if stock.nodes.is_listed() || stock.groups.is_some() {
        let hints = hints(stock, wanted, base).into_iter();
        let best = hints.min_by_key(|hint| (hint.mask.map(Mask::count_ones), hint.mask));
        if best.is_some() || stock.groups.is_some() {
            return best;
        }
    }
    let mask = widened(stock, wanted, base)?;
    let width = narrowest(&needs(stock, wanted, when_empty));
    Some(MaskHint { mask: Some(mask), preferred: width == Some(mask.count_ones()), score: 0 })
}

/// A narrow set with room that contains `base`, if there are too many sets to try all: adds the nodes with
/// the most room in the resource that is short, finally the lowest node that completes it.
fn widened(stock: &MemoryStock<'_>, wanted: &[(MemoryResource, u64)], base: Mask) -> Option<Mask> {
    let mut mask = base;
    loop {
        let others = || positions(stock.nodes.all() & !mask).map(|node| mask | 1 << node);
        if let Some(complete) = others().find(|wider| stock.fits(*wider, wanted)) {
            return Some(complete);
        }
        let short = wanted.iter().find(|want| !stock.fits(mask, std::slice::from_ref(want)))?.0;
        mask = others()
            .min_by_key(|wider| (std::cmp::Reverse(now(stock, stock.zone(*wider), short)), *wider))?;
    }
}
