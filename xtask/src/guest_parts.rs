//! What a guest is made of, beside its topology.

use std::fmt;

use anyhow::{Result, ensure};

use crate::{architecture::Architecture, series::Series, userland::Userland};

/// Architecture, kernel and root file system of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestParts {
    /// Of its processors and its programs.
    pub(crate) architecture: Architecture,
    pub(crate) kernel: Series,
    pub(crate) userland: Userland,
}

impl GuestParts {
    /// What every run has.
    pub(crate) const DEFAULT: Self =
        Self { architecture: Architecture::Amd64, kernel: Series::DEFAULT, userland: Userland::Plain };

    /// Can such a guest be saved and resumed?
    pub(crate) fn can_be_saved(self) -> bool {
        // Few scenarios play on arm64, so none of its machines is worth being kept.
        self.architecture == Architecture::Amd64 && self.userland.can_be_saved()
    }

    /// Fails for what no guest is made of.
    pub(crate) fn check(self) -> Result<()> {
        ensure!(
            self.architecture == Architecture::Amd64 || self.userland == Userland::Plain,
            "a guest of arm64 has neither a container runtime nor systemd"
        );
        Ok(())
    }
}

impl fmt::Display for GuestParts {
    /// For people, behind the name of a machine: `kernel 6.12 of arm64`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "kernel {}", self.kernel)?;
        if self.architecture != Architecture::Amd64 {
            write!(f, " of {}", self.architecture.debian())?;
        }
        write!(f, "{}", self.userland)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_of_arm64_are_plain_and_booted() {
        let arm = GuestParts { architecture: Architecture::Arm64, ..GuestParts::DEFAULT };
        assert!(GuestParts::DEFAULT.can_be_saved() && !arm.can_be_saved());
        arm.check().unwrap();
        let with_systemd = GuestParts { userland: Userland::Systemd, ..arm };
        assert!(with_systemd.check().is_err());
        GuestParts { architecture: Architecture::Amd64, ..with_systemd }.check().unwrap();
        assert_eq!(GuestParts::DEFAULT.to_string(), "kernel 6.12");
        assert_eq!(arm.to_string(), "kernel 6.12 of arm64");
    }
}
