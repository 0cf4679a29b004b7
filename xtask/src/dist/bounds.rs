//! How large parts of a release may be (SPECIFICATION.md).

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

/// Bytes of the binary of one architecture.
pub(super) const BINARY: u64 = 16_000_000;

/// Bytes of the Debian package of one architecture, and of the compressed layer of its image.
pub(super) const PACKED: u64 = 8_000_000;

/// Fails if the file has `bound` bytes or more.
pub(super) fn check(file: &Path, bound: u64) -> Result<()> {
    let length = fs::metadata(file).with_context(|| format!("read {}", file.display()))?.len();
    ensure!(length < bound, "{} has {length} bytes, which must be less than {bound}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_itself_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "four").unwrap();
        check(&file, 5).unwrap();
        assert!(check(&file, 4).unwrap_err().to_string().contains("has 4 bytes"));
        assert!(check(&folder.path().join("absent"), 4).is_err());
    }
}
