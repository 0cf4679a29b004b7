//! The undo log: what every file held before the daemon first wrote to it, and everything else that `restore`
//! and the next daemon must know.
//!
//! Problem: a daemon that is killed must leave a host that can be put back, and the next one must know what
//! it holds. Idea: each fact is one line of one enum ([`record`]), added before it takes effect and folded
//! when it is read ([`log`]). The views are small folds:
//!
//! | file | records | writer | why a file of its own |
//! |---|---|---|---|
//! | `journal` | originals of files, grants of containers ([`originals`]) | turns, `restore`; under the lock | |
//! | `making` | containers that are being created ([`making_record`]) | thread `making` | an answer to a runtime waits for its line, and for nothing that a turn writes |
//! | `pins` | pins that wait to be given back ([`pins_record`]) | thread `making` | bars nothing: it may be lost, damaged or too long, and the others go on |
//! | `brakes` | workloads that are slowed down ([`brake_record`]) | thread `brake`, and the process that watches over it | that process adds lines to an open file, so the file is never replaced meanwhile |
//! | `interrupts` | interrupts whose CPUs are set ([`interrupt_record`]) | turns, `restore`; under the lock | its lines are about no cgroup |
//! | `drift` | repairs per workload ([`drift_record`]) | turns | bars nothing, as `pins` |
//! | `pause` | a pause ([`pause_record`]) | thread `control` | without the lock, in each mode; alone outlives a boot |
//!
//! Root writes these values to the host. So a log is read only from a directory and files that belong to root
//! or to the daemon's user and that no other user may write, and no symlink is followed.
//!
//! A last line that a crash cut off is dropped with a warning ([`reading`]): its write was not made. Any
//! other unreadable line is no record and is named. Its file is kept beside the new one, and each restore
//! names it until an administrator removes it ([`set_aside`]).

mod brake_record;
mod drift_record;
mod entry;
mod error;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests, of other crates too")]
pub mod fake_disk;
mod files;
mod interrupt_record;
mod kept_lines;
mod lines;
mod lock;
mod log;
mod making_record;
mod originals;
mod pause_record;
mod pins_record;
mod reading;
mod record;
mod tail;
#[cfg(test)]
mod tests;
mod thread_room;

pub(super) use self::entry::is_of_another_boot;
pub use self::{
    brake_record::{BrakeRecord, RecordedBrakes, released_line},
    drift_record::DriftRecord,
    entry::{Entry, EntryKey},
    error::JournalError,
    files::{check_owned, set_aside},
    interrupt_record::{InterruptRecord, RecordedInterrupts},
    kept_lines::KeptLines,
    making_record::{LeftMaking, MADE_WITHIN, MakingRecord},
    originals::{Journal, JournalContents},
    pause_record::PauseRecord,
    pins_record::{LeftPins, PinsRecord},
    record::{Granted, Made, NotedPins, RecordedBrake, RecordedInterrupt, RecordedPause},
    thread_room::{ThreadRoom, say_left_out},
};
