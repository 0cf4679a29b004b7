//! Disks that carry files and the job into a guest.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};

use crate::{command, setup::with_sbin};

/// Room for the file system's own tables, in bytes.
const OVERHEAD: u64 = 16 << 20;

/// Images of files are whole multiples of this: a snapshot has seen the size of its disks, and fits
/// every image of the same size. They are sparse.
const STEP: u64 = 128 << 20;

/// Bytes of every disk with a job.
const JOB: usize = 64 << 10;

/// An ext4 image of a folder, written to `image`.
pub(crate) fn inject_image(folder: &Path, image: &Path) -> Result<()> {
    let mebibytes = (size_of_files(folder)? + OVERHEAD).next_multiple_of(STEP) >> 20;
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

/// The text of a job as a disk: padded with NUL bytes, which the guest drops. A guest with an empty disk
/// waits for a job.
pub(super) fn job_disk(script: &str, image: &Path) -> Result<()> {
    let mut bytes = script.as_bytes().to_vec();
    ensure!(bytes.len() <= JOB, "the job has {} bytes; {JOB} fit", bytes.len());
    bytes.resize(JOB, 0);
    fs::write(image, bytes).with_context(|| format!("write {}", image.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_a_disk_of_the_same_size() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("job");
        for length in [0, 511, JOB] {
            job_disk(&"x".repeat(length), &image).unwrap();
            assert_eq!(fs::metadata(&image).unwrap().len(), JOB as u64);
        }
        assert!(job_disk(&"x".repeat(JOB + 1), &image).is_err());
    }
}
