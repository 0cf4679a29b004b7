//! Why no CPUs could be chosen, and how many would have had a place.

use super::{asker::Asker, cpu::CpuError};
use crate::{Inventory, Rejection, RejectionProblem, Shortage, room::FittingAmount};
use numa_topology::set::CpuSet;

/// Rejection for a failed choice of CPUs; `free` are the CPUs that it could choose from.
pub(super) fn no_cpus(inventory: &Inventory, asker: Asker<'_>, error: &CpuError, free: &CpuSet) -> Rejection {
    let count = |cpus: usize| u64::try_from(cpus).unwrap_or(u64::MAX);
    let nodes = asker.nodes.nodes(asker.nodes.all());
    let near = free.intersection(&inventory.machine.cpus_of(&nodes));
    // No amount is lacking where the request has none that would do.
    let (lacking, whole) = match error {
        CpuError::NotEnough { requested, available } => (Some((*requested, *available)), None),
        CpuError::TooFewWholeCores { requested, available } => (Some((*requested, *available)), Some(None)),
        CpuError::NotWholeCores { requested, threads } => {
            let threads = (*threads).max(1);
            let fewer = requested / threads * threads;
            let more = fewer.saturating_add(threads);
            let whole = if fewer == 0 { more.to_string() } else { format!("{fewer} or {more}") };
            (None, Some(Some(format!("{whole} CPUs are whole cores"))))
        }
        CpuError::NotHeld { keep, held } => (Some((keep.len(), held.common(keep))), None),
        CpuError::KeepsMore { requested, keep } => (Some((keep.len(), *requested)), None),
    };
    let room = if whole.is_some() {
        let cores = inventory.layout.cores.iter().filter(|(_, core)| core.is_subset(&near));
        cores.fold(CpuSet::new(), |all, (_, core)| all.union(core))
    } else {
        near
    };
    let room = FittingAmount::of_cpus(&inventory.machine, &nodes, &room);
    let shortage = |(wanted, available)| Shortage {
        resource: "cpu".to_owned(),
        nodes,
        wanted: count(wanted),
        available: count(available),
    };
    let rejection = Rejection::new(error.reason(), RejectionProblem::Cpus(error.clone()))
        .short_of(lacking.map(shortage).into_iter().collect(), &[room]);
    match whole.flatten() {
        Some(whole) => Rejection { fits: rejection.fits.map(|fits| format!("{whole}, {fits}")), ..rejection },
        None => rejection,
    }
}
