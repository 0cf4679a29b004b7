//! How often who was put back, for the next daemon.
//!
//! A daemon that is started again would else go on with a fight that the one before it had given up: three times more for each
//! start. So what is known of each workload that was put back within the hour is written down as it is, and the next daemon decides
//! as this one would have. Of the others nothing is: they begin as they always did.
//!
//! Times are of a clock that begins when the host is booted, as the ids of cgroups do, so a record says which boot it is of.
//!
//! Never: anything is believed of a record in part; and no number of workloads makes one that is too long to be read.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Drift, REPAIRS, is_recent};
use crate::{place::Cpuset, workload::CgroupPath};

/// Version of the text; another one whenever [`Kept`](super::Kept) changes.
const VERSION: u32 = 1;
/// Most workloads: those that were put back last.
const MOST: usize = 1_000;
/// Most bytes.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record<W> {
    version: u32,
    boot_id: String,
    workloads: W,
}

/// All that is known of a record of another version.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

/// Why nothing is believed of a record.
#[derive(Debug, Error)]
pub enum DriftRecordError {
    /// It is none.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is of another program.
    #[error("version {0} is not known")]
    Version(u32),
    /// It says more than is ever written.
    #[error("it has more in it than is ever written")]
    TooMuch,
}

impl Drift {
    /// Most bytes of what [`Drift::to_record`] returns.
    pub const LONGEST_RECORD: usize = LONGEST;

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

    /// This as a text, of the host as it was booted now. Where it is too long some are left out.
    pub fn to_record(&self, boot_id: &str) -> serde_json::Result<String> {
        let mut most = self.0.len();
        loop {
            let workloads: std::collections::BTreeMap<_, _> = self.0.iter().take(most).collect();
            let record = Record { version: VERSION, boot_id: boot_id.to_owned(), workloads };
            let text = serde_json::to_string(&record)?;
            if text.len() <= LONGEST || most == 0 {
                return Ok(text);
            }
            most /= 2;
        }
    }

    /// What such a text says; nothing where it is of another boot.
    pub fn of_record(text: &str, boot_id: &str, now_ns: u64) -> Result<Self, DriftRecordError> {
        let Versioned { version } = serde_json::from_str(text)?;
        if version != VERSION {
            return Err(DriftRecordError::Version(version));
        }
        let record: Record<Self> = serde_json::from_str(text)?;
        if record.boot_id != boot_id {
            return Ok(Self::default());
        }
        let Self(kept) = &record.workloads;
        if kept.len() > MOST || kept.values().any(|kept| kept.repairs.len() > REPAIRS) {
            return Err(DriftRecordError::TooMuch);
        }
        Ok(record.workloads.lasting(now_ns))
    }
}

#[cfg(test)]
mod tests;
