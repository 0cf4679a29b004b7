//! Writes the records of pending containers and of pins on a thread of its own.
//!
//! Problem: a line must be in the record before the runtime gets its answer, and a stuck disk can block a
//! write for any time. Under the ledger's lock that would stop every creation and every turn. Idea: a thread
//! takes the lines in order. An answer waits for its own line, without the lock and for a bounded time; an
//! unwritten line counts as not recorded.
//!
//! Invariants: the caller's thread never reads or writes a file here. The queue is bounded. While a write is
//! stuck, no further caller waits.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use enforcer_core::workload::CgroupPath;

use crate::threads::{self, Role};
use enforcer_act::journal::{Made, MakingRecord, NotedPins, PinsRecord};

/// Longest wait for all writes of one answer: a runtime waits two seconds for it and disconnects a plugin
/// that is slower.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// Most queued orders; a node creates only some containers at a time.
const MOST_ORDERS: usize = 4_096;

/// Number of an order, counted from 1.
pub(super) type Ticket = u64;

/// An order to the writing thread.
#[derive(Debug)]
enum RecordOrder {
    Made(CgroupPath, Box<Made>),
    Over(Vec<CgroupPath>),
    Pins(BTreeMap<CgroupPath, NotedPins>),
    Check,
}

/// Handle to the thread, which ends with the last handle.
#[derive(Debug)]
pub(super) struct RecordWriter {
    shared: Arc<RecordWriterState>,
    boot_id: Option<String>,
}

#[derive(Debug, Default)]
struct RecordWriterState {
    queue: Mutex<RecordQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RecordQueue {
    orders: VecDeque<RecordOrder>,
    /// Number of orders given and carried out.
    given: Ticket,
    done: Ticket,
    /// Begin of the current write.
    begun: Option<Instant>,
    /// The current write is of pins.
    writes_pins: bool,
    /// Failed orders that a caller may still wait for.
    failed: BTreeSet<Ticket>,
    /// Why the latest line could not be written.
    trouble: Option<String>,
    closed: bool,
}

impl RecordWriter {
    /// Starts with the record's current content.
    pub(super) fn start(mut record: MakingRecord, left: BTreeMap<CgroupPath, Made>) -> Self {
        record.take_for_pending(left);
        let boot_id = record.boot_id().map(str::to_owned);
        let shared = Arc::new(RecordWriterState::default());
        let own = Arc::clone(&shared);
        let spawned = threads::spawn(Role::Making, move || own.carry_out(record));
        if let Err(error) = spawned {
            let mut queue = shared.lock();
            queue.trouble =
                Some(format!("starting the thread that writes the record of containers: {error}"));
            queue.closed = true;
        }
        Self { shared, boot_id }
    }

    /// Id of this boot, if known.
    pub(super) fn boot_id(&self) -> Option<&str> {
        self.boot_id.as_deref()
    }

    /// Records that a container of this cgroup is created or gets a cpuset.
    pub(super) fn record(&self, cgroup: &CgroupPath, made: &Made) -> Ticket {
        self.shared.give(RecordOrder::Made(cgroup.clone(), Box::new(made.clone())))
    }

    /// Drops entries that are in the journal, and those of ended containers.
    pub(super) fn over(&self, cgroups: Vec<CgroupPath>) {
        self.shared.give(RecordOrder::Over(cgroups));
    }

    /// Replaces the pins that wait to be restored.
    pub(super) fn pins(&self, all: BTreeMap<CgroupPath, NotedPins>) -> Ticket {
        self.shared.give(RecordOrder::Pins(all))
    }

