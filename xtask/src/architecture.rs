//! The architectures that releases and guests are for, by the names that others give them.

use std::env::consts::ARCH;

use anyhow::{Context, Result};

/// An architecture of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// Debian's name, which OCI images and Kubernetes use too.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The kernel's name, which Rust, GCC and QEMU use too.
    pub(crate) const fn kernel(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Rust's target.
    pub(crate) fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.kernel())
    }

    /// A program of GNU's binutils or compilers for it, on this machine.
    pub(crate) fn gnu(self, program: &str) -> String {
        if self.is_native() { program.to_owned() } else { format!("{}-linux-gnu-{program}", self.kernel()) }
    }

    /// That of this machine; an error where releases are for no such one.
    pub(crate) fn native() -> Result<Self> {
        let mut all = [Self::Amd64, Self::Arm64].into_iter();
        all.find(|one| one.is_native()).with_context(|| format!("no release is for {ARCH}"))
    }

    /// Whether this machine has it.
    pub(crate) fn is_native(self) -> bool {
        self.kernel() == ARCH
    }
}
