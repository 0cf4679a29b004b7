//! What builds the product for another architecture: Debian's cross compiler, and libraries of that
//! architecture unpacked beside it.
//!
//! rustup's compiler has no standard library of another architecture here, and Debian's has: `rustc-web`,
//! which builds the kernel side anyway, takes the package `libstd-rust-web-dev` of any architecture, of its
//! own version. Such packages are unpacked and not installed, because that would make this a machine of two
//! architectures.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{apt::Apt, cache, packages};
use crate::{architecture::Architecture, command, workspace::Workspace};

/// Where Debian's compiler has its libraries.
const RUSTLIB: &str = "/usr/lib/rustlib";

/// The compiler with the libraries of both architectures. As a program and not as a flag of rustc: flags
/// enter names of symbols, and the path differs from machine to machine.
const RUSTC: &str = "#!/bin/sh\nexec /usr/bin/rustc --sysroot \"${0%/*}/sysroot\" \"$@\"\n";

/// Rust's standard library, of the compiler's version.
const STANDARD_LIBRARY: &str = "libstd-rust-web-dev";

/// Packages of the other architecture.
const LIBRARIES: [&str; 2] = ["libelf-dev", "zlib1g-dev"];

/// File with the names and versions of what is unpacked.
const UNPACKED: &str = "packages";

/// Compilers and libraries for one other architecture.
pub(crate) struct CrossCompiler {
    /// Folder of the unpacked packages.
    root: PathBuf,
}

/// Installs the cross compiler and unpacks the libraries, once.
pub(crate) fn compiler(workspace: &Workspace, architecture: Architecture) -> Result<CrossCompiler> {
    packages::install(&packages::CROSS)?;
    let version = packages::version("rustc-web")?.context("rustc-web is not installed")?;
    let standard_library = format!("{STANDARD_LIBRARY}:{}={version}", architecture.debian());
    let recipe =
        [&[standard_library.as_str(), architecture.debian(), RUSTLIB, RUSTC][..], &LIBRARIES].concat();
    let name = format!("cross-{}", architecture.debian());
    let root = cache::keep(&workspace.rig(), &name, &recipe, |place| {
        let scratch = place.join("download");
        fs::create_dir_all(&scratch).with_context(|| format!("create {}", scratch.display()))?;
        let apt = Apt::of_architecture(architecture, &scratch.join("apt"))?;
        let mut names = vec![standard_library.clone()];
        names.extend(LIBRARIES.map(|name| format!("{name}:{}", architecture.debian())));
        apt.download(&names, &scratch)?;
        let mut unpacked = Vec::new();
        for entry in fs::read_dir(&scratch).context("list the downloaded packages")? {
            let package = entry?.path();
            if package.extension().is_some_and(|extension| extension == "deb") {
                command::quietly(Command::new("dpkg-deb").arg("-x").arg(&package).arg(place))?;
                let mut show = Command::new("dpkg-deb");
                show.args(["--show", "--showformat", "${Package} ${Version}\n"]).arg(&package);
                unpacked.push(command::quietly(&mut show)?);
            }
        }
        fs::remove_dir_all(&scratch).context("remove the packages")?;
        fs::write(place.join(UNPACKED), unpacked.concat()).context("write what is unpacked")?;
        let rustc = place.join("rustc");
        fs::write(&rustc, RUSTC).with_context(|| format!("write {}", rustc.display()))?;
        fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).context("make rustc a program")?;
        join_sysroots(place)
    })?;
    Ok(CrossCompiler { root })
}

/// Links the libraries of both architectures into one folder, where rustc looks for its own and for those of
/// the target. The folder `root` is renamed when it is complete, so links within it are relative.
fn join_sysroots(root: &Path) -> Result<()> {
    let joined = root.join("sysroot/lib/rustlib");
    fs::create_dir_all(&joined).with_context(|| format!("create {}", joined.display()))?;
    let unpacked = root.join("usr/lib/rustlib");
    for (folder, from_joined) in [(Path::new(RUSTLIB), RUSTLIB), (&unpacked, "../../../usr/lib/rustlib")] {
        for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
            let name = entry?.file_name();
            let link = joined.join(&name);
            if fs::symlink_metadata(&link).is_err() {
                symlink(Path::new(from_joined).join(&name), &link)
                    .with_context(|| format!("link {}", link.display()))?;
            }
        }
    }
    Ok(())
}

impl CrossCompiler {
    /// Makes a build for this machine one for the other architecture.
    pub(crate) fn adapt(&self, cargo: &mut Command, architecture: Architecture) {
        let (triple, folder) = (architecture.triple(), format!("{}-linux-gnu", architecture.kernel()));
        let gcc = architecture.gnu("gcc");
        let include = self.root.join("usr/include");
        let headers = format!("-I{} -I{}", include.display(), include.join(&folder).display());
        cargo
            .env("RUSTC", self.root.join("rustc"))
            .env(format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_")), &gcc)
            .env(format!("CC_{triple}"), &gcc)
            .env(format!("AR_{triple}"), architecture.gnu("ar"))
            .env("LIBBPF_SYS_EXTRA_CFLAGS", headers)
            .env("LIBBPF_SYS_LIBRARY_PATH", self.root.join("usr/lib").join(&folder));
    }

    /// Version of a package that is unpacked.
    pub(super) fn package(&self, name: &str) -> Result<Option<String>> {
        let path = self.root.join(UNPACKED);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        Ok(lines.find(|(package, _)| *package == name).map(|(_, version)| version.to_owned()))
    }
}
