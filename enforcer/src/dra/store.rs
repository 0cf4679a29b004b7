//! The state file and the files of the Container Device Interface.
//!
//! The state file comes first when a claim is prepared, and last when it is given up: a file for a claim that
//! the state does not know gives a container nothing, and a claim without its file keeps its CPUs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use enforcer_core::dra::{ClaimLedger, ClaimUid, PreparedClaim, cdi};
use enforcer_host::file_error::{FileError, failed};

use crate::whole_file;

/// Name of the state file in the directory of the daemon's state.
pub(super) const STATE_FILE: &str = "dra.json";
/// Most damaged state files that are kept.
const MOST_KEPT: usize = 8;

/// Where prepared claims are kept.
#[derive(Debug, Clone)]
pub struct ClaimStore {
    /// The state file.
    pub state: PathBuf,
    /// Directory that container runtimes read, `/var/run/cdi`.
    pub cdi: PathBuf,
    /// Whether containers get the variable that other programs read, too.
    pub compatible: bool,
}

/// What the state file had.
#[derive(Debug)]
pub struct StoredLedger {
    /// The ledger; empty if there was none, or a damaged one.
    pub ledger: ClaimLedger,
    /// What is wrong with the file, and where it is kept. Containers of claims that nothing tells of any more
    /// may run: [`ClaimStore::take_over`] takes these up by their files.
    pub damage: Option<String>,
}

impl ClaimStore {
    /// Reads the state file. A damaged one is kept beside it.
    ///
    /// # Errors
    /// If there is a file that cannot be read, or a damaged one cannot be kept.
    pub fn load(&self, node: &str, boot_id: &str) -> Result<StoredLedger, FileError> {
        let empty = || ClaimLedger::new(node, boot_id);
        let bytes = match fs::read(&self.state) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(StoredLedger { ledger: empty(), damage: None });
            }
            Err(error) => return Err(failed("reading", &self.state)(error)),
        };
        let text = String::from_utf8_lossy(&bytes);
        match ClaimLedger::from_text(&text, node, boot_id) {
            Ok(ledger) => Ok(StoredLedger { ledger, damage: None }),
            Err(damage) => {
                let kept = self.kept()?;
                fs::rename(&self.state, &kept).map_err(failed("renaming to", &kept))?;
                let path = self.state.display();
                let damage = format!("{path}: {damage}; it is kept as {}", kept.display());
                Ok(StoredLedger { ledger: empty(), damage: Some(damage) })
            }
        }
    }

    /// A name for a damaged file that no earlier one has.
    fn kept(&self) -> Result<PathBuf, FileError> {
        let first = self.state.with_added_extension("damaged");
        let others = (2..=MOST_KEPT).map(|number| first.with_added_extension(number.to_string()));
        let free = [first.clone()].into_iter().chain(others).find(|path| !path.exists());
        free.ok_or_else(|| failed("keeping a damaged file as", &first)(io::ErrorKind::AlreadyExists.into()))
    }

    /// Writes the state file, so that it is there after a loss of power.
    pub(super) fn write(&self, ledger: &ClaimLedger) -> Result<(), FileError> {
        create_above(&self.state)?;
        whole_file::replace(&self.state, ledger.to_text().as_bytes())?;
        let Some(above) = self.state.parent() else { return Ok(()) };
        fs::File::open(above).and_then(|folder| folder.sync_all()).map_err(failed("writing", above))
    }

    /// The files of claims.
    pub(super) fn files(&self) -> Result<Vec<(PathBuf, ClaimUid)>, FileError> {
        let entries = match fs::read_dir(&self.cdi) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("listing", &self.cdi))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("listing", &self.cdi))?;
            files
                .extend(entry.file_name().to_str().and_then(cdi::uid_of_file).map(|uid| (entry.path(), uid)));
        }
        Ok(files)
    }

    /// Whether the file of a claim is there as it is to be.
    pub(super) fn has(&self, claim: &PreparedClaim) -> bool {
        let file = cdi::file(claim, self.compatible);
        fs::read(self.cdi.join(file.name)).is_ok_and(|there| there == file.text.as_bytes())
    }

    /// Writes the file of a claim, unless it is there as it is to be.
    pub(super) fn add(&self, claim: &PreparedClaim) -> Result<(), FileError> {
        if self.has(claim) {
            return Ok(());
        }
        let file = cdi::file(claim, self.compatible);
        let path = self.cdi.join(file.name);
        create_above(&path)?;
        whole_file::replace(&path, file.text.as_bytes())
    }

    /// Removes the file of a claim.
    pub(super) fn remove(&self, uid: &ClaimUid) -> Result<(), FileError> {
        remove(&self.cdi.join(cdi::file_name(uid)))
    }

    /// Makes the directory fit the ledger: files of unknown claims go, and missing ones come. A recovered
    /// claim keeps the file that tells of it.
    ///
    /// # Errors
    /// Of the first file that cannot be written or removed; all others are.
    pub fn tidy(&self, ledger: &ClaimLedger) -> Result<(), FileError> {
        let unknown = self.files()?.into_iter().filter(|(_, uid)| ledger.claim(uid).is_none());
        let removed: Vec<_> = unknown.map(|(path, _)| remove(&path)).collect();
        let whole = ledger.claims().filter(|claim| !claim.is_recovered());
        let added: Vec<_> = whole.map(|claim| self.add(claim)).collect();
        removed.into_iter().chain(added).collect()
    }
}

pub(super) fn create_above(path: &Path) -> Result<(), FileError> {
    let Some(above) = path.parent() else { return Ok(()) };
    fs::create_dir_all(above).map_err(failed("creating", above))
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing", path)(error)),
        _ => Ok(()),
    }
}
