//! From a bare machine to one that can build and test: packages, bpf-linker, and the parts of the
//! virtual machine.
//!
//! Each part is cached under `target/` and keyed by what it is made of, so a second call costs
//! milliseconds and a changed recipe rebuilds exactly its own part.

mod apt;
mod bpf_linker;
mod bz_image;
pub(crate) mod cache;
mod cargo_deb;
mod cargo_deny;
mod component;
mod container_image;
mod crd_api;
mod cross;
mod cyclonedx;
mod emulator;
mod helm;
mod initrd;
mod jactionlint;
mod kernel;
mod kustomize;
mod libraries;
mod packages;
mod promtool;
mod qemu;
mod root_image;
mod suite;
mod tool;
mod wheel;

pub(crate) use bpf_linker::bin as bpf_linker_bin;
pub(crate) use cargo_deb::install as cargo_deb;
pub(crate) use cargo_deny::install as cargo_deny;
pub(crate) use component::component;
pub(crate) use crd_api::CrdApi;
pub(crate) use cross::compiler as cross_compiler;
pub(crate) use cyclonedx::{CycloneDx, fetch as cyclonedx};
pub(crate) use emulator::ProgramEmulator;
pub(crate) use helm::fetch as helm;
pub(crate) use jactionlint::fetch as jactionlint;
pub(crate) use kustomize::Kustomize;
pub(crate) use libraries::{LinkedLibrary, linked_libraries};
pub(crate) use promtool::PrometheusTools;
pub(crate) use root_image::{absent_is_fine, with_sbin};

use std::{env::consts::ARCH, path::PathBuf};

use anyhow::{Result, ensure};

use crate::{
    architecture::Architecture, containerd::ContainerdPackages, guest_parts::GuestParts, series::Series,
    userland::Userland, workspace::Workspace,
};

/// The parts of a virtual machine, ready to boot.
#[derive(Debug, Clone)]
pub(crate) struct GuestRig {
    /// Of all its parts but QEMU's own program.
    pub(crate) architecture: Architecture,
    /// Folder of an unpacked QEMU that brings its own libraries.
    pub(crate) qemu: PathBuf,
    /// Uncompressed kernel.
    pub(crate) kernel: PathBuf,
    /// First file system.
    pub(crate) initrd: PathBuf,
    /// Root file system; boots must not write to it.
    pub(crate) root: PathBuf,
}

/// What the product's build needs beyond Rust: packages and bpf-linker.
pub(crate) fn build_tools(workspace: &Workspace) -> Result<()> {
    packages::install(&packages::BUILD)?;
    bpf_linker::install(workspace)
}

/// What the costs of the kernel side are compared with.
pub(crate) fn comparison_tools() -> Result<()> {
    packages::install(&packages::COMPARE)
}

/// What the lints of the kernel side need; elsewhere than on Debian, rustup's nightly brings it.
pub(crate) fn lint_tools() -> Result<()> {
    packages::install(&packages::LINT)
}

/// What a virtual machine made of these parts needs.
pub(crate) fn rig(workspace: &Workspace, parts: GuestParts) -> Result<GuestRig> {
    let GuestParts { architecture, kernel, userland } = parts;
    parts.check()?;
    ensure!(ARCH == "x86_64", "the virtual machine is made of x86-64 parts; this machine is {ARCH}");
    packages::install(&packages::RIG)?;
    let dir = workspace.rig();
    let qemu = qemu::fetch(&dir, architecture)?;
    let kernel = kernel::fetch(&dir, architecture, kernel)?;
    let root = root_image::build(&dir, architecture)?;
    let initrd = initrd::build(&dir, &kernel, &root)?;
    let root = match userland {
        Userland::Plain => root.image,
        Userland::Containers(containerd) => root_image::build_with(&dir, containerd)?,
        Userland::Systemd => root_image::build_systemd(&dir, None)?,
        Userland::SystemdWith(containerd) => root_image::build_systemd(&dir, Some(containerd))?,
    };
    Ok(GuestRig { architecture, qemu, kernel: kernel.image, initrd, root })
}

/// Prometheus, for its rules and for guests.
pub(crate) fn prometheus(workspace: &Workspace) -> Result<PrometheusTools> {
    ensure!(ARCH == "x86_64", "Prometheus is unpacked for x86-64; this machine is {ARCH}");
    promtool::fetch(&workspace.rig())
}

/// kustomize, for the presets.
pub(crate) fn kustomize(workspace: &Workspace) -> Result<Kustomize> {
    ensure!(ARCH == "x86_64", "kustomize is unpacked for x86-64; this machine is {ARCH}");
    kustomize::fetch(&workspace.rig())
}

/// An API server for custom resources, for tests of what the daemon publishes.
pub(crate) fn crd_api(workspace: &Workspace) -> Result<CrdApi> {
    ensure!(ARCH == "x86_64", "the API server is built on x86-64; this machine is {ARCH}");
    crd_api::fetch(&workspace.rig())
}

/// What packs releases.
pub(crate) fn dist_tools() -> Result<()> {
    packages::install(&packages::DIST)
}

/// What runs programs of an architecture.
pub(crate) fn emulator(workspace: &Workspace, architecture: Architecture) -> Result<ProgramEmulator> {
    emulator::fetch(&workspace.rig(), architecture)
}

/// What unpacks captured machines.
pub(crate) fn unpacker() -> Result<()> {
    packages::install(&packages::UNPACKER)
}

/// A browser without a window, for the page.
pub(crate) fn browser() -> Result<()> {
    packages::install(&packages::BROWSER)
}

/// A terminal, for the live screen.
pub(crate) fn terminal() -> Result<()> {
    packages::install(&packages::TERMINAL)
}

/// Everything that a run without arguments needs.
pub(crate) fn everything(workspace: &Workspace) -> Result<()> {
    build_tools(workspace)?;
    prometheus(workspace)?;
    helm(workspace)?;
    jactionlint(workspace)?;
    kustomize(workspace)?;
    cyclonedx(workspace)?;
    browser()?;
    terminal()?;
    let default = GuestParts::DEFAULT;
    let with_containers = Userland::Containers(ContainerdPackages::DEFAULT);
    for parts in [
        GuestParts { kernel: Series::SECOND, ..default },
        default,
        GuestParts { userland: with_containers, ..default },
    ] {
        rig(workspace, parts)?;
    }
    crd_api(workspace).map(drop)
}
