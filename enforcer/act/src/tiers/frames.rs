//! Which pages of a flow are there, and in which frames of physical memory.
//!
//! The ranges of a flow are addresses; whether pages are in them, on which node and in which frames, changes
//! all the time. Reclaim must not be asked for more than is there, and DAMON, of physical memory, watches and
//! moves frames: those of pages that are cold, and of no others (`/proc/PID/pagemap`,
//! Documentation/admin-guide/mm/pagemap.rst). Pages that other processes map as well are left out of the
//! frames, as `move_pages(2)` leaves them where they are.
//!
//! Cost: one question per page of the ranges until the flow's bytes are found, and eight bytes of pagemap for
//! each.

use std::{fs::File, ops::Range, os::unix::fs::FileExt as _};

use enforcer_core::demotion::PageFlow;

use super::Deadline;
use crate::pages::each_there;
use enforcer_host::HostPath;
use enforcer_kernel::Kernel;

/// Most runs of frames given to DAMON, each a region of its own.
const RUNS: usize = 256;
/// Bits of an entry: page present, mapped exclusively by this process, frame number.
const PRESENT: u64 = 1 << 63;
const OURS_ALONE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// Physical memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageFrames {
    /// Addresses, in order, none twice.
    pub runs: Vec<Range<u64>>,
}

impl PageFrames {
    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }
}

/// Bytes of the flow that are there, up to the flow's own.
pub fn bytes_there(kernel: &dyn Kernel, proc: &HostPath, flow: &PageFlow, deadline: &Deadline) -> u64 {
    let mut bytes = 0u64;
    each_there(kernel, proc, flow, &|| deadline.is_over(), &mut |_, pages| {
        bytes += (pages.len() * page_bytes()) as u64;
        Ok(bytes < flow.bytes)
    });
    bytes.min(flow.bytes)
}

/// Frames of the present pages of the flow, up to its bytes: the longest runs. The error says why frames are
/// unknown.
pub fn frames_there(
    kernel: &dyn Kernel,
    proc: &HostPath,
    flow: &PageFlow,
    deadline: &Deadline,
) -> Result<PageFrames, String> {
    let (mut frames, mut hidden) = (Vec::new(), false);
    let wanted = flow.bytes / page_bytes() as u64;
    each_there(kernel, proc, flow, &|| deadline.is_over(), &mut |pid, pages| {
        let file = File::open(proc.join(format!("{pid}/pagemap")).as_path())?;
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return Ok(true) };
        let mut entries = vec![0; ((last - first) / page_bytes() + 1) * 8];
        file.read_exact_at(&mut entries, (first / page_bytes() * 8) as u64)?;
        let entry = |page: &usize| {
            let at = (page - first) / page_bytes() * 8;
            let bytes = entries.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes)).filter(|entry| entry & PRESENT != 0)
        };
        for entry in pages.iter().filter_map(entry) {
            hidden |= entry & FRAME == 0;
            if entry & OURS_ALONE != 0 && entry & FRAME != 0 && (frames.len() as u64) < wanted {
                frames.push(entry & FRAME);
            }
        }
        Ok(!hidden && (frames.len() as u64) < wanted)
    });
    if hidden {
        return Err("the kernel tells frames (/proc/PID/pagemap) only to processes with CAP_SYS_ADMIN".into());
    }
    Ok(longest_runs(frames))
}

fn longest_runs(mut frames: Vec<u64>) -> PageFrames {
    frames.sort_unstable();
    frames.dedup();
    let size = page_bytes() as u64;
    let mut runs: Vec<Range<u64>> = Vec::new();
    for frame in frames {
        let start = frame.saturating_mul(size);
        match runs.last_mut().filter(|run| run.end == start) {
            Some(run) => run.end += size,
            None => runs.push(start..start.saturating_add(size)),
        }
    }
    runs.sort_by_key(|run| (std::cmp::Reverse(run.end - run.start), run.start));
    runs.truncate(RUNS);
    runs.sort_by_key(|run| run.start);
    PageFrames { runs }
}

