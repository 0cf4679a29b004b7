//! The guest's kernel: Debian's, as it is installed in clouds.
//!
//! The ELF image is cut out of the bzImage, and QEMU starts it by its PVH note: that saves unpacking
//! 50 MB under emulation at every boot.

use std::{
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use super::{apt::Apt, cache, root_image::with_sbin};
use crate::command;

const SUITE: &str = "trixie";
const FLAVOUR: &str = "cloud-amd64";

/// An unpacked kernel.
pub(super) struct Kernel {
    /// `uname -r`.
    pub(super) release: String,
    /// ELF image.
    pub(super) image: PathBuf,
    /// Folder that holds `lib/modules`.
    pub(super) tree: PathBuf,
}

/// Downloads and unpacks the suite's current kernel.
pub(super) fn fetch(dir: &Path) -> Result<Kernel> {
    let made = cache::keep(dir, "kernel", &[SUITE, FLAVOUR], |place| {
        fs::create_dir(place)?;
        let scratch = place.join("download");
        fs::create_dir(&scratch)?;
        let release = download(&scratch)?;
        unpack(&scratch, place, &release)?;
        fs::write(place.join("release"), &release).context("write the release")?;
        fs::remove_dir_all(&scratch).context("remove the packages")
    })?;
    let release = fs::read_to_string(made.join("release")).context("read the kernel's release")?;
    Ok(Kernel { release, image: made.join("vmlinux"), tree: made.join("tree") })
}

fn download(scratch: &Path) -> Result<String> {
    let apt = Apt::of_suite(SUITE, &scratch.join("apt"))?;
    let image = apt
        .dependencies(&format!("linux-image-{FLAVOUR}"))?
        .into_iter()
        .find(|package| package.starts_with("linux-image-"))
        .with_context(|| format!("{SUITE} has no kernel {FLAVOUR}"))?;
    let release = image.trim_start_matches("linux-image-").to_owned();
    // Later suites put the image and the modules into packages of their own.
    let mut packages: Vec<String> =
        apt.dependencies(&image)?.into_iter().filter(|package| is_part(package)).collect();
    packages.push(image);
    apt.download(&packages, scratch)?;
    Ok(release)
}

fn is_part(package: &str) -> bool {
    ["linux-binary-", "linux-modules-", "linux-base-"].iter().any(|prefix| {
        package.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

fn unpack(scratch: &Path, place: &Path, release: &str) -> Result<()> {
    let tree = place.join("tree");
    for entry in fs::read_dir(scratch).context("list the downloaded packages")? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            command::quietly(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
        }
    }
    let image = find_image(&tree, release)?;
    let elf = decompress(payload(&fs::read(&image).with_context(|| format!("read {}", image.display()))?)?)?;
    fs::write(place.join("vmlinux"), elf).context("write vmlinux")?;
    // kmod looks below /lib or /usr/lib, as the distribution was built.
    if !tree.join("lib").exists() {
        symlink("usr/lib", tree.join("lib")).context("link lib")?;
    }
    command::quietly(Command::new("depmod").arg("-b").arg(&tree).arg(release).env("PATH", with_sbin()))
        .map(drop)
}

fn find_image(tree: &Path, release: &str) -> Result<PathBuf> {
    let places = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
    let found = places.iter().map(|place| tree.join(place)).find(|path| path.is_file());
    found.with_context(|| format!("no kernel image in the packages of {release}"))
}

/// The compressed kernel inside a bzImage, without the four bytes of unpacked size behind it
/// (Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset`, `payload_length`).
fn payload(image: &[u8]) -> Result<&[u8]> {
    let long = |at: usize| -> Result<usize> {
        let bytes = image.get(at..at + 4).context("bzImage is too short")?;
        Ok(usize::try_from(u32::from_le_bytes(bytes.try_into()?))?)
    };
    ensure!(image.get(0x202..0x206) == Some(b"HdrS"), "not a bzImage: no HdrS at 0x202");
    let setup_sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * 512 + long(0x248)?;
    let length = long(0x24c)?.checked_sub(4).context("payload_length is less than 4")?;
    image.get(start..start + length).context("the payload reaches beyond the file")
}

fn decompress(payload: &[u8]) -> Result<Vec<u8>> {
    let program = match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0xfd, b'7', b'z', b'X', ..] => "xz",
        _ => bail!("unknown compression of the kernel: {:02x?}", payload.get(..4)),
    };
    pipe(Command::new(program).args(["-q", "-d", "-c"]), payload)
}

/// Feeds a program and collects what it writes.
fn pipe(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", command.get_program().display()))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    let fed = feeding.join().ok().context("the feeding thread panicked")?;
    ensure!(output.status.success(), "{} failed ({})", command.get_program().display(), output.status);
    fed.context("feed the decompressor")?;
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bz_image(sectors: u8, payload: &[u8]) -> Vec<u8> {
        let start = (usize::from(if sectors == 0 { 4 } else { sectors }) + 1) * 512;
        let mut image = vec![0; start + 16];
        image[0x1f1] = sectors;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(payload.len() + 4).unwrap();
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(&[0; 4]);
        image
    }

    #[test]
    fn the_payload_is_found_behind_the_setup_sectors() {
        for sectors in [0, 4, 39] {
            assert_eq!(payload(&bz_image(sectors, b"kernel")).unwrap(), b"kernel");
        }
    }

    #[test]
    fn a_file_that_is_no_kernel_is_refused() {
        assert!(payload(b"").is_err());
        assert!(payload(&[0; 4096]).is_err());
        let mut cut = bz_image(4, b"kernel");
        cut.truncate(0x400);
        assert!(payload(&cut).is_err());
    }

    #[test]
    fn split_packages_are_recognised() {
        assert!(is_part("linux-modules-7.2.13-cloud-amd64"));
        assert!(!is_part("linux-base"));
        assert!(!is_part("kmod"));
    }
}
