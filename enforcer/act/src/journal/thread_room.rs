//! How much one entry may say of threads that placed themselves.
//!
//! Problem: processes may have any number of pinned threads, but a too long line of the journal is not read.
//! Idea: the bytes of threads are counted before they become an entry; threads without room are left out and
//! logged.
//!
//! Invariant: an entry that was made so has a line that is read: a path has 4,096 bytes and a list of CPUs at
//! most 20 KiB, escaped six times as much.

use enforcer_core::self_placement::SelfPlacedThread;

/// Threads of one entry.
const MOST_THREADS: usize = 2_048;
/// Bytes of them in its line.
const MOST_BYTES: usize = 512 << 10;

/// Remaining room of one entry.
#[derive(Debug, Clone)]
pub struct ThreadRoom {
    threads: usize,
    bytes: usize,
}

impl Default for ThreadRoom {
    fn default() -> Self {
        Self { threads: MOST_THREADS, bytes: MOST_BYTES }
    }
}

impl ThreadRoom {
    /// Takes the room that a thread needs; false where there is not so much.
    pub fn takes(&mut self, thread: &SelfPlacedThread) -> bool {
        // And a comma.
        let bytes = serde_json::to_string(thread).map_or(usize::MAX, |text| text.len().saturating_add(1));
        let left = self.threads.checked_sub(1).zip(self.bytes.checked_sub(bytes));
        if let Some((threads, bytes)) = left {
            (self.threads, self.bytes) = (threads, bytes);
        }
        left.is_some()
    }
}

/// Merges the threads recorded `first` with those of `now`, as far as there is room. A new pin of a
/// thread replaces its first one. Recorded threads that are gone are dropped first, the oldest before
/// others.
pub(super) fn threads_after(first: &[SelfPlacedThread], now: &[SelfPlacedThread]) -> Vec<SelfPlacedThread> {
    let is_seen = |known: &SelfPlacedThread| now.iter().any(|thread| thread.is(known));
    let is_new = |thread: &&SelfPlacedThread| !first.iter().any(|known| known.is(thread));
    let new: Vec<&SelfPlacedThread> = now.iter().filter(is_new).collect();
    let mut first = first.to_vec();
    for known in &mut first {
        if let Some(seen) = now.iter().find(|seen| known.is_repinned(seen)) {
            known.follow_pin(seen);
        }
    }
    let mut room = ThreadRoom::default();
    let mut kept: Vec<bool> = first.iter().map(|known| is_seen(known) && room.takes(known)).collect();
    let seen = first.iter().filter(|known| is_seen(known)).count();
    let added: Vec<SelfPlacedThread> =
        new.iter().filter(|thread| room.takes(thread)).map(|thread| (*thread).clone()).collect();
    let left_out = seen + new.len() - added.len() - kept.iter().filter(|kept| **kept).count();
    if left_out > 0 {
        say_left_out(left_out);
    }
    for (known, kept) in first.iter().zip(&mut kept).rev() {
        *kept = *kept || (!is_seen(known) && room.takes(known));
    }
    let known = first.iter().zip(kept).filter(|(_, kept)| *kept).map(|(known, _)| known.clone());
    known.chain(added).collect()
}

/// Logs the number of threads that are not recorded.
pub fn say_left_out(threads: usize) {
    tracing::warn!(
        "{threads} threads that placed themselves are not recorded, an entry of the journal has no room for more: \
         their policies and pins cannot be put back"
    );
}

#[cfg(test)]
mod tests {
    use enforcer_core::workload::CgroupPath;

    use super::{
        super::{
            entry::{Entry, EntryKey},
            lines::{LONGEST, decode, encode},
            record::Record,
        },
        *,
    };
    use crate::cpuset::ManagedFile;

    fn thread(tid: usize, cpus: usize) -> SelfPlacedThread {
        let every_other: Vec<String> = (0..cpus).map(|cpu| (cpu * 2).to_string()).collect();
        serde_json::from_value(serde_json::json!({
            "pid": 1, "tid": tid, "start_ticks": 1, "command": "t", "cpus": every_other.join(","),
        }))
        .unwrap()
    }

    fn entry(threads: Vec<SelfPlacedThread>) -> Entry {
        Entry { threads, ..Entry::of_file("0-3\n", None) }
    }

    #[test]
    fn entry_of_any_number_of_threads_is_written_as_a_line_that_is_read() {
        for (threads, cpus, kept) in
            [(0, 512, 0..=0), (1, 512, 1..=1), (4_096, 1, 2_048..=2_048), (300, 4_096, 8..=64)]
        {
            let key = EntryKey { cgroup: CgroupPath::new("/db"), file: ManagedFile::Cpus, inode: 7 };
            let all: Vec<_> = (0..threads).map(|tid| thread(tid, cpus)).collect();
            let entry = entry(threads_after(&[], &all));
            let line = encode(&Record::Before { key, entry }).unwrap();
            assert!(u64::try_from(line.len()).unwrap() < LONGEST);
            let Ok(Record::Before { entry, .. }) = decode(line.trim_end()) else {
                panic!("{threads} threads: not read");
            };
            assert!(kept.contains(&entry.threads.len()), "{threads}: {}", entry.threads.len());
        }
    }

    #[test]
    fn threads_that_ended_give_way_to_those_that_are_seen_the_oldest_first() {
        let of = |tids: std::ops::Range<usize>| tids.map(|tid| thread(tid, 1)).collect::<Vec<_>>();
        let tids = |threads: Vec<SelfPlacedThread>| threads.iter().map(|one| one.tid).collect::<Vec<_>>();
        let all = tids(threads_after(&of(0..2_048), &of(2_000..2_100)));
        assert_eq!(all, (52..2_100).collect::<Vec<_>>(), "2,000-2,047 are seen, 2,048-2,099 new");
        assert_eq!(tids(threads_after(&of(0..6), &of(5..7))), [0, 1, 2, 3, 4, 5, 6]);
    }
}
