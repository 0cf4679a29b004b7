//! How many workloads have each verdict, worst first.

use std::fmt;

use enforcer_core::{
    audit::{AuditVerdict, Summary},
    named::Named as _,
};

/// Verdicts in the order in which they matter.
const WORST_FIRST: [AuditVerdict; 4] =
    [AuditVerdict::Misaligned, AuditVerdict::Partial, AuditVerdict::Aligned, AuditVerdict::Unknown];

/// Which verdict matters most: 3 for the worst, 0 for the unknown.
pub(crate) const fn rank(verdict: AuditVerdict) -> u8 {
    match verdict {
        AuditVerdict::Misaligned => 3,
        AuditVerdict::Partial => 2,
        AuditVerdict::Aligned => 1,
        AuditVerdict::Unknown => 0,
    }
}

/// Number of workloads of each verdict, worst first. Shown as `1 misaligned, 3 aligned`: nothing for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VerdictCounts(pub(crate) [(AuditVerdict, usize); 4]);

impl From<&Summary> for VerdictCounts {
    fn from(summary: &Summary) -> Self {
        Self(WORST_FIRST.map(|verdict| {
            let number = match verdict {
                AuditVerdict::Misaligned => summary.misaligned,
                AuditVerdict::Partial => summary.partial,
                AuditVerdict::Aligned => summary.aligned,
                AuditVerdict::Unknown => summary.unknown,
            };
            (verdict, number)
        }))
    }
}

impl FromIterator<AuditVerdict> for VerdictCounts {
    fn from_iter<T: IntoIterator<Item = AuditVerdict>>(verdicts: T) -> Self {
        let mut counts = WORST_FIRST.map(|verdict| (verdict, 0));
        for verdict in verdicts {
            counts.iter_mut().filter(|(of, _)| *of == verdict).for_each(|(_, number)| *number += 1);
        }
        Self(counts)
    }
}

impl fmt::Display for VerdictCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.0.iter().filter(|(_, number)| *number > 0);
        for (place, (verdict, number)) in counted.enumerate() {
            let between = if place > 0 { ", " } else { "" };
            write!(f, "{between}{number} {}", verdict.name())?;
        }
        Ok(())
    }
}
