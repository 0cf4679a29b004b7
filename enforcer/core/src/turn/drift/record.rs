//! Record of repairs for the next daemon process.
//!
//! A restarted daemon would otherwise resume a fight that it had given up: three repairs for each start. The
//! state of each workload that was put back within the hour is recorded in full, and the next daemon decides
//! as this one would have. Other workloads are not recorded and begin anew.
//!
//! Times and cgroup ids begin at boot, so a record contains its boot id.
//!
//! Invariants: a record is used whole or not at all; it holds a bounded number of workloads.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Drift, REPAIRS, is_recent};
use crate::{hosted::Cpuset, workload::CgroupPath};

/// Version of the record; raised whenever [`WorkloadDrift`](super::WorkloadDrift) changes.
const VERSION: u32 = 1;
/// Limit of recorded workloads: those with the latest repairs.
const MOST: usize = 1_000;

/// The part of [`Drift`] that is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastingDrift {
    version: u32,
    boot_id: String,
    workloads: Drift,
}

impl LastingDrift {
    /// Drops half of the workloads, because the record is too long.
    pub fn halve(&mut self) {
        let Drift(workloads) = &mut self.workloads;
        let half = workloads.len() / 2;
        *workloads = std::mem::take(workloads).into_iter().take(half).collect();
    }
}

/// Reason why a record is not used.
#[derive(Debug, Error)]
pub enum DriftRecordError {
    /// Another version wrote it.
    #[error("version {0} is not known")]
    Version(u32),
    /// It has more entries than are ever written.
    #[error("it has more in it than is ever written")]
    TooMuch,
}

impl Drift {
    /// The part that a later daemon needs.
    #[must_use]
    pub fn lasting(&self, now_ns: u64) -> Self {
        let mut lasting: Vec<_> = self.0.iter().filter(|(_, kept)| kept.repairs(now_ns) > 0).collect();
        lasting.sort_by_key(|(_, kept)| Reverse(kept.repairs.last().copied()));
        let lasting = lasting.into_iter().take(MOST).map(|(cgroup, kept)| {
            let mut kept = kept.clone();
            kept.repairs.retain(|at| is_recent(*at, now_ns));
            (cgroup.clone(), kept)
        });
        Self(lasting.collect())
    }

    /// Is the record empty?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Workloads that are left alone, with their targets.
    pub fn given_up(&self, now_ns: u64) -> impl Iterator<Item = (&CgroupPath, &Cpuset)> {
        let given_up = move |kept: &&super::WorkloadDrift| kept.left_alone && kept.repairs(now_ns) >= REPAIRS;
        self.0.iter().filter_map(move |(cgroup, kept)| Some((cgroup, &Some(kept).filter(given_up)?.goal)))
    }

    /// This record, for the present boot.
    pub fn to_record(&self, boot_id: &str) -> LastingDrift {
        LastingDrift { version: VERSION, boot_id: boot_id.to_owned(), workloads: self.clone() }
    }

    /// The recorded drift; empty if it is of another boot.
    pub fn of_record(record: LastingDrift, boot_id: &str, now_ns: u64) -> Result<Self, DriftRecordError> {
        let LastingDrift { version, boot_id: of_boot, workloads } = record;
        if version != VERSION {
            return Err(DriftRecordError::Version(version));
        }
        if of_boot != boot_id {
            return Ok(Self::default());
        }
        if workloads.0.len() > MOST || workloads.0.values().any(|kept| kept.repairs.len() > REPAIRS) {
            return Err(DriftRecordError::TooMuch);
        }
        Ok(workloads.lasting(now_ns))
    }
}

#[cfg(test)]
mod tests;
