//! Chooses CPUs without a hint.

use super::{CpuError, CpuOptions, packed, spread, stock::Stock};
use crate::CpuLayout;
use numa_topology::set::CpuSet;

/// `count` of the available CPUs.
///
/// # Errors
/// If too few CPUs are free, or the options do not allow the amount.
pub fn assign(
    layout: &CpuLayout,
    available: &CpuSet,
    count: usize,
    options: CpuOptions,
) -> Result<CpuSet, CpuError> {
    check_whole_cores(layout, count, available, options)?;
    assign_across(layout, available, count, 1, options)
}

/// The CPUs that a kubelet reserves for an amount, in the order for containers, whole cores or not.
///
/// # Errors
/// If too few CPUs are free, or the options do not allow the amount.
pub fn reserve(
    layout: &CpuLayout,
    available: &CpuSet,
    count: usize,
    options: CpuOptions,
) -> Result<CpuSet, CpuError> {
    assign_across(layout, available, count, 1, options)
}

/// If only whole cores are allowed: is the request a whole number of cores, and are enough free?
pub(super) fn check_whole_cores(
    layout: &CpuLayout,
    count: usize,
    in_whole_cores: &CpuSet,
    options: CpuOptions,
) -> Result<(), CpuError> {
    if !options.full_pcpus_only {
        return Ok(());
    }
    let threads = layout.threads_per_core();
    if !count.is_multiple_of(threads) {
        return Err(CpuError::NotWholeCores { requested: count, threads });
    }
    let available = layout.known(in_whole_cores).len();
    if count > available {
        return Err(CpuError::TooFewWholeCores { requested: count, available });
    }
    Ok(())
}

/// `count` of the available CPUs; distributed CPUs come from at least `nodes` nodes if possible.
pub(super) fn assign_across(
    layout: &CpuLayout,
    available: &CpuSet,
    count: usize,
    nodes: usize,
    options: CpuOptions,
) -> Result<CpuSet, CpuError> {
    if count == 0 {
        return Ok(CpuSet::new());
    }
    let mut stock = Stock::new(layout, available, CpuSet::new(), count);
    if count > stock.free().len() {
        return Err(CpuError::NotEnough { requested: count, available: stock.free().len() });
    }
    if options.distribute_across_numa
        && let Some(cpus) = spread::across_nodes(&stock, nodes, options)
    {
        return Ok(cpus);
    }
    packed::assign(&mut stock, options);
    Ok(stock.into_taken())
}
