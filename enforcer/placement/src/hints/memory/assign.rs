//! Promises memory on the nodes chosen for a container.
//!
//! The merged set is used if it has room. If it has not (and the policy admits the container regardless), it
//! is widened to the narrowest set with room that contains it. Without a merged set, the narrowest set with
//! room is used. A preferred set is never replaced by a non-preferred one.

use super::{MemoryStock, offer::best};
use crate::{
    MemoryClaim, MemoryResource, Rejection, RejectionProblem, RejectionReason, Shortage,
    hints::{Mask, merge::Merged},
    rejection::MemoryProblem,
    room::FittingAmount,
    words,
};
use numa_topology::set::NodeSet;

/// Claims for all wanted amounts, all on the same zone; none if nothing is wanted.
///
/// # Errors
/// If a resource does not fit.
pub fn assign(
    stock: &MemoryStock<'_>,
    wanted: &[(MemoryResource, u64)],
    merged: Merged,
) -> Result<Vec<MemoryClaim>, Rejection> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mask = choose(stock, wanted, merged)?;
    let zone = stock.nodes.nodes(mask);
    let claim = |&(resource, bytes): &(MemoryResource, u64)| MemoryClaim {
        resource,
        by_node: stock.account.split(&zone, resource, bytes),
        zone: zone.clone(),
        bytes,
    };
    Ok(wanted.iter().map(claim).collect())
}

/// Wanted amounts that cannot be promised on these nodes, with the available amounts.
pub fn shortages(
    stock: &MemoryStock<'_>,
    wanted: &[(MemoryResource, u64)],
    nodes: &NodeSet,
) -> Vec<Shortage> {
    let short = wanted.iter().filter(|(resource, bytes)| !stock.account.fits(nodes, *resource, *bytes));
    short.map(|one| shortage(stock, one, nodes)).collect()
}

fn shortage(stock: &MemoryStock<'_>, wanted: &(MemoryResource, u64), nodes: &NodeSet) -> Shortage {
    let (resource, bytes) = *wanted;
    Shortage {
        resource: resource.to_string(),
        nodes: nodes.clone(),
        wanted: bytes,
        available: stock.account.free(nodes, resource),
    }
}

fn choose(
    stock: &MemoryStock<'_>,
    wanted: &[(MemoryResource, u64)],
    merged: Merged,
) -> Result<Mask, Rejection> {
    let refused = |problem: MemoryProblem, nodes: Mask| {
        let problem = RejectionProblem::Memory(problem);
        let (nodes, all) = (stock.nodes.nodes(nodes), stock.nodes.nodes(stock.nodes.all()));
        // Enough in total, but the rule for groups forbids it: the whole amount is short.
        let short = Some(shortages(stock, wanted, &nodes)).filter(|short| !short.is_empty());
        let short = short.unwrap_or_else(|| wanted.iter().map(|one| shortage(stock, one, &nodes)).collect());
        let allowed = |place: &NodeSet| stock.allowed(stock.nodes.mask(place));
        let room = |(resource, _): &(MemoryResource, u64)| {
            let free = |place: &NodeSet| {
                if allowed(place) { stock.account.free(place, *resource) } else { 0 }
            };
            FittingAmount::new(&resource.to_string(), &all, free)
        };
        let rooms: Vec<FittingAmount> = wanted.iter().map(room).collect();
        let rejection =
            Rejection::new(RejectionReason::UnexpectedAdmissionError, problem).short_of(short, &rooms);
        match best(stock, wanted, 0).and_then(|hint| hint.mask) {
            Some(mask) => {
                let fits = format!("it fits on {}", words::nodes(&stock.nodes.nodes(mask)));
                Rejection { fits: Some(fits), ..rejection }
            }
            None => rejection,
        }
    };
    let Some(chosen) = merged.mask else {
        return match best(stock, wanted, 0).map(|hint| (hint.mask, hint.preferred)) {
            Some((_, false)) if merged.preferred => {
                Err(refused(MemoryProblem::NoDefaultPreferred, stock.nodes.all()))
            }
            Some((Some(mask), _)) => Ok(mask),
            _ => Err(refused(MemoryProblem::NoDefaultAffinity, stock.nodes.all())),
        };
    };
    if stock.fits(chosen, wanted) {
        return if stock.allowed(chosen) {
            Ok(chosen)
        } else {
            Err(refused(MemoryProblem::ViolatesGroup, chosen))
        };
    }
    match best(stock, wanted, chosen).map(|hint| (hint.mask, hint.preferred)) {
        Some((_, false)) if merged.preferred => Err(refused(MemoryProblem::NoExtendedPreferred, chosen)),
        Some((Some(mask), _)) => Ok(mask),
        _ => {
            // The shortage is that of all nodes together, not that of the first one.
            let all = stock.nodes.all();
            let nodes = if stock.fits(all, wanted) { chosen } else { all };
            Err(refused(MemoryProblem::NoExtension, nodes))
        }
    }
}
