//! The parts of the machines of a run, one set for each architecture, kernel and root file system.
//!
//! Without the default kernel nothing runs. Another one, or a runtime, may be gone from the mirrors, or there
//! is no network: what should have played with it then fails in CI, and is skipped by name elsewhere. It
//! never counts as passed.

use std::{env, path::Path};

use anyhow::{Context, Result};

use super::{matrix::Play, tally::TestTally};
use crate::{guest_parts::GuestParts, setup::GuestRig};

/// Machines by what they are made of, or why there are none.
pub(super) struct Rigs {
    default: GuestRig,
    others: Vec<(GuestParts, Result<GuestRig>)>,
}

impl Rigs {
    /// Gets the parts that some plays need.
    pub(super) fn of(plays: &[Play], mut fetch: impl FnMut(GuestParts) -> Result<GuestRig>) -> Result<Self> {
        let default = fetch(GuestParts::DEFAULT)?;
        let mut others: Vec<(GuestParts, Result<GuestRig>)> = Vec::new();
        for parts in plays.iter().map(|play| play.parts) {
            if parts != GuestParts::DEFAULT && others.iter().all(|(known, _)| *known != parts) {
                others.push((parts, fetch(parts)));
            }
        }
        Ok(Self { default, others })
    }

    /// Folder of the QEMU of all machines that can be saved.
    pub(super) fn qemu(&self) -> &Path {
        &self.default.qemu
    }

    /// The machine made of these.
    pub(super) fn made_of(&self, parts: GuestParts) -> Result<&GuestRig> {
        if parts == GuestParts::DEFAULT {
            return Ok(&self.default);
        }
        let (_, rig) = self.others.iter().find(|(known, _)| *known == parts).context("unused parts")?;
        rig.as_ref().map_err(|error| anyhow::anyhow!("no machine with {parts}: {error:#}"))
    }

    /// The plays that have a machine; the others are told of, and counted as failed in CI.
    pub(super) fn possible<'a>(&self, plays: &[Play<'a>], tally: &mut TestTally) -> Vec<Play<'a>> {
        self.possible_in(env::var("CI").is_ok_and(|ci| ci == "true"), plays, tally)
    }

    fn possible_in<'a>(&self, ci: bool, plays: &[Play<'a>], tally: &mut TestTally) -> Vec<Play<'a>> {
        let has_machine = |play: &&Play<'a>| {
            let Err(error) = self.made_of(play.parts) else { return true };
            let outcome = if ci { "failed" } else { "skipped" };
            println!("{}: {outcome}: {error:#}", play.name());
            if ci {
                tally.fail(play.name(), format!("{error:#}"));
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
    use crate::{
        test::{matrix, matrix::AskedParts, scenario::ListedScenario},
        userland::Userland,
    };

    fn fetch(gone: &'static [&'static str]) -> impl FnMut(GuestParts) -> Result<GuestRig> {
        move |parts| {
            let series = parts.kernel;
            let root = match parts.userland {
                Userland::Plain => "plain",
                Userland::Containers(line) => line.name(),
                Userland::Systemd | Userland::SystemdWith(_) => "systemd",
            };
            if gone.contains(&series.name()) || gone.contains(&root) {
                bail!("no such suite");
            }
            let part = || PathBuf::from(series.name());
            let root = PathBuf::from(root);
            Ok(GuestRig {
                architecture: parts.architecture,
                qemu: part(),
                kernel: part(),
                initrd: part(),
                root,
            })
        }
    }

    /// Names of what plays, and what failed, when some kernels are gone.
    fn played(ci: bool, gone: &'static [&'static str]) -> (Vec<String>, String) {
        let example = |name| ListedScenario::example(name, "2s", "");
        let scenarios = [example("eyes-a"), example("rig-a"), example("node-a").with_containers()];
        let chosen: Vec<_> = scenarios.iter().collect();
        let kernels = &"6.1,6.18".parse().unwrap();
        let plays = matrix::plays(&chosen, AskedParts { kernels: Some(kernels), ..AskedParts::NONE });
        let mut tally = TestTally::default();
        let rigs = Rigs::of(&plays, fetch(gone)).unwrap();
        let possible = rigs.possible_in(ci, &plays, &mut tally);
        for play in &possible {
            let rig = rigs.made_of(play.parts).unwrap();
            assert_eq!(rig.kernel.to_str().unwrap(), play.parts.kernel.name());
            let is_of_runtime = rig.root.to_str() == Some("1.7");
            assert_eq!(is_of_runtime, play.scenario.needs_containerd, "{}", play.name());
        }
        (possible.iter().map(Play::name).collect(), tally.line())
    }

    #[test]
    fn a_part_that_is_gone_fails_in_ci_and_is_skipped_elsewhere() {
        let all = ["node-a", "rig-a", "eyes-a@6.1", "eyes-a@6.18"].map(str::to_owned).to_vec();
        let rest = all[..3].to_vec();
        let without_containers = all[1..].to_vec();
        for (ci, gone, wanted) in [
            (true, &[][..], (all.clone(), "0 passed, 0 failed")),
            // No scenario needs these.
            (true, &["5.10", "7.2", "2"], (all, "0 passed, 0 failed")),
            (true, &["1.7"], (without_containers.clone(), "0 passed, 1 failed")),
            (false, &["1.7"], (without_containers, "0 passed, 0 failed")),
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
