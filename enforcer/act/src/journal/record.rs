//! Everything that a daemon records for `restore` and for the next daemon: one enum. Its variants are the
//! lines of all logs ([`super::log`]).
//!
//! A new kind of record is a variant here and a [`Fold`](super::reading::Fold) over it.

use enforcer_core::{
    hosted::{Cpuset, GrantRecord},
    self_placement::CgroupThreads,
    turn::LastingDrift,
    workload::CgroupPath,
};
use numa_topology::set::CpuSet;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, EntryKey};
use crate::cpuset::ManagedFile;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub(super) enum Record {
    /// Original of a file.
    Before {
        #[serde(flatten)]
        key: EntryKey,
        #[serde(flatten)]
        entry: Entry,
    },
    /// The file holds its original again, or is gone.
    Restored {
        #[serde(flatten)]
        key: EntryKey,
    },
    /// New grant of a container, which replaces the former one.
    Granted {
        id: String,
        #[serde(flatten)]
        grant: Box<GrantRecord>,
    },
    /// The container has no grant any more, or the workload is no longer slowed down.
    Released { id: ReleasedId },
    /// The runtime is told the cpuset of a container.
    Made {
        cgroup: CgroupPath,
        #[serde(flatten)]
        made: Box<Made>,
    },
    /// The journal has the container, or it has ended.
    Over { cgroup: CgroupPath },
    /// Threads of a container for which a runtime is told other CPUs.
    Pinned {
        cgroup: CgroupPath,
        #[serde(flatten)]
        pins: NotedPins,
        boot_id: Option<String>,
    },
    /// The workload is slowed down.
    Slowed(RecordedBrake),
    /// The CPUs of an interrupt are set.
    Steered(RecordedInterrupt),
    /// The interrupt has its original CPUs again, or is gone.
    Unsteered { irq: u32 },
    /// Repairs per workload.
    Drift { drift: LastingDrift },
    /// Enforcement is paused.
    Paused(RecordedPause),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ReleasedId {
    Brake(u64),
    Container(String),
}

impl Record {
    /// Does it last until another record replaces or closes it?
    pub(super) fn opens(&self) -> bool {
        !matches!(
            self,
            Self::Restored { .. } | Self::Released { .. } | Self::Over { .. } | Self::Unsteered { .. }
        )
    }

    /// Why it cannot be what a daemon wrote.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Self::Slowed(RecordedBrake { file, .. })
                if !matches!(file, ManagedFile::Freeze | ManagedFile::High) =>
            {
                Some(format!("no brake sets {}", file.name()))
            }
            _ => None,
        }
    }
}

/// A pending container: the runtime was told its cpuset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Cpuset that it would have without us.
    #[serde(flatten)]
    pub original: Cpuset,
    /// The journal has an entry, and this original replaces the one there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Its grant, for a new container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Granted>,
    /// The boot of that time, where it was known.
    pub boot_id: Option<String>,
    /// Nanoseconds between that boot and the answer.
    pub told_ns: u64,
}

/// Grant of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The container.
    pub id: String,
    /// The grant.
    pub grant: GrantRecord,
}

/// Pins of the threads of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedPins {
    /// Threads that were pinned before the answer, and nothing of others.
    pub before: Vec<CgroupThreads>,
    /// Content of `cpuset.cpus` then; empty where the container inherited.
    pub was: CpuSet,
    /// CPUs that the runtime was told to write.
    pub told: CpuSet,
}

/// One workload that is slowed down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBrake {
    /// A number that no other brake of this boot has.
    pub id: u64,
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Inode of the cgroup's directory.
    pub inode: u64,
    /// The file that was written.
    pub file: ManagedFile,
    /// Set value.
    pub set: String,
    /// Original.
    pub original: String,
    /// The boot that it belongs to.
    pub boot_id: Option<String>,
}

/// One interrupt whose CPUs are set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedInterrupt {
    /// Its number.
    pub irq: u32,
    /// Chip and hardware number, where they were known.
    pub identity: Option<String>,
    /// CPUs that it had.
    pub original: String,
    /// Set CPUs.
    pub set: String,
    /// CPUs before that write, which may not have been carried out; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// The boot that it belongs to.
    pub boot_id: Option<String>,
}

/// A pause, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedPause {
    pub(super) since_unix_ms: u64,
    pub(super) until_unix_ms: Option<u64>,
}
