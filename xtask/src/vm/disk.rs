//! Disks that carry files and the job into a guest.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::{command, setup::with_sbin};

/// Room for the file system's own tables, in bytes.
const OVERHEAD: u64 = 16 << 20;

/// Bytes in a sector: a disk is made of whole ones.
const SECTOR: usize = 512;

/// An ext4 image of a folder, written to `image`.
pub(crate) fn inject_image(folder: &Path, image: &Path) -> Result<()> {
    let mebibytes = (size_of_files(folder)? + OVERHEAD).div_ceil(1 << 20);
    command::quietly(
        Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-O", "^has_journal,^metadata_csum,^resize_inode,^dir_index"])
            .args(["-m", "0", "-N", "1024", "-E", "nodiscard,lazy_itable_init=1", "-d"])
            .arg(folder)
            .arg(image)
            .arg(format!("{mebibytes}M"))
            .env("PATH", with_sbin()),
    )
    .map(drop)
}

fn size_of_files(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        sum += if kind.is_dir() { size_of_files(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}

/// The text of a job as a disk: padded with NUL bytes, which the guest drops.
pub(super) fn job_disk(script: &str, image: &Path) -> Result<()> {
    let mut bytes = script.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(SECTOR), 0);
    fs::write(image, bytes).with_context(|| format!("write {}", image.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_whole_sectors_and_never_none() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("job");
        for (length, wanted) in [(0, 512), (511, 512), (512, 1024)] {
            job_disk(&"x".repeat(length), &image).unwrap();
            assert_eq!(fs::metadata(&image).unwrap().len(), wanted);
        }
    }
}
