//! Moves what is in given ranges of processes from one node to another.
//!
//! The ranges are what a [`PageFlow`] says, and of these only the pages that are on the node it comes from
//! are touched. The kernel refuses a target that the process's cpuset does not allow, and that refusal is the
//! safety of it: nothing here may get around it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
};

use enforcer_core::demotion::{AddressRange, PageFlow, ProcessRange};
use numa_topology::{id::NodeId, set::NodeSet};

use super::{
    PageBudget, PageMove, PageMoveReport,
    extent::{Extent, read_extents},
    incarnation::{Incarnation, is_reused},
    is_gone,
};
use enforcer_host::HostPath;
use enforcer_kernel::Kernel;

/// Moves a flow within the budget, of which its own bytes are the limit. Processes that ended are done.
pub fn move_flow(
    kernel: &dyn Kernel,
    proc: &HostPath,
    budget: &mut PageBudget,
    flow: &PageFlow,
) -> PageMoveReport {
    budget.renew_with(flow.bytes);
    let from: NodeSet = [flow.from].into_iter().collect();
    let mut step = PageMove::new(kernel, proc, budget);
    let mut extents: BTreeMap<u32, (Incarnation, Vec<Extent>)> = BTreeMap::new();
    for piece in &flow.pieces {
        if step.budget.spent().is_some() {
            break;
        }
        if let Err(error) = move_piece(&mut step, piece, &from, flow.to, &mut extents) {
            if is_reused(&error) {
                step.report.reused.entry(piece.pid).or_default();
            } else if !is_gone(&error) {
                step.report.refused.push((piece.pid, error.to_string()));
            }
            // One word of a process is enough.
            let process = Incarnation::now(step.proc, piece.pid);
            extents.insert(piece.pid, (process, Vec::new()));
        }
    }
    step.report
}

fn move_piece(
    step: &mut PageMove<'_>,
    piece: &ProcessRange,
    from: &NodeSet,
    to: NodeId,
    extents: &mut BTreeMap<u32, (Incarnation, Vec<Extent>)>,
) -> io::Result<()> {
    let (process, known) = match extents.entry(piece.pid) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => {
            let process = Incarnation::now(step.proc, piece.pid);
            let read = read_extents(&step.proc.join(piece.pid.to_string()), from)?;
            step.report.processes += 1;
            place.insert((process, read))
        }
    };
    for part in within(known, piece.range) {
        step.move_extent(process, part, from, to)?;
    }
    Ok(())
}

/// The whole pages of the extents that lie in the range.
pub(super) fn within(extents: &[Extent], range: AddressRange) -> Vec<Extent> {
    let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else {
        return Vec::new();
    };
    let cut = extents.iter().filter_map(|extent| {
        let size = extent.page_bytes;
        let first = extent.start.max(start) - extent.start;
        let last = extent.end.min(end).checked_sub(extent.start)?;
        let part = Extent {
            start: extent.start.checked_add(first.checked_next_multiple_of(size)?)?,
            end: extent.start + last / size * size,
            ..*extent
        };
        (part.start < part.end).then_some(part)
    });
    cut.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::pages::{PageMoveLimits, Stop};
    use enforcer_host::HostRoot;
    use enforcer_kernel::fake::FakeKernel;

    const START: usize = 0x7f00_0000_0000;
    const PAGE: usize = 4096;

    fn extent(start: usize, pages: usize) -> Extent {
        Extent {
            start,
            end: start + pages * PAGE,
            page_bytes: PAGE,
            pages: pages as u64,
            sharers: 1,
            file: None,
        }
    }

    fn range(start: usize, pages: usize) -> AddressRange {
        AddressRange { start: start as u64, end: (start + pages * PAGE) as u64 }
    }

    /// 100 pages on node 0, and 10 more in a second mapping, on node 1.
    fn process() -> (tempfile::TempDir, FakeKernel) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("42")).unwrap();
        let line = "7f0000000000 default anon=100 N0=100 kernelpagesize_kB=4\n";
        fs::write(dir.path().join("42/numa_maps"), line).unwrap();
        let end = START + 100 * PAGE;
        fs::write(dir.path().join("42/maps"), format!("{START:x}-{end:x} rw-p 0 0:0 0\n")).unwrap();
        let kernel = FakeKernel::default();
        kernel.map(42, START, 100, 0);
        kernel.map(42, end, 10, 1);
        (dir, kernel)
    }

    fn flow(pieces: &[(u32, AddressRange)], pages: usize) -> PageFlow {
        let pieces = pieces.iter().map(|(pid, range)| ProcessRange { pid: *pid, range: *range }).collect();
        PageFlow { from: NodeId(0), to: NodeId(2), pieces, bytes: (pages * PAGE) as u64 }
    }

    #[test]
    fn an_extent_is_cut_to_its_whole_pages_in_the_range() {
        let known = [extent(START, 10), extent(START + 20 * PAGE, 10)];
        let of = |start: usize, end: usize| {
            let range = AddressRange { start: start as u64, end: end as u64 };
            let cut = within(&known, range).into_iter();
            cut.map(|one| ((one.start - START) / PAGE, (one.end - START) / PAGE)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, usize::MAX), [(0, 10), (20, 30)]);
        assert_eq!(of(START + PAGE + 1, START + 25 * PAGE - 1), [(2, 10), (20, 24)]);
        assert!(of(START + 1, START + PAGE).is_empty());
        assert!(of(START + 10 * PAGE, START + 20 * PAGE).is_empty());
    }

    #[test]
    fn only_what_is_in_the_ranges_and_on_the_node_moves() {
        let (dir, kernel) = process();
        let mut budget = PageBudget::new(PageMoveLimits::default(), Stop::default());
        let flow = flow(&[(42, range(START + 50 * PAGE, 100)), (43, range(START, 10))], 1000);
        let report = move_flow(&kernel, &HostRoot::live().at(dir.path()), &mut budget, &flow);
        assert_eq!((report.moved_bytes, report.processes), (50 * 4096, 1), "{report:?}");
        assert_eq!((kernel.count_on(0), kernel.count_on(1), kernel.count_on(2)), (50, 10, 50));
        assert!(report.refused.is_empty(), "a process that ended is done");
    }

    #[test]
    fn no_more_than_the_flows_bytes_move_and_the_next_flow_has_its_own() {
        let (dir, kernel) = process();
        let mut budget = PageBudget::new(PageMoveLimits::default(), Stop::default());
        for moved in [30, 60, 90] {
            move_flow(
                &kernel,
                &HostRoot::live().at(dir.path()),
                &mut budget,
                &flow(&[(42, range(START, 100))], 30),
            );
            assert_eq!(kernel.count_on(2), moved);
        }
    }

    #[test]
    fn a_cpuset_that_does_not_allow_the_target_is_one_word_for_each_process() {
        let (dir, mut kernel) = process();
        kernel.failing.insert(42, rustix::io::Errno::ACCESS.raw_os_error());
        let mut budget = PageBudget::new(PageMoveLimits::default(), Stop::default());
        let flow = flow(&[(42, range(START, 10)), (42, range(START + 20 * PAGE, 10))], 100);
        let report = move_flow(&kernel, &HostRoot::live().at(dir.path()), &mut budget, &flow);
        assert_eq!((report.moved_bytes, report.refused.len()), (0, 1), "{report:?}");
        assert_eq!(kernel.count_on(0), 100);
    }
}
