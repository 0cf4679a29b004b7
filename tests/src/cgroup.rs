//! Cgroups that a scenario makes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::ids::{self, Ids};

/// Where the guest mounts the unified hierarchy.
const MOUNT: &str = "/sys/fs/cgroup";

/// Controllers that children of a scenario's cgroup have.
const CONTROLLERS: &str = "+cpuset +cpu +memory";

/// A cgroup of the guest. It is not removed by itself: the guest ends with its scenario.
#[derive(Debug, Clone)]
pub struct Cgroup {
    path: String,
}

impl Cgroup {
    /// Makes a cgroup, given by its path from the root (`/work/away`), and those above it.
    pub fn create(path: &str) -> Result<Self> {
        let mut folder = PathBuf::from(MOUNT);
        for part in path.trim_matches('/').split('/') {
            write(&folder.join("cgroup.subtree_control"), CONTROLLERS)?;
            folder.push(part);
            if !folder.is_dir() {
                fs::create_dir(&folder).with_context(|| format!("create cgroup {}", folder.display()))?;
            }
        }
        Ok(Self { path: format!("/{}", path.trim_matches('/')) })
    }

    /// Makes a cgroup that may use these CPUs and memory nodes.
    pub fn with_cpuset(path: &str, cpus: &str, mems: &str) -> Result<Self> {
        let cgroup = Self::create(path)?;
        cgroup.write("cpuset.cpus", cpus)?;
        cgroup.write("cpuset.mems", mems)?;
        Ok(cgroup)
    }

    /// A cgroup of another creator, by its path from the root.
    pub fn at(path: &str) -> Self {
        Self { path: path.to_owned() }
    }

    /// A child of it, of another creator.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self { path: format!("{}/{name}", self.path) }
    }

    /// Is it there?
    pub fn exists(&self) -> bool {
        self.folder().is_dir()
    }

    /// Removes it; nothing may be in it.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir(self.folder()).with_context(|| format!("remove cgroup {}", self.path))
    }

    /// Path from the root of the hierarchy, as the product names it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        Path::new(MOUNT).join(self.path.trim_start_matches('/'))
    }

    /// A file of it, without the line end.
    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.folder().join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Writes a file of it.
    pub fn write(&self, file: &str, value: &str) -> Result<()> {
        write(&self.folder().join(file), value)
    }

    /// Moves a process into it.
    pub fn adopt(&self, pid: u32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// A file of it that lists CPUs or nodes.
    pub fn ids(&self, file: &str) -> Result<Ids> {
        ids::parse(&self.read(file)?).with_context(|| format!("{file} of {}", self.path))
    }

    /// `cpuset.cpus` and `cpuset.mems` as configured.
    pub fn cpuset(&self) -> Result<(String, String)> {
        Ok((self.read("cpuset.cpus")?, self.read("cpuset.mems")?))
    }
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("write {value:?} to {}", path.display()))
}
