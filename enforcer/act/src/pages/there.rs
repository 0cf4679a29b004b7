//! Which pages of a flow are there: in its ranges, and on the node that it comes from.
//!
//! For backends that do not move single pages. Pages of hugetlbfs are left out: only `move_pages(2)` moves
//! these.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
};

use enforcer_core::demotion::{PageFlow, ProcessRange};
use numa_topology::set::NodeSet;

use super::{
    extent::{Extent, read_extents},
    flow::within,
    is_gone,
};
use enforcer_host::HostPath;
use enforcer_kernel::{Kernel, PageStatus};

/// Pages of one question.
const BATCH: usize = 4096;

/// Visits them, batch by batch in ascending order, until the visitor returns that it has enough or the time
/// is over. An unreadable process has none.
pub fn each_there(
    kernel: &dyn Kernel,
    proc: &HostPath,
    flow: &PageFlow,
    is_over: &dyn Fn() -> bool,
    see: &mut dyn FnMut(u32, &[usize]) -> io::Result<bool>,
) {
    let mut known = BTreeMap::new();
    for piece in &flow.pieces {
        match each_of(kernel, proc, flow, piece, &mut known, is_over, see) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                if !is_gone(&error) {
                    tracing::debug!("pages of process {}: {error}", piece.pid);
                }
                // One word of a process is enough.
                known.insert(piece.pid, Vec::new());
            }
        }
    }
}

/// Is it not enough yet?
fn each_of(
    kernel: &dyn Kernel,
    proc: &HostPath,
    flow: &PageFlow,
    piece: &ProcessRange,
    known: &mut BTreeMap<u32, Vec<Extent>>,
    is_over: &dyn Fn() -> bool,
    see: &mut dyn FnMut(u32, &[usize]) -> io::Result<bool>,
) -> io::Result<bool> {
    let page_bytes = rustix::param::page_size();
    let extents = match known.entry(piece.pid) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => {
            let from: NodeSet = [flow.from].into_iter().collect();
            let mut extents = read_extents(&proc.join(piece.pid.to_string()), &from)?;
            extents.retain(|extent| extent.page_bytes == page_bytes);
            place.insert(extents)
        }
    };
    for part in within(extents, piece.range) {
        let mut pages = (part.start..part.end).step_by(page_bytes);
        loop {
            let batch: Vec<usize> = pages.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            if is_over() {
                return Ok(false);
            }
            let status = kernel.locate_pages(piece.pid, &batch)?;
            let there = batch.into_iter().zip(status);
            let there = there.filter(|(_, status)| *status == PageStatus::On(flow.from));
            let there: Vec<usize> = there.map(|(page, _)| page).collect();
            if !there.is_empty() && !see(piece.pid, &there)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
