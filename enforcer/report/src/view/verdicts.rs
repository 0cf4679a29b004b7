//! How many workloads have each verdict, worst first.

use std::fmt;

use enforcer_core::{
    audit::{Summary, Verdict},
    named::Named as _,
};

/// Verdicts in the order in which they matter.
const WORST_FIRST: [Verdict; 4] = [Verdict::Misaligned, Verdict::Partial, Verdict::Aligned, Verdict::Unknown];

/// Which verdict matters most: 3 for the worst, 0 for the unknown.
pub(crate) const fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Misaligned => 3,
        Verdict::Partial => 2,
        Verdict::Aligned => 1,
        Verdict::Unknown => 0,
    }
}

/// Number of workloads of each verdict, worst first. Shown as `1 misaligned, 3 aligned`: nothing for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VerdictCounts(pub(crate) [(Verdict, usize); 4]);

impl From<&Summary> for VerdictCounts {
    fn from(summary: &Summary) -> Self {
        Self(WORST_FIRST.map(|verdict| {
            let number = match verdict {
                Verdict::Misaligned => summary.misaligned,
                Verdict::Partial => summary.partial,
                Verdict::Aligned => summary.aligned,
                Verdict::Unknown => summary.unknown,
            };
            (verdict, number)
        }))
    }
}

impl FromIterator<Verdict> for VerdictCounts {
    fn from_iter<T: IntoIterator<Item = Verdict>>(verdicts: T) -> Self {
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
