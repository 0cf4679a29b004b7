//! Finds touched mappings by the marks of page tables: `clear_refs` clears them, `smaps` counts those set
//! again (Documentation/filesystems/proc.rst).
//!
//! Reclaim uses the same marks, and clearing them makes all pages of the process look old to it for a moment.
//! So this is the second choice, used once per round.
//!
//! It sees whole mappings only: a large, partly hot mapping is hot.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::Path,
    time::Instant,
};

use enforcer_core::{
    demotion::AddressRegion,
    parse::smaps::{Referenced, Smaps},
};

/// Most bytes of `smaps` that are read: 65,536 mappings of a thousand bytes each.
const LIMIT: u64 = 64 << 20;
/// Most bytes of a line: a path of 4,096 bytes, each escaped to four.
const LINE: u64 = 32 << 10;

/// Since when each mapping of each process is idle.
#[derive(Debug, Default)]
pub(super) struct ReferencedBits(BTreeMap<u32, BTreeMap<(u64, u64), Instant>>);

impl ReferencedBits {
    /// The mappings of a process as regions; clears the marks for the next look.
    pub(super) fn read_idle(
        &mut self,
        proc: &Path,
        pid: u32,
        now: Instant,
    ) -> Result<Vec<AddressRegion>, String> {
        let dir = proc.join(pid.to_string());
        let mappings = read(&dir.join("smaps")).map_err(|error| format!("reading smaps: {error}"))?;
        fs::write(dir.join("clear_refs"), "1").map_err(|error| format!("writing clear_refs: {error}"))?;
        Ok(self.regions(pid, &mappings, now))
    }

    /// Forgets other processes.
    pub(super) fn only(&mut self, pids: &BTreeSet<u32>) {
        self.0.retain(|pid, _| pids.contains(pid));
    }

    fn regions(&mut self, pid: u32, mappings: &[Referenced], now: Instant) -> Vec<AddressRegion> {
        let before = self.0.remove(&pid).unwrap_or_default();
        let mut quiet = BTreeMap::new();
        let mut regions = Vec::new();
        for mapping in mappings {
            let place = (mapping.start, mapping.end);
            // A new mapping, or one with another size, may have been touched at its creation.
            let since = before.get(&place).copied().filter(|_| mapping.referenced == 0).unwrap_or(now);
            quiet.insert(place, since);
            regions.push(AddressRegion {
                start: mapping.start,
                end: mapping.end,
                touched_percent: percent(mapping),
                unchanged: now.saturating_duration_since(since),
                exact: true,
            });
        }
        self.0.insert(pid, quiet);
        regions
    }
}

fn percent(mapping: &Referenced) -> u8 {
    let percent = mapping.referenced.saturating_mul(100) / mapping.resident.max(1);
    u8::try_from(percent.min(100)).unwrap_or(100).max(u8::from(mapping.referenced > 0))
}

fn read(path: &Path) -> io::Result<Vec<Referenced>> {
    let mut reader = BufReader::new(File::open(path)?.take(LIMIT));
    let (mut smaps, mut line) = (Smaps::default(), Vec::new());
    loop {
        line.clear();
        if reader.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(smaps.into_mappings());
        }
        smaps.add_line(&String::from_utf8_lossy(&line));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mapping(start: u64, end: u64, referenced: u64) -> Referenced {
        Referenced { start, end, resident: 100 << 10, referenced: referenced << 10 }
    }

    #[test]
    fn a_mapping_is_quiet_since_it_was_last_seen_touched() {
        let mut bits = ReferencedBits::default();
        let begin = Instant::now();
        let mut at = |seconds, mappings: &[Referenced]| {
            let regions = bits.regions(7, mappings, begin + Duration::from_secs(seconds));
            regions.iter().map(|one| (one.touched_percent, one.unchanged.as_secs())).collect::<Vec<_>>()
        };
        // Idle time before the first look is unknown.
        assert_eq!(at(0, &[mapping(0, 9, 0), mapping(9, 12, 100)]), [(0, 0), (100, 0)]);
        assert_eq!(at(5, &[mapping(0, 9, 0), mapping(9, 12, 0)]), [(0, 5), (0, 5)]);
        assert_eq!(at(9, &[mapping(0, 9, 0), mapping(9, 12, 40)]), [(0, 9), (40, 0)]);
        // It has grown, so it is another mapping.
        assert_eq!(at(12, &[mapping(0, 10, 0), mapping(9, 12, 0)]), [(0, 0), (0, 3)]);
    }
}