    /// Handle to wait with, without the ledger's lock.
    pub(super) fn waiter(&self) -> Waiter {
        Waiter(Arc::clone(&self.shared))
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

/// Waits for orders.
#[derive(Debug, Clone)]
pub(super) struct Waiter(Arc<RecordWriterState>);

impl Waiter {
    /// Until when an answer waits that is made now.
    pub(super) fn deadline() -> Instant {
        Instant::now() + WRITTEN_WITHIN
    }

    /// Waits for a line without which nothing may be told. That it is late is known until one is written
    /// again.
    pub(super) fn wait_for_line(&self, ticket: Ticket, until: Instant) -> Result<(), String> {
        self.wait(ticket, until).map_err(|error| {
            let error = format!("the record of containers: {error}");
            self.0.lock().trouble.get_or_insert_with(|| error.clone());
            error
        })
    }

    /// Waits until the order is carried out, and no longer than that. The error says why it is not.
    pub(super) fn wait(&self, ticket: Ticket, until: Instant) -> Result<(), String> {
        let mut queue = self.0.lock();
        loop {
            if queue.failed.remove(&ticket) {
                return Err(queue.trouble.clone().unwrap_or_else(|| "the line was not written".to_owned()));
            }
            if queue.done >= ticket {
                return Ok(());
            }
            if let Some(trouble) = queue.trouble.as_ref().filter(|_| queue.closed) {
                return Err(trouble.clone());
            }
            if let Some(stuck) = queue.stuck() {
                return Err(stuck);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "an answer has waited {} s for it to be written",
                    WRITTEN_WITHIN.as_secs()
                ));
            }
            queue = self.0.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Checks that lines can be written; tries it only if the latest write failed. The error says why not.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_fine = {
            let queue = self.0.lock();
            // Pins that are late keep nothing from being told.
            queue.trouble.is_none() && (queue.writes_pins || queue.stuck().is_none())
        };
        if is_fine {
            return Ok(());
        }
        let ticket = self.0.give(RecordOrder::Check);
        self.wait_for_line(ticket, Self::deadline())
    }
}

impl RecordQueue {
    fn stuck(&self) -> Option<String> {
        let since = self.begun?.elapsed();
        (since > WRITTEN_WITHIN).then(|| format!("the disk has not answered for {} s", since.as_secs()))
    }
}

impl RecordWriterState {
    fn lock(&self) -> MutexGuard<'_, RecordQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, order: RecordOrder) -> Ticket {
        let mut queue = self.lock();
        if queue.closed || queue.orders.len() >= MOST_ORDERS {
            let why = || format!("{MOST_ORDERS} lines of the record of containers wait to be written");
            queue.trouble.get_or_insert_with(why);
            // This ticket never succeeds.
            queue.failed.insert(Ticket::MAX);
            return Ticket::MAX;
        }
        // One queued check is enough.
        let is_check = matches!(order, RecordOrder::Check);
        if !is_check || !matches!(queue.orders.back(), Some(RecordOrder::Check)) {
            queue.given += 1;
            queue.orders.push_back(order);
            self.changed.notify_all();
        }
        queue.given
    }

