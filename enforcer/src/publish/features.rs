//! The feature file of node-feature-discovery, from which it makes labels of the node.
//!
//! Invariants: readers see the whole file or none, because the next text is written under a hidden name,
//! which node-feature-discovery passes over, and renamed. The file goes when the daemon ends in order. A file
//! that cannot be written delays nothing, is named, and is written again with the next look at the node.

use std::{
    fs::{self, Permissions},
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use enforcer_cluster::send_if_different;
use enforcer_core::cluster::{features::NodeFeatures, state::NodeState};
use enforcer_host::file_error::{FileError, failed};
use numa_topology::degraded::Degraded;
use tokio::sync::watch;

use crate::whole_file;

/// Rights of the file, whatever the umask: node-feature-discovery runs as another user.
const MODE: u32 = 0o644;
/// Effect of a file that is not written.
const NO_LABELS: &str = "node-feature-discovery gives the node older labels of numa-enforcer, or none";

/// The file, for what writes it and for what removes it.
#[derive(Debug, Clone)]
pub(crate) struct FeatureFile {
    path: PathBuf,
    has_ended: Arc<AtomicBool>,
}

impl FeatureFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), has_ended: Arc::default() }
    }

    fn write(&self, text: &str) -> Result<(), FileError> {
        if self.has_ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        whole_file::replace(&self.path, text.as_bytes())?;
        fs::set_permissions(&self.path, Permissions::from_mode(MODE))
            .map_err(failed("setting the mode of", &self.path))?;
        // The daemon may have ended meanwhile, and found no file to remove.
        if self.has_ended.load(Ordering::SeqCst) {
            self.remove();
        }
        Ok(())
    }

    /// Removes the file, for good.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.remove();
    }

    fn remove(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!("removing {}: {error}; the labels of the node stay", self.path.display());
            }
            _ => {}
        }
    }
}

/// Writes the file when its text changes.
pub(super) struct FeatureWriter {
    file: FeatureFile,
    unwritten: watch::Sender<Option<Degraded>>,
    features: NodeFeatures,
    /// The text that was written last.
    written: String,
}

impl FeatureWriter {
    /// Nothing is written yet. `unwritten` is set while the file is not as it should be.
    pub(super) fn new(file: FeatureFile, unwritten: watch::Sender<Option<Degraded>>) -> Self {
        Self { file, unwritten, features: NodeFeatures::default(), written: String::new() }
    }

    /// Notes a state of the node.
    pub(super) fn note(&mut self, state: &NodeState) {
        self.features.note(state);
        let text = self.features.text();
        if text == self.written && self.file.path.exists() {
            return;
        }
        let fault = match self.file.write(&text) {
            Ok(()) => {
                self.written = text;
                None
            }
            Err(error) => Some(Degraded::new("feature-file", error.to_string(), NO_LABELS)),
        };
        send_if_different(&self.unwritten, fault);
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::cluster::state::KubeletProfile;

    use super::*;

    fn state(policy: &str) -> NodeState {
        let kubelet = KubeletProfile {
            topology_policy: policy.to_owned(),
            topology_scope: "pod".to_owned(),
            ..KubeletProfile::default()
        };
        NodeState { kubelet, ..NodeState::default() }
    }

    fn writer(path: &Path) -> (FeatureWriter, watch::Receiver<Option<Degraded>>) {
        let (unwritten, missing) = watch::channel(None);
        (FeatureWriter::new(FeatureFile::new(path), unwritten), missing)
    }

    #[test]
    fn file_follows_the_node_and_goes_with_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numa-enforcer");
        let (mut writer, missing) = writer(&path);
        for policy in ["restricted", "none"] {
            writer.note(&state(policy));
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(&format!("numa-enforcer.topology-policy={policy}\n")), "{text}");
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no other file is left");
        fs::remove_file(&path).unwrap();
        writer.note(&state("none"));
        assert!(path.exists(), "one that was taken away is written again");
        assert_eq!(*missing.borrow(), None);

        writer.file.clone().end();
        assert!(!path.exists());
        writer.note(&state("restricted"));
        assert!(!path.exists(), "nothing is written any more");
        writer.file.end();
    }

    #[test]
    fn directory_that_is_missing_is_named_until_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("features.d/numa-enforcer");
        let (mut writer, missing) = writer(&path);
        writer.note(&state("none"));
        let fault = missing.borrow().clone().unwrap();
        assert_eq!(fault.source, "feature-file");
        assert!(fault.reason.contains("features.d"), "{}", fault.reason);
        fs::create_dir(dir.path().join("features.d")).unwrap();
        writer.note(&state("none"));
        assert!(path.exists() && missing.borrow().is_none());
    }
}