fn page_bytes() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Duration};

    use enforcer_core::demotion::{AddressRange as Addresses, ProcessRange};
    use numa_topology::id::NodeId;

    use super::*;
    use crate::pages::Stop;
    use enforcer_host::HostRoot;
    use enforcer_kernel::fake::FakeKernel;

    const START: usize = 0x20_0000;
    const PAGE: usize = 4096;

    /// 64 pages of process 7 from `START` on: each third is on node 2, the others on node 0.
    fn process() -> (tempfile::TempDir, FakeKernel) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("7")).unwrap();
        let line = format!("{START:x} default anon=64 N0=42 N2=22 kernelpagesize_kB=4\n");
        // Huge pages of hugetlbfs are nothing that reclaim or DAMON would move.
        let huge = "40000000 default file=/x huge N0=1 kernelpagesize_kB=2048\n";
        fs::write(dir.path().join("7/numa_maps"), format!("{line}{huge}")).unwrap();
        let end = START + 64 * PAGE;
        let maps = format!("{START:x}-{end:x} rw-p 0 0:0 0\n40000000-40200000 rw-p 0 0:0 0\n");
        fs::write(dir.path().join("7/maps"), maps).unwrap();
        let kernel = FakeKernel::default();
        for page in 0..64 {
            kernel.map(7, START + page * PAGE, 1, if page % 3 == 2 { 2 } else { 0 });
        }
        kernel.map(7, 0x4000_0000, 1, 0);
        (dir, kernel)
    }

    /// Entries of the 64 pages.
    fn on_host(dir: &tempfile::TempDir) -> HostPath {
        HostRoot::live().at(dir.path())
    }

    fn pagemap(dir: &Path, entry: impl Fn(u64) -> u64) {
        let file = fs::File::create(dir.join("7/pagemap")).unwrap();
        for page in 0..64 {
            let at = (START / PAGE * 8) as u64 + page * 8;
            file.write_all_at(&entry(page).to_le_bytes(), at).unwrap();
        }
    }

    fn flow(bytes: usize) -> PageFlow {
        let whole = |pid| ProcessRange { pid, range: Addresses { start: 0, end: u64::MAX } };
        let pieces = vec![whole(9), whole(7)];
        PageFlow { from: NodeId(0), to: NodeId(2), pieces, bytes: bytes as u64 }
    }

    fn long() -> Deadline {
        Deadline::after(Duration::from_mins(10), &Stop::default())
    }

    #[test]
    fn only_pages_on_the_node_count_and_no_more_than_the_flow_is_of() {
        let (dir, kernel) = process();
        for (bytes, expected) in [(usize::MAX >> 1, 43 * PAGE), (10 * PAGE, 10 * PAGE), (0, 0)] {
            assert_eq!(bytes_there(&kernel, &on_host(&dir), &flow(bytes), &long()), expected as u64);
        }
        let over = Deadline::after(Duration::ZERO, &Stop::default());
        assert_eq!(bytes_there(&kernel, &on_host(&dir), &flow(usize::MAX >> 1), &over), 0);
    }

    #[test]
    fn frames_are_of_exclusively_mapped_pages_on_the_node() {
        let (dir, kernel) = process();
        // In the order of their addresses; the first four are shared.
        pagemap(dir.path(), |page| PRESENT | if page < 4 { 0 } else { OURS_ALONE } | (1000 + page));
        let frames = frames_there(&kernel, &on_host(&dir), &flow(usize::MAX >> 1), &long()).unwrap();
        assert_eq!(frames.bytes(), (43 - 3) * 4096);
        let taken = |page: u64| {
            let at = (1000 + page) * 4096;
            frames.runs.iter().any(|run| run.contains(&at))
        };
        for page in 0..64 {
            assert_eq!(taken(page), page >= 4 && page % 3 != 2, "{page}");
        }
        let few = frames_there(&kernel, &on_host(&dir), &flow(5 * PAGE), &long()).unwrap();
        assert_eq!(few.bytes(), 5 * 4096);
    }

    #[test]
    fn hidden_frames_are_an_error_and_a_process_that_is_gone_has_none() {
        let (dir, kernel) = process();
        pagemap(dir.path(), |_| PRESENT | OURS_ALONE);
        let error = frames_there(&kernel, &on_host(&dir), &flow(1 << 20), &long()).unwrap_err();
        assert!(error.contains("CAP_SYS_ADMIN"), "{error}");
        fs::remove_dir_all(dir.path().join("7")).unwrap();
        assert_eq!(
            frames_there(&kernel, &on_host(&dir), &flow(1 << 20), &long()).unwrap(),
            PageFrames::default()
        );
    }

    #[test]
    fn of_many_runs_the_longest_are_taken_and_told_in_order() {
        let scattered = (0..2 * RUNS as u64).map(|run| run * 10);
        let frames: Vec<u64> = scattered.chain([5001, 5002, 5003, 5002]).collect();
        let runs = longest_runs(frames).runs;
        assert_eq!(runs.len(), RUNS);
        assert!(
            runs.contains(&(5000 * 4096..5004 * 4096)),
            "a run of four, with the scattered one before it"
        );
        assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
    }
}