    /// Runs until the last handle is gone and every order is carried out.
    fn carry_out(&self, mut record: MakingRecord) {
        let pins = record.of_pins();
        let mut queue = self.lock();
        loop {
            let Some(order) = queue.orders.pop_front() else {
                if queue.closed {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.begun = Some(Instant::now());
            queue.writes_pins = matches!(order, RecordOrder::Pins(_));
            drop(queue);
            let written = write(&mut record, &pins, order);
            queue = self.lock();
            queue.begun = None;
            queue.done += 1;
            if let Some(written) = written {
                queue.trouble = written.err();
                if queue.trouble.is_some() {
                    let ticket = queue.done;
                    queue.failed.insert(ticket);
                    // Failed orders without a waiting caller.
                    while queue.failed.len() > MOST_ORDERS {
                        queue.failed.pop_first();
                    }
                }
            }
            self.changed.notify_all();
        }
    }
}

/// Carries one order out. `None` where its failure blocks no answer.
fn write(record: &mut MakingRecord, pins: &PinsRecord, order: RecordOrder) -> Option<Result<(), String>> {
    match order {
        RecordOrder::Made(cgroup, made) => {
            Some(record.add(&cgroup, &made).map_err(|error| error.to_string()))
        }
        RecordOrder::Over(cgroups) => {
            if let Err(error) = record.over(cgroups) {
                tracing::warn!("{error}");
            }
            None
        }
        RecordOrder::Pins(all) => {
            if let Err(error) = pins.keep(&all) {
                tracing::warn!(
                    "where threads have pinned themselves is lost if this daemon ends now: {error}"
                );
            }
            None
        }
        RecordOrder::Check => Some(record.check()),
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs, os::unix::ffi::OsStrExt};

    use enforcer_core::hosted::Cpuset;

    use super::*;

    fn made() -> Made {
        Made { original: Cpuset::default(), renews: false, granted: None, boot_id: None, told_ns: 7 }
    }

    fn wait(writer: &RecordWriter, ticket: Ticket) -> Result<(), String> {
        let waiter = writer.waiter();
        waiter.wait_for_line(ticket, Waiter::deadline())
    }

    #[test]
    fn a_line_is_there_when_it_was_waited_for_and_goes_when_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (record, left) = MakingRecord::open(dir.path(), None).unwrap();
        let writer = RecordWriter::start(record, left.made);
        let cgroup = CgroupPath::new("/a");
        let ticket = writer.record(&cgroup, &made());
        assert_eq!(wait(&writer, ticket), Ok(()));
        let known = || MakingRecord::left(dir.path(), None).unwrap().made.into_keys().collect::<Vec<_>>();
        assert_eq!(known(), std::slice::from_ref(&cgroup));
        writer.over(vec![cgroup.clone()]);
        let ticket = writer.record(&CgroupPath::new("/b"), &made());
        wait(&writer, ticket).unwrap();
        assert_eq!(known(), [CgroupPath::new("/b")]);
    }

    #[test]
    fn a_disk_that_is_full_is_told_and_tried_again() {
        let full = MakingRecord::at(std::path::Path::new("/dev/full"));
        let writer = RecordWriter::start(full, BTreeMap::new());
        assert_eq!(writer.waiter().check(), Ok(()), "it has not been looked at");
        let ticket = writer.record(&CgroupPath::new("/a"), &made());
        assert!(wait(&writer, ticket).unwrap_err().contains("/dev/full"));
        assert!(writer.waiter().check().is_err());
    }

    /// A disk that has written the line of an answer, and not the pins that its threads have.
    #[test]
    fn pins_that_are_not_written_in_time_are_told_and_bar_nothing() {
        let shared = Arc::new(RecordWriterState::default());
        let waiter = Waiter(Arc::clone(&shared));
        let give = |order| shared.give(order);
        let line = |cgroup: &str| RecordOrder::Made(CgroupPath::new(cgroup), Box::new(made()));
        let (first, pins) = (give(line("/a")), give(RecordOrder::Pins(BTreeMap::new())));
        shared.lock().done = first;
        // One time for all that an answer needs, which is over.
        let until = Instant::now();
        assert_eq!(waiter.wait_for_line(first, until), Ok(()));
        let error = waiter.wait(pins, until).unwrap_err();
        assert!(error.contains("an answer has waited"), "{error}");
        assert_eq!(waiter.check(), Ok(()));
        {
            let mut queue = shared.lock();
            queue.begun = until.checked_sub(2 * WRITTEN_WITHIN);
            queue.writes_pins = true;
        }
        let error = waiter.wait(pins, Waiter::deadline()).unwrap_err();
        assert!(
            error.contains("the disk has not answered for"),
            "and nothing is waited for once more: {error}"
        );
        assert_eq!(waiter.check(), Ok(()));
        let error = waiter.wait_for_line(give(line("/b")), until).unwrap_err();
        assert!(error.contains("the record of containers"), "{error}");
        assert!(waiter.check().is_err(), "a line that is late does");
    }

    /// An unread pipe blocks a write like a stuck disk.
    #[test]
    fn stuck_disk_is_named_and_blocks_no_caller_beyond_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("making");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &*name,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let reader = fs::File::options().read(true).write(true).open(&path).unwrap();
        let writer = RecordWriter::start(MakingRecord::at(&path), BTreeMap::new());
        // More than a pipe holds.
        let tickets: Vec<Ticket> =
            (0..1_000).map(|_| writer.record(&CgroupPath::new("/a"), &made())).collect();
        let last = *tickets.last().unwrap();
        let error = wait(&writer, last).unwrap_err();
        assert!(error.contains("the record of containers"), "{error}");
        let error = writer.waiter().check().unwrap_err();
        assert!(error.contains("the disk has not answered for"), "{error}");
        drop(reader);
    }
}
