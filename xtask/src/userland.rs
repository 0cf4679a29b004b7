//! What a guest's root file system has besides what every guest has, and with it what its process 1 is.

use std::fmt;

use crate::containerd::ContainerdPackages;

/// A kind of root file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Userland {
    /// Nothing besides.
    Plain,
    /// A container runtime.
    Containers(ContainerdPackages),
    /// systemd as process 1.
    Systemd,
    /// The same with a container runtime that has systemd make its cgroups.
    SystemdWith(ContainerdPackages),
}

impl Userland {
    /// What a scenario plays in.
    pub(crate) fn of(needs_containerd: bool, needs_systemd: bool, containerd: ContainerdPackages) -> Self {
        match (needs_containerd, needs_systemd) {
            (true, false) => Self::Containers(containerd),
            // The one of the suite that systemd is of.
            (true, true) => Self::SystemdWith(ContainerdPackages::NEWEST),
            (false, true) => Self::Systemd,
            (false, false) => Self::Plain,
        }
    }

    /// Can such a guest be saved and resumed?
    pub(crate) const fn can_be_saved(self) -> bool {
        // What systemd waits for goes by the clock, which stands still in a saved guest.
        !matches!(self, Self::Systemd | Self::SystemdWith(_))
    }
}

impl fmt::Display for Userland {
    /// For people, behind a kernel: ` with containerd 2`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Plain => Ok(()),
            Self::Containers(line) => write!(f, " with containerd {line}"),
            Self::Systemd => f.write_str(" with systemd"),
            Self::SystemdWith(line) => write!(f, " with systemd and containerd {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_gets_what_it_needs() {
        let newest = ContainerdPackages::all().last().unwrap();
        for (containerd, systemd, wanted, shown) in [
            (false, false, Userland::Plain, ""),
            (true, false, Userland::Containers(newest), " with containerd 2"),
            (false, true, Userland::Systemd, " with systemd"),
            (true, true, Userland::SystemdWith(newest), " with systemd and containerd 2"),
        ] {
            let userland = Userland::of(containerd, systemd, newest);
            assert_eq!((userland, userland.to_string().as_str()), (wanted, shown));
            assert_eq!(userland.can_be_saved(), !systemd);
        }
    }
}
