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
mod trial;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

pub(crate) use self::{commit::ReleaseCommit, trial::TrialRelease};
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

/// A release in the making: what each of its parts is made from, and where it is put.
struct ReleaseDraft<'a> {
    workspace: &'a Workspace,
    commit: ReleaseCommit,
    /// Folder of all files.
    place: PathBuf,
    /// Those that are built so far.
    binaries: Vec<ReleaseBinary>,
    /// Cargo's target folder. Binaries are in `TRIPLE/release` there, whatever their profile.
    target: PathBuf,
    /// Is it compressed well and slowly, and bounded in its size?
    is_published: bool,
}

impl<'a> ReleaseDraft<'a> {
    /// The draft of the commit that is checked out, in an empty folder.
    fn begin(workspace: &'a Workspace) -> Result<Self> {
        let commit = ReleaseCommit::of(workspace)?;
        let place = workspace.target().join("dist");
        fs::remove_dir_all(&place)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .with_context(|| format!("remove {}", place.display()))?;
        fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
        let target = binary::target(workspace);
        Ok(Self { workspace, commit, place, binaries: Vec::new(), target, is_published: true })
    }

    /// Where cargo leaves what it builds for an architecture.
    fn built(&self, architecture: Architecture) -> PathBuf {
        self.target.join(architecture.triple()).join("release")
    }

    /// Fails if a file that is to be published has `bound` bytes or more.
    fn check(&self, file: &Path, bound: u64) -> Result<()> {
        if self.is_published { bounds::check(file, bound) } else { Ok(()) }
    }

    /// Takes a binary in under the name that it is published as; returns the file.
    fn add(&mut self, architecture: Architecture, built: &Path) -> Result<PathBuf> {
        let name = format!("numa-enforcer-{}-{}", self.commit.version, architecture.debian());
        let path = self.place.join(name);
        fs::copy(built, &path).with_context(|| format!("copy {}", built.display()))?;
        self.binaries.push(ReleaseBinary { architecture, path: path.clone() });
        Ok(path)
    }
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

/// Writes the bill of materials of a release for amd64 into a folder, with a stand-in for the binary; returns
/// the file.
pub(crate) fn bill_of_materials(workspace: &Workspace, place: &Path) -> Result<PathBuf> {
    let (commit, path) = (ReleaseCommit::of(workspace)?, place.join("numa-enforcer"));
    fs::write(&path, "").with_context(|| format!("write {}", path.display()))?;
    let binaries = vec![ReleaseBinary { architecture: Architecture::Amd64, path }];
    let (place, target) = (place.to_owned(), binary::target(workspace));
    let draft = ReleaseDraft { workspace, commit, place, binaries, target, is_published: true };
    materials::write(&draft)?;
    Ok(draft.place.join(format!("numa-enforcer-{}.cdx.json", draft.commit.version)))
}

/// Makes everything for these architectures.
pub(crate) fn make(workspace: &Workspace, architectures: &[Architecture]) -> Result<Release> {
    setup::build_tools(workspace)?;
    setup::dist_tools()?;
    let mut draft = ReleaseDraft::begin(workspace)?;
    let mut bounded = Vec::new();
    for &architecture in architectures {
        let built = binary::build(&draft, architecture)?;
        let published = draft.add(architecture, &built)?;
        bounded.push(bounds::check(&published, bounds::BINARY));
        package::build(&draft, architecture)?;
    }
    image::write(&draft)?;
    chart::write(&draft)?;
    materials::write(&draft)?;
    let sums = checksums::write(&draft.place)?;
    // Last, so that there is something to look at.
    bounded.into_iter().collect::<Result<()>>()?;
    Ok(Release { place: draft.place, sums })
}
