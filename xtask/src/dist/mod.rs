//! `cargo xtask dist`: what a release is made of, below `target/dist`.
//!
//! One static binary for each architecture; around it a Debian package, an OCI image, the Helm chart, a
//! manifest for each preset, a bill of materials, and the checksums of all of them.
//!
//! Invariant: the same commit gives the same bytes in any folder and at any time. Times are that of the
//! commit ([`ReleaseCommit`]), owners are root, entries are sorted, and no path of the machine that builds is
//! in the binary (`binary`). `cargo xtask test dist` holds it.

mod archive;
mod binary;
mod bounds;
mod chart;
mod checksums;
mod commit;
mod image;
mod materials;
mod package;

use std::{fs, io, path::PathBuf};

use anyhow::{Context, Result};

pub(crate) use self::commit::ReleaseCommit;
use crate::{architecture::Architecture, setup, workspace::Workspace};

/// Arguments of `dist`.
#[derive(clap::Args)]
pub(crate) struct DistArguments {
    /// Architectures of binary, package and image
    #[arg(long, value_enum, default_value_t = ChosenArchitectures::Amd64)]
    arch: ChosenArchitectures,
}

/// Values of `--arch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ChosenArchitectures {
    Amd64,
    Arm64,
    All,
}

impl ChosenArchitectures {
    fn list(self) -> &'static [Architecture] {
        match self {
            Self::Amd64 => &[Architecture::Amd64],
            Self::Arm64 => &[Architecture::Arm64],
            Self::All => &[Architecture::Amd64, Architecture::Arm64],
        }
    }
}

/// What [`make`] has left.
pub(crate) struct Release {
    /// Folder of all files.
    pub(crate) place: PathBuf,
    /// Lines of `SHA256SUMS`.
    pub(crate) sums: Vec<String>,
}

/// A binary of a release.
struct ReleaseBinary {
    architecture: Architecture,
    /// What it is published as.
    path: PathBuf,
}

/// Makes everything, and prints where it is.
pub(crate) fn run(workspace: &Workspace, arguments: &DistArguments) -> Result<()> {
    let Release { place, sums } = make(workspace, arguments.arch.list())?;
    for line in sums {
        println!("{line}");
    }
    println!("in {}", place.display());
    Ok(())
}

/// Makes everything for these architectures.
pub(crate) fn make(workspace: &Workspace, architectures: &[Architecture]) -> Result<Release> {
    setup::build_tools(workspace)?;
    setup::dist_tools()?;
    let commit = ReleaseCommit::of(workspace)?;
    let place = workspace.target().join("dist");
    fs::remove_dir_all(&place)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
        .with_context(|| format!("remove {}", place.display()))?;
    fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
    let (mut binaries, mut bounded) = (Vec::new(), Vec::new());
    for &architecture in architectures {
        let built = binary::build(workspace, architecture, &commit)?;
        let path = place.join(format!("numa-enforcer-{}-{}", commit.version, architecture.debian()));
        fs::copy(&built, &path).with_context(|| format!("copy {}", built.display()))?;
        bounded.push(bounds::check(&path, bounds::BINARY));
        package::build(workspace, architecture, &commit, &place)?;
        binaries.push(ReleaseBinary { architecture, path });
    }
    image::write(workspace, &binaries, &commit, &place)?;
    chart::write(workspace, &commit, &place)?;
    materials::write(workspace, &binaries, &commit, &place)?;
    let sums = checksums::write(&place)?;
    // Last, so that there is something to look at.
    bounded.into_iter().collect::<Result<()>>()?;
    Ok(Release { place, sums })
}
