//! Pages of a process by node, for cgroups without such counts.
//!
//! Reading `numa_maps` walks the page tables of the process with its mmap lock held, in time proportional to
//! its memory. So it is read only on request, for a bounded number of processes.

use std::{
    io::{BufRead, Read},
    path::Path,
};

use ::procfs::{FromBufRead, ProcError, ProcResult, process::Process};
use enforcer_core::parse::numa_maps::NumaMaps;

use super::procfs::is_plain;

/// Most bytes of a file that are read: two million mappings.
pub(super) const LIMIT: u64 = 256 << 20;
/// Most bytes of a line; a path has at most 4,096, each escaped to four.
pub(super) const LINE_LIMIT: u64 = 32 << 10;

/// [`NumaMaps`] as the procfs crate reads it.
struct ProcNumaMaps(NumaMaps);

impl FromBufRead for ProcNumaMaps {
    fn from_buf_read<R: BufRead>(reader: R) -> ProcResult<Self> {
        let mut maps = NumaMaps::default();
        let mut reader = reader.take(LIMIT);
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line)? == 0 {
                return Ok(Self(maps));
            }
            maps.add_line(&String::from_utf8_lossy(&line))
                .map_err(|error| ProcError::Other(error.to_string()))?;
        }
    }
}

/// Adds up the mappings of a process; it needs the right to trace it (`PTRACE_MODE_READ`).
pub(super) fn read_numa_maps(proc: &Path, pid: u32, captured: bool) -> ProcResult<NumaMaps> {
    let dir = proc.join(pid.to_string());
    if captured && !is_plain(proc, &format!("{pid}/numa_maps")) {
        return Err(ProcError::NotFound(Some(dir)));
    }
    Ok(Process::new_with_root(dir)?.read::<_, ProcNumaMaps>("numa_maps")?.0)
}

#[cfg(test)]
mod tests {
    use enforcer_core::sample::NodeBytes;
    use numa_topology::id::NodeId;

    use super::*;

    #[test]
    fn streams_lines() {
        let text =
            "1000 default anon=2 N0=2 kernelpagesize_kB=4\n2000 default file=/a N1=1 kernelpagesize_kB=4";
        let maps = ProcNumaMaps::from_buf_read(text.as_bytes()).unwrap().0;
        let file = NodeBytes { file: 4096, shmem: Some(0), file_mapped: Some(4096), ..NodeBytes::default() };
        assert_eq!(maps.by_node[&NodeId(1)], file);
        assert_eq!(maps.by_node[&NodeId(0)].anon, 8192);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(ProcNumaMaps::from_buf_read("what\n".as_bytes()).is_err());
        let endless = std::io::BufReader::new(std::io::repeat(b'a').take(1 << 20));
        assert!(ProcNumaMaps::from_buf_read(endless).is_err());
    }

    #[test]
    fn this_process_has_anonymous_memory() {
        // A kernel without NUMA has no such file.
        if Path::new("/proc/self/numa_maps").is_file() {
            let maps = read_numa_maps(Path::new("/proc"), std::process::id(), false).unwrap();
            assert!(maps.by_node.values().map(|bytes| bytes.anon).sum::<u64>() > 0);
        }
    }
}
