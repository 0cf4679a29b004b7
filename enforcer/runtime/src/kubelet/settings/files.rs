//! The configuration in the kubelet's files and on its command line.
//!
//! Order: the file of `--config`, then each `*.conf` below `--config-dir` as a merge patch, then defaults and
//! flags (`cmd/kubelet/app/server.go`).
//!
//! Invariants: a file counts only if root (or the daemon's user) owns it, no other user may write it, and it
//! has not changed since the kubelet started: the kubelet reads it once, at its start. A symbolic link to a
//! file is followed, as the kubelet does; what it leads to has to meet the same conditions, and each link
//! on the way has to be older than the kubelet, as one could be pointed at another old file. If one file is
//! missing or unfit, no field is taken from any: the others alone are a configuration that never was.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use enforcer_core::cluster::state::ConfigurationSource;
use enforcer_host::{
    HostRoot,
    owned_file::{of_one_writer, of_ours},
    read_within,
};
use rustix::fs::{FileType, OFlags};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    ReadConfiguration,
    configuration::{Configuration, FieldFault, fill_eviction},
    document::{DocumentFault, SIZE_LIMIT, parse_document},
    effective,
    merge::merge_patch,
    process::RunningKubelet,
};

/// Most files of the directory that are read, most directories, and deepest nesting.
const MOST_FILES: usize = 256;
const MOST_DIRS: usize = 256;
const DEPTH: usize = 16;
/// Most symbolic links on the way to a file.
const MOST_LINKS: usize = 8;

/// Why the files are not the configuration of the kubelet that runs.
#[derive(Debug, Error)]
enum FileFault {
    #[error("{path}: {cause}", path = path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("{path}: {cause}", path = path.display())]
    Document { path: PathBuf, cause: DocumentFault },
    #[error("{path}: changed after the kubelet started, which reads it at its start", path = path.display())]
    Changed { path: PathBuf },
    #[error("{path}: a symbolic link, which the kubelet does not follow", path = path.display())]
    Link { path: PathBuf },
    #[error(
        "{path}: more files, directories, links or levels than any configuration has",
        path = path.display()
    )]
    TooMany { path: PathBuf },
    #[error("{path}: a relative path to an unknown working directory", path = path.display())]
    Relative { path: PathBuf },
    #[error("{0}")]
    Field(#[from] FieldFault),
    #[error("{0}; its files are not read")]
    Elsewhere(String),
    #[error("the start of the kubelet is not known, so its files may be newer than what it has read")]
    NoStart,
    #[error("the files of a captured machine are not read")]
    Captured,
}

/// Reads the files that the command line names, and applies its flags.
pub fn read_files(host: &HostRoot, kubelet: &RunningKubelet) -> ReadConfiguration {
    let mut unread = Vec::new();
    let mut configuration = match fields(host, kubelet) {
        Ok(configuration) => configuration,
        Err(fault) => {
            unread.push(effective::source("configuration", fault.to_string()));
            Configuration::default()
        }
    };
    let is_complete = unread.is_empty();
    for fault in configuration.apply_flags(&kubelet.flags) {
        unread.push(effective::source(&fault.field, fault.problem));
    }
    if is_complete {
        configuration.fill_defaults();
    }
    ReadConfiguration { source: ConfigurationSource::Files, configuration, unread }
}

fn fields(host: &HostRoot, kubelet: &RunningKubelet) -> Result<Configuration, FileFault> {
    let path = |flag| kubelet.flags.value(flag).filter(|path| !path.is_empty()).map(Path::new);
    let (file, dir) = (path("config"), path("config-dir"));
    let mut fields = Map::new();
    if file.is_none() && dir.is_none() {
        return Ok(Configuration::default());
    }
    if let Some(reason) = &kubelet.elsewhere {
        return Err(FileFault::Elsewhere(reason.clone()));
    }
    if host.captured {
        return Err(FileFault::Captured);
    }
    let reader = FileReader { host, started_at: kubelet.earliest_start.ok_or(FileFault::NoStart)? };
    if let Some(file) = file {
        fields = reader.document(&absolute(kubelet, file)?)?;
        fill_eviction(&mut fields);
    }
    if let Some(dir) = dir {
        let dir = absolute(kubelet, dir)?;
        for drop_in in reader.drop_ins(&dir)? {
            merge_patch(&mut fields, reader.document(&drop_in)?);
        }
    }
    Ok(Configuration::from_fields(&fields)?)
}

