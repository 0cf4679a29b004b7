//! The kubelet's part: the file in which its CPU manager keeps what it gave away, and a process of its name.
//!
//! The file is written as a kubelet writes it, with its checksum, and put in place of the old one as a whole.
//! It knows nothing of the product, which must be able to read it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{ChildStdin, ChildStdout, Command},
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::process::Running;

/// The kubelet's directory.
const ROOT: &str = "/var/lib/kubelet";

/// A process of the kubelet's name, which does nothing; it ends with its value.
#[derive(Debug)]
pub struct PlayedKubelet {
    _process: Running,
    /// Their ends are its end.
    _pipes: (ChildStdin, ChildStdout),
}

impl PlayedKubelet {
    /// Starts it, without managers, with its own server at this port.
    pub fn start(port: u16) -> Result<Self> {
        let (program, file) = (Path::new("/tmp/kubelet"), format!("{ROOT}/config.yaml"));
        // `read` is a part of the shell, so that the process keeps its name.
        fs::write(program, "#!/bin/sh\nread -r line\n").context("write the program of a kubelet")?;
        fs::set_permissions(program, Permissions::from_mode(0o755)).context("let it be run")?;
        fs::create_dir_all(ROOT).with_context(|| format!("make {ROOT}"))?;
        let configuration =
            format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nport: {port}\n");
        fs::write(&file, configuration).with_context(|| format!("write {file}"))?;
        let mut command = Command::new(program);
        command.args(["--config", &file, "--root-dir", ROOT]);
        let (process, stdin, stdout) = Running::with_pipes(&mut command)?;
        Ok(Self { _process: process, _pipes: (stdin, stdout) })
    }
}

/// What a CPU manager has given away.
#[derive(Debug, Clone, Default)]
pub struct CpuState {
    /// `none` or `static`.
    pub policy: &'static str,
    /// CPUs that no container has exclusively.
    pub shared: String,
    /// Pods with a container that has CPUs for itself, by uid: its name and its CPUs.
    pub exclusive: BTreeMap<String, (String, String)>,
}

impl CpuState {
    /// Writes the file.
    pub fn write(&self) -> Result<()> {
        fs::create_dir_all(ROOT).with_context(|| format!("make {ROOT}"))?;
        let entries: BTreeMap<_, _> =
            self.exclusive.iter().map(|(uid, (name, cpus))| (uid, json!({ name: cpus }))).collect();
        let mut state = json!({
            "policyName": self.policy,
            "defaultCpuSet": self.shared,
            "checksum": self.checksum(),
        });
        if !entries.is_empty() {
            state["entries"] = json!(entries);
        }
        let (file, new) = (format!("{ROOT}/cpu_manager_state"), format!("{ROOT}/.cpu_manager_state"));
        fs::write(&new, state.to_string()).with_context(|| format!("write {new}"))?;
        fs::rename(&new, &file).with_context(|| format!("rename {new} to {file}"))
    }

    /// FNV-1a over what Go prints of the struct (`pkg/kubelet/checkpointmanager/checksum`).
    fn checksum(&self) -> u32 {
        let mut entries = String::new();
        for (uid, (name, cpus)) in &self.exclusive {
            let blank = if entries.is_empty() { "" } else { " " };
            // Writing to a String cannot fail.
            let _ = write!(entries, "{blank}{uid}:map[{name}:{cpus}]");
        }
        let text = format!(
            "(*state.CPUManagerCheckpoint){{PolicyName:(string){} DefaultCPUSet:(string){} \
             Entries:(map[string]map[string]string)map[{entries}] Checksum:(checksum.Checksum)0}}",
            self.policy, self.shared
        );
        text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_real_nodes() {
        let none = CpuState { policy: "none", ..CpuState::default() };
        assert_eq!(none.checksum(), 1_353_318_690);
        let uid = "235148fe-393f-47a8-a17d-bd55bc1a836b".to_owned();
        let exclusive = [(uid, ("cgroup1-0".to_owned(), "1,13".to_owned()))].into();
        let given = CpuState { policy: "static", shared: "0,2-12,14-23".into(), exclusive };
        assert_eq!(given.checksum(), 1_552_716_370);
    }
}
