//! Resize of a running container: keep required CPUs and stay near them.
//!
//! Both directions use the packed order with CPUs that are in the result from the start and cost nothing:
//! groups with most of them are taken first, and a group with no other CPUs in use counts as free. As long as
//! the nodes of the kept CPUs have enough, no other node is used. `distribute-cpus-across-numa` applies only
//! if no CPU must stay.

use super::{
    CpuError, CpuOptions,
    assign::{assign_across, check_whole_cores},
    packed,
    stock::Stock,
};
use crate::{CpuLayout, layout::Level};
use numa_topology::set::CpuSet;

/// `count` of the CPUs that a container holds, including those that must stay.
///
/// # Errors
/// If too few CPUs are free, or the options do not allow the amount.
pub fn retain(
    layout: &CpuLayout,
    current: &CpuSet,
    keep: &CpuSet,
    count: usize,
    options: CpuOptions,
) -> Result<CpuSet, CpuError> {
    if !keep.is_subset(current) {
        return Err(CpuError::NotHeld { keep: keep.clone(), held: current.clone() });
    }
    around(layout, current, keep, count, options)
}

/// All CPUs that a container holds, plus available ones up to `count`.
///
/// # Errors
/// If too few CPUs are free, or the options do not allow the amount.
pub fn grow(
    layout: &CpuLayout,
    current: &CpuSet,
    available: &CpuSet,
    count: usize,
    options: CpuOptions,
) -> Result<CpuSet, CpuError> {
    around(layout, &available.union(current), current, count, options)
}

fn around(
    layout: &CpuLayout,
    pool: &CpuSet,
    keep: &CpuSet,
    count: usize,
    options: CpuOptions,
) -> Result<CpuSet, CpuError> {
    let (pool, keep) = (layout.known(pool), layout.known(keep));
    check_whole_cores(layout, count, &pool, options)?;
    if keep.is_empty() {
        return assign_across(layout, &pool, count, 1, options);
    }
    if count > pool.len() {
        return Err(CpuError::NotEnough { requested: count, available: pool.len() });
    }
    let Some(missing) = count.checked_sub(keep.len()) else {
        return Err(CpuError::KeepsMore { requested: count, keep });
    };
    let near = layout.closure(Level::Node, &keep).intersection(&pool);
    let from = if near.len() >= count { near } else { pool };
    let mut stock = Stock::new(layout, &from, keep, missing);
    packed::assign(&mut stock, options);
    Ok(stock.into_taken())
}