fn absolute(kubelet: &RunningKubelet, path: &Path) -> Result<PathBuf, FileFault> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    let relative = || FileFault::Relative { path: path.to_owned() };
    Ok(kubelet.working_dir.as_ref().ok_or_else(relative)?.join(path))
}

/// Reads files that are older than the kubelet.
struct FileReader<'a> {
    host: &'a HostRoot,
    started_at: i64,
}

impl FileReader<'_> {
    fn document(&self, path: &Path) -> Result<Map<String, Value>, FileFault> {
        let failed = |cause| FileFault::Read { path: path.to_owned(), cause };
        let flags = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        self.check(path, &metadata)?;
        self.check_links(path)?;
        let bytes = read_within(file, SIZE_LIMIT as u64).map_err(failed)?;
        let faulty = |cause| FileFault::Document { path: path.to_owned(), cause };
        parse_document(&bytes).map_err(faulty)
    }

    /// Files and directories alike: a file that was removed has changed its directory.
    fn check(&self, path: &Path, metadata: &fs::Metadata) -> Result<(), FileFault> {
        let failed = |cause| FileFault::Read { path: path.to_owned(), cause };
        of_ours(metadata).and_then(|()| of_one_writer(metadata)).map_err(failed)?;
        self.check_time(path, metadata)
    }

    fn check_time(&self, path: &Path, metadata: &fs::Metadata) -> Result<(), FileFault> {
        // The time of change, unlike that of modification, is set by the kernel alone, and by a rename too.
        // Both times are whole seconds, and that of the start may be one too small.
        if metadata.ctime() > self.started_at.saturating_add(1) {
            return Err(FileFault::Changed { path: path.to_owned() });
        }
        Ok(())
    }

    /// Checks each symbolic link on the way to an absolute path: links to directories too, as the `..data` of
    /// a mounted `ConfigMap`. A caller opens the file first, so that a link that changes meanwhile is newer.
    fn check_links(&self, path: &Path) -> Result<(), FileFault> {
        let names = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
        };
        let mut links = 0;
        let mut real = PathBuf::from("/");
        let mut rest = names(path);
        while let Some(name) = rest.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            real.push(name);
            let failed = |cause| FileFault::Read { path: real.clone(), cause };
            let metadata = fs::symlink_metadata(&real).map_err(failed)?;
            if !metadata.is_symlink() {
                continue;
            }
            self.check_time(&real, &metadata)?;
            links += 1;
            if links > MOST_LINKS {
                return Err(FileFault::TooMany { path: path.to_owned() });
            }
            rest.extend(names(&fs::read_link(&real).map_err(failed)?));
            real.pop();
        }
        Ok(())
    }

    /// The files of the directory, in the order of Go's `filepath.WalkDir`: by name, a directory with all
    /// below it at the place of its name.
    fn drop_ins(&self, dir: &Path) -> Result<Vec<PathBuf>, FileFault> {
        let mut files = Vec::new();
        let mut dirs = 0;
        self.walk(dir, 0, &mut dirs, &mut files)?;
        self.check_links(dir)?;
        Ok(files)
    }

    fn walk(
        &self,
        dir: &Path,
        depth: usize,
        dirs: &mut usize,
        files: &mut Vec<PathBuf>,
    ) -> Result<(), FileFault> {
        let failed = |cause| FileFault::Read { path: dir.to_owned(), cause };
        let too_many = || FileFault::TooMany { path: dir.to_owned() };
        let metadata = fs::symlink_metadata(dir).map_err(failed)?;
        if metadata.is_symlink() {
            return Err(FileFault::Link { path: dir.to_owned() });
        }
        self.check(dir, &metadata)?;
        *dirs += 1;
        if depth > DEPTH || *dirs > MOST_DIRS {
            return Err(too_many());
        }
        let mut entries = self.host.at(dir).read_dir().map_err(failed)?;
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in entries {
            let path = dir.join(&name);
            if kind == FileType::Directory {
                self.walk(&path, depth + 1, dirs, files)?;
            } else if name.as_bytes().ends_with(b".conf") {
                if files.len() == MOST_FILES {
                    return Err(too_many());
                }
                files.push(path);
            }
        }
        Ok(())
    }
}
