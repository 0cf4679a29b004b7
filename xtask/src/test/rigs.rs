//! The parts of the machines of a run, one set for each kernel.
//!
//! Without the default kernel nothing runs. Another one may be gone from the mirrors, or there is no network:
//! what should have played on it then fails in CI, and is skipped by name elsewhere. It never counts as
//! passed.

use std::env;

use anyhow::{Context, Result};

use super::{matrix::Play, tally::Tally};
use crate::{series::Series, setup::Rig};

/// Kernels, and their machines or why there are none.
pub(super) struct Rigs {
    default: Rig,
    others: Vec<(Series, Result<Rig>)>,
}

impl Rigs {
    /// Gets the parts that some plays need.
    pub(super) fn of(plays: &[Play], mut fetch: impl FnMut(Series) -> Result<Rig>) -> Result<Self> {
        let default = fetch(Series::DEFAULT)?;
        let is_needed = |series: &Series| plays.iter().any(|play| play.kernel == *series);
        let others = Series::all()
            .filter(|series| *series != Series::DEFAULT && is_needed(series))
            .map(|series| (series, fetch(series)))
            .collect();
        Ok(Self { default, others })
    }

    /// One of them: all have the same QEMU and root file system.
    pub(super) const fn any(&self) -> &Rig {
        &self.default
    }

    /// The parts with this kernel.
    pub(super) fn of_kernel(&self, kernel: Series) -> Result<&Rig> {
        if kernel == Series::DEFAULT {
            return Ok(&self.default);
        }
        let (_, rig) =
            self.others.iter().find(|(series, _)| *series == kernel).context("a kernel nobody needs")?;
        rig.as_ref().map_err(|error| anyhow::anyhow!("no kernel {kernel}: {error:#}"))
    }

    /// The plays that have a machine; the others are told of, and counted as failed in CI.
    pub(super) fn possible<'a>(&self, plays: &[Play<'a>], tally: &mut Tally) -> Vec<Play<'a>> {
        self.possible_in(env::var("CI").is_ok_and(|ci| ci == "true"), plays, tally)
    }

    fn possible_in<'a>(&self, ci: bool, plays: &[Play<'a>], tally: &mut Tally) -> Vec<Play<'a>> {
        let has_machine = |play: &&Play<'a>| {
            let Err(error) = self.of_kernel(play.kernel) else { return true };
            let outcome = if ci { "failed" } else { "skipped" };
            println!("{}: {outcome}: {error:#}", play.name());
            if ci {
                tally.count(&play.name(), false);
            }
            false
        };
        plays.iter().filter(has_machine).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use anyhow::bail;

    use super::*;
    use crate::test::{matrix, scenario::Scenario};

    fn fetch(gone: &'static [&'static str]) -> impl FnMut(Series) -> Result<Rig> {
        move |series| {
            if gone.contains(&series.name()) {
                bail!("no such suite");
            }
            let part = || PathBuf::from(series.name());
            Ok(Rig { qemu: part(), kernel: part(), initrd: part(), root: part() })
        }
    }

    /// Names of what plays, and what failed, when some kernels are gone.
    fn played(ci: bool, gone: &'static [&'static str]) -> (Vec<String>, String) {
        let scenarios = [Scenario::example("eyes-a", "2s", ""), Scenario::example("rig-a", "2s", "")];
        let chosen: Vec<_> = scenarios.iter().collect();
        let plays = matrix::plays(&chosen, Some(&"6.1,6.18".parse().unwrap()));
        let mut tally = Tally::default();
        let rigs = Rigs::of(&plays, fetch(gone)).unwrap();
        let possible = rigs.possible_in(ci, &plays, &mut tally);
        for play in &possible {
            let kernel = &rigs.of_kernel(play.kernel).unwrap().kernel;
            assert_eq!(kernel.to_str().unwrap(), play.kernel.name());
        }
        (possible.iter().map(Play::name).collect(), tally.line())
    }

    #[test]
    fn a_kernel_that_is_gone_fails_in_ci_and_is_skipped_elsewhere() {
        let all = vec!["rig-a".to_owned(), "eyes-a@6.1".to_owned(), "eyes-a@6.18".to_owned()];
        let rest = vec![all[0].clone(), all[1].clone()];
        for (ci, gone, wanted) in [
            (true, &[][..], (all.clone(), "0 passed, 0 failed")),
            // Nobody needs these.
            (true, &["5.10", "7.2"], (all, "0 passed, 0 failed")),
            (true, &["6.18"], (rest.clone(), "0 passed, 1 failed")),
            (false, &["6.18"], (rest, "0 passed, 0 failed")),
        ] {
            assert_eq!(played(ci, gone), (wanted.0, wanted.1.to_owned()), "CI {ci}, without {gone:?}");
        }
    }

    #[test]
    fn nothing_plays_without_the_default_kernel() {
        assert!(Rigs::of(&[], fetch(&["6.12"])).is_err());
    }
}
