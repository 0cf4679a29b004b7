//! How often who was put back, for the next daemon.
//!
//! A daemon that is started again would else go on with a fight that the one before it had given up: three
//! times more for each start. So what is known of each workload that was put back within the hour is written
//! down as it is, and the next daemon decides as this one would have. Of the others nothing is: they begin as
//! they always did.
//!
//! Times are of a clock that begins when the host is booted, as the ids of cgroups do, so a record says which
//! boot it is of.
//!
//! Never: anything is believed of a record in part; more than so many workloads are written.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Drift, REPAIRS, is_recent};
use crate::{place::Cpuset, workload::CgroupPath};

/// Version of what is written; another one whenever [`Kept`](super::Kept) changes.
const VERSION: u32 = 1;
/// Most workloads: those that were put back last.
const MOST: usize = 1_000;

/// What lasts of [`Drift`], to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastingDrift {
    version: u32,
    boot_id: String,
    workloads: Drift,
}

impl LastingDrift {
    /// Leaves out half of the workloads: it was too long.
    pub fn halve(&mut self) {
        let Drift(workloads) = &mut self.workloads;
        let half = workloads.len() / 2;
        *workloads = std::mem::take(workloads).into_iter().take(half).collect();
    }
}

/// Why nothing is believed of what was written.
#[derive(Debug, Error)]
pub enum DriftRecordError {
    /// It is of another program.
    #[error("version {0} is not known")]
    Version(u32),
    /// It says more than is ever written.
    #[error("it has more in it than is ever written")]
    TooMuch,
}

impl Drift {
    /// What of this a later daemon has to know.
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

    /// Is there nobody of whom anything is known?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who is left alone, and what it was set to.
    pub fn given_up(&self, now_ns: u64) -> impl Iterator<Item = (&CgroupPath, &Cpuset)> {
        let given_up = move |kept: &&super::Kept| kept.left_alone && kept.repairs(now_ns) >= REPAIRS;
        self.0.iter().filter_map(move |(cgroup, kept)| Some((cgroup, &Some(kept).filter(given_up)?.goal)))
    }

    /// This, of the host as it was booted now.
    pub fn to_record(&self, boot_id: &str) -> LastingDrift {
        LastingDrift { version: VERSION, boot_id: boot_id.to_owned(), workloads: self.clone() }
    }

    /// What was written; nothing where it is of another boot.
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
