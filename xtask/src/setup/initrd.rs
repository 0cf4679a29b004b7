//! The guest's first file system: busybox, the modules it needs, and the scripts in `xtask/guest`.
//!
//! Uncompressed, because unpacking costs time in every boot. It is keyed by the scripts, so a
//! changed script is in the next boot.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{
    cache,
    kernel::GuestKernel,
    root_image::{Root, with_sbin},
};
use crate::command;

/// Scripts of the guest: name in the initrd and text.
const SCRIPTS: &[(&str, &str)] = &[
    ("init", include_str!("../../guest/init")),
    ("stage2", include_str!("../../guest/stage2")),
    ("nvdimm-to-ram", include_str!("../../guest/nvdimm-to-ram")),
    ("rig.service", include_str!("../../guest/rig.service")),
];

/// Kernel modules: disks, the way to this host, the file system of containers, and everything between an
/// NVDIMM and a NUMA node of RAM.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "overlay",
    "nfit",
    "libnvdimm",
    "nd_btt",
    "nd_pmem",
    "device_dax",
    "dax_pmem",
    "dax_hmem",
    "kmem",
];

/// Builds the initrd for a kernel.
pub(super) fn build(dir: &Path, kernel: &GuestKernel, root: &Root) -> Result<PathBuf> {
    let mut recipe = vec![kernel.release.as_str()];
    recipe.extend(SCRIPTS.iter().flat_map(|(name, text)| [*name, *text]));
    recipe.extend(MODULES);
    cache::keep(dir, &format!("initrd-{}", kernel.release), &recipe, |place| {
        let scratch = tempfile::tempdir().context("create a scratch folder")?;
        let tree = scratch.path();
        for folder in ["bin", "dev", "proc", "sys", "newroot", "lib", "usr"] {
            fs::create_dir(tree.join(folder))?;
        }
        // kmod looks below /lib or /usr/lib, as the distribution was built.
        symlink("../lib", tree.join("usr/lib")).context("link usr/lib")?;
        fs::copy(&root.busybox, tree.join("bin/busybox")).context("copy busybox")?;
        for (name, text) in SCRIPTS {
            let path = tree.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        put_modules(kernel, tree)?;
        let archive = fs::File::create(place).context("create the archive")?;
        let mut pack = Command::new("sh");
        pack.args(["-c", "find . | cpio -o -H newc --quiet"]).current_dir(tree).stdout(archive);
        command::visibly(&mut pack)
    })
}

/// Copies the modules and what they depend on, decompressed: busybox and the guest's modprobe then
/// need no library for it.
fn put_modules(kernel: &GuestKernel, tree: &Path) -> Result<()> {
    let release = kernel.release.as_str();
    let from = kernel.tree.join("lib/modules").join(release);
    let to = tree.join("lib/modules").join(release);
    fs::create_dir_all(&to)?;
    for index in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        if from.join(index).exists() {
            fs::copy(from.join(index), to.join(index)).with_context(|| format!("copy {index}"))?;
        }
    }
    for module in MODULES {
        let plan = command::quietly(
            Command::new("modprobe")
                .args(["--show-depends", "-S", release, "-d"])
                .arg(&kernel.tree)
                .arg(module)
                .env("PATH", with_sbin()),
        )?;
        for path in plan.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            put_module(Path::new(path.trim()), &to)?;
        }
    }
    command::quietly(Command::new("depmod").arg("-b").arg(tree).arg(release).env("PATH", with_sbin()))
        .map(drop)
}

fn put_module(path: &Path, to: &Path) -> Result<()> {
    let name = path.file_name().context("a module without a name")?.to_string_lossy();
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => {
            fs::copy(path, to.join(&*name)).with_context(|| format!("copy {}", path.display()))?;
            return Ok(());
        }
    };
    let plain = to.join(name.trim_end_matches(".xz").trim_end_matches(".zst"));
    let out = fs::File::create(&plain).with_context(|| format!("create {}", plain.display()))?;
    command::visibly(Command::new(program).args(["-q", "-d", "-c"]).arg(path).stdout(out))
}
