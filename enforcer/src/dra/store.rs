//! The state file and the files of the Container Device Interface.
//!
//! The state file comes first when a claim is prepared, and last when it is given up: a file for a claim that
//! the state does not know gives a container nothing, and a claim without its file keeps its CPUs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use enforcer_core::dra::{
    ClaimLedger, ClaimUid, PreparedClaim,
    cdi::{self, CdiFile},
    metadata::{self, MetadataFile},
};
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
    /// Folder of the metadata of devices, by the path that it has on the node; `None` without them.
    pub metadata: Option<PathBuf>,
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
                let kept = self.kept();
                fs::rename(&self.state, &kept).map_err(failed("renaming to", &kept))?;
                let path = self.state.display();
                let damage = format!("{path}: {damage}; it is kept as {}", kept.display());
                Ok(StoredLedger { ledger: empty(), damage: Some(damage) })
            }
        }
    }

    /// A name for a damaged file that no earlier one has; that of the last one if there are many.
    fn kept(&self) -> PathBuf {
        let first = self.state.with_added_extension("damaged");
        let numbered = |number: usize| first.with_added_extension(number.to_string());
        let mut names = std::iter::once(first.clone()).chain((2..MOST_KEPT).map(numbered));
        names.find(|path| !path.exists()).unwrap_or_else(|| numbered(MOST_KEPT))
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

    /// Whether the files of a claim are there as they are to be.
    pub(super) fn has(&self, claim: &PreparedClaim, node: &str) -> bool {
        let (file, metadata) = self.files_of(claim, node);
        let is_there =
            |(path, file): &(PathBuf, MetadataFile)| file.text(read_back(path).as_deref()).is_none();
        fs::read(self.cdi.join(file.name)).is_ok_and(|there| there == file.text.as_bytes())
            && metadata.iter().all(is_there)
    }

    /// The file of a claim, and those of its metadata.
    fn files_of(&self, claim: &PreparedClaim, node: &str) -> (CdiFile, Vec<(PathBuf, MetadataFile)>) {
        let Some(folder) = &self.metadata else { return (cdi::file(claim, self.compatible), Vec::new()) };
        let files = metadata::files(claim, node).into_iter();
        let files: Vec<(PathBuf, MetadataFile)> = files.map(|file| (folder.join(&file.name), file)).collect();
        let mounts =
            files.iter().map(|(path, file)| (path.to_string_lossy().into_owned(), file.path.clone()));
        (cdi::file_with(claim, self.compatible, &mounts.collect::<Vec<_>>()), files)
    }

    /// Writes the files of a claim, unless they are there as they are to be.
    pub(super) fn add(&self, claim: &PreparedClaim, node: &str) -> Result<(), FileError> {
        if self.has(claim, node) {
            return Ok(());
        }
        let (file, metadata) = self.files_of(claim, node);
        for (path, file) in metadata {
            let present = read_back(&path);
            let Some(text) = file.text(present.as_deref()) else { continue };
            create_above(&path)?;
            if present.is_some() {
                // Containers have this very file mounted.
                fs::write(&path, text).map_err(failed("writing", &path))?;
            } else {
                // Processes of any user in a container read it.
                whole_file::replace_for_all(&path, text.as_bytes())?;
            }
        }
        let path = self.cdi.join(file.name);
        create_above(&path)?;
        whole_file::replace_for_all(&path, file.text.as_bytes())
    }

    /// Removes the files of a claim.
    pub(super) fn remove(&self, uid: &ClaimUid) -> Result<(), FileError> {
        let metadata = self.remove_metadata(|name| metadata::is_of(name, uid.as_str()));
        remove(&self.cdi.join(cdi::file_name(uid))).and(metadata)
    }

    fn remove_metadata(&self, is_unneeded: impl Fn(&str) -> bool) -> Result<(), FileError> {
        let Some(folder) = &self.metadata else { return Ok(()) };
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed("listing", folder))?,
        };
        for entry in entries {
            let entry = entry.map_err(failed("listing", folder))?;
            if entry.file_name().to_str().is_some_and(&is_unneeded) {
                remove(&entry.path())?;
            }
        }
        Ok(())
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
        let added: Vec<_> = whole.map(|claim| self.add(claim, ledger.node())).collect();
        let is_known = |name: &str| ledger.claims().any(|claim| metadata::is_of(name, claim.uid.as_str()));
        let metadata = self.remove_metadata(|name| !is_known(name));
        removed.into_iter().chain(added).chain([metadata]).collect()
    }
}

pub(super) fn create_above(path: &Path) -> Result<(), FileError> {
    let Some(above) = path.parent() else { return Ok(()) };
    fs::create_dir_all(above).map_err(failed("creating", above))
}

/// The metadata that are there.
fn read_back(path: &Path) -> Option<String> {
    let is_bounded = fs::metadata(path).is_ok_and(|found| found.len() <= metadata::MAX_BYTES);
    if is_bounded { fs::read_to_string(path).ok() } else { None }
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing", path)(error)),
        _ => Ok(()),
    }
}
